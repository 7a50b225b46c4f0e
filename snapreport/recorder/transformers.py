"""Recording as a callback of Hugging Face's Trainer: ``Trainer(..., callbacks=[MemoryRecorder("run/")])``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from transformers import TrainerCallback

from snapreport.recorder.api import record


class MemoryRecorder(TrainerCallback):  # type: ignore[misc]  # transformers is not installed where types are checked
    """Records from its creation, so that parameters have stack traces, until training ends; a step is a Trainer step.

    The arguments are those of :func:`snapreport.record`; ``log``: whether the report and its numbers go to the runs of
    W&B, MLflow and ClearML that are active when training begins (:func:`snapreport.log`), in the first process. Create
    it before the Trainer, which moves the model; a ClearML Task too, since the Trainer closes its own too early.
    """

    def __init__(self, directory: str = "memory", *, log: bool = False, **options: Any) -> None:
        self._log = log
        self._runs: list[Any] = []
        self.recorder = record(directory, **options).start()

    def on_train_begin(self, args: Any, state: Any, control: Any, **inputs: Any) -> None:
        """The model is on its device, as the Trainer wraps it."""
        if inputs.get("model") is not None:
            self.recorder.watch(inputs["model"])
        if self._log and state.is_world_process_zero:  # now: the Trainer's own callbacks end their runs before this one
            self._runs = import_module("snapreport.trackers").running()  # by name: it is above the recorder

    def on_step_end(self, args: Any, state: Any, control: Any, **inputs: Any) -> None:
        """After an optimizer step."""
        self.recorder.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **inputs: Any) -> None:
        """After training; if it failed, the out-of-memory snapshot is already written."""
        self.recorder.stop()
        if self._log and state.is_world_process_zero:
            import_module("snapreport.trackers").log_last(self.recorder.files, self._runs)
