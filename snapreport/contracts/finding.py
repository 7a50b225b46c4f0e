"""A finding as ``snapreport stats --json`` prints it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from snapreport.contracts.values import Count, Position, SignedBytes

Severity = Literal["error", "warning", "info"]
Confidence = Literal["measured", "inferred", "estimate"]
Kind = Literal["peak", "oom", "fragmentation", "leak", "live_at_end", "churn", "advice"]


class Link(Struct):
    """The state of the page that shows a finding. ``x``: first and last position."""

    view: str | UnsetType = UNSET
    at: Position | UnsetType = UNSET
    x: list[int] | UnsetType = UNSET
    query: str | UnsetType = UNSET


class Finding(Struct, forbid_unknown_fields=True):
    """One statement about a device's memory, with its numbers. ``event``: the position to look at; ``stack``: the stack
    that it is about; null where there is no one. ``basis``: what it is based on, in sentences.
    """

    kind: Kind
    device: int
    severity: Severity
    title: str
    detail: list[str]
    bytes: SignedBytes
    event: Position | None
    stack: Count | None
    evidence: Annotated[
        dict[str, Any], Meta(description="the numbers behind the sentences; keys depend on kind and rule")
    ]
    basis: list[str]
    confidence: Confidence
    link: dict[str, Any]
