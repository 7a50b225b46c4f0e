"""The command ``snapreport check``: rules in, an exit code out."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from snapreport.commands.shared import (
    LimitType,
    ValuesType,
    category_options,
    check_inputs,
    colour_option,
    expanded_paths,
    force_option,
    is_job_path,
    link_options,
    load_all,
    max_memory_option,
    pipe_safe,
    redact_options,
    redaction_of,
    report_unlinked,
)
from snapreport.findings.gate_rules import FAILING_KINDS, Growth, Rules
from snapreport.output_file import cannot_write, check_output, write_file
from snapreport.sizes import parse_size
from snapreport.terminal import echo, lines

if TYPE_CHECKING:
    from snapreport.contracts.check import Check
    from snapreport.report.source_links import SourceLinks
    from snapreport.snapshot import Snapshot

FAILED, UNKNOWN = 1, 2
RULE_OPTIONS = (
    "--max-peak, --max-reserved, --max-device-used, --fits, --max-growth, --max-reserved-growth, --max-imbalance, "
    "--history or --fail-on"
)
BASELINE_ALONE = "--baseline and --max-growth or --max-reserved-growth are given together"
RUNS_ARE_OF_JOBS = "--run and --baseline-run are for jobs: folders, lists of paths, or digests"
JOB_AS_BASELINE = "--baseline is a job; give a folder, a list of paths or digests to compare with it"


class GrowthType(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """A share of the baseline or a number of bytes: ``5%``, ``0.5 %``, ``512MiB``."""

    name = "growth"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Growth:
        if isinstance(value, Growth):
            return value
        percent = re.fullmatch(r"\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%\s*", value)
        if percent:
            return Growth(share=float(percent[1]) / 100)
        size = parse_size(value)
        # A bare number could be meant as either.
        if size is None or (re.fullmatch(r"[\s0-9.,_]*", value) and size != 0):
            self.fail(f"{value!r} is neither a percentage nor a size; try 5% or 512MiB", param, ctx)
        return Growth(size=int(size))


class KindsType(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """Kinds of findings, separated by commas."""

    name = "kinds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        kinds = tuple(dict.fromkeys(part.strip().lower() for part in value.split(",") if part.strip()))
        for kind in kinds:
            if kind not in FAILING_KINDS:
                self.fail(f"{kind!r} is no kind of finding; there are {', '.join(FAILING_KINDS)}", param, ctx)
        if not kinds:
            self.fail(f"no kind of finding given; there are {', '.join(FAILING_KINDS)}", param, ctx)
        return kinds


class NamedValuesType(ValuesType):
    """Values and what they are: ``batch=4,8``, or ``4,8`` of the batch."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        name, is_named, values = value.rpartition("=")
        if is_named and not name.strip():
            self.fail(f"{value!r} has no name before '='; try batch=8", param, ctx)
        return name.strip() or "batch", super().convert(values, param, ctx)


