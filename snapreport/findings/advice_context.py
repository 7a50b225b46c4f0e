"""The input and the answer of the rules of advice."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from functools import cached_property, wraps
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl
from msgspec import Struct, field

from snapreport.contracts.finding import Confidence, Evidence, Finding, Link, Row
from snapreport.findings.failed_requests import ends_in_failure, with_failed_requests
from snapreport.findings.live import names_of
from snapreport.findings.program_stacks import ProgramStacks
from snapreport.findings.saving import SavingRow
from snapreport.findings.setting_replay import SettingReplays
from snapreport.integers import is_among
from snapreport.number_format import share_text
from snapreport.sentence import bytes_part, sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.activity import GRAPH_DROPPED, INFERENCE, UNKNOWN
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.phases import FORWARD, NONE
from snapreport.vocabulary import CATEGORIES

_TRAINING = (
    r"^(training_step|train_step|train_batch|train_one_epoch|train_epoch|train_loop|_inner_training_loop|train)$"
)
_EVALUATION = r"(?i)^(validation_step|predict_step|eval\w*|validate|test_step|generate|predict)$"

Effort = Literal["one line", "a setting", "a rewrite", "slower training"]
ONE_LINE: Effort = "one line"
SETTING: Effort = "a setting"
REWRITE: Effort = "a rewrite"
SLOWER: Effort = "slower training"
Result = TypeVar("Result")

_KEPT = ("parameter", "optimizer state")
BLOCK = 512
"""Bytes: PyTorch's allocator rounds each request up to whole ones."""
MIN_SHARE = 0.02
"""Of the peak: advice that saves less is not given."""
MIN_BYTES = 16 << 20
"""Nor is advice that saves less than this: a device has thousands of times more."""


class CombinedRow(Row):
    """The replayed peak with the advice of two rules."""

    rules: list[str]
    peak_bytes: int
    peak_event: int
    saves_bytes: int


class AdviceEvidence(Evidence, kw_only=True):
    """``rule`` and its replayed saving. ``priority``: 0 for what a person does first, 2 for estimates. ``where``: the
    line of the program to change, ``/app/model.py:12``, or else ``where_unknown``: why no stack trace has it.
    ``line``: as it should read, where the rule says it. A rule with numbers of its own has a subclass.
    """

    rule: str = ""
    saving: SavingRow | None = None
    together: CombinedRow | None = None
    second_maximum: CombinedRow | None = None
    at_peak_bytes: int | None = None
    taken_at_peak_bytes: int | None = None
    term: str = ""
    url: str = ""
    effort: Effort = "a rewrite"
    priority: int = 0
    where: str | None = None
    where_unknown: str | None = None
    line: str | None = None


class Advice(Struct, frozen=True):
    """The answer of one rule.

    rule: its name. do: the imperative of the title. why: sentences of evidence, the remedy last. term, url: PyTorch's
    own name for the remedy, and where it is described. mask: Bool per allocation, those that change (None: the advice
    lowers what is reserved, or saves time). held: those whose free shows the line to change.
    fraction: of each one's bytes that is saved. functions: see
    ``selection.query_of``.
    spares_peak: the allocations are needed at the peak itself, so that the title must not promise a lower one.
    is_partly: ``fraction`` stands for a part of each one's life, and ``why`` says what limits the saving.
    peak_range: the least and the highest peak, in bytes, where the remedy cannot be replayed exactly.
    link: of the finding that the advice follows from, which is shown instead of the peak. effort: what the remedy
    takes to apply. line: as it should read, where the rule says it. place: of that line, where no stack trace has
    it. comes_first: a mistake whose bytes are known, although no replay shows a lower peak. evidence: the rule's
    own numbers; the others are added.
    """

    rule: str
    do: str
    why: Sequence[str]
    term: str
    url: str
    mask: np.ndarray | None = None
    fraction: float = 1.0
    functions: tuple[str, ...] = ()
    confidence: Confidence = "inferred"
    spares_peak: bool = False
    is_partly: bool = False
    peak_range: tuple[int, int] | None = None
    link: Link | None = None
    effort: Effort = REWRITE
    line: str | None = None
    place: str = ""
    comes_first: bool = False
    held: np.ndarray | None = None
    evidence: AdviceEvidence = field(default_factory=AdviceEvidence)

    @property
    def avoids_failure(self) -> bool:
        return bool(self.evidence.get("avoids_failure"))


