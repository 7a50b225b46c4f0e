"""Phases of stacks, and what a trace shows its program doing: on small stacks, generated traces and real ones."""

from __future__ import annotations

from typing import Any

import corpus
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_pipeline import load

import snapreport
from snapreport.report.activity_text import activity_text
from snapreport.timeline import phases
from snapreport.timeline.activity import GRAPH_DROPPED, INFERENCE, TRAINING, UNKNOWN
from snapreport.timeline.phases import NONE, PHASES, stack_phases

RECORDED = corpus.REAL.parent / "recorded"
STEP = [("/x/torch/optim/adam.py", "step"), ("/x/torch/optim/optimizer.py", "wrapper"), ("/a/train.py", "main")]
BACKWARD = [("/x/torch/autograd/graph.py", "_engine_run_backward"), ("/a/train.py", "main")]
FORWARD = [("/a/model.py", "forward"), ("/x/torch/nn/modules/module.py", "_call_impl"), ("/a/train.py", "main")]


def frames(rows: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": 7, "name": name} for file, name in rows]


def phase_of(rows: list[tuple[str, str]]) -> str:
    event = {"action": "alloc", "addr": 1 << 20, "size": 512, "stream": 0, "frames": frames(rows)}
    snapshot = load({"segments": [], "device_traces": [[event]]}, 4)
    return PHASES[stack_phases(snapshot.recording).innermost[snapshot.events(0)["stack"][0]]]


# A frame, the phase that its rule gives, and whether that rule decides always, or not for certain.
SAMPLES = [
    (("/a/train.py", "main"), NONE, ""),
    (("??", "torch::autograd::generated::BmmBackward0::release_variables()"), NONE, ""),
    (FORWARD[0], phases.FORWARD, ""),
    (BACKWARD[0], phases.BACKWARD, ""),
    (("/x/torch/_functorch/_aot_autograd/runtime_wrappers.py", "backward"), phases.BACKWARD, "always"),
    (STEP[0], phases.OPTIMIZER_STEP, ""),
    (("/x/torch/optim/optimizer.py", "zero_grad"), phases.ZERO_GRAD, ""),
    (("/a/model.py", "__init__"), phases.INITIALISATION, "uncertain"),
    (("/x/torch/serialization.py", "load"), phases.LOADING, ""),
]


@given(stacks=st.lists(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=7), min_size=1, max_size=9))
def test_phases_of_any_stack(stacks: list[list[tuple[tuple[str, str], int, str]]]) -> None:
    """Each stack frame by frame, from the innermost."""
    trace = [
        {"action": "alloc", "addr": (n + 1) << 20, "size": 512, "stream": 0, "frames": frames([f for f, _, _ in rows])}
        for n, rows in enumerate(stacks)
    ]
    snapshot = load({"segments": [], "device_traces": [trace]}, 4)
    found = stack_phases(snapshot.recording)
    for number, rows in zip(snapshot.events(0)["stack"].to_list(), stacks, strict=True):
        with_phase = [(place, phase, how) for place, (_, phase, how) in enumerate(rows) if phase != NONE]
        place, phase, how = with_phase[0] if with_phase else (phases.NOWHERE, NONE, "")
        running = {phase for _, phase, _ in with_phase}
        if any(how == "always" for _, _, how in rows):
            phase = phases.BACKWARD
        assert (found.innermost[number], found.place[number]) == (phase, place)
        assert found.uncertain[number] == (how == "uncertain")
        assert {phase for phase in range(len(PHASES)) if found.runs(phase)[number]} == running
        if phase == phases.FORWARD and phases.BACKWARD in running:
            phase = phases.BACKWARD
        if phase in (phases.INITIALISATION, phases.LOADING):
            phase = phases.FORWARD if phases.FORWARD in running else phases.INITIALISATION
        assert found.stretch[number] == phase


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        (FORWARD, "forward"),
        (BACKWARD, "backward"),
        (STEP, "optimizer step"),
        # Lightning runs the closure, and with it the forward pass, inside the optimizer's step.
        (FORWARD[:2] + STEP, "forward"),
        # The step of a user's own optimizer, in a file of any name: PyTorch wraps it.
        ([("/a/my_lion_variant.py", "go"), STEP[1]], "optimizer step"),
        ([("/x/torch/optim/optimizer.py", "zero_grad"), ("/x/torch/_dynamo/eval_frame.py", "_fn")], "zero_grad"),
        ([("??", "torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)")], "backward"),
        # Destructors of the graph say nothing: the frames around them do.
        ([("??", "torch::autograd::generated::BmmBackward0::release_variables()")], "none"),
        ([("??", "torch::autograd::deleteNode(torch::autograd::Node*)"), *FORWARD], "forward"),
        ([("??", "torch::autograd::generated::MmBackward0::release_variables()"), *BACKWARD], "backward"),
        # Code compiled for a backward pass contains lines of the forward pass.
        ([*FORWARD[:1], ("/x/torch/_functorch/_aot_autograd/runtime_wrappers.py", "_backward_impl")], "backward"),
        ([("/a/model.py", "__init__"), ("/a/train.py", "main")], "initialisation"),
        ([("/a/model.py", "load_state_dict"), ("/a/train.py", "main")], "loading"),
        # A user's function called apply is not a backward pass.
        ([("/a/rope.py", "apply"), ("/a/train.py", "main")], "none"),
        ([], "none"),
    ],
)
def test_the_innermost_telling_frame_decides(rows: list[tuple[str, str]], want: str) -> None:
    assert phase_of(rows) == want


