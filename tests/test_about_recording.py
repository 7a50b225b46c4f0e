"""What a recording cannot tell is stated once, with how to record it next time; unknown memory never comes first."""

from __future__ import annotations

import corpus
import pytest

from snapreport.report.summary import Card, Summary, summarise


def summary_of(name: str) -> Summary:
    if name not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    return summarise([corpus.loaded(corpus.path_of(name))], name)


def said(card: Card) -> str:
    return " ".join([*card.doubts, *card.assurances, *card.peak])


@pytest.mark.parametrize(
    ("name", "share"),
    [("adamw_foreach_ctx128.pickle", "60%"), ("adamw_foreach_step.pickle", "58%"), ("two_models_alive.pickle", "64%")],
)
def test_what_is_older_than_the_trace_is_said_once(name: str, share: str) -> None:
    (card,) = summary_of(name).cards
    line = f"{share} of the peak was allocated before recording started and has no stack trace."
    assert said(card).count(line) == 1
    assert said(card).count("Start recording before the model is built.") == 1


@pytest.mark.parametrize("name", corpus.real_names() or ["none"])
def test_unknown_never_leads_the_headline(name: str) -> None:
    """A known category comes first, and a device that ran out of memory says so before its peak."""
    summary = summary_of(name)
    peak = next(
        line for line in summary.headline_text if line.startswith(("Peak on", "Final state of", "No allocations"))
    )
    sentences = peak.split(". ")
    assert not any(s.startswith("Unknown") and "," in s for s in sentences), peak
    if any(card.severity == "error" and card.label == "Out of memory" for card in summary.findings):
        assert summary.headline_text[0].startswith("Out of memory on ")


def test_a_true_lower_bound_is_called_one() -> None:
    summary = summary_of("two_models_alive.pickle")
    assert summary.headline_text[1].startswith("Peak on cuda:0: at least 31.6 GiB allocated")
    assert "an earlier peak was probably higher" in said(summary.cards[0])
