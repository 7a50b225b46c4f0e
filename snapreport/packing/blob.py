"""Columns to one brotli-compressed blob: ``u32le header length, header JSON, column bytes``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import brotli

from snapreport.packing import base85
from snapreport.packing.columns import Column, encode_column
from snapreport.packing.prime import Prime

# Brotli's two best qualities run at about 0.5 MB/s and 1.5 MB/s, quality 9 at 15 MB/s; the sizes are 10 % apart.
BEST_UP_TO = 768 << 10


def pack_text(
    columns: Iterable[Column], meta: Mapping[str, object] | None = None, prime: Prime | None = None
) -> str:
    """Pack columns and a JSON ``meta`` mapping (merged into the header) into text for an HTML script element.

    With a ``prime``, a blob small enough for the best quality is compressed against it; its text says so.
    """
    raw = _raw(columns, meta)
    if len(raw) > BEST_UP_TO:
        return base85.encode(brotli.compress(raw, quality=9, lgwin=24))
    if prime is None:
        return base85.encode(brotli.compress(raw, quality=11, lgwin=24))
    return base85.encode(prime.compress(raw), primed=True)


def _raw(columns: Iterable[Column], meta: Mapping[str, object] | None) -> bytes:
    encoded = [part for column in columns for part in encode_column(column)]
    header = {"columns": [part.entry for part in encoded], **(meta or {})}
    text = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return b"".join([len(text).to_bytes(4, "little"), text, *(part.data for part in encoded)])
