"""Layers counted in stack traces: what is called, by the traces of a program written here, and nothing in doubt."""

from __future__ import annotations

import pickle
from pathlib import Path

import polars as pl
import pytest

import snapreport
from snapreport.report.group_text import groups_text
from snapreport.report.stats_text import stats_text
from snapreport.timeline.allocation_groups import group_sums

CALL = {"filename": "/lib/torch/nn/modules/module.py", "name": "_call_impl", "line": 1}
CONTAINER = "/lib/torch/nn/modules/container.py"


def paths(folder: Path, *chains: str, decorated: bool = False) -> list[str]:
    """Of allocations with these chains of ``forward`` calls, outermost first: "net:9 block:3" is called by net:9.

    decorated: the outermost is called by a decorator.
    """
    trace = []
    for number, chain in enumerate(chains):
        frames = [{"filename": "/app/train.py", "name": "main", "line": 1}]
        for at, part in enumerate(chain.split()):
            file, _, line = part.partition(":")
            file = CONTAINER if file == "container" else f"/app/{file}.py"
            caller = {**CALL, "filename": "/app/wraps.py"} if decorated and not at else CALL
            frames += [caller, {"filename": file, "name": "forward", "line": int(line)}]
        trace.append(
            {"action": "alloc", "addr": 512 * number, "size": 512, "stream": 0, "time_us": number,
             "frames": frames[::-1] if chain else []}
        )  # fmt: skip
    path = folder / "layers.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    timeline = snapreport.load(path).timeline(0)
    found = timeline.allocations["module"].to_list()
    named = group_sums(timeline, "module").filter(pl.col("name").is_not_null())
    assert set(named["name"]) == {one for one in found if one}
    return [one or "" for one in found]


LAYER = ("net:9 block:3", "net:9 block:4 linear:1", "net:9 block:5")


def numbered(layer: int) -> list[str]:
    inside = f"net:9.{layer}.block"
    return [f"{inside}:3", f"{inside}:4.linear:1", f"{inside}:5"]


def test_calls_of_one_line_are_counted(tmp_path: Path) -> None:
    found = paths(tmp_path, "net:8 table:2", *LAYER * 3, "net:10", "", "net:8 table:2", *LAYER * 3, "net:10")
    one_pass = ["net:8.table:2", *numbered(0), *numbered(1), *numbered(2), "net:10"]
    assert found == [*one_pass, "", *one_pass]


def test_layers_of_one_place_are_one_row_of_text(tmp_path: Path) -> None:
    paths(tmp_path, "net:8 table:2", *LAYER * 3, "")
    text = groups_text(snapreport.load(tmp_path / "layers.pickle"), "module", None)
    assert "by line of forward, layers inferred" in text
    place = "net:9.0–2.block"
    for name in ("net:8.table:2", f"{place}:3", f"{place}:4.linear:1", f"{place}:5", "no module"):
        assert f"\n{name}  " in text
    assert text.count("net:9") == 3


def test_a_loop_over_several_lines(tmp_path: Path) -> None:
    """``for attn, mlp in layers``, between other lines of the forward that a model's line calls."""
    parts = ("net:9 stack:4 attn:1", "net:9 stack:5 mlp:1") * 2
    found = paths(tmp_path, "net:9 stack:3", *parts, "net:9 stack:7")
    assert found[0] == "net:9.stack:3"
    assert found[-1] == "net:9.stack:7"
    assert found[1:5] == [f"net:9.stack:{line}" for line in ("4.0.attn:1", "5.0.mlp:1", "4.1.attn:1", "5.1.mlp:1")]


def test_a_decorated_forward_shows_the_line_that_calls_layers(tmp_path: Path) -> None:
    assert paths(tmp_path, *LAYER * 2, decorated=True) == [*numbered(0), *numbered(1)]


def test_a_loop_that_the_end_of_the_trace_cuts_off(tmp_path: Path) -> None:
    assert paths(tmp_path, "net:8 table:2", *LAYER * 2, LAYER[0])[1:] == [*numbered(0), *numbered(1), numbered(2)[0]]


