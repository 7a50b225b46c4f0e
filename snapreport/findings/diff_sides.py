"""Two runs of a program and what compares them, none of which depends on one moment.

Peaks of different runs are reached in different phases. What is compared: sizes of parameters and of gradients, the
greatest bytes of each category, how often a line allocates, and which code runs at all.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.attention_scores import largest_scores
from snapreport.findings.diff import DeviceDiff, SnapshotDiff, stack_rows
from snapreport.findings.program_stacks import ProgramStacks
from snapreport.reading.recording import Recording
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.curves import allocated_curve
from snapreport.timeline.frame_search import files_of
from snapreport.timeline.lifetimes import IS_FREED, IS_TRACED, is_live_at
from snapreport.timeline.own_code import own_places
from snapreport.timeline.phases import BACKWARD, FORWARD, OPTIMIZER_STEP, StackPhases, stack_phases
from snapreport.timeline.workspaces import AT_ONCE

EQUAL = 0.02
"""Two ratios are equal if they differ by less."""
EXPLAINED = 0.9
"""Minimum share of parameters, or of the bytes of lines, that follow a rule of the whole program."""
MOST_OF = 0.5
"""Minimum share of the bytes of lines that follow a rule of some parts."""
_POSITIONS = 0.1
"""A table of positions, which grows with the inputs, has less than this share of the parameters."""
_ROOM = 0.05
"""Of a power of a ratio."""
_STATE = ("parameter", "gradient", "optimizer state")
_FEWEST_INPUTS = 3
_WEIGHT_BYTES = 4096
"""Half of it is no size that everything small is rounded to."""
_FEWEST_STEPS = 3
_OPTIMIZER = r"torch/optim/([a-z0-9]+)\.py"
_NOT_OPTIMIZERS = ("optimizer", "lr_scheduler", "swa_utils")


class Side(Struct, frozen=True, dict=True):
    """One of the two runs."""

    recording: Recording
    timeline: DeviceTimeline
    event: int
    """Of its peak."""

    @cached_property
    def allocations(self) -> pl.DataFrame:
        """``stack``, ``size``, ``category`` and ``alloc_event``, ``free_event`` of all.

        Where the trace shows the optimizer make its state, older blocks that look like state, or like nothing else, are
        parameters, frozen or a copy.
        """
        columns = ["stack", "size", "alloc_event", "free_event", pl.col("category").cast(pl.String)]
        rows = self.timeline.allocations.select(columns)
        category = pl.col("category")
        states = rows.filter(category == "optimizer state")["stack"].to_numpy()
        if not self.phases.runs(OPTIMIZER_STEP)[states].any():
            return rows
        is_unknown = (category == "unknown") & ~IS_FREED
        is_parameter = ~IS_TRACED & ((category == "optimizer state") | is_unknown)
        return rows.with_columns(category=pl.when(is_parameter).then(pl.lit("parameter")).otherwise("category"))

    @property
    def whole_steps(self) -> int:
        """Number of steps, without an unfinished one at the end."""
        return len(self.timeline.steps.filter(~pl.col("name").str.ends_with("(unfinished)")))

    @property
    def phases(self) -> StackPhases:
        return stack_phases(self.recording)

    @cached_property
    def parameters(self) -> np.ndarray:
        """Int64: sizes of the parameters when gradients are most bytes, or at the peak, ascending."""
        event = self._fullest("gradient")
        live = is_live_at(self.event if event is None else event) & (pl.col("category") == "parameter")
        return np.sort(self.allocations.filter(live)["size"].to_numpy())

    def most(self, category: str) -> int:
        """The most bytes of a category at one moment; of parameters later, since a model is made in parts, and cast."""
        if category == "parameter":
            return int(self.parameters.sum())
        return int(self._at_most(category).sum())

    def _at_most(self, category: str) -> np.ndarray:
        """Int64: sizes of a category's tensors when they take most bytes."""
        event = self._fullest(category)
        if event is None:
            return np.zeros(0, np.int64)
        return self.allocations.filter(is_live_at(event) & (pl.col("category") == category))["size"].to_numpy()

    def _fullest(self, category: str) -> int | None:
        """The event after which a category takes most bytes; None where it has no tensor."""
        rows = self.allocations.filter(pl.col("category") == category)
        born, freed, size = (rows[name].to_numpy() for name in ("alloc_event", "free_event", "size"))
        curve = allocated_curve(born, freed, size, len(self.timeline.events))
        return int(np.argmax(curve)) - 1 if len(rows) else None

    @cached_property
    def gradients(self) -> Counter[int]:
        """How many tensors of each size get a gradient in a step: most at once, or more where they are freed early."""
        made = self.allocations.filter((pl.col("category") == "gradient") & IS_TRACED)
        a_step = {size: count // max(1, self.whole_steps) for size, count in Counter(made["size"].to_list()).items()}
        return Counter(self._at_most("gradient").tolist()) | Counter(a_step)

    @property
    def rounds_of_gradients(self) -> float:
        """How many times the trace allocates all gradients; NaN without any."""
        gradients = self.allocations.filter(pl.col("category") == "gradient")
        made = int(gradients.filter(IS_TRACED)["size"].sum())
        return made / self.most("gradient") if len(gradients) else np.nan

    @property
    def peak_bytes(self) -> int:
        return int(self.timeline.allocated[self.event + 1])

    @property
    def leftovers(self) -> pl.DataFrame:
        """``line``, ``bytes`` at the peak of what a line makes in each step and only the last may free, most first."""
        born = self.timeline.steps["first_event"].to_numpy()
        is_freed = pl.col("free_event").is_between(0, int(born.max(initial=0)))
        is_left = IS_TRACED & ~is_freed & ~pl.col("category").is_in(_STATE)
        rows = self.allocations.filter(is_left)
        return (
            rows.select(
                "size",
                line=own_places(self.recording).gather(rows["stack"]),
                step=np.searchsorted(born, rows["alloc_event"].to_numpy(), "right"),
                is_live=pl.col("alloc_event") <= self.event,
            )
            .filter(pl.col("line") != "")
            .group_by("line")
            .agg(bytes=pl.col("size").filter("is_live").sum(), steps=pl.col("step").n_unique())
            .filter(pl.col("steps") >= max(_FEWEST_STEPS, self.whole_steps - 1))
            .sort("bytes", "line", descending=[True, False])
        )

    @property
    def saved_allocations(self) -> int:
        """Number of allocations of forward passes that a backward pass frees: without C++ frames its stack is empty."""
        of_backward = self.phases.runs(BACKWARD) | ProgramStacks(self.recording).without_python
        freed = self.allocations["free_event"].to_numpy()
        frees = of_backward[self.timeline.events["stack"].to_numpy()[freed]]
        return int(((freed >= 0) & frees & self.phases.runs(FORWARD)[self.allocations["stack"].to_numpy()]).sum())

    @property
    def halved_weights(self) -> float:
        """The share of the parameters' bytes of which each forward pass makes as many copies of half the size."""
        sizes, counts = np.unique(self.parameters[self.parameters >= _WEIGHT_BYTES], return_counts=True)
        forward = self.phases.runs(FORWARD)[self.allocations["stack"].to_numpy()]
        made = Counter(self.allocations["size"].to_numpy()[forward].tolist())
        often = np.array([made[size // 2] for size in sizes.tolist()]) >= counts * max(1, self.whole_steps)
        return float((sizes * counts)[often].sum() / max(1, (sizes * counts).sum()))

    def bytes_of(self, pattern: str) -> int:
        """Bytes of all allocations with a frame whose text "file function" matches."""
        matches = ProgramStacks(self.recording).frames(pattern)[self.allocations["stack"].to_numpy()]
        return int(self.allocations["size"].to_numpy()[matches].sum())

    @property
    def reads_inputs(self) -> bool:
        """Whether inputs are made in each step, not once as a data set is, which says nothing of a batch."""
        made = self.allocations.filter((pl.col("category") == "input") & IS_TRACED)
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
        """Number of lines whose bytes after are ``ratio`` times those before."""
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
            forward = pl.Series(side.phases.runs(FORWARD)).gather(side.allocations["stack"])
            life = pl.col("free_event") - pl.col("alloc_event")
            at_once = IS_TRACED & life.is_between(1, AT_ONCE)  # as a workspace
            is_made = ~pl.col("category").is_in((*_STATE, "workspace")) & ~at_once
            made = side.allocations.filter(forward & is_made)
            sides.append(made.group_by("stack").agg(bytes=pl.col("size").sum(), count=pl.len().cast(pl.Int64)))
        rows = stack_rows(sides[0], sides[1], self.result.matching)
        rows = rows.filter((pl.col("count_before") > 0) & (pl.col("count_after") > 0))
        columns = {
            name: rows[name].to_numpy().astype(np.float64) for name in rows.columns if name[:5] in ("bytes", "count")
        }
        return Lines(
            columns["count_after"] / columns["count_before"] / self.longer,
            columns["bytes_after"] / np.maximum(columns["bytes_before"], 1) / self.longer,
            np.maximum(columns["bytes_before"], columns["bytes_after"]),
        )

    @cached_property
    def has_scores(self) -> tuple[bool, bool]:
        """Whether attention scores are in memory, before and after."""
        before = largest_scores(self.result.before, self.before.timeline)
        return before > 0, largest_scores(self.result.after, self.after.timeline) > 0

    @cached_property
    def has_same_parameters(self) -> bool:
        return np.array_equal(self.before.parameters, self.after.parameters)

    def ratio(self, category: str) -> float:
        """Of the greatest bytes of a category, parameters at the peak; NaN where one run has none."""
        was, now = self.before.most(category), self.after.most(category)
        return now / was if was else np.nan

    @property
    def longer(self) -> float:
        """How many times as many steps the run after has."""
        steps = self.before.whole_steps, self.after.whole_steps
        return steps[1] / steps[0] if all(steps) else 1.0

    @property
    def batch_factor(self) -> float | None:
        """How many times as large the inputs of the same program are, and its tensors of as many; None: they are not.

        Scores of attention are by its square, copies of weights by nothing, and a line may make both.
        """
        lines, factor = self.lines, self.ratio("input")
        is_same = abs(self.ratio("parameter") - 1) < _POSITIONS
        if not factor > 0 or equal(factor, 1.0) or not is_same:
            return None
        if lines.share(equal(lines.many, 1.0)) < EXPLAINED:
            return None
        grew = np.log(lines.large) / np.log(factor)
        follows = (grew > 1 - _ROOM) & (grew < 2 + _ROOM), (grew > -_ROOM) & (grew < 2 + _ROOM)
        is_proved = lines.share(follows[0]) >= MOST_OF and lines.share(follows[1]) >= EXPLAINED
        return factor if is_proved else None


def equal(ratio: np.ndarray | float, wanted: float) -> np.ndarray:
    """Bool per ratio."""
    return np.asarray(np.abs(np.asarray(ratio) / wanted - 1) < EQUAL)
