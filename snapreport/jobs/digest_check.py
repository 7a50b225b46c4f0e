"""Validation of a digest's content, value by value: a digest can come from an untrusted source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import numpy as np

from snapreport.contracts.finding import Severity
from snapreport.errors import SnapshotError
from snapreport.reading.fields import INT64, MAX_SIZE, SIZE, clean
from snapreport.sentence import Sentence, from_json

SCHEMA = "snapreport-digest/1"
METRICS = ("allocated", "reserved", "unused")
AXES = ("step", "event", "time")
MOST_POINTS, MOST_ROWS = 512, 1000
_NUMBER = (0, 2**31 - 1)
_SEVERITIES = ("error", "warning", "info")
_MOST_PARTS = 200


@dataclass(frozen=True, eq=False)
class DigestCurve:
    """Int64 arrays of equal length. first, last: the range of each column, ascending (step numbers, event indices, µs).
    values: bytes of each of ``METRICS``, the maximum within each column.
    """

    first: np.ndarray
    last: np.ndarray
    values: dict[str, np.ndarray]


@dataclass(frozen=True)
class DigestStack:
    """A stack at the peak. identity: equal on all ranks; ``function``, ``file``, ``line``: the frame it is named after;
    name: as shown in sentences; callers: the program's outer lines.
    """

    identity: str
    bytes: int
    count: int
    function: str
    file: str
    line: int
    name: str
    category: str
    callers: tuple[str, ...]


@dataclass(frozen=True)
class DigestOom:
    """A failed request: ``tried`` bytes; ``free`` on the device; ``us`` by the host's clock; None if unknown."""

    event: int
    step: int | None
    us: int | None
    tried: int
    free: int | None


@dataclass(frozen=True)
class DigestFinding:
    """As in ``findings/model.py``. ``stack``: function and file of the stack that it concerns."""

    kind: str
    severity: Severity
    rule: str
    title: str
    detail: tuple[str, ...]
    bytes: int
    confidence: str
    stack: str


@dataclass(frozen=True)
class DigestRun:
    """The run that a snapshot is of. id: of the recorded command; launch: of the launcher, equal on all hosts. restart:
    torchrun's count. start_us, end_us: when recording began in this process and when the snapshot was written.
    """

    id: str = ""
    launch: str = ""
    restart: int = 0
    start_us: int | None = None
    end_us: int | None = None
    command: str = ""


@dataclass(frozen=True)
class DigestSoftware:
    """Versions, the device's name, and the commit of the program; empty if not recorded."""

    torch: str = ""
    cuda: str = ""
    device: str = ""
    commit: str = ""


@dataclass(frozen=True, eq=False)
class Digest:
    """A summary of one rank's snapshot. Sizes in bytes, times in µs since the epoch; None if not recorded.

    source: the last three parts of the snapshot's path. rank, world_size, host, reason, step: from the recorder's
    metadata. device: None for a snapshot without devices; all later fields are then empty. outside: bytes of the device
    used by anything but PyTorch's allocator. gaps: evidence that the recording is incomplete. rest: bytes at the peak
    in stacks that are not listed. step_ends: µs at which the first steps ended.
    """

    source: str
    file_bytes: int
    settings: dict[str, str]
    rank: int | None
    world_size: int | None
    host: str
    reason: str
    step: int | None
    device: int | None
    run: DigestRun = DigestRun()
    software: DigestSoftware = DigestSoftware()
    kind: str = "cuda"
    capacity: int | None = None
    outside: int | None = None
    events: int = 0
    allocations: int = 0
    steps: int = 0
    gaps: tuple[str, ...] = ()
    overflowed: bool | None = None
    reconciliation: int = 0
    stackless: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    peak_event: int = -1
    peak_step: int | None = None
    peak_us: int | None = None
    start_allocated: int = 0
    end_allocated: int = 0
    end_reserved: int = 0
    ooms: tuple[DigestOom, ...] = ()
    curves: dict[str, DigestCurve] = field(default_factory=dict)
    step_ends: tuple[int | None, ...] = ()
    categories: tuple[tuple[str, int], ...] = ()
    stacks: tuple[DigestStack, ...] = ()
    rest: int = 0
    findings: tuple[DigestFinding, ...] = ()


