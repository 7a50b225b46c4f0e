"""Colours in Chromium: what they represent, by pixels; the legend's numbers; matches in full colour and the rest faint;
the moment.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import planted
import pytest
from colour_oracle import Color, faint, groups, held, painted
from oracle import Device
from test_browser_input import at_rest
from test_browser_pixels import far
from test_findings_words import share_words

import snapreport

MIB = 1 << 20
GIB = 1 << 30
NEAR = 4  # of 255, for rounding in the browser


@pytest.fixture(scope="module")
def training() -> Device:
    return corpus.replayed(corpus.path_of("training"))[0]


@pytest.fixture
def opened(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> Any:
    return borrow_report(report_of(corpus.path_of("training")), color_scheme="light")


def colours(opened: Any) -> dict[str, Any]:
    return opened.js("snapreport.debug.view()")["colouring"]


def legend(opened: Any) -> dict[str, Any]:
    return opened.js("snapreport.debug.view()")["legend"]


def grouped(device: Device, by: str) -> Callable[[int], Any]:
    """What colours by ``by`` must distinguish. Categories and pools are the reader's, which has its own tests."""
    if by in ("category", "pool"):
        values = snapreport.load(corpus.path_of("training")).allocations(0)[by].to_list()
        return lambda i: values[i]
    return groups(device)[by]


def places(opened: Any, device: Device, wanted: int) -> list[tuple[float, int, int]]:
    """(x, byte, allocation) of places well inside bands that are alone and at least 14 pixels high in the window."""
    view, plot = opened.view(), opened.plot()
    per_pixel = (view["y"][1] - view["y"][0]) / plot["height"]
    chance, found = random.Random(7), []
    for _ in range(40 * wanted):
        event = chance.randrange(int(view["x"][0]) + 1, int(view["x"][1]) - 1)
        byte = int(
            chance.uniform(
                view["y"][0] + 20 * per_pixel, min(view["y"][1], device.allocated[event + 1]) - 20 * per_pixel
            )
        )
        i = device.pick(event, byte)
        if i is None or i in {f[2] for f in found[-3:]}:
            continue
        base, margin = device.offset(i, event), 7 * per_pixel
        if base + margin <= byte <= base + device.allocations[i].size - margin and byte > view["y"][0] + margin:
            found.append((event + 0.5, byte, i))
        if len(found) == wanted:
            break
    return found


COLOURINGS = ("stack", "category", "size", "age", "stream", "pool", "origin")
WINDOWS = [([3010, 3060], [0, 1.7 * GIB]), ([4330, 4390], [1.4 * GIB, 2.2 * GIB])]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colouring_by_pixels(
    training: Device, report_of: Callable[..., Path], borrow_report: Callable[..., Any], scheme: str
) -> None:
    opened = borrow_report(report_of(corpus.path_of("training")), color_scheme=scheme)
    opened.page.mouse.move(5, 5)
    opened.set_view(options={"legend.open": "no"})  # its height differs between colourings
    for x, y in WINDOWS:
        opened.set_view(x=x, y=y)
        spots = places(opened, training, 12)
        assert len(spots) >= 6
        for by in COLOURINGS:
            opened.set_view(colour=by)
            opened.settle()
            told, still = colours(opened), opened.still()
            assert told["by"] == by
            for event, byte, i in spots:
                wanted = painted(told["colours"][told["keys"][i]], i)
                color = still.color(event, byte)
                assert far(color, wanted) <= NEAR, f"{by}: {i} at {event} is {color}, not {wanted}"


def test_keys_tell_apart_what_the_colouring_says(training: Device, opened: Any) -> None:
    for by in COLOURINGS:
        opened.set_view(colour=by)
        told, group = colours(opened), grouped(training, by)
        pairs = {(key, group(i)) for i, key in enumerate(told["keys"])}
        assert len(told["keys"]) == len(training.allocations)
        assert len(pairs) == len({k for k, _ in pairs}) == len({g for _, g in pairs}), f"{by}: not one to one"
        shown = [tuple(told["colours"][k]) for k, _ in pairs]
        assert by == "stack" or len(set(shown)) == len(shown), "two keys look the same"


