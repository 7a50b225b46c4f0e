"""A small picture of the timeline for the static summary: allocated as an area, reserved as a line, the peak marked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

WIDTH, HEIGHT = 600, 120
# Attributes, which the style sheet overrides: if a viewer forbids styles, a path without them is a black area.
_AREA = 'class="a" fill="#9db8dd"'
_RESERVED = 'class="r" fill="none" stroke="#55606e"'
_OOM = 'class="o" fill="none" stroke="#c62828"'
# Columns of the picture. More add bytes to every report without a visible difference at 600 px.
COLUMNS = 150


def preview_svg(
    allocated: npt.NDArray[np.int64], reserved: npt.NDArray[np.int64], peak: int, ooms: list[int]
) -> Markup:
    """SVG of a device's curves.

    ``allocated``, ``reserved``: int64[P] by s = position + 1; ``peak``: s of the peak; ``ooms``: s of out-of-memory
    events. Each column shows its maximum, so that the peak is never lost. Only numbers go into the markup.
    """
    top = max(int(allocated.max(initial=1)), int(reserved.max(initial=1)), 1)
    positions = len(allocated)
    area = _steps(allocated, top)
    peak_x, peak_y = _x(peak, positions), _y(int(allocated[peak]), top)
    marks = "".join(f'<path {_OOM} d="M{_x(s, positions)} 0V{HEIGHT}"/>' for s in ooms[:20])
    line = f'<path {_RESERVED} d="{_steps(reserved, top)}"/>' if reserved.any() else ""
    return Markup(
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"><path {_AREA} d="{area}V{HEIGHT}H0z"/>'
        f'{line}{marks}<circle cx="{peak_x}" cy="{peak_y}" r="4" fill="#55606e"/></svg>'
    )


def _x(s: int, positions: int) -> int:
    return round((s + 0.5) / positions * WIDTH)


def _y(bytes_: int, top: int) -> int:
    return HEIGHT - round(bytes_ / top * (HEIGHT - 6))


def _steps(values: npt.NDArray[np.int64], top: int) -> str:
    """A stepped path, one step where the rounded height changes."""
    positions = len(values)
    columns = min(COLUMNS, positions)
    edges = np.arange(columns) * positions // columns
    heights = [_y(int(value), top) for value in np.maximum.reduceat(values, edges)]
    path, at = [f"M0 {heights[0]}"], heights[0]
    for column, height in enumerate(heights):
        if height != at:
            path.append(f"H{column * WIDTH // columns}V{height}")
            at = height
    return "".join(path) + f"H{WIDTH}"
