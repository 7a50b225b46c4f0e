"""When to warn of a program that is about to run out of memory."""

from __future__ import annotations

from snapreport.number_format import bytes_text, share_text

_REARM = 0.95
"""Of the limit: a device that falls below may alarm again."""


class MemoryAlarm:
    """share: of a device's memory, of all processes, that alarms when it is passed; None: none does. steps: ends of
    steps in a row, each with more allocated than all before it, that alarm; None: none do.
    """

    def __init__(self, share: float | None, steps: int | None) -> None:
        self._share, self._steps = share, steps
        self._is_over: set[int] = set()
        self._most: dict[int, int] = {}
        self._grown: dict[int, tuple[int, int]] = {}  # device: steps in a row, bytes before the first of them

    def used(self, device: int, used: int, total: int) -> str:
        """A sentence when ``used`` passes the share; else empty."""
        if self._share is None or total <= 0:
            return ""
        limit = self._share * total
        if used < limit:
            if used < _REARM * limit:
                self._is_over.discard(device)
            return ""
        if device in self._is_over:
            return ""
        self._is_over.add(device)
        return (
            f"Alarm: {share_text(used, total)} of the memory of cuda:{device} are in use, "
            f"{bytes_text(used)} of {bytes_text(total)}."
        )

    def stepped(self, device: int, allocated: int) -> str:
        """A sentence at the end of a step when memory has grown for long enough; else empty."""
        if self._steps is None:
            return ""
        most = self._most.get(device)
        self._most[device] = max(allocated, most or 0)
        if most is None or allocated <= most:
            self._grown.pop(device, None)
            return ""
        count, start = self._grown.get(device, (0, most))
        self._grown[device] = count + 1, start
        if count + 1 < self._steps:
            return ""
        del self._grown[device]
        return (
            f"Alarm: memory of cuda:{device} grew in each of {count + 1} steps, "
            f"from {bytes_text(start)} to {bytes_text(allocated)} allocated."
        )