def test_going_back_restores_the_picture_exactly(opened: Any) -> None:
    opened.page.mouse.move(5, 5)

    def picture() -> bytes:
        opened.settle()
        return opened.page.locator(".plot").screenshot()

    opened.set_view(x=[3000, 5000], options={"legend.open": "no"})
    before = picture()
    opened.set_view(colour="stack")
    other = picture()
    opened.set_view(query="size>=8MiB")
    assert len({before, other, picture()}) == 3
    opened.set_view(query="")
    assert picture() == other
    opened.set_view(colour="category")
    assert picture() == before


def test_link_with_a_colour_and_a_query(
    opened: Any, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    opened.set_view(colour="age", query="size>=8MiB", at=3000)
    opened.until("location.hash.includes('colour=age')")
    opened.page.mouse.move(5, 5)
    opened.settle()
    again = open_report(report_of(corpus.path_of("training")), opened.js("location.hash"), color_scheme="light")
    again.page.mouse.move(5, 5)
    again.settle()
    assert again.view() == opened.view() and legend(again) == legend(opened)
    assert again.page.locator(".plot").screenshot() == opened.page.locator(".plot").screenshot()


# The legend


def test_legend_sums(training: Device, opened: Any) -> None:
    for by in COLOURINGS:
        opened.set_view(colour=by)
        group = grouped(training, by)
        group_of = {key: group(i) for i, key in enumerate(colours(opened)["keys"])}
        for at in (None, -1, 777, 3000, len(training.events) - 1):
            opened.set_view(at=at)
            event = training.peak_event if at is None else at
            told = legend(opened)
            assert told["position"] == event + 1
            sizes = [entry["bytes"] for entry in told["entries"]]
            assert sizes == sorted(sizes, reverse=True) and sum(sizes) == training.allocated[event + 1]
            here = {group_of[e["key"]]: (e["bytes"], e["count"]) for e in told["entries"] if e["count"]}
            assert here == {g: (s.bytes, s.count) for g, s in held(training, group, event).items()}, f"{by} at {at}"
            if by in ("size", "age", "category"):
                assert all(e["name"] == group_of[e["key"]] for e in told["entries"])


def test_legend_as_text(training: Device, opened: Any) -> None:
    """The first entries in order, each with its bytes, share and count; the others that hold memory are summed."""
    opened.set_view(colour="stack", options={"legend.open": "yes", "fix.open": "no"})
    entries = legend(opened)["entries"]
    texts = opened.page.locator(".legend li").all_inner_texts()
    assert len(texts) == 9 and len(entries) > 9, "three rows of three columns are seen without scrolling"
    for entry, text in zip(entries, texts, strict=False):
        # The function and its place are truncated separately.
        name, numbers = entry["name"].split(), text.split()
        assert name == numbers[: len(name)] and f"{entry['count']:,}×" in text
        assert share_words(entry["bytes"], training.peak_bytes) in text
    others = sum(entry["count"] > 0 for entry in entries[9:])
    assert f"{others} more" in opened.page.locator(".legend-more").inner_text()


def test_legend_follows_the_pointer(training: Device, opened: Any) -> None:
    opened.set_view(colour="category", x=[3000, 3100])
    left, top = opened.pixel_of(3040.5, 100 * MIB)
    opened.page.mouse.move(left, top)
    # The legend follows at most four times a second.
    is_at = "position => snapreport.debug.view().legend.position === position"
    opened.until(is_at, 3041)
    assert sum(entry["bytes"] for entry in legend(opened)["entries"]) == training.allocated[3041]
    opened.page.mouse.move(5, 5)
    opened.until(is_at, training.peak_event + 1)


def test_the_picture_is_as_high_whatever_is_held_at_the_pointer(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    """A click that begins on the button over the plot ends on it, also where the legend changes meanwhile."""
    opened = open_report(report_of(planted.path_of("serving", events=4000, record_from=1)))
    fold = opened.page.get_by_role("button", name="that never change")
    height, entries = opened.plot()["height"], opened.page.locator(".legend li").count()
    fold.hover()
    opened.until("entries => document.querySelectorAll('.legend li').length < entries", entries)
    opened.settle()
    assert opened.plot()["height"] == height


def test_legend_filters_by_pointer_and_keyboard(opened: Any) -> None:
    opened.set_view(colour="category", options={"legend.open": "yes"})
    entry = opened.page.locator(".legend li button").filter(has_text="activation")
    entry.click()
    assert at_rest(opened)["query"] == "category:activation" and entry.get_attribute("aria-pressed") == "true"
    entry.focus()
    opened.page.keyboard.press("Enter")
    assert at_rest(opened)["query"] == "" and entry.get_attribute("aria-pressed") == "false"
    for by in ("stack", "size", "age", "stream", "pool", "step", "origin"):
        opened.set_view(colour=by, at=3000)
        keys = colours(opened)["keys"]
        opened.page.locator(".legend li button").first.click()
        view, first = at_rest(opened), legend(opened)["entries"][0]
        assert view["query"] == first["query"] != ""
        ids = opened.js("q => snapreport.search(snapreport.devices()[0], q)", view["query"])["ids"]
        assert ids == [i for i, key in enumerate(keys) if key == first["key"]]
        opened.set_view(query="")


def test_legend_can_be_closed(opened: Any, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    toggle = opened.page.locator(".legend-toggle")
    before = opened.plot()["height"]
    assert toggle.get_attribute("aria-expanded") == "true"
    toggle.click()
    at_rest(opened)
    assert toggle.get_attribute("aria-expanded") == "false" and opened.plot()["height"] > before + 15
    assert opened.view()["options"]["legend.open"] == "no"
    small = open_report(report_of(corpus.path_of("training")), "#colour=stack", viewport={"width": 360, "height": 640})
    assert small.page.locator("section.legend").bounding_box()["height"] < 40, "closed where there is little room"
    assert small.js("document.documentElement.scrollWidth") <= 360
    small.page.locator(".legend-toggle").click()
    at_rest(small)
    assert small.page.locator(".legend li").count() == 12
    assert small.page.locator("section.legend").bounding_box()["height"] < 100 and small.plot()["height"] > 60


def test_choosing_colours(opened: Any) -> None:
    select = opened.page.get_by_role("combobox", name="Colour by")
    select.select_option("size")
    assert at_rest(opened)["colour"] == "size"
    seen = []
    possible = [o.get_attribute("value") for o in select.locator("option:not([disabled])").all()]
    opened.page.locator(".plot").focus()
    for _ in possible:
        opened.page.keyboard.press("c")
        seen.append(at_rest(opened)["colour"])
    assert sorted(seen) == sorted(possible) and seen[-1] == "size"


def test_what_cannot_be_coloured_says_why(crowded: Path, borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(crowded)
    choice = opened.page.get_by_role("combobox", name="Colour by").locator("option[value=step]")
    assert choice.is_disabled() and "no steps recorded" in choice.inner_text()
    opened.set_view(colour="step")
    assert "no steps recorded" in opened.page.locator(".legend-more").inner_text()


# Matches


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_matches_keep_their_colour_and_the_rest_is_faint(
    training: Device, report_of: Callable[..., Path], borrow_report: Callable[..., Any], scheme: str
) -> None:
    opened = borrow_report(report_of(corpus.path_of("training")), color_scheme=scheme)
    opened.page.mouse.move(5, 5)
    panel: Color = (255, 255, 255) if scheme == "light" else (26, 30, 37)
    opened.set_view(options={"legend.open": "no"})
    seen = [0, 0]
    for x, y in WINDOWS:
        opened.set_view(x=x, y=y, query="")
        spots = places(opened, training, 14)
        limit = sorted(training.allocations[i].size for _, _, i in spots)[len(spots) // 2]
        opened.set_view(query=f"size>={limit}")
        for by in ("category", "stack"):
            opened.set_view(colour=by)
            opened.settle()
            told, still = colours(opened), opened.still()
            assert told["matches"]["count"] == sum(a.size >= limit for a in training.allocations)
            for event, byte, i in spots:
                is_match = training.allocations[i].size >= limit
                full = tuple(told["colours"][told["keys"][i]])
                wanted = painted(full if is_match else faint(full, panel), i)
                color = still.color(event, byte)
                assert far(color, wanted) <= NEAR, (
                    f"{i} of {training.allocations[i].size} bytes is {color}, not {wanted}"
                )
                seen[is_match] += 1
    assert min(seen) >= 3, f"{seen} places were looked at"


def crowd() -> dict[str, Any]:
    """4 GiB, and above it 4,000 allocations of a little under 1 MiB by ``many``; in their lower half every third is
    smaller and by ``few``.
    """
    events = [alloc(0, 4 * GIB, "base")]
    for i in range(1, 4001):
        is_few = i <= 2000 and i % 3 == 0
        events.append(alloc(i, MIB // 2 if is_few else MIB - 512, "few" if is_few else "many"))
    # Nothing changes for a long time, so that the crowd is wide on the screen.
    events += [
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": i, "frames": []}
        if i % 2
        else alloc(i, 512, "base")
        for i in range(4001, 12000)
    ]
    return {"segments": [], "device_traces": [events]}


def alloc(i: int, size: int, name: str) -> dict[str, Any]:
    frames = [{"filename": f"{name}.py", "line": 1, "name": name}]
    return {"action": "alloc", "addr": (i + 1) << 33, "size": size, "stream": 0, "time_us": i, "frames": frames}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crowd")
    (folder / "crowd.pickle").write_bytes(pickle.dumps(crowd()))
    snapreport.write_report([snapreport.load(folder / "crowd.pickle")], folder / "crowd.html")
    return folder / "crowd.html"


def test_a_merged_band_with_a_match_is_drawn_as_one(crowded: Path, borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(crowded, color_scheme="light")
    opened.page.mouse.move(5, 5)
    many, few = 4 * GIB + 2500 * MIB, 4 * GIB + 600 * MIB
    told = colours(opened)
    by_name = {e["name"].split()[0]: tuple(told["colours"][e["key"]]) for e in legend(opened)["entries"]}

    def looks_like(byte: float, color: Color) -> bool:
        still = opened.still()
        return all(
            far(still.color(x, byte + k * 7 * MIB), color) <= 22
            for x in (6000.5, 9000.5, 11000.5)
            for k in range(-3, 4)
        )

    opened.set_view(x=[5000, 11999])
    opened.settle()
    assert looks_like(many, by_name["many"]) and looks_like(few, by_name["many"]), (
        "without a query the heaviest stack names a band"
    )
    opened.set_view(query="func:few")
    opened.settle()
    white: Color = (255, 255, 255)
    assert looks_like(few, by_name["few"]), "a band that holds a match is drawn as one"
    assert looks_like(many, faint(by_name["many"], white)), "a band without is faint"
    assert looks_like(2 * GIB, faint(by_name["base"], white))
    opened.set_view(colour="size")
    opened.settle()
    told = colours(opened)
    half = next(tuple(told["colours"][e["key"]]) for e in legend(opened)["entries"] if e["name"].startswith("512 KiB"))
    assert looks_like(few, half)
    opened.set_view(query="", colour="stack")
    opened.settle()
    assert looks_like(few, by_name["many"])


# The moment


def test_moment_by_key_and_click(training: Device, opened: Any) -> None:
    opened.set_view(x=[3000, 3100])
    plot = opened.page.locator(".plot")
    plot.focus()
    opened.page.mouse.move(5, 5)
    opened.settle()
    opened.page.keyboard.press("m")
    assert at_rest(opened)["at"] in (3049, 3050), "the middle where nothing is pointed at"
    left, top = opened.pixel_of(3020.5, 50 * MIB)
    opened.page.mouse.move(left, top)
    opened.settle()
    opened.page.keyboard.press("m")
    assert at_rest(opened)["at"] == 3020
    opened.page.keyboard.press("m")
    assert at_rest(opened)["at"] is None, "the same again goes back to the peak"
    left, top = opened.pixel_of(3070.5, 50 * MIB)
    opened.page.keyboard.down("Shift")
    opened.page.mouse.click(left, top)
    opened.page.keyboard.up("Shift")
    view = at_rest(opened)
    assert view["at"] == 3070 and view["select"] is None


def test_moment_is_a_line_with_a_name(opened: Any) -> None:
    opened.set_view(x=[3000, 3100], y=[0, 2 * GIB])
    opened.page.mouse.move(5, 5)
    opened.settle()
    free = 1.95 * GIB  # above the stack
    before = opened.still()
    opened.set_view(at=3033)
    opened.settle()
    after = opened.still()
    left, top = after.pixel_of(3033, free)
    column = [after.image.getpixel((round(left) + k, round(top))) for k in (-1, 0)]
    assert max(far(color, before.image.getpixel((round(left), round(top)))) for color in column) > 60
    opened.page.mouse.move(left, after.plot["top"] - 4)
    opened.settle()
    assert "event 3,033" in opened.page.locator(".plot .tooltip").inner_text()
    opened.set_view(at=None)
    opened.page.mouse.move(5, 5)
    opened.settle()
    assert (
        far(opened.still().image.getpixel((round(left), round(top))), before.image.getpixel((round(left), round(top))))
        <= 3
    )
