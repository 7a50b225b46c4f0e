"""The content of a digest: a summary of one rank's snapshot, whose types and bounds are checked when it is read.

A digest can come from an untrusted source. Sizes are in bytes, times in µs since the epoch; None if not recorded.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from snapreport.contracts.finding import Confidence, Severity
from snapreport.errors import SnapshotError
from snapreport.reading.fields import MAX_SIZE
from snapreport.sentence import Sentence, from_json, parts_json

METRICS = ("allocated", "reserved", "unused")
"""Bytes allocated, bytes reserved, and bytes reserved but not allocated."""
AXES = ("step", "event", "time")
MOST_POINTS, MOST_ROWS = 512, 1000

_INT32, _INT64 = np.iinfo(np.int32), np.iinfo(np.int64)
Int64 = Annotated[int, Meta(ge=_INT64.min, le=_INT64.max)]
Size = Annotated[int, Meta(ge=0, le=MAX_SIZE)]
SignedSize = Annotated[int, Meta(ge=-MAX_SIZE, le=MAX_SIZE)]
Number = Annotated[int, Meta(ge=0, le=_INT32.max)]
EventNumber = Annotated[int, Meta(ge=-1, le=_INT32.max)]
Word = Annotated[str, Meta(max_length=40)]
Name = Annotated[str, Meta(max_length=300)]
Line = Annotated[str, Meta(max_length=1000)]
MOST_LETTERS, MOST_PARTS = 1000, 200


class DigestCurve:
    """Int64 arrays of equal length. first, last: the range of each column, ascending (step numbers, event indices, µs).
    values: bytes of each of ``METRICS``, the maximum within each column.
    """

    def __init__(self, first: np.ndarray, last: np.ndarray, values: dict[str, np.ndarray]) -> None:
        self.first, self.last, self.values = first, last, values


_Column = Annotated[list[Int64], Meta(max_length=MOST_POINTS)]


class _StoredCurve(Struct):
    """A curve in the file: differences from value to value, which zlib makes smaller than the values themselves;
    ``last``: less ``first``.
    """

    first: _Column
    last: _Column
    allocated: _Column
    reserved: _Column
    unused: _Column


class DigestStack(Struct, frozen=True, array_like=True):
    """A stack. bytes, count: at the peak. identity: equal on all ranks; ``function``, ``file``, ``line``: the frame it
    is named after; name: as shown in sentences; callers: the program's outer lines. most, most_count: bytes and
    allocations at the moment when this stack has most.
    """

    identity: Annotated[str, Meta(pattern="^[0-9a-f]{16}$", max_length=16)]
    bytes: Size
    count: Size
    function: Name
    file: Name
    line: Number
    name: Name
    category: Name
    callers: Annotated[tuple[Name, ...], Meta(max_length=32)]
    most: Size
    most_count: Number


class DigestOom(Struct, frozen=True):
    """A failed request: ``tried`` bytes; ``free`` on the device; ``us`` by the host's clock."""

    event: EventNumber
    step: Int64 | None
    us: Int64 | None
    tried: Size
    free: Size | None


class DigestFinding(Struct, frozen=True):
    """As in ``contracts/finding.py``. ``stack``: function and file of the stack that it concerns."""

    kind: Word
    severity: Severity
    rule: Annotated[str, Meta(max_length=100)]
    title: Sentence
    detail: Annotated[tuple[Sentence, ...], Meta(max_length=4)]
    bytes: Size
    confidence: Confidence
    stack: Name


class DigestRun(Struct, frozen=True):
    """The run that a snapshot is of. id: of the recorded command; launch: of the launcher, equal on all hosts. restart:
    torchrun's count. start_us, end_us: when recording began in this process and when the snapshot was written.
    """

    id: Name = ""
    launch: Name = ""
    restart: Number = 0
    start_us: Int64 | None = None
    end_us: Int64 | None = None
    command: Name = ""


class DigestSoftware(Struct, frozen=True):
    """Versions, the device's name, and the commit of the program; empty if not recorded."""

    torch: Name = ""
    cuda: Name = ""
    device: Name = ""
    commit: Name = ""


class OtherDevice(Struct, frozen=True):
    """A device of the snapshot."""

    device: int
    kind: Word
    events: Number
    peak_allocated: Size
    peak_reserved: Size