def trace(*blocks: tuple[list[tuple[str, str]], int, list[tuple[str, str]] | None]) -> list[dict[str, Any]]:
    """Events of groups of allocations (stack, count, stack of their frees or None: alive). Groups are freed in order,
    each at once, after all are born; no two allocations of a group have the same line.
    """
    births, deaths, address = [], [], 0
    for rows, count, freed_by in blocks:
        for line in range(count):
            address += 1 << 20
            stack = [{**frame, "line": line} for frame in frames(rows)]
            births.append({"action": "alloc", "addr": address, "size": 1 << 20, "stream": 0, "frames": stack})
            if freed_by is not None:
                base = {"addr": address, "size": 1 << 20, "stream": 0, "frames": frames(freed_by)}
                deaths += [{"action": "free_requested", **base}, {"action": "free_completed", **base}]
    return births + deaths


MAIN = [("/a/train.py", "main")]


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        (trace((FORWARD, 20, BACKWARD)), TRAINING),
        (trace((STEP, 1, None)), TRAINING),
        # The autograd engine's threads have no Python stack.
        (trace((FORWARD, 20, []), ([], 10, [])), TRAINING),
        (trace((FORWARD, 20, FORWARD)), INFERENCE),
        (trace((FORWARD, 20, MAIN)), GRAPH_DROPPED),
        # A cache: many allocations from few of the lines that run. From all of them they are a small graph.
        (trace((FORWARD, 4, MAIN), (FORWARD, 20, FORWARD), *[(FORWARD, 4, MAIN)] * 4), INFERENCE),
        (trace(*[(FORWARD, 4, MAIN)] * 5), GRAPH_DROPPED),
        (trace((FORWARD, 20, None)), UNKNOWN),
        (trace((MAIN, 20, MAIN)), UNKNOWN),
        (
            [*trace((FORWARD, 20, None)), {"action": "oom", "size": 1, "device_free": 0, "stream": 0, "frames": []}],
            UNKNOWN,
        ),
    ],
)
def test_kinds(events: list[dict[str, Any]], kind: str) -> None:
    snapshot = load({"segments": [], "device_traces": [events]}, 4)
    activity = snapshot.timeline(0).activity
    assert activity.kind == kind
    assert activity.graph_bytes == (20 << 20 if kind == GRAPH_DROPPED else 0)
    assert activity.trains == (kind == TRAINING)


