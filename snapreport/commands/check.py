"""The command ``snapreport check``: rules in, an exit code out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from snapreport.commands.check_outputs import Outputs
from snapreport.commands.check_types import growth, kinds, named_numbers, percentage
from snapreport.commands.inputs import check_inputs, is_job_path, load_all
from snapreport.commands.options import (
    colour_option,
    expanded_paths,
    force_option,
    link_options,
    max_memory_option,
    memory_limit,
    number_list,
    reading_options,
)
from snapreport.findings.gate_rules import FAILING_KINDS, Growth, Rules
from snapreport.terminal import echo, lines

if TYPE_CHECKING:
    from snapreport.contracts.check import Check
    from snapreport.snapshot import Snapshot

FAILED, UNKNOWN = 1, 2
RULE_OPTIONS = (
    "--max-peak, --max-reserved, --max-device-used, --fits, --max-growth, --max-reserved-growth, --max-imbalance, "
    "--history or --fail-on"
)
BASELINE_ALONE = "--baseline and --max-growth or --max-reserved-growth are given together"
RUNS_ARE_OF_JOBS = "--run and --baseline-run are for jobs: folders, lists of paths, or digests"
JOB_AS_BASELINE = "--baseline is a job; give a folder, a list of paths or digests to compare with it"


@click.command()
@click.argument("snaps", metavar="SNAP...", nargs=-1, required=True, type=click.Path(), callback=expanded_paths)
@click.option(
    "--max-peak", metavar="SIZE", type=memory_limit, help="The most that may be allocated at any moment, e.g. 30GiB."
)
@click.option("--max-reserved", metavar="SIZE", type=memory_limit, help="The most that may be reserved at any moment.")
@click.option(
    "--max-device-used",
    metavar="SIZE",
    type=memory_limit,
    help="The most that all processes together may use of a device, by the recorder's samples.",
)
@click.option(
    "--fits",
    metavar="SIZE",
    type=memory_limit,
    help="Memory for the allocator on which the run must not run out of memory, replayed, e.g. 23GiB.",
)
@click.option(
    "--at",
    metavar="NAME=VALUES",
    type=named_numbers,
    help="With --fits and --to: the value at which all recordings were made, or another for each, e.g. batch=8.",
)
@click.option(
    "--to",
    metavar="VALUES",
    type=number_list,
    help="With --at: values that have to run, foretold from the recordings, e.g. 16,32.",
)
@click.option(
    "--baseline", metavar="SNAP", type=click.Path(), help="A snapshot to compare peaks with; of a job, another job."
)
@click.option(
    "--max-growth",
    metavar="SIZE|%",
    type=growth,
    help="How much more than the baseline's a peak may be, e.g. 5%.",
)
@click.option(
    "--max-reserved-growth",
    metavar="SIZE|%",
    type=growth,
    help="The same for the most that is reserved.",
)
@click.option(
    "--max-imbalance",
    metavar="%",
    type=percentage,
    help="Of the ranks of a job: how far the highest peak may be above the median, e.g. 10%. Other limits then hold "
    "for the worst rank.",
)
@click.option(
    "--fail-on",
    metavar="KINDS",
    type=kinds,
    help=f"Findings that fail the check: {', '.join(FAILING_KINDS)}; with commas.",
)
@click.option(
    "--summary-md",
    metavar="FILE",
    type=click.Path(),
    help="Write the result as Markdown, e.g. to $GITHUB_STEP_SUMMARY.",
)
@click.option(
    "--history",
    metavar="DIR",
    type=click.Path(),
    help="Fail when a peak is above the noise of the last commits that `snapreport history add` kept in DIR.",
)
@click.option(
    "--run", metavar="ID", help="Of a job's files of several runs, those of this one, as in snapreport job --run."
)
@click.option("--baseline-run", metavar="ID", help="The same for --baseline.")
@colour_option
@link_options
@click.option("--junit", metavar="FILE", type=click.Path(), help="Write the result as JUnit XML.")
@click.option("--chart", is_flag=True, help="With --summary-md: charts of memory, which GitHub and GitLab draw.")
@click.option(
    "--annotations",
    is_flag=True,
    help="Also print GitHub's workflow commands: errors and advice at the lines of the program.",
)
@click.option(
    "--code-quality",
    metavar="FILE",
    type=click.Path(),
    help="Write these errors and advice as a code quality report, which GitLab shows in merge requests.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON (schema snapreport-check/1).")
@reading_options(has_links=True)
@force_option
@max_memory_option
def check(
    snaps: tuple[str, ...],
    max_peak: int | None,
    max_reserved: int | None,
    max_device_used: int | None,
    fits: int | None,
    at: tuple[str, tuple[float, ...]] | None,
    to: tuple[float, ...] | None,
    baseline: str | None,
    max_growth: Growth | None,
    max_reserved_growth: Growth | None,
    max_imbalance: float | None,
    fail_on: tuple[str, ...] | None,
    summary_md: str | None,
    history: str | None,
    run: str | None,
    baseline_run: str | None,
    link: str,
    strip_prefix: tuple[str, ...],
    junit: str | None,
    chart: bool,
    annotations: bool,
    code_quality: str | None,
    as_json: bool,
    reading: dict[str, Any],
    force: bool,
) -> int:
    """Check snapshots against rules: exit code 0 when all hold, 1 when one is broken, 2 when a recording cannot show
    whether one holds, and for bad usage or input.

    Several snapshots are a series for --fail-on leak: one check of how memory grows from file to file. With
    --max-imbalance, and where folders or digests are given, they are the ranks of one job: limits hold for the worst.
    """
    limits = Rules(
        max_peak, max_reserved, max_growth, fail_on or (), None if at else fits, max_reserved_growth, max_device_used
    )
    has_rule = limits or max_imbalance is not None or at or history
    outputs = Outputs(summary_md, junit, code_quality, as_json, annotations)
    # A digest has what a comparison needs: with one as its baseline, a snapshot is a job of one rank.
    is_digest = baseline is not None and baseline.lower().endswith(".digest") and len(snaps) == 1
    is_job = max_imbalance is not None or is_digest or any(is_job_path(snap) for snap in snaps)
    refused = (
        ((baseline is None) != (not limits.growths), BASELINE_ALONE),
        (baseline_run and baseline is None, "--baseline-run goes with --baseline"),
        ((at is None) != (to is None) or (at and fits is None), "--at and --to go together, with --fits"),
        (chart and not summary_md, "--chart goes with --summary-md"),
        (annotations and (as_json or "-" in outputs.files), "--annotations are on standard output, too"),
        (link and not summary_md, "--link goes with --summary-md"),
        (not has_rule, f"no rule given: {RULE_OPTIONS}"),
        (baseline == "-" and "-" in snaps, "standard input can be read once only"),
        (is_job and history, "--history is for snapshots, not for jobs"),
        (is_job and max_device_used, "--max-device-used is for snapshots, not for jobs"),
        (is_job and at, "--at is for snapshots, not for jobs; see snapreport fit"),
        (not is_job and (run or baseline_run), RUNS_ARE_OF_JOBS),
        (not is_job and baseline and is_job_path(baseline), JOB_AS_BASELINE),
    )
    for is_refused, why in refused:
        if is_refused:
            raise click.UsageError(why)
    read = [*snaps, *([baseline] if baseline else [])]
    check_inputs([path for path in read if not path.startswith("@")])
    outputs.refuse_impossible(read, force)
    from snapreport.report.gate_output import overall
    from snapreport.report.source_links import SourceLinks

    links = SourceLinks(link, strip_prefix)
    snapshots: list[Snapshot] = []
    if is_job:
        checks = _check_job(snaps, limits, max_imbalance, baseline, run, baseline_run, reading)
    else:
        compared = load_all([baseline], **reading)[0] if baseline else None
        snapshots = load_all(snaps, **reading)
        checks = _check_snapshots(snapshots, limits, compared, history)
        if at and to and fits is not None:
            from snapreport.forecast.gate import check_values

            checks += check_values(snapshots, at[1], to, fits, at[0])
    outputs.write(checks, snapshots, links, chart)
    status = overall(checks)
    if status == "unknown":
        first = next(result for result in checks if result.unknown)
        reason = f"{first.file}: {first.device}: cannot decide {first.rule}: {first.unknown}"
        echo(lines([f"snapreport: {reason}"]), err=True)
        return UNKNOWN
    return FAILED if status == "failed" else 0


def _check_job(
    snaps: Sequence[str],
    limits: Rules,
    max_imbalance: float | None,
    baseline: str | None,
    run: str | None,
    baseline_run: str | None,
    reading: dict[str, Any],
) -> list[Check]:
    from snapreport import job
    from snapreport.jobs.gate import check_job
    from snapreport.jobs.redacted import redacted_job

    before = job(baseline, run=baseline_run, **reading) if baseline else None
    reduced = job(snaps, run=run, **reading)
    if redaction := reading["redaction"]:
        reduced = redacted_job(reduced, redaction).job
        before = before and redacted_job(before, redaction).job
    return check_job(reduced, limits, max_imbalance, before)


def _check_snapshots(
    snapshots: Sequence[Snapshot], limits: Rules, baseline: Snapshot | None, history: str | None
) -> list[Check]:
    from snapreport.findings.gate import check_all

    checks = check_all(snapshots, limits, baseline)
    if history:
        from snapreport.history.document import check_history
        from snapreport.history.store import entries
        from snapreport.jobs.digest import digest_of

        kept = entries(history)
        for snapshot in snapshots:
            name = snapshot.recording.name
            checks += check_history(kept, digest_of(snapshot, name), name)
    return checks
