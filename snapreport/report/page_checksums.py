"""Checksums of what a report says without scripts, for the page to compare with what a browser made of it.

The page cannot read its own bytes, only the document that they became, and that may have come through another encoding
or with other line ends. So what is summed up is what such changes leave alone: element names, attributes and text, in
the order of the document, without end tags, white space and control characters. ``static/src/boot/page-text.ts``
makes the same of the browser's document.
"""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import Sequence

_TAG = re.compile(r"<(/?)([^<>]*)>")
_ATTRIBUTE = re.compile(r'\s+([^\s="/]+)(?:="([^"]*)")?')
# U+FFFD too: what a browser puts for characters that it does not accept.
_LEFT_OUT = re.compile("[\x00-\x20\x7f\ufffd]+")


def page_checksums(texts: Sequence[str], markup: str) -> str:
    """Two CRC-32 in hexadecimal, of all characters and of those in ASCII, which survive being read as Latin-1.

    ``texts``: what stands in the head, as it is; ``markup``: of the body, with every attribute in double quotes and
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
