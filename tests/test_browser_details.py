"""The details panel against an oracle, quoted source, bookmarks, links and saved pictures."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cli
import corpus
import pytest
from block_oracle import segments_by_position
from details_oracle import at_address, beside, siblings
from test_module_lines import RECORDING

import snapreport

# Puts what is copied where a test can read it: the clipboard of a headless browser is not reliable.
CLIPBOARD = (
    "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { window.copied = text }}})"
)


def facts(opened: Any) -> dict[str, str]:
    """The panel's table: label → text."""
    return opened.js("""() => {
        const list = document.querySelector('.details > dl')
        const labels = [...list.querySelectorAll('dt')], values = [...list.querySelectorAll('dd')]
        return Object.fromEntries(labels.map((label, i) => [label.textContent, values[i].textContent]))
    }""")


def links(opened: Any, label: str) -> list[int]:
    """Allocations that a row of the table links to."""
    return opened.js(
        """label => {
        const at = [...document.querySelectorAll('.details dt')].find(dt => dt.textContent === label)
        const linked = at?.nextElementSibling.querySelectorAll('[data-allocation]') ?? []
        return [...linked].map(b => Number(b.dataset.allocation))
    }""",
        label,
    )


@pytest.mark.parametrize("name", ["training", "truncated", "overlap", "expandable"])
def test_details_equal_the_oracle(name: str, report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    path = corpus.path_of(name)
    device = corpus.replayed(path)[0]
    steps = snapreport.load(path).steps(0).rows(named=True)
    segments = segments_by_position(device)
    opened = borrow_report(report_of(path))
    chosen = random.Random(name).sample(range(len(device.allocations)), 8)
    for i in [*chosen, 0, len(device.allocations) - 1]:
        a = device.allocations[i]
        opened.set_view(select=i)
        told = facts(opened)
        assert f"{a.addr:#x}" in told["Address"]
        assert f"({a.size:,} B)" in opened.page.locator(".details h2").inner_text() or a.size < 1024
        if a.alloc_event >= 0:
            assert f"event {a.alloc_event:,}" in told["Allocated at"]
        if a.free_event >= 0:
            assert f"event {a.free_event:,}" in told["Freed at"]
        at_peak = a.lives_at(device.peak_event)
        assert ("%" in told["Share of peak"]) == at_peak
        where = device.peak_event if at_peak else a.alloc_event
        below = device.offset(i, where)
        assert (f"({below:,} B)" if below >= 1024 else f"{below} B") in told["Place in stack"]
        before, after = at_address(device, i)
        assert links(opened, "Address before") == ([] if before is None else [before])
        assert links(opened, "Address after") == ([] if after is None else [after])
        segment, below_it, above_it = beside(device, segments, i)
        assert (f"at {segment.start:#x}" in told["Segment"]) if segment else "Segment" not in told
        assert links(opened, "Below in it") == ([] if below_it is None else [below_it])
        assert links(opened, "Above in it") == ([] if above_it is None else [above_it])
        check_steps(told.get("Steps", ""), a, steps, len(device.events))
        check_siblings(opened, device, i)


def check_steps(told: str, a: Any, steps: list[dict[str, Any]], events: int) -> None:
    last = events - 1 if a.free_event < 0 else a.free_event
    steps = [s for s in steps if s["last_event"] >= s["first_event"]]
    lived = [s for s in steps if s["first_event"] <= last and s["last_event"] >= max(0, a.alloc_event)]
    if not lived:
        assert told == ""
        return
    born = next((s["name"] for s in steps if s["first_event"] <= a.alloc_event <= s["last_event"]), None)
    freed = next(
        (s["name"] for s in steps if a.free_event >= 0 and s["first_event"] <= a.free_event <= s["last_event"]), None
    )
    if born is not None and born == freed:
        assert told == f"{born} alone"
    else:
        assert f"lives in {len(lived)} step" in told
        assert (f"born in {born}" if born else "no step" if a.alloc_event >= 0 else "before the trace") in told


def check_siblings(opened: Any, device: Any, i: int) -> None:
    listed = opened.js(
        "[...document.querySelectorAll('.sibling-list [data-allocation]')].map(b => Number(b.dataset.allocation))"
    )
    if not device.allocations[i].stack:
        assert listed == []
        return
    same = siblings(device, i)
    assert listed == same["largest"]
    text = opened.page.locator(".siblings").inner_text()
    assert text.startswith(f"{same['count']:,} allocation")
    assert (f"{same['live']:,} live" if same["live"] else "none of them lives") in text
    number, unit = re.search(r"([\d.]+) (B|[KMGT]iB) in all", text).groups()
    power = ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)
    assert abs(float(number) * 1024**power - same["bytes"]) <= 0.006 * same["bytes"]


