"""A digest as bytes: at most 64 KB, versioned, with a checksum, and treated as untrusted input.

The content is JSON compressed with zlib: both are in Python's standard library, JSON holds no code, and zlib is the
only one of the usual compressors whose decompressor can limit its output. MessagePack would be a tenth smaller before
compression and no smaller after it. The file: ``MAGIC``, u16le version, u32le compressed length, u32le content length,
16 bytes BLAKE2b of the compressed bytes, then the compressed bytes.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from typing import Any

import msgspec

from snapreport.errors import SnapshotError

MAGIC = b"snapreport digest\n"
VERSION = 2
MOST_BYTES = 64 << 10
"""Maximum size of a digest file in bytes."""
MOST_CONTENT = 4 << 20
"""Maximum bytes of JSON that a digest may unpack to; real ones have less than 300,000."""
_HEAD = struct.Struct("<HII16s")


def pack(content: dict[str, Any]) -> bytes:
    """The bytes of a digest; the same content gives the same bytes. May be longer than ``MOST_BYTES``."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode("ascii")
    data = zlib.compress(text, 9)
    return MAGIC + _HEAD.pack(VERSION, len(data), len(text), _checksum(data)) + data


def is_digest(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a digest."""
    return head.startswith(MAGIC)


def unpack(data: bytes) -> Any:
    """The JSON value in a digest. Raises :class:`SnapshotError` for anything that :func:`pack` did not write."""
    if not is_digest(data):
        raise SnapshotError("not a digest of snapreport")
    if len(data) > MOST_BYTES:
        raise SnapshotError(f"a digest of {len(data):,} bytes; {MOST_BYTES:,} are allowed")
    begin = len(MAGIC) + _HEAD.size
    if len(data) < begin:
        raise SnapshotError("the digest ends in its head")
    version, length, content_length, checksum = _HEAD.unpack(data[len(MAGIC) : begin])
    if version != VERSION:
        raise SnapshotError(f"digest format {version}; this snapreport reads format {VERSION}: make the digest again")
    body = data[begin:]
    if len(body) != length or _checksum(body) != checksum:
        raise SnapshotError("the digest is damaged: its checksum does not match")
    if content_length > MOST_CONTENT:
        raise SnapshotError(f"the digest unpacks to {content_length:,} bytes; {MOST_CONTENT:,} are allowed")
    try:
        stream = zlib.decompressobj()
        text = stream.decompress(body, content_length + 1)
        if len(text) != content_length or not stream.eof or stream.unused_data:
            raise SnapshotError("the digest is damaged: its length does not match")
        return msgspec.json.decode(text)
    except (zlib.error, ValueError, RecursionError, msgspec.DecodeError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"the digest is damaged: {error}") from None


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
