"""What the digest of a rank says of its devices, failures and steps, and what is said of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from snapreport.jobs import digest, execution, reduce
from snapreport.jobs.digest_model import DigestFinding
from snapreport.jobs.rank_findings import merged_findings, where_found
from snapreport.jobs.reduce import FirstOom
from snapreport.sentence import sentence

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("123456789", 123_456_789), ("1234567890", None), ("", None), (None, None), ("-1", None), ("٣", None)],
)
def test_numbers_of_the_environment(text: str | None, number: int | None) -> None:
    assert digest._number(text) == number


def devices(*rows: tuple[str, int, int]) -> Any:
    """A snapshot with devices of (kind, peak, events)."""
    own = [
        SimpleNamespace(device=number, kind=kind, peak_bytes=peak, events=range(events))
        for number, (kind, peak, events) in enumerate(rows)
    ]
    return SimpleNamespace(devices=range(len(own)), timeline=own.__getitem__)


def test_the_device_of_a_rank_allocates_most() -> None:
    assert digest.rank_device(devices(("host", 900, 9), ("cuda", 5, 1), ("cuda", 7, 1))) == 2
    assert digest.rank_device(devices(("host", 1, 9), ("cuda", 0, 1))) == 0
    assert digest.rank_device(devices(("cuda", 0, 1), ("cuda", 0, 2))) == 1


def recorded(**more: Any) -> Any:
    usual: dict[str, Any] = {"memory_at_dump": {}, "devices": {}, "reason": "", "oom": {}, "step": None, "dumped_us": 7}
    return SimpleNamespace(recording=SimpleNamespace(recorder=SimpleNamespace(**usual | more)))


def test_memory_of_a_device_and_what_others_use() -> None:
    timeline: Any = SimpleNamespace(device=1, reserved=np.array([900, 30]))

    def found(**more: Any) -> tuple[Any, Any]:
        one = digest._capacity(recorded(**more), timeline)
        return one["capacity"], one["outside"]

    assert found(memory_at_dump={1: (20, 100)}) == (100, 50)
    assert found(memory_at_dump={1: (80, 100)}) == (100, 0)
    assert found(memory_at_dump={0: (20, 100)}, devices={1: SimpleNamespace(total_bytes=64)}) == (64, None)
    assert found(devices={0: SimpleNamespace(total_bytes=64)}) == (None, None)
    without: Any = SimpleNamespace(recording=SimpleNamespace(recorder=None))
    assert digest._capacity(without, timeline) == {"capacity": None, "outside": None}


def steps_of(*spans: tuple[int, int], events: int = 8, times: bool = True, ooms: Sequence[int] = ()) -> Any:
    numbers = range(1, len(spans) + 1)
    table = pl.DataFrame({"step": numbers, "first_event": [a for a, _ in spans], "last_event": [b for _, b in spans]})
    when = [10 * at if times else None for at in range(events)]
    columns = {
        "time_us": pl.Series(when, dtype=pl.Int64),
        "size": range(events),
        "device_free": [None, *range(1, events)],
    }
    return SimpleNamespace(steps=table, events=pl.DataFrame(columns), oom_events=list(ooms), device=0)


def test_steps_and_times_of_events() -> None:
    timeline = steps_of((0, 2), (4, 5))
    assert [digest._step_at(timeline, at) for at in range(-1, 7)] == [None, 1, 1, 1, None, 2, 2, None]
    assert [digest._time_at(timeline, at) for at in (-1, 0, 7, 8)] == [None, 0, 70, None]
    assert digest._step_ends(timeline, 9) == (20, 50) and digest._step_ends(timeline, 1) == (20,)
    assert digest._step_ends(steps_of(), 9) == digest._step_ends(steps_of((0, 2), times=False), 9) == ()
    many = steps_of(*((at, at) for at in range(90)), events=90)
    assert digest._step_ends(many, 99) == tuple(range(0, 640, 10))
    assert digest._step_ends(steps_of((0, -1), (0, 3)), 9) == (0, 30)  # a step without events


def test_failures_of_a_rank() -> None:
    def found(timeline: Any, **more: Any) -> list[tuple[Any, ...]]:
        return [(one.event, one.step, one.us, one.tried, one.free) for one in digest._ooms(recorded(**more), timeline)]

    oom = {"reason": "oom", "oom": {"device": 0, "tried_bytes": 5, "free_bytes": 3}}
    assert found(steps_of((0, 3)), **oom) == [(7, None, 7, 5, 3)]  # PyTorch asks before it records
    assert found(steps_of((0, 7)), **oom, step=12) == [(7, 12, 7, 5, 3)]
    assert found(steps_of((0, 7)), reason="oom") == [(7, 1, 7, 0, None)]
    assert found(steps_of(), reason="oom", oom={"tried_bytes": -5}) == [(7, None, 7, 0, None)]
    assert found(steps_of(), reason="oom", oom={"device": 1}) == found(steps_of(), reason="end") == []
    assert found(steps_of((0, 3), ooms=(2, 5)), **oom) == [(2, 1, 20, 2, 2), (5, None, 50, 5, 5)]
    assert len(found(steps_of(events=30, ooms=range(30)))) == 20


def test_a_process_for_each_file_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot takes 180 MiB and six times its size, compressed thirty times as much."""
    sizes = {"a.pickle": 20 * MIB, "b.pickle.GZ": 1 * MIB, "c.xz": 2 * MIB}
    monkeypatch.setattr(execution, "size_of", sizes.__getitem__)
    assert [execution.need_of(path) // MIB for path in sizes] == [300, 360, 540]
    monkeypatch.setattr(execution.os, "cpu_count", lambda: 8)
    free = {"bytes": 1500 * MIB}
    monkeypatch.setattr(execution, "available_memory", lambda with_swap: free["bytes"])
    assert execution.processes_for(["a.pickle"]) == 5
    assert execution.processes_for(list(sizes)) == 2
    assert execution.processes_for([]) == 8
    free["bytes"] = 100 * MIB
    assert execution.processes_for(["a.pickle"]) == 1
    free["bytes"] = 0  # unknown: 4 GiB
    assert execution.processes_for(["c.xz"]) == 7


def found_on(*ranks: Sequence[tuple[str, str, int]], device: str = "") -> Any:
    """A job whose ranks have findings of (rule, severity, bytes). ``device``: that their titles name."""
    rows, digests = [], []
    for number, findings in enumerate(ranks):
        own = [
            DigestFinding(kind="leak", severity=severity, rule=rule, title=sentence(f"{rule}{device}"), detail=(),
                          bytes=size, confidence="measured", stack="")
            for rule, severity, size in findings
        ]  # fmt: skip
        keys = [(("leak", rule, ""), severity, size) for rule, severity, size in findings]
        packed = SimpleNamespace(findings=keys, read=lambda own=own: SimpleNamespace(findings=own))
        rows.append(SimpleNamespace(packed=packed))
        digests.append(SimpleNamespace(device=number % 2, kind="cuda"))
    return SimpleNamespace(rows=rows, digests=digests, ranks=np.arange(len(rows)), world=len(rows))


def merged(*sizes: int, device: str = "", of: int = 0) -> tuple[int, int | None, Any]:
    """(bytes, the rank whose numbers these are, the rank that has most) of one finding of ``of`` ranks or all."""
    ranks = [[("a", "warning", size)] for size in sizes]
    (one,) = merged_findings(found_on(*ranks, *[[] for _ in range(of - len(sizes))], device=device))
    return one.finding.bytes, one.row, one.most


def test_findings_of_all_ranks() -> None:
    assert merged(5, 5, 5) == (5, None, None)
    # A typical one of most ranks; the one that has most is named if it is a tenth more.
    assert merged(110, 100, 70) == (100, 1, None) and merged(111, 100, 70) == (100, 1, (0, 111))
    assert merged(100, 95, 94, 1) == (95, 1, None)
    assert merged(90, 10, 20) == (20, 2, (0, 90))
    assert merged(70, 90, of=4) == (90, 1, None)  # of half of them: the one that has most
    assert merged(85, 80, 90, of=5) == (85, 0, None)
    assert merged(5, 5, 5, device=" on cuda:1") == (5, 1, None) and merged(5, device=" on cuda:0", of=2)[1] is None
    (one,) = merged_findings(found_on([("a", "warning", 90)], [("a", "error", 2)], [("a", "error", 4)]))
    assert (one.finding.severity, one.finding.bytes, one.rows) == ("error", 4, [0, 1, 2])  # the worst of the two


def test_findings_in_order() -> None:
    job = found_on(
        [("a", "info", 90), ("b", "error", 2), ("c", "warning", 5)], [("d", "warning", 3)], [("d", "warning", 3)]
    )
    assert [one.finding.rule for one in merged_findings(job)] == ["b", "d", "c", "a"]
    job = found_on([("a", "warning", 9)], [("a", "warning", 1)], [("a", "warning", 1)])
    (one,) = merged_findings(job)
    assert str(where_found(job, one)) == "on all 3 ranks, most on rank 0: 9 B"


def test_worst_and_typical_ranks() -> None:
    def job(*peaks: int, ooms: Sequence[int] = (), outliers: Sequence[int] = ()) -> Any:
        groups = [SimpleNamespace(rows=list(range(len(peaks) - 1))), SimpleNamespace(rows=[len(peaks) - 1])]
        one: Any = SimpleNamespace(
            ooms=[FirstOom(row, None) for row in ooms], peaks=np.array(peaks), groups=groups,  # type: ignore[arg-type]
            outliers=[SimpleNamespace(row=row) for row in outliers],
        )  # fmt: skip
        one.worst = reduce.Job.worst.func(one)  # type: ignore[attr-defined]
        return one

    def typical(*peaks: int, **more: Sequence[int]) -> int:
        found: int = reduce.Job.typical.func(job(*peaks, **more))  # type: ignore[attr-defined]
        return found

    assert job(3, 9, 4).worst == 1 and job(3, 9, 4, ooms=[2, 0]).worst == 2
    assert typical(1, 2, 3, 4, 9) == 1 and typical(1, 2, 3, 9) == 1
    assert typical(1, 2, 9, 4, 5, outliers=[0]) == 1 and typical(7, 7, 1, outliers=[0, 1]) == 0
