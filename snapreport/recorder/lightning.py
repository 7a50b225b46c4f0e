"""Recording as a callback of Lightning: ``Trainer(callbacks=[MemoryRecorder("run/")])``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from snapreport.recorder.api import record

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback


class MemoryRecorder(Callback):  # type: ignore[misc]  # Lightning is not installed where types are checked
    """Records from before the model moves to the device until training ends; a step is an optimizer step.

    The arguments are those of :func:`snapreport.record`; ``log``: whether the report and its numbers go to the
    trainer's loggers, in the first process, when training ends (:func:`snapreport.log`). With Lightning, a batch that
    only accumulates gradients is no step.
    """

    def __init__(self, directory: str = "memory", *, log: bool = False, **options: Any) -> None:
        self._log = log
        self.recorder = record(directory, **options)
        self._steps = 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before the strategy moves the module to its device."""
        self.recorder.start()
        self.recorder.watch(pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """After a batch; ends a step if the optimizer stepped."""
        if trainer.global_step > self._steps:
            self._steps = trainer.global_step
            self.recorder.step()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """After training, even if it failed."""
        self.recorder.stop()
        if self._log and trainer.is_global_zero:  # by name: what reads recordings is above the recorder
            import_module("snapreport.trackers").log_last(self.recorder.files, trainer.loggers)
