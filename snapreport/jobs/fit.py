"""The answer to "will it fit?" for a job: the rank that fails first, and at which value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from snapreport import progress
from snapreport.contracts.fit import FirstRank, FitDocument, FitPrediction, FitRank
from snapreport.errors import SnapshotError
from snapreport.forecast.answer import Question, check_question, device_fits, fit_document, prediction, refusal
from snapreport.forecast.largest_value import largest_value
from snapreport.forecast.prediction import DeviceFit
from snapreport.jobs.reduce import Job
from snapreport.snapshot import Snapshot, load


def fit_job(jobs: Sequence[Job], question: Question, read: Callable[[str], Snapshot] = load) -> FitDocument:
    """``jobs``: one program at each value of ``question.at``. ``read``: reads the snapshot of a rank. Raises
    :class:`SnapshotError` where they have no rank in common, and where a rank's snapshot cannot be read.
    """
    if not question.at:
        raise SnapshotError("a job: give the value of each folder (--at)")
    check_question(len(jobs), question)
    paths = [{row.rank: row.path for row in job.rows} for job in jobs]
    common = sorted(set.intersection(*(set(of_job) for of_job in paths)))
    if not common:
        raise SnapshotError("the jobs have no rank in common")
    firsts = [FirstRank(card, memory, None, None, None, False) for card, memory in question.memories]
    ranks: list[FitRank] = []
    with progress.stage("replaying", len(common), "ranks") as bar:
        for rank in common:
            # One rank at a time: the recordings of all of them would not fit into memory.
            for device, fit in device_fits([read(of_job[rank]) for of_job in paths], question):
                reason = refusal(fit, question)
                predictions: list[FitPrediction] = []
                if reason is None:
                    predictions = [prediction(fit, value, question.memory) for value in question.values]
                    for first in firsts:
                        _look_at(first, rank, device, fit)
                ranks.append(FitRank(rank, device, reason, predictions))
            bar.advance(1)
    shown = firsts[0].rank if firsts[0].rank is not None else common[0]
    document = fit_document([read(of_job[shown]) for of_job in paths], question)
    document.ranks, document.first_to_fail = ranks, firsts
    return document


def _look_at(first: FirstRank, rank: int, device: int, fit: DeviceFit) -> None:
    """Takes the rank if it fails at a smaller value than the ranks before it.

    Replaying two values is enough for most: a rank that runs at the first rank's largest value and the one after
    it fails later.
    """
    value, memory = int(first.value or 0), first.memory_bytes
    tried = range(max(1, value), value + 2)
    if first.rank is not None and all(fit.retries(one, memory) is not None for one in tried):
        return
    found = largest_value(fit, memory)
    if first.rank is None or found.value < value:
        first.rank, first.device, first.is_limit, first.tied_ranks = rank, device, found.is_limit, []
        first.value = float(found.value) if found.value else None
    elif found.value == value and rank not in (first.rank, *first.tied_ranks):
        first.tied_ranks.append(rank)
