"""The command ``snapreport stats``: a snapshot's numbers and findings, for people, for machines and for tickets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET
from msgspec.structs import replace

from snapreport.commands.inputs import load_all, report_unlinked
from snapreport.commands.options import (
    colour_option,
    device_option,
    expanded_paths,
    link_options,
    max_memory_option,
    part_options,
    profile_option,
    reading_options,
)
from snapreport.terminal import echo

# Spelled out, as --help imports no columns; tests compare it with snapreport.timeline.allocation_groups.
GROUPINGS = ("stack", "function", "module", "file", "operator", "shape", "category", "step")

if TYPE_CHECKING:
    from snapreport.contracts.stats import FileStats
    from snapreport.report.source_links import SourceLinks
    from snapreport.snapshot import Snapshot


@click.command()
@click.argument("snaps", metavar="SNAP...", nargs=-1, required=True, type=click.Path(), callback=expanded_paths)
@click.option("--json", "as_json", is_flag=True, help="Print all numbers as JSON (schema snapreport-stats/3).")
@click.option("--frames", is_flag=True, help="With --json: the stack traces of all stacks that it names, by number.")
@click.option("--brief", is_flag=True, help="Only what somebody acts on: 2 KB of text, with --json 8 KB a snapshot.")
@click.option(
    "--markdown", is_flag=True, help="Print findings, numbers and the largest stacks as Markdown, for a ticket."
)
@click.option(
    "--query", metavar="TEXT", help="Only the allocations that match, e.g. 'size>1MiB live:peak -file:optim'."
)
@click.option("--by", type=click.Choice(GROUPINGS), help="A table of all allocations by what made them.")
@profile_option
@click.option("--tree", is_flag=True, help="The stack traces of what is live at the peak, as a tree.")
@device_option
@part_options
@colour_option
@link_options
@reading_options(has_links=True)
@max_memory_option
def stats(
    snaps: tuple[str, ...],
    as_json: bool,
    frames: bool,
    brief: bool,
    markdown: bool,
    query: str | None,
    by: str | None,
    profile: str | None,
    tree: bool,
    devices: tuple[int, ...],
    part: Mapping[str, Any],
    link: str,
    strip_prefix: tuple[str, ...],
    reading: dict[str, Any],
) -> None:
    """Print a snapshot's findings and numbers, as text, as JSON or as Markdown."""
    if markdown and (as_json or query is not None):
        raise click.UsageError("--markdown goes with neither --json nor --query")
    if brief and (markdown or query is not None):
        raise click.UsageError("--brief goes with neither --markdown nor --query")
    if (by or tree) and (as_json or brief or markdown):
        raise click.UsageError(f"--{'by' if by else 'tree'} goes with none of --json, --brief and --markdown")
    if by and tree:
        raise click.UsageError("--by and --tree are two ways to show the same memory")
    if frames and (brief or not as_json):
        raise click.UsageError("--frames goes with --json")
    if query is not None:
        from snapreport.search.grammar import parse

        parse(query)  # a bad query is reported before the files are read
    if link and not markdown:
        raise click.UsageError("--link goes with --markdown")
    from snapreport.report.source_links import SourceLinks

    links = SourceLinks(link, strip_prefix)
    snapshots = load_all(snaps, **reading, devices=devices, part=part, profile=profile)
    if by or tree:
        from snapreport.report.group_text import groups_text, tree_text

        text = "\n\n".join(tree_text(one, query) if tree else groups_text(one, str(by), query) for one in snapshots)
    else:
        text = _brief(snapshots, as_json) if brief else _text(snapshots, as_json, frames, markdown, query, links)
    echo(text)
    if link:
        report_unlinked(links, snapshots)


def _brief(snapshots: Sequence[Snapshot], as_json: bool) -> str:
    from snapreport.report.brief import brief, brief_text

    if not as_json:
        return "\n\n".join(brief_text(snapshot) for snapshot in snapshots)
    from snapreport.contracts import json_text
    from snapreport.contracts.brief import BriefDocument

    return json_text(BriefDocument([brief(snapshot) for snapshot in snapshots]), indent=None)


def _text(
    snapshots: Sequence[Snapshot],
    as_json: bool,
    frames: bool,
    markdown: bool,
    query: str | None,
    links: SourceLinks,
) -> str:
    if markdown:
        from snapreport.report.ticket import ticket_markdown

        return "\n".join(ticket_markdown(snapshot, links) for snapshot in snapshots)
    if as_json:
        from snapreport.contracts import json_text
        from snapreport.contracts.stats import StatsDocument
        from snapreport.timeline.stats import with_frames

        files = [_with_findings(snapshot, query) for snapshot in snapshots]
        if frames:
            files = [with_frames(one.recording, file) for one, file in zip(snapshots, files, strict=True)]
        return json_text(StatsDocument(files, UNSET if query is None else query))
    from snapreport.number_format import bytes_text

    if query is not None:
        from snapreport.search.matches import matches_table

        return matches_table(query, [snapshot.stats(query) for snapshot in snapshots], bytes_text)
    from snapreport.report.stats_text import stats_text

    return "\n\n".join(stats_text(snapshot) for snapshot in snapshots)


def _with_findings(snapshot: Snapshot, query: str | None) -> FileStats:
    from snapreport.findings.diagnosis import headline
    from snapreport.findings.run import findings

    file, found = snapshot.file_stats(query), findings(snapshot)
    devices = [
        replace(one, headline=headline(found, one.device), findings=[f for f in found if f.device == one.device])
        for one in file.devices
    ]
    return replace(file, devices=devices)
