"""Every rule and kind of finding fires on a small recording in tests/recordings/witnesses: one that never did would be
untested where nobody has larger ones.

Each is a program of ``fakecuda/programs``, by its name there, recorded with PyTorch 2.15 (``drawn``: 2.9) over the fake
CUDA driver, or ``tight``: the first sample's program on a device of 6 GiB, with PyTorch 2.9. ``_native``: C++ frames
(``STACKS=all``), where each operator of a line has a stack trace of its own.
"""

from __future__ import annotations

import ast
import functools
import itertools
import pickle
from pathlib import Path

import corpus
import pytest
from scripted import Script

import snapreport
from snapreport.findings.diagnosis import headline
from snapreport.findings.model import Finding
from snapreport.findings.run import KINDS, findings
from snapreport.report.page_remedies import page_growth

RECORDINGS = Path(__file__).parent / "recordings" / "witnesses"
WORKSPACE = 8_519_680
FINDINGS = Path(snapreport.__file__).parent / "findings"
# Recording: what it is there for, rules of advice and types of evidence.
CAUSES = {
    "all_triplets": "triplet-chunks",
    "adam": "offload optimizer-state foreach-optimizer",
    "adapters": "frozen-base",
    "beams": "replaced-together inference-batch",
    "best": "weight-copies",
    "categorical": "one-hot-inputs",
    "chat": "kv-cache",
    "categorical_native": "one-hot-inputs",
    "citation_native": "mixed-precision",
    "citations": "checkpointing",
    "clients": "collected-weights",
    "codebook": "distance-matrix accumulation",
    "copies": "autocast-copies",
    "crowded": "ChurnEvidence garbage-collection-threshold",
    "cycles": "CycleEvidence",
    "drawn": "evaluation-batch",
    "emptied": "ChurnEvidence empty-cache",
    "floated": "chunked-loss",
    "evaluated_words": "no-grad sdpa-math-kernel",
    "grown_lengths": "OversizedEvidence expandable-segments",
    "host": "LiveAtEndEvidence",
    "labels": "one-hot",
    "loaded": "loaded-checkpoint",
    "masked_model": "full-logits fused-attention checkpointing",
    "masks": "expanded-mask",
    "outputs": "previous-outputs mixed-precision",
    "predictions": "collected-outputs LeakEvidence",
    "queue": "no-grad",
    "queued": "prefetched-batches",
    "recall": "score-chunks",
    "regression": "broadcast",
    "replaced": "second-model",
    "retried": "OomEvidence exception-holds",
    "search": "distance-chunks",
    "search_native": "distance-chunks",
    "served": "cast-on-device",
    "skipgram_native": "sparse-gradients",
    "split": "FragmentationEvidence max-split-size",
    "stored": "retained-graphs",
    "tables": "data-on-device",
    "tight": "OomEvidence expandable-segments fused-attention",
    "uneven": "device-imbalance",
    "unfrozen": "untrained-gradients",
    "unsplit": "unset-max-split-size",
    "vocabulary": "chunked-loss",
    "waiting": "backward-each",
    "waves": "OomEvidence",
    "zeroed": "keep-gradients",
}
ELSEWHERE = {"MoreOomsEvidence": "test_findings_oom has many failures", "PeakEvidence": "every recording has a peak"}


@functools.cache
def found(name: str) -> tuple[Finding, ...]:
    return tuple(findings(corpus.loaded(RECORDINGS / f"{name}.pickle.xz")))


def labels(finding: Finding) -> str:
    return str(finding.evidence.get("rule") or type(finding.evidence).__name__)


@pytest.mark.parametrize("name", CAUSES, ids="{}.pickle.xz".format)  # its tests run together (spread.py)
def test_a_rule_fires_where_its_cause_is(name: str) -> None:
    assert set(CAUSES[name].split()) <= {labels(finding) for finding in found(name)}


@pytest.mark.parametrize(
    ("name", "rule", "where"),
    [
        ("outputs", "previous-outputs", "witnesses.py:155"),  # calls the model, of which a layer allocates the bytes
        ("predictions", "collected-outputs", "mistakes.py:69"),
        ("stored", "retained-graphs", "remedies.py:143"),
        ("served", "cast-on-device", "laboratory.py:262"),  # moves them
        ("zeroed", "keep-gradients", None),  # they are freed at the end of the program
        ("adam", "foreach-optimizer", "witnesses.py:29"),  # of the optimizer's constructor, which allocates nothing
        ("masked_model", "fused-attention", "kit.py:109"),
        ("replaced", "second-model", None),  # its blocks come from before the trace
        ("retried", "exception-holds", "mistakes.py:208"),
    ],
)
def test_the_line_to_change(name: str, rule: str, where: str | None) -> None:
    (place,) = (finding.evidence["where"] for finding in found(name) if finding.evidence.get("rule") == rule)
    assert place == where or place.endswith(f"/{where}")


