"""Jobs: digests, ranks from names, groups and outliers, against jobs with planted causes and real recordings."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import json
import pickle
import random
import re
import struct
import tempfile
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import generator
import numpy as np
import polars as pl
import pytest
import recorded
from cli import in_process, process
from decoder import Report
from msgspec.structs import replace

import snapreport
from snapreport.contracts import plain
from snapreport.errors import SnapshotError
from snapreport.jobs.build import PageOptions, build_job, job_of
from snapreport.jobs.digest import digest_bytes, read_digest
from snapreport.jobs.digest_format import MAGIC, MOST_BYTES, pack, unpack
from snapreport.jobs.execution import DigestResult
from snapreport.jobs.groups import find_groups
from snapreport.jobs.headline import headline
from snapreport.jobs.heat import heat_of
from snapreport.jobs.job_json import job_json
from snapreport.jobs.outliers import find_outliers
from snapreport.jobs.rank_names import are_ranks, facts_of_names, newest_of_each
from snapreport.jobs.rank_reports import link_to_job, report_links
from snapreport.jobs.rank_text import rank_ranges
from snapreport.jobs.reduce import Job, reduce_job
from snapreport.jobs.stack_identity import stack_identities
from snapreport.reading.redaction import Redaction
from snapreport.timeline.workspaces import CUBLAS_WORKSPACE

RECORDINGS = Path(__file__).parent / "recordings"
SMALL = {"hidden": 256, "layers": 2, "steps": 3, "micro_batches": 2, "operations": 4, "vocabulary": 4000}


def small_job(folder: Path, kind: str, **options: Any) -> Job:
    """A job of a sample, from digests: ranks in which nothing is planted are the same in many jobs, and made once."""
    return job_of_digests(folder, [generator.JobOptions(kind=kind, **{**SMALL, **options})])


def job_of_digests(folder: Path, options: list[generator.JobOptions]) -> Job:
    """``options``: of each rank, or one for all."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(options[0].ranks):
        name, digest = digest_of(only_what_matters(options[rank % len(options)], rank), rank)
        (folder / name).with_suffix(".digest").write_bytes(digest)
    return snapreport.job([folder], jobs=1)


def only_what_matters(options: generator.JobOptions, rank: int) -> generator.JobOptions:
    """The options without what is planted in other ranks. Each rank is made by itself: see generator/job.py."""
    unplanted: dict[str, Any] = {
        name: None for name in ("straggler", "heavy", "oom") if getattr(options, name) not in (None, rank)
    }
    for planted, detail in (("straggler", "leak"), ("heavy", "factor")):
        if getattr(options, planted) != rank:
            unplanted[detail] = getattr(generator.JobOptions(), detail)
    return dataclasses.replace(options, **unplanted)


@functools.cache
def digest_of(options: generator.JobOptions, rank: int) -> tuple[str, bytes]:
    """The name of a rank's file, and its digest."""
    with tempfile.TemporaryDirectory() as folder:
        path = generator.write_rank(options, rank, folder)
        return path.name, snapreport.digest(path)


def live_at_peak(raw: dict[str, Any], device: int) -> tuple[int, int]:
    """(peak bytes, first event of it) by a simple walk through one trace with nothing before it."""
    live: dict[int, int] = {}
    total = peak = 0
    event = -1
    for number, entry in enumerate(raw["device_traces"][device]):
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
            total += entry["size"]
        elif entry["action"] == "free_completed":
            total -= live.pop(entry["addr"])
        if total > peak:
            peak, event = total, number
    return peak, event


@pytest.mark.parametrize("kind", ["data", "pipeline", "tensor", "experts"])
def test_a_digest_says_what_a_plain_walk_of_the_trace_says(kind: str, tmp_path: Path) -> None:
    paths = generator.write_job(tmp_path, kind, ranks=4, **SMALL)
    for rank, path in enumerate(paths):
        digest = read_digest(snapreport.digest(path))
        raw = pickle.loads(path.read_bytes())
        assert (digest.peak_allocated, digest.peak_event) == live_at_peak(raw, rank)
        assert (digest.rank, digest.world_size, digest.device, digest.host) == (rank, 4, rank, "node000")
        assert sum(stack.bytes for stack in digest.stacks) + digest.rest == digest.peak_allocated
        assert sum(size for _, size in digest.categories) == digest.peak_allocated
        for curve in digest.curves.values():
            assert curve.values["allocated"].max() == digest.peak_allocated
            assert curve.values["reserved"].max() == digest.peak_reserved
        assert len(digest.curves["step"].first) == digest.steps == 3


