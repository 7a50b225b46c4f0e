"""The one error that bad input, bad usage and unwritable output end in."""

from __future__ import annotations


class SnapshotError(ValueError):
    """A snapshot that cannot be read, or an output that cannot be written.

    The message is one line that names the file, what is wrong and where in the snapshot it is, for example
    ``snap.pickle: device_traces[0][17]: no 'action'``. The command line prints it and exits with ``exit_code``.
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: str, limit: int = 1000) -> str:
    """``text`` as one printable line: control characters and lone surrogates escaped, the middle of long text left out."""
    if len(text) > limit:
        text = f"{text[: limit // 2]} … {text[-limit // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
