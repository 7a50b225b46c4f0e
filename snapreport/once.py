"""Things that are asked for in several places and made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

Owner = TypeVar("Owner")
Made = TypeVar("Made")


def once(make: Callable[[Owner], Made]) -> Callable[[Owner], Made]:
    """``make`` that remembers what it made of each owner, for as long as the owner lives. Nobody may change what it
    gives.
    """
    known: WeakKeyDictionary[Owner, Made] = WeakKeyDictionary()

    @wraps(make)
    def asked(owner: Owner) -> Made:
        if owner not in known:
            known[owner] = make(owner)
        return known[owner]

    return asked
