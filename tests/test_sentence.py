"""A sentence is its plain text, and every part of it keeps what it refers to."""

from __future__ import annotations

import copy
import pickle

import corpus
import pytest

from snapreport.findings.run import findings
from snapreport.report.markdown import prose
from snapreport.report.sentence_html import Links, code_markup
from snapreport.sentence import (
    Part,
    bytes_change,
    bytes_part,
    bytes_with_article,
    event_part,
    from_json,
    joined,
    listed,
    parts_json,
    parts_of,
    rank_part,
    sentence,
    stack_part,
)

LEAK = sentence(
    "{} keeps {size} at {}: `del x`.", stack_part(7, "f a`b.py:3"), event_part(5445), size=bytes_part(3 << 20)
)


def test_a_sentence_is_its_text() -> None:
    assert LEAK == "f a`b.py:3 keeps 3.00 MiB at event 5,445: del x."
    assert [(part.kind, part.number) for part in LEAK.parts if part.kind != "text"] == [
        ("stack", 7), ("bytes", 3 << 20), ("event", 5445), ("code", None),
    ]  # fmt: skip
    assert parts_of("plain") == (Part("text", "plain"),) and parts_of("") == ()


def test_a_name_is_never_a_template() -> None:
    hostile = stack_part(1, "{0} `x` {y}")
    assert sentence("in {}", sentence("{name}", name=hostile)) == "in {0} `x` {y}"


@pytest.mark.parametrize(
    "made", [LEAK[:], copy.deepcopy(LEAK), pickle.loads(pickle.dumps(LEAK)), from_json(parts_json(LEAK))]
)
def test_parts_survive(made: str) -> None:
    assert made == LEAK and parts_of(made) == LEAK.parts


def test_slices_and_sums_keep_parts() -> None:
    both = "Leak: " + LEAK + joined([rank_part(3), bytes_change(1 << 30, 2 << 30)], ", ")
    assert both == f"Leak: {LEAK}rank 3, 1.00 → 2.00 GiB"
    assert {part.kind for part in parts_of(both)} == {"text", "stack", "bytes", "event", "code", "rank"}
    cut = both[len("Leak: ") : len("Leak: ") + 4]
    assert parts_of(cut) == (Part("stack", "f a`", 7),)
    assert listed(["a", "b", bytes_part(1)]) == "a, b and 1 B" and listed([]) == ""
    assert bytes_with_article(8 << 30) == "an 8.00 GiB" and bytes_with_article(12 << 20) == "a 12.0 MiB"


def test_outputs_render_parts() -> None:
    markup = code_markup(LEAK, Links(device=1, devices={0: 1}, stack_base=10))
    assert '<a href="#view=timeline&amp;device=1&amp;stack=17"><code>f a`b.py:3</code></a>' in markup
    assert '<a href="#view=timeline&amp;device=1&amp;at=5445">event 5,445</a>' in markup
    assert "<code>del x</code>" in markup
    assert prose(LEAK).startswith("``f a`b.py:3`` keeps 3.00 MiB at event 5,445: `del x`")


@pytest.mark.parametrize("name", ["leak", "oom", "fragmentation", "churn"])
def test_names_of_a_program_are_parts(name: str) -> None:
    """No text of ours has a line of the program, and every finding's bytes and stacks are parts."""
    kinds = set()
    for finding in findings(corpus.loaded(corpus.path_of(name))):
        for line in (finding.title, *finding.detail):
            assert not any(".py:" in part.text for part in parts_of(line) if part.kind == "text"), line
            kinds |= {part.kind for part in parts_of(line)}
    assert {"text", "bytes", "stack"} <= kinds