def checked(content: Any) -> Digest:
    """The digest in a JSON value. Raises :class:`SnapshotError` that names the place of an invalid value."""
    top = _Reader(content, "digest")
    if top.text("schema", 100) != SCHEMA:
        raise SnapshotError(f"the digest is of schema {top.text('schema', 100)!r}, not {SCHEMA}")
    settings = top.mapping("settings", 32)
    common: dict[str, Any] = {
        "source": top.text("source", 1000),
        "file_bytes": top.integer("file_bytes", SIZE),
        "settings": {_clean(key): settings.text(key, 200) for key in settings.names},
        "rank": top.optional("rank", _NUMBER),
        "world_size": top.optional("world_size", _NUMBER),
        "host": top.text("host", 200),
        "reason": top.text("reason", 20),
        "step": top.optional("step", INT64),
        "run": _run(top),
        "software": _software(top),
    }
    device = top.optional("device", (-1, 65_535))
    if device is None:
        return Digest(**common, device=None)
    trust, peak, end, rest = (top.mapping(name, 16) for name in ("trust", "peak", "end", "rest"))
    curves = top.mapping("curves", 3)
    return Digest(
        **common,
        device=device,
        kind=top.text("kind", 20),
        capacity=top.optional("capacity", SIZE),
        outside=top.optional("outside", SIZE),
        events=top.integer("events", _NUMBER),
        allocations=top.integer("allocations", _NUMBER),
        steps=top.integer("steps", _NUMBER),
        gaps=tuple(trust.texts("gaps", 4, 1000)),
        overflowed=trust.flag("overflowed"),
        reconciliation=trust.integer("reconciliation", (-MAX_SIZE, MAX_SIZE)),
        stackless=trust.integer("stackless", SIZE),
        peak_allocated=peak.integer("allocated", SIZE),
        peak_reserved=peak.integer("reserved", SIZE),
        peak_event=peak.integer("event", (-1, _NUMBER[1])),
        peak_step=peak.optional("step", INT64),
        peak_us=peak.optional("us", INT64),
        start_allocated=top.mapping("start", 16).integer("allocated", SIZE),
        end_allocated=end.integer("allocated", SIZE),
        end_reserved=end.integer("reserved", (-MAX_SIZE, MAX_SIZE)),
        ooms=tuple(_oom(row) for row in top.rows("ooms", 20)),
        curves={axis: _curve(curves.mapping(axis, 5)) for axis in AXES},
        step_ends=tuple(top.optionals("step_ends_us", MOST_POINTS)),
        categories=tuple(_pair(row, f"categories[{i}]") for i, row in enumerate(top.items("categories", 100))),
        stacks=tuple(_stack(row, f"stacks[{i}]") for i, row in enumerate(top.items("stacks", MOST_ROWS))),
        rest=rest.integer("bytes", SIZE),
        findings=tuple(_finding(row) for row in top.rows("findings", 50)),
    )


class _Reader:
    """A JSON object whose members are read by type."""

    def __init__(self, value: Any, place: str) -> None:
        if type(value) is not dict:
            raise SnapshotError(f"{place}: not an object")
        self._value, self._place = value, place

    @property
    def names(self) -> list[str]:
        return list(self._value)

    def get(self, key: str) -> Any:
        if key not in self._value:
            raise SnapshotError(f"{self._place}: no {key!r}")
        return self._value[key]

    def integer(self, key: str, bounds: tuple[int, int]) -> int:
        return _integer(self.get(key), bounds, f"{self._place}: {key!r}")

    def optional(self, key: str, bounds: tuple[int, int]) -> int | None:
        return None if self.get(key) is None else self.integer(key, bounds)

    def flag(self, key: str) -> bool | None:
        value = self.get(key)
        if value is not None and type(value) is not bool:
            raise SnapshotError(f"{self._place}: {key!r} is neither true, false nor null")
        return value

    def text(self, key: str, longest: int) -> str:
        return _text(self.get(key), longest, f"{self._place}: {key!r}")

    def items(self, key: str, most: int) -> list[Any]:
        value = self.get(key)
        if type(value) is not list or len(value) > most:
            raise SnapshotError(f"{self._place}: {key!r} is not a list of at most {most}")
        return value

    def texts(self, key: str, most: int, longest: int) -> list[str]:
        return [_text(value, longest, f"{self._place}: {key}[{i}]") for i, value in enumerate(self.items(key, most))]

    def sentence(self, key: str, longest: int) -> str:
        return _sentence(self.get(key), longest, f"{self._place}: {key!r}")

    def sentences(self, key: str, most: int, longest: int) -> list[str]:
        rows = enumerate(self.items(key, most))
        return [_sentence(value, longest, f"{self._place}: {key}[{i}]") for i, value in rows]

    def integers(self, key: str, most: int) -> list[int]:
        values = self.items(key, most)
        # All at once: checking one by one takes half of the time needed to read a digest.
        if values and (set(map(type, values)) != {int} or min(values) < INT64[0] or max(values) > INT64[1]):
            for i, value in enumerate(values):
                _integer(value, INT64, f"{self._place}: {key}[{i}]")
        return values

    def optionals(self, key: str, most: int) -> list[int | None]:
        rows = enumerate(self.items(key, most))
        return [None if value is None else _integer(value, INT64, f"{self._place}: {key}[{i}]") for i, value in rows]

    def mapping(self, key: str, most: int) -> _Reader:
        inner = _Reader(self.get(key), f"{self._place}.{key}")
        if len(inner._value) > most:
            raise SnapshotError(f"{self._place}: {key!r} has more than {most} members")
        return inner

    def rows(self, key: str, most: int) -> list[_Reader]:
        return [_Reader(value, f"{self._place}.{key}[{i}]") for i, value in enumerate(self.items(key, most))]


