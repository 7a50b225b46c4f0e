"""Peaks at values that were not recorded, against programs that really ran there."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import pickle
import re
import shlex
from pathlib import Path
from typing import Any, cast

import cli
import corpus
import fake_torch
import msgspec
import numpy as np
import planted_trace
import pytest
from fake_torch import PROGRAMS, FakeTorch
from hypothesis import given
from hypothesis import strategies as st

import snapreport
from snapreport.contracts.fit import FitDocument
from snapreport.errors import SnapshotError
from snapreport.forecast.alignment import Operations, _shortest_edit
from snapreport.forecast.largest_value import largest_value
from snapreport.forecast.prediction import DeviceFit
from snapreport.forecast.reductions import scratch_bytes
from snapreport.forecast.size_laws import ADOPTED, UNKNOWN, size_laws
from snapreport.forecast.varying_steps import varying_line
from snapreport.report.fit_text import fit_text

SHARED = Path(os.environ.get("SNAPREPORT_FIT", corpus.ROOT.parent / "shared" / "fit"))
TORCH = FakeTorch(fake_torch.FOLDERS[-1]) if fake_torch.FOLDERS else None
MIB = 1 << 20


# Of a number's law: its sizes at any value are those that are foretold.
@given(
    values=st.lists(st.integers(1, 64), min_size=2, max_size=4, unique=True).map(sorted),
    laws=st.lists(
        st.one_of(
            st.tuples(st.integers(1, 10**9), st.just(0), st.just(0)),  # constant
            st.tuples(st.integers(0, 10**9), st.integers(1, 10**8), st.just(0)),  # linear
            st.tuples(st.just(0), st.just(0), st.integers(1, 10**5)),  # quadratic
        ),
        min_size=1,
        max_size=20,
    ),
    to=st.integers(1, 300),
)
def test_laws_of_exact_sizes(values: list[int], laws: list[tuple[int, int, int]], to: int) -> None:
    sizes = np.array([[a + b * v + c * v * v for a, b, c in laws] for v in values])
    found = size_laws(np.array(values, float), sizes, len(values) - 1)
    expected = np.array([a + b * to + c * to * to for a, b, c in laws])
    np.testing.assert_allclose(found.sizes(to), expected, rtol=1e-9, atol=512 * (to + 1) if len(values) > 2 else 1)


def test_a_product_of_width_and_width_and_number_has_no_constant_part() -> None:
    sizes = np.array([[100 * v * v + 7 * v] for v in (8, 16)])
    assert size_laws(np.array([8.0, 16.0]), sizes, 1).sizes(40)[0] == 100 * 1600 + 280


def test_small_squares_are_no_line() -> None:
    sizes = np.array([[4 * v * v] for v in (4, 8, 16)])
    assert size_laws(np.array([4.0, 8.0, 16.0]), sizes, 2).sizes(32)[0] == 4 * 32 * 32


def test_what_one_recording_alone_has_takes_the_law_of_its_size() -> None:
    sizes = np.array([[400, 800, -1, -1], [800, 800, 800, 33]])
    found = size_laws(np.array([4.0, 8.0]), np.array(sizes), 1)
    assert found.kind.tolist()[2:] == [ADOPTED, UNKNOWN]
    assert found.sizes(16)[3] == 33


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=40),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=40),
)
def test_alignment_has_the_fewest_insertions(ours: list[tuple[int, int]], theirs: list[tuple[int, int]]) -> None:
    """Against the table of all prefixes, which costs their product."""

    def fits(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return a[0] == b[0] and a[1] <= b[1] <= 4 * a[1]

    best = np.zeros((len(ours) + 1, len(theirs) + 1), int)
    for i, j in itertools.product(range(len(ours)), range(len(theirs))):
        longer = max(best[i][j + 1], best[i + 1][j])
        best[i + 1][j + 1] = max(longer, best[i][j] + 1) if fits(ours[i], theirs[j]) else longer
    pairs = _shortest_edit(operations(ours), operations(theirs), 4.0)
    assert pairs is not None
    here, there = pairs
    assert len(here) == best[-1][-1]
    assert (np.diff(here) > 0).all()
    assert (np.diff(there) > 0).all()
    assert all(fits(ours[a], theirs[b]) for a, b in zip(here, there, strict=True))


@given(st.integers(1, 1 << 17), st.integers(1, 1 << 14), st.sampled_from([58 * 1536, 108 * 2048, 148 * 2048]))
def test_scratch_memory_of_sums(rows: int, columns: int, threads: int) -> None:
    """Against ``setReduceConfig`` and ``global_memory_size`` of ATen/native/cuda/Reduce.cuh, line by line."""
    vector = next(n for n in (4, 2, 1) if columns % n == 0)
    most = 512 // vector
    dim0, dim1 = columns // vector, rows
    pow0, pow1 = (1 << (d.bit_length() - 1) if d < most else most for d in (dim0, dim1))
    width = min(pow0, 32)
    height = min(pow1, most // width)
    width = min(pow0, most // height)
    step_input, step_output, values = 1, width, rows
    is_split = values >= min(height * 16, 256)
    step_input, step_output = (height, step_output) if is_split else (step_input, step_output * height)
    values, grid = math.ceil(rows / step_input), math.ceil((columns // vector) / step_output)
    target, blocks = threads // (width * height), 1
    if is_split and values >= 256 and grid <= target:
        blocks = max(min(math.ceil(target / grid), math.ceil(values / 16)), math.ceil(values / 256))
    expected = (4 * columns * blocks * width * vector, 4 * grid) if blocks > 1 else (0, 0)
    found = scratch_bytes(np.array([rows]), np.array([columns]), threads)
    assert tuple(int(one[0]) for one in found) == expected


def operations(rows: list[tuple[int, int]]) -> Operations:
    alike, size = (np.array([row[at] for row in rows], np.int64) for at in (0, 1))
    return Operations(alike, size, np.ones(len(rows), bool), np.arange(len(rows)))


needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="no recordings at several sizes at ../shared/fit")


@functools.cache
def truth() -> dict[str, Any]:
    return json.loads((SHARED / "truth.json").read_text())


@needs_shared
@pytest.mark.parametrize("program", ["gpt", "conv", "ckpt", "amp"])
def test_peaks_of_strangers_programs(program: str) -> None:
    peaks = next(iter(truth().values()))[program]
    paths = [SHARED / f"{program}{value}.pickle.xz" for value in (4, 8)]
    found = snapreport.fit(paths, [4, 8], to=[float(value) for value in peaks])
    (device,) = found["devices"]
    assert device["aligned"]["reason"] is None
    for row in device["predictions"]:
        allocated, reserved = peaks[f"{row['value']:g}"]
        assert row["peak_allocated_bytes"] / MIB == pytest.approx(allocated, abs=0.001)
        assert row["peak_reserved_bytes"] / MIB == reserved


@needs_shared
@pytest.mark.parametrize("program", ["gpt", "ckpt", "amp"])
def test_the_largest_batch_that_ran(program: str) -> None:
    """On a card of 6 GiB, of which the context took 500 MiB; the next one failed."""
    ran = list(truth().values())[1][program]
    paths = [SHARED / f"{program}{value}.pickle.xz" for value in (4, 8)]
    found = snapreport.fit(paths, [4, 8], memory=6 * 1024 * MIB - 500 * MIB)
    assert [row["value"] for row in found["devices"][0]["largest"]] == [ran]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("sized")

    @functools.cache
    def run(program: str, value: int) -> tuple[Path, dict[str, Any]]:
        assert TORCH
        out = folder / f"{program}.{value}.pickle"
        done = TORCH.run(PROGRAMS / "sized.py", out, program, value, FAKE_GPU_GIB=24)
        assert done.code == 0, done.err
        return out, json.loads(done.out.splitlines()[-1])

    return run


# Program, the values that are recorded, those that are foretold.
EXACT = [
    ("autocast_batch", (4, 8), (16,)),
    ("scores_length", (64, 128), (256,)),  # quadratic
    ("gpt_width", (128, 256), (512,)),  # sums of linear and quadratic parts
    ("contrastive_batch", (4, 8), (24,)),
    ("unet_side", (32, 64), (128,)),
    ("cached_decoding_length", (64, 128), (256,)),
    ("vit_batch", (4, 8), (16, 32)),  # sums over rows that are split from 1,021 rows on
    ("gpt_batch", (2, 4), (24,)),
    ("experts_batch", (4, 8), (32,)),  # sums over as many rows as the device, an A100 by its workspace, has threads for
]


@pytest.mark.skipif(TORCH is None, reason=fake_torch.NONE)
@pytest.mark.parametrize(("program", "at", "to"), EXACT, ids=lambda v: v if type(v) is str else "")
def test_what_is_foretold_is_what_runs(recorded: Any, program: str, at: tuple[int, ...], to: tuple[int, ...]) -> None:
    found = snapreport.fit([recorded(program, value)[0] for value in at], at, to=to)
    rows = {row["value"]: row for row in found["devices"][0]["predictions"]}
    for value in (*at, *to):
        ran = recorded(program, value)[1]
        peaks = {"allocated": rows[value]["peak_allocated_bytes"], "reserved": rows[value]["peak_reserved_bytes"]}
        assert peaks == {key: ran[key] for key in peaks}, f"{program} at {value}"


@pytest.mark.skipif(TORCH is None, reason=fake_torch.NONE)
@pytest.mark.parametrize(
    ("program", "at", "reason"),
    [
        ("padded_batch", (4, 8), "most in forward sized_models.py:"),
        ("lstm_length", (64, 128), "too different"),
        ("routed_batch", (4, 8), "shapes depend on the data"),
        ("earlyexit_batch", (4, 8), "shapes depend on the data"),
    ],
)
def test_what_cannot_be_foretold_is_recognised(recorded: Any, program: str, at: tuple[int, ...], reason: str) -> None:
    (device,) = snapreport.fit([recorded(program, value)[0] for value in at], at)["devices"]
    assert reason in device["aligned"]["reason"]
    assert not device["predictions"]
    assert not device["largest"]


def test_equal_recordings_do_not_depend_on_the_number() -> None:
    path = corpus.path_of("small")
    (device,) = snapreport.fit([path, path], [4, 8], to=[100])["devices"]
    assert device["aligned"]["exact"]
    assert device["per_unit_bytes"] == 0
    assert len({row["peak_allocated_bytes"] for row in device["predictions"]}) == 1


def planted(folder: Path, batch: int, workspace: int = 0) -> Path:
    """Peaks of 400 + 2 * batch MiB in line 2 and 100 + 12 * batch in line 3, where ``workspace`` MiB come on top."""
    record = planted_trace.Recording()
    record.request(100)
    activation = record.request(2 * batch)
    record.drop(record.request(300, 2))
    scratch = [record.request(workspace, 4)] if workspace else []
    record.drop(record.request(10 * batch, 3))
    for address in (*scratch, activation):
        record.drop(address)
    path = folder / f"batch{batch}.pickle"
    path.write_bytes(pickle.dumps(record.snapshot(), 4))
    return path


def stepped(folder: Path, *steps: dict[int, list[int]]) -> Path:
    """Steps of requests: line → MiB of each."""
    record = planted_trace.Recording()
    for number, requests in enumerate(steps):
        begin = len(record.trace)
        addresses = [record.request(mib, line) for line, sizes in requests.items() for mib in sizes]
        for address in addresses:
            record.drop(address)
        for event in record.trace[begin:]:
            event["user_metadata"] = f"step {number}"
    path = folder / "steps.pickle"
    path.write_bytes(pickle.dumps(record.snapshot(), 4))
    return path


SAME = {2: [20, 20], 3: [10]}


@pytest.mark.parametrize(
    ("steps", "varying"),
    [
        ([{2: [500]}, SAME, SAME, SAME], None),  # the first step warms up
        ([SAME, SAME, {2: [20, 30], 3: [10]}], ("step train.py:2", 50, 60)),  # one of 20 became one of 30
        ([SAME, SAME, {2: [20], 3: [10]}], ("step train.py:2", 20, 50)),  # a layer was skipped
        ([SAME, SAME, {2: [20, 20], 4: [30], 3: [10]}, SAME], None),  # a validation now and then
        ([SAME, SAME, SAME, {2: [20]}], None),  # the trace ends within the last one
        ([SAME, SAME], None),
    ],
)
def test_steps_of_other_shapes(
    tmp_path: Path, steps: list[dict[int, list[int]]], varying: tuple[str, int, int] | None
) -> None:
    timeline = snapreport.load(stepped(tmp_path, *steps)).timeline(0)
    assert len(timeline.steps) == len(steps)
    found = varying_line(timeline)
    assert (found and (found.line, found.bytes // MIB, found.requested_bytes // MIB)) == varying


def test_where_the_peak_bends(tmp_path: Path) -> None:
    (device,) = snapreport.fit([planted(tmp_path, 4), planted(tmp_path, 8)], [4, 8], to=[64])["devices"]
    (bend,) = device["bends"]
    assert bend == {
        "value": 31, "per_unit_bytes_before": 2 * MIB, "per_unit_bytes_after": 12 * MIB,
        "line_before": "step train.py:2", "line_after": "step train.py:3",
    }  # fmt: skip


def test_near_the_recordings_an_answer_is_inferred_and_farther_away_an_estimate(tmp_path: Path) -> None:
    paths = [planted(tmp_path, 4), planted(tmp_path, 8)]
    (device,) = snapreport.fit(paths, [4, 8], to=[2, 12, 13, 64], memory=600 * MIB)["devices"]
    assert {row["value"]: row["confidence"] for row in device["predictions"]} == {
        2: "estimate", 4: "measured", 8: "measured", 12: "inferred", 13: "estimate", 64: "estimate",
    }  # fmt: skip
    (largest,) = device["largest"]
    assert largest["confidence"] == "estimate"
    assert largest["low_value"] == 12
    assert largest["value"] == largest["high_value"] > 12
    (device,) = snapreport.fit(paths, [4, 8], memory=420 * MIB)["devices"]
    assert device["largest"][0]["confidence"] == "inferred"


def test_other_requests_are_counted_and_each_recording_is_foretold_by_the_others(tmp_path: Path) -> None:
    exact = [planted(tmp_path, batch) for batch in (40, 60, 80)]
    (device,) = snapreport.fit(exact, [40, 60, 80])["devices"]
    assert not device["other_requests"]
    for row in device["left_out"]:
        assert row["peak_allocated_bytes"] == row["recorded_allocated_bytes"] == (100 + 12 * row["value"]) * MIB
        assert row["peak_reserved_bytes"] == row["recorded_reserved_bytes"]
    bent = [*exact[:2], planted(tmp_path, 80, workspace=50)]
    (device,) = snapreport.fit(bent, [40, 60, 80])["devices"]
    assert device["other_requests"] == [
        {"from_value": 60, "to_value": 80, "fewer": 0, "more": 1, "bytes": 50 * MIB},
    ]
    last = device["left_out"][-1]
    assert last["recorded_allocated_bytes"] - last["peak_allocated_bytes"] == 50 * MIB
    assert {row["confidence"] for row in device["predictions"]} == {"measured"}
    text = fit_text(msgspec.convert(snapreport.fit(bent, [40, 60, 80]), FitDocument))
    assert "Between batch 60 and 80 other kernels are taken: 1 more and 0 fewer requests, of up to 50.0 MiB" in text
    assert "batch 80 -4.5% allocated" in text


def test_a_size_that_would_shrink_follows_the_nearest_two_recordings() -> None:
    sizes = np.array([[40_000], [20_000], [30_000]])
    found = size_laws(np.array([4.0, 8.0, 16.0]), sizes, 2)
    assert found.sizes(24)[0] == 40_000
    assert not found.is_proven[0]


def test_a_part_of_a_sequence_may_be_shorter_by_one() -> None:
    """``logits[:, :-1]`` is a line that is 0 at 1, and no sum of a linear part and a square."""
    found = size_laws(np.array([64.0, 128.0]), np.array([[63 * 16_000], [127 * 16_000]]), 1)
    assert found.sizes(384)[0] == 383 * 16_000
    assert found.is_proven[0]


def test_all_samples_and_a_few_more_for_each_are_proven_by_whole_bytes() -> None:
    values = np.array([600.0, 1200.0])
    found = size_laws(values, np.array([[4 * 600 * 605, 4 * 600 * 605], [4 * 1200 * 1205, 4 * 1200 * 1205 + 600]]), 1)
    assert found.sizes(2400)[0] == 4 * 2400 * 2405
    assert found.is_proven.tolist() == [True, False]


class Runs:
    """A program that runs at some values only."""

    is_estimate = False
    values = np.array([4.0, 8.0])

    def __init__(self, *ranges: range) -> None:
        self.runs = {value for some in ranges for value in some}

    def peak_allocated(self, value: float, **_: object) -> int:
        return int(value)

    def retries(self, value: float, memory: int, **_: object) -> int | None:
        return 0 if value in self.runs else None


@pytest.mark.parametrize(
    ("ranges", "largest"),
    [([range(40)], 39), ([range(22), range(23, 29), range(33, 41)], 21), ([range(30, 40)], 39), ([], 0)],
)
def test_the_largest_value_runs_itself_and_so_do_those_below(ranges: list[range], largest: int) -> None:
    found = largest_value(cast(DeviceFit, Runs(*ranges)), 60)
    assert found.value == largest
    assert (found.retries is None) == (not largest)


def test_the_commands_that_answer_the_fourteen_questions_run(tmp_path: Path) -> None:
    table = (corpus.ROOT / "docs" / "fit.md").read_text().split("## Questions before a run")[1]
    answers = re.findall(r"^\| [^|]+\? \| (.+) \|$", table, re.MULTILINE)
    assert len(answers) == 14
    commands = {command for answer in answers for command in re.findall(r"`snapreport ([^`]* [^`]*)`", answer)}
    assert {command.split()[0] for command in commands} == {"stats", "fit", "whatif", "diff"}
    snapshots = {name: str(corpus.path_of("small")) for name in ("SNAP", "A", "B")}
    for command in sorted(commands):
        done = cli.in_process(*(snapshots.get(word, word) for word in shlex.split(command)))
        assert (done.code, done.err) == (0, ""), command
        assert done.out, command


def test_refusals() -> None:
    path = corpus.path_of("small")
    for at in ([4], [4, 4], [4, -8]):
        with pytest.raises(SnapshotError):
            snapreport.fit([path, path], at)
    for arguments in (["--at", "4"], ["--at", "a,b"], ["--at", "0,4"], ["--at", "4,4"], []):
        done = cli.in_process("fit", path, path, *arguments)
        assert done.code == 2
        assert len(done.err.strip().splitlines()) == 1


def test_out_of_memory_is_no_base() -> None:
    path = corpus.path_of("oom")
    (device,) = snapreport.fit([path, path], [4, 8])["devices"]
    assert "ran out of memory" in device["aligned"]["reason"]
