"""Checksums of a report's static content, for the page to compare with the browser's document.

The page cannot read its own bytes, only the parsed document, which may have passed through another encoding or other
line ends. So the checksums cover what such changes preserve: element names, attributes and text, in document order,
without end tags, white space and control characters. ``static/src/boot/boot.ts`` computes the same from the
browser's document.
"""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import Sequence

_TAG = re.compile(r"<(/?)([^<>]*)>")
_ATTRIBUTE = re.compile(r'\s+([^\s="/]+)(?:="([^"]*)")?')
# Includes U+FFFD, with which a browser replaces characters that it does not accept.
_LEFT_OUT = re.compile("[\x00-\x20\x7f\ufffd]+")


def page_checksums(texts: Sequence[str], markup: str) -> str:
    """Two CRC-32 in hexadecimal, of all characters and of those in ASCII, which survive being read as Latin-1.

    ``texts``: the content of the head, verbatim; ``markup``: of the body, with every attribute in double quotes and
    every ``&``, ``<`` and ``>`` of its texts escaped.
    """
    text = _LEFT_OUT.sub("", "".join(texts) + html.unescape(_TAG.sub(_opening, markup)))
    return f"{_crc(text.encode('utf-8'))} {_crc(text.encode('ascii', 'ignore'))}"


def _opening(tag: re.Match[str]) -> str:
    if tag[1]:
        return ""
    name = re.match(r"[^\s/]*", tag[2])
    assert name
    attributes = _ATTRIBUTE.findall(tag[2], name.end())
    # Escaped as text is, since it is unescaped together with it.
    return f"&lt;{name[0]}" + "".join(f" {key}{value}" for key, value in attributes) + "&gt;"


def _crc(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"
