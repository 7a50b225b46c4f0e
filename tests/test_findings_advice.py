"""Advice is given where its cause was planted, with the bytes that a count by hand gives, and not where the cause is
missing.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
import saving_oracle
from planted import planted
from scripted import MIB, Script

import snapreport
from snapreport.contracts.finding import Link
from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.findings.selection import stack_term
from snapreport.number_format import arrow_text
from snapreport.report.finding_cards import link_of
from snapreport.sentence import joined
from snapreport.snapshot import Snapshot

TORCH = "/env/site-packages/torch/"
FORWARD = (("/app/model.py", "forward"), (TORCH + "nn/modules/module.py", "_call_impl"))
BACKWARD = ((TORCH + "autograd/graph.py", "_engine_run_backward"), (TORCH + "_tensor.py", "backward"))
OPTIMIZER = ((TORCH + "optim/adam.py", "_init_group"), (TORCH + "optim/adam.py", "step"))
WEIGHTS = ((TORCH + "nn/modules/module.py", "_apply"), (TORCH + "nn/modules/module.py", "to"))
ATTENTION = (("/app/attention.py", "softmax"), ("/app/attention.py", "attend"), *FORWARD)
SOFTMAX = ((TORCH + "nn/functional.py", "log_softmax"), ("/app/serve.py", "sample"))
LOSS = ((TORCH + "nn/functional.py", "cross_entropy"), ("/app/train.py", "compute_loss"))
GELU = ((TORCH + "nn/modules/activation.py", "forward"), *FORWARD)
CACHE = (("/app/cache.py", "update"), *FORWARD)


def training(
    activation: int = 0, scores: int = 0, loss: int = 0, gradient: int = 0, state: int = 0, parameter: int = 50,
    keep_gradients: bool = False, inside: tuple[tuple[str, str], ...] = (), settings: dict[str, Any] | None = None,
    output: int = 0, by: tuple[tuple[str, str], ...] = (),
) -> Script:  # fmt: skip
    """Six steps of a model; sizes in MiB of each of twelve tensors, except for ``loss``. ``inside``: frames around its
    forward; ``output``: what the function ``by`` returns.
    """
    script = Script(settings or {})
    for _ in range(12):
        script.alloc("parameter", parameter * MIB, *WEIGHTS)
    grads: list[int] = []
    for number in range(6):
        began = len(script.events)
        if not keep_gradients:
            while grads:
                script.free(grads.pop(), (TORCH + "optim/optimizer.py", "zero_grad"))
        made = (("activation", activation, FORWARD), ("scores", scores, ATTENTION), ("output", output, by))
        each = [made] if output else [[kind] for kind in made]  # layer by layer, or one kind after another
        held = [
            script.alloc(tag, size * MIB, *frames, *inside)
            for kinds in each
            for _ in range(12)
            for tag, size, frames in kinds
            if size
        ]
        ends = [script.alloc("loss", loss * MIB, *LOSS)] if loss else []
        if not grads:
            grads += [script.alloc("gradient", max(1, gradient) * MIB, *BACKWARD) for _ in range(12)]
        for address in [*held[::-1], *ends]:
            script.free(address, *BACKWARD)
        if number == 0:
            for _ in range(12):
                script.alloc("state", max(1, state) * MIB, *OPTIMIZER)
        script.step(number, began)
    return script


def serving(
    cache: int = 0, activation: int = 0, loss: int = 0, cache_file: str = "/app/kv_cache.py",
    by: tuple[tuple[str, str], ...] = LOSS,
) -> Script:  # fmt: skip
    """A model that answers and never learns."""
    script = Script()
    for _ in range(12):
        script.alloc("parameter", 50 * MIB, *WEIGHTS)
    for _ in range(3):
        held = [script.alloc("cache", cache * MIB, (cache_file, "update"), *FORWARD) for _ in range(12) if cache]
        held += [script.alloc("activation", activation * MIB, *FORWARD) for _ in range(12) if activation]
        held += [script.alloc("loss", loss * MIB, *by)] if loss else []
        for address in held:
            script.free(address, ("/app/serve.py", "finish"))
    return script


def advised(raw: dict[str, Any], folder: Path) -> dict[str, Finding]:
    """The advice for a snapshot by its rule."""
    path = folder / "advice.pickle"
    path.write_bytes(pickle.dumps(raw, 4))
    return rules_of(snapreport.load(path))


def rules_of(snapshot: Snapshot) -> dict[str, Finding]:
    return {f.evidence["rule"]: f for f in findings(snapshot) if f.kind == "advice"}


Case = tuple[str, Callable[[], Script], tuple[str, ...], float]
# The rule, a program, whose bytes change, and how much of each allocation.
GIVEN: list[Case] = [
    (
        "checkpointing",
        lambda: training(activation=100, output=50, by=GELU),
        ("activation", "output"),
        (12 * 150 + 12 - (12 * 50 + 100)) / (12 * 150),  # at the end of the forward pass; gradients come after it
    ),
    # The first gradient of the second half, 1 MiB, is there beside that of the first until it is added.
    ("accumulation", lambda: training(activation=100), ("activation",), 1 / 2 - 1 / 1200),
    ("mixed-precision", lambda: training(activation=100), ("activation",), 1 / 2 - 300 / 1200),
    ("mixed-precision", lambda: serving(activation=100), ("activation",), 1 / 2 - 300 / 1200),
    ("fused-attention", lambda: training(activation=50, scores=60), ("scores",), 1),
    ("chunked-loss", lambda: training(activation=50, loss=700), ("loss",), 7 / 8),
    ("chunked-loss", lambda: serving(activation=50, loss=700), ("loss",), 7 / 8),  # an evaluation
    (
        "keep-gradients",
        lambda: training(activation=50, gradient=50, keep_gradients=True),
        ("gradient",),
        703 / 1024,  # the next backward pass makes them again, one after another
    ),
    ("optimizer-state", lambda: training(activation=50, state=80), ("state",), 3 / 4),
    (
        "optimizer-state",
        lambda: training(activation=50, state=80, inside=((TORCH + "distributed/fsdp/api.py", "fsdp_forward"),)),
        ("state",),
        3 / 4,
    ),
    ("offload", lambda: training(activation=50, state=100), ("state",), 1),
    (
        "offload",
        lambda: training(activation=50, state=100, inside=(("/me/offload/offload.py", "forward"),)),
        ("state",),
        1,
    ),
    ("kv-cache", lambda: serving(cache=100), ("cache",), 1 / 2),
]


@pytest.mark.parametrize(("rule", "make", "tags", "share"), GIVEN, ids=lambda v: v if isinstance(v, str) else "")
def test_given_with_its_bytes(
    rule: str, make: Callable[[], Script], tags: tuple[str, ...], share: float, tmp_path: Path
) -> None:
    """The bytes that change are those of the cause, and the saving is that of the curve without them."""
    script = make()
    raw = script.raw()
    device = corpus.oracle.replay(raw)[0]
    assert device.peak_bytes == script.total(script.peak)
    finding = advised(raw, tmp_path)[rule]
    saving = finding.evidence["saving"]
    assert finding.evidence["at_peak_bytes"] == script.at_peak(*tags) > 64 * MIB
    assert finding.evidence.get("layers", 0) == 0  # one matrix each, of one size, proves no number
    assert saving["fraction"] == pytest.approx(share, abs=1 / 4096)
    change = saving_oracle.bytes_out(snapreport.load(tmp_path / "advice.pickle"), 0, device, saving)
    assert saving_oracle.peak_without(device, change) == (saving["peak_bytes"], saving["peak_event"])
    how = "" if finding.confidence == "estimate" else " (replayed)"
    assert finding.title.endswith(f": peak {arrow_text(device.peak_bytes, saving['peak_bytes'])}{how}")
    ends = saving.get("low_bytes", 0), saving.get("high_bytes", device.peak_bytes)
    assert ends[0] <= saving["peak_bytes"] <= ends[1] <= device.peak_bytes
    assert ("at worst nothing is saved" in " ".join(finding.detail)) == (
        "low_bytes" in saving and ends[1] == device.peak_bytes
    )
    assert finding.severity == "info" and finding.evidence["url"].startswith("https://") and finding.detail[0]


def loading(steps: int, data: int = 600, batch: int = 30) -> Script:
    """Steps that each take a batch of ``batch`` MiB from data of ``data`` MiB on the device."""
    script, main = Script(), ("/app/train.py", "main")
    for _ in range(4):
        script.alloc("parameter", 20 * MIB, *WEIGHTS)
    script.alloc("data", data * MIB, ("/app/train.py", "load"), main)
    for number in range(steps):
        began = len(script.events)
        taken = script.alloc("batch", batch * MIB, ("/app/train.py", "batch"), main)
        layers = [script.alloc("activation", 40 * MIB, *FORWARD) for _ in range(4)]
        grads = [script.alloc("gradient", 20 * MIB, *BACKWARD) for _ in range(4)]
        for address in layers[::-1]:
            script.free(address, *BACKWARD)
        if number == 0:
            for _ in range(4):
                script.alloc("state", 20 * MIB, *OPTIMIZER)
        script.free(taken, main)
        for address in grads:
            script.free(address, (TORCH + "optim/optimizer.py", "zero_grad"))
        script.step(number, began)
    return script


@pytest.mark.parametrize(
    ("steps", "data", "is_given"), [(1, 600, False), (2, 600, True), (6, 59, False), (6, 60, True)]
)
def test_data_is_known_by_a_batch_of_half_its_size(steps: int, data: int, is_given: bool, tmp_path: Path) -> None:
    """The first batch comes before the first forward pass, as the data do, so it shows nothing."""
    given = advised(loading(steps, data).raw(), tmp_path)
    assert ("data-on-device" in given) == is_given
    if is_given:
        assert given["data-on-device"].evidence["at_peak_bytes"] == data * MIB


CHECKPOINT = ((TORCH + "utils/checkpoint.py", "checkpoint"),)
NOT_GIVEN: list[tuple[str, Callable[[], Script]]] = [
    ("checkpointing", lambda: training(activation=100, inside=CHECKPOINT)),
    # torch.func allows no checkpointing inside of its transforms.
    *(
        ("checkpointing", lambda name=name: training(activation=100, output=50, by=GELU, inside=((name, "wrapped"),)))
        for name in (TORCH + "_functorch/vmap.py", TORCH + "_functorch/eager_transforms.py")
    ),
    ("checkpointing", lambda: serving(activation=100)),
    ("checkpointing", lambda: training(activation=100)),  # a layer's only tensor is its input
    ("checkpointing", lambda: training(activation=6, parameter=400)),
    ("accumulation", lambda: serving(activation=100)),
    ("accumulation", lambda: training(activation=6, parameter=400)),
    (
        "mixed-precision",
        lambda: training(activation=100, inside=((TORCH + "amp/autocast_mode.py", "decorate_autocast"),)),
    ),
    ("mixed-precision", lambda: training(activation=6, parameter=400)),
    ("fused-attention", lambda: training(activation=100)),
    (
        "fused-attention",
        lambda: training(activation=50, scores=60, inside=(("/env/flash_attn/api.py", "flash_attn_func"),)),
    ),
    ("fused-attention", lambda: training(activation=100, scores=3)),
    ("chunked-loss", lambda: training(activation=100, loss=30)),
    ("chunked-loss", lambda: serving(activation=50, loss=700, by=SOFTMAX)),  # samples from logits
    ("keep-gradients", lambda: training(activation=50, gradient=50)),
    ("keep-gradients", lambda: training(activation=50, gradient=2, keep_gradients=True)),
    ("optimizer-state", lambda: training(activation=100, state=2)),
    ("optimizer-state", lambda: serving(activation=100)),
    ("offload", lambda: training(activation=300, state=50)),
    ("offload", lambda: training(activation=50, state=100, inside=(("/app/policy.py", "cpu_offload"),))),
    (
        "offload",
        lambda: training(
            activation=50, state=100, inside=(("/env/site-packages/deepspeed/runtime/zero/offload_states.py", "load"),)
        ),
    ),
    ("kv-cache", lambda: training(activation=100, inside=(("/app/kv_cache.py", "update"),), state=20)),
    ("kv-cache", lambda: serving(cache=100, cache_file=TORCH + "_inductor/codecache.py")),
    ("kv-cache", lambda: serving(cache=2, activation=100)),
]


@pytest.mark.parametrize(("rule", "make"), NOT_GIVEN, ids=lambda value: value if isinstance(value, str) else "")
def test_not_given_without_its_cause(rule: str, make: Callable[[], Script], tmp_path: Path) -> None:
    assert rule not in advised(make().raw(), tmp_path)


def test_none_without_a_trace(tmp_path: Path) -> None:
    """A final state does not show what the peak was made of."""
    raw = training(activation=100, state=100).raw()
    assert advised(raw, tmp_path)
    assert advised({**raw, "device_traces": [[]]}, tmp_path) == {}


SMALL = {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "batch": 4, "vocabulary": 4096, "memory": 2 << 30}


def test_expandable_segments_where_the_request_then_fits() -> None:
    """The allocator is replayed with the setting: no advice where nothing would change."""
    given = rules_of(planted("fragmentation", **SMALL))
    oom = next(f for f in findings(planted("fragmentation", **SMALL)) if f.kind == "oom")
    advice = given["expandable-segments"]
    assert advice.title == "Enable expandable segments: the request fits (replayed)"
    assert advice.link == oom.link and advice.evidence["saving"] is None
    for without in (
        planted("fragmentation", **{**SMALL, "oom": "none"}),
        planted("training", **{**SMALL, "expandable": True}),
    ):
        assert not {"expandable-segments", "max-split-size"} & rules_of(without).keys()


def test_emptying_the_cache_costs_time_and_lowers_no_peak() -> None:
    snapshot = planted("churn")
    advice = rules_of(snapshot)["empty-cache"]
    churned = next(f for f in findings(snapshot) if f.kind == "churn")
    assert advice.evidence["saving"] is None and "does not lower the peak allocated" in advice.detail[0]
    assert "end_step" in advice.detail[0] and advice.link == churned.link
    assert churned.evidence["emptied"] == churned.evidence["segments_freed"] and "retries" not in advice.detail[0]
    assert "garbage-collection-threshold" not in rules_of(snapshot), "empty_cache() explains it"
    assert "empty-cache" not in rules_of(planted("churn", churn=0))


def retrying(settings: dict[str, Any], rounds: int = 8, segments: int = 2) -> dict[str, Any]:
    """Nine steps, of which the last ``rounds`` release segments of 200 MiB and request the same again."""
    script = Script(settings)
    addresses = [(1 << 40) + number * 512 * MIB for number in range(segments)]
    kept = script.alloc("kept", 100 * MIB, *FORWARD)
    for number in range(9):
        began = len(script.events)
        for action in ("segment_free", "segment_alloc") if number >= 9 - rounds else ():
            for address in addresses:
                script._event(action, address, 200 * MIB, FORWARD)
        for _ in range(40):
            script.free(script.alloc("work", 20 * MIB, *FORWARD), *FORWARD)
        script.step(number, began)
    script.free(kept, *FORWARD)
    raw = script.raw()
    for address in addresses:
        raw["segments"].append(
            {
                "device": 0, "address": address, "total_size": 200 * MIB, "stream": 0, "segment_type": "large",
                "allocated_size": 0, "active_size": 0,
                "blocks": [
                    {"address": address, "size": 200 * MIB, "requested_size": 0, "state": "inactive", "frames": []}
                ],
            }
        )  # fmt: skip
    return raw


@pytest.mark.parametrize(("rounds", "is_churn"), [(1, False), (2, False), (3, True), (8, True)])
def test_a_cache_emptied_once_and_filled_anew_is_no_churn(rounds: int, is_churn: bool, tmp_path: Path) -> None:
    path = tmp_path / "rounds.pickle"
    path.write_bytes(pickle.dumps(retrying({}, rounds, segments=5)))
    found = [f for f in findings(snapreport.load(path)) if f.kind == "churn"]
    assert [f.bytes for f in found] == ([rounds * 5 * 200 * MIB] if is_churn else [])


def test_retries_come_with_the_setting_and_what_makes_it_work(tmp_path: Path) -> None:
    advice = advised(retrying({}), tmp_path)["garbage-collection-threshold"]
    assert advice.evidence["saving"] is None, "what is released again and again is no saving"
    assert "set_per_process_memory_fraction" in " ".join(advice.detail) + advice.evidence["term"]
    assert "garbage-collection-threshold" not in advised(retrying({"garbage_collection_threshold": 0.8}), tmp_path)


def test_links_lead_into_the_page(telling_path: Path) -> None:
    snapshot = corpus.loaded(telling_path)
    index = {device: place for place, device in enumerate(snapshot.devices)}
    for finding in findings(snapshot):
        if finding.kind == "advice":
            assert link_of(finding, index[finding.device]).startswith("#view=")


def test_a_range_of_stacks_in_a_link_is_renumbered() -> None:
    """A report over several files renumbers stacks."""
    link = Link(view="flame", at=3, query=joined([stack_term(2, 5), stack_term(9)], " OR "))
    finding = Finding("advice", 0, "info", "", link=link)
    assert link_of(finding, 0, stack_base=100).endswith("query=stack%3A102..105%20OR%20stack%3A109")


def test_attention_that_fails_in_its_softmax_is_told_of_the_fused_kernel() -> None:
    """The request that failed is the softmax of a hand-written attention, in our own sample of a failure."""
    snapshot = corpus.loaded(corpus.path_of("oom"))
    timeline = snapshot.timeline(0)
    recording, event = snapshot.recording, timeline.oom_events[-1]
    failed = recording.stack(int(timeline.events["stack"][event]))
    assert "softmax" in recording.frames["name"].gather(failed).to_list()
    first = next(finding for finding in findings(snapshot) if finding.kind == "advice")
    assert first.evidence["rule"] == "fused-attention" and event in first.evidence["saving"]["failed_events"]
