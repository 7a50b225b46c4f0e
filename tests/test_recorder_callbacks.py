"""The callbacks, inside Lightning and Hugging Face's Trainer themselves, over the fake driver (tests/fakecuda)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import fake_torch
import pytest
from fake_torch import PROGRAMS, FakeTorch

import snapreport
from snapreport.report.build import build_report
from snapreport.trackers import numbers


@pytest.mark.parametrize(
    ("framework", "program", "weight", "size"),
    [
        ("lightning", "lightning_fit.py", "encoder.weight", 64 * 256 * 4),
        ("transformers", "trainer_fit.py", "model.layers.0.self_attn.q_proj.weight", 64 * 64 * 4),
    ],
)
def test_callback(torch_cuda: FakeTorch, tmp_path: Path, framework: str, program: str, weight: str, size: int) -> None:
    """Three steps as the framework counts them, parameters by name and with the stack trace of their allocation."""
    if not torch_cuda.has(framework):
        pytest.skip(f"{framework} is not installed beside this PyTorch: tests/run.py --all-torch installs it")
    path = fake_torch.package_folder(tmp_path / "path")
    done = torch_cuda.run(PROGRAMS / program, tmp_path / "run", PYTHONPATH=path)
    assert done.code == 0, done.err
    names = [file.name for file in (tmp_path / "run").iterdir()]
    assert names == ["rank_00000_step_00000003_exit.pickle.gz"], (names, done.err)
    loaded = snapreport.load(tmp_path / "run" / names[0])
    assert loaded.steps(0)["step"].to_list()[:3] == [0, 1, 2]
    table = loaded.allocations(0)
    found = table.filter(table["user_metadata"] == weight)
    assert found["size"].to_list() == [size] and found["category"].to_list() == ["parameter"]
    frames = [loaded.recording.frames["filename"][i] for i in loaded.recording.stack(found["stack"][0])]
    assert any(program in frame for frame in frames)


@pytest.mark.parametrize(
    ("framework", "program", "logger", "tracker"),
    [
        ("lightning", "lightning_fit.py", "TensorBoardLogger", "tensorboard"),
        ("lightning", "lightning_fit.py", "MLFlowLogger", "mlflow"),
        ("lightning", "lightning_fit.py", "WandbLogger", "wandb"),
        ("transformers", "trainer_fit.py", "mlflow", "mlflow"),
        ("transformers", "trainer_fit.py", "wandb", "wandb"),
    ],
)
def test_a_callback_logs(
    torch_cuda: FakeTorch,
    tmp_path: Path,
    framework: str,
    program: str,
    logger: str,
    tracker: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``log=True``: the report of the recording and its numbers are in the tracker, by real packages, offline. The
    Trainer's own callback ends its run of MLflow before ours is called.
    """
    if not torch_cuda.has(framework):
        pytest.skip(f"{framework} is not installed beside this PyTorch: tests/run.py --all-torch installs it")
    pytest.importorskip(tracker, reason="pip install --group trackers")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    after = tmp_path / "after"  # the trackers of these tests, behind the packages of that PyTorch
    after.mkdir()
    packages = [folder for folder in sys.path if folder.endswith("-packages")]
    (after / "sitecustomize.py").write_text(f"import sys\nsys.path += {packages}\n")
    done = torch_cuda.run(
        PROGRAMS / program, tmp_path / "run", logger, is_new=True, WANDB_MODE="offline", WANDB_DIR=tmp_path,
        WANDB_SILENT="true", MLFLOW_TRACKING_URI=(tmp_path / "mlruns").as_uri(),
        PYTHONPATH=os.pathsep.join([fake_torch.package_folder(tmp_path / "path"), str(after)]),
    )  # fmt: skip
    assert done.code == 0 and "not logged" not in done.err, done.err
    snapshot = snapreport.load(*(tmp_path / "run").iterdir())
    (report,) = [path for path in tmp_path.rglob("*.html") if path.read_bytes() == build_report([snapshot])]
    for key, value in numbers(snapshot):
        assert logged(tracker, report, f"memory/{key}", done.out) == value


def logged(tracker: str, report: Path, key: str, out: str) -> float:
    """The value of a metric, by the tracker's own reader, of the run in whose folder its report is."""
    if tracker == "tensorboard":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        (scalar,) = EventAccumulator(str(report.parent)).Reload().Scalars(key)
        return scalar.value
    if tracker == "mlflow":
        from mlflow import MlflowClient

        run = report.parents[1]
        return MlflowClient(run.parents[1].as_uri()).get_run(run.name).data.metrics[key.replace(":", "_")]
    return json.loads(out.splitlines()[-1])[key]
