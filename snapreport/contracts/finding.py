"""A finding: one statement about a snapshot's memory, with its numbers, as ``snapreport stats --json`` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from snapreport.contracts import plain
from snapreport.contracts.values import Count, Position, SignedBytes

Severity = Literal["error", "warning", "info"]
Confidence = Literal["measured", "inferred", "estimate"]


class Row(Struct, forbid_unknown_fields=True):
    """Values by name, read as fields or as keys. A field that is UNSET is no key."""

    def __getitem__(self, key: str) -> Any:
        value = self.get(key, UNSET)
        if value is UNSET:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self.get(str(key), UNSET) is not UNSET

    def get(self, key: str, default: Any = None) -> Any:
        value = getattr(self, key) if key in self.__struct_fields__ else UNSET
        return default if value is UNSET else value


class Evidence(Row):
    """The numbers behind a finding's sentences. Sizes are bytes, events and positions are event indices (-1: before the
    first), ``stack`` is a number of the snapshot's stacks (0: none). Each kind of finding has types of its own, beside
    its rule.
    """


class Link(Row):
    """The state of the page that shows a finding: ``view``, and where they help ``at`` (a position), ``x`` (first and
    last position), ``query``.
    """

    view: str | UnsetType = UNSET
    at: Position | UnsetType = UNSET
    x: list[int] | UnsetType = UNSET
    query: str | UnsetType = UNSET


class Finding(Struct, frozen=True, forbid_unknown_fields=True):
    """One statement about a device's memory, with its numbers. ``title``: one sentence; ``detail``: more sentences.
    ``bytes``: what it is about, for the order of findings. ``event``: the position to look at; ``stack``: the stack
    that it is about; null where there is no one. ``basis``: what it is based on, in sentences: events seen, how many
    bytes have frames, what the recording does not say. ``confidence``: "measured" where it follows from the recording,
    "inferred" where a rule was met that has exceptions, "estimate" where something needed for certainty was not
    recorded.
    """

    kind: str
    device: int
    severity: Severity
    title: str
    detail: Sequence[str] = field(default_factory=list)
    bytes: SignedBytes = 0
    event: Position | None = None
    stack: Count | None = None
    evidence: Evidence = field(default_factory=Evidence)
    basis: Sequence[str] = field(default_factory=list)
    confidence: Confidence = "measured"
    link: Link = field(default_factory=Link)

    def to_json(self) -> dict[str, Any]:
        """Plain values; sentences without their parts."""
        document: dict[str, Any] = plain(self)
        return document
