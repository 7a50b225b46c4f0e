r"""Text for terminals. Strings of a snapshot may hold escape sequences, line breaks and characters that reverse or hide
text: none of them may move a cursor, forge a line or change what a reader sees. They are shown as ``\x1b``, ``\n``,
``\u202e``.

Two steps: :func:`lines` puts a text together, after which only its own line breaks are left; :func:`echo`, through
which every command prints, escapes again whatever a text holds besides line breaks.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

WIDTH = 100
"""Of wrapped text, in characters."""
# Words that begin a line, and their colours on a terminal (ECMA-48): bold red, bold yellow, green.
_MARKED = {"ERROR": "1;31", "FAIL": "1;31", "WARNING": "1;33", "UNKNOWN": "1;33", "ok": "32"}
_MARK = re.compile(rf"^({'|'.join(_MARKED)})(?=  )", re.MULTILINE)
colour = "auto"
"""``always``, ``never``, or ``auto``: on a terminal, unless NO_COLOR is set (no-color.org)."""
# Letters and marks to Unicode, but blank on a screen: fillers of Hangul, the blank of Braille, a joiner.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]")


def visible(text: str) -> str:
    """``text`` on one line, with what is not printable escaped as in a Python string: control and format characters
    (bidirectional and zero-width ones among them), line and paragraph separators, lone surrogates.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return text if text.isascii() else _BLANK.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def lines(texts: Iterable[str]) -> str:
    """One line for each of ``texts``."""
    return "\n".join(map(visible, texts))


def wrapped(text: str, first: str = "", further: str = "") -> list[str]:
    """``text`` in lines of at most :data:`WIDTH`; ``first``, ``further``: what the first and the others begin with."""
    return textwrap.wrap(
        visible(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each of ``rows``, their cells in columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def echo(text: str, *, err: bool = False) -> None:
    """Print ``text`` and a line break on standard output, or on standard error.

    Characters that the stream's encoding lacks are escaped too. Raises OSError where nothing can be written, except for
    standard error, whose absence must not hide the exit code.
    """
    stream: TextIO | None = sys.stderr if err else sys.stdout
    shown = f"{lines(text.split(chr(10)))}\n"
    try:
        if stream is None:
            raise OSError(9, "Bad file descriptor")
        encoding = getattr(stream, "encoding", None) or "utf-8"
        shown = shown.encode(encoding, "backslashreplace").decode(encoding)
        stream.write(_MARK.sub(_coloured, shown) if _is_coloured(stream) else shown)
        stream.flush()
    except (OSError, ValueError):
        if not err:
            raise


def _is_coloured(stream: TextIO) -> bool:
    if colour != "auto":
        return colour == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _coloured(mark: re.Match[str]) -> str:
    return f"\x1b[{_MARKED[mark[1]]}m{mark[1]}\x1b[0m"
