"""Chips of the verdict: worst first, with severity, line and remedy, in the document itself."""

from __future__ import annotations

import re
from pathlib import Path

import corpus
import pytest
import recorded

import snapreport
from snapreport.findings.run import findings
from snapreport.report.build import write_report
from snapreport.report.summary import summarise

NUMBER = re.compile(r"\d [KMG]iB|the request fits")
CERTAINTY = '<span class="certainty">· estimate</span>'
LINE = re.compile(r"\w+\.py:\d+")
FAILED = ("oom_backward", "oom_fraction", "lightning_oom", "hf_trainer_oom")
LEAKS = ("leak_loss", "leak_outputs")


@pytest.mark.parametrize("name", [*FAILED, *LEAKS])
def test_the_first_chip_names_line_and_remedy(name: str) -> None:
    summary = summarise([recorded.load(name)], name)
    first = summary.chips[0]
    assert (first.severity, first.word) == (("error", "Error") if name in FAILED else ("warning", "Warning"))
    sentences = " ".join((first.cause, first.place, first.remedy))
    assert LINE.search(sentences), sentences
    # The remedy with its number, or where none was found the best of the chips beside it.
    remedies = [first.remedy] + [chip.cause for chip in summary.chips[1:3] if chip.is_advice]
    assert any(NUMBER.search(text) for text in remedies), remedies
    order = [("error", "warning", "info").index(chip.severity) for chip in summary.chips]
    assert order == sorted(order)
    causes = [chip.cause for chip in summary.chips]
    assert len(set(causes)) == len(causes), "nothing is told twice"


def test_chips_are_in_the_document(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("verdict") / "report.html"
    snapshot = snapreport.load(corpus.path_of("oom"))
    write_report([snapshot], path)
    header = path.read_text(encoding="utf-8").partition("</header>")[0]
    chips = re.findall(r'<li class="chip (\w+)" data-device="0" data-query="([^"]*)"', header)
    assert [severity for severity, _ in chips] == [chip.severity for chip in summarise([snapshot], "").chips]
    assert "<b>Error</b>" in header and 'href="#view=timeline&amp;device=0' in header


def test_chips_of_another_device_name_it() -> None:
    chips = summarise([recorded.load("two_gpus_dp")], "").chips
    assert {chip.cause.startswith(f"cuda:{chip.device}: ") for chip in chips if chip.device != chips[0].device} == {
        True
    }
    assert not any(chip.cause.startswith("cuda:") for chip in chips if chip.device == chips[0].device)


@pytest.mark.parametrize("name", ["masks", "masked_model", "adam"])
def test_an_estimate_is_called_so_wherever_it_is_offered(name: str, tmp_path: Path) -> None:
    snapshot = corpus.loaded(Path(__file__).parent / "recordings" / "witnesses" / f"{name}.pickle.xz")
    write_report([snapshot], tmp_path / "report.html")
    header = (tmp_path / "report.html").read_text(encoding="utf-8").partition("</header>")[0]
    advice = {f.evidence["rule"]: f.confidence == "estimate" for f in findings(snapshot) if f.kind == "advice"}
    assert set(advice.values()) == {True, False}
    offered = re.findall(r'<li data-device="0" data-rule="([^"]+)".*?>(.*)</li>', header)
    assert offered
    assert {rule: CERTAINTY in text for rule, text in offered} == {rule: advice[rule] for rule, _ in offered}
    chips = re.findall(r'<li class="chip.*data-rule="([^"]+)".* data-remedy>(.*)</li>', header)
    assert [(rule, text.count("estimate")) for rule, text in chips] == [(rule, int(advice[rule])) for rule, _ in chips]
