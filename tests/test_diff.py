"""Two snapshots compared: stacks keep their identity when lines move, sums are exact, and every change is found."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import corpus
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import frames_text, path_of, planted, rewritten

import snapreport
from snapreport.contracts import plain
from snapreport.findings.diff import diff
from snapreport.findings.diff_document import diff_document
from snapreport.findings.stack_matching import stack_matching
from snapreport.reading.recording import Recording
from snapreport.report.comparison import Comparison
from snapreport.report.diff_text import diff_text


def recording_of(stacks: list[list[tuple[str, str, int]]]) -> Recording:
    """A recording with the given stacks (file, function, line; innermost first); stack 0 is the empty one."""
    distinct = list(dict.fromkeys(frame for stack in stacks for frame in stack))
    frames = pl.DataFrame(
        {"filename": [f[0] for f in distinct], "line": [f[2] for f in distinct], "name": [f[1] for f in distinct]},
        schema={"filename": pl.String, "line": pl.Int64, "name": pl.String},
    )
    lengths = [0, *(len(stack) for stack in stacks)]
    flat = [distinct.index(frame) for stack in stacks for frame in stack]
    return Recording("", "", 0, {}, frames, np.cumsum([0, *lengths]), np.array(flat, np.int64), pl.DataFrame(), {})


def test_a_snapshot_compared_with_itself_is_the_same(snapshot_path: Path) -> None:
    snapshot = corpus.loaded(snapshot_path)
    result = diff(snapshot, snapshot)
    assert result.matching.count == result.matching.both == len(snapshot.recording.stack_offsets) - 1
    assert (result.matching.before == result.matching.after).all()
    for device in result.devices:
        for frame in (*device.stacks, *device.categories, *device.functions):
            assert set(frame["change"]) <= {"same"}
            assert not (frame["delta"] != 0).any()
        assert (device.segments["before"] == device.segments["after"]).all()
        assert device.segments["only_before"].sum() == 0


def test_moved_lines_change_nothing() -> None:
    """A comment was added above: every line of one file lies seven further down."""

    def move(frame: dict) -> None:
        if frame["filename"].endswith("model.py"):
            frame["line"] += 7

    before = planted("training", steps=2)
    after = snapreport.load(rewritten(path_of("training", steps=2), "moved.pickle", move))
    result = diff(before, after)
    assert result.matching.both == result.matching.count
    for device in result.devices:
        assert [set(frame["change"]) for frame in device.stacks] == [{"same"}] * len(device.moments)


def test_a_moved_checkout_changes_nothing() -> None:
    def move(frame: dict) -> None:
        name = frame["filename"]
        if name.endswith(".py") and "site-packages" not in name and name.startswith("/"):
            frame["filename"] = "/somewhere/else/entirely" + name

    before = planted("training", steps=2)
    result = diff(before, snapreport.load(rewritten(path_of("training", steps=2), "elsewhere.pickle", move)))
    assert result.matching.both == result.matching.count


@pytest.mark.parametrize("new", ["nets/model.py", "transformer.py"])
def test_a_moved_or_renamed_file_changes_nothing_and_is_named(new: str) -> None:
    def move(frame: dict) -> None:
        if frame["filename"].endswith("/model.py"):
            frame["filename"] = frame["filename"].removesuffix("model.py") + new
            frame["line"] += 3

    before = planted("training", steps=2)
    result = diff(before, snapreport.load(rewritten(path_of("training", steps=2), "renamed.pickle", move)))
    assert result.matching.both == result.matching.count
    ((old, now),) = result.matching.renamed.items()
    assert old.endswith("model.py") and now.endswith(new)
    assert f"moved or renamed: {old} → {now}" in diff_text(result)
    assert plain(diff_document(result))["renamed"] == [{"before": old, "after": now}]
    assert Comparison(result).headline[-1] == f"{old} was moved or renamed to {now}."
    assert [set(table["change"]) for table in result.devices[0].functions] == [{"same"}] * len(
        result.devices[0].moments
    )


def test_another_file_with_functions_of_the_same_name_is_not_a_renamed_one() -> None:
    """Both models have a forward, but it calls other layers."""
    train = ("/w/train.py", "main", 9)
    layers = "/x/site-packages/torch/nn"
    before, after = (
        [[(f"{layers}/{name}.py", "forward", 1), (f"/w/{file}.py", "forward", 5), train] for name in names]
        for file, names in (("resnet", ("conv", "pool", "norm")), ("vit", ("linear", "attention", "norm")))
    )
    result = stack_matching(recording_of(before), recording_of(after))
    assert not result.renamed and result.both == 1  # the empty stack


def test_a_planted_regression_is_found_first_with_its_bytes() -> None:
    before, after = planted("training", steps=2), planted("training", steps=2, regression=1.1)
    result = diff(before, after)
    device = result.devices[0]
    grown = device.stacks[0].filter(pl.col("change") == "grew")
    assert len(grown)
    stack = grown["stack_after"][0]
    assert "model.py:92\n" in frames_text(after, stack)  # where the generator's feed-forward part is
    # Sums: every byte is in one row of each table.
    for moment, *tables in zip(device.moments, device.stacks, device.categories, device.functions, strict=True):
        for table in tables:
            assert table["bytes_before"].sum() == moment.before_bytes
            assert table["bytes_after"].sum() == moment.after_bytes
            assert (table["bytes_after"] - table["bytes_before"] == table["delta"]).all()


def test_rows_equal_counting_in_plain_python() -> None:
    before, after = planted("small"), planted("small", regression=1.5, seed=3)
    result = diff(before, after)
    device = result.devices[0]
    for number, moment in enumerate(device.moments[:2]):
        sides = []
        for snapshot, event, numbers in (
            (before, moment.before_event, result.matching.before),
            (after, moment.after_event, result.matching.after),
        ):
            counted: Counter[int] = Counter()
            for stack, size, alloc, free in (
                snapshot.allocations(0).select("stack", "size", "alloc_event", "free_event").rows()
            ):
                if alloc <= event and (free < 0 or free > event):
                    counted[int(numbers[stack])] += size
            sides.append(counted)
        rows = device.stacks[number]
        assert dict(rows.filter(pl.col("count_before") > 0).select("identity", "bytes_before").rows()) == dict(sides[0])
        assert dict(rows.filter(pl.col("count_after") > 0).select("identity", "bytes_after").rows()) == dict(sides[1])
        for identity, ours, theirs, change in rows.select("identity", "count_before", "count_after", "change").rows():
            assert (change == "appeared") == (ours == 0), identity
            assert (change == "vanished") == (theirs == 0 and ours > 0), identity


def test_steps_are_compared_at_their_own_peaks() -> None:
    before, after = planted("training", steps=3), planted("training", steps=3, regression=1.2)
    device = diff(before, after).devices[0]
    named = [moment.name for moment in device.moments]
    assert named[:2] == ["peak", "end"]
    assert len(named) >= 4
    for moment in device.moments[2:]:
        assert moment.before_bytes <= device.before.peak_bytes


FILES = st.sampled_from(["/code/train.py", "/code/lib/model.py", "/x/site-packages/torch/nn/module.py"])
FRAMES = st.tuples(FILES, st.sampled_from(["forward", "attend", "loss"]), st.integers(1, 40))


@given(st.lists(st.lists(FRAMES, min_size=1, max_size=3), min_size=1, max_size=8, unique_by=tuple), st.integers(0, 30))
def test_matching_is_one_to_one_and_survives_a_shift(stacks: list, shift: int) -> None:
    moved = [[(file, name, line + shift) for file, name, line in stack] for stack in stacks]
    before, after = recording_of(stacks), recording_of(moved)
    result = stack_matching(before, after)
    assert len(set(result.before.tolist())) == len(stacks) + 1
    assert len(set(result.after.tolist())) == len(stacks) + 1
    assert result.count == result.both == len(stacks) + 1

    def shapes(recording: Recording, numbers: np.ndarray) -> dict[int, list]:
        return {
            int(n): recording.frames[recording.stack(s)].select("filename", "name").rows()
            for s, n in enumerate(numbers)
        }

    assert shapes(before, result.before) == shapes(after, result.after)
    assert (
        result.before == result.after
    ).all()  # recorded in the same order, so that the same stack has the same number


def test_of_several_stacks_of_one_shape_the_nearest_lines_are_taken() -> None:
    before = recording_of([[("/code/a.py", "f", 10)], [("/code/a.py", "f", 50)]])
    after = recording_of([[("/code/a.py", "f", 53)], [("/code/a.py", "f", 90)], [("/code/a.py", "f", 12)]])
    result = stack_matching(before, after)
    assert result.before[1] == result.after[3]
    assert result.before[2] == result.after[1]
    assert result.both == 3
    assert result.count == 4


def test_json_holds_what_the_tables_hold() -> None:
    before, after = planted("small"), planted("small", regression=1.5)
    document = plain(diff_document(diff(before, after)))
    assert document["schema"] == "snapreport-diff/1"
    device = document["devices"][0]
    assert device["moments"][0]["before_bytes"] == before.timeline(0).peak_bytes
    assert device["moments"][0]["delta"] == after.timeline(0).peak_bytes - before.timeline(0).peak_bytes
    assert sum(row["bytes_after"] for row in device["moments"][0]["categories"]) == after.timeline(0).peak_bytes


@pytest.mark.parametrize("other", ["tiny_expandable_2gpu.pickle", "torch20_history_blocks.pickle"])
def test_devices_of_one_side_alone_are_told(other: str) -> None:
    if other not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    result = diff(planted("multi-gpu", steps=2), snapreport.load(corpus.path_of(other)))
    assert {d.before.device for d in result.devices} | set(result.only_before) >= {0, 1, 2, 3}
    pickle.dumps(diff_document(result))