@pytest.mark.parametrize("name", ["mistakes/transcripts", "fit/unet32", "leaks/2.9.1_period_5"])
def test_the_stacks_of_a_digest_are_those_of_a_plain_walk(name: str) -> None:
    path = RECORDINGS / f"{name}.pickle.xz"
    snapshot, digest = snapreport.load(path), read_digest(snapreport.digest(path))
    assert digest.device is not None
    changes = collections.defaultdict[int, list[tuple[int, int, int]]](list)
    category: collections.defaultdict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    table = snapshot.allocations(digest.device)
    columns = ("stack", "size", "alloc_event", "free_event", pl.col("category").cast(pl.String))
    for stack, size, born, freed, kind in table.select(*columns).iter_rows():
        changes[stack] += [(born, size, 1), *([(freed, -size, -1)] if freed >= 0 else [])]
        is_live = born <= digest.peak_event and (freed < 0 or freed > digest.peak_event)
        category[stack][kind] += size + (is_live * size << 40)  # what is live at the peak decides
    identities = stack_identities(snapshot.recording)
    expected: collections.defaultdict[str, np.ndarray] = collections.defaultdict(lambda: np.zeros(4, np.int64))
    for stack, of_stack in changes.items():
        states = [(-1, 0, 0)]
        for event, size, count in sorted(of_stack, key=lambda change: change[0]):
            states.append((event, states[-1][1] + size, states[-1][2] + count))
        at_peak = [state for state in states if state[0] <= digest.peak_event][-1]
        expected[identities[stack]] += (*at_peak[1:], *max(states, key=lambda state: state[1])[1:])
    # Which line makes a workspace is chance: it is in no stack's maximum.
    workspaces = table.filter((pl.col("category") == "workspace") | (pl.col("size") == CUBLAS_WORKSPACE))["stack"]
    for one in digest.stacks:
        stacks = [stack for stack, identity in enumerate(identities) if identity == one.identity]
        numbers = [one.bytes, one.count, one.most, one.most_count][: 2 if set(stacks) & set(workspaces) else 4]
        assert numbers == expected[one.identity].tolist()[: len(numbers)], one.name
        if len(stacks) == 1:
            assert one.category == category[stacks[0]].most_common(1)[0][0], one.name
    listed = {one.identity for one in digest.stacks}
    least = min(one.bytes for one in digest.stacks if one.bytes)
    assert all(numbers[0] <= least for identity, numbers in expected.items() if identity not in listed)


def test_a_digest_is_small_and_the_same_every_time(tmp_path: Path) -> None:
    path = tmp_path / "many.pickle"
    generator.write(path, "training", steps=6, vary=0.4, depth=20)
    data = snapreport.digest(path)
    assert len(data) <= MOST_BYTES == 65_536
    assert data == snapreport.digest(path)


def test_a_stack_has_one_identity_wherever_the_code_lies(tmp_path: Path) -> None:
    """Ranks on different hosts have their program in different folders: see generator/job.py."""
    paths = generator.write_job(tmp_path, "data", ranks=2, hosts=1, **SMALL)
    folders, identities = [], []
    for path in paths:
        names = snapreport.load(path).recording.frames["filename"].to_list()
        folders.append({name for name in names if "/train/" in name})
        identities.append({stack.identity for stack in read_digest(snapreport.digest(path)).stacks})
    assert not folders[0] & folders[1]
    assert identities[0] == identities[1]


def rewrapped(content: Any) -> bytes:
    """A digest with any content and a correct checksum."""
    return pack(content)


def outcome(data: bytes) -> str:
    """What is wrong with a digest; "" for one that is read, whose numbers are then numbers."""
    try:
        assert 0 <= read_digest(data).peak_allocated < 2**53
    except SnapshotError as error:
        return str(error)
    return ""


def test_hostile_digests_are_refused_in_one_line(tmp_path: Path) -> None:
    path = generator.write_job(tmp_path, "data", ranks=1, **SMALL)[0]
    good = snapreport.digest(path)
    content = json.loads(zlib.decompress(good[len(MAGIC) + 26 :]))
    read_digest(rewrapped(content))
    bad: list[bytes] = [b"", MAGIC, good[:-1], good + b"x", good[:60] + b"\0" + good[61:], good + b"\0" * MOST_BYTES]
    body = zlib.compress(b"[" * 5_000_000, 9)
    checksum = hashlib.blake2b(body, digest_size=16).digest()
    bad += [
        MAGIC + struct.pack("<HII16s", 2, len(body), length, checksum) + body for length in (10, 5_000_000, 2**32 - 1)
    ]
    deep = zlib.compress(b"[" * 100_000, 9)
    bad.append(
        MAGIC + struct.pack("<HII16s", 2, len(deep), 100_000, hashlib.blake2b(deep, digest_size=16).digest()) + deep
    )
    bad.append(MAGIC + struct.pack("<H", 1) + good[len(MAGIC) + 2 :])
    rng = random.Random(5)
    for key in content:
        values: list[Any] = [None, -1, "x" * 2000, [], {}, [[]], 1e300, 2**80, True, [{"a": 1}] * 3]
        bad += [rewrapped({**content, key: value}) for value in values if value != content[key]]
        bad.append(rewrapped({k: v for k, v in content.items() if k != key}))
    curves = content["curves"]
    for axis in curves:
        for name in curves[axis]:
            bad.append(rewrapped({**content, "curves": {**curves, axis: {**curves[axis], name: [-5] * 600}}}))
            bad.append(rewrapped({**content, "curves": {**curves, axis: {**curves[axis], name: [2**62, 2**62]}}}))
    results = [outcome(data) for data in bad]
    assert all("\n" not in error for error in results)
    assert sum(map(bool, results)) > 0.8 * len(bad), "some values are as good as the one before"
    for _ in range(300):  # bit flips that the checksum finds
        at = rng.randrange(len(good))
        flipped = good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :]
        with pytest.raises(SnapshotError):
            read_digest(flipped)


