"""What a thread beside the passes allocates says nothing of them: it fetches batches while layers run."""

from __future__ import annotations

import pickle
from collections import Counter
from copy import deepcopy
from pathlib import Path

import beside
import corpus
import pytest
from scripted import Script
from test_findings_advice import FORWARD

import snapreport
from snapreport.findings.run import findings
from snapreport.timeline.threads import beside_passes

RECORDINGS = Path(__file__).parent / "recordings"
THREAD, MAIN = (("/app/prefetch.py", "copy"), ("/usr/lib/python3.11/threading.py", "_bootstrap")), ("/app/a.py", "main")


def kinds(path: Path) -> Counter[tuple[str, str]]:
    return Counter((one.kind, one.evidence.get("rule", "")) for one in findings(snapreport.load(path)))


@pytest.mark.parametrize("gap", [97, 23])
@pytest.mark.parametrize(
    "name",
    [
        *("samples/healthy", "samples/leak", "samples/training", "samples/two_devices"),  # graphs that wait
        *("witnesses/tight", "witnesses/masked_model", "mistakes/joined"),
        "witnesses/outputs",  # of which few rows seem to be used
        *("leaks/2.15.0_ends_return", "leaks/2.9.1_ends_return"),  # freed after the loop
        "mistakes/transcripts",  # graphs that are freed at once
    ],
)
def test_nothing_is_said_of_what_a_thread_falls_between(tmp_path: Path, name: str, gap: int) -> None:
    folder = Path(snapreport.__file__).parent if name.startswith("samples") else RECORDINGS
    raw = corpus.raw(folder / f"{name}.pickle.xz")
    for file, content in (("alone", raw), ("beside", beside.a_thread(deepcopy(raw), gap))):
        (tmp_path / file).write_bytes(pickle.dumps(content, 4))
    alone, with_thread = kinds(tmp_path / "alone"), kinds(tmp_path / "beside")
    assert {key for key in with_thread - alone if key[0] in ("advice", "leak")} == set()
    assert with_thread["leak", ""] == alone["leak", ""]


@pytest.mark.parametrize(
    ("passes", "others", "found"),
    [
        (FORWARD, THREAD, [False, False, True]),
        ((*FORWARD, *THREAD[1:]), THREAD, [False, False, False]),  # a program of which all runs in threads
        (FORWARD, (MAIN,), [False, False, False]),
    ],
)
def test_stacks_of_threads(
    tmp_path: Path, passes: tuple[tuple[str, str], ...], others: tuple[tuple[str, str], ...], found: list[bool]
) -> None:
    script = Script()
    script.alloc("activation", 1024, *passes)
    script.alloc("input", 1024, *others)
    path = tmp_path / "threads.pickle"
    path.write_bytes(pickle.dumps(script.raw(), 4))
    assert beside_passes(snapreport.load(path).recording).tolist() == found
