"""What a program joins its collected results into, found by plain loops over all allocations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl

from snapreport.findings.joined_results import joined_results

MIB = 1 << 20
Row = dict[str, int]


def plain(rows: list[Row], results: list[int], others: list[int], events: int) -> list[int]:
    """A row of a MiB or more is joined if a line has two results or more just before it, or two or more of one size, as
    large together, and if that is so for half of what its own line allocates. While it is alive, what is as large or
    twice as large is made of it.
    """

    def end(row: Row) -> int:
        return events if row["free_event"] < 0 else row["free_event"]

    large = [at for at in others if rows[at]["size"] >= MIB]
    sums = []
    for at in large:
        born = rows[at]["alloc_event"]
        alive = [rows[of] for of in results if rows[of]["alloc_event"] < born <= end(rows[of])]
        lines = [[row["size"] for row in alive if row["stack"] == stack] for stack in {row["stack"] for row in alive}]
        lines += [[size] * line.count(size) for line in lines for size in set(line)]
        if any(len(sizes) > 1 and sum(sizes) == rows[at]["size"] for sizes in lines):
            sums.append(at)
    for stack in {rows[at]["stack"] for at in large}:
        of_line = [at for at in large if rows[at]["stack"] == stack]
        if 2 * len([at for at in of_line if at in sums]) < len(of_line):
            sums = [at for at in sums if at not in of_line]
    return [
        at
        for at in large
        if any(
            rows[at]["size"] in (rows[of]["size"], 2 * rows[of]["size"])
            and rows[of]["alloc_event"] <= rows[at]["alloc_event"] < end(rows[of])
            for of in sums
        )
    ]


def test_found_as_by_plain_loops() -> None:
    found = 0
    for seed in range(700):
        rng = np.random.default_rng(seed)
        lines, count = int(rng.integers(1, 3)), 12
        births = np.sort(rng.choice(24, count, replace=False))
        rows = [
            {
                "size": int(rng.integers(1, 4)) * MIB if number % 2 else MIB // int(rng.integers(1, 3)),
                "stack": int(rng.integers(1, 3)) + 2 if number % 2 else int(rng.integers(0, lines)),
                "alloc_event": int(birth),
                "free_event": -1 if rng.random() < 0.3 else int(birth + rng.integers(1, 12)),
            }
            for number, birth in enumerate(births)
        ]
        is_result = np.array([row["stack"] < 2 for row in rows])
        timeline: Any = SimpleNamespace(allocations=pl.DataFrame(rows), events=range(36))
        expected = plain(rows, np.flatnonzero(is_result).tolist(), np.flatnonzero(~is_result).tolist(), 36)
        assert joined_results(timeline, is_result, ~is_result).tolist() == expected
        found += bool(expected)
    assert found > 100  # others find nothing
