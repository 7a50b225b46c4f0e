"""Detects the ends of steps in an unmodified program. Each function returns a function that undoes it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def on_optimizer_step(callback: Callable[[Any], None]) -> Callable[[], None]:
    """Calls ``callback`` with each optimizer of the process after its ``step()``."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    hook = register_optimizer_step_post_hook(lambda optimizer, *_: callback(optimizer))
    return lambda: hook.remove()


def on_profiler_step(callback: Callable[[], None]) -> Callable[[], None]:
    """Calls ``callback`` after ``step()`` of the program's own ``torch.profiler.profile``."""
    profile = sys.modules["torch"].profiler.profile
    step = profile.step

    def step_and_call(profiler: Any) -> None:
        step(profiler)
        callback()

    def undo() -> None:
        if profile.step is step_and_call:  # and no other tool has wrapped it
            profile.step = step

    profile.step = step_and_call
    return undo


def on_profiler_start(own: Callable[[], Any], callback: Callable[[], None]) -> Callable[[], None]:
    """Calls ``callback`` before the program starts another ``torch.profiler`` than ``own()``: one runs at a time."""
    inner = sys.modules["torch"].autograd.profiler.profile
    prepare = inner._prepare_trace

    def prepare_and_yield(profile: Any, *arguments: Any, **named: Any) -> Any:
        if profile is not getattr(own(), "profiler", None):
            callback()
        return prepare(profile, *arguments, **named)

    inner._prepare_trace = prepare_and_yield
    return lambda: setattr(inner, "_prepare_trace", prepare)
