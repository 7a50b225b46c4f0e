"""The cheapest remedies with which a recorded program runs in so much memory, replayed together with the allocator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator.minimum import minimum_memory
from snapreport.allocator.placement import Ascending
from snapreport.allocator.replay import Replayed
from snapreport.allocator.settings import AllocatorSettings, parse_settings
from snapreport.allocator.whatif import FRESH, Change, WhatIf
from snapreport.allocator_facts import TRIED_SETTINGS
from snapreport.contracts.finding import Confidence
from snapreport.contracts.fit import FitCheapest, FitRemedies, FitRemedy
from snapreport.findings.advice import advice_at, advice_with_savings
from snapreport.findings.advice_context import ONE_LINE, REWRITE, SETTING, SLOWER, Advice, AdviceContext, Effort
from snapreport.findings.effort import place_of
from snapreport.findings.run import findings
from snapreport.findings.saving import peak_without, whole_parts
from snapreport.sentence import sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline

COST: dict[Effort, int] = {ONE_LINE: 1, SETTING: 1, REWRITE: 4, SLOWER: 4}
"""By effort: four changes of one line, or of a setting, cost as much as a rewrite."""
MOST_REMEDIES = 3
WANTED = 4
"""The cheapest set, and the three next best."""
MOST_REPLAYS, REPLAYS_OF_LONG_TRACES, LONG_TRACE = 60, 12, 300_000
"""Sets that are replayed at most; a long trace takes a second each."""
MOST_SEARCHED = 60_000
"""Operations of a trace whose minimum memory is searched, in 2 s of CPU; of longer ones the peak reserved counts."""
PROPORTIONAL = ("accumulation", "evaluation-batch", "inference-batch", "mixed-precision")
"""Rules that make every tensor smaller: what another remedy leaves shrinks as well. Other rules that name the same
tensors remove them, and what one removed the next cannot remove again."""


class Remedy(Struct, frozen=True, eq=False):
    """rule, do, effort, confidence, where: as in advice. mask: Bool per allocation, None for a setting of the allocator
    (``setting``). fraction: of each one's bytes that goes.
    """

    rule: str
    do: str
    effort: Effort
    confidence: Confidence
    where: str | None
    mask: np.ndarray | None
    fraction: float
    setting: str = ""


class RemedySearch:
    """Sets of remedies for one device of a recording; ``settings``: on top of the recorded ones."""

    def __init__(self, snapshot: Snapshot, whatif: WhatIf, settings: AllocatorSettings) -> None:
        self.whatif = whatif
        self.settings = settings
        self.timeline: DeviceTimeline = whatif.timeline
        self.size = self.timeline.allocations["size"].to_numpy()
        self.remedies = [*_settings_to_try(settings), *self._advice(snapshot)]

    def answer(self, memory: int) -> FitCheapest:
        """Searches sets of up to :data:`MOST_REMEDIES`, cheapest first."""
        needed = self._needed(())
        ends = bool(self.timeline.oom_events)
        if needed <= memory and self._replay((), memory).failure is None:
            return FitCheapest(memory, needed, True, [], None, [], ends)
        found: dict[tuple[Remedy, ...], FitRemedies] = {}
        lowest: tuple[Remedy, ...] = ()
        least_allocated = self.timeline.peak_bytes
        replays = MOST_REPLAYS if len(self.whatif.trace.kind) <= LONG_TRACE else REPLAYS_OF_LONG_TRACES
        for chosen in self._by_cost():
            if len(found) == WANTED or not replays:
                break
            if any(set(fewer) <= set(chosen) for fewer in found):
                continue
            allocated = self.peak_allocated(chosen)
            if allocated < least_allocated:
                lowest, least_allocated = chosen, allocated
            if allocated > memory:
                continue
            replays -= 1
            done = self._replay(chosen, memory)
            if done.failure is None:
                reserved = done.peak_reserved
                found[chosen] = FitRemedies(_rows(chosen), allocated, reserved, memory - reserved, done.retries)
        if found:
            return FitCheapest(memory, needed, False, list(found.values()), None, [], ends)
        return FitCheapest(memory, needed, False, [], min(self._needed(lowest), needed), _rows(lowest), ends)

    def peak_allocated(self, chosen: Sequence[Remedy]) -> int:
        """Bytes, without a replay of the allocator."""
        out = self.size - self.sizes(chosen)
        rows = np.flatnonzero(out)
        return peak_without(self.timeline, rows, out[rows])[0] if len(rows) else self.timeline.peak_bytes

    def peak_reserved(self, chosen: Sequence[Remedy]) -> int:
        """Bytes, where memory does not limit it."""
        return self._replay(tuple(chosen), None).peak_reserved

    def sizes(self, chosen: Sequence[Remedy]) -> np.ndarray:
        """Int64 bytes by allocation that the remedies leave. One in several masks loses the largest fraction, once,
        and of the rest what proportional remedies take.
        """
        gone, left = np.zeros(len(self.size)), np.ones(len(self.size))
        for remedy in chosen:
            if remedy.mask is None:
                continue
            if remedy.rule in PROPORTIONAL:
                left[remedy.mask] *= 1 - remedy.fraction
            else:
                gone[remedy.mask] = np.maximum(gone[remedy.mask], remedy.fraction)
        out = np.floor(self.size * (1 - (1 - gone) * left)).astype(np.int64)
        sizes: np.ndarray = self.size - out
        return sizes

    def _advice(self, snapshot: Snapshot) -> list[Remedy]:
        """What the rules give at the peak, and where it is once all of that is applied."""
        context = AdviceContext(snapshot, self.timeline, findings(snapshot, [self.timeline.device]))
        given = [
            _remedy(context, advice, *saving.change)
            for advice, saving in advice_with_savings(context)
            if saving is not None and not advice.spares_peak
        ]
        out = self.size - self.sizes(given)
        rows = np.flatnonzero(out)
        position = peak_without(self.timeline, rows, out[rows])[1] if len(rows) else self.timeline.peak_event
        known = {remedy.rule for remedy in given}
        if position == self.timeline.peak_event:
            return given
        there = [advice for advice in advice_at(context, position) if advice.mask is not None]
        return given + [
            _remedy(context, advice, advice.mask, whole_parts(advice.fraction))
            for advice in there
            if advice.rule not in known and not advice.spares_peak and advice.mask is not None and advice.mask.any()
        ]

    def _by_cost(self) -> Iterator[tuple[Remedy, ...]]:
        """All sets, cheapest first; of equal cost the fewest remedies, then those that a recording shows best."""
        sets = [
            chosen
            for count in range(1, MOST_REMEDIES + 1)
            for chosen in itertools.combinations(self.remedies, count)
            if sum(remedy.mask is None for remedy in chosen) <= 1
        ]
        doubts = ("measured", "inferred", "estimate")
        order = {
            chosen: (
                sum(COST[remedy.effort] for remedy in chosen),
                len(chosen),
                max(doubts.index(remedy.confidence) for remedy in chosen),
            )
            for chosen in sets
        }
        return iter(sorted(sets, key=lambda chosen: order[chosen]))

    def _needed(self, chosen: tuple[Remedy, ...]) -> int:
        settings, change = self._changes(chosen)
        if len(self.whatif.trace.kind) <= MOST_SEARCHED:
            found = minimum_memory(self.whatif, settings, change, around=0)
            return found.memory or found.unlimited
        return self.peak_reserved(chosen)

    def _replay(self, chosen: tuple[Remedy, ...], memory: int | None) -> Replayed:
        settings, change = self._changes(chosen)
        return self.whatif.replay(settings, change, memory=Ascending(memory), start=FRESH)

    def _changes(self, chosen: tuple[Remedy, ...]) -> tuple[AllocatorSettings, Change]:
        settings = parse_settings([remedy.setting for remedy in chosen if remedy.setting], self.settings)
        if all(remedy.mask is None for remedy in chosen):
            return settings, Change()
        sizes = self.sizes(chosen)
        return settings, Change(None if sizes.all() else sizes == 0, sizes)


def _rows(chosen: Sequence[Remedy]) -> list[FitRemedy]:
    return [FitRemedy(one.rule, one.do, one.effort, one.confidence, one.where) for one in chosen]


def _settings_to_try(own: AllocatorSettings) -> list[Remedy]:
    """Without garbage collection: before a request fails, PyTorch releases all that is cached."""
    tried = [text for text in TRIED_SETTINGS if not text.startswith("garbage") and parse_settings([text], own) != own]
    return [
        Remedy(text.split(":")[0], sentence("Set {text}", text=text), SETTING, "inferred", None, None, 0.0, text)
        for text in tried
    ]


def _remedy(context: AdviceContext, advice: Advice, mask: np.ndarray, fraction: float) -> Remedy:
    where = place_of(context, replace(advice, mask=mask)).where
    # The last rows of a mask are requests that failed, which the recorded trace does not replay.
    rows = mask[: len(context.recorded.allocations)]
    return Remedy(advice.rule, advice.do, advice.effort, advice.confidence, where, rows, fraction)
