"""The numbers and the report of a snapshot in real trackers, offline, read back by their own readers.

They are skipped where a tracker is not installed: `pip install --group trackers`.
"""

from __future__ import annotations

import json
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import pytest

import snapreport
from snapreport import trackers
from snapreport.report.build import build_report

pytestmark = pytest.mark.filterwarnings("ignore")  # deprecations inside the trackers
KEYS = ("peak_allocated_bytes", "peak_reserved_bytes", "end_allocated_bytes")


@pytest.fixture(scope="module")
def snapshot() -> snapreport.Snapshot:
    return corpus.loaded(corpus.path_of("multi-gpu"))


@pytest.fixture(scope="module")
def expected(snapshot: snapreport.Snapshot) -> dict[str, float]:
    """From the replay of the oracle."""
    values: dict[str, float] = {}
    for number, device in corpus.replayed(corpus.path_of("multi-gpu")).items():
        name = "host" if number == -1 else f"cuda:{number}"
        stats = device.stats()
        values |= {f"memory/{name}/{key}": stats[key] for key in KEYS}
        values[f"memory/{name}/out_of_memory"] = len(stats["oom_events"])
    return values


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_SILENT", "true"), ("MLFLOW_ALLOW_FILE_STORE", "true")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CLEARML_CACHE_DIR", str(tmp_path / "clearml"))
    return tmp_path


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.rglob(pattern)
    return found


def test_wandb(snapshot: snapreport.Snapshot, expected: dict[str, float], here: Path) -> None:
    wandb = pytest.importorskip("wandb")
    run = wandb.init(project="memory", dir=here)
    try:
        assert trackers.running() == [run]
        assert snapreport.log(snapshot, to=run) == expected
        summary = dict(run.summary)
        assert {key: summary[key] for key in expected} == expected
        assert summary["memory/report"]["_type"] == "html-file"
    finally:
        run.finish()
    assert only(here, "*.html").read_bytes() == build_report([snapshot])


def test_mlflow(snapshot: snapreport.Snapshot, expected: dict[str, float], here: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((here / "runs").as_uri())
    with mlflow.start_run() as run:
        snapreport.log(snapshot, to=mlflow, step=3)
        snapreport.log(snapshot, to=run, name="again")
    found = mlflow.get_run(run.info.run_id).data.metrics
    logger = type("MLFlowLogger", (), {"__module__": "lightning.pytorch.loggers.mlflow"})()  # Lightning's
    other = mlflow.MlflowClient((here / "others").as_uri())  # its address need not be the global one
    logger.experiment, logger.run_id = other, other.create_run("0").info.run_id
    snapreport.log(snapshot, to=logger, name="memory")
    metrics = other.get_run(logger.run_id).data.metrics
    assert {key: metrics[key.replace(":", "_")] for key in expected} == expected
    assert only(here / "others", "memory.html").read_bytes() == build_report([snapshot])
    assert {key: found[key.replace(":", "_")] for key in expected} == expected
    assert len(found) == 2 * len(expected)
    assert (
        only(here / "runs", "memory.html").read_bytes()
        == only(here, "again.html").read_bytes()
        == build_report([snapshot])
    )


@pytest.mark.parametrize("package", ["tensorboardX", "torch.utils.tensorboard"])
def test_tensorboard(snapshot: snapreport.Snapshot, expected: dict[str, float], here: Path, package: str) -> None:
    pytest.importorskip("tensorboard")
    written = pytest.importorskip(package, exc_type=ImportError)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with written.SummaryWriter("events") as writer:
        snapreport.log(snapshot, to=writer, step=3)
    events = EventAccumulator("events").Reload()
    for key, value in expected.items():
        (scalar,) = events.Scalars(key.replace(":", "_") if package == "tensorboardX" else key)
        assert scalar.step == 3 and scalar.value == pytest.approx(value, rel=1e-6)  # 32 bits
    (text,) = events.Tensors("memory/report/text_summary")
    assert b"Peak allocated" in text.tensor_proto.string_val[0]
    assert Path("events/memory.html").read_bytes() == build_report([snapshot])


def test_clearml(snapshot: snapreport.Snapshot, expected: dict[str, float], here: Path) -> None:
    clearml = pytest.importorskip("clearml")
    clearml.Task.set_offline(True)
    task = clearml.Task.init("memory", "test", auto_connect_frameworks=False, output_uri=False)
    try:
        snapreport.log(snapshot, to=task)
        folder = Path(task.get_offline_mode_folder())
    finally:
        task.close()
    with zipfile.ZipFile(folder.with_name(f"{folder.name}.zip")) as session:
        (report,) = [name for name in session.namelist() if name.endswith("memory.html")]
        assert session.read(report) == build_report([snapshot])
        batches = [json.loads(line) for line in session.read("metrics.jsonl").splitlines()]
    found = {f"{event['metric']}/{event['variant']}": event["value"] for batch in batches for event in batch}
    assert {key: found[key] for key in expected} == expected


def test_anything_else_is_refused(snapshot: snapreport.Snapshot) -> None:
    with pytest.raises(TypeError, match=r"cannot log to builtins\.dict"):
        snapreport.log(snapshot, to={})


class Run:
    """Weights & Biases' interface as far as it is used, in the place of the package."""

    def __init__(self, error: Exception | None = None) -> None:
        self.logged: list[dict[str, Any]] = []
        self.error = error

    def log(self, values: dict[str, Any], step: int | None) -> None:
        if self.error:
            raise self.error
        self.logged.append(values)


Run.__module__ = "wandb.sdk"


def test_a_callback_logs_the_last_file_and_survives_a_tracker_that_fails(
    expected: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake: Any = types.ModuleType("wandb")
    fake.Html = lambda text, inject: text
    monkeypatch.setitem(sys.modules, "wandb", fake)
    path = corpus.path_of("multi-gpu")
    run, failing = Run(), Run(ConnectionError("no route\nto host"))
    trackers.log_last([corpus.path_of("small"), path, tmp_path / "removed.pickle"], [object(), failing, run])
    (values,) = run.logged
    assert {key: values[key] for key in expected} == expected
    assert capsys.readouterr().err.count("\n") == 1
    trackers.log_last([tmp_path / "removed.pickle"], [run])
    assert len(run.logged) == 1
