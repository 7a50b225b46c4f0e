"""Text for Markdown, where every character of a snapshot's strings must stand for itself."""

from __future__ import annotations

import re

from snapreport.report.code_spans import code_spans

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#+!|~$@])")
# A line break, or a number or dash at the beginning of a line, would start a new block.
_BREAKS = re.compile(r"\s+")


def escape(text: str) -> str:
    """``text`` as plain words on one line. An ``@`` is escaped too: a mention in a ticket would call somebody."""
    return _SPECIAL.sub(r"\\\1", _BREAKS.sub(" ", text))


def code_cell(text: str) -> str:
    """``text`` as code inside a table's cell."""
    text = _BREAKS.sub(" ", text).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def prose(text: str) -> str:
    """A sentence, its code in backticks and the rest escaped."""
    return "".join(code_cell(part) if is_code else escape(part) for is_code, part in code_spans(text))
