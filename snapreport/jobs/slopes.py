"""Lines through the peaks of ranks that change from one rank to the next, as in the stages of a pipeline."""

from __future__ import annotations

import numpy as np

TREND = 0.7
"""Minimum Kendall's tau for peaks that follow the rank."""
MIN_CHANGE = 0.1
"""Minimum change of a slope from first to last rank, as a share of the median peak; smaller ones occur by chance."""
MIN_FOR_SLOPE = 5
FAR_FROM_LINE = 10.0
"""Robust standard deviations: a rank this far from the line is ignored when testing whether peaks follow the rank."""


def is_slope(rows: np.ndarray, totals: np.ndarray) -> bool:
    """Whether the peaks of the inner ranks follow the rank, except for a few."""
    rows = rows[1:-1] if len(rows) > MIN_FOR_SLOPE else rows
    if len(rows) < MIN_FOR_SLOPE - 1:
        return False
    x, y = rows.astype(np.float64), totals[rows]
    if len(rows) > 400:  # tau is quadratic
        some = np.linspace(0, len(rows) - 1, 400).astype(int)
        x, y = x[some], y[some]
    fitted, slope = fitted_lines(x, y[:, None])
    beside = y - fitted[:, 0]
    # A rank that ran out of memory is above all others at any position, and would hide that they follow the rank.
    is_near = np.abs(beside) <= FAR_FROM_LINE * robust_deviation(beside)
    if is_near.sum() >= max(MIN_FOR_SLOPE - 1, 0.75 * len(x)):
        tau = max(_tau(y), _tau(y[is_near]))
    else:
        tau = _tau(y)
    change = abs(float(slope[0])) * (x[-1] - x[0])
    return bool(
        tau >= TREND and change >= MIN_CHANGE * np.median(y) and robust_deviation(beside) <= 0.35 * robust_deviation(y)
    )


def fitted_lines(x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(fitted values, slope of each column): the Theil-Sen estimator, robust against up to 29% outliers."""
    if len(x) > 200:
        some = np.linspace(0, len(x) - 1, 200).astype(int)
    else:
        some = np.arange(len(x))
    a, b = np.triu_indices(len(some), 1)
    a, b = some[a], some[b]
    slope = np.median((values[b] - values[a]) / (x[b] - x[a])[:, None], axis=0) if len(a) else np.zeros(values.shape[1])
    level = np.median(values - x[:, None] * slope, axis=0)
    return np.maximum(level + x[:, None] * slope, 0), slope


def _tau(values: np.ndarray) -> float:
    """Absolute Kendall's tau between values and their order."""
    upper = np.triu_indices(len(values), 1)
    return abs(float(np.sign(values[upper[1]] - values[upper[0]]).mean()))


def robust_deviation(values: np.ndarray) -> float:
    """A robust standard deviation: 1.4826 times the median absolute deviation."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