NAMES = {
    "snapreport": ([f"run/rank_{r:05}_step_00000412_oom.pickle.gz" for r in range(3)], [0, 1, 2]),
    "torchtitan": ([f"step_000000000010_exit/{r:06}_step_10.pickle" for r in range(3)], [0, 1, 2]),
    "torchtitan, before": ([f"iteration_10/rank{r}_memory_snapshot.pickle" for r in range(3)], [0, 1, 2]),
    "Megatron-LM": ([f"snapshot_rank-{r}.pickle" for r in (0, 11)], [0, 11]),
    "Megatron-LM, OOM": ([f"memory.snapshot_oom_rank-{r}.pickle" for r in (3, 4)], [3, 4]),
    "Megatron-LM, OOM before": ([f"oom_rank-{r}_snapshot.pickle" for r in (3, 4)], [3, 4]),
    "Megatron-Bridge": ([f"nemo_run/snapshot_{r}.pickle" for r in (0, 1, 11)], [0, 1, 11]),
    "Megatron-Bridge and an OOM": (
        ["snapshot_0.pickle", "snapshot_1.pickle", "snapshot_oom_rank-1.pickle"],
        [0, 1, 1],
    ),
    "NeMo": ([f"mem_profile/memory_snapshot-rank{r}.pickle" for r in (0, 12)], [0, 12]),
    "verl": ([f"step5/torch_memory_rank{r}_pid{5000 + r}.pickle" for r in (0, 5)], [0, 5]),
    "SGLang": ([f"1712345678.9-TP-{r}-memory.pickle" for r in (0, 1)], [0, 1]),
    "SGLang, by stage": ([f"1712345678.9{r}-TP-{r}-memory-decode.pickle" for r in (0, 1)], [0, 1]),
    "torchtune": ([f"iteration_10/rank{r}_memory_snapshot.pickle" for r in (0, 1)], [0, 1]),
    "composer": ([f"rank{r}.12.memory_snapshot.pickle" for r in (0, 1)], [0, 1]),
    "composer, OOM": ([f"rank{r}.oom_snapshot.pickle" for r in (0, 1)], [0, 1]),
    "slime": ([f"memory_snapshot_time1712.5_rank{r}_snapshot.pickle" for r in (0, 1)], [0, 1]),
    "folders": ([f"dump/rank_{r}/snapshot.pickle" for r in (0, 1)], [0, 1]),
    "trailing numbers of different names": (["a_1.pickle", "b_2.pickle"], [None, None]),
    "one trailing number": (["snapshot_1.pickle"], [None]),
    "words that end in rank": (["frank1.pickle", "lowrank8.pickle"], [None, None]),
}


@pytest.mark.parametrize("name", NAMES)
def test_ranks_from_names(name: str) -> None:
    paths, ranks = NAMES[name]
    assert [fact.rank for fact in facts_of_names(paths)] == ranks


@pytest.mark.parametrize(
    ("path", "step", "oom"),
    [
        ("rank_00003_step_00000412_oom.pickle.gz", 412, True),
        ("rank_00003_step_00000412_exit.pickle.gz", 412, False),
        ("step_000000000010/000003_step_10.pickle", 10, False),
        ("step_000000000010_exit/000003_step_10.pickle", 10, True),
        ("step_000000000010_exit/replica_1/000003_step_10.pickle", 10, True),
        ("iteration_10_exit/rank3_memory_snapshot.pickle", 10, True),
        ("memory.snapshot_oom_rank-3.pickle", None, True),
        ("step5/torch_memory_rank3_pid41.pickle", 5, False),
        ("steps5-8/torch_memory_rank3_pid41.pickle", 8, False),
        ("oom_20260701-101500-000001/torch_memory_oom_rank3_pid41.pickle", None, True),
        ("rank3.12.memory_snapshot.pickle", 12, False),
        ("bedroom_3/rank1.pickle", None, False),
    ],
)
def test_steps_and_failures_from_names(path: str, step: int | None, oom: bool) -> None:
    (fact,) = facts_of_names([path])
    assert (fact.step, fact.oom) == (step, oom)


def test_steps_and_failures_of_one_rank_are_told_apart() -> None:
    paths = [f"out/rank{rank}_step_{step}.pickle" for rank in range(3) for step in (10, 20)]
    paths += ["out/rank1_oom.pickle", "out/rank0_step_30.pickle"]
    facts = facts_of_names(paths)
    keys = [(fact.rank, fact.step, fact.oom, path) for fact, path in zip(facts, paths, strict=True)]
    chosen = [paths[i] for i in newest_of_each(keys)]
    # The failure of rank 1; the others at step 20, which all have, and not at 30, which only rank 0 has.
    assert chosen == ["out/rank0_step_20.pickle", "out/rank2_step_20.pickle", "out/rank1_oom.pickle"]


def test_a_pattern_of_the_users() -> None:
    paths = ["node3/gpu1.pickle", "node3/gpu2.pickle"]
    assert [fact.rank for fact in facts_of_names(paths, r"gpu(\d+)")] == [1, 2]
    assert [fact.rank for fact in facts_of_names(paths, r"(?P<host>node\d)/gpu(?P<rank>\d)")] == [1, 2]
    for bad in ("(", "gpu"):
        with pytest.raises(SnapshotError, match="--rank-pattern"):
            facts_of_names(paths, bad)


