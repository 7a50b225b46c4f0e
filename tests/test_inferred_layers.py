"""Layers counted in stack traces: what is called, by the traces of a program written here, and nothing in doubt."""

from __future__ import annotations

import pickle
from pathlib import Path

import polars as pl
import pytest

import snapreport
from snapreport.report.group_text import groups_text
from snapreport.timeline.allocation_groups import group_sums
from snapreport.timeline.inferred_layers import layer_paths

CALL = {"filename": "/lib/torch/nn/modules/module.py", "name": "_call_impl", "line": 1}
CONTAINER = "/lib/torch/nn/modules/container.py"


def paths(folder: Path, *chains: str, decorated: bool = False) -> list[str]:
    """Of allocations with these chains of ``forward`` calls, outermost first: "net:9 block:3" is called by net.py:9.

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
    found = layer_paths(timeline.recording, timeline.allocations).to_list()
    named = group_sums(timeline, "module").filter(pl.col("name").is_not_null())
    assert set(named["name"]) == {one for one in found if one}
    return found


LAYER = ("net:9 block:3", "net:9 block:4 linear:1", "net:9 block:5")


def numbered(layer: int) -> list[str]:
    inside = f"net.py:9 [{layer}] › block.py"
    return [f"{inside}:3", f"{inside}:4 › linear.py:1", f"{inside}:5"]


def test_calls_of_one_line_are_counted(tmp_path: Path) -> None:
    found = paths(tmp_path, "net:8 table:2", *LAYER * 3, "net:10", "", "net:8 table:2", *LAYER * 3, "net:10")
    one_pass = ["net.py:8 › table.py:2", *numbered(0), *numbered(1), *numbered(2), "net.py:10"]
    assert found == [*one_pass, "", *one_pass]


def test_layers_of_one_place_are_one_row_of_text(tmp_path: Path) -> None:
    paths(tmp_path, "net:8 table:2", *LAYER * 3, "")
    text = groups_text(snapreport.load(tmp_path / "layers.pickle"), "module", None)
    assert "by module, layers inferred" in text
    place = "net.py:9 [0–2] › block.py"
    for name in ("net.py:8 › table.py:2", f"{place}:3", f"{place}:4 › linear.py:1", f"{place}:5", "no module"):
        assert f"\n{name}  " in text
    assert text.count("net.py:9") == 3


def test_a_loop_over_several_lines(tmp_path: Path) -> None:
    """``for attn, mlp in layers``, between other lines of the forward that a model's line calls."""
    parts = ("net:9 stack:4 attn:1", "net:9 stack:5 mlp:1") * 2
    found = paths(tmp_path, "net:9 stack:3", *parts, "net:9 stack:7")
    assert found[0] == "net.py:9 › stack.py:3"
    assert found[-1] == "net.py:9 › stack.py:7"
    assert [path.replace("[1]", "[0]") for path in found[3:5]] == found[1:3]
    assert ["[0]" in path for path in found[1:5]] == [True, True, False, False]


def test_a_decorated_forward_shows_the_line_that_calls_layers(tmp_path: Path) -> None:
    assert paths(tmp_path, *LAYER * 2, decorated=True) == [*numbered(0), *numbered(1)]


@pytest.mark.parametrize(
    "chains",
    [
        ("block:3", "block:5", "block:3", "block:5"),  # the program calls a model twice
        ("net:9 linear:1",) * 3,  # one operator may allocate three times
        (*LAYER * 2, LAYER[0]),  # the third has less
        (*LAYER, LAYER[1], *LAYER),  # no order
        ("net:9 block:3", "net:9 block:5", "net:9 block:3", "net:9 other:5"),
        (" ".join(["net:9"] * 2000), "net:9 net:8"),  # a hostile file
        ("net:9 container:1 one:1", "net:9 container:1 two:1") * 2,  # four modules of a container
    ],
)
def test_in_doubt_nothing_is_said(tmp_path: Path, chains: tuple[str, ...]) -> None:
    names = {"container:1": "container.py:1"}
    plain = [" › ".join(names.get(part, part.replace(":", ".py:")) for part in chain.split()) for chain in chains]
    assert paths(tmp_path, *chains) == plain
