"""Base 85 with an alphabet that is inert inside an HTML script element, and a checksum in front.

Base 64 costs 33 % over the bytes, base 85 costs 25 %: on a report of 3 MB that is 200 KB. The standard alphabets
contain ``<``, ``&`` or quotes; this one leaves them out, so that a blob can never close its element or open a
comment, whatever its bytes are. All characters are ASCII: the file survives being served as UTF-8 or Latin-1.
"""

from __future__ import annotations

import zlib

import numpy as np

EXCLUDED = "\"&'<>\\`~-"
ALPHABET = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in EXCLUDED)
_DIGITS = np.frombuffer(ALPHABET.encode("ascii"), dtype=np.uint8)
_POWERS = np.array([85**4, 85**3, 85**2, 85, 1], dtype=np.uint32)


def encode(data: bytes) -> str:
    """Encode bytes as text: their CRC-32 in eight hexadecimal digits, then one digit for the number of pad bytes (0 to
    3), then five digits for every four bytes.

    Each group of four bytes is read as a big-endian unsigned integer, most significant digit first. The checksum is of
    the bytes without the padding.
    """
    pad = -len(data) % 4
    words = np.frombuffer(data + bytes(pad), dtype=">u4").astype(np.uint32)
    digits = (words[:, None] // _POWERS) % 85
    return f"{zlib.crc32(data):08x}{pad}" + _DIGITS[digits.astype(np.uint8)].tobytes().decode("ascii")
