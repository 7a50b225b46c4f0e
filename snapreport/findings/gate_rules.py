"""The rules of ``snapreport check``."""

from __future__ import annotations

from msgspec import Struct

from snapreport.number_format import bytes_text

# The choices of --fail-on: kinds of findings about something that is wrong, not mere facts.
FAILING_KINDS = ("oom", "leak", "fragmentation", "churn")


class Growth(Struct, frozen=True):
    """How much a peak may grow: ``share`` of the baseline's peak, or ``size`` bytes; one of them is set."""

    share: float | None = None
    size: int | None = None

    def limit(self, baseline: int) -> int:
        """The greatest peak allowed, in bytes."""
        return baseline + (self.size if self.size is not None else int(round(baseline * (self.share or 0.0), 3)))

    def __str__(self) -> str:
        return bytes_text(self.size) if self.size is not None else f"{100 * (self.share or 0.0):g}%"


class GrowthRule(Struct, frozen=True):
    """``name``: the option; ``what``: "allocated" or "reserved", whose peak may grow by ``growth``."""

    name: str
    what: str
    growth: Growth


class Rules(Struct, frozen=True):
    """``max_peak``, ``max_reserved``, ``max_device_used``: bytes. ``fits``: bytes for the allocator on which the traces
    have to run, replayed. ``fail_on``: kinds of findings, each one of ``FAILING_KINDS``.
    """

    max_peak: int | None = None
    max_reserved: int | None = None
    max_growth: Growth | None = None
    fail_on: tuple[str, ...] = ()
    fits: int | None = None
    max_reserved_growth: Growth | None = None
    max_device_used: int | None = None

    @property
    def limits(self) -> list[tuple[str, str, int]]:
        """The limits of peaks: rule, "allocated" or "reserved", bytes."""
        rules = (("max-peak", "allocated", self.max_peak), ("max-reserved", "reserved", self.max_reserved))
        return [(rule, what, limit) for rule, what, limit in rules if limit is not None]

    @property
    def growths(self) -> list[GrowthRule]:
        """The rules that need a baseline."""
        rules = (
            ("max-growth", "allocated", self.max_growth),
            ("max-reserved-growth", "reserved", self.max_reserved_growth),
        )
        return [GrowthRule(name, what, growth) for name, what, growth in rules if growth is not None]

    def __bool__(self) -> bool:
        return bool(self.fail_on or self.limits or self.growths) or (self.fits, self.max_device_used) != (None, None)
