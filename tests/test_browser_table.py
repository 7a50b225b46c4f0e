"""The table: sums of groups, order, files and filter match the oracle's; everything works by keyboard alone."""

from __future__ import annotations

import collections
import csv
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import oracle
import pytest
import table_oracle
from test_annotations import T0, event

from snapreport.number_format import bytes_text

GROUPINGS = ("stack", "func", "file", "line", "category", "step", "size", "operator", "stream", "pool")
REAL = [name for name in ("train_22k_events.pickle", "expandable_oom_3gpu.pickle") if name in corpus.real_names()]
CATCH = """button => new Promise(done => {
    const make = URL.createObjectURL, click = HTMLAnchorElement.prototype.click
    HTMLAnchorElement.prototype.click = () => {}
    URL.createObjectURL = blob => {
        URL.createObjectURL = make
        setTimeout(() => { HTMLAnchorElement.prototype.click = click })
        blob.text().then(done)
        return make.call(URL, blob)
    };
    [...document.querySelectorAll('#app button')].find(b => b.textContent === button).click()
})"""
NUMBERS = {"live_bytes", "live_count", "peak_bytes", "peak_share", "count", "total_bytes", "open_ended"}


class Table:
    """A report on its table, and the oracle of the device that is shown."""

    def __init__(self, opened: Any, path: Path) -> None:
        self.opened, self.path = opened, path
        self.devices = corpus.replayed(path)

    @property
    def number(self) -> int:
        return self.opened.view()["device"]

    @property
    def device(self) -> oracle.Device:
        return self.devices[self.number]

    def show(self, **options: Any) -> None:
        """``at`` is an event."""
        known = {key: options.pop(key) for key in ("at", "query", "select", "device") if key in options}
        self.opened.set_view(view="table", options={f"table.{k}": v for k, v in options.items()}, **known)

    def debug(self) -> dict[str, Any]:
        return self.opened.js("snapreport.debug.view()")

    def download(self, button: str) -> str:
        """The file's contents; captured in the page, since the browser takes time to write a file."""
        return self.opened.js(CATCH, button)

    def csv(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.download("CSV"), newline="")))

    def frames(self, stacks: list[int]) -> list[oracle.Frames]:
        got = self.opened.js("([d, all]) => all.map(s => snapreport.frames(d, s))", [self.number, stacks])
        return [tuple((f["filename"], f["line"], f["name"]) for f in frames) for frames in got]

    def keyed(self, grouping: str) -> dict[Any, dict[str, str]]:
        """The rows of the file by the name of their group; a stack by its frames."""
        rows = self.csv()
        if grouping == "stack":
            keys: list[Any] = self.frames([int(row["stack"]) for row in rows])
        else:
            keys = [row["function" if grouping == "func" else grouping] for row in rows]
        assert len(set(keys)) == len(rows)
        return dict(zip(keys, rows, strict=True))

    def rows(self) -> list[list[str]]:
        """Texts of the rows in the page, in their order."""
        return self.opened.js(
            "() => [...document.querySelectorAll('.table .list-body > .list-row')].sort((a, b) => a.dataset.index - "
            "b.dataset.index)"
            ".map(row => [...row.querySelectorAll('.cell')].map(cell => cell.lastChild.textContent))"
        )


@pytest.fixture
def table(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any], open_report: Callable[..., Any]
) -> Callable[..., Table]:
    def open_one(name: str, **context: Any) -> Table:
        """In a context of its own where more than its size is given."""
        opening = open_report if context.keys() - {"viewport"} else borrow_report
        made = Table(opening(report_of(corpus.path_of(name)), **context), corpus.path_of(name))
        made.show()
        return made

    return open_one


