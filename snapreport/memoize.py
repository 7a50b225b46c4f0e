"""Results that several callers need, computed once for each owner."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary, finalize

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


def memoize_by_identity(compute: Callable[[Owner], Result]) -> Callable[[Owner], Result]:
    """The same for owners that cannot be keys, such as a DataFrame, which must not change."""
    results: dict[int, Result] = {}

    @wraps(compute)
    def remembered(owner: Owner) -> Result:
        key = id(owner)
        if key not in results:
            results[key] = compute(owner)
            finalize(owner, results.pop, key).atexit = False
        return results[key]

    return remembered
