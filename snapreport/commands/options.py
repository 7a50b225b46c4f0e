"""Options that several commands have, and the types of their values."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from snapreport import terminal
from snapreport.reading.paths import expand, without_profiles
from snapreport.sizes import parse_size
from snapreport.supervision import set_memory_limit

if TYPE_CHECKING:
    from snapreport.timeline.part import Range

Command = TypeVar("Command", bound=Callable[..., Any])
_MIN_BARE_SIZE = 1 << 20


def byte_size(value: str | int) -> int:
    """A number of bytes: ``800KiB``, ``10MB``, ``1.5 GiB``, ``123456``; see ``snapreport/sizes.py``."""
    size = value if isinstance(value, int) else int(parse_size(value) or 0)
    if not size:
        raise click.BadParameter(f"{value!r} is not a size; try 10MB or 800KiB")
    return size


def memory_limit(value: str | int) -> int:
    """A number of bytes with its unit. A bare number counts as bytes only where it cannot mean anything else."""
    size = byte_size(value)
    if isinstance(value, str) and size < _MIN_BARE_SIZE and not re.search("[a-z]", value, re.IGNORECASE):
        raise click.BadParameter(f"{value!r} has no unit; try {value.strip()}GiB or {value.strip()}MiB")
    return size


def number_list(value: str | tuple[float, ...]) -> tuple[float, ...]:
    """Numbers above 0 with commas between them: ``4,8,16``. A default is a tuple already."""
    if isinstance(value, tuple):
        return value
    try:
        values = tuple(float(part) for part in value.split(","))
    except ValueError:
        values = ()
    if not values or not all(0 < number < 1e12 for number in values):
        raise click.BadParameter(f"{value!r} is not a list of numbers above 0; try 4,8,16")
    return values


def int_range(value: str) -> Range:
    """Numbers from A to the one before B: ``A:B``, with either left out."""
    bounds = re.fullmatch(r"(\d{0,18}):(\d{0,18})", value)
    first, end = (int(bound) if bound else None for bound in bounds.groups()) if bounds else (None, 0)
    if end is not None and end <= (first or 0):
        raise click.BadParameter(f"{value!r} is not a range of numbers from 0 whose end is excluded; try 3:5")
    return first, end


def part_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --events, --last and --steps, as ``part``: keywords of :meth:`snapreport.Snapshot.part`."""

    @functools.wraps(command)
    def with_part(*args: Any, events: Range | None, last: int | None, steps: Range | None, **others: Any) -> Any:
        part = {"events": events, "last": last, "steps": steps}
        chosen = {name: value for name, value in part.items() if value is not None}
        if len(chosen) > 1:
            raise click.UsageError(f"{' and '.join(f'--{name}' for name in chosen)} choose different parts of a trace")
        return command(*args, part=chosen, **others)

    for name, kind, metavar, text in (
        ("--steps", int_range, "A:B", "Only the events of steps A to B-1, by their numbers in the report."),
        ("--last", click.IntRange(1), "N", "Only the last N events of each device."),
        (
            "--events",
            int_range,
            "A:B",
            "Only events A to B-1 of each device. What was alive before counts as older.",
        ),
    ):
        with_part = click.option(name, type=kind, metavar=metavar, help=text)(with_part)
    return with_part


def settings_option(command: Command) -> Command:
    """The option --set, as ``settings``."""
    return click.option(
        "--set",
        "settings",
        metavar="KEY:VALUE",
        multiple=True,
        help="A setting in PYTORCH_CUDA_ALLOC_CONF's syntax, on top of the recorded ones (may be given several times).",
    )(command)


def read_only_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that print what they find: the argument ``snaps``, --redact and --max-memory."""
    snaps = click.argument(
        "snaps", metavar="SNAP...", nargs=-1, required=True, type=click.Path(), callback=expanded_paths
    )
    return snaps(redact_options(has_links=False)(max_memory_option(command)))


def _set_colour(ctx: click.Context, param: click.Parameter, value: str) -> None:
    terminal.colour = value


colour_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    callback=_set_colour,
    expose_value=False,
    help="Colour the words that matter. Default: on a terminal, unless NO_COLOR is set.",
)
device_option = click.option(
    "--device",
    "devices",
    metavar="N",
    type=int,
    multiple=True,
    help="Only this device; -1 is pinned host memory (may be given several times).",
)


def expanded_paths(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of an argument of paths: wildcards that the shell did not expand become the files that match."""
    return tuple(without_profiles(expand(value)))


