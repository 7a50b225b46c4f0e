"""The answer to "will it fit?" as text: what grows, the peak at each value, the largest value for each memory."""

from __future__ import annotations

from snapreport import terminal
from snapreport.contracts.fit import FitDevice, FitDocument, FitPrediction, LargestValue
from snapreport.number_format import bytes_text, count_text, share_text, upper_first

FAR = 4
"""Times the largest recorded value: of 30 programs at up to 4 times, three took other kernels, 2% to 27% away."""


def fit_text(document: FitDocument) -> str:
    """The whole answer."""
    at = ", ".join(f"{recording.file} at {document.name} {recording.value:g}" for recording in document.recordings)
    head = [f"Recordings: {at}.", f"Allocator settings: {document.settings or 'defaults'}."]
    several = len(document.devices) > 1
    parts = [_device(document, device, several) for device in document.devices]
    return "\n\n".join([terminal.lines(head), *parts])


def _device(document: FitDocument, device: FitDevice, several: bool) -> str:
    name, recordings = document.name, device.aligned
    title = f"Device {device.device}: " if several else ""
    if recordings.reason is not None:
        return terminal.lines([upper_first(f"{title}nothing can be foretold: {recordings.reason}.")])
    parts = [f"{part.category} {_signed(part.bytes)}" for part in device.growth]
    grows = f"each unit of {name} adds {_signed(device.per_unit_bytes)} to the peak: {', '.join(parts)}."
    lines = [upper_first(title + (grows if parts else f"the peak does not depend on {name}."))]
    lines += ["", *terminal.aligned([_header(name, device), *(_row(row) for row in device.predictions)])]
    lines += ["", *_largest(name, device)]
    lines += ["", *_certainty(document, device)]
    return terminal.lines(lines)


def _signed(count: int) -> str:
    return bytes_text(count) if count >= 0 else f"-{bytes_text(-count)}"


def _header(name: str, device: FitDevice) -> tuple[str, ...]:
    fits = ("fits",) if any(row.fits is not None for row in device.predictions) else ()
    return (name, "peak allocated", "peak reserved", "range", "retries", *fits, "")


def _row(row: FitPrediction) -> tuple[str, ...]:
    fits = () if row.fits is None else ("yes" if row.fits else "no",)
    source = "recorded" if row.is_recorded else ""
    head = (f"{row.value:g}", bytes_text(row.peak_allocated_bytes))
    if row.peak_reserved_bytes is None or row.low_bytes is None or row.high_bytes is None:
        return (*head, "-", "-", "-", *fits, source)
    same = row.low_bytes == row.high_bytes
    bar = "" if same else f"{bytes_text(row.low_bytes)} to {bytes_text(row.high_bytes)}"
    return (*head, bytes_text(row.peak_reserved_bytes), bar, count_text(row.retries or 0), *fits, source)


def _largest(name: str, device: FitDevice) -> list[str]:
    rows: list[tuple[str, ...]] = [("memory", f"largest {name}", "peak reserved", "spare", "retries")]
    for found in device.largest:
        memory = bytes_text(found.memory_bytes)
        memory = f"{found.card}, {memory} usable" if found.card else memory
        rows.append((memory, *_largest_row(found)))
    return terminal.aligned(rows)


def _largest_row(found: LargestValue) -> tuple[str, ...]:
    if found.value is None or found.peak_reserved_bytes is None or found.spare_bytes is None:
        return ("none", "", "", "")
    value = f"{found.value:g}{' or more' if found.is_limit else ''}"
    spare = bytes_text(found.spare_bytes)
    return (value, bytes_text(found.peak_reserved_bytes), spare, count_text(found.retries or 0))


def _certainty(document: FitDocument, device: FitDevice) -> list[str]:
    recordings, unmatched = device.aligned, device.aligned.unmatched_bytes
    if recordings.exact:
        line = (
            "The recordings have the same requests and frees, and every size follows the value. The peaks hold as long "
            "as the program takes the same kernels (inferred)."
        )
    elif unmatched:
        share = share_text(unmatched, device.predictions[-1].peak_allocated_bytes)
        line = (
            f"Up to {bytes_text(unmatched)} at once ({share} of the last peak) are in only one recording. Where "
            "that can change a peak, a range is given (inferred)."
        )
    else:
        line = "Some requests of the smaller recordings are not in the largest one (inferred)."
    largest = document.recordings[-1].value
    values = [row.value for row in device.predictions] + [found.value or 0 for found in device.largest]
    if max(values) <= FAR * largest:
        return [line]
    return [line, f"More than {FAR} times {largest:g} is far from what was recorded: record a nearer value, too."]
