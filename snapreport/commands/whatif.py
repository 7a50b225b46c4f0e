"""The command ``snapreport whatif``: a trace replayed under other settings, on another device, without some
allocations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from snapreport import progress
from snapreport.commands.inputs import load_all
from snapreport.commands.options import byte_size, read_only_options, settings_option
from snapreport.terminal import echo

if TYPE_CHECKING:
    from snapreport.reading.redaction import Redaction

MANY_EVENTS = 200_000
"""Finding the minimum memory takes some 25 replays: from so many events on it is searched only with --cards."""


def scaled_query(value: str) -> tuple[str, float]:
    """``QUERY:FACTOR``, e.g. ``file:attention.py:0.5``."""
    query, _, text = value.rpartition(":")
    try:
        factor = float(text)
    except ValueError:
        factor = -1.0
    if not query.strip() or not 0 < factor <= 1000:
        raise click.BadParameter(f"{value!r} is not QUERY:FACTOR; try file:attention.py:0.5")
    return query, factor


@click.command()
@settings_option
@click.option(
    "--without",
    metavar="QUERY",
    multiple=True,
    help="Leave out the allocations that match, e.g. 'func:attention'.",
)
@click.option(
    "--scale",
    metavar="QUERY:FACTOR",
    multiple=True,
    type=scaled_query,
    help="Change the size of the allocations that match, e.g. 'category:activation:0.5'.",
)
@click.option("--memory", metavar="SIZE", type=byte_size, help="Memory for the allocator, e.g. 24GiB.")
@click.option(
    "--start",
    type=click.Choice(["fresh", "recorded"]),
    default="fresh",
    help="Start a trace whose beginning was not recorded afresh, or from the recorded state.  [default: fresh]",
)
@click.option(
    "--cards/--no-cards",
    default=None,
    help="Search the minimum memory on which the trace runs. Default: for traces of up to 200,000 events.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON (schema snapreport-whatif/1).")
@read_only_options
def whatif(
    snaps: tuple[str, ...],
    settings: tuple[str, ...],
    without: tuple[str, ...],
    scale: tuple[tuple[str, float], ...],
    memory: int | None,
    start: str,
    cards: bool | None,
    as_json: bool,
    redaction: Redaction | None,
) -> None:
    """Replay the same requests and frees, in the same order, with PyTorch's allocator under other settings.

    Without options the usual settings are compared, and the minimum memory is searched on which the trace
    still runs. A trace whose replay under its own settings is not exact is not replayed under others.
    """
    _refuse_malformed(settings, without, scale)
    with progress.shown():
        snapshots = load_all(snaps, redaction=redaction)
        from snapreport.contracts import json_text
        from snapreport.contracts.whatif import WhatIfFile, whatif_document
        from snapreport.report.whatif_text import whatif_text

        files, texts = [], []
        for snapshot in snapshots:
            longest = max((len(snapshot.timeline(device).events) for device in snapshot.devices), default=0)
            answers = snapshot.whatif_answers(
                settings=settings,
                without=without,
                scale=scale,
                memory=memory,
                start=start,
                cards=longest <= MANY_EVENTS if cards is None else cards,
            )
            files.append(WhatIfFile(snapshot.recording.path, [answer.device() for answer in answers]))
            texts.append(whatif_text(snapshot.recording.name, answers))
    if as_json:
        echo(json_text(whatif_document(files)))
    else:
        echo("\n\n".join(texts))


def _refuse_malformed(
    settings: tuple[str, ...], without: tuple[str, ...], scale: tuple[tuple[str, float], ...]
) -> None:
    """Malformed settings and queries are refused before any file is read."""
    from snapreport.allocator.settings import AllocatorSettings, parse_settings
    from snapreport.search.grammar import parse

    parse_settings(settings, AllocatorSettings())
    for query in (*without, *(query for query, _ in scale)):
        parse(query)
