"""``snapreport job --watch``: one page, written anew while its job runs."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from snapreport import progress, supervision
from snapreport.errors import SnapshotError
from snapreport.terminal import echo, lines

if TYPE_CHECKING:
    from snapreport.jobs.build import PageOptions
    from snapreport.jobs.watch import JobWatch


def watch_job(
    snaps: Sequence[str], output: str, page: PageOptions, seconds: int, make: dict[str, Any], **reduce: Any
) -> None:
    """Writes the report at ``output`` whenever a file has changed, until Ctrl-C; then once more, without the part that
    loads it again. ``make``, ``reduce``: of ``execution.make_all`` and ``reduce_job``. Raises :class:`SnapshotError` at
    the end if nothing could be read.
    """
    from snapreport.jobs.watch import JobWatch

    watch = JobWatch(snaps, make, reduce)
    echo(lines([f"snapreport: watching every {seconds} s; Ctrl-C ends with a last report"]), err=True)
    gc.enable()  # commands that end soon do without
    with supervision.ending_by_itself() as ending:
        while not ending.is_asked:
            if watch.update() and not watch.is_empty:
                _write(watch, output, page, refresh_seconds=seconds)
            ending.wait(seconds)
        watch.update()
        if watch.is_empty:
            raise SnapshotError("no digest and no snapshot could be read")
        _write(watch, output, page, refresh_seconds=0)


def _write(watch: JobWatch, output: str, page: PageOptions, *, refresh_seconds: int) -> None:
    """What keeps one report from being written, such as files of two runs, is said; the next may be."""
    from snapreport.jobs.build import write_job_report
    from snapreport.jobs.states import state_sentences
    from snapreport.number_format import plural

    try:
        with progress.shown():
            job = watch.job()
            write_job_report(job, output, replace(page, refresh_seconds=refresh_seconds))
    except SnapshotError as error:
        if not refresh_seconds:
            raise
        echo(lines([f"snapreport: {error}"]), err=True)
        return
    states = " ".join(sentence.text for sentence in state_sentences(job))
    echo(lines([f"{output}: {plural(len(job.rows), 'rank')}, {watch.read:,} new. {states}".rstrip()]), err=True)