def link_options(command: Command) -> Command:
    """The options --link and --strip-prefix, as ``link`` and ``strip_prefix``; see ``report/source_links.py``."""
    prefix = click.option(
        "--strip-prefix",
        metavar="DIR",
        multiple=True,
        help="With --link: the directory that {path} is relative to, as stack traces name it (may be given several "
        "times).",
    )
    template = click.option(
        "--link",
        metavar="TEMPLATE",
        default="",
        help="Link the program's own lines to their source, e.g. "
        "'https://github.com/org/repo/blob/{commit}/{path}#L{line}' or 'vscode://file/{path}:{line}'. {commit} and "
        "{remote} come from the recording where it holds them.",
    )
    return template(prefix(command))


def page_options(command: Command) -> Command:
    """The options --max-size and --source, as ``max_size`` and ``source``: what a report leaves out, and quotes."""
    size = click.option(
        "--max-size",
        metavar="SIZE",
        type=byte_size,
        help="Leave out parts until the report is no larger, e.g. 10MB or 800KiB. Totals, the peak and the largest "
        "stacks always stay. The report and standard error say what is missing.",
    )
    source = click.option(
        "--source",
        metavar="DIR",
        multiple=True,
        type=click.Path(),
        help="Quote the source lines that stack traces name, from files under DIR (may be given several times). The "
        "report then contains that text, and says so.",
    )
    return size(source(command))


def reading_options(*, has_links: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options --rules and --no-inference and those of :func:`redact_options`, as ``reading``: the keywords
    ``rules``, ``inference`` and ``redaction`` of ``load_all`` and ``snapreport.job``.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_reading(*args: Any, rules: str | None, no_inference: bool, redaction: Any, **others: Any) -> Any:
            reading = {"rules": rules, "inference": not no_inference, "redaction": redaction}
            return command(*args, reading=reading, **others)

        inference = click.option(
            "--no-inference", is_flag=True, help="Infer no category from phases, sizes and lifetimes."
        )
        rules = click.option(
            "--rules",
            metavar="FILE",
            type=click.Path(),
            help="Category rules of your own (TOML), applied before the built-in ones.",
        )
        return rules(inference(redact_options(has_links=has_links)(with_reading)))

    return decorate


def redact_options(*, has_links: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options --redact and --redact-pattern, as ``redaction`` (``reading/redaction.py``) or None. A bad pattern is
    reported before the files are read.

    ``has_links``: whether the command has :func:`link_options`, whose ``strip_prefix`` then is empty for a redaction,
    which makes names relative itself. Others get the option --strip-prefix here.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_redaction(
            *args: Any, redact: bool, redact_pattern: tuple[str, ...], strip_prefix: tuple[str, ...], **others: Any
        ) -> Any:
            redaction = None
            if redact or redact_pattern:
                from snapreport.reading.redaction import Redaction

                redaction = Redaction(redact_pattern, strip_prefix)
            elif strip_prefix and not has_links:
                raise click.UsageError("--strip-prefix goes with --redact")
            if has_links:
                others["strip_prefix"] = () if redaction else strip_prefix
            return command(*args, redaction=redaction, **others)

        prefix = click.option(
            "--strip-prefix",
            metavar="DIR",
            multiple=True,
            help="With --redact: a directory that the names of files become relative to (may be given several times).",
        )
        patterns = click.option(
            "--redact-pattern",
            metavar="REGEX",
            multiple=True,
            help="Replace every match in any string by *** (may be given several times). Implies --redact.",
        )
        switch = click.option(
            "--redact",
            is_flag=True,
            help="Replace the folders of people by ~, and user names, host names and mail addresses by ***. "
            "--strip-prefix makes the names of files relative to a directory.",
        )
        return switch(patterns(with_redaction if has_links else prefix(with_redaction)))

    return decorate


def _set_memory_limit(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    if value is not None:
        set_memory_limit(value)


max_memory_option = click.option(
    "--max-memory",
    metavar="SIZE",
    type=memory_limit,
    callback=_set_memory_limit,
    expose_value=False,
    help="Exit with code 2 when more memory is needed, e.g. 8GiB. Default: 90% of what is available.",
)
profile_option = click.option(
    "--profile",
    metavar="TRACE",
    type=click.Path(),
    help="A torch.profiler trace of the same run: kernels, operators, and what memory costs in time. Default: the one "
    "that snapreport record --profile wrote beside the snapshot.",
)
force_option = click.option("--force", is_flag=True, help="Replace a file that snapreport did not write.")