class Digest(Struct, frozen=True, eq=False, kw_only=True, tag_field="schema", tag="snapreport-digest/2"):
    """A summary of one rank's snapshot.

    snapreport: the version that wrote it. source: the last three parts of the snapshot's path. rank, world_size, host,
    process, reason, step: from the recorder's metadata. device: None for a snapshot without devices; all later fields
    are then empty. outside: bytes of the device used by anything but PyTorch's allocator. gaps: evidence that the
    recording is incomplete. stackless: bytes at the peak without a stack trace. stacks: those with most at the peak,
    then those with most at another moment. rest: bytes at the peak in stacks that are not listed. scores: bytes of
    the largest matrix of attention scores. step_ends: µs at which the first steps ended. counted_allocated,
    counted_reserved: peaks of PyTorch's own statistics, noted by the recorder, where the trace has lost events.
    leak_unknown: why the recording cannot show whether the rank leaks, "" where it can.
    """

    snapreport: Word
    source: Line
    file_bytes: Size
    settings: Annotated[dict[Name, Name], Meta(max_length=32)]
    rank: Number | None
    world_size: Number | None
    host: Name
    process: Word
    reason: Word
    step: Int64 | None
    device: Annotated[int, Meta(ge=-1, le=65_535)] | None
    run: DigestRun = DigestRun()
    software: DigestSoftware = DigestSoftware()
    kind: Word = "cuda"
    devices: Annotated[tuple[OtherDevice, ...], Meta(max_length=64)] = ()
    capacity: Size | None = None
    outside: Size | None = None
    events: Number = 0
    allocations: Number = 0
    steps: Number = 0
    gaps: Annotated[tuple[Line, ...], Meta(max_length=4)] = ()
    overflowed: bool | None = None
    reconciliation: SignedSize = 0
    stackless: Size = 0
    peak_allocated: Size = 0
    peak_reserved: Size = 0
    counted_allocated: Size | None = None
    counted_reserved: Size | None = None
    peak_event: EventNumber = -1
    peak_step: Int64 | None = None
    peak_us: Int64 | None = None
    start_allocated: Size = 0
    end_allocated: Size = 0
    end_reserved: SignedSize = 0
    ooms: Annotated[tuple[DigestOom, ...], Meta(max_length=20)] = ()
    curves: dict[str, DigestCurve] = {}
    step_ends: Annotated[tuple[Int64 | None, ...], Meta(max_length=MOST_POINTS)] = ()
    categories: Annotated[tuple[tuple[Name, Size], ...], Meta(max_length=100)] = ()
    stacks: Annotated[tuple[DigestStack, ...], Meta(max_length=MOST_ROWS)] = ()
    rest: Size = 0
    scores: Size = 0
    findings: Annotated[tuple[DigestFinding, ...], Meta(max_length=50)] = ()
    leak_unknown: Line = ""

    @property
    def highest_allocated(self) -> int:
        """Bytes: what PyTorch counted, where it is known and the trace may have less."""
        return self.peak_allocated if self.counted_allocated is None else self.counted_allocated

    @property
    def highest_reserved(self) -> int:
        """The same of reserved bytes."""
        return self.peak_reserved if self.counted_reserved is None else self.counted_reserved


def plain_digest(digest: Digest) -> dict[str, Any]:
    """The digest as values that JSON has."""
    content: dict[str, Any] = msgspec.to_builtins(digest, enc_hook=_plain)
    return content


def checked(content: Any) -> Digest:
    """The digest in a JSON value. Raises :class:`SnapshotError` that names the place of an invalid value."""
    try:
        digest: Digest = msgspec.convert(content, Digest, dec_hook=_read)
    except msgspec.ValidationError as error:
        raise SnapshotError(f"invalid digest: {error}") from None
    if digest.device is not None:
        missing = [name for name in Digest.__struct_fields__ if name not in content]
        missing += [f"curves.{axis}" for axis in AXES if axis not in digest.curves]
        if missing:
            raise SnapshotError(f"invalid digest: no {missing[0]!r}")
    return digest


def curves_of(content: Any) -> dict[str, DigestCurve]:
    """The curves of a digest in a JSON value that :func:`checked` has accepted."""
    return {axis: _curve(curve) for axis, curve in content["curves"].items()}


def _plain(value: Any) -> Any:
    return parts_json(value) if isinstance(value, str) else _stored(value)


def _read(kind: type, content: Any) -> Any:
    return _sentence(content) if kind is Sentence else _curve(content)


def _sentence(content: Any) -> Sentence:
    """A sentence from its parts as ``parts_json`` writes them."""
    if type(content) is not list or len(content) > MOST_PARTS:
        raise ValueError(f"not a list of at most {MOST_PARTS} parts")
    try:
        found = from_json(content)
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueError(str(error)) from None
    if len(found) > MOST_LETTERS or any(len(part.file) > MOST_LETTERS for part in found.parts):
        raise ValueError(f"more than {MOST_LETTERS} characters")
    if any(not _INT64.min <= number <= _INT64.max for part in found.parts for number in (part.number or 0, part.line)):
        raise ValueError("a number beyond 64 bits")
    return found


def _stored(curve: DigestCurve) -> dict[str, list[int]]:
    columns = {"first": curve.first, **curve.values}
    differences = {name: np.diff(values, prepend=0).tolist() for name, values in columns.items()}
    return {**differences, "last": (curve.last - curve.first).tolist()}


def _curve(content: Any) -> DigestCurve:
    """The cumulative sums of the differences; every sum must be a size, and columns must ascend."""
    try:
        stored = msgspec.convert(content, _StoredCurve)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None  # the outer conversion adds the place of the curve
    columns = {name: np.array(values, np.int64) for name, values in msgspec.structs.asdict(stored).items()}
    if len({len(values) for values in columns.values()}) != 1:
        raise ValueError("columns of different lengths")
    for name, values in columns.items():
        # 512 differences of 53 bits add up to less than 2**63: nothing wraps around.
        if np.any(np.abs(values.astype(np.float64)) > 2**53):
            raise ValueError(f"{name!r} has a number beyond 2**53")
    first = np.cumsum(columns["first"])
    last = first + columns["last"]
    sums = {metric: np.cumsum(columns[metric]) for metric in METRICS}
    if np.any(np.diff(first) < 0) or np.any(last < first):
        raise ValueError("columns that do not ascend")
    if any(np.any(column < 0) or np.any(column > MAX_SIZE) for column in sums.values()):
        raise ValueError("a value that is no size")
    return DigestCurve(first, last, sums)
