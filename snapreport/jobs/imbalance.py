"""How uneven the peaks of a job's ranks are."""

from __future__ import annotations

import numpy as np

from snapreport.contracts.job_manifest import JobImbalance
from snapreport.jobs.reduce import Job
from snapreport.number_format import share_text
from snapreport.sentence import bytes_part, rank_part, sentence

MIN_IMBALANCE = 0.03
"""Share of the worst rank's peak below which peaks count as even."""


def imbalance_of(job: Job) -> JobImbalance:
    """How uneven the ranks' peaks are, and the cost: a job needs as much memory as its worst rank.

    share: how far the median is below the worst peak, as a share of it. unused_bytes: what the other ranks together
    could use until they are as high.
    """
    peaks = job.peaks
    worst = int(np.argmax(peaks))
    # Ranks that recorded nothing, such as those without a device, have no known headroom.
    peaks = peaks[peaks > 0] if peaks.any() else peaks
    low, high, median = int(peaks.min()), int(peaks.max()), int(np.median(peaks))
    share, unused = (high - median) / max(high, 1), int((high - peaks).sum())
    name = rank_part(job.ranks[worst], "Rank {}")
    if not high:
        text = "No rank recorded an allocation."
    elif len(peaks) < 2:
        text = sentence("{name} peaks at {} allocated.", bytes_part(high), name=name)
    elif share >= MIN_IMBALANCE:
        text = sentence(
            "{name} determines the memory that the job needs: it peaks at {}, the median rank at {}. The other ranks "
            "leave {} of headroom unused, {} each on average.",
            bytes_part(high),
            bytes_part(median),
            bytes_part(unused),
            bytes_part(unused // (len(peaks) - 1)),
            name=name,
        )
    elif (high - low) / high >= MIN_IMBALANCE:
        most, middle = bytes_part(high), bytes_part(median)
        text = sentence("{name} has the highest peak, {}; the median rank peaks at {}.", most, middle, name=name)
    else:
        within = sentence("within {} of", share_text(high - low, high)) if low < high else "at"
        all_ranks = "Both" if len(peaks) == 2 else sentence("All {}", len(peaks))
        text = sentence("{all_ranks} ranks peak {within} {}.", bytes_part(high), all_ranks=all_ranks, within=within)
    return JobImbalance(worst, high, median, round(share, 6), unused, text)
