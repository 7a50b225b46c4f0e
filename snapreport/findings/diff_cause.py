"""Why one run's peak differs from another's, where the traces prove it.

What differs in the program comes first (``diff_program``). In the same program, the sizes of its batches may differ.
Each stack that both runs have is compared at the two peaks: how much larger its bytes are, in as many allocations. A
larger batch makes activations larger by one factor and leaves parameters as they are; longer sequences make attention
scores larger by its square. What fits neither has no cause.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.attention_scores import largest_scores
from snapreport.findings.diff import DeviceDiff, SnapshotDiff
from snapreport.findings.diff_program import number, program_changes, ratio_text, times
from snapreport.findings.diff_sides import EQUAL, Comparison, equal
from snapreport.findings.live import live_at

EXPLAINED = 0.9
"""Minimum share of all changes, in either direction, in stacks that follow the rule."""
OWN_ACTIVATIONS = 0.8
"""Minimum share of all activations that a larger batch or longer sequences make larger."""
NEGLIGIBLE = 0.002
"""Share of the larger peak below which a change of a stack proves nothing."""
_STATE = ("parameter", "gradient", "optimizer state")


class _Rows(Struct, frozen=True):
    """A row per stack that both runs may have, as columns: less, more: Float64 bytes in the run with the smaller and
    with the larger peak; fewer, many: allocations; category: of most of its bytes.
    """

    less: np.ndarray
    more: np.ndarray
    fewer: np.ndarray
    many: np.ndarray
    category: np.ndarray

    @property
    def change(self) -> np.ndarray:
        return np.asarray(self.more - self.less)

    @property
    def times(self) -> np.ndarray:
        """How many times as large; NaN where a run has none."""
        return _ratio(self.more, self.less)

    @property
    def times_as_many(self) -> np.ndarray:
        return _ratio(self.many, self.fewer)


def cause_of(result: SnapshotDiff, device: DeviceDiff) -> str:
    """``activations ×2, attention scores ×4: the sequence length doubled.``; "" where the ratios prove no cause."""
    peak = device.moments[0]
    largest = max(peak.before_bytes, peak.after_bytes)
    if peak.before_bytes == peak.after_bytes:
        return ""
    compared = Comparison(result, device)
    changes = program_changes(compared)
    if changes:
        return changes
    rows = _rows(device, grew=peak.after_bytes > peak.before_bytes)
    counts = np.abs(rows.change) > NEGLIGIBLE * largest
    cause = _larger(compared, device, rows, counts) if counts.any() else ""
    factor = None if cause else compared.batch_factor
    return _sentence(device, max(factor, 1 / factor), "", None) if factor else cause


def _larger(compared: Comparison, device: DeviceDiff, rows: _Rows, counts: np.ndarray) -> str:
    """As many allocations, larger by one factor, attention scores by it or by its square, and the same parameters."""
    is_parameter = rows.category == "parameter"
    is_larger = counts & ~np.isin(rows.category, _STATE) & equal(rows.times_as_many, 1.0) & (rows.times > 1 + 2 * EQUAL)
    if not is_larger.any() or not equal(rows.more[is_parameter].sum() + 1, rows.less[is_parameter].sum() + 1):
        return ""
    ratios = rows.times[is_larger]
    weight = [float(rows.change[is_larger & equal(rows.times, ratio)].sum()) for ratio in ratios]
    factor = float(ratios[int(np.argmax(weight))])
    is_of_pairs = compared.lines.follow(factor**0.5) > compared.lines.follow(factor)
    if is_of_pairs:  # of all samples, or of all tokens, which may hold most of the peak
        factor **= 0.5
    linear, square = (is_larger & equal(rows.times, factor**power) for power in (1, 2))
    # A line of attention may make both scores and what is as large as its input.
    between = is_larger & (rows.times > factor) & (rows.times < factor**2)
    scores = [
        largest_scores(compared.result.before, device.before),
        largest_scores(compared.result.after, device.after),
    ]
    of_scores = max(scores) / min(scores) if all(scores) else 0.0
    is_activation = rows.category == "activation"
    affected = rows.less[is_activation & (linear | square | between)].sum()
    if affected < OWN_ACTIVATIONS * rows.less[is_activation].sum():
        return ""
    if equal(of_scores, factor**2) and _explained(rows, counts, linear | square | between) >= EXPLAINED:
        return _sentence(device, factor, "the sequence length", scores)
    if _explained(rows, counts, linear | square if is_of_pairs else linear) < EXPLAINED:
        return ""
    # Scores that grow like everything else prove a batch. Where attention keeps none, both look alike.
    if equal(of_scores, factor):
        return _sentence(device, factor, "the batch size", scores)
    return "" if any(scores) else _sentence(device, factor, "", None)


def _rows(device: DeviceDiff, *, grew: bool) -> _Rows:
    """The stacks at the two peaks; those without a stack trace prove nothing."""
    peak, stacks = device.moments[0], device.stacks[0]
    category = {}
    for side, timeline, event in (
        ("before", device.before, peak.before_event),
        ("after", device.after, peak.after_event),
    ):
        live = live_at(timeline.allocations, event).group_by("stack", "category").agg(pl.col("size").sum())
        main = live.sort("size").with_columns(pl.col("category").cast(pl.String)).select("stack", "category")
        category[side] = dict(main.iter_rows())  # the last one of a stack has most bytes
    stacks = stacks.filter((pl.col("stack_before").fill_null(1) > 0) & (pl.col("stack_after").fill_null(1) > 0))
    names = [
        category["after"].get(after) or category["before"].get(before, "unknown")
        for before, after in stacks.select("stack_before", "stack_after").iter_rows()
    ]
    less, more = ("before", "after") if grew else ("after", "before")
    columns = {
        name: stacks[column].to_numpy().astype(np.float64)
        for name, column in zip(
            ("less", "more", "fewer", "many"),
            (f"bytes_{less}", f"bytes_{more}", f"count_{less}", f"count_{more}"),
            strict=True,
        )
    }
    return _Rows(**columns, category=np.array(names, dtype=object))


def _explained(rows: _Rows, counts: np.ndarray, stacks: np.ndarray) -> float:
    """The share that ``stacks`` have of all changes in either direction."""
    return float(rows.change[stacks].sum() / max(np.abs(rows.change[counts]).sum(), 1.0))


def _ratio(more: np.ndarray, less: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where((more > 0) & (less > 0), more / less, np.nan))


def _sentence(device: DeviceDiff, factor: float, what: str, scores: list[int] | None) -> str:
    """``factor``: of the larger run; ``scores``: bytes of a matrix of attention scores before and after. ``what`` was
    changed; "" where it may be any size of the inputs.
    """
    peak = device.moments[0]
    shrank = peak.after_bytes < peak.before_bytes
    activations = device.categories[0].filter(pl.col("name") == "activation").select("bytes_before", "bytes_after")
    before, after = next(activations.iter_rows(), (0, 0))
    parts = [f"activations {times(after / before)}"] if before and after else []
    parts += [f"attention scores {times(scores[1] / scores[0])}"] if scores else []
    ratio = 1 / factor if shrank else factor
    if not what:
        cause = f"the batch size, sequence length or another size of the inputs is {ratio_text(ratio)} what it was"
    elif equal(factor, 2.0):
        cause = f"{what} {'was halved' if shrank else 'doubled'}"
    else:
        cause = f"{what} is {number(ratio)} times what it was"
    return f"{', '.join(parts)}: {cause}." if parts else f"{cause}."
