"""What each rank was doing when its digest was written, for a job that runs: see ``record --digest-every``."""

from __future__ import annotations

from typing import Literal

from snapreport.jobs.digest_model import Digest
from snapreport.jobs.rank_text import JobSentence, ranks_text
from snapreport.jobs.reduce import Job
from snapreport.number_format import count_text, upper_first
from snapreport.sentence import listed, sentence

State = Literal["running", "silent", "out of memory", "ended by a signal", "ended", ""]
RUNNING = "running"
SILENT_US = 120_000_000
"""A running rank is silent if it is behind others in steps, and its digest older than the newest one by this time."""
_ENDS: dict[str, State] = {"oom": "out of memory", "terminated": "ended by a signal", "exit": "ended"}


def states_of(job: Job) -> list[State]:
    """The state of each row; all empty where no digest is of a running program."""
    digests = job.digests
    if not any(digest.reason == RUNNING for digest in digests):
        return [""] * len(digests)
    running = [digest for digest in digests if digest.reason == RUNNING]
    newest = max((digest.run.end_us or 0 for digest in running), default=0)
    last = max((digest.step or 0 for digest in running), default=0)
    return [_state(digest, newest, last) for digest in digests]


def _state(digest: Digest, newest_us: int, last_step: int) -> State:
    if digest.reason != RUNNING:
        return _ENDS.get(digest.reason, "")
    is_behind = (digest.step or 0) < last_step
    return "silent" if is_behind and newest_us - (digest.run.end_us or newest_us) > SILENT_US else "running"


def state_sentences(job: Job) -> list[JobSentence]:
    """``Ranks 0–6 are running, at step 412. Rank 7 ended.``; empty for a job that does not run."""
    states = states_of(job)
    found = []
    order: tuple[State, ...] = ("out of memory", "ended by a signal", "silent", "running", "ended")
    for state in order:
        rows = [row for row, own in enumerate(states) if own == state]
        if rows:
            found.append(JobSentence(_sentence(job, state, rows), rows))
    return found


def _sentence(job: Job, state: State, rows: list[int]) -> str:
    ranks, one = upper_first(ranks_text(job.ranks[rows].tolist())), len(rows) == 1
    if len(rows) == len(job.rows) and not one:
        ranks = sentence("All {} ranks", len(rows))
    steps = sorted({step for row in rows if (step := job.digests[row].step) is not None})
    at = sentence(", at {}", _steps(steps)) if steps else ""
    if state == "running":
        return sentence("{ranks} {} running{at}.", "is" if one else "are", ranks=ranks, at=at)
    if state == "silent":
        have = "has" if one else "have"
        return sentence("{ranks} {} written no digest since {at}.", have, ranks=ranks, at=_steps(steps))
    return sentence("{ranks} {}{at}.", "ran out of memory" if state == "out of memory" else state, ranks=ranks, at=at)


def _steps(steps: list[int]) -> str:
    if len(steps) <= 2:
        return sentence("step {}", listed([count_text(step) for step in steps]))
    return sentence("steps {} to {}", count_text(steps[0]), count_text(steps[-1]))
