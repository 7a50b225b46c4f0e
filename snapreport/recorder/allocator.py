"""PyTorch's recorder of CUDA memory, or of XPU memory, which has the same interface: starting, stopping, OOM observer,
snapshots.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from snapreport.number_format import bytes_text, with_article
from snapreport.recorder.dump import SUFFIXES, write_snapshot
from snapreport.recorder.metadata import KEY, used_devices
from snapreport.recorder.options import Options
from snapreport.recorder.own_history import watch_history

NO_STACKS_OF_FREES = "frees have no stack traces: collecting them, PyTorch 2.11 breaks activation checkpointing"
_observers: list[Callable[[int, int, int, int], None]] = []  # the attached one, for the life of the process


class CudaRecorder:
    """``torch.cuda.memory._record_memory_history`` with ``options``; that of ``torch.xpu`` if ``kind`` is "xpu"."""

    suffixes = SUFFIXES

    def __init__(self, options: Options, kind: str = "cuda") -> None:
        self._options = options
        self.kind = kind
        self.recording = False
        self._mode: str | None = None
        self._record_history: Callable[..., Any] = lambda **_: None
        self._unwatch: Callable[[], None] = lambda: None
        # As in ProfilerRecorder: recording has to end; a line for the log.
        self.ends_early: Callable[[str], None] = lambda _: None
        self.notice: Callable[[str], None] = lambda _: None

    @property
    def steps(self) -> tuple[int, int] | None:
        """The steps to record, followed by a dump."""
        return self._options.steps

    @property
    def module(self) -> Any:
        """``torch.cuda`` or ``torch.xpu``."""
        return getattr(sys.modules["torch"], self.kind)

    def when_ready(self, begin: Callable[[], None]) -> None:
        """Calls ``begin`` once the program has initialised the device. Does not initialise it: a launcher never needs
        it, and programs choose their device first.
        """
        self.module._lazy_call(begin)

    def begin(self, on_oom: Callable[[int, int, int, int], None]) -> None:
        """Switches recording on and attaches the OOM observer. CUDA must be initialised."""
        self.recording = True
        if self.kind == "cuda":  # XPU has no observer
            _attach(on_oom)
        self._record_history = self.module.memory._record_memory_history
        self._unwatch = watch_history(self.module.memory, self._end_by_program, self.notice)

    def _end_by_program(self, reason: str) -> None:
        if self.recording:
            self.ends_early(reason)

    def step(self, number: int) -> None:
        """Records for step ``number``: events inside the chosen steps, only stack traces of live blocks outside."""
        steps = self._options.steps
        mode = "all" if steps is None or steps[0] <= number < steps[1] else "state"
        if self.recording and mode != self._mode:
            self._mode = mode
            self._record(mode)

    def stop(self) -> None:
        """Switches recording off."""
        if self.recording:
            self.recording = False
            self._unwatch()
            _observers.clear()
            with contextlib.suppress(RuntimeError):
                self._record_history(enabled=None)

    def _record(self, mode: str) -> None:
        record = self._record_history
        arguments: dict[str, Any] = {"max_entries": self._options.max_entries, "stacks": self._options.stacks}
        # Frees outside the chosen steps are not recorded, so their stack traces would be discarded.
        arguments["context"] = self._context() if mode == "all" else "state"
        known = inspect.signature(record).parameters
        if self._options.annotations and "global_record_annotations" in known:
            arguments["global_record_annotations"] = True
        if self._options.pinned and "record_pinned_host_memory" in known:
            arguments["record_pinned_host_memory"] = True
        # Outside the chosen steps one event remains in the trace; disabling clears it, and blocks keep their stacks.
        record(enabled=None)
        record(mode, **arguments)

    def _context(self) -> str:
        """The option, but no stack traces of frees on PyTorch 2.11: while it collects one in a backward pass, it clears
        the exception that is being raised, such as the one by which a checkpoint ends its recomputation early. The
        program then ends in a SystemError. Seen in 2.11.0, not in 2.10.0 or 2.12.1.
        """
        if self._options.context != "all" or not sys.modules["torch"].__version__.startswith("2.11."):
            return self._options.context
        self.notice(NO_STACKS_OF_FREES)
        return "alloc"

    def write(self, path: Path, compression: str, facts: dict[str, Any], deadline: float | None) -> bool:
        """Writes PyTorch's snapshot and the program's ``facts``, as :func:`write_snapshot`. Returns True."""
        write_snapshot({KEY: facts, **self.snapshot()}, path, compression, deadline)
        return True

    def snapshot(self) -> dict[str, Any]:
        """PyTorch's snapshot, with the garbage collector paused: it would traverse a million dicts."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            with _no_compiler_import():
                return dict(self.module.memory._snapshot())
        finally:
            if was_enabled:
                gc.enable()

    def allocated(self) -> dict[int, int]:
        """Bytes allocated on each device that this process uses."""
        return {device: int(self.module.memory_allocated(device)) for device in used_devices(self.kind)}

    def memory_line(self, device: int, requested: int, free: int) -> str:
        """A description of an out-of-memory error for the log."""
        torch = sys.modules["torch"]
        allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        return (
            f"Out of memory on cuda:{device}: {with_article(bytes_text(requested))} request failed with "
            f"{bytes_text(allocated)} allocated, {bytes_text(reserved - allocated)} cached, {bytes_text(free)} free on "
            "the device."
        )


