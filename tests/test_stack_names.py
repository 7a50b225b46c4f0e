"""A stack is named by the program's own line, or the model's where that only launches it, in Python and on the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import name_oracle
import oracle
import polars as pl
import pytest
import recorded
from decoder import Report

import snapreport
from snapreport.timeline.operators import called_operators, frame_operators, stack_labels, stack_operators
from snapreport.timeline.own_code import own_places, stack_names

# (recording, function of the line that names, the expected name): all bytes allocated there have the name.
LAUNCHED = [
    ("hf_trainer", "frameworks_scen.py:42"),
    ("hf_trainer_oom", "frameworks_scen.py:42"),
    ("peft_lora", "frameworks_scen.py:52"),
]


def test_names_are_the_oracle_s(snapshot_path: Path) -> None:
    corpus.replayed(snapshot_path)
    recording = corpus.loaded(snapshot_path).recording
    names = stack_names(recording)
    rows = recording.frames.select("filename", "line", "name").rows()
    seen = {stack for device in corpus.replayed(snapshot_path).values() for stack in stacks_of(device)}
    for number in range(len(names.frame)):
        stack = tuple(rows[i] for i in recording.stack(number))
        if stack not in seen:
            continue
        frame = name_oracle.named_frame(stack)
        assert (rows[names.frame[number]] if names.frame[number] >= 0 else None) == frame
        if names.frame[number] >= 0:
            assert recording.stack(number)[names.place[number]] == names.frame[number]
        launcher = name_oracle.split(stack)[1] if stack in name_oracle.LAUNCHED else None
        assert (rows[names.launcher[number]] if names.launcher[number] >= 0 else None) == launcher


def stacks_of(device: Any) -> set[Any]:
    """Those of events and blocks, which the oracle also reads."""
    return {oracle.frames_of(event) for event in device.events} | {block["stack"] for block in device.blocks}


class FramesAlone:
    """As much of a recording as the names of operators need; unlike a namespace, results can be remembered for it."""

    def __init__(self, frames: pl.DataFrame) -> None:
        self.frames = frames


@pytest.mark.parametrize(("name", "launcher"), LAUNCHED)
def test_frameworks_are_named_by_the_model(name: str, launcher: str) -> None:
    """Not by the one line that calls ``trainer.train()``, which every stack shares; that follows as "from"."""
    recording = recorded.load(name).recording
    timeline = recorded.load(name).timeline(0)
    lines = stack_labels(recording)
    live = timeline.stacks_at_peak.filter(timeline.stacks_at_peak["stack"] > 0)
    frames = recording.frames.select("filename", "name").rows()
    seen = 0
    for stack, size, _ in live.rows():
        files = [frames[i][0] for i in recording.stack(stack)]
        if any("transformers/models/" in file for file in files):
            assert "modeling_llama.py:" in lines[stack] and lines[stack].endswith(f" from {launcher}")
            seen += size
    assert seen > 0.2 * timeline.peak_bytes
    top = next(row["stack"] for row in timeline.top_stacks if row["stack"])
    assert lines[top].startswith("forward modeling_llama.py:") and not lines[top].startswith("frameworks_scen")


def test_the_optimizer_of_a_framework_is_not_named_by_the_launcher() -> None:
    lines = stack_labels(recorded.load("hf_trainer").recording).to_list()
    assert "_init_group adam.py:179 from frameworks_scen.py:42" in lines
    lines = stack_labels(recorded.load("lightning_fit").recording).to_list()
    assert "training_step frameworks_scen.py:17" in lines  # the program's own, which is no launcher
    assert "_init_group adam.py:179 from frameworks_scen.py:27" in lines


def test_a_program_with_its_own_model_is_named_by_it() -> None:
    """timm's layers run inside this model's forward, and most bytes come through one of its lines."""
    if "lightning_oom.pickle" not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    snapshot = snapreport.load(corpus.path_of("lightning_oom.pickle"))
    lines = stack_labels(snapshot.recording)
    tops = [lines[row["stack"]] for row in snapshot.timeline(0).top_stacks]
    assert tops[:3] == ["forward dit.py:125 · softmax", "forward dit.py:126 · linear", "forward dit.py:126 · gelu"]


@pytest.mark.parametrize(
    ("name", "file", "operator"),
    [
        ("at::_ops::linear::call(at::Tensor const&, at::Tensor const&)", "??", "linear"),
        ("at::_ops::add_Tensor::redispatch(c10::DispatchKeySet, at::Tensor const&)", "", "add"),
        ("at::_ops::add__Tensor::call(at::Tensor&)", "", "add_"),
        ("at::_ops::_softmax::call(at::Tensor const&, long, bool)", "", "softmax"),
        ("at::_ops::sum_dim_IntList::call(at::Tensor const&)", "", "sum"),
        ("at::_ops::lstm_input::call(at::Tensor const&)", "", "lstm"),
        ("at::_ops::conv_transpose2d_input::call(at::Tensor const&)", "", "conv_transpose2d"),
        ("at::_ops::_foreach_add_List::call(c10::ArrayRef<at::Tensor>)", "", "foreach_add"),
        ("at::_ops::__and___Tensor::call(at::Tensor const&)", "", "and__"),
        ("at::_ops::take_along_dim::call(at::Tensor const&)", "", "take_along_dim"),
        ("at::_ops::_softmax_backward_data::call(at::Tensor const&)", "", "softmax_backward_data"),
        ("at::_ops::affine_grid_generator_backward::call(at::Tensor)", "", "affine_grid_generator_backward"),
        ("at::_ops::native_layer_norm::call(at::Tensor const&)", "", "native_layer_norm"),
        ("torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)", "", "AddmmBackward0"),
        ("softmax", "/x/site-packages/torch/nn/functional.py", "softmax"),
        ("_verify_batch_size", "/x/site-packages/torch/nn/functional.py", ""),
        ("softmax", "/home/me/functional.py", ""),
        ("torch::autograd::THPVariable_gelu(_object*, _object*, _object*)", "", "gelu"),
        ("at::native::structured_bmm_out_cuda::impl(at::Tensor const&)", "", "bmm"),
        ("at::native::reshape_symint(at::Tensor const&)", "", "reshape"),
        ("at::TensorIteratorBase::build(at::TensorIteratorConfig&)", "", ""),
    ],
)
def test_operators_of_frames(name: str, file: str, operator: str) -> None:
    frames = pl.DataFrame({"name": [name], "filename": [file], "line": [1]})
    assert frame_operators(FramesAlone(frames)).to_list() == [operator]  # type: ignore[arg-type]


def test_an_operator_is_named_where_it_tells_stacks_apart(snapshot_path: Path) -> None:
    """Never for a line with one operator, and always inside the frame that names the stack."""
    recording = corpus.loaded(snapshot_path).recording
    places, operators, names = own_places(recording), stack_operators(recording), stack_names(recording)
    words = frame_operators(recording)
    of_line: dict[str, set[str]] = {}
    for stack, (place, operator) in enumerate(zip(places, operators, strict=True)):
        of_line.setdefault(place, set()).add(operator)
        inside = recording.stack(stack)[: int(names.place[stack])]
        if operator and ":" not in operator:
            modules = {re.split(r"[\\/]", recording.frames["filename"][i])[-1].removesuffix(".py") for i in inside}
            assert operator in {words[i] for i in inside} | modules
    assert all(found == {""} or len(found) > 1 for found in of_line.values())


def test_rows_of_one_line_have_names_of_their_own() -> None:
    """Of the 31 stacks, the two moments of Adam and the two modules of one line."""
    recording = recorded.load("oom_backward").recording
    labels = stack_labels(recording).to_list()
    assert labels.count("train scen.py:52 · adam.py:179") == labels.count("train scen.py:52 · adam.py:183") == 1
    assert "forward models.py:30 · linear" in labels and "forward models.py:30 · activation" in labels
    assert "forward models.py:12" in labels, "one operator, which tells nothing apart"


def test_page_and_python_name_stacks_alike(snapshot_path: Path, report_of: Callable[..., Path]) -> None:
    """The page has no rule of its own: it reads the positions of the naming frames."""
    report = Report(report_of(snapshot_path).read_text(encoding="utf-8"))
    recording = corpus.loaded(snapshot_path).recording
    names, rows = stack_names(recording), recording.frames.select("filename", "line", "name").rows()
    stacks, columns = report.stacks(), report.section("stacks")
    for column, wanted in (("stack_name", names.frame), ("stack_launcher", names.launcher)):
        assert len(columns[column]) == len(stacks)
        found = [stack[place - 1] if place else None for stack, place in zip(stacks, columns[column], strict=True)]
        assert found == [rows[frame] if frame >= 0 else None for frame in wanted]
    assert [columns["operators"][i] for i in columns["stack_operator"]] == stack_operators(recording).to_list()
    assert [columns["operators"][i] for i in columns["stack_called"]] == called_operators(recording).to_list()
    of_frame = dict(zip(rows, frame_operators(recording), strict=True))
    found = [columns["operators"][i] for i in columns["frame_operator"]]
    page = zip(columns["frame_name"], columns["frame_file"], columns["frame_line"], strict=True)
    assert found == [of_frame[columns["filenames"][f], int(line), columns["names"][n]] for n, f, line in page]
