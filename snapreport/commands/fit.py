"""The command ``snapreport fit``: peaks at values of a number that were not recorded, and the largest that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from snapreport import progress
from snapreport.commands.inputs import check_inputs, is_job_path, load_all
from snapreport.commands.options import (
    byte_size,
    force_option,
    number_list,
    read_only_options,
    settings_option,
)
from snapreport.output_file import check_output
from snapreport.terminal import echo

if TYPE_CHECKING:
    from snapreport.reading.redaction import Redaction

SLIDER_STEPS = 16


def slider_values(at: tuple[float, ...]) -> tuple[float, ...]:
    """Whole values up to four times the largest recorded one, evenly apart: the chart and the slider have these."""
    most = round(4 * max(at, default=0.0))
    return tuple(float(value) for value in range(most, 0, -max(1, most // SLIDER_STEPS)))


@click.command()
@click.option("--at", metavar="VALUES", type=number_list, default=(), help="The value of each recording, e.g. 4,8.")
@click.option("--to", metavar="VALUES", type=number_list, default=(), help="Values to foretell, e.g. 16,32.")
@click.option("--name", default="batch", help="What the number is, for the text.  [default: batch]")
@click.option("--memory", metavar="SIZE", type=byte_size, help="Memory for the allocator, e.g. 24GiB; default: cards.")
@settings_option
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write the answer as a page with a chart.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON (schema snapreport-fit/1).")
@force_option
@read_only_options
def fit(
    snaps: tuple[str, ...],
    at: tuple[float, ...],
    to: tuple[float, ...],
    name: str,
    memory: int | None,
    settings: tuple[str, ...],
    output: str | None,
    as_json: bool,
    redaction: Redaction | None,
    force: bool,
) -> None:
    """Foretell the memory of a program at another batch size, length or width.

    Takes recordings of one program at two or more values of one number, fits the size of every allocation, and replays
    the trace at other values with PyTorch's allocator: the peak, whether it fits, and the largest value that does.

    Of one recording, --memory gives the cheapest remedies with which it runs there, and --at its batch size the largest
    batch, with a range.

    Folders of a job's ranks, one for each value, give the rank that fails first.
    """
    if output:
        check_inputs([snap for snap in snaps if not is_job_path(snap)])
        check_output(output, snaps, force=force)
        to = to or slider_values(at)
    with progress.shown():
        from snapreport.allocator.settings import AllocatorSettings, parse_settings

        parse_settings(settings, AllocatorSettings())  # malformed settings are refused before any file is read
        from snapreport.contracts import json_text
        from snapreport.forecast.answer import Question, fit_document
        from snapreport.report.fit_text import fit_text

        question = Question(at, to, name, memory, settings)
        if any(is_job_path(snap) for snap in snaps):
            from snapreport import job
            from snapreport.jobs.fit import fit_job

            jobs = [job(snap, redaction=redaction) for snap in snaps]
            document = fit_job(jobs, question, lambda path: load_all([path], redaction=redaction)[0])
        else:
            document = fit_document(load_all(snaps, redaction=redaction), question)
        if output:
            from snapreport.report.build import write_document
            from snapreport.report.fit_page import fit_page

            write_document(output, fit_page(document))
    if as_json or output != "-":
        echo(json_text(document) if as_json else fit_text(document))
