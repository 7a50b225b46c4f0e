"""Where in a pass a request failed, and what its end needs at least: from its layers, and from whole passes before."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import AdviceContext
from snapreport.timeline.lifetimes import allocates
from snapreport.timeline.phases import FORWARD, OPTIMIZER_STEP

FEWEST_LAYERS = 3
"""Repeats of the same sizes of parameters that are layers."""
MOST_PARAMETERS = 4000
MIN_SIZE_RATIO = 16
"""Parameters so many times smaller than the largest of a layer are vectors."""
FEWEST_MATRICES = 3
"""Of a layer: two convolutions of a residual block are alike, and would be two layers."""
RIVAL = 0.3
"""Of the bytes of the parameters that repeat most: others that repeat another number of times leave layers unclear."""


class CutOff(Struct, frozen=True):
    """A failed request. layer, layers: the number of the layer it is of, from 1, and of all layers; 0: unknown.
    needed: bytes allocated with which the pass gets to its end, at least.
    """

    layer: int
    layers: int
    needed: int


def cut_off(context: AdviceContext, event: int) -> CutOff:
    """context: with the requests that failed. event: of one of them."""
    found = _Pass(context, event)
    layer, layers, kept = found.layers()
    return CutOff(layer, layers, max(found.at_failure, kept, found.as_before(), found.state()))


class _Pass:
    """The pass in which a request failed: the allocations since the first one of its forward pass."""

    def __init__(self, context: AdviceContext, event: int) -> None:
        self.context, self.event = context, event
        self.at_failure = int(context.timeline.allocated[event + 1])
        events = context.timeline.events
        self.stack = events["stack"].to_numpy()
        is_alloc = allocates(events)
        # A workspace beside a product is made in some passes only.
        workspaces = np.setdiff1d(context.born, context.born[births(context).rows])
        is_alloc[workspaces[workspaces >= 0]] = False
        is_alloc[event] = True
        self.births = np.flatnonzero(is_alloc)
        forward = (context.phases.innermost == FORWARD)[self.stack[self.births]]
        self.number = np.cumsum(forward & ~np.append(False, forward[:-1]))
        self.begins = self.births[np.searchsorted(self.number, np.arange(int(self.number[-1]) + 1))]
        self.ends = np.zeros(len(events), np.int64)
        self.ends[context.born[context.is_traced]] = context.freed[context.is_traced]
        self.place = int(np.searchsorted(self.births, event))
        self.mine = np.arange(len(self.births)) <= self.place
        self.mine &= self.number == self.number[self.place]

    def layers(self) -> tuple[int, int, int]:
        """(layer, layers, bytes allocated when a forward pass has been through all of them)."""
        context = self.context
        if context.phases.innermost[self.stack[self.event]] != FORWARD:
            return 0, 0, 0
        here = self._forward(self.mine)
        before = self._same_before()
        if before >= 0:  # a whole pass shows all of its layers
            whole = self._forward(self.number == self.number[np.searchsorted(self.births, before)])
            begins = self._first_lines(whole)
            layer, layers = int((begins <= before).sum()), len(begins)
            begins = here[self.stack[here] == self.stack[begins[0]]] if layers else begins
        else:
            begins = self._first_lines(here)
            if not (self.stack[here] == self.stack[self.event]).any():
                return 0, 0, 0  # a line that no whole layer ran
            if len(begins) and self.stack[self.event] == self.stack[begins[0]]:
                begins = np.append(begins, self.event)  # it would have begun the next layer
            layer, layers = len(begins), repeats_of_parameters(context)
        if not 0 < layer <= layers or layers < FEWEST_LAYERS:
            return 0, 0, 0
        if before >= 0 or layer < 2:  # what a whole pass needed after this request is known
            return layer, layers, 0
        # What a whole layer added at least, for each that has not begun; without a graph it adds nothing.
        starts = context.timeline.allocated[begins]
        return layer, layers, int(starts[-1]) + int(np.diff(starts).min()) * (layers - layer)

    def _forward(self, of_pass: np.ndarray) -> np.ndarray:
        """Events of the allocations of a forward pass. of_pass: Bool per allocation."""
        here = self.births[of_pass]
        forward = self.context.phases.innermost[self.stack[here]] == FORWARD
        return np.asarray(here[forward & (here < self.event)])

    def _first_lines(self, here: np.ndarray) -> np.ndarray:
        """Events at which the layers began that the failed request belongs to: those of the first of the lines that run
        equally often, but for a layer that is cut off.
        """
        # What is freed before anything else is allocated are temporaries of a call, as of each sample.
        here = here[self.ends[here] > np.append(here[1:], here[-1:])]
        runs = pl.DataFrame({"stack": self.stack[here], "event": here})
        lines = runs.group_by("stack").agg(n=pl.len(), first=pl.col("event").min(), last=pl.col("event").max())
        lines = lines.filter(pl.col("n") >= 2)
        failing = lines.filter(pl.col("stack") == self.stack[self.event])
        near = failing if len(failing) else lines.sort("last").tail(1)
        if not len(near):
            return here[:0]
        # Lines that alternate with it.
        lines = lines.filter((pl.col("last") >= near["first"][0]) & (pl.col("first") <= near["last"][0]))
        counts = lines.group_by("n").len().sort("len", "n", descending=[True, False])
        most = int(counts["n"][0])
        once = lines.filter(pl.col("n").is_between(most, most + 1)).sort("first")
        return np.asarray(here[self.stack[here] == once["stack"][0]])

    def as_before(self) -> int:
        """Bytes allocated if this pass goes on as the last one did after the same request; no less than that was."""
        at, size = self._same_before(), self.context.timeline.events["size"]
        # The engine's allocations have no stacks: only one of the same size is the same.
        is_same = int(size[at]) == int(size[self.event]) or self.stack[self.event] > 0
        if at < 0 or int(size[at]) > int(size[self.event]) or not is_same:
            return 0
        number = int(self.number[np.searchsorted(self.births, at)])
        end = int(self.begins[number + 1]) if number + 1 < len(self.begins) else self.event
        # An optimizer's first step makes its state, the others do not; of a request in a step that step is the rest.
        steps = np.flatnonzero((self.context.phases.innermost == OPTIMIZER_STEP)[self.stack[at:end]])
        if len(steps):
            end = at + int(steps[0] or steps[-1] + 1)
        allocated = self.context.timeline.allocated
        grew = int(allocated[at + 1 : end + 1].max()) - int(allocated[at + 1])
        # What an earlier pass left, and left none then, may go before the end of this one.
        left = self._of_earlier(self.event, self.number[self.place]) - self._of_earlier(at, number)
        return self.at_failure + grew - left

    def _of_earlier(self, event: int, number: int) -> int:
        """Bytes alive after ``event`` that forward passes before that of this number made."""
        context = self.context
        made = (context.phases.innermost == FORWARD)[context.stack] & (context.born < self.begins[number])
        return int(context.size[made & context.alive_at(event)].sum())

    def _same_before(self) -> int:
        """The event of the same request in the last pass before that made it, -1 where none did."""
        same = self.stack[self.births] == self.stack[self.event]
        here = same & self.mine
        runs = np.flatnonzero(same & (self.number < self.number[self.place]))
        if not len(runs):
            return -1
        of_pass = runs[self.number[runs] == self.number[runs[-1]]]
        count = int(here.sum())
        if count > len(of_pass):
            return -1
        return int(self.births[of_pass[count - 1]])

    def state(self) -> int:
        """Bytes allocated when the first step of an optimizer has made its state: each line that makes some makes as
        much as there are gradients.
        """
        context = self.context
        phase = context.phases.innermost
        earlier = (phase[self.stack[: self.begins[-1]]] == OPTIMIZER_STEP).any()
        if earlier or phase[self.stack[self.event]] != OPTIMIZER_STEP:
            return 0
        alive = context.alive_at(self.event) & (context.born < self.event)
        gradients = alive & context.category("gradient")
        made = alive & (phase == OPTIMIZER_STEP)[context.stack] & np.isin(context.size, context.size[gradients])
        state = pl.DataFrame({"stack": context.stack[made], "size": context.size[made]}).group_by("stack")
        so_far = state.agg(pl.len(), pl.col("size").sum()).filter(pl.col("len") >= FEWEST_LAYERS)["size"].to_numpy()
        left = int(context.size[gradients].sum()) - so_far
        before = self.at_failure - int(context.timeline.events["size"][self.event])
        return before + int(left[left > 0].sum())


def repeats_of_parameters(context: AdviceContext) -> int:
    """How many times the sizes of a model's parameters repeat one after another; 0 where they do not, where others
    repeat another number of times, or where so few repeat that a layer may have them several times.
    """
    rows = np.flatnonzero(context.traced("parameter"))
    size = context.size[rows[np.argsort(context.born[rows], kind="stable")]]
    if len(size) > MOST_PARAMETERS:
        return 0
    count, covered, (start, end) = _repeats(size)
    others = max(_repeats(size[:start])[:2], _repeats(size[end:])[:2], key=lambda found: found[1])
    one = size[start : start + (end - start) // max(1, count)]
    is_unclear = others[0] != count and others[1] >= RIVAL * covered
    return 0 if is_unclear or int((MIN_SIZE_RATIO * one > one.max(initial=0)).sum()) < FEWEST_MATRICES else count


def _repeats(size: np.ndarray) -> tuple[int, int, tuple[int, int]]:
    """(repeats, their bytes, their first place and the one after their last) of the shortest run of sizes that covers
    most bytes when repeated.
    """
    best, total = (0, 0, (0, 0)), np.append(0, np.cumsum(size))
    for period in range(1, len(size) // FEWEST_LAYERS + 1):
        same = np.append(False, np.append(size[period:] == size[:-period], False))
        edges = np.flatnonzero(np.diff(same.astype(np.int8)))
        starts, ends = edges[::2], edges[1::2]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            count = (end - start) // period + 1
            stop = start + count * period
            covered = int(total[stop] - total[start])
            if count >= FEWEST_LAYERS and covered > best[1]:
                best = count, covered, (start, stop)
    return best