def check_groups(table: Table, grouping: str, position: int) -> None:
    table.show(group=grouping, at=position)
    device = table.device
    keys = table_oracle.keys_of(table.path, table.number, device, grouping)
    expected = table_oracle.sums(device, keys, position)
    got = table.keyed(grouping)
    assert got.keys() == expected.keys()
    for key, group in expected.items():
        row = got[key]
        columns = ("live_bytes", "live_count", "peak_bytes", "count", "total_bytes", "open_ended")
        numbers = [group.live, group.live_count, group.peak, group.count, group.total, group.open]
        assert [int(row[name]) for name in columns] == numbers, key
        assert float(row["mean_lifetime_events"]) == pytest.approx(group.events / group.count, rel=1e-12)
        if table_oracle.time_of(device, 0) is None:
            assert row["mean_lifetime_us"] == ""
        else:
            assert float(row["mean_lifetime_us"]) == pytest.approx(group.us / group.count, rel=1e-12)
        assert float(row["peak_share"]) == pytest.approx(group.peak / device.peak_bytes, rel=1e-12)
    live = [int(row["live_bytes"]) for row in got.values()]
    assert live == sorted(live, reverse=True), "what holds most comes first"


@pytest.mark.parametrize("name", ["training.pickle.xz", "no-times", *REAL])
def test_sums_of_every_grouping(table: Callable[..., Table], name: str) -> None:
    opened = table(name)
    device = opened.device
    for i, grouping in enumerate(GROUPINGS):
        option = opened.opened.page.locator(f".table-tools option[value={grouping}]")
        if grouping == "step" and "no steps recorded" in option.inner_text():
            assert option.is_disabled()
            assert "no steps" not in opened.opened.page.locator(".table-tools option[value=size]").inner_text()
            assert set(table_oracle.keys_of(opened.path, opened.number, device, "step")) == {""}
            continue
        check_groups(opened, grouping, (-1, len(device.events) // 3, device.peak_event, len(device.events) - 1)[i % 4])


@pytest.mark.parametrize("name", ["truncated", "expandable", *REAL])
def test_allocations_as_csv(table: Callable[..., Table], name: str) -> None:
    opened = table(name)
    device = opened.device
    at = len(device.events) // 2
    opened.show(group="allocation", at=at, sort="id")
    rows = opened.csv()
    assert [int(row["id"]) for row in rows] == list(range(len(device.allocations)))
    has_times = table_oracle.time_of(device, 0) is not None

    def text(value: Any) -> str:
        return "" if value is None or value == -1 else str(value)

    tops: dict[int, list[str]] = {}
    for row, a, frame in zip(rows, device.allocations, table_oracle.tops(device), strict=True):
        assert row["size"] == str(a.size) and row["address"] == hex(a.addr) and row["origin"] == a.origin
        assert row["alloc_event"] == text(a.alloc_event) and row["free_event"] == text(a.free_event)
        assert row["free_requested_event"] == text(a.free_requested_event)
        assert row["stream"] == text(a.stream)
        assert row["lifetime_events"] == str(table_oracle.lived_events(device, a))
        assert row["lifetime_us"] == (str(table_oracle.lived_us(device, a)) if has_times else "")
        assert row["live_bytes"] == str(a.size if a.lives_at(at) else 0)
        assert row["peak_bytes"] == str(a.size if a.lives_at(device.peak_event) else 0)
        told = [row["function"], row["file"], row["line"]]
        assert told == ([frame[2], frame[0], str(frame[1])] if frame else ["", "", ""])
        assert tops.setdefault(int(row["stack"]), told) == told


@pytest.mark.parametrize(
    ("group", "column", "field"),
    [
        ("allocation", "size", "size"),
        ("allocation", "address", "address"),
        ("allocation", "free", "free_event"),
        ("allocation", "time", "lifetime_us"),
        ("allocation", "category", "category"),
        ("stack", "count", "count"),
        ("stack", "lifetime", "mean_lifetime_events"),
        ("func", "name", "function"),
    ],
)
def test_headers_sort_stably_both_ways(table: Callable[..., Table], group: str, column: str, field: str) -> None:
    opened = table("training.pickle.xz", viewport={"width": 1800, "height": 700})
    # Two of the columns are sorted with a query that leaves out most rows.
    opened.show(group=group, **({"query": "size>64KiB"} if column in ("address", "category") else {}))
    page = opened.opened.page
    header = page.locator(f".table .list-head [data-column={column}]")
    key = "id" if group == "allocation" else "stack" if group == "stack" else field
    for _ in range(2):
        header.focus()
        page.keyboard.press("Enter")
        opened.opened.settle()
        order = header.locator("xpath=..").get_attribute("aria-sort")
        assert page.locator(".table [aria-sort=ascending], .table [aria-sort=descending]").count() == 1
        rows = opened.csv()
        descending = order == "descending"
        is_text = field in ("category", "function")

        def rank(row: dict[str, str], is_text: bool = is_text, descending: bool = descending) -> tuple[Any, ...]:
            if row[field] == "" and not (is_text and group == "func"):
                return (1, 0)
            if is_text:
                return (0, [(-ord(c) if descending else ord(c)) for c in row[field]] + ([1] if descending else []))
            value = int(row[field], 16) if field == "address" else float(row[field])
            return (0, -value if descending else value)

        own = sorted(rows, key=lambda row: int(row[key]) if key != field else 0)
        expected = sorted(own, key=rank)
        if key == field:
            assert [row[field] for row in rows] == [row[field] for row in expected]
        else:
            assert [row[key] for row in rows] == [row[key] for row in expected], f"{column} {order}"
        shown = opened.rows()
        if group == "allocation":
            assert [r[0].replace(",", "") for r in shown] == [row["id"] for row in rows[: len(shown)]]


def test_json_and_markdown_say_the_same(table: Callable[..., Table]) -> None:
    opened = table("training.pickle.xz", permissions=["clipboard-read", "clipboard-write"])
    opened.show(group="func", at=100)
    rows = opened.csv()
    told = json.loads(opened.download("JSON"))
    assert told["moment"] == {"event": 100, "allocated": opened.device.allocated[101]} and told["group"] == "func"
    assert [{k: "" if v is None else v for k, v in row.items()} for row in told["rows"]] == [
        {k: (v if k in ("function", "category") or v == "" else json.loads(v)) for k, v in row.items()} for row in rows
    ]
    for name in NUMBERS - {"peak_share"}:
        assert told["totals"][name] == sum(int(row[name]) for row in rows), name
    assert told["totals"]["live_bytes"] == opened.device.allocated[101]
    with opened.opened.page.expect_download() as info:
        opened.opened.page.get_by_role("button", name="CSV", exact=True).click()
    assert info.value.suggested_filename == "training-pickle-xz-cuda-0-function.csv"
    with open(info.value.path(), encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == rows
    opened.opened.page.get_by_role("button", name="Markdown").click()
    opened.opened.until("navigator.clipboard.readText().then(text => text.startsWith('#### '))")
    lines = opened.opened.js("navigator.clipboard.readText()").splitlines()
    assert "cuda:0" in lines[0] and "event 100" in lines[0] and opened.path.name.split(".")[0] in lines[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]
    assert len({len(row) for row in cells}) == 1 and len(cells) == 2 + min(20, len(rows)) + 1
    assert [row[0].strip("`") for row in cells[2:-1]] == [row["function"] or "not known" for row in rows[:20]]


def test_hostile_names_stay_text(table: Callable[..., Table], tmp_path: Path, report_of: Any, open_report: Any) -> None:
    import copy
    import pickle

    raw = copy.deepcopy(corpus.raw(corpus.path_of("small")))
    name = 'f|`x`\n"<b>,\r=1'
    for trace in raw["device_traces"]:
        for entry in trace:
            for frame in entry.get("frames") or ():
                frame.update(name=name, filename='a,"b|c.py', line=3)
    path = tmp_path / "hostile.pickle"
    path.write_bytes(pickle.dumps(raw))
    opened = Table(open_report(report_of(path), permissions=["clipboard-read", "clipboard-write"]), path)
    opened.show(group="func")
    assert name in {row["function"] for row in opened.csv()}
    check_groups(opened, "line", opened.device.peak_event)
    opened.show(group="func")
    opened.opened.page.get_by_role("button", name="Markdown").click()
    opened.opened.until("navigator.clipboard.readText().then(text => text.startsWith('#### '))")
    lines = [line for line in opened.opened.js("navigator.clipboard.readText()").splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1, "a pipe in a name is no end of a cell"
    assert opened.opened.js("document.querySelectorAll('.table b').length") == 0


def test_group_opens_selects_and_names_a_query(table: Callable[..., Table]) -> None:
    opened = table("training.pickle.xz")
    page, device = opened.opened.page, opened.device
    opened.show(group="category")
    page.locator(".table").focus()
    lines = opened.debug()["lines"]
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    opened.opened.until(f"snapreport.debug.view().lines > {lines}")
    keys = table_oracle.keys_of(opened.path, opened.number, device, "category")
    first = opened.csv()[0]["category"]
    page.locator(".table").focus()
    largest = sorted((i for i, key in enumerate(keys) if key == first), key=lambda i: (-device.allocations[i].size, i))
    shown = [row[0] for row in opened.rows() if len(row) == 1]
    assert [int(text.split()[0][1:].replace(",", "")) for text in shown[:10]] == largest[:10]
    assert shown[10].startswith(f"{len(largest) - 10:,} more")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert opened.opened.view()["select"] == largest[0]
    assert page.locator(".table .list-row[aria-selected=true]").count() == 1
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert opened.opened.view()["query"].startswith("category:")
    page.keyboard.press("Enter")
    assert opened.opened.view()["query"] == "", "a second time takes it back"
    page.keyboard.press("Space")
    opened.opened.until(f"snapreport.debug.view().lines === {lines}")


@pytest.mark.parametrize("grouping", ["stack", "func", "file", "line", "category", "size", "stream", "pool"])
def test_query_of_a_group_finds_it(table: Callable[..., Table], grouping: str) -> None:
    opened = table("training.pickle.xz")
    opened.show(group=grouping)
    opened.opened.page.locator(".table").focus()
    opened.opened.page.keyboard.press("Home")
    opened.opened.page.keyboard.press("Enter")
    query = opened.opened.view()["query"]
    assert query.startswith(f"{grouping}:") or (grouping, query[:5]) == ("line", "file:"), query
    keys = table_oracle.keys_of(opened.path, opened.number, opened.device, grouping)
    key = next(iter(opened.keyed(grouping)))
    mine = {i for i, k in enumerate(keys) if k == key}
    found = opened.opened.js("([d, q]) => snapreport.search(d, q)", [opened.number, query])
    if grouping in ("func", "file", "line"):
        assert mine <= set(found["ids"]), "such a query looks at every frame"
    else:
        assert mine == set(found["ids"])
    assert found["count"] == len(found["ids"])
    check_stack_beside(opened, mine, set(found["ids"]))


def check_stack_beside(opened: Table, mine: set[int], found: set[int]) -> None:
    """The largest whole stack of the group at the peak, and how many others of what the query finds are live then."""
    device, page = opened.device, opened.opened.page
    live: dict[oracle.Frames, int] = collections.Counter()
    for i in mine & set(device.live_at(device.peak_event)):
        live[device.allocations[i].stack] += device.allocations[i].size
    shown = opened.frames([opened.opened.view()["stack"]])[0]
    assert shown and live[shown] == max(size for stack, size in live.items() if stack)
    panel = page.locator("aside.details")
    assert panel.is_visible() and panel.locator(".frames > li").count() > 0
    others = {device.allocations[i].stack for i in found & set(device.live_at(device.peak_event))} - {shown}
    words = panel.locator(".other-stacks")
    assert words.count() == (1 if others else 0)
    if others:
        assert f"{len(others):,} other stack" in words.inner_text()


def test_a_group_without_stacks_says_so(table: Callable[..., Table]) -> None:
    """No query matches allocations without frames: the panel beside it says that none was recorded."""
    opened = table("no-stacks")
    opened.show(group="func")
    page = opened.opened.page
    page.locator(".table").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    view = opened.opened.view()
    assert (view["query"], view["stack"]) == ("", 0)
    assert page.locator("aside.details h2").inner_text() == "No stack trace recorded"


def test_rows_of_nothing_are_folded(table: Callable[..., Table]) -> None:
    """Groups with 0 B live at the moment are one line at the end, until it is clicked."""
    opened = table("training.pickle.xz")
    device, page = opened.device, opened.opened.page
    opened.show(group="stack", at=50)
    keys = table_oracle.keys_of(opened.path, opened.number, device, "stack")
    sums = table_oracle.sums(device, keys, 50).values()
    empty = sum(group.live == 0 for group in sums)
    assert 1 < empty < len(sums)
    assert (opened.debug()["rows"], opened.debug()["lines"]) == (len(sums), len(sums) - empty + 1)
    page.locator(".table").focus()
    page.keyboard.press("End")
    assert opened.rows()[-1] == [f"{empty:,} more with 0 B live: list them (Enter)"]
    assert all(row[1] != "0 B" for row in opened.rows()[:-1])
    page.keyboard.press("Enter")
    opened.opened.until("snapreport.debug.view().lines === snapreport.debug.view().rows")
    assert len(opened.csv()) == len(sums), "files hold all rows"


def test_matches_only(table: Callable[..., Table]) -> None:
    opened = table("training.pickle.xz")
    device, page = opened.device, opened.opened.page
    opened.show(group="allocation", query="size>1MiB")
    big = [i for i, a in enumerate(device.allocations) if a.size > 1 << 20]
    assert 0 < len(big) < len(device.allocations)
    assert {int(row["id"]) for row in opened.csv()} == set(big)
    words = page.locator(".table-words").inner_text()
    assert words.startswith(f"{len(big):,} of {len(device.allocations):,} allocations, ")
    opened.show(group="stack", at=50)
    keys = table_oracle.keys_of(opened.path, opened.number, device, "stack")
    expected = table_oracle.sums(device, keys, 50, keep=set(big).__contains__)
    got = opened.keyed("stack")
    assert {k: (int(r["count"]), int(r["live_bytes"])) for k, r in got.items()} == {
        k: (g.count, g.live) for k, g in expected.items()
    }
    box = page.get_by_label("Matches only")
    assert box.is_checked()
    box.focus()
    page.keyboard.press("Space")
    opened.opened.until("!snapreport.debug.view().matchesOnly")
    assert len(opened.csv()) == len(set(keys))
    opened.show(group="stack", at=50, matches="all", zeros="all")
    assert page.locator(".table .list-row.dim").count() > 0
    opened.show(query="size>100TiB", matches=None)
    assert page.locator(".view-empty").inner_text().startswith("None of the")


def test_link_brings_the_table_back(table: Callable[..., Table], open_report: Any, report_of: Any) -> None:
    opened = table("training.pickle.xz")
    opened.show(group="line", sort="count", at=77)
    opened.opened.page.locator(".table").focus()
    opened.opened.page.keyboard.press("Home")
    opened.opened.page.keyboard.press("Space")
    opened.opened.until("location.hash.includes('table.open')")
    again = Table(open_report(report_of(opened.path)), opened.path)
    again.opened.js("hash => { location.hash = hash }", opened.opened.js("location.hash"))
    again.opened.until("snapreport.debug.view()?.lines > snapreport.debug.view()?.rows")
    again.opened.settle()
    assert again.rows() == opened.rows()


@pytest.mark.parametrize(
    "size", [{"width": 360, "height": 640}, {"width": 2200, "height": 1200}], ids=["narrow", "wide"]
)
def test_any_width(table: Callable[..., Table], size: dict[str, int]) -> None:
    opened = table("training.pickle.xz", viewport=size)
    for group in ("stack", "allocation"):
        opened.show(group=group)
        columns = opened.debug()["columns"]
        narrow = 2 if group == "stack" else 3  # a stack's name needs the room
        assert len(columns) == narrow if size["width"] == 360 else len(columns) >= 9
        assert opened.opened.js("document.querySelector('.table-view').getBoundingClientRect().right") <= size["width"]
        sizes = opened.opened.js("(e => [e.scrollWidth, e.clientWidth])(document.querySelector('.table'))")
        assert sizes[0] <= sizes[1] + 1, "columns fit side by side"
        cut = opened.opened.js(
            """() => [...document.querySelectorAll('.table .frame-place:not([hidden])')].filter(place => {
                const [inner, outer] = [place, place.closest('.cell')].map(one => one.getBoundingClientRect())
                return inner.width < 40 || inner.right > outer.right || inner.left < outer.left
            }).length"""
        )
        assert cut == 0, "the line of every frame is in sight"
    first = opened.opened.page.locator(".table .list-body .cell").first
    assert first.evaluate("cell => getComputedStyle(cell).position") == "sticky"


def test_many_rows_scroll_to_each_end(table: Callable[..., Table]) -> None:
    opened = table("large")
    device, page = opened.device, opened.opened.page
    opened.show(group="allocation", sort="id")
    page.locator(".table").focus()
    page.keyboard.press("End")
    opened.opened.settle()
    assert opened.rows()[-1][0] == f"{len(device.allocations) - 1:,}"
    assert page.locator(".table").get_attribute("aria-rowcount") == str(len(device.allocations) + 1)
    assert page.locator(".table .list-body > .list-row").count() < 80
    active = page.locator(".table").get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").inner_text().startswith(f"{len(device.allocations) - 1:,}")
    opened.opened.set_view(view="timeline")
    opened.opened.set_view(view="table")
    opened.opened.settle()
    assert opened.rows()[-1][0] == f"{len(device.allocations) - 1:,}", "coming back shows the same rows"
    opened.opened.js("document.querySelector('.table').scrollTop = 0")
    opened.opened.settle()
    assert opened.rows()[0][0] == "0"


def test_without_trace(table: Callable[..., Table]) -> None:
    name = "pools_pending_no_trace.pickle"
    if name not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    opened = table(name)
    opened.show(group="pool")
    expected = table_oracle.sums(
        opened.device, table_oracle.keys_of(opened.path, opened.number, opened.device, "pool"), -1
    )
    assert {row["pool"]: int(row["live_bytes"]) for row in opened.csv()} == {k: g.live for k, g in expected.items()}


def test_steps_tell_their_peak_and_growth(table: Callable[..., Table]) -> None:
    import snapreport

    opened = table("leak")
    opened.show(group="step")
    told = {row["step"]: row for row in opened.csv()}
    steps = snapreport.load(opened.path).steps(opened.number).select("name", "first_event", "last_event").rows()
    assert len(steps) >= 10
    for name, first, last in steps:
        curve = opened.device.allocated[first + 1 : last + 2]
        assert int(told[name]["step_peak_bytes"]) == max(curve)
        assert (
            int(told[name]["step_growth_bytes"]) == opened.device.allocated[last + 1] - opened.device.allocated[first]
        )
        assert int(told[name]["step_events"]) == last - first + 1
    assert told[""]["step_peak_bytes"] == ""


def test_annotated_tensors_carry_their_names(
    tmp_path: Path, report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    trace = [
        event("alloc", T0, 0x1000, 512),
        event("alloc", T0 + 1, 0x2000, 1024),
        event("annotate", T0 + 2, 0x2000, 1024, user_metadata="kv cache <b>"),
    ]
    path = tmp_path / "annotated.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}, 4))
    opened = borrow_report(report_of(path))
    table = Table(opened, path)
    table.show(group="allocation", sort="id")
    header = opened.page.locator(".table .list-head [data-column]").evaluate_all(
        "all => all.map(e => e.dataset.column)"
    )
    assert [row[header.index("metadata")] for row in table.rows()] == ["–", "kv cache <b>"]
    assert [row["user_metadata"] for row in table.csv()] == ["", "kv cache <b>"]
    assert opened.js("snapreport.search(0, 'kv')")["ids"] == [1]


def test_categories_and_bars_of_groups(table: Callable[..., Table]) -> None:
    """The category of most of a group's bytes at the peak, and shares as bars behind their numbers."""
    opened = table("training.pickle.xz")
    opened.show(group="stack")
    device, recorded = opened.device, corpus.loaded(opened.path).allocations(opened.number)
    categories = recorded["category"].cast(str).to_list()
    for frames, row in opened.keyed("stack").items():
        bytes_of: dict[str, int] = {}
        for a, category in zip(device.allocations, categories, strict=True):
            if a.stack == frames and a.lives_at(device.peak_event):
                bytes_of[category] = bytes_of.get(category, 0) + a.size
        if bytes_of:
            assert bytes_of[row["category"]] == max(bytes_of.values())
    bars = opened.opened.js(
        "() => [...document.querySelectorAll('.table .list-body .cell.bar')].slice(0, 5)"
        ".map(cell => [cell.textContent, cell.style.getPropertyValue('--bar')])"
    )
    assert bars and all(abs(float(text.strip("<%")) - float(bar.strip("%"))) <= 1 for text, bar in bars), bars


def test_rows_are_filtered_by_name(table: Callable[..., Table]) -> None:
    opened = table("training.pickle.xz")
    opened.show(group="func")
    every = {row["function"]: row for row in opened.csv()}
    box = opened.opened.page.locator(".table-filter")
    box.fill("FOR war")
    opened.opened.settle()
    assert {row["function"]: row for row in opened.csv()} == {k: v for k, v in every.items() if "forward" in k.lower()}
    assert opened.opened.page.locator(".list-foot .cell").first.inner_text() == "Total"
    box.fill("no such function")
    opened.opened.settle()
    assert opened.opened.page.locator(".view-empty").inner_text() == "No row has a name with “no such function”."
    box.fill("")
    opened.opened.settle()
    assert len(opened.csv()) == len(every)


def sums_in_range(device: Any, keys: list[Any], first: int, last: int) -> dict[Any, list[int]]:
    """Bytes allocated, freed and held at most by each key of what lives within some events, counted event by event."""
    living = [a.alloc_event <= last and not (0 <= a.free_event < first) for a in device.allocations]
    expected: dict[Any, list[int]] = {}
    for a, key, lives in zip(device.allocations, keys, living, strict=True):
        if lives:
            sums = expected.setdefault(key, [0, 0, 0])
            sums[0] += a.size if a.alloc_event >= first else 0
            sums[1] += a.size if 0 <= a.free_event <= last else 0
    for moment in range(first - 1, last + 1):
        held: dict[Any, int] = {}
        for a, key, lives in zip(device.allocations, keys, living, strict=True):
            if lives and a.lives_at(moment):
                held[key] = held.get(key, 0) + a.size
        for key, size in held.items():
            expected[key][2] = max(expected[key][2], size)
    return expected


@pytest.mark.parametrize("name", ["training.pickle.xz", *REAL])
def test_a_window_is_summed(table: Callable[..., Table], name: str) -> None:
    """Allocated, freed and peak of each group in the events of the timeline's window, counted event by event."""
    opened = table(name)
    device = opened.device
    n = len(device.events)
    first, last = n // 3, n // 3 + min(n // 4, 400)
    opened.opened.set_view(
        view="table", x=[first - 0.5, last + 0.5], options={"table.group": "func", "table.range": "window"}
    )
    expected = sums_in_range(device, table_oracle.keys_of(opened.path, opened.number, device, "func"), first, last)
    columns = ("allocated_bytes", "freed_bytes", "range_peak_bytes")
    got = {row["function"]: [int(row[column]) for column in columns] for row in opened.csv()}
    assert got == expected
    page = opened.opened.page
    assert page.get_by_label("First event").input_value() == str(first)
    assert page.get_by_label("Last event").input_value() == str(last)
    page.get_by_label("Last event").fill(str(n - 1))
    page.get_by_label("Last event").press("Enter")
    opened.opened.settle()
    assert opened.debug()["range"] == {"first": first, "last": n - 1}
    page.get_by_role("button", name="All", exact=True).click()
    opened.opened.settle()
    assert opened.debug()["range"] == {"first": 0, "last": n - 1}
    page.get_by_label("Sum the window").uncheck()
    opened.opened.settle()
    assert opened.debug()["range"] is None and "live" in opened.debug()["columns"]


def test_a_selected_range_is_summed(table: Callable[..., Table]) -> None:
    """A drag with shift selects events: their sums are beside the timeline and in the table, until it is cleared."""
    opened = table("training.pickle.xz")
    page, device = opened.opened.page, opened.device
    opened.opened.set_view(view="timeline")
    plot = opened.opened.plot()
    edges = [opened.opened.place_of(plot["left"] + share * plot["width"], plot["top"] + 9)[0] for share in (0.3, 0.4)]
    drag_with_shift(opened.opened, 0.3, 0.4)
    first, last = map(int, opened.opened.view()["options"]["timeline.range"].split(".."))
    assert (first, last) == (pytest.approx(edges[0], abs=2), pytest.approx(edges[1], abs=2))
    total = sums_in_range(device, [0] * len(device.allocations), first, last)[0]
    facts = page.locator(".details dd").all_inner_texts()
    assert [fact.split(" in ")[0] for fact in facts] == [
        bytes_text(total[0]), bytes_text(total[1]), change_text(total[0] - total[1]), bytes_text(total[2]),
    ]  # fmt: skip
    by_stack = sums_in_range(device, [a.stack for a in device.allocations], first, last)
    nets = sorted((abs(allocated - freed) for allocated, freed, _ in by_stack.values()), reverse=True)
    shown = page.locator(".details .sibling-list button").first.inner_text()
    assert shown[1:].startswith(bytes_text(nets[0]))
    page.get_by_role("button", name="in the table").click()
    opened.opened.settle()
    assert opened.debug()["range"] == {"first": first, "last": last}
    page.get_by_label("Last event").fill(str(last + 5))
    page.get_by_label("Last event").press("Enter")
    opened.opened.settle()
    assert opened.opened.view()["options"]["timeline.range"] == f"{first}..{last + 5}"
    page.get_by_role("button", name="Clear", exact=True).click()
    opened.opened.settle()
    assert opened.debug()["range"] == {"first": 0, "last": len(device.events) - 1}, "the window"
    opened.opened.set_view(view="timeline", x=[99.5, 200.5], options={})
    page.locator(".plot").focus()
    page.keyboard.press("g")
    opened.opened.until("snapreport.getView().options['timeline.range'] === '100..200'")
    page.keyboard.press("Escape")
    opened.opened.until("!('timeline.range' in snapreport.getView().options)")
    assert page.locator(".details").is_hidden()


def drag_with_shift(opened: Any, start: float, end: float) -> None:
    """From one share of the plot's width to another."""
    page, plot = opened.page, opened.plot()
    x0, x1 = (plot["left"] + share * plot["width"] for share in (start, end))
    page.keyboard.down("Shift")
    page.mouse.move(x0, plot["top"] + 20)
    page.mouse.down()
    page.mouse.move(x1, plot["top"] + 60, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    opened.settle()


def change_text(value: int) -> str:
    return f"{'−' if value < 0 else '+'}{bytes_text(abs(value))}" if value else "±0 B"


def test_right_click_filters_in_the_timeline_and_the_events(table: Callable[..., Table]) -> None:
    opened = table("training.pickle.xz")
    page, device = opened.opened.page, opened.device
    opened.opened.set_view(view="timeline")
    held = device.allocations[max(range(len(device.allocations)), key=lambda i: device.allocations[i].size)]
    moment = held.alloc_event + 1
    opened.opened.set_view(x=[moment - 2, moment + 2])
    middle = sum(a.size for a in device.allocations if a.lives_at(moment)) // 2
    expected = opened.opened.js("([event, byte]) => snapreport.pick(0, event, byte)", [moment, middle])
    page.mouse.click(*opened.opened.pixel_of(moment + 0.5, middle), button="right")
    page.locator(".context-menu [role=menuitem]").filter(has_text="Search for size").click()
    opened.opened.settle()
    assert opened.opened.view()["query"] == f"size:{expected['size']}"
    opened.opened.set_view(view="events", query="", at=held.alloc_event)
    page.locator(".events .list-row.cursor").click(button="right")
    page.locator(".context-menu [role=menuitem]").filter(has_text="Leave out stack").click()
    opened.opened.settle()
    assert opened.opened.view()["query"].startswith("-stack:")


def test_a_row_s_menu_filters(table: Callable[..., Table]) -> None:
    opened = table("training.pickle.xz")
    opened.show(group="category")
    page = opened.opened.page
    row = page.locator(".table .list-body > .list-row").first
    name = opened.rows()[0][0]
    for item, query in (("Search for", f"category:{name}"), ("Leave out", f"-category:{name}")):
        row.click(button="right")
        page.locator(".context-menu [role=menuitem]").filter(has_text=item).click()
        opened.opened.settle()
        assert opened.opened.view()["query"].replace('"', "") == query
        opened.opened.set_view(query="")
    row.click(button="right")
    page.keyboard.press("Escape")
    assert page.locator(".context-menu").count() == 0
