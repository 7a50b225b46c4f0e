"""Sentences as HTML: code in ``code`` elements, parts as links to what they refer to."""

from __future__ import annotations

import re
from collections.abc import Mapping

from markupsafe import Markup, escape
from msgspec import Struct, field

from snapreport.report.source_links import linked_parts
from snapreport.sentence import Part, parts_of

_SOURCE = Markup('<a href="{}"{} rel="noreferrer">{}</a>')
_TAB = Markup(' target="_blank"')
_PLACE = Markup('<a href="{}">{}</a>')


class Links(Struct, frozen=True):
    """What parts of one snapshot's sentences link to. sources: addresses of lines by their name. devices: the page's
    index of each device; ``device``: that of the sentences' own, -1 for none. stack_base: the page's number of the
    snapshot's first stack.
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    device: int = -1
    devices: Mapping[int, int] = field(default_factory=dict)
    stack_base: int = 0

    def place(self, part: Part) -> str:
        """The hash of the page that shows what a part refers to, "" if nothing does; see ``static/src/app/hash.ts``."""
        if part.number is None or self.device < 0:
            return ""
        if part.kind == "event":
            return f"#view=timeline&device={self.device}&at={part.number}"
        if part.kind == "device" and part.number in self.devices:
            return f"#view=timeline&device={self.devices[part.number]}"
        if part.kind == "stack":
            return f"#view=timeline&device={self.device}&stack={part.number + self.stack_base}"
        return ""


NO_LINKS = Links()


def code_markup(text: str, links: Links = NO_LINKS) -> Markup:
    """A sentence as HTML, each part a link where there is something to link to."""
    return Markup("").join(_part(part, links) for part in parts_of(text))


def _part(part: Part, links: Links) -> Markup:
    shown = escape(part.text)
    if part.is_name:
        shown = Markup("<code>{}</code>").format(place_markup(part.text, links.sources))
        if "<a " in shown:
            return shown
    place = links.place(part)
    return _PLACE.format(place, shown) if place else shown


def sentence_markup(text: str, href: str = "", sources: Mapping[str, str] | None = None) -> Markup:
    """A sentence as one HTML element: a link to ``href`` if given. Names of lines that have an address are separate
    links; the text before and after them links to ``href``.
    """
    if not href:
        return Markup("<span>{}</span>").format(code_markup(text, Links(sources or {})))
    out, run = Markup(), Markup()
    for part in parts_of(text):
        for name, url in linked_parts(part.text, sources or {}) if part.is_name else [(part.text, "")]:
            shown = Markup("<code>{}</code>").format(name) if part.is_name else escape(name)
            if not url:
                run += shown
                continue
            out += _linked(href, run) + _source(url, shown)
            run = Markup()
    return Markup("<span>{}</span>").format(out + _linked(href, run)) if out else _PLACE.format(href, run)


def _linked(href: str, run: Markup) -> Markup:
    """The text between two links; a full stop or " from " alone is not linked."""
    return _PLACE.format(href, run) if len(re.findall(r"\w+", run.striptags())) > 1 else run


def _source(url: str, text: str | Markup) -> Markup:
    """A page opens beside the report, also beside one in a notebook's frame; an editor's scheme opens no tab."""
    return _SOURCE.format(url, _TAB if url.startswith(("http://", "https://")) else "", text)


def place_markup(text: str, sources: Mapping[str, str] | None = None) -> Markup:
    """A name of a stack, or several with arrows between them, as HTML: names of lines that have an address as links."""
    return Markup("").join(
        _source(url, part) if url else escape(part) for part, url in linked_parts(text, sources or {})
    )
