"""The list of events: every row says what was recorded, wherever one scrolls; and related events are linked."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path
from typing import Any

import corpus
import name_oracle
import oracle
import pytest
import table_oracle
from test_browser_table import CATCH

ROWS = """() => [...document.querySelectorAll('.events .list-body > .list-row')].sort(
  (a, b) => a.dataset.index - b.dataset.index
).map(row => ({
    event: Number(row.dataset.event), index: Number(row.dataset.index), classes: row.className,
    selected: row.getAttribute('aria-selected') === 'true', moment: row.getAttribute('aria-current') === 'true',
    text: Object.fromEntries([...row.querySelectorAll('.cell')].map(
        cell => [cell.dataset.column, cell.lastChild.textContent])),
    tip: Object.fromEntries([...row.querySelectorAll('.cell')].map(cell => [cell.dataset.column, cell.title])),
}))"""


class Events:
    """A report on its events, and the oracle of the device that is shown."""

    def __init__(self, opened: Any, path: Path) -> None:
        self.opened, self.path = opened, path
        self.devices = corpus.replayed(path)

    @cached_property
    def files(self) -> set[str]:
        """The files of all frames of the report."""
        return set(corpus.loaded(self.path).recording.frames["filename"])

    @property
    def device(self) -> oracle.Device:
        return self.devices[self.opened.view()["device"]]

    def show(self, **options: Any) -> None:
        known = {key: options.pop(key) for key in ("at", "query", "select", "device") if key in options}
        self.opened.set_view(view="events", options={f"events.{k}": v for k, v in options.items()}, **known)

    def go_to(self, text: str) -> None:
        """By keyboard alone."""
        self.opened.page.keyboard.press("g")
        self.opened.page.keyboard.type(text)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.opened.page.keyboard.press(key)
        self.opened.settle()

    def rows(self) -> list[dict[str, Any]]:
        return json.loads(self.opened.js(f"JSON.stringify(({ROWS})())"))

    def cursor(self, rows: list[dict[str, Any]] | None = None) -> int:
        """The event that the cursor is on; ``rows``: the result of a ``rows()`` call just made."""
        return next(row["event"] for row in rows or self.rows() if "cursor" in row["classes"].split())

    def csv(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.opened.js(CATCH, "CSV"), newline="")))


@pytest.fixture
def events(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> Callable[..., Events]:
    def open_one(name: str, borrow_report: Callable[..., Any] = borrow_report) -> Events:
        path = corpus.path_of(name)
        return Events(borrow_report(report_of(path), viewport={"width": 1500, "height": 900}), path)

    return open_one


def stack_words(device: oracle.Device, event: int, recorded: dict[str, Any], shown: str, files: Collection[str]) -> str:
    """What the row should say about its stack, but for the operator. A completion long after its request may show the
    request's, and must say so.
    """
    frames = recorded["frames"]
    if shown.startswith("requested by "):
        request = table_oracle.request_of(device, event)
        assert recorded["action"] == "free_completed" and 0 <= request < event
        frames = oracle.frames_of(device.events[request])
        return "requested by " + own_words(frames, files)
    return own_words(frames, files)


def own_words(frames: oracle.Frames, files: Collection[str]) -> str:
    """The frame that names the stack, then the program's own, innermost first: three at most."""
    named = table_oracle.top(frames)
    own = [frame for frame in frames if name_oracle.says(frame) and not name_oracle.is_library(frame[0])]
    return "  ←  ".join(table_oracle.frame_words(frame, files) for frame in list(dict.fromkeys([named, *own]))[:3])


def check_rows(device: oracle.Device, rows: list[dict[str, Any]], files: Collection[str]) -> None:
    assert rows
    for row in rows:
        recorded = table_oracle.event_row(device, row["event"])
        text, tip = row["text"], row["tip"]
        assert text["event"].replace(",", "") == str(row["event"])
        assert text["action"] == recorded["action"]
        assert int(re.sub(r"\D", "", tip["size"])) == recorded["size"]
        assert int(re.sub(r"\D", "", tip["allocated"])) == recorded["allocated"]
        assert text["address"] == (recorded["address"] or "–")
        assert text["stream"] == (recorded["stream"] or "–")
        if recorded["us"] is None:
            assert "time" not in text
        else:
            assert text["time"] == f"{'−' if recorded['us'] < 0 else '+'}{abs(recorded['us']) / 1e6:.6f} s"
        # The tooltip has the whole; the label shortens the top C++ function.
        words = tip["stack"].split("\n")[0].rpartition(" free on the device; ")[2]
        plain = re.sub(r" · \S+", "", words)
        assert plain == stack_words(device, row["event"], recorded, words, files), row["event"]
        assert (recorded["device_free"] is not None) == ("free on the device" in text["stack"])
        place = re.search(r"\S+:\d+(?=  ←  |$)", words)
        assert place is None or place[0] in text["stack"]


