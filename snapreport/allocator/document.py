"""The answer to a what-if on one device, and its entry in the document of ``snapreport whatif --json``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator.cards import CARDS
from snapreport.allocator.minimum import Minimum, fits, minimum_memory
from snapreport.allocator.settings import both_readings, parse_settings
from snapreport.allocator.trace import EMPTY_CACHE
from snapreport.allocator.whatif import FRESH, OWN, RECORDED, Change, WhatIf, scaled
from snapreport.allocator_facts import sentence
from snapreport.contracts.whatif import CardFit, MinimumMemory, ReplayCheck, ReplayRun, WhatIfDevice
from snapreport.timeline.build import DeviceTimeline

Masks = Callable[[int, str], np.ndarray]
"""(device, query) → Boolean by allocation id."""


class Question(Struct, frozen=True):
    """What to change.

    settings: in PYTORCH_CUDA_ALLOC_CONF's syntax, on top of the recorded ones; empty: the usual ones.
    without: queries whose allocations never happen. scale: (query, factor) of sizes. memory: bytes for the allocator,
    None for the trace's own. start: ``fresh`` or ``recorded``. cards: whether to search the minimum memory.
    """

    settings: Sequence[str] = ()
    without: Sequence[str] = ()
    scale: Sequence[tuple[str, float]] = ()
    memory: int | None = None
    start: str = FRESH
    cards: bool = True


class Answer(Struct, frozen=True):
    """One device's answer. ``least``: own settings first, then expandable segments; empty where it was not searched."""

    whatif: WhatIf
    question: Question
    runs: list[ReplayRun]
    least: list[Minimum]
    cards: list[CardFit]

    def device(self) -> WhatIfDevice:
        """The device's entry in the document."""
        whatif, check, trace = self.whatif, self.whatif.check, self.whatif.trace
        own = self.least[0] if self.least else None
        return WhatIfDevice(
            device=whatif.timeline.device,
            check=ReplayCheck(
                exact=check.exact,
                allocations=check.allocations,
                same_allocations=check.same_allocations,
                segment_events=check.segment_events,
                same_segment_events=check.same_segment_events,
                curve_error=check.curve_error,
                reason=check.reason or None,
            ),
            start="recorded" if trace.starts_empty or whatif.start == RECORDED else "fresh",
            settings=check.settings.text(),
            recorded_peak_reserved_bytes=trace.peak_reserved,
            capacity_bytes=whatif.capacity,
            placements=whatif.placements,
            limits=limits(whatif),
            runs=self.runs,
            minimum_memory_bytes=own.memory if own else None,
            minimum_retries=own.retries if own and own.memory is not None else None,
            minimums=[
                MinimumMemory(
                    settings=least.settings.text(),
                    memory_bytes=least.memory,
                    retries=least.retries,
                    monotone=least.monotone,
                    unlimited_peak_reserved_bytes=least.unlimited,
                )
                for least in self.least
            ],
            cards=self.cards,
        )


def answer(timeline: DeviceTimeline, question: Question, masks: Masks) -> Answer:
    """Replays one device. Raises :class:`SettingsError` and :class:`QueryError` for what is malformed."""
    whatif = WhatIf(timeline, capacity=question.memory, start=question.start)
    for text in question.settings:
        parse_settings([text], whatif.trace.settings)  # malformed settings are an error even where nothing is replayed
    change = _change(whatif, question, masks)
    if not whatif.check.exact:
        return Answer(whatif, question, [], [], [])
    changed = change.without is not None or change.sizes is not None
    runs = [whatif.baseline]
    if changed:
        runs.append(whatif.run(whatif.own, change, OWN))
    if question.settings:
        for note, settings in both_readings(question.settings, whatif.own).items():
            name = sentence("notes", note, settings=",".join(question.settings)) if note else None
            runs.append(whatif.run(settings, change, name))
    else:
        runs += whatif.standard(change)
    least: list[Minimum] = []
    cards: list[CardFit] = []
    if question.cards:
        chosen = both_readings(question.settings, whatif.own).values()
        grown = [replace(settings, expandable_segments=True) for settings in chosen]
        least = [minimum_memory(whatif, settings, change) for settings in dict.fromkeys((*chosen, *grown))]
        cards = [
            CardFit(
                card=card.name,
                example=card.example,
                usable_bytes=card.usable,
                source=card.source,
                fits=_fits(whatif, found, card.usable, change),
                spare_bytes=None if found.memory is None else card.usable - found.memory,
                settings=found.settings.text(),
            )
            for found in least
            for card in CARDS
        ]
    return Answer(whatif, question, runs, least, cards)


def _fits(whatif: WhatIf, least: Minimum, usable: int, change: Change) -> bool:
    """Whether the trace runs on ``usable`` bytes. Replayed only where sizes above the minimum may fail, too."""
    if least.memory is None or usable < least.memory:
        return False
    return usable >= least.unlimited or fits(whatif, least.settings, usable, change) is not None


def _change(whatif: WhatIf, question: Question, masks: Masks) -> Change:
    device = whatif.timeline.device
    without = [masks(device, query) for query in question.without]
    parts = [(masks(device, query), factor) for query, factor in question.scale]
    sizes = scaled(whatif.trace, parts) if parts else None
    if sizes is not None and not sizes.all():
        without.append(sizes == 0)
    return Change(
        np.logical_or.reduce(without) if without else None,
        sizes,
        " OR ".join(question.without) or None,
        ", ".join(f"{query}:{factor:g}" for query, factor in question.scale) or None,
    )


def start_text(whatif: WhatIf) -> str:
    """How the replay starts; empty where the trace starts with no reserved memory."""
    if whatif.trace.starts_empty:
        return ""
    return sentence("limits", whatif.start)


def limits(whatif: WhatIf) -> list[str]:
    """The limits of this trace's replay, a sentence each."""
    trace, found = whatif.trace, []
    if start := start_text(whatif):
        found.append(start)
    if whatif.lowest_capacity is not None:
        found.append(sentence("limits", "capacity_range"))
    if len(trace.pools) > 1:
        # The second was seen in 2.9 and 2.12 over a driver without a GPU; a snapshot does not name its PyTorch.
        found += [sentence("limits", "pools"), sentence("limits", "pool_retries")]
    requested = trace.timeline.allocations["free_requested_event"].to_numpy()
    completed = trace.timeline.allocations["free_event"].to_numpy()
    if bool((completed > requested + 1)[requested >= 0].any()):
        found.append(sentence("limits", "pending_frees"))
    if trace.timeline.oom_events:
        found.append(sentence("limits", "failures"))
    if (trace.kind == EMPTY_CACHE).any():
        found.append(sentence("limits", "unseen_calls"))
    return found