def test_a_loop_among_the_lines_of_a_model(tmp_path: Path) -> None:
    """``for a, b in layers`` in the model that the program calls, twice."""
    one = ("net:2 table:1", *("net:4 a:1", "net:5 b:1", "net:6") * 3, "net:8")
    inside = [path for n in range(3) for path in (f"net:4.{n}.a:1", f"net:5.{n}.b:1", f"net:6.{n}")]
    assert paths(tmp_path, *one * 2) == ["net:2.table:1", *inside, "net:8"] * 2


def test_a_pass_that_was_interrupted_gets_no_numbers_after_that(tmp_path: Path) -> None:
    """They would begin with 0 again."""
    found = paths(tmp_path, "net:8 table:2", *LAYER * 4, "", *LAYER * 3, "net:10")
    assert found[1:4] == numbered(0)
    assert found[14:] == ["net:9.block:3", "net:9.block:4.linear:1", "net:9.block:5"] * 3 + ["net:10"]


def test_a_line_that_calls_and_allocates_in_turns(tmp_path: Path) -> None:
    """``x = silu(layer(x))`` over four layers; an expression may have three such parts."""
    four = paths(tmp_path, "net:2", *("net:9 conv:1", "net:9") * 4)
    assert four[1:3] == ["net:9.0.conv:1", "net:9.0"]
    assert four[7:] == ["net:9.3.conv:1", "net:9.3"]
    assert paths(tmp_path, "net:2", *("net:9 conv:1", "net:9") * 3)[1:] == ["net:9.conv:1", "net:9"] * 3


@pytest.mark.parametrize(
    "chains",
    [
        ("block:3", "block:5", "block:3", "block:5"),  # the program calls a model twice
        ("net:9 linear:1",) * 3,  # one operator may allocate three times
        (*LAYER * 2, LAYER[0], "net:10"),  # the third has less
        (*LAYER, LAYER[1], *LAYER),  # no order
        ("net:9 block:3", "net:9 block:5", "net:9 block:3", "net:9 other:5"),
        (" ".join(["net:9"] * 2000), "net:9 net:8"),  # a hostile file
        ("net:9 container:1 one:1", "net:9 container:1 two:1") * 2,  # four modules of a container
    ],
)
def test_in_doubt_nothing_is_said(tmp_path: Path, chains: tuple[str, ...]) -> None:
    assert paths(tmp_path, *chains) == [chain.replace(" ", ".") for chain in chains]


def test_inferred_paths_are_like_recorded_ones(tmp_path: Path) -> None:
    """In queries, in the tree of modules and in JSON, but not where inference is off, and said to be inferred."""
    paths(tmp_path, "net:8 table:2", *LAYER * 3, "")
    snapshot = snapreport.load(tmp_path / "layers.pickle")
    assert len(snapshot.query("module:net:9.1")) == len(snapshot.query("module:*.block:4")) == 3
    assert snapshot.query("module:net:9.*.block:3")["id"].to_list() == [1, 4, 7]
    assert snapshot.allocations(0)["module_source"].to_list() == ["inferred"] * 10 + [None]
    rows = {row["module"]: row for row in snapshot.modules(0).rows(named=True)}
    assert list(rows)[:5] == ["net:8", "net:8.table:2", "net:9", "net:9.0", "net:9.0.block:3"]
    assert (rows["net:9"]["peak_bytes"], rows["net:9.2"]["peak_bytes"], rows["net:9.2"]["like"]) == (
        4608,
        1536,
        "net:9.0",
    )
    (device,) = snapshot.stats()["devices"]
    assert (device["modules_source"], len(device["modules"])) == ("inferred", len(rows))
    title = "Lines of forward at the peak of cuda:0, layers inferred"
    assert title in stats_text(snapshot)
    assert "0–2 × 3" in stats_text(snapshot).partition(title)[2]
    without = snapreport.load(tmp_path / "layers.pickle", inference=False)
    assert without.allocations(0).select("module", "module_source").null_count().row(0) == (11, 11)
    assert "modules_source" not in without.stats()["devices"][0]
