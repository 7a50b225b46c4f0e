"""``snapreport.record``: recording from inside a program."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from snapreport.recorder.metadata import git_facts
from snapreport.recorder.options import Options
from snapreport.recorder.session import Recorder


def record(directory: str | os.PathLike[str] = "memory", *, model: Any = None, **options: Any) -> Recorder:
    """Records CUDA or XPU memory, or CPU memory if there is neither, while a ``with`` block or a decorated function
    runs, and writes snapshots to ``directory``.

    model: a module whose parts are named in the report, as by :meth:`Recorder.watch`. The other keywords are the fields
    of :class:`snapreport.recorder.options.Options`. Raises ValueError for an invalid one.

        with snapreport.record("run/", every=100) as recorder:
            recorder.watch(model)
            for batch in data:
                train_step(batch)
                recorder.step()
    """
    folder = Path(directory).resolve()
    try:
        chosen = Options(str(folder), **options)
    except TypeError as error:
        raise ValueError(str(error).replace("Options.__init__()", "record()")) from None
    recorder = Recorder(chosen if chosen.git else replace(chosen, git=git_facts(Path.cwd())))
    if model is not None:
        recorder.watch(model)
    return recorder
