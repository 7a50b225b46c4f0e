"""What differs between two programs where their traces prove it: layers, experts, precision, checkpoints, optimizer.

Peaks of different runs are reached in different phases, so what is compared here does not depend on the moment: sizes
of parameters, the greatest bytes of each category, how often a line allocates, and which code runs at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.diff import DeviceDiff, SnapshotDiff, stack_rows
from snapreport.findings.program_stacks import ProgramStacks
from snapreport.reading.recording import Recording
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.frame_search import files_of
from snapreport.timeline.lifetimes import is_live_at
from snapreport.timeline.phases import FORWARD, stack_phases

EQUAL = 0.02
"""Two ratios are equal if they differ by less."""
EXPLAINED = 0.9
"""Minimum share of parameters, or of the bytes of lines, that follow a rule of the whole program."""
MOST_OF = 0.5
"""Minimum share of the bytes of lines that follow a rule of some parts."""
_STATE = ("parameter", "gradient", "optimizer state")
_PRECISIONS = (0.25, 0.5, 2.0, 4.0)
_FEWEST_INPUTS = 3
_CHECKPOINT, _AUTOCAST = r"torch/utils/checkpoint\.py", "autocast"
_OPTIMIZER = r"torch/optim/([a-z0-9]+)\.py"
_MEASURED = {"parameter": "parameters", "optimizer state": "optimizer state", "activation": "activations"}
_NOT_OPTIMIZERS = ("optimizer", "lr_scheduler", "swa_utils")


class Side(Struct, frozen=True, dict=True):
    """One of the two runs."""

    recording: Recording
    timeline: DeviceTimeline
    event: int
    """Of its peak."""

    @cached_property
    def allocations(self) -> pl.DataFrame:
        """``stack``, ``size``, ``category`` and ``alloc_event``, ``free_event`` of all."""
        columns = ["stack", "size", "alloc_event", "free_event", pl.col("category").cast(pl.String)]
        return self.timeline.allocations.select(columns)

    @cached_property
    def parameters(self) -> np.ndarray:
        """Int64: sizes of the parameters at the peak, ascending."""
        live = self.allocations.filter(is_live_at(self.event) & (pl.col("category") == "parameter"))
        return np.sort(live["size"].to_numpy())

    def most(self, category: str) -> int:
        """The most bytes of a category at one moment; of parameters those at the peak: a model is made in parts."""
        if category == "parameter":
            return int(self.parameters.sum())
        rows = self.allocations.filter(pl.col("category") == category)
        born, freed, size = (rows[name].to_numpy() for name in ("alloc_event", "free_event", "size"))
        change = np.zeros(len(self.timeline.allocated) + 1, np.int64)
        np.add.at(change, np.maximum(born, -1) + 1, size)
        np.subtract.at(change, freed[freed >= 0] + 1, size[freed >= 0])
        return int(np.cumsum(change).max(initial=0))

    @property
    def reads_inputs(self) -> bool:
        """Whether inputs are made in each step, not once as a data set is, which says nothing of a batch."""
        made = self.allocations.filter((pl.col("category") == "input") & (pl.col("alloc_event") >= 0))
        return len(made) >= max(_FEWEST_INPUTS, len(self.timeline.steps))

    def runs(self, pattern: str) -> bool:
        """Whether the text "file function" of a frame of one of its allocations matches."""
        return bool(ProgramStacks(self.recording).frames(pattern)[self.allocations["stack"].to_numpy()].any())

    @cached_property
    def optimizers(self) -> list[str]:
        """Modules of ``torch.optim`` whose code allocates: "adamw"."""
        recording = self.recording
        names = files_of(recording).str.extract(_OPTIMIZER)
        allocate = np.zeros(len(recording.stack_offsets) - 1, bool)
        allocate[self.allocations["stack"].to_numpy()] = True
        frames = recording.stack_frames[np.repeat(allocate, np.diff(recording.stack_offsets))]
        found = names.gather(np.unique(frames)).unique()
        return sorted(name for name in found if name and not name.startswith("_") and name not in _NOT_OPTIMIZERS)


class Lines(Struct, frozen=True):
    """Lines of forward passes that both runs have, without what they make of parameters, gradients and optimizer state.

    many, large: Float64, how many times as often they allocate after, and as many bytes, a step; weight: Float64 bytes.
    """

    many: np.ndarray
    large: np.ndarray
    weight: np.ndarray

    def share(self, rule: np.ndarray, among: np.ndarray | None = None) -> float:
        """Of the bytes of the lines that are ``among`` (all), in those that follow a rule (both Bool)."""
        among = np.ones(len(self.weight), bool) if among is None else among
        return float(self.weight[among & rule].sum() / max(1.0, self.weight[among].sum()))

    def follow(self, ratio: float) -> int:
        """How many lines allocate so many times as many bytes."""
        return int(equal(self.large, ratio).sum())

    def main(self, ratios: np.ndarray, among: np.ndarray) -> float:
        """The ratio of most bytes; 1 where there is none."""
        sums = {float(ratio): self.share(equal(ratios, ratio), among) for ratio in ratios[among]}
        return max(sums, key=lambda each: sums[each], default=1.0)


class Comparison:
    """Both runs of a device."""

    def __init__(self, result: SnapshotDiff, device: DeviceDiff) -> None:
        peak = device.moments[0]
        self.result = result
        self.before = Side(result.before.recording, device.before, peak.before_event)
        self.after = Side(result.after.recording, device.after, peak.after_event)

    @cached_property
    def lines(self) -> Lines:
        sides = []
        for side in (self.before, self.after):
            forward = pl.Series(stack_phases(side.recording).runs(FORWARD)).gather(side.allocations["stack"])
            made = side.allocations.filter(forward & ~pl.col("category").is_in(_STATE))
            sides.append(made.group_by("stack").agg(bytes=pl.col("size").sum(), count=pl.len().cast(pl.Int64)))
        rows = stack_rows(sides[0], sides[1], self.result.matching)
        rows = rows.filter((pl.col("count_before") > 0) & (pl.col("count_after") > 0))
        steps = len(self.before.timeline.steps), len(self.after.timeline.steps)
        longer = steps[1] / steps[0] if all(steps) else 1.0
        columns = {
            name: rows[name].to_numpy().astype(np.float64) for name in rows.columns if name[:5] in ("bytes", "count")
        }
        return Lines(
            columns["count_after"] / columns["count_before"] / longer,
            columns["bytes_after"] / np.maximum(columns["bytes_before"], 1) / longer,
            np.maximum(columns["bytes_before"], columns["bytes_after"]),
        )

    @cached_property
    def has_same_parameters(self) -> bool:
        return np.array_equal(self.before.parameters, self.after.parameters)

    def ratio(self, category: str) -> float:
        """Of the greatest bytes of a category, parameters at the peak; NaN where one run has none."""
        was, now = self.before.most(category), self.after.most(category)
        return now / was if was else np.nan

    @property
    def batch_factor(self) -> float | None:
        """How many times as large the tensors of the same program are, of as many; None: they are not."""
        lines = self.lines
        if not self.has_same_parameters or lines.share(equal(lines.many, 1.0)) < EXPLAINED:
            return None
        factor = lines.main(lines.large, ~equal(lines.large, 1.0))
        follows = lines.share(equal(lines.large, factor)) >= EXPLAINED and equal(self.ratio("input"), factor)
        return factor if follows and not equal(factor, 1.0) else None


def program_changes(compared: Comparison) -> str:
    """``parameters ×2, activations ×2: the model has twice as many layers.``; "" where nothing is proved."""
    changes = [*_of_parameters(compared), *_of_activations(compared), *_of_optimizer(compared)]
    if not changes:
        return ""
    ratios = {noun: compared.ratio(category) for category, noun in _MEASURED.items()}
    parts = [f"{noun} {times(ratio)}" for noun, ratio in ratios.items() if ratio == ratio and not equal(ratio, 1.0)]
    return f"{', '.join(parts)}{': ' if parts else ''}{'; '.join(changes)}."


def _of_parameters(compared: Comparison) -> Iterator[str]:
    one, two = compared.before.parameters, compared.after.parameters
    if not len(one) or not len(two) or compared.has_same_parameters:
        return
    if len(one) == len(two):
        ratios = two / one
        middle = float(np.median(ratios))
        if any(equal(middle, ratio) for ratio in _PRECISIONS) and equal(ratios, middle).mean() >= EXPLAINED:
            yield f"every number takes {_ratio_text(middle)} the bytes, another precision"
            return
        root = float(ratios.max() if ratios.max() * ratios.min() > 1 else ratios.min()) ** 0.5
        steps = [equal(ratios, root**power) for power in range(3)]
        if not equal(root, 1.0) and steps[1].any() and steps[2].any() and np.logical_or.reduce(steps).all():
            yield f"the width of the model is {_ratio_text(root)} what it was"
    elif set(one.tolist()) == set(two.tolist()):
        yield from _of_parts(compared.lines)


def _of_parts(lines: Lines) -> Iterator[str]:
    """Lines that allocate more often: tensors of one size in layers; in experts, which share the rows, smaller ones
    that have the same bytes together.
    """
    changed = ~equal(lines.many, 1.0)
    ratio = lines.main(lines.many, changed)
    repeated = changed & equal(lines.many, ratio)
    if equal(ratio, 1.0) or lines.share(repeated, changed) < MOST_OF:
        return
    if lines.share(repeated) >= MOST_OF and lines.share(equal(lines.large, ratio), repeated) >= MOST_OF:
        yield f"the model has {_ratio_text(ratio)} as many layers"
    elif lines.share(equal(lines.large, 1.0), repeated) >= MOST_OF:
        yield f"the model has {_ratio_text(ratio)} as many experts"


def _of_activations(compared: Comparison) -> Iterator[str]:
    before, after, lines = compared.before, compared.after, compared.lines
    grew = compared.ratio("activation")
    checkpoints = before.runs(_CHECKPOINT), after.runs(_CHECKPOINT)
    if checkpoints[0] != checkpoints[1] and (grew < 1 - EQUAL if checkpoints[1] else grew > 1 + EQUAL):
        yield f"activation checkpointing is {'on' if checkpoints[1] else 'off'}"
    casts = before.runs(_AUTOCAST), after.runs(_AUTOCAST)
    if casts[0] != casts[1]:
        yield f"autocast is {'on' if casts[1] else 'off'}"
    elif compared.has_same_parameters and equal(compared.ratio("input"), 1.0) and before.reads_inputs:
        changed = equal(lines.many, 1.0) & ~equal(lines.large, 1.0)
        ratio = lines.main(lines.large, changed)
        is_precision = any(equal(ratio, one) for one in _PRECISIONS)
        if is_precision and lines.share(changed & equal(lines.large, ratio)) >= MOST_OF:
            yield f"most activations take {_ratio_text(ratio)} the bytes for inputs of one size, another precision"


def _of_optimizer(compared: Comparison) -> Iterator[str]:
    sides = (compared.before, compared.after)
    was, now = (side.most("optimizer state") / max(1, side.most("parameter")) for side in sides)
    one, two = (" and ".join(side.optimizers) for side in sides)
    if one == two or abs(now - was) < EQUAL:
        return
    if one and two:
        yield f"the optimizer is {two} instead of {one}"
    elif one and not now:
        yield f"an optimizer without state, before it was {one}"
    elif two and not was:
        yield f"the optimizer is {two}, before it had no state"


def equal(ratio: np.ndarray | float, wanted: float) -> np.ndarray:
    """Bool per ratio."""
    return np.asarray(np.abs(np.asarray(ratio) / wanted - 1) < EQUAL)


def times(ratio: float) -> str:
    """``×1.5``."""
    return f"×{number(ratio)}"


def number(value: float) -> str:
    """Two decimals at most: ``1.5``."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _ratio_text(ratio: float) -> str:
    return "twice" if equal(ratio, 2.0) else "half" if equal(ratio, 0.5) else f"{number(ratio)} times"
