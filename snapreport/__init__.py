"""PyTorch memory snapshots as one self-contained HTML report.

``load(path)`` reads a snapshot, ``write_report(snapshots, path)`` writes a report over one or several of them.
``digest(path)`` is a rank's snapshot in 64 KB, ``job(paths)`` reduces those of a whole job. What needs numpy and polars
is imported when first used, so that ``import snapreport`` and ``snapreport --help`` are instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import snapreport.forks  # noqa: F401  # notices forks of this process
from snapreport.errors import QueryError, SnapshotError
from snapreport.version import __version__

if TYPE_CHECKING:
    from snapreport.forecast.answer import fit
    from snapreport.jobs.build import digest, job, write_job_report
    from snapreport.recorder.api import record
    from snapreport.report.build import write_report
    from snapreport.snapshot import Snapshot, load
    from snapreport.trackers import log

__all__ = [
    "QueryError",
    "Snapshot",
    "SnapshotError",
    "__version__",
    "digest",
    "fit",
    "job",
    "load",
    "log",
    "record",
    "write_job_report",
    "write_report",
]

# ``pytest -p snapreport`` loads the plugin from a checkout without the entry point; read by pytest alone.
pytest_plugins = ("snapreport.pytest_plugin",)

_LAZY = {
    "Snapshot": "snapreport.snapshot",
    "digest": "snapreport.jobs.build",
    "fit": "snapreport.forecast.answer",
    "job": "snapreport.jobs.build",
    "write_job_report": "snapreport.jobs.build",
    "load": "snapreport.snapshot",
    "log": "snapreport.trackers",
    "load_ipython_extension": "snapreport.notebook",
    "record": "snapreport.recorder.api",
    "write_report": "snapreport.report.build",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