@pytest.mark.parametrize("name", ["overlap", "pools", "no-times", *corpus.varied_names()])
def test_rows_are_what_was_recorded(
    events: Callable[..., Events], borrow_report: Callable[..., Any], name: str
) -> None:
    if not any(device.events for device in corpus.replayed(corpus.path_of(name)).values()):
        pytest.skip("it has no trace")
    opened = events(name, borrow_report)
    places = random.Random(name)
    table_oracle.learn({f for d in opened.devices.values() for e in d.events for f in oracle.frames_of(e)})
    for number, device in opened.devices.items():
        n = len(device.events)
        if n == 0:
            continue
        opened.show(device=number)
        ooms = [i for i, e in enumerate(device.events) if e["action"] == "oom"][:2]
        for event in {0, n - 1, *(places.randrange(n) for _ in range(6)), *ooms}:
            opened.go_to(str(event))
            rows = opened.rows()
            assert opened.cursor(rows) == event
            assert [row["event"] for row in rows] == list(range(rows[0]["event"], rows[0]["event"] + len(rows)))
            assert len(rows) == n or len(rows) > 20
            check_rows(device, rows, opened.files)


@pytest.mark.parametrize("name", ["oom", *corpus.varied_names()[:1]])
def test_csv_is_the_trace(events: Callable[..., Events], name: str) -> None:
    opened = events(name)
    opened.show()
    device = opened.device
    rows = opened.csv()
    assert len(rows) == len(device.events)
    ends = dict(enumerate(device.allocations))
    table_oracle.learn({f for e in device.events for f in oracle.frames_of(e)})
    for event, row in enumerate(rows):
        recorded = table_oracle.event_row(device, event)
        assert (
            row["event"] == str(event) and row["action"] == recorded["action"] and row["size"] == str(recorded["size"])
        )
        assert row["time_us"] == str(device.events[event]["time_us"])
        assert row["address"] == (recorded["address"] or "") and row["stream"] == recorded["stream"]
        assert row["allocated_after"] == str(recorded["allocated"])
        assert row["device_free"] == ("" if recorded["device_free"] is None else str(recorded["device_free"]))
        frame = table_oracle.top(recorded["frames"])
        if row["stack_of"] != "request":
            assert (row["function"], row["file"], row["line"]) == (
                (frame[2], frame[0], str(frame[1])) if frame else ("", "", "")
            )
        if row["allocation"]:
            a = ends[int(row["allocation"])]
            assert event in (a.alloc_event, a.free_requested_event, a.free_event)
        else:
            assert event in set(device.other_events)


def test_actions_are_counted_and_filter(events: Callable[..., Events]) -> None:
    opened = events("oom")
    opened.show()
    page, device = opened.opened.page, opened.device
    counts: dict[str, int] = {}
    for event in device.events:
        counts[event["action"]] = counts.get(event["action"], 0) + 1
    told = page.locator(".event-actions label").all_inner_texts()
    assert {t.split(" (")[0]: int(re.sub(r"\D", "", t.split(" (")[1])) for t in told} == counts
    for action in ("alloc", "free_completed"):
        page.locator(f".event-actions input[data-action={action}]").focus()
        page.keyboard.press("Space")
    opened.opened.settle()
    left = [i for i, e in enumerate(device.events) if e["action"] not in ("alloc", "free_completed")]
    assert opened.opened.js("snapreport.debug.view().listed") == len(left)
    page.locator(".events").focus()
    opened.press("Home")
    assert [row["event"] for row in opened.rows()] == left[: len(opened.rows())]
    opened.press("End")
    assert opened.cursor() == left[-1]
    check_rows(device, opened.rows(), opened.files)
    assert [int(row["event"]) for row in opened.csv()] == left
    assert set(opened.opened.view()["options"]["events.hide"].split(",")) == {"alloc", "free_completed"}


def test_both_ends_of_an_allocation(events: Callable[..., Events]) -> None:
    opened = events("training")
    opened.show()
    page, device = opened.opened.page, opened.device
    number, a = next(
        (i, a) for i, a in enumerate(device.allocations) if a.alloc_event > 500 and a.free_event > a.alloc_event + 200
    )
    opened.go_to(str(a.alloc_event))
    opened.press("Space")
    assert opened.opened.view()["select"] == number
    assert [row["event"] for row in opened.rows() if row["selected"]] == [a.alloc_event]
    links = page.locator(".event-ends button")
    assert [int(e) for e in links.evaluate_all("all => all.map(e => e.dataset.event)")] == [
        a.alloc_event, a.free_requested_event, a.free_event
    ]  # fmt: skip
    links.last.click()
    opened.opened.settle()
    assert opened.cursor() == a.free_event
    assert {row["event"] for row in opened.rows() if row["selected"]} >= {a.free_event}
    opened.press("x")
    assert opened.cursor() == a.alloc_event
    opened.press("x")
    assert opened.cursor() == a.free_requested_event
    page.locator(f".events .list-row[data-event='{a.free_requested_event}']").click()
    assert opened.opened.view()["select"] == number
    opened.show(select=len(device.allocations) - 1)
    last = device.allocations[-1]
    assert any(row["selected"] and row["event"] == last.alloc_event for row in opened.rows()), (
        "a selection elsewhere is followed"
    )