class PercentType(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """A percentage as a share: ``10%``."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        percent = re.fullmatch(r"\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%\s*", value)
        if not percent:
            self.fail(f"{value!r} is not a percentage; try 10%", param, ctx)
        return float(percent[1]) / 100


@click.command()
@click.argument("snaps", metavar="SNAP...", nargs=-1, required=True, type=click.Path(), callback=expanded_paths)
@click.option(
    "--max-peak", metavar="SIZE", type=LimitType(), help="The most that may be allocated at any moment, e.g. 30GiB."
)
@click.option("--max-reserved", metavar="SIZE", type=LimitType(), help="The most that may be reserved at any moment.")
@click.option(
    "--max-device-used",
    metavar="SIZE",
    type=LimitType(),
    help="The most that all processes together may use of a device, by the recorder's samples.",
)
@click.option(
    "--fits",
    metavar="SIZE",
    type=LimitType(),
    help="Memory for the allocator on which the run must not run out of memory, replayed, e.g. 23GiB.",
)
@click.option(
    "--at",
    metavar="NAME=VALUES",
    type=NamedValuesType(),
    help="With --fits and --to: the value at which all recordings were made, or another for each, e.g. batch=8.",
)
@click.option(
    "--to",
    metavar="VALUES",
    type=ValuesType(),
    help="With --at: values that have to run, foretold from the recordings, e.g. 16,32.",
)
@click.option(
    "--baseline", metavar="SNAP", type=click.Path(), help="A snapshot to compare peaks with; of a job, another job."
)
@click.option(
    "--max-growth",
    metavar="SIZE|%",
    type=GrowthType(),
    help="How much more than the baseline's a peak may be, e.g. 5%.",
)
@click.option(
    "--max-reserved-growth",
    metavar="SIZE|%",
    type=GrowthType(),
    help="The same for the most that is reserved.",
)
@click.option(
    "--max-imbalance",
    metavar="%",
    type=PercentType(),
    help="Of the ranks of a job: how far the highest peak may be above the median, e.g. 10%. Other limits then hold "
    "for the worst rank.",
)
@click.option(
    "--fail-on",
    metavar="KINDS",
    type=KindsType(),
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
@category_options
@redact_options
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
    rules: str | None,
    no_inference: bool,
    redact: bool,
    redact_pattern: tuple[str, ...],
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

    redaction = redaction_of(redact, redact_pattern, strip_prefix)
    links = SourceLinks(link, () if redaction else strip_prefix)
    options: dict[str, Any] = {"rules": rules, "inference": not no_inference, "redaction": redaction}
    snapshots: list[Snapshot] = []
    if is_job:
        checks = _check_job(snaps, limits, max_imbalance, baseline, run, baseline_run, options)
    else:
        compared = load_all([baseline], **options)[0] if baseline else None
        snapshots = load_all(snaps, **options)
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
    options: dict[str, Any],
) -> list[Check]:
    from snapreport import job
    from snapreport.jobs.gate import check_job
    from snapreport.jobs.redacted import redacted_job

    before = job(baseline, run=baseline_run, **options) if baseline else None
    reduced = job(snaps, run=run, **options)
    redaction = options["redaction"]
    if redaction:
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
            path = snapshot.recording.path
            checks += check_history(kept, digest_of(snapshot, path), path)
    return checks


@dataclass(frozen=True)
class Outputs:
    """Where the result goes: paths, "-" for standard output, and what is printed."""

    summary_md: str | None
    junit: str | None
    code_quality: str | None
    as_json: bool
    annotations: bool

    @property
    def files(self) -> list[str]:
        return [path for path in (self.summary_md, self.junit, self.code_quality) if path]

    def refuse_impossible(self, read: Sequence[str], force: bool) -> None:
        """Refuse, before the work, outputs that cannot be written or would overwrite a snapshot or each other."""
        if [*self.files, *["-"] * self.as_json].count("-") > 1:
            raise click.UsageError("standard output can be written once only")
        places = [os.path.abspath(path) for path in self.files]
        same = (path for path, place in zip(self.files, places, strict=True) if places.count(place) > 1)
        if twice := next(same, None):
            raise click.UsageError(f"two outputs are the same file: {twice}")
        for path in self.files:
            check_output(path, read, "the result", force=force or _is_job_summary(path))

    def write(self, checks: Sequence[Check], snapshots: Sequence[Snapshot], links: SourceLinks, chart: bool) -> None:
        """Write files first: a reader that closes the pipe must not prevent the job's summary."""
        from snapreport.contracts import json_text
        from snapreport.report import gate_output, review_output

        if self.summary_md:
            charts = review_output.memory_charts(snapshots) if chart else ""
            linked = links.of_all([s.recording for s in snapshots])
            _write(self.summary_md, gate_output.check_markdown(checks, linked, charts))
            if links.template:
                report_unlinked(links, snapshots)
        if self.junit:
            _write(self.junit, gate_output.check_junit(checks))
        if self.code_quality:
            _write(self.code_quality, review_output.code_quality(checks, snapshots, Path.cwd()))
        if "-" not in self.files:
            document = gate_output.check_document(checks)
            text = json_text(document) if self.as_json else gate_output.check_text(checks)
            pipe_safe(lambda: echo(text))
        if self.annotations:
            commands = review_output.workflow_commands(checks, snapshots, Path.cwd())
            pipe_safe(lambda: echo(lines(commands)))


def _is_job_summary(path: str) -> bool:
    """Whether ``path`` is the page that GitHub shows of a step, to which every command of the step adds."""
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    return bool(page) and os.path.realpath(path) == os.path.realpath(str(page))


def _write(path: str, text: str) -> None:
    content = text.encode("utf-8", "backslashreplace")
    if path == "-":
        pipe_safe(lambda: sys.stdout.buffer.write(content))
        return
    try:
        before = Path(path).read_bytes() if _is_job_summary(path) and Path(path).is_file() else b""
    except OSError as error:
        raise cannot_write(path, "the result", error) from None
    write_file(path, before + content, "the result")
