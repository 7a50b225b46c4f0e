"""What to record and when to write it, validated, and as JSON for the processes of a recorded command."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from dataclasses import asdict, dataclass, field, fields
from typing import Any

STACKS = ("python", "all")
CONTEXTS = ("all", "alloc", "state")
COMPRESSIONS = ("gzip", "zstd", "none")
# A million events take some 0.5 GiB of host memory while recording; a few steps of most runs have far fewer.
MAX_ENTRIES = 1_000_000
# The environment variable that passes the options to all processes of a recorded command.
VARIABLE = "SNAPREPORT_RECORD"


@dataclass(frozen=True)
class Options:
    """How a process records.

    directory: where snapshots are written. stacks, context, max_entries: as for PyTorch's recorder.
    steps: (first, end) of the steps whose events are recorded, counted from 0, end excluded; other steps keep stack
      traces of live blocks but no events. profile: steps (first, end) of which a torch.profiler trace is written.
      every: dump after this many steps. digest_every: write a digest
      after this many steps, and at the end; digests: the folder or address that they are written to, by default
      directory. on_signal: a signal's name without SIG.
    keep: how many periodic dumps, and how many OOM dumps, stay on disk. oom_seconds: how long an OOM dump may delay the
      exception. redact: regular expressions whose matches in the command line are replaced.
    modules: note which module of the program allocates, shapes and dtypes of what modules return, and what autograd
      saves.
    device_memory: sample the memory in use on each device, of all processes. pinned: record pinned host memory, where
      PyTorch can (2.10 and later). alarm: dump when this share of a device's memory is in use; alarm_growth: dump after
      so many steps in a row that each end with more allocated than any before.
    git: facts about the working tree, collected once per command instead of once per process.
    python: the Python that snapreport is installed in. run: names the recorded command, which distinguishes two runs
      whose files are in one folder.
    """

    directory: str
    stacks: str = "python"
    context: str = "all"
    max_entries: int = MAX_ENTRIES
    steps: tuple[int, int] | None = None
    profile: tuple[int, int] | None = None
    every: int | None = None
    digest_every: int | None = None
    digests: str | None = None
    on_oom: bool = True
    on_signal: str | None = None
    at_exit: bool | None = None
    annotations: bool = False
    modules: bool = True
    device_memory: bool = True
    pinned: bool = True
    alarm: float | None = None
    alarm_growth: int | None = None
    keep: int = 3
    compression: str = "gzip"
    oom_seconds: float = 120.0
    redact: tuple[str, ...] = ()
    git: dict[str, Any] | None = field(default=None, repr=False)
    python: str = field(default_factory=lambda: sys.executable, repr=False)
    run: str = field(default_factory=lambda: os.urandom(4).hex(), repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError that names the option."""
        _one_of("stacks", self.stacks, STACKS)
        _one_of("context", self.context, CONTEXTS)
        _one_of("compression", self.compression, COMPRESSIONS)
        for name in ("max_entries", "every", "digest_every", "keep", "alarm_growth"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} is {value!r}, not a positive whole number")
        for name, chosen in (("steps", self.steps), ("profile", self.profile)):
            if chosen is not None and not 0 <= chosen[0] < chosen[1]:
                raise ValueError(f"{name}: {chosen[0]}:{chosen[1]} is no step")
        if self.on_signal is not None:
            signal_number(self.on_signal)
        if self.alarm is not None and not 0 < self.alarm <= 1:
            raise ValueError(f"alarm is {self.alarm!r}, not a share of a device's memory such as 0.9")
        if self.digests is not None and self.digest_every is None:
            raise ValueError("digests are written after so many steps: give digest_every")
        for pattern in self.redact:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"redact is {pattern!r}: {error}") from None

    @property
    def dumps_at_exit(self) -> bool:
        """Whether to dump at the end of the program; by default only if no other dump is planned."""
        return self.steps is None and self.every is None if self.at_exit is None else self.at_exit

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def from_json(text: str) -> Options:
    """The inverse of :meth:`Options.to_json`; keys of another version are ignored."""
    known = {f.name for f in fields(Options)}
    values = {key: value for key, value in json.loads(text).items() if key in known}
    for name in ("steps", "profile"):
        values[name] = tuple(values[name]) if values.get(name) else None
    values["redact"] = tuple(values.get("redact") or ())
    return Options(**values)


def parse_steps(text: str) -> tuple[int, int]:
    """``3:6`` → (3, 6): steps 3, 4 and 5, like a Python slice. ``3`` alone is one step."""
    found = re.fullmatch(r"(\d{1,15})(?::(\d{1,15}))?", text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a range of steps such as 3:6")
    first = int(found[1])
    end = int(found[2]) if found[2] else first + 1
    if end <= first:
        raise ValueError(f"{text!r} is an empty range of steps")
    return first, end


def signal_number(name: str) -> int:
    """The number of ``USR1`` or ``SIGUSR1``. Raises ValueError if this system does not have it."""
    number = getattr(signal, name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}", None)
    if not isinstance(number, int) or number in (getattr(signal, "SIGKILL", -1), getattr(signal, "SIGSTOP", -1)):
        raise ValueError(f"on_signal is {name!r}, not a signal that can be caught; USR1 is")
    return int(number)


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}; it can be {', '.join(known)}")
