"""The answer to "will it fit?" as one small page without scripts."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from snapreport.contracts.fit import FitDocument
from snapreport.number_format import device_name, upper_first
from snapreport.report.fit_chart import fit_chart
from snapreport.report.fit_text import device_text, ranks_text
from snapreport.report.page import render_plain


@dataclass(frozen=True)
class FitPageDevice:
    """A device: its name, its chart, and its answer as text."""

    name: str
    chart: Markup
    text: str


@dataclass(frozen=True)
class FitPage:
    """What the template shows. ranks: of a job, as text."""

    title: str
    recordings: list[str]
    ranks: str
    devices: list[FitPageDevice]


def fit_page(document: FitDocument, title: str | None = None) -> bytes:
    """The page as UTF-8; the same answer gives the same bytes."""
    recordings = [
        recording.file if recording.value is None else f"{recording.file} at {document.name} {recording.value:g}"
        for recording in document.recordings
    ]
    devices = [
        FitPageDevice(
            device_name("cuda", device.device) if device.device >= 0 else device_name("host", device.device),
            fit_chart(device, document.name),
            device_text(document, device),
        )
        for device in document.devices
    ]
    heading = title or f"{upper_first(document.name)}: what fits"
    return render_plain("fit.html.j2", FitPage(heading, recordings, "\n\n".join(ranks_text(document)), devices))
