"""The answer to "will it fit?" as one small page without scripts: a slider of its values is a row of radio buttons."""

from __future__ import annotations

from markupsafe import Markup
from msgspec import Struct

from snapreport.contracts.fit import FitDevice, FitDocument, FitPrediction, LargestValue
from snapreport.number_format import bytes_text, device_name, upper_first
from snapreport.report.fit_chart import fit_chart
from snapreport.report.fit_text import device_text, ranks_text, recordings_text
from snapreport.report.page import render_plain


class FitPageValue(Struct, frozen=True):
    """A value that can be chosen, and what it needs and where it fits, a sentence each."""

    value: str
    answer: list[str]


class FitPageDevice(Struct, frozen=True):
    """A device: its name, its chart, its answer as text, and the values that the slider has; it begins at ``first``."""

    name: str
    chart: Markup
    text: str
    values: list[FitPageValue]
    first: int


class FitPage(Struct, frozen=True):
    """What the template shows. answers: the largest values, a sentence for each device; ranks: of a job, as text."""

    title: str
    number: str
    answers: list[str]
    recordings: list[str]
    ranks: str
    devices: list[FitPageDevice]


def fit_page(document: FitDocument) -> bytes:
    """The page as UTF-8; the same answer gives the same bytes."""
    devices = [
        FitPageDevice(
            device_name("cuda", device.device) if device.device >= 0 else device_name("host", device.device),
            fit_chart(device, document.name),
            device_text(document, device),
            [_value(row, device, document.name) for row in device.predictions] if len(device.predictions) > 1 else [],
            next((at for at, row in enumerate(device.predictions) if row.confidence == "measured"), 0),
        )
        for device in document.devices
    ]
    ranks = "\n\n".join(ranks_text(document))
    heading = f"{upper_first(document.name)}: what fits"
    answers = [
        _largest(device, document.name, f" of {page.name}" * (len(devices) > 1))
        for device, page in zip(document.devices, devices, strict=True)
        if device.largest
    ]
    page = FitPage(heading, document.name, answers, recordings_text(document), ranks, devices)
    return render_plain("fit.html.j2", page)


def _largest(device: FitDevice, name: str, of: str) -> str:
    """On each memory, up to the first on which all values that were looked at fit."""
    most = next((at for at, found in enumerate(device.largest) if found.is_limit), len(device.largest))
    values = [
        f"{'none' if found.value is None else f'{found.value:g}'}{' or more' * found.is_limit} on "
        f"{found.card or bytes_text(found.memory_bytes)}"
        for found in device.largest[: most + 1]
    ]
    certainty = device.largest[0].confidence
    return f"Largest {name}{of}: {', '.join(values)} ({'recorded' if certainty == 'measured' else certainty})."


def _value(row: FitPrediction, device: FitDevice, name: str) -> FitPageValue:
    needed = f"{bytes_text(row.peak_allocated_bytes)} allocated"
    if row.peak_reserved_bytes is not None:
        needed += f", {bytes_text(row.peak_reserved_bytes)} reserved"
    source = "recorded" if row.confidence == "measured" else row.confidence
    answers: dict[str, list[str]] = {"fits": [], "may fit": [], "does not fit": []}
    for found in device.largest:
        answers[_fits(row, found, device)].append(found.card or bytes_text(found.memory_bytes))
    where = [f"It {fits} on {', '.join(memories)}." for fits, memories in answers.items() if memories]
    return FitPageValue(f"{row.value:g}", [f"{upper_first(name)} {row.value:g}: {needed} ({source}).", *where])


def _fits(row: FitPrediction, found: LargestValue, device: FitDevice) -> str:
    """Of memory that was given the row says it; of a card, that it is no more than the largest value that is sure."""
    if found.card is None:
        return {True: "fits", False: "does not fit", None: "may fit"}[row.fits]
    has_range = found.value is None or found.value < found.high_value or device.workspace_bytes > 0
    least = found.low_value if has_range else found.high_value
    if row.value <= least:
        return "fits"
    return "may fit" if row.value <= found.high_value or found.is_limit else "does not fit"
