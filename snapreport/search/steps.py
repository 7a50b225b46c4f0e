"""Steps and annotated spans in queries: by event, without times. The page's twin is
``static/src/search/steps.ts``.
"""

from __future__ import annotations

import numpy as np

from snapreport.search.fields import Range, Text
from snapreport.search.texts import Folded
from snapreport.timeline.build import DeviceTimeline
from snapreport.vocabulary import QUERY_NOTES


def positions_within(timeline: DeviceTimeline, test: Range | Text) -> np.ndarray:
    """Bool for each position s = event + 1: whether its event is in a step or span that the test selects.

    A range selects steps by number, a text selects steps and annotated spans by a part of their names. O(events +
    spans).
    """
    tables = [timeline.steps] if isinstance(test, Range) else [timeline.steps, timeline.annotated.spans]
    opened = np.zeros(
        len(timeline.events) + 2, np.int64
    )  # spans that open at each position, less those that close there
    for table in tables:
        if isinstance(test, Range):
            hit = np.fromiter((in_range(number, test) for number in table["step"].to_list()), bool, len(table))
        else:
            hit = Folded(table["name"]).having(test.parts)
        np.add.at(opened, table["first_event"].to_numpy()[hit] + 1, 1)
        np.add.at(opened, table["last_event"].to_numpy()[hit] + 2, -1)
    return np.cumsum(opened)[:-1] > 0


def why_none(timeline: DeviceTimeline, test: Range | Text) -> str:
    """Why a test selects no step or span of a device; "" if it selects one."""
    if isinstance(test, Range):
        numbers = timeline.steps["step"].to_list()
        if any(in_range(number, test) for number in numbers):
            return ""
        return QUERY_NOTES["no_step" if numbers else "no_steps"]
    names = (timeline.steps["name"], timeline.annotated.spans["name"])
    return "" if any(Folded(column).having(test.parts).any() for column in names) else QUERY_NOTES["no_name"]


def in_range(number: int, test: Range) -> bool:
    return (test.low is None or number >= test.low) and (test.high is None or number <= test.high)