def test_the_line_to_change_where_some_stack_traces_end_early(tmp_path: Path) -> None:
    """C++ frames end in the start of the process, but where they could not be followed."""
    raw = corpus.raw(RECORDINGS / "drawn.pickle.xz")
    for event in raw["device_traces"][0]:
        if event.get("frames") and event["frames"][0]["name"] != "floats":
            event["frames"] = [*event["frames"], {"filename": "??", "line": 0, "name": "_start"}]
    path = tmp_path / "ends.pickle"
    path.write_bytes(pickle.dumps(raw, 4))
    given = {f.evidence["rule"]: f.evidence["where"] for f in findings(snapreport.load(path)) if f.kind == "advice"}
    assert given["evaluation-batch"].endswith("/hasty.py:195")


@pytest.mark.parametrize("name", CAUSES)
def test_a_line_or_why_none_is_known(name: str) -> None:
    for finding in found(name):
        if finding.kind == "advice":
            evidence = finding.evidence
            assert bool(evidence["where"]) != bool(evidence["where_unknown"]), evidence["rule"]
            assert evidence["line"] or evidence["effort"] != "one line" or evidence["rule"] == "empty-cache"


@pytest.mark.parametrize("size", [0, 32 << 20])
@pytest.mark.parametrize("name", ["codebook", "labels", "masked_model", "regression"])
def test_workspaces_beside_products_hide_nothing(tmp_path: Path, name: str, size: int) -> None:
    """PyTorch 2.15 allocates one beside each matrix product, 8.1 MiB or on other GPUs 32 MiB; 2.9 (``size`` 0) none."""
    raw = corpus.raw(RECORDINGS / f"{name}.pickle.xz")
    events, changed, away = raw["device_traces"][0], [], set[int]()
    for before, event, *after in itertools.zip_longest(events, events[1:], events[2:], events[3:]):
        is_beside = event and before["action"] == event["action"] == "alloc" and before["frames"] == event["frames"]
        if is_beside and event["size"] == WORKSPACE and event["addr"] in [one["addr"] for one in after if one]:
            away.add(event["addr"])
        if event and event["addr"] in away and event["size"] == WORKSPACE:
            changed += [{**event, "addr": event["addr"] + (1 << 44), "size": size}] * (size > 0)
            away -= {event["addr"]} if event["action"] == "free_completed" else set()
        elif event:
            changed.append(event)
    assert len(events) - len(changed) - 1 >= (0 if size else 12), "what the recording is about"
    path = tmp_path / "changed.pickle"
    path.write_bytes(pickle.dumps({**raw, "device_traces": [[events[0], *changed], *raw["device_traces"][1:]]}))
    rules = [labels(finding) for finding in findings(snapreport.load(path)) if finding.kind == "advice"]
    assert rules[0] == next(labels(finding) for finding in found(name) if finding.kind == "advice")


def test_gradients_of_a_backward_pass_with_stack_traces_are_no_one_hot_vectors() -> None:
    """Float gradients of logits under autocast, then their 16-bit copy: half as many bytes, as of 64-bit integers."""
    assert not {"one-hot", "full-logits"} & {labels(finding) for finding in found("floated")}


@pytest.mark.parametrize("name", ["citation_native", "citations"])
def test_a_whole_graph_is_not_halved(name: str) -> None:
    """With C++ frames a line that sends messages has several stack traces; what one of them allocates is saved."""
    assert not {"accumulation", "data-on-device"} & {labels(finding) for finding in found(name)}


def test_a_data_set_stays_where_a_batch_is_halved() -> None:
    by_rule = {labels(finding): finding.evidence for finding in found("tables")}
    assert by_rule["accumulation"]["saving"]["peak_bytes"] > by_rule["data-on-device"]["at_peak_bytes"]


def test_a_request_that_fits_for_a_moment_comes_after_what_lets_the_step_end() -> None:
    """The failed request would fit with expandable segments, the layers after it would not. The scores of the layer
    that failed are alive once, and no logits.
    """
    rules = [labels(finding) for finding in found("tight") if finding.kind == "advice"]
    assert rules[0] == "fused-attention" and "full-logits" not in rules
    (setting,) = (finding for finding in found("tight") if labels(finding) == "expandable-segments")
    assert setting.detail[1] == "A later request fails: 1014 MiB more is needed."
    first = " ".join(headline(found("tight"), 0))
    assert "fragmentation" in first and "the request fits" not in first


