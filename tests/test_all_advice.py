"""Every output shows all advice, the largest saving first; what follows the first three is brief or folded."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from pathlib import Path

import corpus
import pytest

import snapreport
from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.report.stats_text import stats_text
from snapreport.report.ticket import ticket_markdown
from snapreport.snapshot import Snapshot


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return snapreport.load(corpus.path_of("pools"))


@pytest.fixture(scope="module")
def advice(snapshot: Snapshot) -> list[Finding]:
    given = [finding for finding in findings(snapshot) if finding.kind == "advice"]
    assert len(given) > 3, "the sample is to have so much that some of it is folded"
    ranks = [(f.evidence["priority"], -f.bytes) for f in given]
    assert ranks == sorted(ranks)
    return given


def test_text(snapshot: Snapshot, advice: list[Finding]) -> None:
    text = " ".join(stats_text(snapshot).split())
    # The diagnosis above the findings names the best remedy, too; a finding's title is followed by its confidence.
    titles = [f"{finding.title} [{finding.confidence}]" for finding in advice]
    assert [text.count(title) for title in titles] == [1] * len(advice)
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert [any(line in text for line in finding.detail) for finding in advice[:4]] == [True, True, True, False]


def test_markdown(snapshot: Snapshot, advice: list[Finding]) -> None:
    text = ticket_markdown(snapshot).replace("\\", "").replace("`", "")
    shown, folded = text.split("<details>")
    # The diagnosis above the list names the best remedy, too.
    items = [f"- **{finding.title}** ({finding.confidence})." for finding in advice]
    assert [shown.count(item) for item in items] == [1] * 3 + [0] * len(items[3:])
    assert [folded.count(item) for item in items] == [0] * 3 + [1] * len(items[3:])
    assert folded.count("</details>") == 1
    assert f"{len(advice) - 3} more suggestion" in folded


def test_page(advice: list[Finding], report_of: Callable[..., Path]) -> None:
    text = unescape(report_of(corpus.path_of("pools")).read_text(encoding="utf-8"))
    text = text.replace("<code>", "").replace("</code>", "")
    assert all(finding.title in text for finding in advice)
