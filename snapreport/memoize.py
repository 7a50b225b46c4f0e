"""Results that several callers need, computed once for each owner."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

Owner = TypeVar("Owner")
Result = TypeVar("Result")


def memoize(compute: Callable[[Owner], Result]) -> Callable[[Owner], Result]:
    """``compute`` that remembers its result for each owner, for as long as the owner lives.

    Callers share the result and must not change it.
    """
    results: WeakKeyDictionary[Owner, Result] = WeakKeyDictionary()

    @wraps(compute)
    def remembered(owner: Owner) -> Result:
        if owner not in results:
            results[owner] = compute(owner)
        return results[owner]

    return remembered
