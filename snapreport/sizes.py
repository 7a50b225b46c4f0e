"""Sizes as people write them, wherever one is read: options, the pytest plugin's markers, queries, the page.

``512``, ``1.5 GiB``, ``2,000,000 B``, ``800KiB``, ``10MB``: digits, which ``,`` and ``_`` may separate, blanks, a unit
in any case. With an ``i`` a unit is a power of 1,024, without one a power of 1,000; the final ``B`` may be left out.
The page's twin is ``parseSize`` of ``static/src/search/fields.ts``; both are tested with ``tests/size_vectors.json``.
"""

from __future__ import annotations

import math
import re

from snapreport.vocabulary import SIZE_UNITS

NUMBER = r"[0-9](?:[0-9,_]{0,24}[0-9])?(?:\.[0-9]{1,12})?"
_SIZE = re.compile(rf"[ \t]*({NUMBER})[ \t]*([kmgt]?i?)b?[ \t]*", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> float | None:
    """Bytes, a fraction of one rounded to a thousandth; None for text that is no size."""
    found = _SIZE.fullmatch(text)
    unit = SIZE_UNITS.get(found[2].lower()) if found else None
    return scaled(found[1], unit) if found and unit else None


def scaled(digits: str, unit: float) -> float:
    """A number times its unit. Fractions are rounded to a thousandth, so that 1.234567s is 1234567 µs exactly."""
    plain = re.sub("[,_]", "", digits)
    if "." not in plain and unit >= 1:
        return float(plain) * unit
    return math.floor(float(plain) * unit * 1000 + 0.5) / 1000