def test_links_lead_on(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    path = corpus.path_of("training")
    device = corpus.replayed(path)[0]
    first = next(
        i
        for i in range(500, len(device.allocations))
        if at_address(device, i)[1] is not None and device.allocations[i].stack
    )
    opened = borrow_report(report_of(path), f"#select={first}", before=CLIPBOARD)
    after = links(opened, "Address after")[0]
    opened.page.locator(f".details dd [data-allocation='{after}']").first.click()
    assert opened.view()["select"] == after
    other = siblings(device, after)["largest"][0]
    opened.page.locator(f".sibling-list [data-allocation='{other}']").click()
    assert opened.view()["select"] == other
    opened.page.get_by_role("button", name="Copy link").click()
    opened.until("window.copied !== undefined")
    link, path_uri = opened.js("window.copied"), report_of(path).as_uri()
    assert link.startswith(path_uri) and f"select={other}" in link
    again = borrow_report(report_of(path), link.removeprefix(path_uri), is_new=True)
    assert again.view()["select"] == other
    opened.page.get_by_title("Copy the address").click()
    opened.until("copied.startsWith('0x')")
    assert int(opened.js("copied"), 16) == device.allocations[other].addr


def test_quoted_source_is_text(tmp_path: Path, borrow_report: Callable[..., Any]) -> None:
    path = corpus.path_of("training.pickle.xz")
    snapshot = snapreport.load(path)
    hostile = "<img src=x onerror=alert(1)></script><script>alert({})</script><!-- \u2028"
    (tmp_path / "src" / "app").mkdir(parents=True)
    (tmp_path / "src" / "app" / "model.py").write_text(
        "\n".join(hostile.format(n) for n in range(1, 400)), encoding="utf-8"
    )
    snapreport.write_report(snapshot, tmp_path / "r.html", source=[tmp_path / "src"])
    frames = snapshot.recording.frames
    wanted = {i for i, f in enumerate(frames["filename"].to_list()) if f.endswith("app/model.py")}
    allocations = snapshot.allocations(0)
    chosen = next(i for i, s in enumerate(allocations["stack"].to_list()) if wanted & set(snapshot.recording.stack(s)))
    opened = borrow_report(tmp_path / "r.html", f"#select={chosen}")
    opened.page.locator(".details .source").first.wait_for()
    shown = opened.js("""[...document.querySelectorAll('.details .frame:has(.source)')].map(f => [
        f.querySelector('.place').title, f.querySelector('.here').textContent, f.querySelectorAll('.line').length])""")
    lines = [
        f["line"]
        for i in snapshot.recording.stack(allocations["stack"][chosen])
        if i in wanted
        for f in [frames.row(i, named=True)]
    ]
    assert [
        (place.endswith(f"app/model.py:{line}"), here, count)
        for (place, here, count), line in zip(shown, lines, strict=True)
    ] == [(True, f"{line}{hostile.format(line)}\n", 7) for line in lines]
    assert opened.js("document.querySelectorAll('.details img, .details script').length") == 0


def test_no_source_unless_asked(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("small")), "#select=20")
    opened.settle()
    assert opened.page.locator(".details .frame").count() > 0 and opened.page.locator(".details .source").count() == 0


