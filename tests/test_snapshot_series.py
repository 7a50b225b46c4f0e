"""A series of snapshots: their order, the devices that belong together, and growth distinguished from noise."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
from cli import assert_refused
from cli import in_process as run
from hypothesis import given
from hypothesis import strategies as st
from scripted import MIB, Script

import snapreport
from snapreport.findings.comparable import in_order, natural_key, paired_devices
from snapreport.findings.snapshot_series import follow, grows_steadily, series_rows

TRAIN = ("/app/train.py", "main")
LEAK, NOISE, CACHE = ("/app/log.py", "remember"), ("/app/work.py", "scratch"), ("/app/data.py", "fetch")


def snapshot_file(path: Path, number: int, *, device: int = 0, time: int | None = None, leak: int = 5 * MIB) -> Path:
    """A snapshot after ``number`` parts of a run that leaks, varies, and fills a cache in its first two."""
    script = Script()
    dice = random.Random(number)
    for _ in range(number + 1):
        if leak:
            script.alloc("leak", leak, LEAK)
    script.alloc("noise", dice.randint(1, 40) * MIB, NOISE)
    for _ in range(min(number, 1)):
        script.alloc("cache", 30 * MIB, CACHE)
    raw = script.raw()
    for event in raw["device_traces"][0]:
        if time is None:
            del event["time_us"]
        else:
            event["time_us"] += time
    raw["device_traces"] = [[]] * device + raw["device_traces"]
    for segment in raw["segments"]:
        segment["device"] = device
    path.write_bytes(pickle.dumps(raw, 4))
    return path


def series_of(folder: Path, numbers: list[int], **options: Any) -> list[Path]:
    return [snapshot_file(folder / f"snapshot_{n}.pickle", n, **options) for n in numbers]


@pytest.mark.parametrize(("timed", "by"), [(False, "by name"), (True, "by recording time")])
def test_files_are_put_in_order_and_the_first_line_says_by_what(timed: bool, by: str, tmp_path: Path) -> None:
    """2 comes before 10. Times take precedence over names: here they disagree."""
    paths = [
        snapshot_file(tmp_path / f"s_{n}.pickle", k, time=1000 * MIB - n * MIB if timed else None)
        for k, n in enumerate((10, 2, 1))
    ]
    first = run("diff", *paths).out.splitlines()[0]
    names = ["s_10.pickle", "s_2.pickle", "s_1.pickle"]
    assert first == f"3 snapshots {by}: {' → '.join(names if timed else names[::-1])}"


def test_two_stay_in_the_order_given(tmp_path: Path) -> None:
    one, two = series_of(tmp_path, [1, 2], time=5)
    assert run("diff", two, one).out.startswith("snapshot_2.pickle → snapshot_1.pickle")


def test_a_leak_is_followed_through_all_files(tmp_path: Path) -> None:
    paths = series_of(tmp_path, [0, 1, 2, 3, 4, 5])
    done = run("diff", *random.Random(1).sample(paths, len(paths)), "--json")
    (row,) = done.json["series"]
    assert row["order"] == "name" and row["files"] == [path.name for path in paths]
    growing = [stack for stack in row["stacks"] if stack["grows"]]
    assert [stack["place"] for stack in growing] == ["remember log.py:7"]
    assert growing[0]["bytes"] == [5 * MIB * (n + 1) for n in range(6)] and growing[0]["counts"] == [1, 2, 3, 4, 5, 6]
    assert growing[0]["bytes_per_snapshot"] == row["leak_bytes_per_snapshot"] == 5 * MIB
    for path, end in zip(paths, row["end_allocated_bytes"], strict=True):
        assert end == corpus.replayed(path)[0].allocated[-1]
    text = run("diff", *paths).out
    assert "remember log.py:7 leaks 5.00 MiB a snapshot, from 5.00 MiB to 30.0 MiB." in text
    assert "scratch" not in text.split("The first and the last")[0], "what only varies is no leak"


def test_a_healthy_series_says_so(tmp_path: Path) -> None:
    text = run("diff", *series_of(tmp_path, [0, 1, 2, 3, 4], leak=0)).out
    assert "No stack grows from snapshot to snapshot over 5 snapshots." in text and "leaks" not in text


@given(st.lists(st.integers(0, 10**6), max_size=8, unique=True))
def test_natural_order_is_the_order_of_the_numbers(numbers: list[int]) -> None:
    names = sorted((f"snapshot_{n}.pt" for n in numbers), key=natural_key)
    assert names == [f"snapshot_{n}.pt" for n in sorted(numbers)]


@given(st.integers(3, 20), st.integers(1, 50), st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_a_steady_rise_grows_under_little_noise(count: int, step: int, base: int, dice: random.Random) -> None:
    values = np.array([base + 100 * step * k + dice.randint(-20 * step, 20 * step) for k in range(count)])
    assert grows_steadily(values, np.arange(count))


def test_noise_alone_seldom_grows() -> None:
    """Of 2,000 series without any trend at most 1% are called growth, whatever their length."""
    dice = np.random.default_rng(7)
    for count in (3, 4, 5, 8, 12):
        wrong = sum(grows_steadily(dice.integers(1, 1000, count), np.ones(count, np.int64)) for _ in range(2000))
        assert wrong <= 20, count


@pytest.mark.parametrize(
    ("values", "grows"),
    [
        ([0, 40, 80], True),
        ([0, 40], False),
        ([0, 100, 100, 100, 100], False),
        ([0, 50, 90, 100, 101, 101], False),
        ([0, 0, 40, 40, 80, 80], True),
        ([100, 60, 20], False),
        ([0, 40, 80, 70, 160, 200], True),
        ([50, 50, 50], False),
    ],
)
def test_shapes(values: list[int], grows: bool) -> None:
    assert grows_steadily(np.array(values), np.array(values) // 10) is grows


@pytest.mark.parametrize("count", range(2, 9))
def test_bytes_alone_take_twice_as_many_snapshots(count: int) -> None:
    """Six rather than three, where the number of allocations stays."""
    rising, even = np.arange(count) * 50 + 9, np.full(count, 4)
    assert grows_steadily(rising, rising) is (count >= 3) and grows_steadily(rising, even) is (count >= 6)
    assert not grows_steadily(rising[::-1], even)


@pytest.mark.parametrize(
    ("values", "by_count", "by_bytes"),
    [
        ([0, 10, 20, 30, 40, 50, 60], True, True),
        ([0, 10, 30, 20, 40, 50, 60], True, True),  # 20 of 21 pairs rise, one falls: 0.905
        ([0, 10, 30, 20, 50, 40, 60], True, False),  # 19 and two: 0.81
        ([0, 20, 10, 40, 30, 60, 50], False, False),  # 18 and three: 0.71
        ([0, 10, 20, 30, 30, 30, 40], True, False),  # three are equal: 0.857
        ([0, 10, 20, 30, 31, 32, 40], True, True),  # a quarter in the later half
        ([0, 10, 20, 30, 31, 32, 39], False, False),
    ],
)
def test_a_share_of_pairs_rises(values: list[int], by_count: bool, by_bytes: bool) -> None:
    rising, even = np.arange(len(values)), np.full(len(values), 4)
    assert (grows_steadily(np.array(values), rising), grows_steadily(np.array(values), even)) == (by_count, by_bytes)


def test_the_only_devices_belong_together(tmp_path: Path) -> None:
    """Recorded on device 0 before and 3 after: the same as both on 0."""
    same = [snapshot_file(tmp_path / f"a{n}.pickle", n) for n in (0, 1)]
    moved = snapshot_file(tmp_path / "b1.pickle", 1, device=3)
    (one,), (two,) = (run("diff", same[0], after, "--json").json["devices"] for after in (same[1], moved))
    assert (two["device"], two["device_after"]) == (0, 3)
    assert one["moments"] == two["moments"]
    assert "cuda:0 → cuda:3" in run("diff", same[0], moved).out
    assert run("diff", same[0], moved, "--device", "0:3", "--json").json["devices"] == [two]


def test_devices_are_chosen_in_the_order_of_the_files(tmp_path: Path) -> None:
    """Also where the files are reordered."""
    devices = {0: 4, 1: 0, 2: 2}
    paths = [snapshot_file(tmp_path / f"s{n}.pickle", n, device=devices[n]) for n in (2, 0, 1)]
    (row,) = run("diff", *paths, "--device", "2:4:0", "--json").json["series"]
    assert row["devices"] == [4, 0, 2] and row["files"] == ["s0.pickle", "s1.pickle", "s2.pickle"]
    assert row["stacks"][0]["bytes"] == [5 * MIB, 10 * MIB, 15 * MIB]


def test_one_device_is_that_of_all_files(tmp_path: Path) -> None:
    one, two = (snapshot_file(tmp_path / f"s{n}.pickle", n) for n in (0, 1))
    assert run("diff", one, two, "--device", "0", "--json").json == run("diff", one, two, "--json").json


def test_memory_counts_where_no_device_has_events(tmp_path: Path) -> None:
    """A dump of a program that was not recorded, on device 3, and one of a recorded program on device 0."""
    recorded, dumped = (snapshot_file(tmp_path / f"s{n}.pickle", n, device=device) for n, device in ((0, 0), (1, 3)))
    raw = corpus.raw(dumped)
    held = tmp_path / "held.pickle"
    held.write_bytes(pickle.dumps(raw | {"device_traces": []}, 4))
    assert paired_devices([snapreport.load(recorded), snapreport.load(held)]) == [(0, 3)]


def test_what_cannot_be_compared_exits_with_a_line(tmp_path: Path) -> None:
    one, two = (snapshot_file(tmp_path / f"s{n}.pickle", n) for n in (0, 1))
    empty = tmp_path / "empty.pickle"
    empty.write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    assert_refused(run("diff", one, empty), "nothing to compare")
    assert_refused(run("diff", one, two, "--device", "0:3"), "no data on device 3; it has cuda:0")
    assert_refused(run("diff", one, two, "--device", "0:0:0"), "3 devices for 2 snapshots")
    assert_refused(run("diff", one, two, "--device", "first"), "try 0:3")
    both = tmp_path / "both.pickle"
    raw = corpus.raw(two)
    raw["device_traces"] = [[], raw["device_traces"][0], raw["device_traces"][0]]
    raw["segments"] = []
    both.write_bytes(pickle.dumps(raw, 4))
    assert_refused(run("diff", one, both), "--device 0:3")
    assert run("diff", one, both, "--device", "0:2").code == 0


RECORDED = Path(corpus.ROOT).parent / "shared" / "recorded"


@pytest.mark.skipif(not (RECORDED / "rec_series0.pickle").exists(), reason="no recordings of real PyTorch")
@pytest.mark.parametrize("prefix", ["", "t29_"])
def test_a_real_series(prefix: str) -> None:
    """40 MiB between two snapshots, as the truth beside them says."""
    paths = [RECORDED / f"{prefix}rec_series{n}.pickle" for n in (2, 0, 1)]
    truth = json.loads((RECORDED / f"{prefix}rec_series0.truth.json").read_text())
    assert "grows by 40 MiB each time" in truth["planted"]
    snapshots, order = in_order([snapreport.load(path) for path in paths])
    (row,) = series_rows(follow(snapshots, order, paired_devices(snapshots)))
    assert order == "time" and row.files == [f"{prefix}rec_series{n}.pickle" for n in range(3)]
    assert [stack.bytes_per_snapshot for stack in row.stacks if stack.grows] == [40 * MIB]
    assert run("check", *paths, "--fail-on", "leak").code == 1