def memory_kind() -> str:
    """The kind of memory that this PyTorch can record here: ``cuda``, ``xpu``, or ``cpu`` if there is neither. Nothing
    is initialised: a process that queries CUDA for its devices can no longer fork.
    """
    torch = sys.modules["torch"]
    if getattr(torch.version, "xpu", None):
        return "xpu"
    if getattr(torch.version, "hip", None):
        return "cuda" if Path("/dev/kfd").exists() else "cpu"
    return "cuda" if torch.version.cuda is not None and _has_driver(torch.version.cuda) else "cpu"


def _has_driver(cuda: str) -> bool:
    """Whether there is an NVIDIA driver, according to the runtime that PyTorch has loaded; true if unknown."""
    with contextlib.suppress(OSError, AttributeError):
        version = ctypes.c_int(0)
        runtime = ctypes.CDLL(f"libcudart.so.{cuda.partition('.')[0]}")
        return runtime.cudaDriverGetVersion(ctypes.byref(version)) == 0 and version.value > 0
    return True


def _attach(on_oom: Callable[[int, int, int, int], None]) -> None:
    """PyTorch has no way to detach an observer, so one is attached per process and calls the current recorder."""
    first = not _attached
    _observers[:] = [on_oom]
    if first:
        _attached.append(True)
        sys.modules["torch"]._C._cuda_attach_out_of_memory_observer(_observe)


_attached: list[bool] = []


def _observe(device: int, requested: int, total: int, free: int) -> None:
    """Called by the allocator in the failing thread, before it raises. Raising here would change the error."""
    for observer in tuple(_observers):
        with contextlib.suppress(Exception):
            observer(device, requested, total, free)


@contextlib.contextmanager
def _no_compiler_import() -> Iterator[None]:
    """Prevents a snapshot from importing the whole compiler, which takes seconds and host memory while memory runs out.

    For the frames of compiled code, PyTorch looks up ``torch._inductor.codecache``, which imports it. If it is not
    imported yet, there is no compiled code.
    """
    torch = sys.modules["torch"]
    name = "torch._inductor"
    if name in sys.modules or "_inductor" in vars(torch):
        yield
        return
    stand_in = _Absent(name)
    vars(torch)["_inductor"] = stand_in
    try:
        yield
    finally:
        if vars(torch).get("_inductor") is stand_in:
            del vars(torch)["_inductor"]


class _Absent(types.ModuleType):
    """``torch._inductor`` without ``codecache``; other attributes, for other threads, come from the real module."""

    def __getattr__(self, name: str) -> Any:
        if name == "codecache" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)