class AdviceContext(ProgramStacks):
    """One device at its peak, or at another position: its columns, its stacks, the earlier findings.

    recorded: its timeline. timeline: the same with the requests that failed, whose rows come last. is_traced, is_freed:
    Bool per allocation, whether the trace has its allocation and its free.
    """

    def __init__(self, snapshot: Snapshot, timeline: DeviceTimeline, findings: Sequence[Finding]) -> None:
        super().__init__(snapshot.recording)
        self.snapshot = snapshot
        self.recorded = timeline
        self.timeline = timeline = with_failed_requests(timeline)
        self.event = timeline.peak_event
        self._remembered: dict[Hashable, Any] = {}
        self.findings = findings
        table = timeline.allocations
        self.stack = table["stack"].to_numpy()
        self.free_stack = table["free_stack"].to_numpy()
        self.size = table["size"].to_numpy()
        self.born = table["alloc_event"].to_numpy().astype(np.int64)
        freed = table["free_event"].to_numpy().astype(np.int64)
        self.is_traced, self.is_freed = self.born >= 0, freed >= 0
        # The event of the free; one past the last event where an allocation is alive at the end.
        self.freed = np.where(self.is_freed, freed, len(timeline.events))

    def at(self, position: int) -> AdviceContext:
        """The same device at ``position``. What does not depend on the position is shared: half of all the work."""
        there = copy(self)
        there.event = position
        for name in ("trains", "at_peak"):
            there.__dict__.pop(name, None)
        return there

    def remember(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """What ``compute`` returned the first time, at whatever position: callers must not change it."""
        if key not in self._remembered:
            self._remembered[key] = compute()
        result: Result = self._remembered[key]
        return result

    @cached_property
    def trains(self) -> bool:
        """Whether the program trains: a backward pass runs, or a function for training is cut off in its forward
        pass.
        """
        activity = self.timeline.activity
        if activity.kind != UNKNOWN:
            return activity.trains
        stacks = self.functions(_TRAINING) & ~self.functions(_EVALUATION)
        return bool(stacks[self.stack[self.at_peak]].any())

    @property
    def infers(self) -> bool:
        """Whether forward passes run and no backward pass does."""
        return self.timeline.activity.kind in (INFERENCE, GRAPH_DROPPED)

    @cached_property
    def settings(self) -> SettingReplays:
        return SettingReplays(self.recorded)

    @property
    def is_cut_off(self) -> bool:
        """Whether a request of the program failed: what it needed after that is not recorded."""
        return ends_in_failure(self.recording)

    @property
    def fails_at_peak(self) -> bool:
        """Whether the peak is a request that failed, with what was allocated beside it."""
        return self.timeline.peak_event in self.timeline.oom_events

    @cached_property
    def has_python(self) -> np.ndarray:
        """Bool per allocation: whether its stack trace has Python frames."""
        return np.asarray(~self.without_python[self.stack])

    @cached_property
    def freed_elsewhere(self) -> np.ndarray:
        """Bool per allocation: freed outside of backward passes, as far as the stack of the free tells; a recorder may
        give each free the stack of its allocation.
        """
        return np.asarray(~self.may_be_backward[self.free_stack] & (self.free_stack != self.stack))

    @cached_property
    def lines(self) -> np.ndarray:
        """Int64 per allocation: the first stack with the same Python frames. Operators of one line that C++ frames tell
        apart are one.
        """
        _, first, call = np.unique(self.calls, return_index=True, return_inverse=True)
        return np.asarray(first[call][self.stack])

    @cached_property
    def forward(self) -> np.ndarray:
        """Bool per stack: of a forward pass. Where most of what a backward pass frees comes from the program's own
        functions, with no module around them, these are its forward pass.
        """
        by_frames = self.phases.innermost == FORWARD
        saved = np.bincount(self.stack, self.size * self.category("activation"), len(by_frames))
        elsewhere = (self.phases.innermost == NONE) & (np.bincount(self.calls, saved)[self.calls] > 0)
        elsewhere[0] = False
        return np.asarray(by_frames | elsewhere if saved[elsewhere].sum() > saved[by_frames].sum() else by_frames)

    @cached_property
    def at_peak(self) -> np.ndarray:
        """Bool per allocation: alive at ``event``."""
        return self.alive_at(self.event)

    def alive_at(self, position: int) -> np.ndarray:
        return (self.born <= position) & (self.freed > position)

    def alive_before(self, event: int) -> np.ndarray:
        """Bool per allocation: alive when the request of an event is made."""
        return (self.born < event) & (self.freed > event)

    def traced(self, *names: str) -> np.ndarray:
        """Bool per allocation: of these categories, and allocated within the trace."""
        return self.category(*names) & self.is_traced

    def bytes_at_peak(self, mask: np.ndarray) -> int:
        return int(self.size[mask & self.at_peak].sum())

    def much_at_peak(self, mask: np.ndarray) -> int:
        """Bytes of these allocations at the peak; 0 where they are not worth advice."""
        size = self.bytes_at_peak(mask)
        return size if self.is_much(size) else 0

    def marked(self, *rows: np.ndarray) -> np.ndarray:
        """Bool per allocation: one of ``rows``."""
        found = np.zeros(len(self.size), bool)
        for each in rows:
            found[each] = True
        return found

    def table(self, rows: np.ndarray, **more: np.ndarray) -> pl.DataFrame:
        """``row``, ``stack``, ``size``, ``born``, ``freed`` of allocations, and ``more`` columns."""
        own = {"row": rows, "stack": self.stack[rows], "size": self.size[rows]}
        return pl.DataFrame({**own, "born": self.born[rows], "freed": self.freed[rows], **more})

    def first_line(self, mask: np.ndarray) -> str:
        """The line of the program that made the first of these allocations whose stack trace has one; with C++ frames
        alone, what these say of the first.
        """
        by_program = mask & self.has_python
        row = np.flatnonzero(by_program if by_program.any() else mask)[0]
        return names_of(self.snapshot).line(int(self.stack[row]))

    def as_large(self, sizes: np.ndarray | int) -> np.ndarray:
        """Bool per allocation: of one of these sizes. Of a request that failed the size of its block is recorded."""
        blocks = -(-np.asarray(sizes) // BLOCK) * BLOCK
        failed = np.arange(len(self.size)) >= len(self.recorded.allocations)
        return np.asarray(np.isin(self.size, sizes) | (failed & np.isin(self.size, blocks)))

    def share(self, size: int) -> str:
        """``6.02 GiB (31% of the peak)``."""
        whole = "what was needed at the failure" if self.fails_at_peak else "the peak"
        share = share_text(size, self.timeline.peak_bytes)
        return sentence("{} ({share} of {whole})", bytes_part(size), share=share, whole=whole)

    def is_much(self, size: int) -> bool:
        """Whether so many bytes of the peak are worth advice."""
        return size >= max(MIN_BYTES, MIN_SHARE * self.timeline.peak_bytes)

    @cached_property
    def leaked(self) -> np.ndarray:
        """Bool per allocation: part of a leak that was found, which has its own remedy. A growing cache has none."""
        # Results that a loop collects go with the loop; models and optimizers that it keeps do, too.
        return self._of_leaks(lambda leak: leak.evidence.get("category") in _KEPT)

    @cached_property
    def outlives_loop(self) -> np.ndarray:
        """Bool per allocation: part of a leak, also where the program frees it after the loop that collects it."""
        return self._of_leaks(lambda leak: True)

    def _of_leaks(self, goes_with_loop: Callable[[Finding], bool]) -> np.ndarray:
        """Bool per allocation: of a leak's stacks, and alive at the end of its loop, or else of the trace."""
        found = np.zeros(len(self.size), bool)
        for leak in self.findings:
            if leak.kind == "leak" and leak.severity != "info":
                end = leak.event if goes_with_loop(leak) and leak.event is not None else len(self.timeline.events) - 1
                found |= is_among(self.stack, [row["stack"] for row in leak.evidence.get("stacks", [])]) & (
                    self.is_traced & (self.freed > end)
                )
        return found

    @cached_property
    def _categories(self) -> np.ndarray:
        return self.timeline.allocations["category"].to_physical().to_numpy()

    def category(self, *names: str) -> np.ndarray:
        """Bool per allocation, without what leaks: eight graphs that are never freed are no eight layers."""

        def found() -> np.ndarray:
            of_category: np.ndarray = (
                is_among(self._categories, [CATEGORIES.index(name) for name in names]) & ~self.leaked
            )
            return of_category

        return self.remember(("category", names), found)

    def occurs(self, stacks: np.ndarray) -> bool:
        """Whether this device has an allocation, or a free, of one of the stacks marked."""
        return bool(stacks[self.stack].any() or stacks[self.free_stack].any())

    def is_transformers(self, mask: np.ndarray) -> bool:
        """Whether models of Hugging Face's transformers allocate most of these bytes at the peak: they have options
        for what other programs write themselves.
        """
        theirs = self.frames(r"/transformers/models/")[self.stack]
        return 2 * self.bytes_at_peak(mask & theirs) > self.bytes_at_peak(mask)

    @property
    def churn(self) -> Finding | None:
        return next((finding for finding in self.findings if finding.kind == "churn"), None)


def remembered(compute: Callable[[AdviceContext], Result]) -> Callable[[AdviceContext], Result]:
    """``compute``, run once for a device, at whatever position: callers must not change what it returns."""

    @wraps(compute)
    def known(context: AdviceContext) -> Result:
        return context.remember(compute, lambda: compute(context))

    return known
