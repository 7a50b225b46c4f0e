"""What the program itself does with PyTorch's recorder while it is being recorded: starts it, ends it, dumps."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def watch_history(memory: Any, ended: Callable[[str], None], notice: Callable[[str], None]) -> Callable[[], None]:
    """Wraps the functions of ``memory`` (``torch.cuda.memory``). Returns a function that undoes it.

    ``ended`` is called with a line for the log before the program ends the recording, which clears the trace;
    ``notice`` with one when it starts the recording with settings of its own, or writes a snapshot, once each.
    """
    record, dump = memory._record_memory_history, getattr(memory, "_dump_snapshot", None)  # XPU of some versions
    noticed: set[str] = set()

    def say_once(text: str) -> None:
        if text not in noticed:
            noticed.add(text)
            notice(text)

    @functools.wraps(record)
    def record_and_say(*arguments: Any, **named: Any) -> Any:
        enabled = arguments[0] if arguments else named.get("enabled", "all")
        where = _caller()
        if enabled is None or enabled is False:
            ended(f"the program ends the recording itself ({where}): recorded until here")
        else:
            say_once(f"the program sets up the recording itself ({where}): its settings apply from there on")
        return record(*arguments, **named)

    def dump_and_say(*arguments: Any, **named: Any) -> Any:
        say_once(f"the program writes snapshots itself ({_caller()})")
        assert dump is not None
        return dump(*arguments, **named)

    memory._record_memory_history = record_and_say
    if dump is not None:
        memory._dump_snapshot = functools.wraps(dump)(dump_and_say)

    def undo() -> None:
        if memory._record_memory_history is record_and_say:
            memory._record_memory_history = record
        if getattr(memory, "_dump_snapshot", None) is dump_and_say:
            memory._dump_snapshot = dump

    return undo


def _caller() -> str:
    """``train.py:12``, of the code that called the wrapped function."""
    frame = sys._getframe(2)
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
