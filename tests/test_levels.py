"""Levels of detail: the peak of every column is preserved, and the bytes of every column add up to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import oracle
import pytest
import strategies
import tile_oracle
from decoder import DecodedDevice, Report
from hypothesis import given
from hypothesis import strategies as st

from snapreport.mesh import levels, stacking


@pytest.fixture
def small_raster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight columns and rows: short traces then have several levels, and groups of several allocations."""
    for module in (levels, tile_oracle):
        monkeypatch.setattr(module, "COLUMNS", 8)
        monkeypatch.setattr(module, "ROWS", 8)


def lives_of(device: oracle.Device) -> tile_oracle.Lives:
    after = len(device.events) + 1
    numbers = {stack: i for i, stack in enumerate(sorted({a.stack for a in device.allocations}))}
    return tile_oracle.Lives(
        start=[a.alloc_event + 1 for a in device.allocations],
        end=[after if a.free_event < 0 else a.free_event + 1 for a in device.allocations],
        size=[a.size for a in device.allocations],
        stack=[numbers[a.stack] for a in device.allocations],
        allocated=device.allocated,
    )


def as_lifetimes(lives: tile_oracle.Lives) -> stacking.Lifetimes:
    return stacking.Lifetimes(
        *(
            np.array(column, dtype=np.int64)
            for column in (lives.start, lives.end, lives.size, lives.stack, lives.allocated)
        )
    )


def as_rows(spans: Any) -> list[tile_oracle.Span]:
    columns = (spans.first, spans.length, spans.rep, spans.stack, spans.count, spans.bytes)
    return [tile_oracle.Span(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


def assert_every_tile(lives: tile_oracle.Lives) -> None:
    lifetimes = as_lifetimes(lives)
    shape = levels.pyramid(lifetimes.allocated)
    assert shape.depth == tile_oracle.depth(len(lives.allocated))
    for level in range(shape.depth + 1):
        for tile in range(shape.tiles(level)):
            made = levels.lay_out(lifetimes, shape, level, tile)
            assert made.samples.tolist() == tile_oracle.samples(lives.allocated, level, tile)
            assert as_rows(made.spans) == tile_oracle.tile_spans(lives, level, tile)


@pytest.mark.usefixtures("small_raster")
@given(strategies.one_device)
def test_spans_equal_the_slow_ones(snapshot: dict[str, Any]) -> None:
    for device in oracle.replay(snapshot).values():
        assert_every_tile(lives_of(device))


@st.composite
def crowds(draw: st.DrawFn) -> tile_oracle.Lives:
    """Many small allocations beside few large ones, with few stacks: groups form from these."""
    n = draw(st.integers(1, 70))
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(-5, n - 1), st.integers(1, 40), st.sampled_from([0, 1, 2, 3, 40, 500]), st.integers(0, 2)
            ),
            min_size=1,
            max_size=60,
        )
    )
    rows.sort(key=lambda row: max(row[0], -1))
    start = [max(s, -1) + 1 for s, *_ in rows]
    end = [min(s + length, n + 1) for s, (_, length, *_) in zip(start, rows, strict=True)]
    size, stack = [r[2] for r in rows], [r[3] for r in rows]
    allocated = [sum(z for s, e, z in zip(start, end, size, strict=True) if s <= at < e) for at in range(n + 1)]
    return tile_oracle.Lives(start, end, size, stack, allocated)


@pytest.mark.usefixtures("small_raster")
@given(crowds())
def test_crowds_of_small_ones(lives: tile_oracle.Lives) -> None:
    assert_every_tile(lives)


@given(crowds())
def test_offsets_at_birth(lives: tile_oracle.Lives) -> None:
    """Computed without a replay, yet equal to stacking at that position."""
    lifetimes = as_lifetimes(lives)
    born = stacking.birth_offsets(lifetimes)
    for i, (start, end) in enumerate(zip(lives.start, lives.end, strict=True)):
        # No two are born at one event; those from before the trace have position 0.
        if end > start and (start == 0 or start not in lives.start[i + 1 :]):
            ids, offsets = stacking.offsets_at(lifetimes, start)
            assert born[i] == offsets[ids.tolist().index(i)]


