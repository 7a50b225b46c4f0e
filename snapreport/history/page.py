"""The history as one small page without scripts, and as text."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from markupsafe import Markup
from msgspec import Struct

from snapreport import terminal
from snapreport.contracts.history import CommitMemory, HistoryDocument
from snapreport.history.document import shift_text
from snapreport.history.store import Entry
from snapreport.jobs.place_changes import followed, place_name
from snapreport.number_format import bytes_text, plural
from snapreport.report.page import render_plain

_WIDTH, _HEIGHT = 900, 180
_PLACES = 12


class Chart(Struct, frozen=True):
    title: str
    picture: Markup


class HistoryRow(Struct, frozen=True):
    """A row of the table of commits, as text."""

    name: str
    when: str
    allocated: str
    reserved: str
    change: str
    torch: str


class HistoryPage(Struct, frozen=True):
    """What the template shows. places: (function and file, first, last, curve)."""

    title: str
    headline: list[str]
    charts: list[Chart]
    rows: list[HistoryRow]
    places: list[tuple[str, str, str, Markup]]


def headline(found: Sequence[Entry], document: HistoryDocument) -> list[str]:
    """The shifts, the newest first; or that there is none."""
    shifts = [shift_text(found, shift) for shift in reversed(document.shifts)]
    return shifts or [f"No shift of the peak over {plural(len(found), 'commit')}."]


def history_text(found: Sequence[Entry], document: HistoryDocument) -> str:
    rows = [["", "peak allocated", "peak reserved", "change"]]
    rows += [[row.name, row.allocated, row.reserved, row.change] for row in _rows(found, document)]
    return terminal.lines([*headline(found, document), "", *terminal.aligned(rows)])


def history_page(found: Sequence[Entry], document: HistoryDocument, title: str) -> bytes:
    """The page as UTF-8; the same history gives the same bytes."""
    commits = document.commits
    charts = []
    for measure in ("allocated", "reserved"):
        peaks, low, high = (
            [getattr(one, name) for one in commits]
            for name in (f"peak_{measure}_bytes", f"{measure}_low_bytes", f"{measure}_high_bytes")
        )
        shifts = [shift.index for shift in document.shifts if shift.measure == measure]
        noise = list(zip(low, high, strict=True))
        charts.append(Chart(_range_text(f"Peak {measure}", peaks), _chart(peaks, noise, shifts)))
    for name in _categories(commits):
        values = [one.categories.get(name, 0) for one in commits]
        charts.append(Chart(_range_text(f"At the peak: {name}", values), _chart(values, [], [])))
    charts = [chart for chart in charts if chart.picture]
    page = HistoryPage(title, headline(found, document), charts, _rows(found, document), _places(found))
    return render_plain("history.html.j2", page)


def _range_text(what: str, values: Sequence[int]) -> str:
    low, high = bytes_text(min(values)), bytes_text(max(values))
    return f"{what}: {low}" if low == high else f"{what}: {low} to {high}"


def _categories(commits: Sequence[CommitMemory]) -> list[str]:
    """Those that hold at least 5% of a peak, the largest first."""
    most: dict[str, int] = {}
    for commit in commits:
        for name, size in commit.categories.items():
            if size >= commit.peak_allocated_bytes / 20:
                most[name] = max(size, most.get(name, 0))
    return sorted(most, key=lambda name: -most[name])


def _rows(found: Sequence[Entry], document: HistoryDocument) -> list[HistoryRow]:
    rows = []
    for number, (entry, commit) in enumerate(zip(found, document.commits, strict=True)):
        before = document.commits[number - 1].peak_allocated_bytes if number else commit.peak_allocated_bytes
        change = commit.peak_allocated_bytes - before
        is_noise = abs(change) <= (commit.allocated_high_bytes - commit.allocated_low_bytes) / 2
        text = "" if is_noise else f"{'+' if change > 0 else '-'}{bytes_text(abs(change))}"
        when = "" if commit.time_us is None else _date(commit.time_us)
        allocated, reserved = bytes_text(commit.peak_allocated_bytes), bytes_text(commit.peak_reserved_bytes)
        failed = " (out of memory)" if commit.out_of_memory else ""
        rows.append(HistoryRow(f"{entry.name}{failed}", when, allocated, reserved, text, commit.torch))
    return rows


def _date(time_us: int) -> str:
    return f"{datetime.datetime.fromtimestamp(time_us / 1e6, datetime.UTC):%Y-%m-%d %H:%M}"


def _places(found: Sequence[Entry]) -> list[tuple[str, str, str, Markup]]:
    """The functions that hold most at any commit's peak."""
    each = followed([entry.digest for entry in found])
    most = {place: max(held.get(place, 0) for held in each) for held in each for place in held}
    largest = sorted(most, key=lambda place: (-most[place], place))[:_PLACES]
    return [
        (
            place_name(place),
            bytes_text(each[0].get(place, 0)),
            bytes_text(each[-1].get(place, 0)),
            _chart([held.get(place, 0) for held in each], [], [], 160, 28),
        )
        for place in largest
    ]


def _chart(
    values: Sequence[int],
    bands: Sequence[tuple[int, int]],
    shifts: Sequence[int],
    width: int = _WIDTH,
    height: int = _HEIGHT,
) -> Markup:
    """SVG with a step per commit from 0 upwards; its noise behind it, shifts as lines; empty where all is 0. Only
    numbers go into the markup.
    """
    if not any(values):
        return Markup()
    top = max([1, *values, *(high for _, high in bands)]) * 1.05

    def x(number: float) -> float:
        return round(number / len(values) * width, 1)

    def y(value: float) -> float:
        return round(height - max(value, 0) / top * height, 1)

    def steps(points: Sequence[float]) -> str:
        return "".join(f"V{y(value)}H{x(number + 1)}" for number, value in enumerate(points))

    back = "".join(f"V{y(low)}H{x(number)}" for number, (low, _) in reversed(list(enumerate(bands))))
    noise = (
        f'<path class="a" fill="#9db8dd" d="M0 {y(bands[0][1])}{steps([b[1] for b in bands])}{back}z"/>'
        if bands
        else ""
    )
    marks = "".join(f'<path class="o" stroke="#c62828" d="M{x(number)} 0V{height}"/>' for number in shifts)
    line = f'<path class="r" fill="none" stroke="#55606e" d="M0 {y(values[0])}{steps(values)}"/>'
    axis = f'<path fill="none" stroke="#8a929c" d="M0 {height - 0.5}H{width}"/>'
    return Markup(
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}">{noise}{marks}{line}{axis}</svg>'
    )
