"""The answer to "will it fit?" as text: what grows, the peak at each value, the largest value for each memory."""

from __future__ import annotations

from snapreport import terminal
from snapreport.contracts.fit import (
    Bend,
    FirstRank,
    FitCheapest,
    FitDevice,
    FitDocument,
    FitPrediction,
    FitRemedy,
    LargestValue,
)
from snapreport.number_format import bytes_text, count_text, share_text, upper_first

RANKS = 8
"""Ranks of a job that are listed."""
LEAST_SHOWN = 0.0005
"""Of an error: smaller ones are 0.0%."""


def fit_text(document: FitDocument) -> str:
    """The whole answer."""
    recordings = recordings_text(document)
    head = [
        f"{'Recordings' if len(recordings) > 1 else 'Recording'}: {', '.join(recordings)}.",
        f"Allocator settings: {document.settings or 'defaults'}.",
    ]
    parts = [device_text(document, device) for device in document.devices]
    return "\n\n".join([*ranks_text(document), terminal.lines(head), *parts])


def recordings_text(document: FitDocument) -> list[str]:
    """Each recording and its value."""
    return [
        recording.file if recording.value is None else f"{recording.file} at {document.name} {recording.value:g}"
        for recording in document.recordings
    ]


def ranks_text(document: FitDocument) -> list[str]:
    """Of a job: the rank that fails first, and the ranks that reserve most at the last value."""
    if not document.ranks:
        return []
    number = len({row.rank for row in document.ranks})
    rows: list[tuple[str, ...]] = [("memory", "fails first", f"runs up to {document.name}")]
    for first in document.first_to_fail:
        memory = bytes_text(first.memory_bytes)
        memory = f"{first.card}, {memory} usable" if first.card else memory
        value = "none" if first.value is None else f"{first.value:g}{' or more' if first.is_limit else ''}"
        rows.append((memory, _ranks(first, number), value))
    foretold = [row for row in document.ranks if row.predictions]
    lines = [f"{number} ranks:", "", *terminal.aligned(rows)]
    if foretold:
        last = foretold[0].predictions[-1].value
        by_need = sorted(
            ((row.predictions[-1], row.rank) for row in foretold),
            key=lambda pair: (-pair[0].peak_allocated_bytes, pair[1]),
        )
        table: list[tuple[str, ...]] = [("rank", f"peak allocated at {document.name} {last:g}", "peak reserved")]
        for row, rank in by_need[:RANKS]:
            reserved = "out of memory" if row.peak_reserved_bytes is None else bytes_text(row.peak_reserved_bytes)
            table.append((str(rank), bytes_text(row.peak_allocated_bytes), reserved))
        lines += ["", *terminal.aligned(table)]
    refused = [row for row in document.ranks if not row.predictions]
    lines += [f"Rank {row.rank}: nothing can be foretold: {row.reason}." for row in refused[:RANKS]]
    shown = document.first_to_fail[0].rank
    return [terminal.lines(lines), *([] if shown is None else [f"Rank {shown}:"])]


def _ranks(first: FirstRank, number: int) -> str:
    if first.rank is None or first.is_limit:
        return "-"
    ranks = sorted([first.rank, *first.tied_ranks])
    if len(ranks) == number > 1:
        return f"all {number} ranks"
    more = f" and {len(ranks) - RANKS} more" if len(ranks) > RANKS else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:RANKS]))}{more}"


def device_text(document: FitDocument, device: FitDevice) -> str:
    """The answer for one device, which is named where there are several."""
    several = len(document.devices) > 1
    title = f"Device {device.device}: " if several else ""
    blocks = [*_cheapest(device.cheapest)] if device.cheapest else []
    if document.recordings[0].value is not None:
        blocks = [*_values(document, device), *([""] if blocks else []), *blocks]
    return terminal.lines([f"{title}{blocks[0] if several else upper_first(blocks[0])}", *blocks[1:]]) if blocks else ""


