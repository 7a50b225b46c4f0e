"""Sizes, counts, shares and device names as every output shows them.

The page's twin is ``static/src/layout/format.ts``; ``tests/test_number_format.py`` compares the two.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

from snapreport.vocabulary import SHOWN_UNITS


def bytes_text(value: int) -> str:
    """Binary units, three significant digits: ``512 B``, ``1.50 KiB``, ``11.0 GiB``."""
    number, unit = float(abs(value)), 0
    while number >= 1023.5 and unit < len(SHOWN_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    digits = 0 if unit == 0 or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{'-' if value < 0 else ''}{_rounded(number, digits)} {SHOWN_UNITS[unit]}"


def arrow_text(before: int, after: int) -> str:
    """``63.5 → 50.8 GiB``; both units where they differ."""
    old, new = bytes_text(before), bytes_text(after)
    return f"{old.split(' ')[0]} → {new}" if old.split(" ")[1] == new.split(" ")[1] else f"{old} → {new}"


def size_text(value: int) -> str:
    """The size of a file, exact where it can be compared with a limit: ``1.20 MiB (1,258,291 bytes)``."""
    return f"{bytes_text(value)} ({value:,} bytes)" if value >= 1024 else f"{value} bytes"


def count_text(value: int) -> str:
    """Thousands apart: ``22,332``."""
    return f"{value:,}"


def share_text(part: int, whole: int) -> str:
    """A percentage of two figures at most: ``61%``, ``0.4%``, ``<0.1%``; ``0%`` of nothing."""
    if not whole or not part:
        return "0%"
    percent = 100 * part / whole
    if percent < 0.05:
        return "<0.1%"
    digits = 0 if percent >= 9.95 else 1
    return f"{_rounded(percent, digits)}%"


def duration_text(microseconds: int) -> str:
    """``48.0 ms``, ``225 ms``, from a second on ``11.9 s``, below 0.1 ms ``37 µs``."""
    if abs(microseconds) < 100:
        return f"{microseconds} µs"
    number, unit = (microseconds / 1e6, "s") if microseconds >= 999_500 else (microseconds / 1e3, "ms")
    return f"{number:,.{0 if number >= 99.95 else 1}f} {unit}"


def plural(value: int, noun: str) -> str:
    """``1 event``, ``2 events``."""
    return f"{count_text(value)} {noun}{'' if value == 1 else 's'}"


def with_article(text: str) -> str:
    """``a 12.0 MiB``, ``an 8.00 GiB``, ``an 11.7 MiB``."""
    is_vowel = text.startswith("8") or text.split(".")[0].split(" ")[0] in ("11", "18")
    return f"{'an' if is_vowel else 'a'} {text}"


def upper_first(text: str) -> str:
    """``text`` with a capital first letter and the rest as it is."""
    return text[:1].upper() + text[1:]


def device_name(kind: str, device: int) -> str:
    """``cuda:0``; the host has no number."""
    return {"host": "pinned host memory", "cpu": "cpu"}.get(kind, f"{kind}:{device}")


def _rounded(number: float, digits: int) -> Decimal:
    """``number`` with so many decimals. Halves go up, as in the page; Python's own formatting rounds them to even."""
    return Decimal(number).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