def test_moment_peak_and_oom(events: Callable[..., Events], open_report: Callable[..., Any]) -> None:
    opened = events("oom", open_report)
    opened.show()
    device = opened.device
    ooms = [i for i, e in enumerate(device.events) if e["action"] == "oom"]
    # A report opens at the out-of-memory error.
    assert [row["event"] for row in opened.rows() if row["moment"]] == ooms[:1]
    opened.go_to("0")
    opened.press("o")
    assert opened.cursor() == ooms[0]
    opened.press("Shift+O")
    assert opened.cursor() == ooms[-1] if len(ooms) == 1 or ooms[0] == 0 else opened.cursor() in ooms
    opened.press("p")
    assert opened.cursor() == device.peak_event
    opened.press("ArrowUp", "ArrowUp", "Enter")
    assert opened.opened.view()["at"] == device.peak_event - 2
    assert [row["event"] for row in opened.rows() if row["moment"]] == [device.peak_event - 2]
    opened.press("PageDown")
    assert opened.cursor() > device.peak_event
    opened.show(at=0)
    assert any(row["event"] == 0 and row["moment"] for row in opened.rows())


def test_times_as_places(events: Callable[..., Events]) -> None:
    opened = events("training")
    opened.show()
    device = opened.device
    times = [e["time_us"] - device.events[0]["time_us"] for e in device.events]
    us = times[len(times) // 2]
    expected = max(i for i, t in enumerate(times) if t <= us)
    for text in (f"{us} us", f"+{us / 1e6:.6f} s"):
        opened.go_to("0")
        opened.go_to(text)
        assert opened.cursor() == expected
    opened.go_to("nonsense")
    assert opened.opened.page.locator(".event-place").get_attribute("aria-invalid") == "true"
    assert opened.cursor() == expected


def test_query_dims_or_leaves_out(events: Callable[..., Events]) -> None:
    opened = events("training")
    opened.show(query="size>1MiB")
    device = opened.device
    big = {
        e for a in device.allocations if a.size > 1 << 20 for e in (a.alloc_event, a.free_requested_event, a.free_event)
    } - {-1}
    big -= {
        a.free_event
        for a in device.allocations
        if a.free_event >= 0 and device.events[a.free_event]["action"] == "alloc"
    } - {a.alloc_event for a in device.allocations if a.size > 1 << 20}
    for row in opened.rows():
        assert ("dim" in row["classes"].split()) == (row["event"] not in big)
    box = opened.opened.page.get_by_label("Matches only")
    assert not box.is_checked()
    box.focus()
    opened.press("Space")
    opened.opened.until("snapreport.debug.view().listed < snapreport.stats(snapreport.getView().device).events")
    assert opened.opened.js("snapreport.debug.view().listed") == len(big)
    assert [int(row["event"]) for row in opened.csv()] == sorted(big)


def test_without_trace_says_why(events: Callable[..., Events]) -> None:
    name = "pools_pending_no_trace.pickle"
    if name not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    opened = events(name)
    opened.show()
    assert "Recorded without history" in opened.opened.page.locator(".events-view .view-empty").inner_text()
    assert not opened.opened.page.locator(".events").is_visible()


def test_steps_are_marked(events: Callable[..., Events]) -> None:
    import snapreport

    opened = events("training")
    steps = snapreport.load(opened.path).steps(0).rows(named=True)
    assert steps
    opened.show()
    for step in steps[:3]:
        opened.go_to(str(step["first_event"]))
        row = opened.opened.page.locator(f".events .list-row[data-event='{step['first_event']}']")
        assert step["name"] in row.locator(".boundary-name").get_attribute("title")


@pytest.mark.parametrize("width", [360, 700, 2400])
def test_any_width(events: Callable[..., Events], report_of: Any, borrow_report: Any, width: int) -> None:
    path = corpus.path_of("oom")
    opened = Events(borrow_report(report_of(path), viewport={"width": width, "height": 700}), path)
    opened.show()
    columns = opened.opened.js("snapreport.debug.view().columns")
    assert len(columns) == {360: 4, 700: 6, 2400: 8}[width], columns
    assert opened.opened.js("document.querySelector('.events-view').getBoundingClientRect().right") <= width
    assert len(opened.rows()) > 5
    cut = opened.opened.js(
        """() => [...document.querySelectorAll('.events .frame-label')].filter(label => {
            const box = one => one.getBoundingClientRect()
            const [place, callers] = ['place', 'callers'].map(name => box(label.querySelector('.frame-' + name)))
            const isSliver = callers.width > 0 && callers.width < 40 && callers.top < box(label).bottom - 2
            return isSliver || (place.width > 0 && (place.width < 40 || place.right > box(label).right + 1))
        }).length"""
    )
    assert cut == 0, "file and line are in sight, and no sliver of the callers"
