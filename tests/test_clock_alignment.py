"""The clock of a profiler's trace is the snapshot's, whatever happened to the time of day between their readings."""

from __future__ import annotations

import json
import random
from pathlib import Path

import cli
import numpy as np
import polars as pl
import pytest
from fake_torch import PROGRAMS, FakeTorch

from snapreport.reading.clock_alignment import FARTHEST_NS, align

START = 1_790_857_026_000_000_000  # ns since 1970


def run_of_steps(steps: int, seed: int, again: int = 1, waits: float = 0.02) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Events of a snapshot (µs) and the allocations of a trace (ns), 0.2 to 1 µs later; in a share of times the thread
    ``waits`` between both records. All steps allocate the same addresses, each again ``again`` allocations later, and
    take some 5 ms each.
    """
    chance = random.Random(seed)
    now, events, allocations = START, [], []
    for _ in range(steps):
        for number in range(100):
            now += chance.randrange(5_000, 80_000)
            address = (number % again + number // (2 * again) * again) << 20
            events.append((address, now // 1000))
            later = chance.randrange(200, 1000) + (chance.randrange(20_000, 90_000) if chance.random() < waits else 0)
            allocations.append((address, now + later))
            now += later
    frame = pl.DataFrame(events, {"addr": pl.UInt64, "time_us": pl.Int64}, orient="row")
    return frame.with_columns(action=pl.lit("alloc")), pl.DataFrame(
        allocations, {"addr": pl.UInt64, "time": pl.Int64}, orient="row"
    )


@pytest.mark.parametrize("shift", [0, 93_000, -7_000_000, 30_000_000, -49_000_000])
@pytest.mark.parametrize("seed", range(3))
def test_any_shift_is_found(shift: int, seed: int) -> None:
    """Also where the trace has only some of the steps; waits of the thread, of which there are 2%, are no error."""
    events, allocations = run_of_steps(40, seed)
    for part in (allocations, allocations[1200:1700], allocations[30:40]):
        found = align([events], part.with_columns(pl.col("time") - shift))
        assert abs(found.shift_ns - shift) < 1500, "half of what lies between both records, and of a µs"
        assert found.error_us is not None and found.error_us[1] < 2
        assert found.matched == len(part)


@pytest.mark.parametrize("seed", range(3))
def test_most_wait(seed: int) -> None:
    """As where most requests call cudaMalloc."""
    events, allocations = run_of_steps(40, seed, waits=0.6)
    found = align([events], allocations.with_columns(pl.col("time") - 93_000))
    assert abs(found.shift_ns - 93_000) < 1500


def test_one_clock_that_is_faster() -> None:
    """The error that is said is that at the ends, where it is largest: 40 µs for one that gains 80 µs in the run."""
    events, allocations = run_of_steps(40, 1, again=50)
    middle = allocations["time"][2000]
    drift = ((pl.col("time") - middle) * (80_000 / (allocations["time"][-1] - allocations["time"][0]))).cast(pl.Int64)
    found = align([events], allocations.with_columns(pl.col("time") + drift))
    assert found.error_us is not None
    assert found.error_us[1] == pytest.approx(40, abs=3) and found.error_us[0] == pytest.approx(20, abs=3)


def test_what_cannot_be_compared() -> None:
    events, allocations = run_of_steps(3, 1)
    for own, trace in (
        (events.clear(), allocations),
        (events, allocations.clear()),
        (events.with_columns(time_us=pl.lit(None, pl.Int64)), allocations),
        (events, allocations.with_columns(pl.col("time") + 10 * FARTHEST_NS)),
        (events, allocations.with_columns(addr=pl.col("addr") + 1)),
    ):
        found = align([own], trace)
        assert (found.matched, found.shift_ns, found.error_us) == (0, 0, None)


def test_a_run_whose_clocks_lie_apart_costs_the_same(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """A recorded run, and the same with the trace's clock 7 ms slow: the same costs in the same steps."""
    done = torch_cuda.run(PROGRAMS / "profiled_checkpoints.py", tmp_path / "run", 0)
    assert done.code == 0, done.err
    snapshot, trace, moved = tmp_path / "run.pickle", tmp_path / "run.json", tmp_path / "moved.json"
    document = json.loads(trace.read_text())
    document["baseTimeNanoseconds"] -= 7_000_000
    moved.write_text(json.dumps(document))
    found = [
        cli.in_process("stats", snapshot, "--profile", path, "--json").json["snapshots"][0]["time"]
        for path in (trace, moved)
    ]
    assert found[1]["clock_shift_us"] - found[0]["clock_shift_us"] == pytest.approx(7000, abs=1)
    assert found[0]["steps"] == found[1]["steps"] and found[0]["costs"] == found[1]["costs"]
    assert found[0]["matched"] == found[1]["matched"] > 100
    assert max(found[0]["clock_error_us"]) < 50 and max(found[1]["clock_error_us"]) < 50
    text = " ".join(cli.in_process("stats", snapshot, "--profile", moved).out.split())
    assert "its clock is the snapshot's, moved by 7.0 ms, within " in text


def test_both_clocks_are_that_of_the_program(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """The program reads the time of day before and after each allocation: both recorders' times lie between the two."""
    done = torch_cuda.run(PROGRAMS / "clocks.py", tmp_path / "run", 0.5, "cuda")
    assert done.code == 0, done.err
    truth = json.loads((tmp_path / "run.truth.json").read_text())
    before, after, recorded, profiled = (np.array(truth[key]) for key in ("before", "after", "recorded", "profiled"))
    assert len(before) > 100
    for times in (recorded, profiled):
        outside = np.maximum(np.maximum(before - times, times - after), 0)
        assert np.quantile(outside, 0.99) < 50_000, "ns"
