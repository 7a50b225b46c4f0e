"""Watches the memory of devices while a program runs: samples for its snapshots, and alarms."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from snapreport.recorder.allocator import CudaRecorder
from snapreport.recorder.device_samples import DeviceSamples
from snapreport.recorder.memory_alarm import MemoryAlarm
from snapreport.recorder.options import Options
from snapreport.recorder.python_thread import call_in_main_thread


class DeviceWatch:
    """``alarm`` is called with a sentence in the program's thread, between two of its own lines."""

    def __init__(self, options: Options, alarm: Callable[[str], None]) -> None:
        self.samples: DeviceSamples | None = None
        self._options = options
        self._raise = alarm
        self._memory: CudaRecorder | None = None
        self._alarm = MemoryAlarm(options.alarm, options.alarm_growth)
        self._due: list[str] = []

    def start(self, memory: CudaRecorder) -> None:
        """Watches the devices that ``memory`` records."""
        self._memory = memory
        if self._options.device_memory or self._options.alarm:
            self.samples = DeviceSamples(memory.kind, self._sampled)
            self.samples.start()

    def stop(self) -> None:
        if self.samples is not None:
            self.samples.stop()

    def step_ended(self) -> None:
        """At the end of a step, in the program's thread."""
        with contextlib.suppress(Exception):  # a device that is lost: the program will notice
            if self.samples is not None and not self.samples.has_thread:
                self.samples.take()
            if self._options.alarm_growth and self._memory is not None:
                for device, allocated in self._memory.allocated().items():
                    if text := self._alarm.stepped(device, allocated):
                        self._raise(text)

    def facts(self) -> dict[str, Any] | None:
        """The samples as plain data; None if none are taken."""
        return self.samples.facts() if self.samples is not None else None

    def _sampled(self, device: int, used: int, total: int) -> None:
        """Called with each sample, in any thread."""
        if text := self._alarm.used(device, used, total):
            self._due.append(text)
        if self._due:
            call_in_main_thread(self._raise_due)

    def _raise_due(self) -> None:
        """Not while a graph is captured, which the dump's questions to the driver could end: the next sample calls."""
        assert self._memory is not None
        capturing = self._memory.kind == "cuda" and sys.modules["torch"].cuda.is_current_stream_capturing()
        if self._due and not capturing:
            self._raise(self._due.pop())
