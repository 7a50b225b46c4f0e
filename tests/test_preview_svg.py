"""The small picture of the static summary: its highest point is the peak, at its place, however long the trace."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from snapreport.report.preview_svg import HEIGHT, WIDTH, preview_svg


def corners(path: str) -> list[tuple[int, int]]:
    """The corners of a path of M, H and V alone, in order."""
    x = y = 0
    found = []
    for command, first, second in re.findall(r"([MHV])(\d+)(?: (\d+))?", path):
        if command == "M":
            x, y = int(first), int(second)
        elif command == "H":
            x = int(first)
        else:
            y = int(first)
        found.append((x, y))
    return found


@given(
    st.lists(st.integers(0, 2**45), min_size=1, max_size=40),
    st.integers(1, 60),
    st.integers(0, 2**40),
)
def test_the_peak_is_drawn(heights: list[int], repeated: int, cached: int) -> None:
    """A single event among thousands is the peak: the curve reaches its mark, and the mark is where the event is."""
    allocated = np.array(heights * repeated, dtype=np.int64)
    peak = len(allocated) // 2
    allocated[peak] = allocated.max() + 2**41
    svg = ElementTree.fromstring(str(preview_svg(allocated, allocated + cached, peak, [])))
    (area,) = [path for path in svg.iter("path") if path.get("d", "").endswith("z")]
    (mark,) = svg.iter("circle")
    x, y = int(mark.get("cx", "")), int(mark.get("cy", ""))
    assert x == round((peak + 0.5) / len(allocated) * WIDTH)
    outline = corners(area.get("d", ""))[:-2]  # without the way back along the bottom
    assert min(at for _, at in outline) == y, "the mark stands on the highest point of the area"
    # Where the outline has this height: one column at least, 4 pixels wide, around the mark.
    left = min(here for here, at in outline if at == y)
    right = max(here for here, at in outline if at == y)
    assert left - 4 <= x <= right + 4
    assert all(0 <= here <= WIDTH and 0 <= at <= HEIGHT for here, at in outline)


@given(st.lists(st.integers(0, 2**45), min_size=1, max_size=400))
def test_reserved_is_never_below_allocated(heights: list[int]) -> None:
    allocated = np.array(heights, dtype=np.int64)
    svg = ElementTree.fromstring(str(preview_svg(allocated, allocated, int(allocated.argmax()), [])))
    paths = [path.get("d", "") for path in svg.iter("path")]
    if allocated.any():
        area, line = paths
        assert corners(area)[:-2] == corners(line), "equal curves give equal outlines"
