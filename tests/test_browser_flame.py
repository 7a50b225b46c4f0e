"""The flame view: every node has the weight of its allocations, at any moment, however it is oriented and folded."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import corpus
import flame_oracle
import oracle
import polars as pl
import pytest

from snapreport.number_format import bytes_text
from snapreport.timeline.segment_causes import reserved_by_stack

BIG = ("train_22k_events.pickle", "annotations_compile.pickle")
NAMES = ["training", "no-stacks", *corpus.varied_names()]
DEEP = ["training", *(name for name in BIG if name in corpus.real_names())]


@pytest.fixture
def flame(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any], open_report: Callable[..., Any]
) -> Callable[..., Flame]:
    def open_one(name: str, fragment: str = "", **context: Any) -> Flame:
        """In a context of its own where there is one."""
        page = Flame(
            (open_report if context else borrow_report)(report_of(corpus.path_of(name)), **context),
            corpus.path_of(name),
        )
        page.follow("#view=flame" + fragment)
        return page

    return open_one


class Flame:
    """A report on its flame view, and the oracle's devices."""

    def __init__(self, opened: Any, path: Path) -> None:
        self.opened = opened
        self.devices = corpus.replayed(path)

    def show(self, device: int | None = None, **options: Any) -> None:
        """``at`` is a position of the design: the last event, -1 before the first."""
        known = {key: options.pop(key) for key in ("at", "query", "colour", "select") if key in options}
        patch = {"view": "flame", "options": {f"flame.{k}": v for k, v in options.items()}, **known}
        self.opened.set_view(**patch, **({} if device is None else {"device": device}))

    def follow(self, link: str) -> None:
        """Follows a link."""
        self.opened.js("hash => { location.hash = hash }", link)
        self.opened.until("snapreport.getView().view === 'flame' && snapreport.debug.view() !== undefined")
        self.opened.set_view(view="flame")

    def debug(self) -> dict[str, Any]:
        return self.opened.js("snapreport.debug.view()")

    def nodes(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Every node by its path, () the whole; and each node's own weight, which the page shows as separate cells."""
        debug = self.opened.js("(d => ({merge: d.merge, cells: d.nodes()}))(snapreport.debug.view())")
        paths: list[tuple[Any, ...]] = []
        nodes: dict[tuple[Any, ...], dict[str, Any]] = {}
        under: dict[tuple[Any, ...], float] = {}
        for cell in debug["cells"]:
            above = paths[cell["parent"]] if cell["parent"] >= 0 else ()
            key = (cell["name"], cell["file"], cell["line"])[: 2 if debug["merge"] == "function" else 3]
            path = (*above, key) if cell["kind"] == "frame" else above
            paths.append(path)
            if cell["parent"] >= 0:
                under[above] = under.get(above, 0) + cell["value"] + cell["loss"]
            if cell["kind"] in ("all", "frame"):
                assert path not in nodes, "a path that stands twice in the tree"
                nodes[path] = cell
        for path, weight in under.items():
            assert weight == pytest.approx(nodes[path]["value"] + nodes[path]["loss"], rel=1e-12)
        return nodes

    def words(self) -> str:
        return self.opened.page.locator(".flame-words").inner_text()


def moments(device: oracle.Device, count: int, seed: int = 1) -> list[int]:
    last = len(device.events) - 1
    return sorted({-1, last, device.peak_event, *random.Random(seed).choices(range(-1, last + 1), k=count)})


def same(nodes: dict[Any, dict[str, Any]], expected: dict[Any, flame_oracle.Node], rel: float = 0) -> None:
    assert nodes.keys() - {()} == expected.keys() - {()}
    for path, node in expected.items():
        cell = nodes[path]
        assert cell["value"] == pytest.approx(node.value, rel=rel, abs=0), path
        assert cell["loss"] == pytest.approx(node.loss, rel=rel, abs=0), path
        assert cell["count"] == node.count, path


@pytest.mark.parametrize("name", NAMES)
def test_total_is_what_is_live(flame: Callable[..., Flame], name: str) -> None:
    page = flame(name)
    for number, device in page.devices.items():
        for position in moments(device, 3):
            page.show(number, at=position)
            live = [device.allocations[i] for i in device.live_at(position)]
            all_cells = page.opened.js("(d => d ? d.all : {value: 0, count: 0, loss: 0})(snapreport.debug.view())")
            assert all_cells["value"] == sum(a.size for a in live) == device.allocated[position + 1]
            assert all_cells["count"] == len(live)
            assert all_cells["loss"] == 0


@pytest.mark.parametrize("name", DEEP)
def test_every_node_equals_brute_force(flame: Callable[..., Flame], name: str) -> None:
    page = flame(name)
    number, device = max(page.devices.items(), key=lambda entry: entry[1].peak_bytes)
    position = random.Random(name).randrange(len(device.events) // 2, len(device.events))
    for noise in (False, True):
        for root in ("root", "leaf"):
            for merge in ("function", "line"):
                page.show(number, at=position, root=root, merge=merge)
                same(page.nodes(), flame_oracle.tree(device, "live", position, root=root, merge=merge, noise=noise))
        page.opened.page.keyboard.press("n")


def test_every_measure(flame: Callable[..., Flame]) -> None:
    page = flame("training")
    device = page.devices[0]
    position = device.peak_event // 2
    for measure in ("events", "seconds", "count", "allocated", "allocations"):
        page.show(at=position, measure=measure, root="leaf")
        same(page.nodes(), flame_oracle.tree(device, measure, position, root="leaf"), rel=1e-9)
        assert page.opened.page.locator(".flame-moment").is_visible() == (measure not in ("allocated", "allocations"))


@pytest.mark.parametrize("name", DEEP)
def test_growth_is_the_difference(flame: Callable[..., Flame], name: str) -> None:
    page = flame(name)
    number, device = max(page.devices.items(), key=lambda entry: entry[1].peak_bytes)
    chosen = moments(device, 3, seed=4)
    for since, position in [*pairwise(chosen), (chosen[-1], chosen[0])]:
        page.show(number, at=position, measure="growth", **{"from": str(since) if since >= 0 else None})
        nodes = page.nodes()
        same(nodes, flame_oracle.tree(device, "growth", position, since)) if nodes[()]["value"] + nodes[()][
            "loss"
        ] else None
        change = nodes[()]["value"] - nodes[()]["loss"]
        assert change == device.allocated[position + 1] - device.allocated[since + 1]
        if change:
            assert page.words().startswith("+" if change > 0 else "−")


@pytest.mark.parametrize("name", ["no-stacks", *DEEP])
def test_folded_text(flame: Callable[..., Flame], name: str) -> None:
    page = flame(name)
    number, device = max(page.devices.items(), key=lambda entry: entry[1].peak_bytes)
    for root, merge in (("root", "function"), ("leaf", "line")):
        page.show(number, root=root, merge=merge)
        debug = page.debug()
        told = dict(line.rsplit(" ", 1) for line in debug["folded"].splitlines())
        expected = flame_oracle.folded(device, device.peak_event, merge)
        assert {text: int(size) for text, size in told.items()} == expected

        speedscope = json.loads(debug["speedscope"])
        (profile,) = speedscope["profiles"]
        frames = [f"{f['name']}|{f.get('file', '')}|{f.get('line', 0)}" for f in speedscope["shared"]["frames"]]
        assert len(set(frames)) == len(frames) and profile["unit"] == "bytes"
        assert sum(profile["weights"]) == profile["endValue"] == device.peak_bytes
        assert sorted(profile["weights"]) == sorted(expected.values())
        assert all(0 <= i < len(frames) for sample in profile["samples"] for i in sample)


@pytest.mark.parametrize("name", DEEP)
def test_drawn_cells_lose_nothing(flame: Callable[..., Flame], name: str) -> None:
    page = flame(name)
    number, device = max(page.devices.items(), key=lambda entry: entry[1].peak_bytes)
    for root, chains in (
        ("root", None),
        ("leaf", None),
        ("root", "all"),
        ("leaf", "all"),
        ("root", "none"),
        ("leaf", "none"),
    ):
        page.show(number, root=root, chains=chains)
        debug = page.debug()
        cells = debug["cells"]
        pixel = device.peak_bytes / debug["width"]
        under: dict[int, list[dict[str, Any]]] = {}
        for cell in cells[1:]:
            under.setdefault(cell["parent"], []).append(cell)
        for parent, children in under.items():
            at = cells[parent]["from"]
            for cell in children:
                assert cell["row"] == cells[parent]["row"] + 1 and cell["from"] == at
                at += cell["value"]
            assert at == cells[parent]["from"] + cells[parent]["value"], "the row is as wide as the frame over it"
        frames = [cell for cell in cells if cell["kind"] == "frame"]
        assert all(cell["value"] >= pixel for cell in frames)
        assert len(cells) <= (1 + max(cell["row"] for cell in cells)) * debug["width"]
        if chains == "all":
            single = [
                c
                for c in under.values()
                if len(c) == 1 and c[0]["kind"] == "frame" and cells[c[0]["parent"]]["kind"] == "frame"
            ]
            index = {id(cell): i for i, cell in enumerate(cells)}
            for (child,) in single:
                grand = under.get(index[id(child)], [])
                assert not (len(grand) == 1 and grand[0]["kind"] == "frame"), "two frames that could have been one cell"


def cell_at(page: Flame, index: int) -> tuple[float, float]:
    """The middle of a drawn cell in the window."""
    debug = page.debug()
    cell, top = debug["cells"][index], debug["cells"][0]
    box = page.opened.page.locator(".flame-plot").bounding_box()
    scale = debug["width"] / (top["value"] + top["loss"])
    left = box["x"] + (cell["from"] + (cell["value"] + cell["loss"]) / 2) * scale
    return left, box["y"] + 21 * cell["row"] + 10


def test_click_focuses_and_escape_goes_back(flame: Callable[..., Flame]) -> None:
    page = flame("training")
    page.show(chains="none")
    before = page.debug()["cells"]
    index = next(i for i, c in enumerate(before) if c["depth"] == 4 and c["kind"] == "frame")
    page.opened.page.mouse.move(*cell_at(page, index))
    tip = page.opened.page.locator(".flame .tooltip").inner_text()
    assert before[index]["name"] in tip and "% of total" in tip
    page.opened.page.mouse.click(*cell_at(page, index))
    top = page.debug()["cells"][0]
    keys = ("name", "file", "value", "count", "depth")
    assert [top[k] for k in keys] == [before[index][k] for k in keys] and top["row"] == 0
    crumbs = page.opened.page.locator(".flame-crumbs li")
    assert crumbs.first.inner_text() == "All" and crumbs.last.inner_text() == top["name"]

    page.opened.until("location.hash.includes('flame.focus=')")
    again = flame("training", page.opened.js("location.hash").removeprefix("#view=flame"))
    assert again.debug()["cells"][0] == top
    page.opened.page.keyboard.press("Escape")
    assert page.debug()["cells"] == before
    page.opened.page.mouse.click(*cell_at(page, index))
    page.opened.page.mouse.click(*cell_at(page, 0))
    assert page.debug()["cells"] == before


def test_focus_survives_other_choices(flame: Callable[..., Flame]) -> None:
    page = flame("training")
    page.show(chains="none")
    index, cell = next((i, c) for i, c in enumerate(page.debug()["cells"]) if c["depth"] == 4 and c["kind"] == "frame")
    page.opened.page.mouse.click(*cell_at(page, index))
    page.show(merge="line")
    assert page.debug()["cells"][0]["name"] == cell["name"]
    page.show(root="leaf")
    assert page.debug()["cells"][0]["name"] == cell["name"]
    page.opened.page.keyboard.press("n")
    assert page.debug()["cells"][0]["name"] == cell["name"]
    page.show(at=-1)
    assert page.debug()["all"]["value"] == page.devices[0].allocated[0]
    if page.devices[0].allocated[0] == 0:
        assert page.opened.page.locator(".flame-empty").inner_text() == "Nothing is live at this moment."


def test_keys_walk_the_tree(flame: Callable[..., Flame]) -> None:
    page = flame("training")
    page.show(chains="none")
    keyboard = page.opened.page.keyboard
    page.opened.page.locator(".flame-plot").focus()
    keyboard.press("Home")
    at = page.opened.view()["at"]
    item = page.opened.page.locator("[role=treeitem]")
    cells = page.debug()["cells"]
    seen = [0]
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp"):
        keyboard.press(key)
        cursor = page.debug()["cursor"]
        seen.append(cursor)
        assert item.get_attribute("aria-level") == str(cells[cursor]["row"] + 1)
        if cells[cursor]["kind"] == "frame":
            assert cells[cursor]["name"] in item.inner_text()
    assert [cells[i]["row"] for i in seen] == [0, 1, 2, 3, 3, 3, 2] and cells[seen[3]]["parent"] == seen[2] == seen[-1]
    assert page.opened.view()["at"] == at, "the moment stays where it is"
    keyboard.press("Enter")
    assert page.debug()["cells"][0]["name"] == cells[seen[-1]]["name"]
    keyboard.press("Escape")
    assert page.debug()["cells"] == cells
    page.opened.page.evaluate("document.activeElement.blur()")
    keyboard.press("ArrowLeft")
    assert page.opened.view()["at"] == page.devices[0].peak_event - 1, "elsewhere arrows move the moment"


def test_common_frames_open(flame: Callable[..., Flame]) -> None:
    page = flame("training")
    page.show(chains="all")
    cells = page.debug()["cells"]
    index, chain = next(
        (i, c) for i, c in enumerate(cells) if c["kind"] == "chain" and c["value"] > cells[0]["value"] / 20
    )
    page.opened.page.mouse.click(*cell_at(page, index))
    opened = [c for c in page.debug()["cells"] if c["from"] == chain["from"] and c["row"] >= chain["row"]]
    first = chain["depth"] - chain["frames"] + 1
    told = [(c["kind"], c["depth"], c["row"], c["value"]) for c in opened[: chain["frames"]]]
    assert told == [("frame", first + i, chain["row"] + i, chain["value"]) for i in range(chain["frames"])]
    page.opened.page.get_by_role("combobox", name="Chains of frames").select_option("all")
    page.show(open=None)
    assert page.debug()["cells"] == cells


def test_query_tells_and_dims(flame: Callable[..., Flame]) -> None:
    page = flame("training")
    page.opened.js("(() => { location.hash = location.hash + '&query=' + encodeURIComponent('size>1MiB') })()")
    page.opened.until("document.querySelector('.flame-words').textContent.includes('matches')")
    device = page.devices[0]
    live = [device.allocations[i].size for i in device.live_at(device.peak_event)]
    matched = sum(size for size in live if size > 1 << 20)
    assert page.debug()["all"]["matched"] == matched
    share = re.search(r"matches .* of .*, ([\d.]+)%", page.words())
    assert share and float(share[1]) == pytest.approx(100 * matched / sum(live), abs=0.5)


def test_empty_states_say_why(flame: Callable[..., Flame]) -> None:
    page = flame("no-stacks")
    assert "no stack was recorded" in page.words()
    assert [c["kind"] for c in page.debug()["cells"]] == ["all", "none"]
    page = flame("no-times", "&flame.measure=seconds")
    assert "without times" in page.opened.page.locator(".flame-empty").inner_text()
    page.show(measure="live")
    assert page.opened.page.locator(".flame-plot").is_visible()
    page.show(measure="growth", **{"from": str(page.devices[0].peak_event)})
    assert "No stack has more or fewer bytes" in page.opened.page.locator(".flame-empty").inner_text()


@pytest.mark.parametrize("size", [(360, 640), (2600, 1400)], ids=str)
def test_any_window_size(flame: Callable[..., Flame], size: tuple[int, int]) -> None:
    page = flame("training", viewport={"width": size[0], "height": size[1]}, device_scale_factor=1.5)
    for part in (".flame", ".view-tools"):
        assert page.opened.js("s => (e => e.scrollWidth - e.clientWidth)(document.querySelector(s))", part) <= 0, (
            "nothing hangs out"
        )
    box = page.opened.page.locator(".flame-plot").bounding_box()
    assert box["width"] > 0.9 * size[0] and box["height"] >= 120
    ratio = page.opened.js("(c => c.width / c.clientWidth)(document.querySelector('.flame-canvas'))")
    assert ratio == pytest.approx(1.5, rel=0.01)


MENU = ".context-menu [role=menuitem]"


def test_a_menu_shows_the_callers_and_callees_of_a_function(flame: Callable[..., Flame]) -> None:
    page = flame("training")
    page.show(chains="none")
    cells = page.debug()["cells"]
    index = next(i for i, c in enumerate(cells) if c["depth"] == 4 and c["kind"] == "frame")
    name = cells[index]["name"]
    page.opened.page.mouse.click(*cell_at(page, index), button="right")
    menu = page.opened.page.locator(MENU)
    assert menu.first.inner_text() == f"Callers and callees of {name}"
    menu.first.click()
    page.opened.settle()
    debug = page.debug()
    device = page.devices[0]
    key = (name, cells[index]["file"])
    paths = [
        (flame_oracle.path_of(a.stack, "root", "function", noise=False), a.size)
        for a in device.allocations
        if a.lives_at(device.peak_event)
    ]
    through = [(path, path.index(key), size) for path, size in paths if key in path]
    assert through
    for half, step in (("cells", 1), ("callers", -1)):
        top, *rest = debug[half]
        assert top["name"] == name and top["value"] == sum(size for _, _, size in through)
        beside: dict[Any, int] = {}
        for path, at, size in through:
            if 0 <= at + step < len(path):
                beside[path[at + step]] = beside.get(path[at + step], 0) + size
        shown = {(c["name"], c["file"]): c["value"] for c in rest if c["row"] == 1 and c["kind"] == "frame"}
        assert shown.items() <= beside.items(), "its callers, or what it calls"
        assert sum(c["value"] for c in rest if c["row"] == 1) in (0, top["value"])
    assert "flame.middle" in page.opened.view()["options"]
    page.opened.page.keyboard.press("Escape")
    assert page.debug()["cells"] == cells and page.debug()["callers"] is None


def test_a_menu_searches_and_leaves_out_by_keyboard(flame: Callable[..., Flame]) -> None:
    page = flame("training")
    page.show(chains="none")
    keyboard = page.opened.page.keyboard
    page.opened.page.locator(".flame-plot").focus()
    for key in ("Home", "ArrowDown", "ArrowDown", "ArrowDown"):
        keyboard.press(key)
    name = page.debug()["cells"][page.debug()["cursor"]]["name"]
    # The key for menus, which playwright cannot press.
    page.opened.js(
        "document.querySelector('.flame-plot').dispatchEvent("
        "new MouseEvent('contextmenu', {bubbles: true, cancelable: true}))"
    )
    labels = page.opened.page.locator(MENU).all_inner_texts()
    assert labels[2].startswith("Search for func:") and labels[3].startswith("Leave out func:")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "Enter"):
        keyboard.press(key)
    page.opened.settle()
    query = page.opened.view()["query"]
    assert query.startswith("-func:") and name in query
    assert page.opened.page.locator(MENU).count() == 0
    assert page.opened.js("document.activeElement.className").startswith("flame-plot"), "the focus is back"
    page.opened.set_view(query="")


def test_cpp_frames_are_named_by_their_operators(flame: Callable[..., Flame]) -> None:
    if "lightning_oom.pickle" not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    page = flame("lightning_oom.pickle")
    page.show(chains="none")
    debug = page.debug()
    labels = {c["name"]: c["label"] for c in debug["cells"] if c["kind"] == "frame"}
    bound = {name: label for name, label in labels.items() if "THPVariable_" in name}
    assert len(bound) > 5
    assert all(f"THPVariable_{label}(" in name for name, label in bound.items()), bound
    page.show(chains="outer")
    native = [c["label"] for c in page.debug()["cells"] if c["kind"] == "native"]
    assert any(re.fullmatch(r"scaled_dot_product_attention  \d+ C\+\+ frames", label) for label in native), native


@pytest.mark.parametrize("name", NAMES)
def test_reserved_memory_is_that_of_the_exporter(flame: Callable[..., Flame], name: str) -> None:
    page = flame(name)
    snapshot = corpus.loaded(corpus.path_of(name))
    for number, device in page.devices.items():
        for position in moments(device, 2, seed=7):
            page.show(number, at=position, measure="reserved", merge="line")
            expected: dict[Any, flame_oracle.Node] = {(): flame_oracle.Node()}
            rows = reserved_by_stack(snapshot.timeline(number), position)
            for stack, size, count in rows.filter(pl.col("count") > 0).select("stack", "bytes", "count").iter_rows():
                frames = tuple(snapshot.frames(stack).select("filename", "line", "name").iter_rows())
                path = flame_oracle.path_of(frames, "root", "line", noise=False)
                for depth in range(len(path) + 1):
                    node = expected.setdefault(path[:depth], flame_oracle.Node())
                    node.value, node.count = node.value + size, node.count + count
            if not expected[()].count:
                assert (page.debug() or {"all": {"value": 0}})["all"][
                    "value"
                ] == 0  # a device without memory has no view
                continue
            same(page.nodes(), expected)
            assert page.words().startswith(f"{bytes_text(int(expected[()].value))} reserved, ")