def assert_tile(device: DecodedDevice, level: int, tile: int, spans: dict[str, np.ndarray]) -> None:
    """A stored tile against the exact columns: samples, sums, tops, and every value of its spans."""
    allocated = device.allocated()
    width = 1 << (tile_oracle.depth(len(allocated)) - level)
    begin = tile * tile_oracle.COLUMNS * width
    window = allocated[begin : begin + tile_oracle.COLUMNS * width]
    tops = np.array([window[at : at + width].max() for at in range(0, len(window), width)])
    steps = np.zeros(len(tops) + 1, dtype=np.int64)
    np.add.at(steps, spans["first"], spans["bytes"])
    np.subtract.at(steps, spans["first"] + spans["length"], spans["bytes"])
    assert np.cumsum(steps)[:-1].tolist() == tops.tolist(), "a column's spans sum to its true maximum"
    assert (spans["length"] > 0).all() and (spans["count"] > 0).all()
    alone = spans["count"] == 1
    assert (device["size"][spans["rep"][alone]] == spans["bytes"][alone]).all()
    assert (device["size"][spans["rep"]] <= spans["bytes"]).all()
    assert (device["stack"][spans["rep"]] == spans["stack"]).all()
    assert (device["category"][spans["rep"]] == spans["category"]).all()


def stored(report: Report) -> Iterator[tuple[DecodedDevice, int, int, dict[str, np.ndarray]]]:
    for index, info in enumerate(report.manifest["devices"]):
        tiles, device = report.tiles(index), report.device(index)
        assert sorted({level for level, _ in tiles}) == info["levels"]
        yield from ((device, level, tile, spans) for (level, tile), spans in tiles.items())


@pytest.mark.parametrize("name", ["overlap", "multi-gpu", "truncated"])
def test_stored_tiles(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All levels of the smallest samples that store tiles at a lowered threshold: one that contradicts itself, one of
    several devices, and one with allocations from before the trace.
    """
    import snapreport

    monkeypatch.setattr(levels, "STORED_ABOVE", 1024)
    out = tmp_path / "tiles.html"
    snapreport.write_report([corpus.loaded(corpus.path_of(name))], out)
    report = Report(out.read_text(encoding="utf-8"))
    for device, level, tile, spans in stored(report):
        assert_tile(device, level, tile, spans)
    assert all(info["levels"] for info in report.manifest["devices"]), "nothing was stored, nothing was tested"


def test_stored_tiles_of_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import snapreport

    monkeypatch.setattr(levels, "STORED_ABOVE", 1)
    out = tmp_path / "several.html"
    snapreport.write_report(
        [snapreport.load(path) for path in [corpus.path_of("small"), corpus.path_of("multi-gpu")]], out
    )
    for device, level, tile, spans in stored(Report(out.read_text(encoding="utf-8"))):
        assert_tile(device, level, tile, spans)


def test_stored_tiles_equal_the_slow_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coarsest level, merged by taller rows than the page's own: the same spans, row by row. The threshold is
    lowered: the smallest sample that then stores a tile says the same as a large one.
    """
    import snapreport

    monkeypatch.setattr(levels, "STORED_ABOVE", 1024)
    path, out = corpus.path_of("overlap"), tmp_path / "tiles.html"
    snapreport.write_report([corpus.loaded(path)], out)
    report = Report(out.read_text(encoding="utf-8"))
    info, tiles = report.manifest["devices"][0], report.tiles(0)
    assert tiles, "nothing was stored, nothing was tested"
    monkeypatch.setattr(tile_oracle, "ROWS", info.get("stored_rows") or tile_oracle.ROWS)
    lives = lives_of(corpus.replayed(path)[0])
    lives.stack = report.device(0)["stack"].tolist()
    for (level, tile), spans in tiles.items():
        names = ("first", "length", "rep", "stack", "count", "bytes")
        rows = [tile_oracle.Span(*row) for row in zip(*(spans[name].tolist() for name in names), strict=True)]
        assert rows == tile_oracle.tile_spans(lives, level, tile)


def test_small_snapshots_store_no_tiles(report_of: Callable[..., Path]) -> None:
    report = Report(report_of(corpus.path_of("small")).read_text(encoding="utf-8"))
    for info in report.manifest["devices"]:
        assert info["events"] > levels.STORED_ABOVE or not info["levels"]
