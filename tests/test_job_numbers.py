"""Numbers that a job's sentences stand on, by hand or by plain loops: lines through ranks, levels, limits of outliers,
columns of curves and of the heat map, names of causes, ranks that are missing.
"""

from __future__ import annotations

import hashlib
import itertools
import statistics
import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from snapreport.errors import SnapshotError
from snapreport.jobs import headline
from snapreport.jobs.cause_text import cause_json, cause_sentence
from snapreport.jobs.causes import Cause
from snapreport.jobs.curves import event_curve, step_curve, time_curve
from snapreport.jobs.digest import _name, _step_at, _time_at
from snapreport.jobs.digest_format import MAGIC, pack, unpack
from snapreport.jobs.digest_model import METRICS, DigestCurve, _curve, _sentence
from snapreport.jobs.groups import Group, _other_parts, find_groups
from snapreport.jobs.headline import _elsewhere, _groups, _out_of_memory
from snapreport.jobs.heat import HeatAxis, _columns, _fill, clipped_end, heat_of
from snapreport.jobs.imbalance import imbalance_of
from snapreport.jobs.outliers import _named, find_outliers
from snapreport.jobs.place_changes import followed, growth, line_of_growth, place_name
from snapreport.jobs.rank_names import is_digest, missing_ranks, newest_of_each, stem
from snapreport.jobs.rank_text import rank_ranges, ranks_text
from snapreport.jobs.reduce import _clock
from snapreport.jobs.roles import find_roles
from snapreport.jobs.runs import Run
from snapreport.jobs.slopes import fitted_lines, is_slope, robust_deviation
from snapreport.jobs.states import SILENT_US, state_sentences, states_of
from snapreport.reading.fields import MAX_SIZE
from snapreport.sentence import parts_json, place_part, sentence

MIB = 1 << 20


def plain_line(x: list[float], y: list[float]) -> tuple[list[float], float]:
    """Theil and Sen: the median slope of all pairs."""
    slopes = [(y[b] - y[a]) / (x[b] - x[a]) for a in range(len(x)) for b in range(a + 1, len(x))]
    slope = statistics.median(slopes) if slopes else 0.0
    level = statistics.median(value - at * slope for at, value in zip(x, y, strict=True))
    return [max(level + at * slope, 0.0) for at in x], slope


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 20])
def test_a_line_has_the_median_slope_of_all_pairs(count: int) -> None:
    rng = np.random.default_rng(count)
    x = np.sort(rng.choice(64, count, replace=False)).astype(float)
    values = rng.uniform(-20, 100, (count, 3))
    fitted, slope = fitted_lines(x, values)
    for column in range(3):
        expected, own = plain_line(x.tolist(), values[:, column].tolist())
        assert fitted[:, column] == pytest.approx(expected) and slope[column] == pytest.approx(own)


def test_a_line_through_many_ranks() -> None:
    """Of a thousand, pairs of 200 at equal distances; both ends are among them."""
    x = np.arange(1000.0)
    y = (7 + 3 * x)[:, None]
    y[1:1000:2] += 500
    fitted, slope = fitted_lines(x, y)
    assert slope[0] == pytest.approx(3, abs=0.1) and len(fitted) == 1000
    assert fitted_lines(x[:200], y[:200])[1] == plain_line(x[:200].tolist(), y[:200, 0].tolist())[1]


def test_a_deviation_ignores_what_is_far_away() -> None:
    assert robust_deviation(np.array([1, 2, 3, 4, 100])) == pytest.approx(1.4826)
    assert robust_deviation(np.array([3.0])) == 0


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([10, 20, 30], False),
        ([10, 20, 30, 40], True),
        ([40, 30, 20, 10], True),
        ([99, 20, 30, 40, 0], False),  # five count all
        ([10, 20, 20, 40, 30], True),  # of ten pairs eight rise, one falls: 0.7
        ([10, 20, 30, 15, 40], False),  # eight rise, two fall
        ([99, 20, 30, 40, 50, 0], True),  # of six the ends do not
        ([0, 95, 97, 99, 101, 103, 105, 0], True),  # a tenth of the median from the first to the last
        ([0, 96, 98, 100, 102, 104, 106, 0], False),
        ([0, 10, 40, 20, 50, 30, 60, 0], False),
        ([0, 50, 45, 40, 35, 30, 25, 20, 999, 0], True),  # one of eight ran out of memory
        ([0, 50, 45, 40, 35, 30, 25, 998, 999, 0], True),
        ([0, 50, 45, 40, 35, 30, 997, 998, 999, 0], False),  # three are too many
    ],
)
def test_peaks_that_follow_the_rank(totals: list[int], expected: bool) -> None:
    assert is_slope(np.arange(len(totals)), np.array(totals, float)) is expected


def test_peaks_of_thousands_of_ranks_follow_the_rank() -> None:
    count = 2000
    assert is_slope(np.arange(count), np.arange(count) + 1000.0)
    assert not is_slope(np.arange(count), np.random.default_rng(3).uniform(500, 1500, count))


def found_above(totals: list[float], kind: str = "level", usual: float | None = None) -> list[int]:
    """The outliers of one group whose ranks have no stacks."""
    peaks = np.array(totals) * MIB
    typical = np.full(len(peaks), float(np.median(peaks)) if usual is None else usual * MIB)
    group = Group(list(range(len(peaks))), np.zeros((len(peaks), 1)), typical, None, kind, True)
    return [outlier.row for outlier in find_outliers([group], np.zeros((len(peaks), 1)), peaks)]


ONE_BYTE = 1 / MIB


@pytest.mark.parametrize(
    ("totals", "found"),
    [
        ([100] * 7 + [102], []),  # 2%
        ([100] * 7 + [102 + ONE_BYTE], [7]),
        ([10] * 7 + [11], []),  # 1 MiB
        ([10] * 7 + [11 + ONE_BYTE], [7]),
        # Half of the others 10 MiB above the rest, which is a deviation of 14.8 MiB: six of them above.
        ([1010, 990] * 3 + [1010, 1088], []),
        ([1010, 990] * 3 + [1010, 1090], [7]),
        # Of five to seven ranks eight deviations, of fewer ten.
        ([1004, 996] * 3 + [1094], []),
        ([1004, 996] * 3 + [1096], [6]),
        ([1004, 996] * 2 + [1094], []),
        ([1004, 996] * 2 + [1096], [4]),
        ([1010, 990, 1010, 1147], []),
        ([1010, 990, 1010, 1149], [3]),
    ],
)
def test_how_far_above_its_level_an_outlier_is(totals: list[float], found: list[int]) -> None:
    assert found_above(totals, usual=1000 if totals[0] > 100 else totals[0]) == found


