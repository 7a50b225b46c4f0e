"""What stays in memory of each rank: the packed digest (some 4 KB), its scalars, and its stacks as two columns.

A digest as objects takes 60 to 150 KB, which is 100 MB for 1,024 ranks; a row takes about 8 KB. Texts that ranks share
are stored once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from snapreport.jobs.digest import read_digest
from snapreport.jobs.digest_format import unpack
from snapreport.jobs.digest_model import Digest, DigestCurve, curves_of

T = TypeVar("T")
RankSource = Literal["recording", "file name", "order"]
FindingKey = tuple[str, str, str]
"""Kind, rule, and the stack for kinds that are separate for each stack: equal for the same finding on all ranks."""


class Packed(Struct, frozen=True, eq=False):
    """A compact digest. data: the file's bytes. digest: without curves, stacks, findings and ends of steps.

    stack_ids, stack_bytes: UInt64 identity and Int64 bytes at the peak of each stack; stack_most, stack_most_count:
    Int64 bytes and allocations where the stack itself has most. findings: key, severity, bytes.
    step_ends: Float64 µs, NaN where unknown. steps, time: the ranges of the curves, in step numbers and in µs.
    """

    data: bytes
    digest: Digest
    stack_ids: np.ndarray
    stack_bytes: np.ndarray
    stack_most: np.ndarray
    stack_most_count: np.ndarray
    findings: tuple[tuple[FindingKey, str, int], ...]
    step_ends: np.ndarray
    steps: tuple[int, int] | None
    time: tuple[int, int] | None

    def read(self) -> Digest:
        """The complete digest, decoded from its bytes."""
        return read_digest(self.data)

    def curves(self) -> dict[str, DigestCurve]:
        """Its curves alone, which takes a third of the time."""
        return curves_of(unpack(self.data))


class Row(Struct, frozen=True, eq=False):
    """A rank. rank: its number. rank_source: where the number comes from. path: of its snapshot or digest."""

    rank: int
    rank_source: RankSource
    path: str
    packed: Packed

    @property
    def digest(self) -> Digest:
        """Its scalars; see :class:`Packed`."""
        return self.packed.digest

    @property
    def first_us(self) -> int | None:
        """Time of the first event by the host's clock."""
        return self.packed.time[0] if self.packed.time else None


def packed(data: bytes) -> Packed:
    """The columns of a digest. Raises :class:`SnapshotError` if it is not a digest."""
    digest = read_digest(data)
    run = digest.run
    scalars = replace(
        digest,
        curves={},
        stacks=(),
        findings=(),
        step_ends=(),
        settings=_shared(digest.settings),
        software=_shared(digest.software),
        run=replace(run, id=sys.intern(run.id), launch=sys.intern(run.launch), command=sys.intern(run.command)),
        host=sys.intern(digest.host),
        kind=sys.intern(digest.kind),
        reason=sys.intern(digest.reason),
        gaps=tuple(map(sys.intern, digest.gaps)),
        categories=tuple((sys.intern(name), size) for name, size in digest.categories),
    )
    return Packed(
        data,
        scalars,
        np.array([int(stack.identity, 16) for stack in digest.stacks], np.uint64),
        np.array([stack.bytes for stack in digest.stacks], np.int64),
        np.array([stack.most for stack in digest.stacks], np.int64),
        np.array([stack.most_count for stack in digest.stacks], np.int64),
        tuple((finding_key(f.kind, f.rule, f.stack), sys.intern(f.severity), f.bytes) for f in digest.findings),
        np.array([np.nan if end is None else float(end) for end in digest.step_ends]),
        _covered(digest.curves, "step"),
        _covered(digest.curves, "time"),
    )


_kept: dict[str, Any] = {}


def _shared(value: T) -> T:
    """The first value equal to ``value``: ranks share settings and versions."""
    if len(_kept) > 10_000:  # a long-lived process that reads many jobs
        _kept.clear()
    kept: T = _kept.setdefault(repr(value), value)
    return kept


def finding_key(kind: str, rule: str, stack: str) -> FindingKey:
    """Leaks and churn of different stacks are different findings; others are one per rule."""
    return sys.intern(kind), sys.intern(rule), sys.intern(stack if kind in ("leak", "churn") else "")


def _covered(curves: Mapping[str, DigestCurve], key: str) -> tuple[int, int] | None:
    curve = curves.get(key)
    return (int(curve.first[0]), int(curve.last[-1])) if curve is not None and len(curve.first) else None