@pytest.mark.parametrize(
    ("module", "says", "line"),
    [
        ("sgd", "the fused optimizer", "optimizer = torch.optim.SGD(parameters, fused=True)"),
        ("adagrad", "foreach=False", "optimizer = torch.optim.Adagrad(parameters, foreach=False)"),
        ("rmsprop", "foreach=False", "optimizer = torch.optim.RMSprop(parameters, foreach=False)"),
        ("muon", "foreach=False", None),
    ],
)
def test_only_optimizers_with_a_fused_kernel_are_told_to_use_it(
    tmp_path: Path, module: str, says: str, line: str | None
) -> None:
    raw = corpus.raw(RECORDINGS / "adam.pickle.xz")
    renamed = pickle.dumps(raw, 0).replace(b"torch/optim/adam.py", f"torch/optim/{module}.py".encode())
    (tmp_path / "renamed.pickle").write_bytes(renamed)
    given = findings(snapreport.load(tmp_path / "renamed.pickle"))
    (finding,) = (each for each in given if labels(each) == "foreach-optimizer")
    assert says in finding.title and finding.evidence["line"] == line
    # Of the others one parameter's temporaries stay.
    assert (finding.evidence["saving"]["fraction"] < 1) == (
        line != "optimizer = torch.optim.SGD(parameters, fused=True)"
    )


def test_scores_of_an_evaluation_do_not_halve_with_the_batch() -> None:
    assert not {"accumulation", "distance-chunks"} & {labels(finding) for finding in found("recall")}


def test_layers_of_a_pass_that_fails_are_no_leak() -> None:
    """A closure calls sixteen layers one after another, and memory runs out before any backward pass."""
    assert not [finding.title for finding in found("waves") if finding.kind == "leak"]


def test_every_recording_is_a_witness() -> None:
    assert {path.name.removesuffix(".pickle.xz") for path in RECORDINGS.iterdir()} == CAUSES.keys()


def test_every_rule_has_a_witness() -> None:
    rules = {rule for path in FINDINGS.glob("*.py") for rule in rules_in(path.read_text(encoding="utf-8"))}
    evidence = {one.__name__ for kind in KINDS if kind.name != "advice" for one in kind.evidence}
    assert len(rules) > 30 and len(evidence) > 8
    witnessed = {cause for causes in CAUSES.values() for cause in causes.split()}
    assert rules | evidence == witnessed | ELSEWHERE.keys()


def rules_in(source: str) -> list[str]:
    """The names of rules in a file: the first argument of ``Advice(...)``, the second of ``_setting_advice(...)``."""
    place = {"Advice": 0, "_setting_advice": 1}
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    given = (n.args[place[n.func.id]] for n in calls if isinstance(n.func, ast.Name) and n.func.id in place)
    return [str(name.value) for name in given if isinstance(name, ast.Constant)]


def test_a_request_that_failed_counts_though_its_block_is_recorded(tmp_path: Path) -> None:
    """Of predictions whose square is no whole number of blocks: the second square does not fit."""
    square, block = 6001 * 6001 * 4, 6001 * 6001 * 4 // 512 * 512 + 512
    sizes = {6000 * 6000 * 4: square, 6000 * 4: 6001 * 4}
    raw = corpus.raw(RECORDINGS / "regression.pickle.xz")
    events = [{**event, "size": sizes.get(event["size"], event["size"])} for event in raw["device_traces"][0]]
    at = [event["action"] == "alloc" and event["size"] == square for event in events]
    second = at.index(True, at.index(True) + 1)
    live: dict[int, tuple[str, int]] = {}
    for event in events[:second]:
        if event["action"] == "alloc":
            live[event["addr"]] = "", event["size"]
        elif event["action"] == "free_completed":
            live.pop(event["addr"], None)
    failed = {**events[second], "action": "oom", "addr": 0, "size": block, "device_free": 1 << 20}
    path = tmp_path / "failed.pickle"
    path.write_bytes(pickle.dumps(Script(events=[*events[:second], failed], live=live).raw()))
    (finding,) = (f for f in findings(snapreport.load(path)) if labels(f) == "broadcast")
    assert finding.evidence["at_peak_bytes"] == square + block


def test_no_other_batch_is_foretold_where_triplets_grow_with_its_third_power() -> None:
    snapshot = snapreport.load(RECORDINGS / "all_triplets.pickle.xz")
    assert page_growth(snapshot, [], {0: 0}, 0), "activations grow"
    assert not page_growth(snapshot, findings(snapshot), {0: 0}, 0)
    [device] = snapreport.fit([snapshot], [240], to=[480])["devices"]
    assert device["aligned"]["reason"].endswith("which grow with the third power of the value")
    [device] = snapreport.fit([snapshot], [241], to=[480])["devices"]
    assert device["aligned"]["reason"] is None