def test_which_files_are_ranks() -> None:
    assert are_ranks(["rank0.pickle", "rank1.pickle"])
    assert not are_ranks(["rank0_step_1.pickle", "rank0_step_2.pickle"]), "one rank at two moments"
    assert not are_ranks(["before.pickle", "after.pickle"])
    assert not are_ranks(["snap_1.pickle", "snap_2.pickle"]), "numbers may count moments"
    assert not are_ranks(["rank0.pickle"])


def test_rank_ranges() -> None:
    assert rank_ranges([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7, 8"
    assert len(rank_ranges(range(0, 1000, 2))) < 80


PLANTED: list[tuple[str, dict[str, Any], int, str]] = [
    ("data", {"heavy": 3}, 3, ""),
    ("data", {"straggler": 0}, 0, "log_step"),
    ("data", {"straggler": 7, "jitter": 0.05}, 7, "log_step"),
    ("pipeline", {"straggler": 6}, 6, "log_step"),
    ("pipeline", {"ranks": 16, "replicas": 4, "layers": 4, "straggler": 9}, 9, "log_step"),
    ("tensor", {"straggler": 2}, 2, "log_step"),
    ("experts", {"ranks": 16, "heavy": 7, "factor": 3.5}, 7, "dispatch"),
    ("experts", {"ranks": 16, "straggler": 2}, 2, "log_step"),
    ("pipeline", {"oom": 4, "memory": 2 << 30}, 4, "pad_batch"),
]
BALANCED: list[tuple[str, dict[str, Any]]] = [
    ("data", {}),
    ("data", {"ranks": 2}),
    ("data", {"ranks": 16, "jitter": 0.5, "seed": 4}),
    ("pipeline", {}),
    ("pipeline", {"ranks": 4}),
    ("tensor", {}),
    ("experts", {"ranks": 16}),
    ("experts", {"ranks": 16, "unevenness": 0.75, "seed": 5}),
]


def size_of_case(kind: str) -> dict[str, Any]:
    return {"ranks": 8, "leak": 24 << 20, "layers": 8 if kind == "pipeline" else 2}


@pytest.mark.parametrize(("kind", "options", "rank", "function"), PLANTED)
def test_the_planted_rank_and_its_stack_are_found(
    kind: str, options: dict[str, Any], rank: int, function: str, tmp_path: Path
) -> None:
    job = small_job(tmp_path, kind, **{**size_of_case(kind), **options})
    document = plain(job_json(job))
    assert [outlier["rank"] for outlier in document["outliers"]] == [rank]
    stacks = document["outliers"][0]["stacks"]
    if function:
        assert stacks[0]["function"] == function
    if function == "log_step":
        assert stacks[0]["bytes_above"] == stacks[0]["bytes"] >= 2 * (24 << 20)
        assert (stacks[0]["file"], stacks[0]["line"]) == ("train/metrics.py", 31)
    answer = f"Rank {rank} of {len(job.rows)} {'ran out of memory' if 'oom' in options else 'holds'}"
    assert any(sentence.startswith(answer) for sentence in document["headline"])


@pytest.mark.parametrize(("kind", "options"), BALANCED)
def test_nothing_is_claimed_in_balanced_jobs(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    job = small_job(tmp_path, kind, **{**size_of_case(kind), **options})
    assert job_json(job).outliers == []


def test_groups_are_the_stages(tmp_path: Path) -> None:
    job = small_job(tmp_path, "pipeline", ranks=16, replicas=4, layers=4)
    assert [group.rows for group in job.groups] == [list(range(4 * s, 4 * s + 4)) for s in range(4)]


def test_a_pipeline_with_a_slope_is_one_group_between_its_ends(tmp_path: Path) -> None:
    job = small_job(tmp_path, "pipeline", ranks=8, layers=8)
    assert [group.rows for group in job.groups] == [[0], [1, 2, 3, 4, 5, 6], [7]]
    assert job.groups[1].slope is not None and job.groups[1].slope < 0


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("stages", [4, 6])
def test_the_embedding_and_the_head_of_a_short_pipeline_are_no_outliers(stages: int, more: int) -> None:
    """Stages of five equal layers, the second with one more: it is found where three others show what is usual."""
    layer, embedding, head = np.array([[40e6, 20e6, 0, 0], [0, 0, 11e6, 0], [0, 0, 0, 25e6]])
    layers = np.full(stages, 5)
    layers[1] += more
    stacks = layers[:, None] * layer[None, :]
    stacks[0] += embedding
    stacks[-1] += head
    totals = stacks.sum(axis=1)
    groups = find_groups(stacks, totals, totals - stacks[:, 1])
    found = [outlier.row for outlier in find_outliers(groups, stacks, totals)]
    assert found == ([1] if stages == 6 and more else [])
    ends = [group.rows for group in groups if group.kind == "end"]
    assert [0] in ends and [stages - 1] in ends


def test_vectors_of_chance_give_no_outliers() -> None:
    """Normal and lognormal noise of many widths and sizes: at most one claim in a hundred jobs."""
    rng = np.random.default_rng(7)
    claims = jobs = 0
    for ranks in (4, 8, 16, 64, 256):
        for width in (0.0, 0.001, 0.01, 0.05, 0.2, 0.5):
            for _ in range(6):
                stacks = rng.uniform(1e8, 1e9, 12)[None, :] * np.exp(width * rng.standard_normal((ranks, 12)))
                totals = stacks.sum(axis=1)
                claims += len(find_outliers(find_groups(stacks, totals, stacks[:, 0]), stacks, totals)) > 0
                jobs += 1
    assert claims <= jobs // 100, f"{claims} claims in {jobs} jobs"


@pytest.mark.parametrize(
    ("name", "rank", "function", "size"),
    [("job_dp", 5, "<module>", 0), ("job_pp", 6, "stash_for_debugging", 25_165_824)],
)
def test_outliers_of_real_jobs(name: str, rank: int, function: str, size: int) -> None:
    folder = recorded.ROOT / name
    if not folder.exists():
        pytest.skip(recorded.NONE)
    document = plain(job_json(snapreport.job([folder], jobs=1)))
    assert [outlier["rank"] for outlier in document["outliers"]] == [rank]
    names = [stack["function"] for stack in document["outliers"][0]["stacks"]]
    assert function in names
    if size:
        assert document["outliers"][0]["stacks"][0]["bytes_above"] == size
    for entry in document["ranks"]:
        truth = json.loads((folder / f"memory_snapshot-rank{entry['rank']}.truth.json").read_text())
        assert entry["peak_allocated_bytes"] == truth["requested_bytes.all.peak"]
        assert entry["peak_reserved_bytes"] == truth["reserved_bytes.all.peak"]


def test_the_heat_map_has_every_peak_where_it_was(tmp_path: Path) -> None:
    job = small_job(tmp_path, "experts", ranks=6)
    heat = heat_of(job)
    assert [axis.key for axis in heat.axes] == ["step", "time"]
    for axis in heat.axes:
        for row, digest in enumerate(job.digests):
            cells = axis.cells["allocated"][row]
            exact = digest.peak_allocated
            assert 0 <= (int(cells.max()) - 1) * heat.scale - exact < heat.scale
            if axis.key == "step":
                assert axis.first[int(cells.argmax())] <= digest.peak_step <= axis.last[int(cells.argmax())]
    # Of many ranks, half a megabyte for each measure at most.
    many = heat_of(replace(job, rows=[job.rows[rank % 6] for rank in range(700)])).axes[1].cells["allocated"]
    assert many.shape[0] == 700 and 7 << 15 < many.size <= 1 << 18


def test_the_rank_that_ran_out_first(tmp_path: Path) -> None:
    job = small_job(tmp_path, "data", ranks=6, oom=4, memory=8 << 30)
    document = plain(job_json(job))
    assert document["headline"][0].startswith("Rank 4 of 6 ran out of memory at step 2.")
    assert document["ranks"][4]["first_oom"]["tried_bytes"] == (8 << 30) // 64
    assert [outlier["rank"] for outlier in document["outliers"]] == [4]
    assert document["outliers"][0]["stacks"][0]["function"] == "pad_batch"
    # A rank far above all others costs them no resolution.
    usual, highest = np.median(job.peaks), job.peaks.max()
    assert highest > 10 * usual and heat_of(job).scale <= max(usual / 500, highest / 60_000)


def test_clocks_that_lie_apart_are_not_compared(tmp_path: Path) -> None:
    near, far = (small_job(tmp_path / str(us), "data", ranks=4, hosts=2, clock_us=us) for us in (1000, 60_000_000))
    assert near.clock.comparable and not far.clock.comparable
    assert "cannot be compared" in far.clock.sentence


def test_missing_and_damaged_ranks_are_rows_and_not_the_end(tmp_path: Path) -> None:
    paths = generator.write_job(tmp_path, "data", ranks=6, **SMALL)
    paths[2].unlink()
    paths[3].write_bytes(b"\x80\x04 no pickle")
    job = snapreport.job([tmp_path], jobs=1)
    assert [row.rank for row in job.rows] == [0, 1, 4, 5]
    assert job.missing == [2, 3]
    assert [(failed.rank, failed.path) for failed in job.failed] == [(3, str(paths[3]))]
    text = " ".join(sentence.text for sentence in headline(job))
    assert "No file was found for rank 2." in text and "1 file could not be read" in text


def test_the_command(tmp_path: Path) -> None:
    paths = generator.write_job(tmp_path / "job", "pipeline", ranks=4, straggler=2, leak=24 << 20, **SMALL)
    done = process("job", str(tmp_path / "job"), "--jobs", "1", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["schema"] == "snapreport-job/2"
    assert [entry["rank"] for entry in document["ranks"]] == list(range(4))
    assert not list(tmp_path.glob("*.html"))
    # Digests made one by one give the same result as the snapshots.
    for path, run in zip(paths, [process, *[in_process] * 3], strict=True):
        assert run("digest", str(path), "-o", str(tmp_path / f"{path.stem}.digest")).code == 0
    again = json.loads(process("job", *map(str, tmp_path.glob("*.digest")), "--json", cwd=tmp_path).out)
    for entry in [*again["ranks"], *document["ranks"]]:
        del entry["source"]
    assert again == document
    # Ranks given to the plain command are a job, unless --separate is given.
    names = [str(path) for path in paths[:3]]
    plain = process(*names, cwd=tmp_path)
    assert plain.code == 0 and (tmp_path / "job.html").exists(), plain.err
    assert b'"schema":"snapreport-job' not in (tmp_path / "job.html").read_bytes(), "packed, not plain"
    apart = process(*names, "--separate", "-o", "apart.html", cwd=tmp_path)
    assert apart.code == 0 and "Groups of ranks" not in (tmp_path / "apart.html").read_text()
    assert "Groups of ranks" in (tmp_path / "job.html").read_text()


def test_reports_of_each_rank_are_linked(tmp_path: Path) -> None:
    generator.write_job(tmp_path / "job", "data", ranks=3, **SMALL)
    done = process("job", "job", "--each", "each", "-o", "job.html", "--detail", "1", "--jobs", "1", cwd=tmp_path)
    assert done.code == 0, done.err
    reports = sorted((tmp_path / "each").iterdir())
    assert [path.name for path in reports] == [f"rank_{r:05}.html" for r in range(3)]
    assert all('<a href="../job.html">All ranks of this job</a>' in path.read_text("utf-8") for path in reports)
    wrong = process("job", "job", "--detail", "9", "--jobs", "1", cwd=tmp_path)
    assert wrong.code == 2 and "no such rank" in wrong.err


@pytest.mark.parametrize("is_redacted", [False, True])
def test_reports_are_linked_by_their_names_whatever_rank_the_recordings_state(
    tmp_path: Path, is_redacted: bool
) -> None:
    """RANK is known only once a file is read, after its report has a name."""
    generator.write_job(tmp_path / "job", "data", ranks=2, **SMALL)
    for path, name in zip(sorted((tmp_path / "job").iterdir()), "ba", strict=True):
        path.rename(path.with_name(f"{name}.pickle"))
    (tmp_path / "each").mkdir()
    (tmp_path / "each" / "rank_00000.html").write_text("of an earlier run")
    redaction = Redaction() if is_redacted else None
    job = snapreport.job([tmp_path / "job"], jobs=1, each=tmp_path / "each", redaction=redaction)
    links = report_links(job, str(tmp_path / "each"), str(tmp_path / "job.html"))
    names = ["file_00001.html", "file_00000.html"] if is_redacted else ["b.pickle.html", "a.pickle.html"]
    assert [(row.rank, links[row.path]) for row in job.rows] == [(0, f"each/{names[0]}"), (1, f"each/{names[1]}")]


def test_addresses_of_the_jobs_report_are_relative_and_quoted(tmp_path: Path) -> None:
    each = tmp_path / "run" / "each"
    assert link_to_job(each, tmp_path / "run" / "job.html") == "../job.html"
    assert link_to_job(each, each / 'a "b" <c>&#?.html') == "a%20%22b%22%20%3Cc%3E%26%23%3F.html"
    assert link_to_job(each, tmp_path / "all" / "job.html") == "../../all/job.html"
    assert link_to_job(each, "-") == ""


@pytest.mark.parametrize(("folder", "is_linked"), [("reports", True), ("node000", False)])
def test_redacted_reports_link_to_the_job_only_if_that_reveals_no_host(
    tmp_path: Path, folder: str, is_linked: bool
) -> None:
    generator.write_job(tmp_path / "job", "data", ranks=1, **SMALL)
    (tmp_path / "each").mkdir()
    places = {"each": tmp_path / "each", "report": tmp_path / folder / "job.html"}
    snapreport.job([tmp_path / "job"], jobs=1, redaction=Redaction(), **places)
    (report,) = (tmp_path / "each").iterdir()
    text = report.read_text("utf-8")
    assert (f'href="../{folder}/job.html"' in text) is ("All ranks of this job" in text) is is_linked


def job_of_ranks(folder: Path, ranks: int, change: dict[int, dict[str, Any]], **options: Any) -> Job:
    """A data-parallel job, of which some ranks have other options; None for a rank without a file."""
    base = generator.JobOptions(**{**SMALL, "ranks": ranks, **options})
    return job_of_digests(folder, [dataclasses.replace(base, **change.get(rank, {})) for rank in range(ranks)])


@pytest.mark.parametrize("kind", ["data", "experts"])
def test_two_ranks_with_the_same_leak_are_no_group_of_their_own(tmp_path: Path, kind: str) -> None:
    leaks = {rank: {"straggler": rank} for rank in (3, 11)}
    job = job_of_ranks(tmp_path / "job", 16, leaks, kind=kind, leak=64 << 20, jitter=0.05)
    assert sorted(outlier.row for outlier in job.outliers) == [3, 11]
    assert {job.stacks[outlier.stacks[0][0]].function for outlier in job.outliers} == {"log_step"}
    # What a click on their sentences selects.
    selected = [(line.rows, job.stacks[line.stack].function) for line in headline(job) if line.stack is not None]
    assert sorted(selected) == [([3], "log_step"), ([11], "log_step")]


def test_every_other_rank_is_a_group(tmp_path: Path) -> None:
    """What repeats at equal distances is the job's structure; what one of them leaks is not."""
    larger = {rank: {"layers": 4} for rank in range(1, 12, 2)}
    job = job_of_ranks(tmp_path / "job", 12, {**larger, 6: {"straggler": 6}}, leak=24 << 20)
    assert [outlier.row for outlier in job.outliers] == [6] and len(job.groups) == 2


def test_ranks_that_run_out_at_the_same_time(tmp_path: Path) -> None:
    fail = {rank: {"oom": rank} for rank in (2, 6)}
    far_apart = {"hosts": 1, "clock_us": 10_000_000}
    for name, options in (("same", {}), ("clocks", far_apart)):
        job = job_of_ranks(tmp_path / name, 8, fail, memory=1 << 30, **options)
        assert sorted(outlier.row for outlier in job.outliers) == [2, 6]
        words = [sentence.text for sentence in headline(job)]
        assert words[0].startswith("Rank 2 of 8 ran out of memory first" if name == "same" else "Ranks 2, 6 ran out")
        assert words[1].startswith("Rank 2 holds" if name == "same" else "Rank 2 of 8 holds"), words[1]


def test_ranks_that_recorded_less_are_not_called_different(tmp_path: Path) -> None:
    """Ring buffers that lost their beginning, ranks without events or without a device, and an unreadable file."""
    folder = tmp_path / "job"
    paths = generator.write_job(folder, "data", ranks=8, **SMALL)

    def change(rank: int, **parts: Any) -> None:
        paths[rank].write_bytes(pickle.dumps({**pickle.loads(paths[rank].read_bytes()), **parts}))

    for rank in (3, 4):
        traces = pickle.loads(paths[rank].read_bytes())["device_traces"]
        change(rank, device_traces=[trace[-len(trace) // 4 :] for trace in traces])
    change(5, device_traces=[[]], segments=[])
    change(6, device_traces=[], segments=[])
    paths[7].write_bytes(b"not a pickle")
    job = snapreport.job([folder], jobs=1)
    words = [sentence.text for sentence in headline(job)]
    assert not job.outliers and job.groups[0].rows == [0, 1, 2, 3, 4]
    assert words[0].startswith("All 5 ranks peak"), "those that recorded nothing are not compared"
    assert words[1:] == [
        "Ranks 5, 6 recorded no allocations.",
        f"1 file could not be read: {paths[7].name}.",
    ]


def test_files_of_equal_ranks(tmp_path: Path) -> None:
    """Ranks numbered anew on each host are not taken for older files of the same ranks; nor is RANK=0 everywhere."""
    made = generator.write_job(tmp_path / "made", "data", ranks=4, metadata=False, **SMALL)
    for number, path in enumerate(made):
        host = tmp_path / "hosts" / f"node{number // 2}"
        host.mkdir(parents=True, exist_ok=True)
        (host / f"rank{number % 2}.pickle").write_bytes(path.read_bytes())
    job = snapreport.job([tmp_path / "hosts"], jobs=1)
    assert headline(job)[-1].text.startswith("2 more files have the rank and step of another and are left out")
    of_hosts = snapreport.job([tmp_path / "hosts"], jobs=1, rank_pattern=r"node(\d+)/rank0")
    assert of_hosts.ranks.tolist()[:2] == [0, 1]
    first = generator.write_job(tmp_path / "one", "data", ranks=1, **SMALL)[0].read_bytes()
    (tmp_path / "same").mkdir()
    for rank in range(3):
        (tmp_path / "same" / f"rank{rank}.pickle").write_bytes(first)
    assert snapreport.job([tmp_path / "same"], jobs=1).ranks.tolist() == [0, 1, 2]


def test_different_world_sizes_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    generator.write_job(folder, "data", ranks=3, **SMALL)
    generator.write_rank(generator.JobOptions(**{**SMALL, "ranks": 5}), 4, folder)
    words = [sentence.text for sentence in headline(snapreport.job([folder], jobs=1))]
    assert "The recordings name different world sizes, 3 and 5: they may be of different jobs." in words
    assert "No file was found for rank 3." in words


def test_ranks_in_full_have_the_same_rules_as_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path, _) = generator.write_job(tmp_path / "job", "data", ranks=2, **SMALL)
    (tmp_path / "own.toml").write_text('[[rule]]\ncategory = "workspace"\nfile = "head.py"\n')
    shown: list[PageOptions] = []
    monkeypatch.setattr("snapreport.jobs.build.write_job_report", lambda job, out, options: shown.append(options))
    in_process("job", tmp_path / "job", "-o", tmp_path / "a.html", "--rules", tmp_path / "own.toml", "--jobs", 1)
    timeline = shown[0].read(str(path)).timeline(0)
    assert "workspace" in timeline.allocations["category"].cast(pl.String).to_list()


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    paths = []
    for recording in generator.write_job(tmp_path, "data", ranks=2, **SMALL):
        paths.append(tmp_path / "job" / f"{recording.stem}.digest")
        paths[-1].write_bytes(snapreport.digest(recording))
    listed = tmp_path / "paths.txt"
    listed.write_text("# two ranks\n" + "\n".join(map(str, paths)) + "\n\n")
    expected = build_job(snapreport.job(paths, jobs=1), PageOptions(title="t"))
    url = "file://" + str(tmp_path / "job" / "rank*.digest")
    for argument in (tmp_path / "job", str(tmp_path / "job" / "*.digest"), listed, f"@{listed}"):
        assert build_job(snapreport.job([argument], jobs=1), PageOptions(title="t")) == expected
    assert [row.rank for row in snapreport.job([url], jobs=1).rows] == [0, 1]
    with pytest.raises(SnapshotError, match="no snapshots"):
        snapreport.job([tmp_path / "job" / "*.nothing"])


def test_a_job_of_digests_alone_has_a_report(tmp_path: Path) -> None:
    for path in generator.write_job(tmp_path, "data", ranks=3, **SMALL):
        path.with_suffix(".digest").write_bytes(snapreport.digest(path))
        path.unlink()
    job = snapreport.job([tmp_path], jobs=1)
    assert b"Groups of ranks" in build_job(job)
    assert collections.Counter(row.rank_source for row in job.rows) == {"recording": 3}


def test_loaded_snapshots_give_the_same_job(tmp_path: Path) -> None:
    paths = generator.write_job(tmp_path, "data", ranks=3, **SMALL)
    loaded = [snapreport.load(path) for path in paths]
    assert job_json(job_of(loaded)) == job_json(snapreport.job(paths, jobs=1))
    assert digest_bytes(loaded[0]) == snapreport.digest(paths[0])


def test_a_rank_that_failed_in_attention_has_a_digest() -> None:
    """Scores of 1.5 GiB, twice, and a request for a third such matrix, which failed."""
    path = Path(__file__).parent / "recordings" / "witnesses" / "tight.pickle.xz"
    digest = read_digest(snapreport.digest(path))
    assert (digest.scores, [oom.tried for oom in digest.ooms]) == (1536 << 20, [1536 << 20])


def test_a_rank_more_takes_little_more_than_its_digest(tmp_path: Path) -> None:
    """The reducer stores columns: of 1,024 ranks 10 MB, where digests as objects are 100 MB."""
    path = generator.write_job(tmp_path, "data", ranks=1, **SMALL)[0]
    content = unpack(snapreport.digest(path))
    made = [DigestResult(pack({**content, "rank": rank, "world_size": 200})) for rank in range(200)]
    paths = [f"rank{rank}.digest" for rank in range(200)]
    reduce_job(paths[:1], made[:1])
    held = []
    for count in (50, 200):
        tracemalloc.start()
        job = reduce_job(paths[:count], made[:count])
        assert len(job.groups) == 1 and len(job.stacks) > 5
        held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert (held[1] - held[0]) / 150 < 8000


def test_a_report_names_files_below_their_common_folder(tmp_path: Path) -> None:
    """Reports go to strangers: nothing in one says where its snapshots were on the machine that made it."""
    folder = tmp_path / "secret-place" / "run"
    generator.write_job(folder, ranks=3, steps=2)
    (folder / "rank_00003.pickle").write_bytes(b"cut short")
    out = tmp_path / "job.html"
    result = in_process("job", folder, "-o", out, "--jobs", "1")
    assert result.code == 0, result.err
    report = Report(out.read_text(encoding="utf-8"))
    job = report.manifest["job"]
    assert job["sources"] == [f"rank_0000{rank}_step_00000002_steps.pickle" for rank in range(3)]
    assert job["failed"][0]["source"] == "rank_00003.pickle"
    assert "secret-place" not in json.dumps(report.manifest) + out.read_text(encoding="utf-8")


def test_a_leak_of_one_rank_leads_the_headline(tmp_path: Path) -> None:
    """Also where it is too small to make the rank an outlier."""
    generator.write_job(tmp_path / "job", "data", ranks=8, straggler=3, leak=1 << 20, steps=8, layers=2)
    job = snapreport.job(tmp_path / "job", jobs=1)
    assert job.outliers == []
    first = headline(job)[0]
    assert re.fullmatch(r"On rank 3: Leak: log_step metrics\.py:\d+ keeps 1\.00 MiB every step, .*\.", str(first.text))
    assert first.rows == [3]


def test_a_rank_that_allocates_on_the_device_of_another_is_named(tmp_path: Path) -> None:
    """As torch.load() does without map_location. Where two ranks work on a device, hosts were not recorded."""
    paths = generator.write_job(tmp_path / "job", "data", ranks=3, **SMALL)

    def work(rank: int, device: int) -> None:
        raw = pickle.loads(whole[rank])
        (trace,) = (trace for trace in raw["device_traces"] if trace)
        others = [trace[: len(trace) // 4], *[[]] * (device - 1)] if device else []
        segments = [{**segment, "device": device} for segment in raw["segments"]]
        paths[rank].write_bytes(pickle.dumps({**raw, "device_traces": [*others, trace], "segments": segments}))

    whole = [path.read_bytes() for path in paths]
    for rank in range(3):
        work(rank, rank)
    said = [one for one in headline(snapreport.job(tmp_path / "job", jobs=1)) if "also allocated" in one.text]
    assert [one.rows for one in said] == [[1, 2]]
    begin = r"Ranks 1, 2 also allocated up to \d+(\.\d+)? MiB on cuda:0, where rank 0 works: "
    assert re.match(begin, str(said[0].text))
    work(1, 0)
    assert not any("also allocated" in one.text for one in headline(snapreport.job(tmp_path / "job", jobs=1)))
