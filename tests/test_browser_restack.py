"""Some allocations stacked alone, and what never changes folded away: heights by an oracle over lifetimes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import planted
import pytest

ROOM = 1.08  # of the height over what is highest
MIB = 1 << 20


def peak_of(allocations: Any, events: int) -> int:
    """The greatest sum of what is allocated at once."""
    change = np.zeros(events + 2, np.int64)
    for begin, end, size in allocations.select("alloc_event", "free_event", "size").iter_rows():
        change[0 if begin is None or begin < 0 else begin + 1] += size
        change[-1 if end is None or end < 0 else end + 1] -= size
    return int(change[:-1].cumsum().max())


def test_the_matches_alone_are_stacked_from_zero(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    """A leak's chip shows its staircase; pressed again, the button brings the rest back."""
    path = corpus.path_of("leak")
    snapshot = corpus.loaded(path)
    opened = open_report(report_of(path))
    opened.page.locator('#top .verdict .chip[data-kind="leak"] a').first.click()
    opened.until("snapreport.getView().options['timeline.only'] === 'yes'")
    opened.settle()
    view = opened.view()
    matched = snapshot.query(view["query"], device=0)
    assert view["y"] == pytest.approx([0, ROOM * peak_of(matched, len(snapshot.events(0)))])
    only = opened.page.get_by_role("button", name="Only these")
    assert only.get_attribute("aria-pressed") == "true"
    # Low at the end of the trace lies the first of them.
    opened.page.mouse.click(*opened.pixel_of(view["x"][1] * 0.9, 0.01 * view["y"][1]))
    opened.until("snapreport.getView().select !== null")
    assert opened.view()["select"] == matched["id"][0]
    only.click()
    opened.until("snapreport.getView().options['timeline.only'] === undefined")
    opened.settle()
    assert opened.view()["y"][1] > 2 * view["y"][1]


def served(path: Path) -> Path:
    """Weights from before the trace, and a request's activations that come and go."""
    weights = [{"address": (1 << 40) + i * 64 * MIB, "size": 64 * MIB, "requested_size": 64 * MIB,
                "state": "active_allocated", "frames": []} for i in range(15)]  # fmt: skip
    room = {"address": (1 << 40) + 15 * 64 * MIB, "size": 64 * MIB, "requested_size": 0, "state": "inactive"}
    segment = {
        "device": 0, "address": 1 << 40, "total_size": 1024 * MIB, "stream": 0, "segment_type": "large",
        "allocated_size": 960 * MIB, "active_size": 960 * MIB, "blocks": [*weights, room | {"frames": []}],
    }  # fmt: skip
    trace = []
    for i in range(50):
        block = {"addr": room["address"], "size": (1 + i % 5) * 8 * MIB, "stream": 0, "frames": []}
        trace += [{"action": action, **block} for action in ("alloc", "free_requested", "free_completed")]
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [trace]}))
    return path


def test_what_never_changes_is_folded_away(
    tmp_path: Path, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    """The axis begins just below what changes; the button unfolds it, and Fit returns to either."""
    opened = open_report(report_of(served(tmp_path / "served.pickle")))
    constant, top = 960 * MIB, ROOM * 1024 * MIB
    folded = [constant - 0.06 * (top - constant), top]
    assert opened.view()["y"] == pytest.approx(folded)
    opened.page.get_by_role("button", name="Show 960 MiB that never change").click()
    opened.until("snapreport.getView().y[0] === 0")
    assert opened.view()["y"] == pytest.approx([0, top])
    opened.page.get_by_role("button", name="Fold 960 MiB that never change").click()
    opened.until("snapreport.getView().y[0] > 0")
    opened.set_view(y=[0, constant])
    opened.page.get_by_role("button", name="Fit", exact=True).click()
    opened.settle()
    assert opened.view()["y"] == pytest.approx(folded)
    opened.until("!location.hash.includes('y=')")


def test_a_trace_that_changes_is_not_folded_unasked(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    path = planted.path_of("serving", events=4000, record_from=1)
    constant = corpus.loaded(path).query("origin:ghost live:end", device=0)["size"].sum()
    opened = open_report(report_of(path))
    assert opened.view()["y"][0] == 0
    opened.page.get_by_role("button", name="that never change").click()
    opened.until("snapreport.getView().y[0] > 0")
    low, high = opened.view()["y"]
    assert low == pytest.approx(constant - 0.06 * (high - constant))
