"""Queries in Python: the grammar, its errors, and what every field means, against predicates written by hand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import breadth
import corpus
import hypothesis.strategies as st
import numpy as np
import oracle
import pytest
import query_oracle
import strategies
from cli import assert_refused, in_process
from hypothesis import example, given, settings

import snapreport
from snapreport import QueryError
from snapreport.search.fields import Choice, Range, Text
from snapreport.search.grammar import AllOf, AnyOf, Node, Not, Term, parse
from snapreport.snapshot import Snapshot
from snapreport.timeline import category_rules as categories
from snapreport.vocabulary import CATEGORIES, QUERY_FIELDS

SNAPSHOTS = [
    "small", "training", "oom", "pools", "compiled", "multi-gpu", "expandable", "truncated", "no-times", "no-stacks",
    "layout-2.8",
    *(name for name in corpus.varied_names() if name != "train_22k_events.pickle"),
]  # fmt: skip
# A bad query, and its wrong part (the first occurrence).
BAD = [
    ('a "b', '"b'), ("a OR", "OR"), ("OR a", "OR"), ("a OR OR b", "OR OR"[:2]), ("a AND", "AND"), ("AND", "AND"),
    ("a AND OR b", "AND"),
    ("(a", "("), ("(a (b)", "("), ("()", ")"), ("a)", ")"), ("(a OR) b", "OR"), ("- a", "-"), ("a -", "-"),
    ("-- ", "--"), ('""', '""'),
    ('" "', '" "'), ('"a"b', "b"), ("sise:5", "sise"), ("sise>5MiB", "sise"), ("std:vector", "std"),
    ("size:", "size:"), ("size:big", "big"),
    ("size:5QiB", "5QiB"), ("size:1..2..3", "2..3"), ("size:..", ".."), ("size:2KiB..1KiB", "2KiB..1KiB"),
    ("size>1..2", "1..2"),
    ("a size:-5 b", "-5"), ("addr:7fzz", "7fzz"), ("addr:0x1ffffffffffffffff", "0x1ffffffffffffffff"),
    ("stream:a", "a"), ("stream:1.5", "1.5"),
    ("pool:7", "7"), ("pool>0,1", "0,1"), ("device:1a", "1a"), ("category:activtion", "activtion"),
    ("category>input", "input"),
    ("origin:old", "old"), ("event:1.5", "1.5"), ("event:x..5", "x"), ("time:5y", "5y"), ("time:3s..2s", "3s..2s"),
    ("lifetime:1.5", "1.5"),
    ("lifetime:1..2ms", "1..2ms"), ("live:now", "now"), ("live:peak..end", "peak"), ("file>a", "a"), ("meta<b", "b"),
    ("line:x", "x"),
    ("stream!=0", "!="), ("a size==1MiB", "=="), ("-func!=conv", "!="), ("category<>input", "<>"),
    ("live!:peak", "!:"),
    ("size=>1MiB", "=>"), ("!x", "!"), ("a !(b c)", "!"), ("!", "!"), ("a | b", "|"), ("a || b", "||"),
    ("a && b", "&&"),
    ("a & b", "&"), ("conv|linear", "|"), ("conv||linear", "||"), ("a&&b c", "&&"), ("NOT a", "NOT"),
    ("a AND NOT b", "NOT"), ("a OR NOT (b)", "NOT"), ("top:0", "0"), ("top:x", "x"), ("top>3", "3"),
    ("top:1..2", "1..2"), ("a or b", "or"), ("a and b", "and"), ("not a", "not"), ("a (or b)", "or"),
    ("size > 1MiB", ">"), ("a stream != 0", "!="), ("size >1MiB", ">"), ("func~conv", "~"), ("func =~ conv", "=~"),
    ("stream =0", "="), ("live : peak", ":"),
    ("freed-in:", "freed-in:"), ("freed-in>3", "3"), ('live:"step x"', "step x"), ("live:step 5..2", "5..2"),
    ("stack>x", "x"), ("step>x", "x"), ("x" * 4001, "x"),
]  # fmt: skip


def ids(snapshot: Snapshot, query: str, device: int) -> list[int]:
    return np.flatnonzero(snapshot.searcher(device).find(query).mask).tolist()


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_queries_equal_predicates(name: str) -> None:
    path = corpus.path_of(name)
    snapshot = corpus.loaded(path)
    for place in query_oracle.places(corpus.replayed(path), snapshot):
        for query, predicate in [*query_oracle.QUERIES, *query_oracle.queries_of(place)]:
            found = ids(snapshot, query, place.number)
            assert found == query_oracle.expected(place, predicate), f"{query!r} on device {place.number} of {name}"


@settings(max_examples=breadth.examples(25))
@given(snapshot=strategies.snapshots, seed=st.integers(0, 99))
def test_random_snapshots(snapshot: Any, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("query") / "random.pickle"
    path.write_bytes(strategies.pickled(snapshot, 5))
    ours = snapreport.load(path)
    some = random.Random(seed).sample(query_oracle.QUERIES, 25)
    for place in query_oracle.places(oracle.replay(snapshot), ours):
        for query, predicate in [*some, *query_oracle.queries_of(place, seed)]:
            found = ids(ours, query, place.number)
            assert found == query_oracle.expected(place, predicate), query


@st.composite
def combinations(draw: st.DrawFn, depth: int = 3) -> query_oracle.Pair:
    """A query combined from others at random, with what it must match."""
    kind = draw(st.sampled_from(["one", "one", "not", "all", "any"])) if depth else "one"
    if kind == "one":
        return draw(st.sampled_from([(q, p) for q, p in query_oracle.QUERIES if q.strip() and " " not in q]))
    if kind == "not":
        query, predicate = draw(combinations(depth=depth - 1))
        return f"-({query})", lambda r: not predicate(r)
    parts = draw(st.lists(combinations(depth=depth - 1), min_size=1, max_size=3))
    gap = draw(st.sampled_from([" ", "  ", "\t", "\u00a0"]))
    word = draw(st.sampled_from([" ", " AND "])) if kind == "all" else " OR "
    texts = [f"({query})" if draw(st.booleans()) or " OR " in query or kind == "all" else query for query, _ in parts]
    joined = f"{gap}{word.strip()}{gap}".join(texts) if word.strip() else gap.join(texts)
    every = all if kind == "all" else any
    return joined, lambda r: every(predicate(r) for _, predicate in parts)


@pytest.fixture(scope="module")
def small() -> tuple[Snapshot, query_oracle.Place]:
    path = corpus.path_of("small")
    snapshot = snapreport.load(path)
    return snapshot, query_oracle.places(corpus.replayed(path), snapshot)[0]


@given(pair=combinations())
def test_combinations(pair: query_oracle.Pair, small: tuple[Snapshot, query_oracle.Place]) -> None:
    snapshot, place = small
    query, predicate = pair
    assert ids(snapshot, query, 0) == query_oracle.expected(place, predicate)


# The parser


def plain(node: Node) -> Any:
    """A tree without the positions of its terms."""
    if isinstance(node, Term):
        return (node.field, node.test)
    if isinstance(node, Not):
        return ("not", plain(node.inner))
    return ("all" if isinstance(node, AllOf) else "any", [plain(part) for part in node.parts])


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=8).filter(
    lambda w: w.strip(" \t\n\r\f\v\u00a0") != ""
)
NUMBERS = st.integers(0, 2**50)


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> tuple[Any, str]:
    """A tree in the form of ``plain``, and a text for it."""
    kind = draw(st.sampled_from(["word", "range", "text", "name", "not", "all", "any"][: 7 if depth else 4]))
    if kind == "word":
        word = draw(WORDS)
        return ("", Text((word.lower().replace("\\", "/"),))), quoted(word)
    if kind == "range":
        low, high = sorted((draw(NUMBERS), draw(NUMBERS)))
        field = draw(
            st.sampled_from(["size", "event", "time", "live", "line", "stack", "step", "stream", "addr", "device"])
        )
        text, test = draw(st.sampled_from([
            (f":{low}..{high}", Range(low, high)), (f":{low}..", Range(low, None)), (f":..{high}", Range(None, high)),
            (f":{low}", Range(low, low)), (f">={low}", Range(low, None)), (f">{low}", Range(low + 1, None)),
            (f"<{low}", Range(None, low - 1)), (f"<={low}", Range(None, low)),
        ]))  # fmt: skip
        return (field, test), field + text
    if kind == "text":
        word = draw(WORDS.filter(lambda w: ":" not in w))
        field = draw(st.sampled_from(["file", "func", "meta"]))
        return (field, Text((word.lower().replace("\\", "/"),))), f"{field}:{quoted(word)}"
    if kind == "name":
        name = draw(st.sampled_from(CATEGORIES))
        return ("category", Choice((name,))), f"category:{quoted(name)}"
    if kind == "not":
        tree, text = draw(trees(depth=depth - 1))
        return ("not", tree), f"-({text})"
    parts = draw(st.lists(trees(depth=depth - 1), min_size=2, max_size=3))
    texts = [f"( {text})" if isinstance(tree[1], list) else text for tree, text in parts]
    return (kind, [tree for tree, _ in parts]), (" OR " if kind == "any" else " ").join(texts)


def quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def test_operators_in_lower_case_are_words_while_they_join_nothing() -> None:
    """As in the middle of typing "order", and behind a word that is named like a field."""
    for query in ("or", "and", "not", "conv or", "(or)", "line <module>", "-not"):
        parse(query)


@given(pair=trees())
def test_what_is_written_is_what_is_read(pair: tuple[Any, str]) -> None:
    tree, text = pair
    assert plain(parse(text)) == tree
    assert plain(parse(f"  {text}\n")) == tree


PIECES = [
    *"()\"-:<>=*.,_ ", "OR", "AND", " OR ", " AND ", "..", ">=", "<=", "::", "\u00a0", "\t", "a", "conv", "file.py:12",
    "0x7f", "1.5MiB", "3ms",
    "-1", "18446744073709551616", "9" * 30, "peak", "é", "İ", "\U0001f525", "\ud800", "\x00",
    *(f"{name}{op}" for name in QUERY_FIELDS for op in (":", ">", "<=")),
]  # fmt: skip


@given(pieces=st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12))
@example(["("] * 500)
@example(["a("] * 900)
@example(["-"] * 3000)
@example(['"'] * 3001)
@settings(max_examples=breadth.examples(600))
def test_nothing_but_query_errors(pieces: list[str]) -> None:
    """Whatever is typed is either read or refused with a position inside it."""
    text = "".join(pieces)
    try:
        parse(text)
        return
    except QueryError as refused:
        error = refused
    assert 0 <= error.position < len(text) and error.length >= 1 and error.position + error.length <= len(text)
    assert error.reason and str(error).isprintable()


@pytest.mark.parametrize(("query", "part"), BAD, ids=[repr(query[:20]) for query, _ in BAD])
def test_a_bad_query_says_where(query: str, part: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(query)
    error = caught.value
    assert query[error.position : error.position + error.length] == part
    assert isinstance(error, snapreport.SnapshotError)


def test_terms_know_their_place() -> None:
    query = ' conv  -size>1KiB OR (file:"a b" live:peak)'
    found: list[str] = []

    def walk(node: Node) -> None:
        if isinstance(node, Term):
            found.append(query[node.at : node.at + node.length])
        for part in [node.inner] if isinstance(node, Not) else node.parts if isinstance(node, AllOf | AnyOf) else []:
            walk(part)

    walk(parse(query))
    assert found == ["conv", "size>1KiB", 'file:"a b"', "live:peak"]


def test_categories_are_those_of_the_rules() -> None:
    assert CATEGORIES == categories.CATEGORIES


# Where it is used


def test_frame_of_all_devices() -> None:
    snapshot = snapreport.load(corpus.path_of("multi-gpu"))
    found = snapshot.query("size>1MiB")
    assert found.columns == ["device", *snapshot.allocations(0).columns]
    for device in snapshot.devices:
        mine = found.filter(found["device"] == device).drop("device")
        assert mine.equals(snapshot.allocations(device).filter(snapshot.allocations(device)["size"] > 1024**2))
    with pytest.raises(KeyError):
        snapshot.query("a", 99)


def test_stats_of_a_query() -> None:
    path = corpus.path_of("oom")
    place = query_oracle.places(corpus.replayed(path), snapreport.load(path))[0]
    want = [r for r in place.rows if r.a.size > query_oracle.MIB]
    live = [r for r in want if r.lives(place.replay.peak_event)]
    run = in_process("stats", path, "--query", "size>1MiB", "--json")
    assert run.code == 0
    device = run.json["snapshots"][0]["devices"][0]
    matches = device["matches"]
    assert (
        run.json["schema"] == "snapreport-stats/3"
        and run.json["query"] == "size>1MiB"
        and device["allocations"] == len(place.rows)
    )
    assert (matches["count"], matches["bytes"]) == (len(want), sum(r.a.size for r in want))
    assert (matches["count_at_peak"], matches["bytes_at_peak"]) == (len(live), sum(r.a.size for r in live))
    held: dict[int, list[int]] = {}
    for r in want:
        entry = held.setdefault(r.own["stack"], [0, 0, 0])
        entry[0] += r.a.size if r.lives(place.replay.peak_event) else 0
        entry[1] += r.a.size
        entry[2] += 1
    best = sorted(held.values(), key=lambda e: (-e[0], -e[1]))[:10]
    assert [[t["bytes_at_peak"], t["bytes"], t["count"]] for t in matches["top_stacks"]] == best
    table = in_process("stats", path, "--query", "size>1MiB")
    assert table.code == 0 and f"{len(want):,}" in table.out and "query: size>1MiB" in table.out


def test_what_cannot_match_says_why() -> None:
    told = in_process("stats", corpus.path_of("no-times"), "--query", "time>1s OR live:oom").out
    assert "without times" in told and "no allocation failed" in told
    assert (
        "no step of this device has such a number"
        in in_process("stats", corpus.path_of("training"), "--query", "step:9999").out
    )
    told = in_process("stats", corpus.path_of("overlap"), "--query", "step:1").out
    assert "no steps are known on this device" in told
    told = in_process("stats", corpus.path_of("training"), "--query", "step:nowhere").out
    assert "no step and no annotation of this device has such a name" in told


# Steps


def test_steps_are_those_that_the_profiler_timed() -> None:
    """Against the recorder's own clock: START and END of the annotations, the next one's START where they touch."""
    path = corpus.path_of("training")
    raw, snapshot = corpus.raw(path), snapreport.load(path)
    times = [entry["time_us"] for entry in raw["device_traces"][0]]
    notes = [n for n in raw["external_annotations"] if n["name"].startswith("ProfilerStep#")]
    start = {int(n["name"][13:]): n["time_us"] for n in notes if n["stage"] == "START"}
    end = {int(n["name"][13:]): n["time_us"] for n in notes if n["stage"] == "END"}
    rows = corpus.replayed(path)[0].allocations
    assert len(start) > 2
    for number, began in start.items():
        until = min([end[number], *(at - 1 for at in start.values() if at > began)])
        want = [i for i, a in enumerate(rows) if a.alloc_event >= 0 and began <= times[a.alloc_event] <= until]
        assert want and ids(snapshot, f"step:{number}", 0) == want
        assert ids(snapshot, f'step:"ProfilerStep#{number}"', 0) == [
            i for i, a in enumerate(rows) if a.alloc_event >= 0 and began <= times[a.alloc_event] <= end[number]
        ]


def test_steps_need_no_times() -> None:
    """Recognised by the optimizer's stacks, steps divide what was allocated in them."""
    snapshot = snapreport.load(corpus.path_of("no-times"))
    steps = snapshot.steps(0)
    assert len(steps) > 1 and snapshot.timeline(0).events["time_us"].null_count() == len(snapshot.timeline(0).events)
    found = [ids(snapshot, f"step:{number}", 0) for number in steps["step"]]
    assert all(found) and sorted(i for mine in found for i in mine) == ids(snapshot, "step:0..", 0)
    assert ids(snapshot, f'step:"{steps["name"][0]}"', 0)[: len(found[0])] == found[0]


def test_a_bad_query_on_the_command_line(tmp_path: Path) -> None:
    assert_refused(in_process("stats", corpus.path_of("small"), "--query", "a size:big"), "character 8", "big")
    assert_refused(in_process("stats", tmp_path / "absent.pickle", "--query", "("), "character 1")
