"""What ``snapreport stats --brief --json`` prints: the few things that somebody acts on, in at most 8 KB a snapshot."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from snapreport.contracts.finding import Confidence, Severity
from snapreport.contracts.stats import StepMemory
from snapreport.contracts.values import Bytes, Count, Position, SignedBytes


class BriefSaving(Struct, forbid_unknown_fields=True):
    """``peak_bytes``: with the remedy; ``saves_bytes``: less than without. is_lower_bound: the trace ends in a failure,
    after which a run with the remedy may need more.
    """

    peak_bytes: Bytes
    saves_bytes: SignedBytes
    is_lower_bound: bool


class BriefFinding(Struct, forbid_unknown_fields=True):
    """``rule``: of advice. ``where``: file:line of the program to change; ``line``: how it may read then; ``remedy``:
    PyTorch's name for it. ``stack``: a number of ``stacks``, or for ``snapreport export`` and the library.
    """

    kind: str
    severity: Severity
    rule: str | None
    title: str
    detail: str
    where: str | None
    line: str | None
    remedy: str | None
    effort: str | None
    saving: BriefSaving | None
    confidence: Confidence
    event: Position | None
    stack: Count | None


class BriefStack(Struct, forbid_unknown_fields=True):
    """``lines``: the frame that names the stack, then the program's lines that called it; ``bytes``, ``count``: live at
    the peak.
    """

    stack: Count
    bytes: Bytes
    count: Count
    lines: list[str]


class BriefDevice(Struct, forbid_unknown_fields=True):
    """``activity``: what the program does, in a sentence. is_lower_bound: whether events are missing, so that the peaks
    may have been higher; ``missing`` says which. ``categories``: bytes at the peak.
    ``trace_peak_allocated_bytes``: where the trace lost that peak, the one in it, which categories and stacks are of.
    """

    device: int
    kind: str
    activity: str
    is_lower_bound: bool
    missing: str
    events: Count
    allocations: Count
    start_allocated_bytes: Bytes
    peak_allocated_bytes: Bytes
    peak_reserved_bytes: SignedBytes
    end_allocated_bytes: Bytes
    peak_event: Position
    oom_events: list[Count]
    categories: dict[str, Bytes]
    steps: list[StepMemory]
    findings: list[BriefFinding]
    stacks: list[BriefStack]
    trace_peak_allocated_bytes: Bytes | UnsetType = UNSET


class BriefFile(Struct, forbid_unknown_fields=True):
    """``left_out``: how many devices, findings, stacks and steps were left out to stay short."""

    file: str
    headline: list[str]
    devices: list[BriefDevice]
    left_out: dict[str, Count]


class BriefDocument(Struct, tag_field="schema", tag="snapreport-brief/1"):
    """The most important facts of each snapshot."""

    snapshots: list[BriefFile]