@pytest.mark.parametrize(
    ("totals", "found"),
    [
        ([100, 101, 102, 103, 104, 105, 106, 300], [7]),
        ([100, 101, 102, 103, 104, 105, 106, 107], []),
        # A quarter of what it has more is above the next: 104 is the median, 300 is 196 above it.
        ([100, 100, 103, 103, 105, 105, 251, 300], [6, 7]),
        ([300, 100, 104, 101, 103, 102, 105, 99, 106, 98, 107, 97], [0]),
        ([100, 110, 120, 130, 140, 150, 160, 170, 180, 190, 200, 210], []),
        ([100, 110, 120, 130, 140, 150, 160, 170, 180, 190, 200, 900], [11]),
    ],
)
def test_outliers_of_a_spread(totals: list[float], found: list[int]) -> None:
    assert sorted(found_above(totals, "spread")) == found


def test_a_stack_that_only_one_rank_has_makes_it_an_outlier() -> None:
    """Of 8 ranks of 100 MiB, one has a stack of 30 MiB more; below 2% it does not count, nor where two have it."""

    def found(own: dict[int, float], kind: str = "level", ranks: int = 8) -> list[int]:
        stacks = np.full((ranks, 2), 50.0) * MIB
        stacks[:, 1] = 0
        for rank, size in own.items():
            stacks[rank, 1] = size * MIB
        totals = np.full(ranks, 100.0 * MIB)
        totals[: ranks // 2] -= 4 * MIB  # a deviation of the totals that hides the excess
        totals += stacks[:, 1]
        expected = np.tile([50.0 * MIB, 0], (ranks, 1))
        group = Group(list(range(ranks)), expected, np.full(ranks, 98.0 * MIB), None, kind, True)
        return sorted(outlier.row for outlier in find_outliers([group], stacks, totals))

    assert found({5: 12}) == [5]
    assert found({5: 1.9}) == []
    assert found({5: 12, 6: 12}) == []  # more than one in eight
    assert found({5: 12, 6: 3.5}) == [5] and found({5: 12, 6: 3.7}) == []  # 70% above the next
    assert found({5: 12, 9: 12}, ranks=16) == [5, 9]
    assert found({5: 12, 6: 1.1}, "spread") == [5] and found({5: 12, 6: 1.3}, "spread") == []
    assert found({2: 12}, ranks=3) == []  # of three ranks nobody knows which is usual


def test_the_stacks_of_an_excess_are_named() -> None:
    """Those with a twentieth of it, most first, at most ten."""
    stacks = np.array([100.0, 0, 55, 5, 4.9, 30])
    expected = np.array([40.0, 0, 0, 0, 0, 30])
    assert _named(stacks, expected, 100.0) == [(0, 60, 100, 40), (2, 55, 55, 0), (3, 5, 5, 0)]
    many = np.arange(30.0)
    assert [row[0] for row in _named(many, np.zeros(30), 10.0)] == list(range(29, 19, -1))


def levels(totals: list[float]) -> list[list[int]]:
    """Rows of each group, of ranks that have one stack."""
    peaks = np.array(totals, float)
    return [group.rows for group in find_groups(peaks[:, None], peaks, np.zeros(len(peaks)))]


def test_levels_are_half_a_percent_apart() -> None:
    assert levels([1000, 1000, 1000, 1005, 1005, 1005]) == [[0, 1, 2, 3, 4, 5]]
    assert levels([1000, 1000, 1000, 1006, 1006, 1006]) == [[0, 1, 2], [3, 4, 5]]
    # Two replicas of each stage, a whole number of ranks apart; pairs by chance are not.
    assert levels([1000, 2000, 3000, 1000, 2000, 3000]) == [[0, 3], [1, 4], [2, 5]]
    assert levels([1000, 1000, 2000, 3000, 2000, 3000]) != [[0, 1], [2, 4], [3, 5]]
    # Gaps between levels are three times as wide as those within.
    assert levels([1000, 1002, 1004, 1010, 1012, 1014]) == [[0, 1, 2], [3, 4, 5]]
    assert levels([1000, 1002, 1004, 1009.5, 1011.5, 1013.5]) == [[0, 1, 2, 3, 4, 5]]


def test_ranks_beside_all_levels_join_the_nearest() -> None:
    """Rank 7 exceeds the lower level by little, and lacks most of the upper one."""
    assert levels([1000] * 4 + [2000] * 3 + [1200]) == [[0, 1, 2, 3, 7], [4, 5, 6]]
    assert levels([1000] * 4 + [2000] * 3 + [2300]) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_rank_with_parameters_of_its_own_beside_all_levels_is_apart() -> None:
    """Of the last rank, 2% of the level's parameters are a head; of others, 2% of its peak, where two have as much."""

    def ends(totals: list[float], own: dict[int, float]) -> list[list[int]]:
        peaks = np.array(totals, float)
        parameters = np.full(len(peaks), 100.0)
        for row, size in own.items():
            parameters[row] += size
        groups = find_groups(peaks[:, None], peaks, parameters)
        return [group.rows for group in groups if group.kind == "end"]

    last = [1000.0] * 4 + [2000] * 3 + [2300]
    assert ends(last, {7: 2}) == [] and ends(last, {7: 2.1}) == [[7]]
    inner = [1000.0] * 4 + [2300] + [2000] * 3
    assert ends(inner, {4: 300}) == []
    both = [1000.0] * 4 + [2300, 2300] + [2000] * 4
    assert ends(both, {4: 300, 5: 300}) == [[4, 5]] and ends(both, {4: 40, 5: 40}) == []


def test_levels_at_their_limits() -> None:
    assert levels([1000] * 4 + [1005] * 3) == [list(range(7))]  # half a percent, no more
    three = find_groups(np.ones((5, 1)), np.array([1000.0] * 3 + [2000, 3000]), np.zeros(5))
    assert three[0].kind == "level"  # 60% of the ranks
    assert levels([1000, 1000, 2000, 2000]) == [[0, 1], [2, 3]]
    ends = [2300.0] + [1000] * 4 + [2000] * 3
    found = find_groups(np.array(ends)[:, None], np.array(ends), np.array([102.1] + [100] * 7))
    assert [group.rows for group in found if group.kind == "end"] == [[0]]
    both = np.array([1000.0] * 4 + [2300, 2311.5] + [2000] * 4)
    found = find_groups(both[:, None], both, np.array([100.0] * 4 + [400] * 2 + [100] * 4))
    assert [group.rows for group in found if group.kind == "end"] == [[4, 5]]


def test_which_groups_are_judged() -> None:
    """Three ranks of a level or a spread, four between the ends of a slope; never the ends."""

    def judged(totals: list[float]) -> list[tuple[str, int, bool]]:
        peaks = np.array(totals, float)
        found = find_groups(peaks[:, None], peaks, np.zeros(len(peaks)))
        return [(group.kind, len(group.rows), group.is_judged) for group in found]

    assert judged([1000] * 3 + [2000] * 3) == [("level", 3, True)] * 2
    assert judged([1000, 2000] * 2) == [("level", 2, False)] * 2
    assert judged([1000, 1700, 1200]) == [("spread", 3, True)]
    assert judged([1000, 1700]) == [("spread", 2, False)]
    assert judged([10, 20, 30, 40, 50]) == [("end", 1, False), ("slope", 3, False), ("end", 1, False)]
    assert judged([10, 20, 30, 40, 50, 60]) == [("end", 1, False), ("slope", 4, True), ("end", 1, False)]
    assert judged([10, 20, 30, 40, 40, 50, 60])[1] == ("slope", 5, True)


@pytest.mark.parametrize(
    ("rows", "world", "own", "ends"),
    [
        (range(8), 8, {0: (30, 30)}, [0]),
        (range(8), 8, {0: (30, 30), 7: (9, 9)}, [0, 7]),
        (range(8), 9, {0: (30, 30), 7: (9, 9)}, [0]),
        (range(1, 8), 8, {7: (9, 9)}, [7]),
        (range(8), 8, {7: (2, 9)}, []),  # 2% of the others' parameters
        (range(8), 8, {7: (2.1, 9)}, [7]),
        (range(8), 8, {7: (9, 2)}, []),  # in stacks that the others lack
        (range(8), 8, {7: (9, 2.1)}, [7]),
        (range(8), 8, {7: (9, 9), 3: (0, 1)}, []),
        ([0, 1, 2, 7], 8, {7: (9, 9)}, [7]),
        ([0, 1, 7], 8, {7: (9, 9)}, []),  # one rank between shows nothing
    ],
)
def test_an_embedding_or_a_head_of_its_own(
    rows: Any, world: int, own: dict[int, tuple[float, float]], ends: list[int]
) -> None:
    """``own``: more parameters of a rank, and its bytes in a stack of its own; the last rank's is another."""
    stacks, parameters = np.zeros((9, 3)), np.full(9, 100.0)
    stacks[:, 0] = 500
    for row, (more, alone) in own.items():
        parameters[row] += more
        stacks[row, 1 if row == 0 else 2] = alone
    assert _other_parts(np.array(rows), stacks, parameters, world) == ends


def roles(stacks: list[list[float]], totals: list[float] | None = None, parameters: list[float] | None = None) -> Any:
    table = np.array(stacks, float)
    sums = table.sum(axis=1) if totals is None else np.array(totals, float)
    own = np.zeros(len(table)) if parameters is None else np.array(parameters, float)
    return find_roles(table, sums, own, np.zeros(len(table), bool), np.zeros(table.shape[1], bool))


def test_a_role_shares_three_quarters_of_its_bytes() -> None:
    """What only one of two ranks has is at most a quarter of the smaller one."""
    assert roles([[80, 20, 0]] * 3 + [[80, 0, 0]] * 3) == [[0, 1, 2, 3, 4, 5]]
    assert roles([[80, 16, 0]] * 3 + [[80, 0, 5]] * 3) == [[0, 1, 2, 3, 4, 5]]  # 21 of 85
    assert roles([[80, 21, 0]] * 3 + [[80, 0, 0]] * 3) == [[0, 1, 2], [3, 4, 5]]
    assert roles([[60, 40, 0]] * 3 + [[60, 0, 40]] * 3) == [[0, 1, 2], [3, 4, 5]]


def test_a_rank_that_has_more_is_no_role_of_its_own() -> None:
    usual = [60.0, 40, 0]
    assert roles([usual] * 4 + [[60, 40, 90]]) == [[0, 1, 2, 3, 4]]
    assert roles([usual] * 4 + [[60, 40, 90]], parameters=[50] * 4 + [52.1]) == [[0, 1, 2, 3], [4]]  # a head
    assert roles([usual] * 4 + [[60, 40, 90]], parameters=[50] * 4 + [52]) == [[0, 1, 2, 3, 4]]
    assert roles([usual] * 2 + [[60, 40, 90]]) == [[0, 1], [2]]  # of three nobody knows
    assert roles([usual] * 4 + [[10, 0, 30]]) == [[0, 1, 2, 3], [4]]  # less, and of other stacks


def test_two_ranks_with_more_of_one_stack_are_no_role() -> None:
    """Ranks 3 and 5 of ten; where they are neighbours, or every third, the job is built that way."""

    def split(own: list[int]) -> Any:
        return roles([[60, 40, 200 if row in own else 0] for row in range(10)])

    assert split([3, 5]) == [list(range(10))]
    assert split([3, 4]) == [[0, 1, 2, 5, 6, 7, 8, 9], [3, 4]]
    assert split([0, 5]) == [[0, 5], [1, 2, 3, 4, 6, 7, 8, 9]]
    assert split([1, 4, 7]) == [[0, 2, 3, 5, 6, 8, 9], [1, 4, 7]]
    assert split([1, 4]) == [list(range(10))]


def timeline(count: int, seed: int) -> Any:
    """``count`` events in steps of three, some at the same microsecond; curves have a value more."""
    rng = np.random.default_rng(seed)
    reserved = rng.integers(0, 1000, count + 1)
    steps = [(number, 3 * number, min(3 * number + 2, count - 1)) for number in range(count // 3)]
    return SimpleNamespace(
        allocated=rng.integers(0, 1000, count + 1),
        reserved=reserved,
        events=pl.DataFrame({"time_us": 10**15 + np.cumsum(rng.integers(0, 4, count))}),
        steps=pl.DataFrame(steps, schema=["step", "first_event", "last_event"], orient="row"),
    )


def expected_rows(line: Any, states: list[range]) -> dict[str, list[int]]:
    """The most of each metric; a state is behind the event before it."""
    unused = [max(0, int(r - a)) for r, a in zip(line.reserved, line.allocated, strict=True)]
    values = {"allocated": line.allocated.tolist(), "reserved": line.reserved.tolist(), "unused": unused}
    return {metric: [max(values[metric][at] for at in part) for part in states] for metric in METRICS}


def says(curve: Any, first: list[int], last: list[int], rows: dict[str, list[int]]) -> bool:
    own = {metric: values.tolist() for metric, values in curve.values.items()}
    return (curve.first.tolist(), curve.last.tolist(), own) == (first, last, rows)


@pytest.mark.parametrize("points", [1, 4, 5, 512])
@pytest.mark.parametrize("count", [3, 12, 31])
def test_a_column_has_the_most_of_its_events(count: int, points: int) -> None:
    line = timeline(count, count)
    each = -(-(count // 3) // points)
    parts = [range(at, min(at + each, count // 3)) for at in range(0, count // 3, each)]
    # A step begins with the state before its first event.
    states = [range(3 * part[0] + 1, min(3 * part[-1] + 2, count - 1) + 2) for part in parts]
    rows = expected_rows(line, states)
    assert says(step_curve(line, points), [part[0] for part in parts], [part[-1] for part in parts], rows)

    columns = min(points, count + 1)
    edges = [number * (count + 1) // columns for number in range(columns + 1)]
    pairs = list(itertools.pairwise(edges))
    rows = expected_rows(line, [range(a, b) for a, b in pairs])
    assert says(event_curve(line, points), [a - 1 for a, _ in pairs], [b - 2 for _, b in pairs], rows)

    clock = line.events["time_us"].to_list()
    columns = min(points, clock[-1] - clock[0] + 1)
    edges = [clock[0] + number * (clock[-1] - clock[0] + 1) // columns for number in range(columns + 1)]
    before = [sum(us < edge for us in clock) for edge in edges]
    pairs = list(itertools.pairwise(edges))
    rows = expected_rows(line, [range(a, b + 1) for a, b in itertools.pairwise(before)])
    assert says(time_curve(line, points), [a for a, _ in pairs], [b - 1 for _, b in pairs], rows)


@pytest.mark.parametrize(("low", "high", "most"), [(0, 0, 5), (0, 9, 5), (0, 10, 5), (3, 99, 7), (-1, 511, 512)])
def test_columns_of_the_heat_map_are_equally_wide(low: int, high: int, most: int) -> None:
    first, last = _columns(low, high, most)
    assert [n for a, b in zip(first, last, strict=True) for n in range(a, b + 1)] == list(range(low, high + 1))
    width = -(-(high - low + 1) // most)
    assert len(first) <= most and {int(b - a) + 1 for a, b in zip(first[:-1], last[:-1], strict=True)} <= {width}


def test_cells_have_the_most_of_what_overlaps_them() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        ends = np.unique(rng.integers(0, 60, 8))
        first, last = ends[:-1], ends[1:] - rng.integers(0, 2, len(ends) - 1)  # some share an end with the next
        values = {metric: rng.integers(0, 1000, len(first)) for metric in METRICS}
        begin, end = _columns(0, 63, 9)
        cells = {metric: np.zeros((2, len(begin)), np.uint16) for metric in METRICS}
        axis = HeatAxis("step", "step", "step", "", begin, end, cells)
        _fill(axis, 1, DigestCurve(first, last, values), first, last, 7)
        for metric in METRICS:
            expected = []
            for a, b in zip(begin, end, strict=True):
                own = [int(v) for v, x, y in zip(values[metric], first, last, strict=True) if x <= b and y >= a]
                expected.append(1 + -(-max(own) // 7) if own else 0)
            assert cells[metric].tolist() == [[0] * len(begin), expected]


def test_damaged_digests_say_what_is_wrong() -> None:
    good = pack({"a": 1})
    body = good[len(MAGIC) + 26 :]

    def head(version: int = 2, length: int = len(body), content: int = 7, of: bytes = body) -> bytes:
        return MAGIC + struct.pack("<HII16s", version, length, content, hashlib.blake2b(of, digest_size=16).digest())

    assert unpack(good) == {"a": 1} and head() + body == good
    wrong = {
        b"x" + good: "not a digest",
        good[: len(MAGIC) + 25]: "ends in its head",
        good[: len(MAGIC) + 26]: "checksum",
        good[:-1]: "checksum",
        good[:-1] + bytes([good[-1] ^ 1]): "checksum",
        head(length=len(body) + 1) + body: "checksum",
        head(version=1) + body: "format 1",
        head(content=6) + body: "its length",
        head(content=8) + body: "its length",
        head(content=(4 << 20) + 1) + body: "4,194,304 are allowed",
        head(content=4 << 20) + body: "its length",
        head(length=len(body) + 1, of=body + b"x") + body + b"x": "its length",
        head(length=3, of=b"abc") + b"abc": "damaged",
        MAGIC + bytes((64 << 10) + 1 - len(MAGIC)): "65,536 are allowed",
        MAGIC + bytes((64 << 10) - len(MAGIC)): "format 0",
    }
    for data, said in wrong.items():
        with pytest.raises(SnapshotError, match=said):
            unpack(data)


def test_sentences_of_digests_have_a_length() -> None:
    def outcome(text: str) -> str:
        try:
            return str(_sentence(parts_json(text)))
        except ValueError as error:
            return f"refused: {error}"

    longest = "x" * 1000
    assert outcome(longest) == longest and "1000 characters" in outcome(f"{longest}x")
    assert outcome(sentence("in {}", place_part("a.py:3", "f" * 1000, 3))) == "in a.py:3"
    assert "1000 characters" in outcome(sentence("in {}", place_part("a.py:3", "f" * 1001, 3)))


def test_groups_are_named_where_there_are_two() -> None:
    def said(*rows: list[int], peaks: list[int]) -> list[str]:
        groups = [SimpleNamespace(rows=of) for of in rows]
        job: Any = SimpleNamespace(groups=groups, peaks=np.array(peaks), ranks=np.arange(len(peaks)))
        return [str(one.text) for one in _groups(job)]

    assert said([0, 1], peaks=[5, 5]) == [] == said([0, 1], [2], peaks=[5, 5, 0])
    assert said([0, 1], [2, 3], peaks=[512, 514, 100, 102]) == [
        "The ranks form 2 groups by what they allocate, with median peaks of 513 B (ranks 0, 1) and 101 B (ranks 2, "
        "3).",
    ]
    seven = said(*([rank] for rank in range(7)), peaks=[10 * rank + 10 for rank in range(7)])
    assert seven[0].endswith("60 B (rank 5) and 1 more.") and "7 groups" in seven[0]


def test_where_colours_end() -> None:
    assert clipped_end(np.array([], np.int64)) == clipped_end(np.zeros(3, np.int64)) == 0
    assert clipped_end(np.array([10, 900])) == 900  # of two ranks neither is extreme
    # Of eleven the second highest is the 90th percentile.
    assert clipped_end(np.array([100] * 10 + [200, 0, 0])) == 200
    assert clipped_end(np.array([100] * 10 + [201])) == 125
    assert clipped_end(np.array([100] * 9 + [300, 201])) == 300
    assert clipped_end(np.array([10, 20, 300])) == 25


@pytest.mark.parametrize(
    ("peaks", "worst", "share", "unused", "said"),
    [
        ([971, 1000], 1, 0.015, 29, "Both ranks peak within 2.9% of 1000 B."),
        ([1000, 1000, 0], 0, 0.0, 0, "Both ranks peak at 1000 B."),
        ([1000, 990, 1000], 0, 0.0, 10, "All 3 ranks peak within 1.0% of 1000 B."),
        ([1000, 1000, 900, 0], 0, 0.0, 100, "Rank 0 has the highest peak, 1000 B; the median rank peaks at 1000 B."),
        ([0, 1000], 1, 0.0, 0, "Rank 1 peaks at 1000 B allocated."),
        ([0, 0], 0, 0.0, 0, "No rank recorded an allocation."),
        (
            [970, 970, 1000], 2, 0.03, 60,
            "Rank 2 determines the memory that the job needs: it peaks at 1000 B, the median rank at 970 B. The other "
            "ranks leave 60 B of headroom unused, 30 B each on average.",
        ),
    ],
)  # fmt: skip
def test_how_uneven_peaks_are(peaks: list[int], worst: int, share: float, unused: int, said: str) -> None:
    job: Any = SimpleNamespace(peaks=np.array(peaks), ranks=np.arange(len(peaks)))
    found = imbalance_of(job)
    assert (found.worst_row, found.share, found.unused_bytes) == (worst, pytest.approx(share), unused)
    assert str(found.sentence) == said


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (Cause("leak", 0.0), "It leaks: each step keeps more."),
        (Cause("model", 2.0, 1), "It holds all parameters 2 times: a second model."),
        (Cause("model", 4.0, 3), "It holds all parameters 4 times: 3 more models."),
        (Cause("layers", 1.25, 1), "It has 1.25 times as many layers: one more layer."),
        (Cause("layers", 1.25), "It has 1.25 times as many layers: one more layer for every 4."),
        (Cause("layers", 1.6), "It has 1.6 times as many layers: 3 more layers for every 5."),
        (Cause("layers", 2.0), "It has 2 times as many layers: twice as many layers."),
        (Cause("experts", 3.0), "It has 3 times as many experts: 2 more experts for every 1."),
        (Cause("experts", 1.0077), "It has 1.01 times as many experts: more experts."),
        (Cause("sequence", 1.5), "Its activations are 1.5 times as large, and its attention scores up to 2.25 times: "
                                 "longer sequences."),
        (Cause("batch", 1.333333), "Its activations are 1.33 times as large: a larger batch."),
        (Cause("batch or sequence", 2.0), "Its activations are 2 times as large: a larger batch or longer sequences."),
    ],
)  # fmt: skip
def test_causes_in_words(cause: Cause, said: str) -> None:
    assert str(cause_sentence(cause, [])) == said
    found = cause_json(cause, [])
    assert found is not None
    assert (found.factor, found.count) == (round(cause.factor, 4) or None, cause.count or None)


def test_ranks_in_words() -> None:
    assert [rank_ranges(ranks) for ranks in ([3], [3, 4], [3, 4, 5], [0, 2])] == ["3", "3, 4", "3–5", "0, 2"]
    assert rank_ranges(range(0, 24, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22"
    assert rank_ranges(range(0, 26, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, …, 24"
    assert str(ranks_text([7])) == "rank 7" and ranks_text([1, 2, 3]) == "ranks 1–3"


def test_ranks_without_a_file() -> None:
    assert missing_ranks([0, 3], None) == [1, 2] and missing_ranks([0, 3], 6) == [1, 2, 4, 5]
    assert missing_ranks([], None) == [] and missing_ranks([], 2) == [0, 1]
    assert missing_ranks([0], 20_000) == list(range(1, 10_001))
    assert missing_ranks([9_999_998], 10**9) == list(range(10_000))


def test_one_snapshot_of_each_rank_is_compared() -> None:
    def chosen(*keys: tuple[int | None, int | None, bool]) -> list[int]:
        return newest_of_each([(*key, f"{number}.pickle") for number, key in enumerate(keys)])

    assert chosen((0, 5, False), (0, 6, False), (1, 5, False), (1, 6, False)) == [
        1,
        3,
    ]  # the later of two that all have
    assert chosen((0, 5, False), (0, 6, False), (1, 5, False)) == [0, 2]
    assert chosen((0, 5, False), (0, 5, False), (0, 5, False), (0, 6, False), (1, 6, False)) == [3, 4]  # once a rank
    assert chosen((0, 5, True), (0, 6, False), (1, 6, False)) == [0, 2]
    assert chosen((0, None, False), (0, None, False), (None, 3, False), (None, 4, False)) == [1, 2, 3]
    assert chosen((0, None, False), (0, 0, False)) == [1]


def test_names_without_endings() -> None:
    assert [stem(path) for path in ("a/b.pickle.gz", "b.PKL", "a\\b.c.pt", "b.json", "b.digest")] == [
        "b", "b", "b.c", "b.json", "b",
    ]  # fmt: skip
    assert is_digest("a/rank0.DIGEST") and not is_digest("digest.pickle")


def place(function: str, file: str, size: int, line: int = 1, count: int = 1) -> Any:
    return SimpleNamespace(function=function, file=file, bytes=size, line=line, count=count)


def of_places(*stacks: Any) -> Any:
    return SimpleNamespace(stacks=stacks)


def test_what_changed_by_function_and_file() -> None:
    before = of_places(place("a", "x.py", 5), place("a", "x.py", 7), place("b", "x.py", 9), place("c", "x.py", 0))
    after = of_places(place("a", "x.py", 20), place("b", "x.py", 9), place("d", "y.py", 8), place("e", "y.py", 8))
    assert growth(before, after) == [(("a", "x.py"), 8), (("d", "y.py"), 8), (("e", "y.py"), 8)]
    assert growth(after, before)[-1] == (("e", "y.py"), -8)
    assert [place_name(one, line) for one, line in ((("a", "x.py"), 3), (("a", ""), 0), (("", ""), 0))] == [
        "a x.py:3", "a", "allocations without a stack trace",
    ]  # fmt: skip


def test_a_function_that_moved_to_another_file_has_not_changed() -> None:
    before = of_places(place("a", "x.py", 5), place("b", "x.py", 3))
    moved = of_places(place("a", "y.py", 6), place("b", "x.py", 3))
    assert growth(before, moved) == [(("a", "y.py"), 1)]
    # Of two that went, neither is the one that came.
    both = of_places(place("a", "x.py", 5), place("a", "z.py", 4))
    assert growth(both, moved)[0] == (("a", "y.py"), 6)
    again = of_places(place("a", "w.py", 7))
    assert followed([before, moved, again])[0] == {("a", "w.py"): 5, ("b", "x.py"): 3}


def test_the_line_that_grew_is_one_that_had_no_equal() -> None:
    before = of_places(place("a", "x.py", 5, 10), place("a", "x.py", 4, 12))
    after = of_places(place("a", "x.py", 5, 11), place("a", "x.py", 5, 13), place("a", "x.py", 4, 15))
    assert line_of_growth(before, after, ("a", "x.py")) == 13
    assert line_of_growth(before, before, ("a", "x.py")) == 0
    assert line_of_growth(before, of_places(place("a", "x.py", 5, 11, count=2)), ("a", "x.py")) == 11


def test_a_running_rank_is_silent_after_two_minutes_if_it_is_behind() -> None:
    def states(*ranks: tuple[int, int | None, str]) -> list[str]:
        digests = [
            SimpleNamespace(step=step, reason=reason, run=SimpleNamespace(end_us=end)) for step, end, reason in ranks
        ]
        job: Any = SimpleNamespace(digests=digests)
        return list(states_of(job))

    now = 10 * SILENT_US
    assert states((5, now, "running"), (4, now - SILENT_US, "running")) == ["running", "running"]
    assert states((5, now, "running"), (4, now - SILENT_US - 1, "running")) == ["running", "silent"]
    assert states((5, now, "running"), (5, now - SILENT_US - 1, "running")) == ["running", "running"]
    assert states((5, now, "running"), (4, None, "running")) == ["running", "running"]
    assert states((5, now, "running"), (9, now, "oom"), (4, 0, "exit"), (5, 0, "terminated"), (5, 0, "steps")) == [
        "running", "out of memory", "ended", "ended by a signal", "",
    ]  # fmt: skip
    assert states((5, now, "exit"), (4, 0, "oom")) == ["", ""]


def test_which_processes_are_of_one_run() -> None:
    def run(start: int, end: int, rank: int, host: str = "a", **more: Any) -> Run:
        stated = {"launch": "torchrun", "world_size": 2, **more}
        return Run("id", start_us=start, end_us=end, ranks={rank}, hosts={host}, restarts={0}, **stated)

    second = 1_000_000
    first = run(0, 10 * second, 0)
    assert first.takes(run(10 * second, 20 * second, 1)) and not first.takes(run(10 * second + 1, 20 * second, 1))
    assert first.takes(run(60 * second, 70 * second, 1, "b")) and not first.takes(
        run(60 * second + 1, 70 * second, 1, "b")
    )
    for other in ({"rank": 0}, {"rank": 1, "launch": "mpirun"}, {"rank": 1, "world_size": 4}):
        assert not first.takes(run(5 * second, 6 * second, **other))
    first.add(run(5 * second, 30 * second, 1, "b"))
    assert (first.end_us, first.ranks, first.hosts) == (30 * second, {0, 1}, {"a", "b"})
    assert first.text == "id (2 ranks)"
    long = run(1_763_899_260 * second, 0, 0, command="python " + "x" * 60)
    long.restarts = {0, 2}
    assert long.text == f"id of 2025-11-23 12:01:00 UTC (1 rank, 2 restarts: python {'x' * 53}…)"
    assert run(0, 0, 0, command="y" * 60).text == f"id (1 rank: {'y' * 60})"


def test_states_in_words() -> None:
    def said(*ranks: tuple[str, int | None]) -> list[str]:
        """Of ranks 3, 4, …: of the states "silent" is written long before the others."""
        digests = [
            SimpleNamespace(
                step=step,
                reason="running" if state == "silent" else state,
                run=SimpleNamespace(end_us=1 if state == "silent" else 10 * SILENT_US),
            )
            for state, step in ranks
        ]
        job: Any = SimpleNamespace(digests=digests, ranks=np.arange(len(ranks)) + 3, rows=digests)
        found = state_sentences(job)
        assert sorted(row for one in found for row in one.rows) == list(range(len(ranks))) * bool(found)
        return [str(one.text) for one in found]

    assert said(("exit", 4), ("exit", 4)) == []
    assert said(("running", 4)) == ["Rank 3 is running, at step 4."]
    assert said(("running", 4), ("running", 1004)) == ["All 2 ranks are running, at step 4 and 1,004."]
    assert said(("running", 6), ("running", 4), ("running", 5)) == ["All 3 ranks are running, at steps 4 to 6."]
    assert said(("running", None), ("exit", 9)) == ["Rank 3 is running.", "Rank 4 ended, at step 9."]
    assert said(("running", 9), ("silent", 7), ("silent", 7), ("silent", 8), ("oom", 7), ("terminated", 3)) == [
        "Rank 7 ran out of memory, at step 7.",
        "Rank 8 ended by a signal, at step 3.",
        "Ranks 4–6 have written no digest since step 7 and 8.",
        "Rank 3 is running, at step 9.",
    ]
    assert said(("running", 9), ("silent", 7))[0] == "Rank 4 has written no digest since step 7."


def of_curves(*rows: dict[str, Any], comparable: bool = True) -> Any:
    """A job of which each row has a curve by axis; a metric is twice, thrice the allocated bytes."""
    curves = [
        {
            key: DigestCurve(np.array(first), np.array(last), {m: np.array(of) * n for n, m in enumerate(METRICS, 1)})
            for key, (first, last, of) in row.items()
        }
        for row in rows
    ]

    def ends(row: dict[str, DigestCurve], key: str) -> tuple[int, int] | None:
        return (int(row[key].first[0]), int(row[key].last[-1])) if key in row else None

    starts = [time and time[0] for time in (ends(row, "time") for row in curves)]
    most = [int(curve.values["unused"].max()) for row in curves for curve in row.values()]
    return SimpleNamespace(
        digests=[SimpleNamespace(highest_reserved=max(most))] * len(rows),
        peaks=np.array([max(most)] * len(rows)),
        clock=SimpleNamespace(comparable=comparable, sentence="The clocks."),
        start_us=min((start for start in starts if start is not None), default=None),
        rows=[
            SimpleNamespace(
                packed=SimpleNamespace(steps=ends(row, "step"), time=ends(row, "time"), curves=lambda row=row: row),
                first_us=start,
            )
            for row, start in zip(curves, starts, strict=True)
        ],
    )


def test_ranks_without_steps_or_times_are_compared_by_the_share_of_their_trace() -> None:
    """One has 4 events in columns of one, the other 8 in columns of two, from its event 100 on."""
    job = of_curves(
        {"event": ([0, 1, 2, 3], [0, 1, 2, 3], [10, 20, 30, 40])},
        {"event": ([100, 102, 104, 106], [101, 103, 105, 107], [1, 2, 3, 4])},
    )
    heat = heat_of(job)
    (axis,) = heat.axes
    assert (axis.key, axis.unit, axis.note) == ("event", "share", "Neither steps nor times were recorded.")
    assert (axis.first[0], axis.last[-1], heat.scale, heat.origin_us) == (0, 999, 1, None)
    for metric, times in zip(METRICS, (1, 2, 3), strict=True):
        for row, quarters in enumerate(([10, 20, 30, 40], [1, 2, 3, 4])):
            cells = axis.cells[metric][row]
            # A quarter of the trace is 250 thousandths.
            of_columns = [
                max(of for at, of in enumerate(quarters) if 250 * at <= last and 250 * at + 249 >= first)
                for first, last in zip(axis.first.tolist(), axis.last.tolist(), strict=True)
            ]
            assert cells.tolist() == [1 + times * value for value in of_columns]
    assert heat_of(of_curves({}, {"event": ([5], [5], [7])})).axes[0].cells["allocated"].max(axis=1).tolist() == [0, 8]


def test_steps_and_times_of_ranks_are_axes_of_their_own() -> None:
    rows = (
        {"step": ([4, 5], [4, 5], [10, 20]), "time": ([1000, 1050], [1049, 1099], [10, 20])},
        {"time": ([1100, 1150], [1149, 1199], [30, 40])},
    )
    steps, times = heat_of(of_curves(*rows)).axes
    assert (steps.first.tolist(), steps.last.tolist()) == ([4, 5], [4, 5])
    assert steps.note == "1 of 2 ranks recorded no steps."
    assert steps.cells["allocated"].tolist() == [[11, 21], [0, 0]]
    assert (times.first[0], times.last[-1], times.note) == (0, 199, "The clocks.")
    assert times.cells["allocated"][:, [0, 49, 50, 99, 100, 150, 199]].tolist() == [
        [11, 11, 21, 21, 0, 0, 0], [0, 0, 0, 0, 31, 41, 41],
    ]  # fmt: skip
    assert heat_of(of_curves(*rows)).origin_us == 1000
    # Where clocks cannot be compared, each begins with its own first event.
    apart = heat_of(of_curves(*rows, comparable=False))
    assert apart.origin_us is None and apart.axes[1].last[-1] == 99
    assert apart.axes[1].note == "Each rank's time begins with its own first event. The clocks."
    assert apart.axes[1].cells["allocated"][:, [0, 49, 50, 99]].tolist() == [[11, 11, 21, 21], [31, 31, 41, 41]]
    assert heat_of(of_curves(rows[0], rows[0])).axes[0].note == ""


def test_a_level_of_the_heat_map_is_a_thousandth_of_where_colours_end() -> None:
    """1,022 levels; one of thousands of ranks that is far above them is cut off at what a cell can say."""
    assert heat_of(of_curves({"step": ([0], [0], [1022 * 7])})).scale == 7 * 3
    assert heat_of(of_curves({"step": ([0], [0], [1022 * 7 + 1])})).scale == 7 * 3 + 1
    job = of_curves({"step": ([0], [0], [1000])})
    job.digests, job.peaks = [SimpleNamespace(highest_reserved=1)] * 9, np.array([10] * 8 + [655_341])
    job.rows = job.rows * 9
    assert heat_of(job).scale == 11  # 65,534 levels


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ""),
        ({"last": [0, 0, 0]}, "columns of different lengths"),
        ({"allocated": [2**53, 0]}, "" if MAX_SIZE >= 2**53 else "no size"),
        ({"allocated": [2**53 + 2, 0]}, "'allocated' has a number beyond 2[*][*]53"),
        ({"allocated": [0, -(2**53) - 2]}, "'allocated' has a number beyond 2[*][*]53"),
        ({"first": [5, 0]}, ""),  # a step of several columns
        ({"first": [5, -1]}, "do not ascend"),
        ({"last": [0, -1]}, "do not ascend"),
        ({"unused": [3, -3]}, ""),
        ({"unused": [3, -4]}, "a value that is no size"),
        ({"first": [], "last": [], "allocated": [], "reserved": [], "unused": []}, ""),
    ],
)
def test_curves_of_digests_are_read_or_refused(changes: dict[str, list[int]], error: str) -> None:
    stored = {"first": [5, 2], "last": [1, 0], "allocated": [7, -3], "reserved": [9, 0], "unused": [2, 3]} | changes
    if error:
        with pytest.raises(ValueError, match=error):
            _curve(stored)
        return
    found = _curve(stored)
    assert found.first.tolist() == list(itertools.accumulate(stored["first"]))
    assert (found.last - found.first).tolist() == stored["last"]
    for metric in METRICS:
        assert found.values[metric].tolist() == list(itertools.accumulate(stored[metric]))


def test_a_size_of_a_digest_has_a_limit() -> None:
    ones = {"first": [0], "last": [0], "reserved": [0], "unused": [0]}
    parts = [2**53] * (MAX_SIZE // 2**53) + [MAX_SIZE % 2**53]
    stored = {name: values * len(parts) for name, values in ones.items()} | {"allocated": parts}
    assert _curve(stored).values["allocated"][-1] == MAX_SIZE
    with pytest.raises(ValueError, match="no size"):
        _curve(stored | {"allocated": [*parts[:-1], parts[-1] + 1]})


def test_names_in_digests_have_a_length() -> None:
    """Of 200 letters, also where some of them are none and become longer."""
    assert _name("a" * 201) == "a" * 200 and _name("a" * 200) == "a" * 200
    assert len(_name("\udc80" * 150)) == 200 and _name("\udc80").encode()


def test_sentences_of_digests_have_parts() -> None:
    def refused(content: Any) -> str:
        try:
            _sentence(content)
        except ValueError as error:
            return str(error)
        return ""

    event = {"kind": "event", "text": "event 5", "number": 5}
    assert refused(["a"] * 200) == "" and refused(["a"] * 201) == "not a list of at most 200 parts" == refused("a")
    for number in (2**63 - 1, -(2**63)):
        assert refused(["at ", event | {"number": number}]) == ""
    for wrong in ({"number": 2**63}, {"number": -(2**63) - 1}, {"line": 2**63}):
        assert refused(["at ", event | wrong]) != ""
    assert refused(["at ", event | {"kind": 3}]) != ""


def test_whether_clocks_can_be_compared() -> None:
    def said(*ends: list[float], hosts: Sequence[str] = "abcdefgh", peak_us: int | None = 1) -> tuple[bool, str]:
        digests = [SimpleNamespace(peak_us=peak_us, host=host) for host in hosts[: len(ends)]]
        rows = [SimpleNamespace(packed=SimpleNamespace(step_ends=np.array(of, float))) for of in ends]
        job: Any = SimpleNamespace(digests=digests, rows=rows)
        found = _clock(job)
        return found.comparable, str(found.sentence)

    assert said([], [], peak_us=None) == (False, "The recordings have no times.")
    assert said([], [], hosts="aa") == (True, "All ranks ran on one host: their times can be compared.")
    assert not said([], [], hosts=("", ""))[0] and not said([], [], hosts="ab")[0]
    few = "Hosts are unknown or differ, and too few steps were recorded to compare their clocks."
    assert said([1, 2], [1]) == (False, few) == said([1], [1], peak_us=None)
    # Half of the ranks, of which shorter series count: steps of 10 ms may end 5 ms apart.
    even = [10_000.0, 20_000, 30_000]
    assert said(even, [15_000, 25_000]) == (
        True, "The same steps end within 5.0 ms on all ranks: their times can be compared.",
    )  # fmt: skip
    assert said(even, [15_001, 25_001]) == (
        False, "The same steps end up to 5.0 ms apart, a step takes 10.0 ms: the clocks cannot be compared.",
    )  # fmt: skip
    assert said(even, even, [], [])[0] and not said(even, even, [], [], [], [])[0]
    # Of steps of 100 µs a millisecond.
    assert said([100, 200], [1100, 1200])[0] and not said([100, 200], [1101, 1201])[0]
    assert said([1e6, 3e6], [4e6, 6e6])[1].startswith("The same steps end up to 3.0 s apart, a step takes 2.0 s:")
    assert said(even, [1, float("nan"), 3])[1].startswith("Steps without times")


def test_failures_of_ranks_in_words() -> None:
    def said(*failures: tuple[int | None, int | None], comparable: bool = False, tried: int = 0) -> tuple[str, int]:
        """Of ranks 10, 11, … by their steps and times; and how many rows the sentence is about."""
        ooms = [
            SimpleNamespace(row=row, oom=SimpleNamespace(step=step, us=us, tried=tried))
            for row, (step, us) in enumerate(failures)
        ]
        clock = SimpleNamespace(comparable=comparable, sentence="The clocks.")
        job: Any = SimpleNamespace(ooms=ooms, ranks=np.arange(10, 20), world=64, clock=clock)
        found = _out_of_memory(job)
        return str(found.text), len(found.rows)

    assert said((5, 1), tried=MIB) == ("Rank 10 of 64 ran out of memory at step 5. A 1.00 MiB request failed.", 1)
    assert said((None, 1)) == ("Rank 10 of 64 ran out of memory.", 1)
    first = "Rank 10 of 64 ran out of memory first, at step 5."
    assert said((5, 1), (5, 2), comparable=True) == (f"{first} 1 other rank followed.", 1)
    assert said((None, 1), (5, 2), (5, 2), comparable=True) == (
        "Rank 10 of 64 ran out of memory first. 2 other ranks followed.", 1,
    )  # fmt: skip
    assert said((5, None), (6, None), (6, None), comparable=True) == (
        f"{first} 2 other ranks failed at later steps.",
        3,
    )
    assert said((5, 1), (6, 2)) == (f"{first} 1 other rank failed at later steps.", 2)
    unknown = "Which failed first is unknown. The clocks."
    assert said((5, 1), (5, 2)) == (f"Ranks 10, 11 ran out of memory at step 5. {unknown}", 2)
    assert said((5, 1), (5, 2), (6, 3)) == (f"Ranks 10–12 ran out of memory. {unknown}", 3)
    assert said((5, 1), (None, 2)) == (f"Ranks 10, 11 ran out of memory. {unknown}", 2)


def test_ranks_that_use_the_device_of_another() -> None:
    def said(*ranks: tuple[str, int, dict[int, float]]) -> list[tuple[str, list[int]]]:
        """By host, device, and MiB on other devices; all have 1,000 MiB on their own."""

        def other(device: int, mib: float) -> Any:
            return SimpleNamespace(device=device, kind="cuda", peak_allocated=int(mib * MIB))

        digests = [
            SimpleNamespace(
                host=host, device=device, peak_allocated=1000 * MIB, devices=[other(*one) for one in more.items()]
            )
            for host, device, more in ranks
        ]
        job: Any = SimpleNamespace(digests=digests, ranks=np.arange(len(ranks)))
        return [(str(one.text), one.rows) for one in _elsewhere(job)]

    alone = ("a", 0, {})
    assert said(alone, ("a", 1, {}), ("a", 2, {0: 19.9})) == []
    ((text, rows),) = said(alone, ("a", 1, {0: 20, 7: 900}), ("a", 2, {0: 30}), ("b", 0, {}))
    assert text.startswith("Ranks 1, 2 also allocated up to 30.0 MiB on cuda:0, where rank 0 works") and rows == [1, 2]
    ((text, rows),) = said(alone, ("a", 1, {0: 20, 1: 900}))
    assert text.startswith("Rank 1 also allocated 20.0 MiB on cuda:0, where rank 0 works") and rows == [1]
    # Two ranks of one host's device 0 may be of two hosts.
    assert said(alone, alone, ("a", 1, {0: 900})) == []


def test_the_step_and_the_time_of_an_event() -> None:
    steps = [(3, 2, 4), (4, 5, 5), (6, 9, 11)]  # number, first and last event
    table = pl.DataFrame(steps, schema=["step", "first_event", "last_event"], orient="row")
    line: Any = SimpleNamespace(steps=table, events=pl.DataFrame({"time_us": list(range(100, 113))}))
    expected = [None, None, 3, 3, 3, 4, None, None, None, 6, 6, 6, None]
    assert [_step_at(line, event) for event in range(13)] == expected
    assert [_time_at(line, event) for event in (-1, 0, 12, 13)] == [None, 100, 112, None]


def test_leaks_of_fewer_than_half_of_the_ranks_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*leaks: tuple[str, str, list[int]], outliers: Sequence[int] = (), failed: bool = False) -> list[str]:
        merged = [
            SimpleNamespace(rows=rows, finding=SimpleNamespace(kind=kind, severity=severity, title=f"{kind} {number}"))
            for number, (kind, severity, rows) in enumerate(leaks)
        ]
        monkeypatch.setattr(headline, "merged_findings", lambda job: merged)
        job: Any = SimpleNamespace(
            outliers=[SimpleNamespace(row=row) for row in outliers], rows=range(6), ranks=np.arange(6), world=6
        )
        return [str(one.text) for one in headline._leaks(job, failed=failed)]

    two = ("leak", "warning", [1, 2])
    assert said(two) == ["On 2 of 6 ranks: leak 0."] == said(two, outliers=[1, 5])
    assert said(("leak", "warning", [1, 2, 3])) == [] == said(two, failed=True) == said(two, outliers=[1, 2, 5])
    assert said(("leak", "info", [1])) == [] == said(("peak", "warning", [1]))
    assert said(("peak", "warning", [1]), two, ("leak", "warning", [3])) == ["On 2 of 6 ranks: leak 1."]
