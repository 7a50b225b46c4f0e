"""Escapes text for Markdown, so that every character of a snapshot's strings is literal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from types import MappingProxyType

from snapreport.report.source_links import BETWEEN, linked_parts
from snapreport.sentence import parts_of
from snapreport.terminal import visible

_NO_LINKS: Mapping[str, str] = MappingProxyType({})
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#+!|~$@&])")
_BREAKS = re.compile(r"\s+")
# A number or a dash at the beginning would start a list, an equals sign underline a heading.
_BLOCK = re.compile(r"^(\d{1,9}(?=[.)](?:\s|$))|(?=[-=]))(.)")
# Text that renderers turn into links by themselves, except in code.
_LINK = re.compile(
    r"(?i)[a-z][a-z0-9+.-]{0,30}://[^\s`]+|\bwww\.[^\s`]+|[\w.+-]{1,64}@[\w-]+\.[\w.-]+|\b(?:mailto|xmpp):[^\s`]+"
)


def escape(text: str) -> str:
    """``text`` as plain words on one line, addresses in it as code. An ``@`` is escaped too: a mention in a ticket
    would notify somebody.
    """
    text = visible(_BREAKS.sub(" ", text))
    parts, end = [], 0
    for found in _LINK.finditer(text):
        parts += [_SPECIAL.sub(r"\\\1", text[end : found.start()]), code_cell(found[0])]
        end = found.end()
    words = "".join([*parts, _SPECIAL.sub(r"\\\1", text[end:])])
    return _BLOCK.sub(r"\1\\\2", words)


def code_cell(text: str) -> str:
    """``text`` as code in a table cell."""
    text = visible(_BREAKS.sub(" ", text))
    if not text:
        return ""
    # GitHub's tables treat a pipe after an escaped backslash as the end of a cell, even in code.
    text = re.sub(r"\\+\|", lambda found: f"{found[0][:-1]}x7c", text).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def place(text: str, links: Mapping[str, str] = _NO_LINKS) -> str:
    """A name of a stack as code, names of lines that have an address as links; valid in a table cell."""
    parts = linked_parts(text, links)
    if not any(url for _, url in parts):
        return code_cell(text)
    return "".join(
        f"[{code_cell(part)}]({url})" if url else part if part in BETWEEN else code_cell(part) for part, url in parts
    )


def prose(text: str, links: Mapping[str, str] = _NO_LINKS) -> str:
    """A sentence, its code in backticks and the rest escaped. ``links``: addresses of lines by their name."""
    runs = groupby(parts_of(text), key=lambda part: part.is_name)
    return "".join(
        "".join(place(part.text, links) for part in parts) if is_name else escape("".join(part.text for part in parts))
        for is_name, parts in runs
    )
