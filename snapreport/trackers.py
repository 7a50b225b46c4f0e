"""A snapshot's numbers and report in the tracker of a run: Weights & Biases, MLflow, TensorBoard, ClearML.

    snapreport.log(snapreport.load("snap.pickle"), to=wandb.run)  # or mlflow, a SummaryWriter, a ClearML Task

The trackers are the caller's: this module imports none of them, and knows each by the module of its class.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from snapreport.errors import one_line
from snapreport.number_format import device_name
from snapreport.snapshot import Snapshot, load
from snapreport.terminal import echo

Values = dict[str, float]


def log(snapshots: Snapshot | Sequence[Snapshot], to: Any, *, name: str = "memory", step: int | None = None) -> Values:
    """Logs the numbers and the report of snapshots, and returns the numbers: bytes, and how often memory ran out.

    to: ``wandb.run``; ``mlflow`` (its active run) or a run of it; a ``SummaryWriter`` of torch, tensorboardX; a ClearML
      ``Task``; or a logger of Lightning that has one of these. name: the prefix of the metrics (``memory/cuda:0/…``)
      and the name of the report. TensorBoard shows no HTML: the report is a file beside its events.

    Raises TypeError for any other ``to``.
    """
    from snapreport.report.build import write_report

    chosen = [snapshots] if isinstance(snapshots, Snapshot) else list(snapshots)
    tracker = _unwrapped(to)
    write = _WRITERS.get(_family(tracker))
    if write is None:
        raise TypeError(f"cannot log to {type(to).__module__}.{type(to).__name__}: W&B, MLflow, TensorBoard, ClearML")
    values = {f"{name}/{key}": value for snapshot in chosen for key, value in numbers(snapshot)}
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / f"{name.replace('/', '_')}.html"
        write_report(chosen, report)
        write(tracker, name, values, report, step, chosen)
    return values


def numbers(snapshot: Snapshot) -> Iterator[tuple[str, float]]:
    """``cuda:0/peak_allocated_bytes`` and the like, for each device with data."""
    for number in snapshot.devices:
        stats = snapshot.timeline(number).counted_stats
        if not stats.events and not stats.allocations:
            continue
        device = device_name(stats.kind, number)
        for key in ("peak_allocated_bytes", "peak_reserved_bytes", "end_allocated_bytes"):
            yield f"{device}/{key}", float(getattr(stats, key))
        yield f"{device}/out_of_memory", float(len(stats.oom_events))


def running() -> list[Any]:
    """The active runs of this process, of trackers that the program has imported."""
    found = []
    if wandb := sys.modules.get("wandb"):
        found.append(wandb.run)
    if mlflow := sys.modules.get("mlflow"):
        found.append(mlflow.active_run())
    if clearml := sys.modules.get("clearml"):
        found.append(clearml.Task.current_task())
    return [one for one in found if one is not None]


def log_last(files: Sequence[Path], trackers: Sequence[Any]) -> None:
    """Logs the last of the recordings that are still there to each tracker, for callbacks: what fails, or that there is
    no tracker, is said on standard error, and training goes on.
    """
    trackers = [tracker for tracker in trackers if _family(_unwrapped(tracker)) in _WRITERS]
    if not trackers:
        echo("snapreport: not logged: no run of W&B, MLflow, TensorBoard or ClearML was found", err=True)
    last = [path for path in files if path.exists()][-1:]
    snapshots: list[Snapshot] = []
    for tracker in trackers if last else []:
        try:
            snapshots = snapshots or list(map(load, last))
            log(snapshots, tracker)
        except Exception as error:  # noqa: BLE001  trackers raise anything, of networks too
            echo(f"snapreport: not logged: {one_line(str(error))}", err=True)


def _unwrapped(to: Any) -> Any:
    """What a logger of Lightning holds; anything else itself, and its logger of MLflow, which alone knows the run."""
    if type(to).__name__ == "MLFlowLogger":
        return to
    return to.experiment if "loggers" in type(to).__module__.split(".") and hasattr(to, "experiment") else to


def _family(tracker: Any) -> str:
    """``wandb``, ``mlflow``, ``tensorboard``, ``clearml``; else the first part of its class's module."""
    if getattr(tracker, "__name__", "") == "mlflow" or type(tracker).__name__ == "MLFlowLogger":
        return "mlflow"
    first = type(tracker).__module__.partition(".")[0]
    return "tensorboard" if type(tracker).__name__ == "SummaryWriter" else first


def _to_wandb(run: Any, name: str, values: Values, report: Path, step: int | None, _: Sequence[Snapshot]) -> None:
    from wandb import Html

    # The page has a policy of its own; W&B's styles would be refused by it.
    run.log({**values, f"{name}/report": Html(report.read_text("utf-8"), inject=False)}, step=step)


def _to_mlflow(to: Any, name: str, values: Values, report: Path, step: int | None, _: Sequence[Snapshot]) -> None:
    from mlflow import MlflowClient, active_run, start_run

    if type(to).__name__ == "MLFlowLogger":
        client, run_id = to.experiment, to.run_id
    else:
        run = (active_run() or start_run()) if getattr(to, "__name__", "") == "mlflow" else to
        client, run_id = MlflowClient(), run.info.run_id
    for key, value in values.items():
        client.log_metric(run_id, key.replace(":", "_"), value, step=step)  # no ":" on Windows
    client.log_artifact(run_id, str(report))


def _to_tensorboard(
    writer: Any, name: str, values: Values, report: Path, step: int | None, snapshots: Sequence[Snapshot]
) -> None:
    from snapreport.report.ticket import ticket_markdown

    for key, value in values.items():
        writer.add_scalar(key, value, step)
    folder = Path(writer.log_dir if hasattr(writer, "log_dir") else writer.logdir)
    (folder / report.name).write_bytes(report.read_bytes())
    text = "\n".join(ticket_markdown(snapshot) for snapshot in snapshots)
    writer.add_text(f"{name}/report", f"The report is `{folder / report.name}`.\n\n{text}", step)
    writer.flush()


def _to_clearml(task: Any, name: str, values: Values, report: Path, step: int | None, _: Sequence[Snapshot]) -> None:
    logger = task.get_logger()
    for key, value in values.items():
        logger.report_scalar(name, key.removeprefix(f"{name}/"), value, step or 0)
    # Read now: the upload happens later, when the file is gone.
    task.upload_artifact(f"{name} report", report, wait_on_upload=True)


_WRITERS: dict[str, Callable[..., None]] = {
    "wandb": _to_wandb, "mlflow": _to_mlflow, "tensorboard": _to_tensorboard, "clearml": _to_clearml,
}  # fmt: skip
