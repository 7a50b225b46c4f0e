"""Columns to one brotli-compressed blob: ``u32le header length, header JSON, column bytes``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import brotli

from snapreport.packing import base85
from snapreport.packing.columns import Column, Encoded, encode_column

# Brotli's quality 10 runs at 1.5 to 4 MB/s, quality 8 at 20 to 200 MB/s on columns; the sizes are 7% to 17% apart on
# real files. So it is for blobs that take 0.1 s: most reports. Quality 11 gains 400 bytes of a report for three times
# the time, quality 9 gains 0.4% over 8 for twice the time and an encoder of 33 MB instead of 16.
GOOD_UP_TO = 384 << 10


def pack_text(columns: Iterable[Column], meta: Mapping[str, object] | None = None) -> str:
    """Pack columns and a JSON ``meta`` mapping (merged into the header) into text for an HTML script element."""
    return pack_encoded([part for column in columns for part in encode_column(column)], meta)


def pack_encoded(
    parts: Iterable[Encoded], meta: Mapping[str, object] | None = None, good_up_to: int = GOOD_UP_TO
) -> str:
    """The same for columns that are encoded already. ``good_up_to``: bytes that may be compressed slowly."""
    raw = _raw(list(parts), meta)
    quality = 10 if len(raw) <= good_up_to else 8
    # A window no larger than the data: the encoder's memory is several times the window.
    return base85.encode(brotli.compress(raw, quality=quality, lgwin=min(24, max(16, len(raw).bit_length()))))


def _raw(parts: list[Encoded], meta: Mapping[str, object] | None) -> bytes:
    header = {"columns": [part.entry for part in parts], **(meta or {})}
    text = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return b"".join([len(text).to_bytes(4, "little"), text, *(part.data for part in parts)])
