"""``stats --by``, ``stats --tree`` and ``diff --tree`` against sums over the raw allocations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from cli import in_process, on_loaded

from snapreport.commands import stats
from snapreport.report.call_tree import call_tree, tree_lines
from snapreport.timeline.allocation_groups import GROUPINGS, group_sums

MODULES = Path(__file__).parent / "recordings" / "modules.pickle.xz"


def test_the_command_has_all_groupings() -> None:
    assert stats.GROUPINGS == GROUPINGS


@pytest.mark.parametrize("by", GROUPINGS)
@pytest.mark.parametrize("path", [corpus.path_of("oom"), corpus.path_of("small"), MODULES], ids=lambda path: path.stem)
def test_groups_are_sums_over_allocations(path: Path, by: str) -> None:
    snapshot = corpus.loaded(path)
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        steps = {
            event: f"step {row['step']}"
            for row in timeline.steps.rows(named=True)
            for event in range(row["first_event"], row["last_event"] + 1)
        }
        rows = snapshot.allocations(device, with_stacks=True).rows(named=True)
        expected: Counter[tuple[str | None, str]] = Counter()
        for row in rows:
            name = {
                "category": str(row["category"]),
                "step": steps.get(row["alloc_event"]),
                "shape": row["shape"],
                "module": row["module"] or row["forward_lines"] if path != MODULES else row["module"],
                "file": row["file"],
                "function": f"{row['function']} {Path(row['file']).name}" if row["file"] else None,
            }.get(by)
            live = row["alloc_event"] <= timeline.peak_event
            live &= row["free_event"] < 0 or row["free_event"] > timeline.peak_event
            expected[name, "bytes"] += row["size"]
            expected[name, "count"] += 1
            expected[name, "bytes_at_peak"] += row["size"] * live
            expected[name, "count_at_peak"] += live
        table = group_sums(timeline, by)
        if by in ("stack", "operator"):  # names of stacks may be the same; operators: the next test
            table = table.sum().with_columns(name=None)
        found = {(row["name"], key): row[key] for row in table.rows(named=True) for key in row if key != "name"}
        if by == "function":  # C++ functions have no file, and lose their arguments
            found = {key: value for key, value in found.items() if key in expected}
            expected = Counter({key: value for key, value in expected.items() if key in found})
        assert found == dict(expected)


def test_a_table_and_its_query() -> None:
    out = in_process("stats", MODULES, "--by", "category", "--query", "live:peak -category:param").out
    assert re.search(r"^activation  +40\.4 MiB +32% +56 ", out, re.MULTILINE) and "parameter " not in out


def test_the_tree_of_stack_traces() -> None:
    path = corpus.path_of("oom")
    lines = on_loaded("stats", "--tree", path).out.splitlines()
    snapshot = corpus.loaded(path)
    peak = snapshot.timeline(0).peak_bytes
    top = next(line for line in lines if "cuda:0 at the peak" in line)
    assert f"{len(snapshot.query('live:peak', 0)):,}×" in top and f"{peak / 2**30:.3g} GiB" in top
    # The calls of a stack stand in its order, each further in or below the one before.
    row = snapshot.timeline(0).top_stacks[0]
    frames = snapshot.frames(row["stack"]).rows()
    own = [
        f"{name} {Path(file).name}:{line}"
        for file, line, name in frames
        if file.endswith(".py") and "/site-packages/" not in file
    ]
    at = [next(i for i, line in enumerate(lines) if call in line) for call in reversed(own)]
    assert own and at == sorted(at)


def test_chains_are_together_and_small_calls_are_counted() -> None:
    main, mine, library = ("main a.py:1", True), ("step a.py:2", True), ("call torch.py:3", False)
    end, small = ("conv b.py:4", True), ("tiny b.py:5", True)
    tree = call_tree(
        "all", [([main, library, mine, end], [990], 990), ([main, library, mine, small], [9], 9), ([small], [1], 1)]
    )
    assert tree_lines(tree, lambda values: f"{values[0]:>4}") == [
        "1000  all",
        " 999    main a.py:1",
        "        step a.py:2 (via 1 library call)",
        " 990      conv b.py:4",
        "   9      1 smaller call",
        "   1    1 smaller call",
    ]


def test_the_tree_of_a_comparison() -> None:
    folder = Path(__file__).parent / "recordings"
    before, after = folder / "validation_before.pickle.xz", folder / "validation_after.pickle.xz"
    out = on_loaded("diff", "--tree", before, after).out
    one, two = (corpus.loaded(path).timeline(0).peak_bytes for path in (before, after))
    root = next(line for line in out.splitlines() if "cuda:0 at the peaks" in line)
    unchanged = re.findall(r"[\d.]+ [KMG]?i?B", root)
    assert len(unchanged) == 3 and ("+" in root) == (two > one)
    assert in_process("diff", "--tree", "--json", before, after).code == 2


@pytest.mark.parametrize("options", [("--by", "file", "--tree"), ("--tree", "--json"), ("--by", "step", "--brief")])
def test_what_does_not_go_together(options: tuple[str, ...]) -> None:
    assert in_process("stats", MODULES, *options).code == 2


def test_operators_are_those_that_the_program_called() -> None:
    """A transformer of linear layers, norms and an embedding; PyTorch recorded the frames of Python alone."""
    timeline = corpus.loaded(MODULES).timeline(0)
    table = group_sums(timeline, "operator")
    count = dict(table.select("name", "count").iter_rows())
    calls = timeline.allocations.filter(timeline.allocations["alloc_event"] >= 0)
    of_modules = calls["module"].drop_nulls().str.extract(r"(\w+)$")
    assert {"linear", "layer_norm", "embedding", "cross_entropy"} <= count.keys()
    assert count["embedding"] == 3, "once in each of three steps"
    assert count["layer_norm"] % 24 == 0, "of eight norms: output, mean and deviation"
    assert of_modules.is_in(["first", "second"]).sum() >= count["layer_norm"]


@pytest.mark.parametrize("path", [MODULES, corpus.path_of("training")])
def test_the_query_of_an_operator_finds_its_group(
    path: Path, report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """By the library and on the page: whole names, an asterisk for any text, and those without an operator."""
    snapshot = corpus.loaded(path)
    table = group_sums(snapshot.timeline(0), "operator")
    assert len(table) > 3
    opened = borrow_report(report_of(path))
    queries = {f'op:"{name}"' if name else "-op:*": count for name, count in table.select("name", "count").iter_rows()}
    is_norm = table["name"].str.ends_with("norm")
    queries |= {"op:*norm": table.filter(is_norm)["count"].sum(), "op:zzz": 0}
    for query, count in queries.items():
        found = snapshot.query(query, 0)["id"].to_list()
        assert len(found) == count, query
        assert opened.js("async query => (await snapreport.search(0, query)).ids", query) == found, query