def test_a_device_trains_with_others_unless_it_only_infers() -> None:
    kept, freed, step = trace((FORWARD, 20, None)), trace((FORWARD, 20, FORWARD)), trace((STEP, 1, None))
    for traces, want in (
        ([kept, freed], [UNKNOWN, UNKNOWN]),
        ([kept, freed, step], [TRAINING, INFERENCE, TRAINING]),
        ([freed, []], [INFERENCE, UNKNOWN]),
    ):
        snapshot = load({"segments": [], "device_traces": traces}, 4)
        assert [snapshot.timeline(device).activity.kind for device in snapshot.devices] == want


def test_sentences() -> None:
    traces = (
        trace((FORWARD, 20, BACKWARD)),
        trace((FORWARD, 20, FORWARD)),
        trace((FORWARD, 20, MAIN)),
        trace((FORWARD, 20, None)),
        # Lightning's closure, out of memory in its first forward pass.
        trace(([*FORWARD[:2], *STEP], 20, MAIN)),
        # Code that a framework compiles or traces.
        trace((FORWARD, 6, FORWARD)),
        [],
    )
    texts = [
        activity_text(load({"segments": [], "device_traces": [events]}, 4).timeline(0).activity) for events in traces
    ]
    assert texts == [
        "The program trains: the trace shows forward passes and backward passes.",
        "The program runs inference: the trace shows forward passes and no backward pass.",
        "Forward passes ran without a backward pass, and their graphs were dropped, 20.0 MiB at once.",
        "The trace does not show whether its forward pass is for training.",
        "The program trains: the trace shows forward passes inside an optimizer's step().",
        "The trace does not show whether its forward pass is for training.",
        "",
    ]


# What each real trace does, determined by hand.
REAL = {
    "adamw_foreach_step": TRAINING,
    "lightning_oom": TRAINING,
    "training_late_start": TRAINING,
    "train_22k_events": TRAINING,
    "train_step_fp32": TRAINING,
    "cublas_workspace": TRAINING,
    "forward_without_no_grad": GRAPH_DROPPED,
    "inference_churn": INFERENCE,
    "inference_fragmentation": INFERENCE,
    "empty_cache_loop": INFERENCE,
    "transient_free_segment": INFERENCE,
    "autocast_copies_forward": INFERENCE,
    "expandable_oom_3gpu": UNKNOWN,  # out of memory in its first forward pass
    "megatron_init": UNKNOWN,  # only built
}
RECORDED_KINDS = {
    "gpt_fp32_foreach": TRAINING,
    "gpt_bf16_ckpt": TRAINING,
    "late_gpt_adamw": TRAINING,
    "lightning_oom": TRAINING,
    "late_gpt_infer": INFERENCE,
    "late_gpt_infer_grad": GRAPH_DROPPED,
    "kv_static": INFERENCE,
    "oom_kv": INFERENCE,
    "two_gpus_dp": TRAINING,
    "oom_load": UNKNOWN,
}


@pytest.mark.parametrize("name", REAL)
def test_real_traces(name: str) -> None:
    path = corpus.REAL / f"{name}.pickle"
    if not path.exists():
        pytest.skip(corpus.NO_REAL)
    snapshot = snapreport.load(path)
    assert {snapshot.timeline(d).activity.kind for d in snapshot.devices if len(snapshot.events(d))} == {REAL[name]}


@pytest.mark.parametrize("name", RECORDED_KINDS)
def test_recordings_of_known_programs(name: str) -> None:
    path = RECORDED / f"{name}.pickle"
    if not path.exists():
        pytest.skip("no recordings at ../shared/recorded")
    snapshot = snapreport.load(path)
    kinds = {snapshot.timeline(d).activity.kind for d in snapshot.devices if len(snapshot.events(d)) > 1}
    assert kinds == {RECORDED_KINDS[name]}
