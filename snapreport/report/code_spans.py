"""Finds the code in a sentence: names of stacks, functions and settings, which HTML and Markdown mark up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from markupsafe import Markup, escape

from snapreport.report.source_links import linked_parts

_NO_LINKS: Mapping[str, str] = MappingProxyType({})

# Text in backticks, and the forms that findings write without them: "forward dit.py:83 from train.py:42", a C++ name,
# a call, a setting of the allocator.
_CODE = re.compile(
    r"`(?P<quoted>[^`]+)`"
    r"|(?P<plain>[\w<>.]+ [\w.+-]+\.py(?::\d+)?(?: from [\w.+-]+\.py:\d+)?"
    r"|[A-Za-z_]\w*(?:::~?\w+)+"
    r"|[a-z_]\w*(?:\.\w+)*\([\w=,. ]*\)(?:\.\w+\([\w=,. ]*\))*"
    r"|PYTORCH_\w+(?:=[\w:.,]+)?)"
)


def code_spans(text: str) -> list[tuple[bool, str]]:
    """``text`` split into (is code, part), without backticks."""
    parts: list[tuple[bool, str]] = []
    end = 0
    for found in _CODE.finditer(text):
        if found.start() > end:
            parts.append((False, text[end : found.start()]))
        parts.append((True, found["quoted"] or found["plain"]))
        end = found.end()
    return [*parts, (False, text[end:])] if end < len(text) else parts


def code_markup(text: str, links: Mapping[str, str] = _NO_LINKS) -> Markup:
    """``text`` as HTML, its code in ``code`` elements. ``links``: addresses of lines by their name."""
    return Markup("").join(
        Markup("<code>{}</code>").format(place_markup(part, links)) if is_code else escape(part)
        for is_code, part in code_spans(text)
    )


def sentence_markup(text: str, href: str = "", links: Mapping[str, str] = _NO_LINKS) -> Markup:
    """A sentence as one HTML element: a link to ``href`` if given. Names of lines that have an address are separate
    links; the text before and after them links to ``href``.
    """
    if not href:
        return Markup("<span>{}</span>").format(code_markup(text, links))
    whole = Markup('<a href="{}">{}</a>')
    out, run = Markup(), Markup()
    for is_code, span in code_spans(text):
        for part, url in linked_parts(span, links) if is_code else [(span, "")]:
            shown = Markup("<code>{}</code>").format(part) if is_code else escape(part)
            if not url:
                run += shown
                continue
            out += _linked(whole, href, run) + Markup('<a href="{}" rel="noreferrer">{}</a>').format(url, shown)
            run = Markup()
    return Markup("<span>{}</span>").format(out + _linked(whole, href, run)) if out else whole.format(href, run)


def _linked(whole: Markup, href: str, run: Markup) -> Markup:
    """The text between two links; a full stop or " from " alone is not linked."""
    return whole.format(href, run) if len(re.findall(r"\w+", run.striptags())) > 1 else run


def place_markup(text: str, links: Mapping[str, str] = _NO_LINKS) -> Markup:
    """A name of a stack, or several with arrows between them, as HTML: names of lines that have an address as links."""
    return Markup("").join(
        Markup('<a href="{}" rel="noreferrer">{}</a>').format(url, part) if url else escape(part)
        for part, url in linked_parts(text, links)
    )
