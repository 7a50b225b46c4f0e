"""Sentences for users, as lists of parts that every output renders in its own way.

A rule writes a template, and what it inserts are parts: ``sentence("{line} keeps {size} every step",
line=names.line(7), size=bytes_part(3 << 20))``. A :class:`Sentence` is also its plain text, so the terminal prints it
as it is; Markdown, HTML and the page show its code as code and its places and events as links. Our own words may be a
plain ``str``, which is a sentence of one part. Names of a program's functions and files only ever come in as parts.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Any, Literal, SupportsIndex

import msgspec

from snapreport.number_format import bytes_text, count_text, device_name, with_article

Kind = Literal["text", "code", "stack", "place", "device", "rank", "event", "bytes"]
_FORMATTER = string.Formatter()


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a sentence, and what it refers to.

    number: of a stack, device, rank or event its number, of bytes how many; None for the other kinds. file, line: of a
    place and a stack, where the line is, as recorded; "" and 0 where that is unknown.
    """

    kind: Kind
    text: str
    number: int | None = None
    file: str = ""
    line: int = 0

    @property
    def is_name(self) -> bool:
        """Whether it is code: a name of the program's or of PyTorch's."""
        return self.kind in ("code", "stack", "place")


class Sentence(str):
    """A sentence as its plain text, with its parts. Adding and slicing keep parts; other methods return plain text."""

    parts: tuple[Part, ...]

    def __new__(cls, parts: Iterable[Part]) -> Sentence:
        merged: list[Part] = []
        for part in parts:
            if merged and part.kind == merged[-1].kind in ("text", "code"):
                merged[-1] = Part(part.kind, merged[-1].text + part.text)
            elif part.text:
                merged.append(part)
        made = super().__new__(cls, "".join(part.text for part in merged))
        made.parts = tuple(merged)
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.parts,)

    def __add__(self, other: str) -> Sentence:
        return Sentence((*self.parts, *parts_of(other)))

    def __radd__(self, other: str) -> Sentence:
        return Sentence((*parts_of(other), *self.parts))

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        """A slice of consecutive characters is a sentence; a part that it cuts keeps what it refers to."""
        if not isinstance(key, slice) or key.step not in (None, 1):
            return super().__getitem__(key)
        start, stop, _ = key.indices(len(self))
        cut, at = [], 0
        for part in self.parts:
            text = part.text[max(0, start - at) : max(0, stop - at)]
            cut.append(msgspec.structs.replace(part, text=text))
            at += len(part.text)
        return Sentence(cut)

    def removeprefix(self, prefix: str, /) -> str:
        return self[len(prefix) :] if self.startswith(prefix) else self


def sentence(template: str, *values: str | int, **named: str | int) -> Sentence:
    """``template`` with its fields filled in, as ``str.format`` would; what is between backticks is code.

    values, named: sentences, whose parts are kept; plain text of our own; or counts, with thousands apart.
    """
    parts: list[Part] = []
    position, quoted = 0, False
    for literal, field, _, _ in _FORMATTER.parse(template):
        for number, text in enumerate(literal.split("`")):
            quoted ^= number > 0
            parts.append(Part("code" if quoted else "text", text))
        if field is None:
            continue
        value = named[field] if field else values[position]
        position += not field
        value = value if isinstance(value, str) else count_text(value)
        parts += [Part("code", value)] if quoted else parts_of(value)
    return Sentence(parts)


def parts_of(text: str) -> tuple[Part, ...]:
    """The parts of a sentence; plain text is one."""
    return text.parts if isinstance(text, Sentence) else (Part("text", text),) if text else ()


def joined(sentences: Iterable[str], separator: str = " ") -> Sentence:
    """Several sentences as one, with ``separator`` between them."""
    parts: list[Part] = []
    for number, each in enumerate(sentences):
        parts += [*(parts_of(separator) if number else ()), *parts_of(each)]
    return Sentence(parts)


def listed(values: Iterable[str]) -> Sentence:
    """``a, b and c``."""
    *first, last = list(values) or [""]
    return joined([joined(first, ", "), last], " and ") if first else joined([last])


def code_part(text: str) -> Sentence:
    """A name or an expression, in the type of code."""
    return Sentence([Part("code", text)])


def stack_part(number: int, name: str, file: str = "", line: int = 0) -> Sentence:
    """The name of a stack trace, by its number; ``file``, ``line``: of the frame that names it."""
    return Sentence([Part("stack", name, int(number), file, int(line))])


def place_part(name: str, file: str, line: int) -> Sentence:
    """A line of the program, named as ``forward dit.py:83`` or ``dit.py:83``."""
    return Sentence([Part("place", name, None, file, int(line))])


def device_part(kind: str, number: int) -> Sentence:
    """``cuda:0``."""
    return Sentence([Part("device", device_name(kind, number), number)])


def rank_part(number: int, name: str = "rank {}") -> Sentence:
    """``rank 37``; ``name``: a template for another form."""
    return Sentence([Part("rank", name.format(number), int(number))])


def event_part(number: int) -> Sentence:
    """``event 5,445``. The state before the first event, -1, is the start."""
    if number < 0:
        return sentence("the start of the trace")
    return Sentence([Part("event", f"event {count_text(number)}", int(number))])


def bytes_part(count: int) -> Sentence:
    """Bytes: ``12.5 MiB``."""
    return Sentence([Part("bytes", bytes_text(count), int(count))])


def bytes_with_article(count: int) -> Sentence:
    """Bytes with their article: ``a 12.5 MiB``, ``an 8.00 GiB``, ``an 11.7 MiB``."""
    return sentence("{} {}", with_article(bytes_text(count)).partition(" ")[0], bytes_part(count))


def bytes_change(before: int, after: int) -> Sentence:
    """``63.5 → 50.8 GiB``; both units where they differ."""
    (old, old_unit), (_, new_unit) = bytes_text(before).split(" "), bytes_text(after).split(" ")
    first = Part("bytes", old if old_unit == new_unit else f"{old} {old_unit}", int(before))
    return Sentence([first, Part("text", " → "), *bytes_part(after).parts])


def bytes_share(part: int, whole: int) -> Sentence:
    """``26.8 of 39.6 GiB``; both units where they differ."""
    (size, unit), (_, whole_unit) = bytes_text(part).split(" "), bytes_text(whole).split(" ")
    first = Part("bytes", size if unit == whole_unit else f"{size} {unit}", int(part))
    return Sentence([first, Part("text", " of "), *bytes_part(whole).parts])


def parts_json(text: str) -> list[str | dict[str, Any]]:
    """The parts as plain values for the page: text as a string, any other part as an object of its fields."""
    return [part.text if part.kind == "text" else msgspec.to_builtins(part) for part in parts_of(text)]


def from_json(parts: Iterable[str | dict[str, Any]]) -> Sentence:
    """The sentence that :func:`parts_json` wrote. Raises ``msgspec.ValidationError``."""
    return Sentence(Part("text", part) if isinstance(part, str) else msgspec.convert(part, Part) for part in parts)