def test_bookmarks(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    report = report_of(corpus.path_of("training"))
    opened = borrow_report(report, "#x=1000..2000&select=70")
    opened.page.keyboard.press("k")
    opened.page.keyboard.type("the <b>peak</b> & more")
    opened.page.keyboard.press("Enter")
    opened.set_view(x=[3000, 4000], select=-1)
    opened.until("location.hash.includes('marks.list') && location.hash.includes('x=3000')")
    again = borrow_report(report, opened.js("location.hash"), is_new=True)
    assert again.view()["select"] is None
    button = again.page.get_by_role("button", name="Bookmarks (1)")
    button.click()
    again.page.get_by_role("button", name="the <b>peak</b> & more", exact=True).click()
    again.settle()
    view = again.view()
    assert view["view"] == "timeline" and view["select"] == 70 and [round(x) for x in view["x"]] == [1000, 2000]
    assert "marks.list" in view["options"], "going somewhere does not lose them"
    again.page.get_by_role("button", name="Rename the <b>peak</b> & more").click()
    again.page.keyboard.type("début")
    again.page.keyboard.press("Enter")
    again.page.keyboard.type("second")
    again.page.keyboard.press("Enter")
    again.until("location.hash.includes('second')")
    third = borrow_report(report, again.js("location.hash"))
    third.page.keyboard.press("k")
    names = third.page.locator(".mark-go")
    assert names.all_inner_texts() == ["début", "second"]
    third.page.get_by_role("button", name="Remove début").click()
    assert names.all_inner_texts() == ["second"]
    third.page.keyboard.press("Escape")
    assert not third.page.locator(".popover.marks").is_visible()
    third.page.get_by_role("button", name="Bookmarks (1)").click()
    third.page.get_by_role("button", name="Remove second").click()
    third.until("!location.hash.includes('marks.list')")


def test_a_picture_of_the_timeline(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    from PIL import Image

    opened = borrow_report(report_of(corpus.path_of("training")), device_scale_factor=2)
    opened.settle()
    with opened.page.expect_download() as coming:
        opened.page.get_by_role("button", name="PNG").click()
    assert coming.value.suggested_filename.endswith(".png") and "training" in coming.value.suggested_filename
    image = Image.open(coming.value.path()).convert("RGB")
    box = opened.page.locator(".timeline").bounding_box()
    assert abs(image.width - 2 * box["width"]) <= 2
    rest = image.height - round(2 * box["height"])
    entries = opened.page.locator(".legend li").count()
    assert entries >= 3
    # A title, up to two lines of the verdict and one of what is shown; under the timeline the legend in columns.
    columns = max(1, int((box["width"] - 28) / 330))
    legend = 2 * (-(-entries // columns) * 18 + 10)
    caption = rest - legend
    assert 2 * 46 <= caption <= 2 * (4 * 18 + 10), "the timeline under its caption"
    swatches = opened.js("[...document.querySelectorAll('.legend .swatch')].map(s => s.style.backgroundColor)")
    for i, swatch in enumerate(swatches):
        place = (2 * (14 + 5 + i % columns * 330), image.height - legend + 2 * (18 * (i // columns) + 9))
        assert f"rgb{image.getpixel(place)}" == swatch, "the legend's colours"
    plot = opened.plot()
    left, top = 2 * (plot["left"] - box["x"]), caption + 2 * (plot["top"] - box["y"])
    inside = image.crop((int(left), int(top), int(left + 2 * plot["width"]), int(top + 2 * plot["height"])))
    assert len(inside.getcolors(1 << 24)) > 40, "allocations are drawn in many colours"
    # The same picture as on the screen, place by place, within a pixel.
    screen = opened.still().image
    differing = 0
    for x in range(40, int(plot["width"]) - 40, 60):
        for y in range(20, int(plot["height"]) - 20, 40):
            a = image.getpixel((int(left) + 2 * x, int(top) + 2 * y))
            x0, y0 = int(2 * (plot["left"] + x)), int(2 * (plot["top"] + y))
            near = [screen.getpixel((x0 + dx, y0 + dy)) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
            differing += min(max(abs(p - q) for p, q in zip(a, b, strict=True)) for b in near) > 24
    assert differing <= 4
    title = image.crop((0, 0, image.width, caption))
    assert len(title.getcolors(1 << 24)) > 4, "the caption is written"


SHAPES = [
    ("witnesses/evaluated_words.pickle.xz", "shape:*x768", "(inferred)"),
    (RECORDING.name, "dtype:float32 shape:*x1024", "float32"),
]


@pytest.mark.parametrize(("name", "query", "ending"), SHAPES)
def test_shapes_are_found_and_shown(
    name: str, query: str, ending: str, report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """The same allocations by the library, on the command line and on the page; details say what is inferred."""
    path = RECORDING.parent / name
    snapshot = snapreport.load(path)
    expected = snapshot.query(query, 0)
    assert len(expected) and (expected["shape"].str.extract(r"(\d+)$") == query.rpartition("x")[2]).all()
    [found] = cli.in_process("stats", path, "--query", query, "--json").json["snapshots"][0]["devices"]
    assert found["matches"]["count"] == len(expected)
    opened = borrow_report(report_of(path))
    assert opened.js("async query => (await snapreport.search(0, query)).ids", query) == expected["id"].to_list()
    first = expected.row(0, named=True)
    opened.set_view(select=first["id"])
    said = facts(opened)
    assert said["Tensor"].startswith(first["shape"]) and said["Tensor"].endswith(ending)
    assert said.get("Module", "").removesuffix(" (inferred)") == (first["module"] or "")
    assert snapreport.load(path, inference=False).query('shape:"*x768"', 0).is_empty()
