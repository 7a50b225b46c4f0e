"""The samples: recordings of real programs whose advice is right."""

from __future__ import annotations

import lzma
from pathlib import Path

import corpus
import pytest
from cli import in_process
from planted import rewritten

import snapreport
from snapreport.findings.run import findings
from snapreport.samples import SAMPLES, recordings


def first_advice(path: Path) -> str:
    rules = [finding.evidence.get("rule") for finding in findings(snapreport.load(path)) if finding.kind == "advice"]
    return str(rules[0])


def test_the_first_sample_is_told_to_fuse_its_attention() -> None:
    """Its program makes scores, and fails in their softmax."""
    snapshot = corpus.loaded(recordings("training")[0])
    failed = snapshot.events(0).filter(action="oom")
    frames = snapshot.frames(failed["stack"][0])
    assert frames.filter(filename="/app/model.py")["name"][0] == "attend"
    line = (corpus.ROOT / "sample_programs" / "model.py").read_text().splitlines()[frames["line"][0] - 1]
    assert "softmax" in line
    assert first_advice(recordings("training")[0]) == "fused-attention"


@pytest.mark.parametrize("folder", ["/home/me/text-generation", "C:\\embeddings\\normalised", "/srv/moe-samples"])
def test_the_name_of_a_folder_has_no_effect(folder: str) -> None:
    def move(frame: dict[str, object]) -> None:
        name = str(frame["filename"])
        frame["filename"] = name.replace("/app", folder)

    moved = rewritten(recordings("training")[0], f"moved-{abs(hash(folder))}.pickle", move)
    assert first_advice(moved) == "fused-attention"


def test_gathered_weights_are_not_frozen() -> None:
    """Of FSDP: their gradients are parts of other sizes."""
    rules = {finding.evidence.get("rule") for finding in findings(corpus.loaded(recordings("job")[0]))}
    assert "accumulation" in rules and "frozen-base" not in rules


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_name_no_machine(name: str) -> None:
    for path in recordings(name):
        content = lzma.decompress(path.read_bytes())
        assert not [folder for folder in (b"/work", b"/root", b"/tmp", b"/home") if folder in content]
    assert len(recordings(name)) == (4 if name == "job" else 1)


def test_a_sample_is_no_report(tmp_path: Path) -> None:
    run = in_process("sample", "logits", "-o", tmp_path / "logits.html")
    assert run.code == 2 and "snapreport logits.pickle -o" in run.err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"job"}))
def test_a_request_that_failed_does_not_contradict_the_record(name: str) -> None:
    """Advice at a failure counts the request that failed, which was never reserved."""
    snapshot = snapreport.load(recordings(name)[0])
    said = [line for finding in findings(snapshot) for line in finding.basis]
    assert said and not any("impossible" in line for line in said)
