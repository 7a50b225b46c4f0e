"""A chart of the answer to "will it fit?": peak memory over the number, with a line for each size of memory."""

from __future__ import annotations

from markupsafe import Markup, escape

from snapreport.contracts.fit import FitDevice, FitPrediction
from snapreport.number_format import bytes_text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 280, 72, 150, 12, 34
ABOVE = 1.15
"""Of the highest peak: lines of memory above this are left out, but for the lowest of them."""
_GRID = 'class="grid" stroke="#d5d9de"'
_ALLOCATED = 'class="allocated" fill="none" stroke="#3b6fb5" stroke-width="2"'
_RESERVED = 'class="reserved" fill="none" stroke="#6d3fc0" stroke-width="2"'
_RANGE = 'class="range" fill="#6d3fc0" fill-opacity="0.2"'
_MEMORY = 'class="memory" stroke="#596270" stroke-dasharray="5 4"'


def fit_chart(device: FitDevice, name: str) -> Markup:
    """SVG: allocated and reserved at each value, the range of reserved as an area, recorded values as dots. Empty where
    there are fewer than two values. A vertical mark for each value is shown by the page's style.

    Only numbers, names of cards and ``name`` go into the markup.
    """
    rows = device.predictions
    if len(rows) < 2:
        return Markup("")
    lines = _lines(device)
    last = rows[-1].value
    highest = max([_high(row) for row in rows] + [memory for _, memory in lines])

    def x(value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * value / last, 1)

    def y(size: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * size / highest, 1)

    reserved = [row for row in rows if row.peak_reserved_bytes is not None]
    area = [(row.value, row.high_bytes or 0) for row in reserved]
    area += [(row.value, row.low_bytes or 0) for row in reversed(reserved)]

    def points(pairs: list[tuple[float, int]]) -> str:
        return " ".join(f"{x(value)},{y(size)}" for value, size in pairs)

    parts = [
        *(
            f'<path {_GRID} d="M{LEFT} {y(size)}H{WIDTH - RIGHT}"/>'
            f'<text x="{LEFT - 6}" y="{y(size) + 4}" text-anchor="end">{bytes_text(round(size))}</text>'
            for size in (0, highest / 2, highest)
        ),
        *(f'<text x="{x(value)}" y="{HEIGHT - 14}" text-anchor="middle">{value:g}</text>' for value in _ticks(rows)),
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 1}" text-anchor="end">{escape(name)}</text>',
        *(
            f'<path {_MEMORY} d="M{LEFT} {y(memory)}H{WIDTH - RIGHT}"/>'
            f'<text x="{WIDTH - RIGHT + 6}" y="{y(memory) + 4}">{escape(label)}</text>'
            for label, memory in lines
        ),
        f'<polygon {_RANGE} points="{points(area)}"/>',
        f'<polyline {_ALLOCATED} points="{points([(row.value, row.peak_allocated_bytes) for row in rows])}"/>',
        f'<polyline {_RESERVED} points="{points([(row.value, row.peak_reserved_bytes or 0) for row in reserved])}"/>',
        *(
            f'<circle cx="{x(row.value)}" cy="{y(row.peak_reserved_bytes or 0)}" r="4" class="recorded"/>'
            for row in reserved
            if row.confidence == "measured"
        ),
    ]
    parts += [
        f'<path class="mark mark{at}" stroke="currentColor" d="M{x(row.value)} {TOP}V{HEIGHT - BOTTOM}"/>'
        for at, row in enumerate(rows)
    ]
    label = escape(f"Peak memory over {name}, {rows[0].value:g} to {last:g}")
    return Markup(
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}" '
        f'font-size="12" fill="currentColor">{"".join(parts)}</svg>'
    )


def _high(row: FitPrediction) -> int:
    return max(row.peak_allocated_bytes, row.peak_reserved_bytes or 0, row.high_bytes or 0)


def _lines(device: FitDevice) -> list[tuple[str, int]]:
    """(label, bytes) of each memory that the chart reaches, and of the next one above it."""
    highest = max(_high(row) for row in device.predictions)
    shown = []
    for found in device.largest:
        shown.append((found.card or bytes_text(found.memory_bytes), found.memory_bytes))
        if found.memory_bytes > ABOVE * highest:
            # A card far above would flatten the curve.
            return shown if found.memory_bytes <= 2 * highest else shown[:-1]
    return shown


def _ticks(rows: list[FitPrediction]) -> list[float]:
    """Values that are far enough apart for their labels."""
    least = rows[-1].value / 12
    shown: list[float] = []
    for row in rows:
        if not shown or row.value - shown[-1] >= least:
            shown.append(row.value)
    return shown
