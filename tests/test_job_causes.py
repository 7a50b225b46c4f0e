"""Causes of outliers: named where one rule explains the excess, on digests with planted ratios and recorded ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fake_torch
import generator
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import snapreport
from snapreport.contracts import plain
from snapreport.jobs.digest_format import pack
from snapreport.jobs.digest_model import AXES, METRICS, Digest, DigestCurve, DigestStack, plain_digest
from snapreport.jobs.execution import DigestResult
from snapreport.jobs.job_json import job_json
from snapreport.jobs.reduce import Job, reduce_job
from snapreport.jobs.stack_maxima import stack_maxima

MIB = 1 << 20


@dataclass(frozen=True)
class Line:
    """So many allocations of one size. grows: with the batch and the length ("linear"), with its square, or not."""

    name: str
    category: str
    size: int
    count: int
    grows: str = ""


# Four layers, each with four experts; an embedding; AdamW.
LINES = (
    Line("__init__ attention.py:20", "parameter", 4 * MIB, 8),
    Line("__init__ moe.py:12", "parameter", 2 * MIB, 16),
    Line("__init__ embedding.py:7", "parameter", 24 * MIB, 1),
    Line("step adam.py:64", "optimizer state", 4 * MIB, 44),
    Line("backward train.py:97", "gradient", 4 * MIB, 22),
    Line("forward attention.py:31", "activation", 3 * MIB, 12, "linear"),
    Line("forward moe.py:40", "activation", 5 * MIB, 16, "linear"),
    Line("forward attention.py:35", "activation", 6 * MIB, 4, "scores"),
    Line("forward embedding.py:19", "activation", 7 * MIB, 1, "linear"),
    Line("collate data.py:58", "input", MIB, 2, "linear"),
)
SCORES = 6 * MIB
GROWING = tuple(line for line in LINES if line.grows)


def digest(lines: tuple[Line, ...], scores: int = SCORES) -> Digest:
    stacks = tuple(
        DigestStack(
            identity=hashlib.blake2b(line.name.encode(), digest_size=8).hexdigest(),
            bytes=line.size * line.count,
            count=line.count,
            function=line.name.split()[0],
            file=line.name.split()[1].split(":")[0],
            line=int(line.name.split(":")[1]),
            name=line.name,
            category=line.category,
            callers=(),
            most=line.size * line.count,
            most_count=line.count,
        )
        for line in lines
    )
    total = sum(stack.bytes for stack in stacks)
    sums: dict[str, int] = {}
    for line in lines:
        sums[line.category] = sums.get(line.category, 0) + line.size * line.count
    curve = DigestCurve(np.array([0]), np.array([1]), {metric: np.array([total]) for metric in METRICS})
    return Digest(
        snapreport=snapreport.__version__,
        source="",
        file_bytes=0,
        settings={},
        rank=None,
        world_size=None,
        host="",
        process="",
        reason="",
        step=None,
        device=0,
        peak_allocated=total,
        curves=dict.fromkeys(AXES, curve),
        categories=tuple(sums.items()),
        stacks=stacks,
        scores=scores,
    )


def job(own: Digest, ranks: int = 6, rank: int = 4) -> Job:
    others = pack(plain_digest(digest(LINES)))
    made = [DigestResult(pack(plain_digest(own)) if number == rank else others) for number in range(ranks)]
    return reduce_job([f"rank{number}.digest" for number in range(ranks)], made)


def cause(own: Digest) -> dict[str, Any] | None:
    (outlier,) = plain(job_json(job(own)))["outliers"]
    assert outlier["rank"] == 4
    found: dict[str, Any] | None = outlier["cause"]
    assert (found["sentence"] if found else ".") in outlier["sentence"]
    return found


def changed(change: Callable[[Line], Line]) -> tuple[Line, ...]:
    return tuple(map(change, LINES))


def larger(factor: float, scores: float) -> tuple[Line, ...]:
    times = {"linear": factor, "scores": scores, "": 1}
    return changed(lambda line: replace(line, size=int(line.size * times[line.grows])))


@pytest.mark.parametrize("factor", [1.25, 1.5, 3])
def test_activations_that_are_all_larger_by_one_factor_are_a_batch(factor: float) -> None:
    found = cause(digest(larger(factor, factor), int(SCORES * factor)))
    assert found and (found["kind"], found["factor"]) == ("batch", factor)
    assert found["sentence"] == f"Its activations are {factor:g} times as large: a larger batch."


def test_scores_that_grow_by_the_square_are_longer_sequences() -> None:
    found = cause(digest(larger(1.5, 2.25), int(SCORES * 2.25)))
    assert found and (found["kind"], found["factor"]) == ("sequence", 1.5)
    assert "attention scores up to 2.25 times: longer sequences." in found["sentence"]


def test_attention_without_scores_in_memory_leaves_both_open() -> None:
    fused = tuple(line for line in larger(1.5, 1) if line.grows != "scores")
    others = tuple(line for line in LINES if line.grows != "scores")
    made = [DigestResult(pack(plain_digest(digest(fused if rank == 2 else others, 0)))) for rank in range(6)]
    (outlier,) = plain(job_json(reduce_job([f"rank{rank}.digest" for rank in range(6)], made)))["outliers"]
    assert outlier["cause"]["kind"] == "batch or sequence"
    assert outlier["cause"]["sentence"].endswith("1.5 times as large: a larger batch or longer sequences.")


def test_one_more_layer_is_more_of_the_same_size() -> None:
    def layer(line: Line) -> Line:
        per_layer = line.count // 4 if "embedding" not in line.name and line.category != "input" else 0
        return replace(line, count=line.count + per_layer)

    found = cause(digest(changed(layer)))
    assert found and (found["kind"], found["factor"], found["count"]) == ("layers", 1.25, 1)
    assert found["sentence"] == "It has 1.25 times as many layers: one more layer."


def test_one_more_expert_divides_the_tokens_among_more() -> None:
    def expert(line: Line) -> Line:
        if line.name == "forward moe.py:40":  # as many bytes
            return replace(line, size=line.size * 4 // 5, count=20)
        if line.category in ("optimizer state", "gradient"):
            return replace(line, count=line.count + (8 if line.category == "optimizer state" else 4))
        return replace(line, count=line.count + 4) if line.name == "__init__ moe.py:12" else line

    found = cause(digest(changed(expert)))
    assert found and (found["kind"], found["factor"]) == ("experts", 1.25)
    assert found["sentence"] == "It has 1.25 times as many experts: one more expert for every 4."


@pytest.mark.parametrize("category", ["parameter", "unknown"])
def test_all_parameters_again_are_a_second_model(category: str) -> None:
    parameters = [line for line in LINES if line.category == "parameter"]
    copy = Line("copy train.py:31", category, sum(line.size * line.count for line in parameters) // 25, 25)
    found = cause(digest((*LINES, copy)))
    assert found and (found["kind"], found["count"]) == ("model", 1)
    assert found["sentence"] == "It holds all parameters 2 times: a second model."


def test_a_part_of_the_parameters_again_is_not() -> None:
    assert cause(digest((*LINES, Line("copy train.py:31", "parameter", 24 * MIB, 2)))) is None


@given(st.lists(st.floats(1.1, 3), min_size=5, max_size=5))
def test_factors_of_their_own_prove_nothing(factors: list[float]) -> None:
    """Whatever is named, its factor explains 95% of what this rank has more."""
    grown = iter(factors)
    lines = changed(lambda line: replace(line, size=int(line.size * next(grown))) if line.grows else line)
    outliers = plain(job_json(job(digest(lines))))["outliers"]
    if not outliers or not (found := outliers[0]["cause"]):
        return
    assert found["kind"] in ("batch", "batch or sequence")
    more = {line.name: line.size * line.count * (factor - 1) for line, factor in zip(GROWING, factors, strict=True)}
    of_factor = [
        more[line.name]
        for line, factor in zip(GROWING, factors, strict=True)
        if abs(factor / found["factor"] - 1) < 0.021
    ]
    assert sum(of_factor) >= 0.94 * sum(more.values())


def test_routing_to_experts_is_no_batch() -> None:
    lines = changed(lambda line: replace(line, size=2 * line.size) if line.name == "forward moe.py:40" else line)
    assert cause(digest(lines)) is None


def test_the_generated_leak_and_batch_are_named(tmp_path: Path) -> None:
    small = {"hidden": 256, "layers": 2, "micro_batches": 2, "operations": 4, "vocabulary": 4000, "ranks": 4}
    generator.write_job(tmp_path / "leak", "data", **small, steps=6, straggler=2, leak=24 << 20)
    (leak,) = plain(job_json(snapreport.job(tmp_path / "leak", jobs=1)))["outliers"]
    assert leak["cause"]["kind"] == "leak" and leak["cause"]["factor"] is None
    assert leak["sentence"].endswith("It leaks: train/metrics.py:31 keeps more in every step.")
    generator.write_job(tmp_path / "heavy", "data", **small, steps=2, heavy=1, factor=1.5)
    (heavy,) = plain(job_json(snapreport.job(tmp_path / "heavy", jobs=1)))["outliers"]
    assert heavy["cause"]["kind"] in ("batch", "batch or sequence")
    assert heavy["cause"]["factor"] == pytest.approx(1.5, abs=0.001)


@pytest.mark.parametrize("torch", fake_torch.parameters())
def test_one_more_layer_of_a_recorded_stage(torch: fake_torch.FakeTorch, tmp_path: Path) -> None:
    done = torch.run(fake_torch.PROGRAMS / "ranks.py", tmp_path, "stages", "layer", 3, 8, 1)
    assert done.code == 0, done.err
    (outlier,) = plain(job_json(snapreport.job(tmp_path, jobs=1)))["outliers"]
    assert (outlier["rank"], outlier["cause"]["kind"], outlier["cause"]["factor"]) == (3, "layers", 1.25)


def test_a_rank_of_a_slope_is_compared_with_its_place_on_the_line() -> None:
    """Stage 2 of nine, each with less than the one before, has 1.5 times what lies between its neighbours; 1.65 times
    the median of all.
    """

    def stage(rank: int) -> Digest:
        units = (30 - rank) * (15 if rank == 2 else 10)
        return digest(changed(lambda line: replace(line, size=line.size // 100 * units) if line.grows else line), 0)

    made = [DigestResult(pack(plain_digest(stage(rank)))) for rank in range(9)]
    found = reduce_job([f"rank{rank}.digest" for rank in range(9)], made)
    assert [(group.rows, group.kind) for group in found.groups if len(group.rows) > 1] == [([*range(1, 8)], "slope")]
    (outlier,) = plain(job_json(found))["outliers"]
    assert (outlier["rank"], outlier["cause"]["kind"]) == (2, "batch or sequence")
    assert outlier["cause"]["factor"] == pytest.approx(1.5, abs=0.01)


def test_ranks_that_no_recording_states_are_those_of_names_or_in_order() -> None:
    made = DigestResult(pack(plain_digest(digest(LINES))))
    named = reduce_job(["rank7.digest", "rank3.digest"], [made, made])
    assert [(row.rank, row.rank_source) for row in named.rows] == [(3, "file name"), (7, "file name")]
    mixed = reduce_job(["rank0.digest", "b.digest", "a.digest"], [made] * 3)
    assert [(row.rank, row.rank_source, row.path[0]) for row in mixed.rows] == [
        (0, "file name", "r"), (1, "order", "a"), (2, "order", "b"),
    ]  # fmt: skip


allocation = st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(-1, 20), st.integers(1, 8), st.booleans())


@given(st.lists(allocation, max_size=12))
def test_maxima_of_stacks(drawn: list[tuple[int, int, int, int, bool]]) -> None:
    """Against a replay event by event; an event is a free or an allocation, never both."""
    rows = [
        (stack, size, 2 * born if born >= 0 else -1, 2 * (born + life) + 1 if is_freed else -1)
        for stack, size, born, life, is_freed in drawn
    ]
    table = pl.DataFrame(
        rows, orient="row",
        schema={"stack": pl.Int32, "size": pl.Int64, "alloc_event": pl.Int64, "free_event": pl.Int64},
    ).with_columns(category=pl.lit("activation"))  # fmt: skip
    found = {stack: (most, count) for stack, most, count in stack_maxima(table, 100).iter_rows()}
    for stack in {row[0] for row in rows}:
        own = [row for row in rows if row[0] == stack]
        live = [
            [size for _, size, born, freed in own if born <= at and (freed < 0 or freed > at)] for at in range(-1, 100)
        ]
        assert found[stack][0] == max(map(sum, live))
        assert found[stack][1] in [len(sizes) for sizes in live if sum(sizes) == found[stack][0]]
    assert len(found) == len({row[0] for row in rows})
    assert np.all(np.diff(list(found)) > 0)
