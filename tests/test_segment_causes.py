"""Reserved memory by the stack trace that reserved it, against a walk through the segments' events."""

from __future__ import annotations

from collections import Counter

import corpus
import pytest

import snapreport
from snapreport.timeline.segment_causes import reserved_by_stack

# Segments without expandable ones, which grow; the second and the third begin with segments from before the trace.
NAMES = ["fragmentation", "layout-2.1", "truncated", "churn"]


@pytest.mark.parametrize("name", NAMES)
def test_every_position_equals_a_walk(name: str) -> None:
    snapshot = snapreport.load(corpus.path_of(name))
    timeline = snapshot.timeline(0)
    events = timeline.events.select("action", "addr", "size", "stack").with_row_index("event").rows()
    events = [event for event in events if event[1].startswith("segment_")]
    final = snapshot.recording.devices[0].segments.select("address", "total_size", "stack").rows()
    began = {address: (size, stack) for address, size, stack in final}
    for _, action, address, size, _ in reversed(events):
        if action == "segment_alloc":
            del began[address]
        else:
            began[address] = size, 0  # who allocated it is not recorded
    for position in (-1, len(timeline.events) // 3, len(timeline.events) - 1):
        live, total = dict(began), Counter(dict.fromkeys({stack for _, stack in began.values()}, 0))
        total.update(stack for _, stack in began.values())
        for event, action, address, size, stack in events:
            if action == "segment_alloc":
                total[stack] += 1
            if event <= position and action == "segment_alloc":
                live[address] = size, stack
            elif event <= position:
                del live[address]
        table = reserved_by_stack(timeline, position)
        held: Counter[int] = Counter()
        for size, stack in live.values():
            held[stack] += size
        assert dict(table.select("stack", "bytes").rows()) == {stack: held[stack] for stack in total}
        assert dict(table.select("stack", "total_count").rows()) == dict(total)
        assert table["bytes"].sum() == timeline.reserved[position + 1]
        assert table["count"].sum() == len(live)


def test_segments_from_before_the_trace_are_there() -> None:
    assert any(snapreport.load(corpus.path_of(name)).timeline(0).reserved[0] > 0 for name in NAMES)