def _values(document: FitDocument, device: FitDevice) -> list[str]:
    name, recordings = document.name, device.aligned
    if recordings.reason is not None:
        return [f"nothing can be foretold: {recordings.reason}."]
    parts = [f"{part.category} {bytes_text(part.bytes)}" for part in device.growth]
    is_open = len(document.recordings) == 1 and recordings.unmatched_bytes > 0
    adds = f"{'at least ' * is_open}{bytes_text(device.per_unit_bytes)}"
    depends = f"one recording does not show whether the peak depends on {name}"
    lines = [
        f"each unit of {name} adds {adds} to the peak: {', '.join(parts)}."
        if parts
        else f"{depends if is_open else f'the peak does not depend on {name}'}."
    ]
    lines += [_bend_text(bend, name) for bend in device.bends]
    has_memory = any(found.card is None for found in device.largest)
    rows = [_header(name, has_memory), *(_row(row, has_memory) for row in device.predictions)]
    lines += ["", *terminal.aligned(rows), "", *_largest(document, device)]
    return [*lines, "", *_certainty(document, device)]


def _bend_text(bend: Bend, name: str) -> str:
    moves = (
        f": the peak moves from {bend.line_before} to {bend.line_after}" if bend.line_before != bend.line_after else ""
    )
    if moves and None in (bend.line_before, bend.line_after):
        moves = f": the peak moves {'from' if bend.line_before else 'to'} {bend.line_before or bend.line_after}"
    after, before = bytes_text(bend.per_unit_bytes_after), bytes_text(bend.per_unit_bytes_before)
    return f"From {name} {bend.value:g} on each adds {after} instead of {before}{moves}."


def _cheapest(answer: FitCheapest) -> list[str]:
    memory, needed = bytes_text(answer.memory_bytes), bytes_text(answer.needed_bytes)
    end = ["The recording ends where the program ran out of memory: what it needs after that is not known."]
    end = end if answer.ends_at_failure else []
    if answer.fits:
        return [f"As it was recorded it runs on {memory}: it needs {needed} (replayed).", *end]
    if not answer.sets:
        tail = "."
        if answer.least_with and answer.least_bytes is not None and answer.least_bytes < answer.needed_bytes:
            tail = f" as it is, and {bytes_text(answer.least_bytes)} with {_names(answer.least_with)} (replayed)."
        return [f"No remedy found makes it run on {memory}: it needs {needed}{tail}", *end]
    rows: list[tuple[str, ...]] = [("remedies, cheapest first", "effort", "peak reserved", "spare", "retries")]
    for one in answer.sets:
        effort = ", ".join(dict.fromkeys(remedy.effort for remedy in one.remedies))
        spare, retries = bytes_text(one.spare_bytes), count_text(one.retries)
        rows.append((_names(one.remedies), effort, bytes_text(one.peak_reserved_bytes), spare, retries))
    return [
        f"As it was recorded it needs {needed}. It runs on {memory} with any of these (replayed):",
        "",
        *terminal.aligned(rows),
        "",
        "What remedies save is an estimate: leave some memory spare.",
        *end,
    ]


def _names(remedies: list[FitRemedy]) -> str:
    return " + ".join(remedy.do for remedy in remedies)


def _header(name: str, has_memory: bool) -> tuple[str, ...]:
    fits = ("fits",) if has_memory else ()
    return (name, "peak allocated", "peak reserved", "reserved range", "retries", *fits, "")


def _row(row: FitPrediction, has_memory: bool) -> tuple[str, ...]:
    fits = ("maybe" if row.fits is None else "yes" if row.fits else "no",) if has_memory else ()
    source = "recorded" if row.confidence == "measured" else row.confidence
    head = (f"{row.value:g}", bytes_text(row.peak_allocated_bytes))
    if row.peak_reserved_bytes is None or row.low_bytes is None or row.high_bytes is None:
        return (*head, "-", "-", "-", *fits, source)
    same = row.low_bytes == row.high_bytes
    bar = "" if same else f"{bytes_text(row.low_bytes)} to {bytes_text(row.high_bytes)}"
    retries = "-" if row.retries is None else count_text(row.retries)
    return (*head, bytes_text(row.peak_reserved_bytes), bar, retries, *fits, source)


