"""The cause of an outlier in words."""

from __future__ import annotations

from fractions import Fraction

from snapreport.contracts.job import JobCause
from snapreport.jobs.causes import Cause
from snapreport.jobs.digest_model import DigestStack
from snapreport.jobs.rank_text import place
from snapreport.sentence import sentence


def cause_sentence(cause: Cause, stacks: list[DigestStack]) -> str:
    """``Its activations are 1.5 times as large: a larger batch.`` ``stacks``: of the job."""
    if cause.kind == "leak":
        if cause.stack is None:
            return "It leaks: each step keeps more."
        return sentence("It leaks: {} keeps more in every step.", place(stacks[cause.stack]))
    factor = _factor(cause.factor)
    if cause.kind == "model":
        models = "a second model" if cause.count == 1 else f"{cause.count} more models"
        return f"It holds all parameters {factor} times: {models}."
    if cause.kind == "layers":
        return f"It has {factor} times as many layers: {_more_parts(cause, 'layer')}."
    if cause.kind == "experts":
        return f"It has {factor} times as many experts: {_more_parts(cause, 'expert')}."
    if cause.kind == "sequence":
        return (
            f"Its activations are {factor} times as large, and its attention scores up to {_factor(cause.factor**2)} "
            "times: longer sequences."
        )
    what = "a larger batch" if cause.kind == "batch" else "a larger batch or longer sequences"
    return f"Its activations are {factor} times as large: {what}."


def cause_json(cause: Cause | None, stacks: list[DigestStack]) -> JobCause | None:
    """As the documents have it."""
    if cause is None:
        return None
    factor = round(cause.factor, 4) if cause.factor else None
    return JobCause(cause.kind, factor, cause.count or None, cause_sentence(cause, stacks))


def _factor(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _more_parts(cause: Cause, part: str) -> str:
    """``one more layer``; where only the ratio is known, ``one more layer for every 4``."""
    if cause.count == 1:
        return f"one more {part}"
    ratio = Fraction(cause.factor - 1).limit_denominator(64)
    if abs(float(ratio) - cause.factor + 1) > 0.005 * cause.factor:
        return f"more {part}s"
    if ratio.numerator == 1:
        return f"one more {part} for every {ratio.denominator}" if ratio.denominator > 1 else f"twice as many {part}s"
    return f"{ratio.numerator} more {part}s for every {ratio.denominator}"
