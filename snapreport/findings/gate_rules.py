"""The rules of ``snapreport check``, and the result of one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from snapreport.number_format import bytes_text

# The choices of --fail-on: kinds of findings about something that is wrong, not mere facts.
FAILING_KINDS = ("oom", "leak", "fragmentation", "churn")


@dataclass(frozen=True)
class Growth:
    """How much a peak may grow: ``share`` of the baseline's peak, or ``size`` bytes; one of them is set."""

    share: float | None = None
    size: int | None = None

    def limit(self, baseline: int) -> int:
        """The greatest peak allowed, in bytes."""
        return baseline + (self.size if self.size is not None else int(round(baseline * (self.share or 0.0), 3)))

    def __str__(self) -> str:
        return bytes_text(self.size) if self.size is not None else f"{100 * (self.share or 0.0):g}%"


@dataclass(frozen=True)
class Rules:
    """``max_peak``, ``max_reserved``: bytes. ``fits``: bytes for the allocator on which the traces have to
    run, replayed. ``fail_on``: kinds of findings, each one of ``FAILING_KINDS``.
    """

    max_peak: int | None = None
    max_reserved: int | None = None
    max_growth: Growth | None = None
    fail_on: tuple[str, ...] = ()
    fits: int | None = None

    def __bool__(self) -> bool:
        return bool(self.fail_on) or any(
            rule is not None for rule in (self.max_peak, self.max_reserved, self.max_growth, self.fits)
        )


@dataclass(frozen=True)
class Check:
    """The result of one rule on one device. ``message``: one sentence; ``evidence``: the reasons, a line each.

    ``file``: of a series, all of them. ``value``, ``limit``: bytes, or for ``fail_on`` rules the number of findings and
    0. ``unknown``: why the recording cannot show whether the rule holds, "" where it can; then ``passed`` is false.
    """

    rule: str
    file: str
    device: str
    passed: bool
    message: str
    value: int
    limit: int
    evidence: list[str] = field(default_factory=list)
    unknown: str = ""

    @property
    def status(self) -> Literal["passed", "failed", "unknown"]:
        return "unknown" if self.unknown else "passed" if self.passed else "failed"

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "status": self.status}
