"""Peaks at values that were not recorded, against programs that really ran there."""

from __future__ import annotations

import functools
import itertools
import json
import os
from pathlib import Path
from typing import Any

import cli
import corpus
import fake_torch
import numpy as np
import pytest
from fake_torch import PROGRAMS, FakeTorch
from hypothesis import given
from hypothesis import strategies as st

import snapreport
from snapreport.errors import SnapshotError
from snapreport.forecast.alignment import Operations, _shortest_edit
from snapreport.forecast.size_laws import ADOPTED, UNKNOWN, size_laws

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
    [("padded_batch", (4, 8), "do not follow the value"), ("lstm_length", (64, 128), "too different")],
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
