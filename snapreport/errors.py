"""The errors that bad input, bad usage and unwritable output end in."""

from __future__ import annotations

from snapreport.terminal import visible


class SnapshotError(ValueError):
    """A snapshot that cannot be read, or an output that cannot be written.

    The message is one line that names the file, what is wrong and where in the snapshot it is, for example
    ``snap.pickle: device_traces[0][17]: no 'action'``. The command line prints it and exits with ``exit_code``.
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class QueryError(SnapshotError):
    """A malformed query. ``position``, ``length``: the bad part of it, in characters; ``reason``: without the
    place.
    """

    def __init__(self, reason: str, position: int, length: int) -> None:
        super().__init__(f"the query is bad at character {position + 1}: {reason}")
        self.reason, self.position, self.length = reason, position, length


class SettingsError(SnapshotError):
    """A setting of the allocator that PyTorch would refuse, or that cannot be replayed."""


def one_line(text: str, limit: int = 1000) -> str:
    """``text`` as one printable line (see ``terminal.visible``), the middle of long text left out."""
    if len(text) > limit:
        text = f"{text[: limit // 2]} … {text[-limit // 2 :]}"
    return visible(text)
