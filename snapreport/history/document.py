"""A history's commits with their noise, and its shifts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from snapreport.allocator.blocks import LARGE_BUFFER, SMALL_BUFFER
from snapreport.contracts.check import Check
from snapreport.contracts.history import CommitMemory, HistoryDocument, PlaceChange, Shift
from snapreport.errors import SnapshotError
from snapreport.history.levels import Level, levels
from snapreport.history.store import Entry
from snapreport.jobs.digest_model import Digest
from snapreport.jobs.place_changes import growth, line_of_growth, place_name
from snapreport.number_format import arrow_text, bytes_text, device_name, plural

ALLOCATED, RESERVED = "allocated", "reserved"
FEWEST = 4
"""Commits below which nothing is known of the noise."""
_UNITS = {ALLOCATED: SMALL_BUFFER // 2, RESERVED: LARGE_BUFFER}
"""Bytes by which peaks differ without a reason: rounding, and one more segment for requests below 10 MiB."""
_PLACES = 3
_MIN_SHIFT_SHARE = 0.05
"""Of a shift: a function that changed by less is not named."""


def history_document(found: Sequence[Entry]) -> HistoryDocument:
    """Raises :class:`SnapshotError` for a history without entries."""
    if not found:
        raise SnapshotError("the history has no commits")
    by_measure = _levels_of(found)
    allocated, reserved = ([_level_at(by_measure[m], i) for i in range(len(found))] for m in (ALLOCATED, RESERVED))
    commits = [
        CommitMemory(
            commit=entry.row.commit,
            label=entry.row.label,
            time_us=entry.row.time_us,
            torch=entry.digest.software.torch,
            peak_allocated_bytes=peak(entry.digest, ALLOCATED),
            allocated_low_bytes=int(own.low),
            allocated_high_bytes=int(own.high),
            peak_reserved_bytes=peak(entry.digest, RESERVED),
            reserved_low_bytes=int(other.low),
            reserved_high_bytes=int(other.high),
            steps=entry.digest.steps,
            out_of_memory=len(entry.digest.ooms),
            categories=dict(entry.digest.categories),
        )
        for entry, own, other in zip(found, allocated, reserved, strict=True)
    ]
    shifts = [
        _shift(found, measure, before, after)
        for measure, levels_found in by_measure.items()
        for before, after in pairwise(levels_found)
        if not before.low <= after.middle <= before.high
    ]
    return HistoryDocument(commits, sorted(shifts, key=lambda shift: (shift.index, shift.measure)))


def peak(digest: Digest, measure: str) -> int:
    return digest.highest_allocated if measure == ALLOCATED else digest.highest_reserved


def _levels_of(found: Sequence[Entry]) -> dict[str, list[Level]]:
    """Levels of each measure. A new version of PyTorch starts one: the same program needs other memory with it. So does
    a shift of allocated for reserved memory, which follows it, but within a wider noise of its own.
    """
    breaks = {n for n in range(1, len(found)) if _torch_change(found, n)}
    by_measure = {}
    for measure in (ALLOCATED, RESERVED):
        by_measure[measure] = levels([peak(entry.digest, measure) for entry in found], _UNITS[measure], breaks)
        breaks |= {level.first for level in by_measure[measure][1:]}
    return by_measure


def _torch_change(found: Sequence[Entry], index: int) -> str:
    """``PyTorch 2.9.1 → 2.15.0`` where a commit has another than the one before; "" where not."""
    return _other_torch(found[index - 1].digest, found[index].digest)


def _other_torch(before: Digest, after: Digest) -> str:
    old, new = (digest.software.torch.partition("+")[0] for digest in (before, after))
    return f"PyTorch {old or 'unknown'} → {new or 'unknown'}" if old != new else ""


def _level_at(found: Sequence[Level], index: int) -> Level:
    return next(level for level in found if index < level.end)


def _shift(found: Sequence[Entry], measure: str, before: Level, after: Level) -> Shift:
    index = after.first
    rises = after.middle > before.middle
    digests = [entry.digest for entry in found[index - 1 : index + 1]]
    changes = growth(*digests)
    much = abs(after.middle - before.middle) * _MIN_SHIFT_SHARE
    changes = [one for one in (changes if rises else changes[::-1]) if (one[1] if rises else -one[1]) > much][:_PLACES]
    return Shift(
        measure,
        index,
        found[index].row.commit,
        int(before.middle),
        int(after.middle),
        after.is_confirmed,
        [PlaceChange(*place, line_of_growth(digests[0], digests[1], place), change) for place, change in changes],
    )


def shift_text(found: Sequence[Entry], shift: Shift) -> str:
    """One sentence, for terminal and page."""
    places = [f"{place_name((one.function, one.file), one.line)} {signed(one.change_bytes)}" for one in shift.places]
    text = f"{found[shift.index].name}: peak {shift.measure} {arrow_text(shift.before_bytes, shift.after_bytes)}"
    other = _torch_change(found, shift.index)
    if other:
        text += f" with {other}"
    if places:
        text += f", {'; '.join(places)}"
    return text if shift.is_confirmed else f"{text} (the last commit; not confirmed by another)"


def signed(value: int) -> str:
    return f"{'+' if value >= 0 else '-'}{bytes_text(abs(value))}"


def check_history(found: Sequence[Entry], digest: Digest, file: str) -> list[Check]:
    """Whether a snapshot's peaks are above the noise of the history's last level; less is fine."""
    checks = []
    device = "none" if digest.device is None else device_name(digest.kind, digest.device)
    by_measure = _levels_of(found)
    for measure in (ALLOCATED, RESERVED):
        value = peak(digest, measure)
        if measure == RESERVED and not any([value, *(peak(entry.digest, measure) for entry in found)]):
            continue  # recorded on the CPU
        if len(found) < FEWEST:
            reason = f"the history has {plural(len(found), 'commit')}: its noise is known from {FEWEST}"
            checks.append(
                Check("history", file, device, False, f"peak {measure} {bytes_text(value)}", value, 0, [], reason)
            )
            continue
        level = by_measure[measure][-1]
        limit = int(level.high)
        passed = value <= limit
        last = found[-1]
        where = "within" if passed else "above"
        message = (
            f"peak {measure} {bytes_text(value)}, {where} the noise of the history up to {last.name}, "
            f"which ends at {bytes_text(limit)}"
        )
        evidence, unknown = [], ""
        if not passed:
            evidence = [
                f"{signed(change)} in {place_name(place, line_of_growth(last.digest, digest, place))}"
                for place, change in growth(last.digest, digest)[:_PLACES]
                if change > (value - level.middle) * _MIN_SHIFT_SHARE
            ]
            other = _other_torch(last.digest, digest)
            if other:
                unknown = (
                    f"{other} since {last.name}, which may be why the {message}. Added, it begins a level of its own"
                )
        checks.append(Check("history", file, device, passed, message, value, limit, evidence, unknown))
    return checks