def _largest(document: FitDocument, device: FitDevice) -> list[str]:
    has_range = len(document.recordings) == 1 or device.workspace_bytes > 0
    header = ("memory", f"largest {document.name}", *(("range",) if has_range else ()))
    rows: list[tuple[str, ...]] = [(*header, "peak reserved", "spare", "retries", "")]
    for found in device.largest:
        memory = bytes_text(found.memory_bytes)
        memory = f"{found.card}, {memory} usable" if found.card else memory
        ends = "" if found.low_value == found.high_value else f"{found.low_value} to {found.high_value}"
        limits = (ends,) if has_range else ()
        rows.append((memory, *_largest_row(found, limits)))
    return terminal.aligned(rows)


def _largest_row(found: LargestValue, limits: tuple[str, ...]) -> tuple[str, ...]:
    if found.value is None or found.peak_reserved_bytes is None or found.spare_bytes is None:
        return ("none", *limits, "", "", "", found.confidence)
    value = f"{found.value:g}{' or more' if found.is_limit else ''}"
    spare = bytes_text(found.spare_bytes)
    reserved, retries = bytes_text(found.peak_reserved_bytes), count_text(found.retries or 0)
    return (value, *limits, reserved, spare, retries, found.confidence)


def _certainty(document: FitDocument, device: FitDevice) -> list[str]:
    recordings, unmatched, name = device.aligned, device.aligned.unmatched_bytes, document.name
    workspaces = []
    if device.workspace_bytes:
        workspaces = [
            f"Workspaces of convolutions take up to {bytes_text(device.workspace_bytes)} at once. cuDNN chooses an "
            "algorithm for each shape, and with it the workspace: the ranges hold from half to twice as much."
        ]
    if len(document.recordings) == 1:
        return [
            "One recording: activations and temporaries are taken to grow with the batch, those of all pairs of its "
            "samples with its square, parameters, gradients and optimizer state not (estimate). A second recording at "
            "another value shows what does. Until then the table counts what may grow as growing.",
            *workspaces,
        ]
    if recordings.exact:
        lines = ["The recordings have the same requests and frees, and every size follows the value."]
    elif unmatched:
        share = share_text(unmatched, device.predictions[-1].peak_allocated_bytes)
        lines = [
            f"Up to {bytes_text(unmatched)} at once ({share} of the last peak) are in only one recording. Where "
            "that can change a peak, a range is given."
        ]
    elif device.other_requests:
        lines = ["Some requests of the smaller recordings are not in the largest one."]
    else:
        lines = ["The recordings have the same requests and frees, but not every size follows the value."]
    for other in device.other_requests:
        between = f"Between {name} {other.from_value:g} and {other.to_value:g} other kernels are taken"
        more = f"{count_text(other.more)} more and {count_text(other.fewer)} fewer requests"
        lines.append(f"{between}: {more}, of up to {bytes_text(other.bytes)} at once.")
    lines += workspaces + _left_out(device, name)
    limits = [found.low_value for found in device.largest if found.confidence == "estimate" and found.value]
    limits = [] if workspaces else limits
    if limits or any(row.confidence == "estimate" for row in device.predictions):
        known = f" The recordings answer for up to {max(limits)}." if limits else ""
        lines.append(f"An estimate holds if no other kernel is taken there: record that value, too.{known}")
    return lines


def _left_out(device: FitDevice, name: str) -> list[str]:
    """How well each recording is foretold by the others."""
    errors = []
    for one in device.left_out:
        if one.peak_allocated_bytes is None or one.peak_reserved_bytes is None:
            errors.append(f"{name} {one.value:g} not at all")
            continue
        allocated = one.peak_allocated_bytes / max(1, one.recorded_allocated_bytes) - 1
        reserved = one.peak_reserved_bytes / max(1, one.recorded_reserved_bytes) - 1
        if max(abs(allocated), abs(reserved)) >= LEAST_SHOWN:
            errors.append(f"{name} {one.value:g} {allocated:+.1%} allocated and {reserved:+.1%} reserved")
    if not device.left_out:
        return []
    if not errors:
        return ["Each recording is foretold by the others alone."]
    return [f"Foretold by the others alone: {', '.join(errors)}."]
