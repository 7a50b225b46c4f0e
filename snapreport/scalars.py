"""Single numbers out of polars columns, with the one type that an integer column can give."""

from __future__ import annotations

import polars as pl


def max_or_zero(column: pl.Series) -> int:
    """The greatest value of an integer column; 0 where it has none."""
    value = column.max()
    return value if isinstance(value, int) else 0
