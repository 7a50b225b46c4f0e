"""Samples of the memory in use on each device, as nvidia-smi shows it: also what PyTorch's allocator does not know of.

A thread asks NVML, by the package nvidia-ml-py if the program's Python has it: that needs no CUDA context and takes no
part in the capture of a CUDA graph. Otherwise ``cudaMemGetInfo`` is called at the ends of steps, in the program's
thread: called by another thread it could end a capture.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from array import array
from collections.abc import Callable
from typing import Any

from snapreport.recorder import metadata

SECONDS = 0.02
"""Between samples. One takes some 20 µs of Python, and as long within NVML."""
MOST_SAMPLES = 100_000
"""Of a device to keep; only changes count, and the latest stay."""
MOST_STACKS, MOST_FRAMES = 2000, 48
_RETRIES = 3
_LONGEST_US = 1000
_NONE = -1  # for unknown bytes, or no stack trace
_COLUMNS = ("times_us", "since_us", "used", "own", "stacks", "stacks_before")


class DeviceSamples:
    """Samples from :meth:`start` to :meth:`stop`, or at each :meth:`take`. Calls ``seen`` with device, used and total
    bytes of each sample.
    """

    def __init__(self, kind: str, seen: Callable[[int, int, int], None]) -> None:
        self._kind, self._seen = kind, seen
        self._nvml: Nvml | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._lock = threading.RLock()  # a signal's handler may dump within a sample
        self._columns: dict[int, dict[str, array[int]]] = {}
        self._totals: dict[int, int] = {}
        self._last: dict[int, tuple[int, int, int]] = {}  # device: time_us, used, own
        self._frames: dict[tuple[str, int, str], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._running: tuple[Any, ...] = ()
        self._program = threading.main_thread().ident

    def start(self) -> None:
        """Begins to sample in a thread, where NVML can be asked."""
        if self._kind != "cuda":
            return
        with contextlib.suppress(Exception):  # no package, no library, no permission: there is the other way
            self._nvml = Nvml()
            self._thread = threading.Thread(target=self._run, name="snapreport-devices", daemon=True)
            self._thread.start()

    @property
    def has_thread(self) -> bool:
        """Whether samples are taken without a call of :meth:`take`."""
        return self._thread is not None

    def stop(self) -> None:
        """Ends the thread, which waits for nothing longer than a sample."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1)

    def _run(self) -> None:
        while not self._ended.wait(SECONDS):
            with contextlib.suppress(Exception):  # a device that is lost, or a driver that is reloaded
                self.take()

    def take(self) -> None:
        """A sample of each device that this process uses. Without NVML to be called by the program's thread, and
        nothing is sampled while that captures a graph.
        """
        with self._lock:
            before, self._running = self._running, self._stack()
            for device in metadata.used_devices(self._kind):
                for _ in range(_RETRIES):
                    began = metadata.now_us()
                    found = self._read(device)
                    # Where it takes longer, this thread was put aside, and the time means little.
                    if metadata.now_us() - began < _LONGEST_US:
                        break
                if found is not None:
                    self._add(device, began, *found, before)

    def _read(self, device: int) -> tuple[int, int, int] | None:
        """``used``, ``total`` and ``own`` bytes; None if they cannot be read now."""
        if self._nvml is not None:
            return self._nvml.read(device, self._last.get(device, (0, _NONE, _NONE))[1:])
        module = getattr(sys.modules["torch"], self._kind)
        if self._kind == "cuda" and module.is_current_stream_capturing():
            return None
        free, total = module.mem_get_info(device)
        return int(total - free), int(total), _NONE

    def _stack(self) -> tuple[Any, ...]:
        """What the main thread runs: (code, line) of its frames, innermost first."""
        frame = sys._current_frames().get(self._program or 0)
        found: list[tuple[Any, int]] = []
        while frame is not None and len(found) < MOST_FRAMES:
            found.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        return tuple(found)

    def _add(self, device: int, now: int, used: int, total: int, own: int, before: tuple[Any, ...]) -> None:
        last = self._last.get(device)
        self._last[device], self._totals[device] = (now, used, own), total
        if last is None or last[1:] != (used, own):
            columns = self._columns.setdefault(device, {name: array("q") for name in _COLUMNS})
            row = (now, last[0] if last else now, used, own, self._code(self._running), self._code(before))
            for name, value in zip(_COLUMNS, row):  # noqa: B905  Python 3.9
                columns[name].append(value)
                if len(columns[name]) > MOST_SAMPLES:
                    del columns[name][: MOST_SAMPLES // 10]
        self._seen(device, used, total)

    def _code(self, stack: tuple[Any, ...]) -> int:
        """The number of a stack trace; -1 for one too many."""
        frames = tuple(
            self._frames.setdefault((code.co_filename, line, code.co_name), len(self._frames)) for code, line in stack
        )
        if frames not in self._stacks and len(self._stacks) >= MOST_STACKS:
            return _NONE
        return self._stacks.setdefault(frames, len(self._stacks))

    def facts(self) -> dict[str, Any]:
        """The samples as plain data: columns of each device, whose ``stacks`` are numbers of lists of frames."""
        is_locked = self._lock.acquire(timeout=1)  # another thread may hang in the driver
        try:
            return {
                "source": "nvml" if self._nvml is not None else "mem_get_info",
                "devices": {
                    device: {"total": self._totals[device], **{name: list(columns[name]) for name in _COLUMNS}}
                    for device, columns in self._columns.items()
                },
                "frames": [list(frame) for frame in self._frames],
                "stacks": [list(stack) for stack in self._stacks],
            }
        finally:
            if is_locked:
                self._lock.release()


class Nvml:
    """NVML through nvidia-ml-py. Raises ImportError, and NVMLError without a driver."""

    def __init__(self) -> None:
        import pynvml

        self._nvml: Any = pynvml
        self._handles: dict[int, Any] = {}
        pynvml.nvmlInit()

    def read(self, device: int, last: tuple[int, int]) -> tuple[int, int, int]:
        """``used``, ``total`` and ``own`` bytes of a device; own is -1 where NVML does not name this process, as in a
        container with numbers of its own, and is not asked again while ``last`` (used, own) still holds.
        """
        handle = self._handle(device)
        used, total = self._memory(handle)
        if used == last[0]:
            return used, total, last[1]
        own = _NONE
        for _ in range(_RETRIES):  # both figures of one moment
            own, before = self._own(handle), used
            used, total = self._memory(handle)
            if used == before:
                break
        return used, total, own

    def _memory(self, handle: Any) -> tuple[int, int]:
        nvml = self._nvml
        try:  # without what the driver reserves for itself, as nvidia-smi
            info = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        except (nvml.NVMLError, AttributeError, TypeError):
            info = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(info.used), int(info.total)

    def _own(self, handle: Any) -> int:
        pid = os.getpid()
        for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.pid == pid and process.usedGpuMemory is not None:
                return int(process.usedGpuMemory)
        return _NONE

    def _handle(self, device: int) -> Any:
        """NVML numbers all devices of the machine, PyTorch those that CUDA_VISIBLE_DEVICES names."""
        if device not in self._handles:
            cuda = sys.modules["torch"].cuda
            uuid = getattr(cuda.get_device_properties(device), "uuid", None)
            try:
                handle = self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            except self._nvml.NVMLError:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(cuda._get_nvml_device_index(device))
            self._handles[device] = handle
        return self._handles[device]
