"""Values that several documents have, with their units."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Bytes = Annotated[int, Meta(ge=0, le=2**53, description="bytes")]
SignedBytes = Annotated[int, Meta(description="bytes, less than 0 for a decrease")]
Count = Annotated[int, Meta(ge=0)]
Position = Annotated[int, Meta(ge=-1, description="the state after this event; -1: before the first")]


class Frame(Struct, forbid_unknown_fields=True):
    """A frame of a stack trace."""

    filename: str
    line: int
    name: str


Frames = Annotated[list[Frame], Meta(description="innermost first")]