def _integer(value: Any, bounds: tuple[int, int], place: str) -> int:
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise SnapshotError(f"{place} is not a whole number between {bounds[0]} and {bounds[1]}")
    return value


def _text(value: Any, longest: int, place: str) -> str:
    if type(value) is not str or len(value) > longest:
        raise SnapshotError(f"{place} is not a text of at most {longest} characters")
    return _clean(value)


def _sentence(value: Any, longest: int, place: str) -> str:
    """A plain text, or a list of the parts that ``sentence.parts_json`` writes."""
    if type(value) is str:
        return _text(value, longest, place)
    try:
        found = from_json(value) if type(value) is list and len(value) <= _MOST_PARTS else None
    except (msgspec.ValidationError, TypeError) as error:
        raise SnapshotError(f"{place}: {error}") from None
    if found is None or len(found) > longest or any(len(part.file) > longest for part in found.parts):
        raise SnapshotError(f"{place} is not a sentence of at most {longest} characters")
    numbers = [number for part in found.parts for number in (part.number, part.line) if number is not None]
    for number in numbers:
        _integer(number, INT64, place)
    return Sentence(
        msgspec.structs.replace(part, text=_clean(part.text), file=_clean(part.file)) for part in found.parts
    )


def _clean(text: str) -> str:
    return clean(text)


def _pair(row: Any, place: str) -> tuple[str, int]:
    if type(row) is not list or len(row) != 2:
        raise SnapshotError(f"{place}: not a pair")
    return _text(row[0], 100, place), _integer(row[1], SIZE, place)


def _run(top: _Reader) -> DigestRun:
    if "run" not in top.names:  # written before runs were distinguished
        return DigestRun()
    row = top.mapping("run", 6)
    return DigestRun(
        row.text("id", 100), row.text("launch", 200), row.integer("restart", _NUMBER), row.optional("start_us", INT64),
        row.optional("end_us", INT64), row.text("command", 300),
    )  # fmt: skip


def _software(top: _Reader) -> DigestSoftware:
    if "software" not in top.names:
        return DigestSoftware()
    row = top.mapping("software", 4)
    return DigestSoftware(*(row.text(name, 100) for name in ("torch", "cuda", "device", "commit")))


def _oom(row: _Reader) -> DigestOom:
    return DigestOom(
        row.integer("event", (-1, _NUMBER[1])),
        row.optional("step", INT64),
        row.optional("us", INT64),
        row.integer("tried", SIZE),
        row.optional("free", SIZE),
    )


def _curve(row: _Reader) -> DigestCurve:
    """The cumulative sums of the differences; every sum must be a size, and columns must ascend."""
    columns = {name: np.array(row.integers(name, MOST_POINTS), np.int64) for name in ("first", "last", *METRICS)}
    if len({len(values) for values in columns.values()}) != 1:
        raise SnapshotError("curves: columns of different lengths")
    for name, values in columns.items():
        # 512 differences of 53 bits add up to less than 2**63: nothing wraps around.
        if len(values) and int(np.abs(values.astype(np.float64)).max()) > 2**53:
            raise SnapshotError(f"curves: {name!r} has a number beyond 2**53")
    first = np.cumsum(columns["first"])
    last = first + columns["last"]
    sums = {metric: np.cumsum(columns[metric]) for metric in METRICS}
    if len(first) and (np.any(np.diff(first) < 0) or np.any(last < first)):
        raise SnapshotError("curves: columns that do not ascend")
    if any(len(column) and (column.min() < 0 or column.max() > MAX_SIZE) for column in sums.values()):
        raise SnapshotError("curves: a value that is no size")
    return DigestCurve(first, last, sums)


def _stack(row: Any, place: str) -> DigestStack:
    if type(row) is not list or len(row) != 9:
        raise SnapshotError(f"{place}: not a list of nine")
    identity = _text(row[0], 16, place)
    if len(identity) != 16 or set(identity) - set("0123456789abcdef"):
        raise SnapshotError(f"{place}: {identity!r} is no identity of a stack")
    if type(row[8]) is not list or len(row[8]) > 32:
        raise SnapshotError(f"{place}: its callers are no list of at most 32")
    size, count, line = (_integer(row[i], SIZE, place) for i in (1, 2, 5))
    function, file, name, category = (_text(row[i], 300, place) for i in (3, 4, 6, 7))
    callers = tuple(_text(caller, 300, place) for caller in row[8])
    return DigestStack(identity, size, count, function, file, min(line, _NUMBER[1]), name, category, callers)


def _finding(row: _Reader) -> DigestFinding:
    severity = row.text("severity", 20)
    if severity not in _SEVERITIES:
        raise SnapshotError(f"findings: {severity!r} is no severity")
    return DigestFinding(
        row.text("kind", 40),
        cast(Severity, severity),
        row.text("rule", 100),
        row.sentence("title", 1000),
        tuple(row.sentences("detail", 4, 1000)),
        row.integer("bytes", SIZE),
        row.text("confidence", 20),
        row.text("stack", 300),
    )
