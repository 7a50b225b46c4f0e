"""What the options of ``snapreport check`` take: growth, kinds of findings, values with a name, percentages."""

from __future__ import annotations

import re

import click

from snapreport.commands.options import number_list
from snapreport.findings.gate_rules import FAILING_KINDS, Growth
from snapreport.sizes import parse_size

_PERCENT = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%\s*")


def growth(value: str) -> Growth:
    """A share of the baseline or a number of bytes: ``5%``, ``0.5 %``, ``512MiB``."""
    if percent := _PERCENT.fullmatch(value):
        return Growth(share=float(percent[1]) / 100)
    size = parse_size(value)
    # A bare number could be meant as either.
    if size is None or (re.fullmatch(r"[\s0-9.,_]*", value) and size != 0):
        raise click.BadParameter(f"{value!r} is neither a percentage nor a size; try 5% or 512MiB")
    return Growth(size=int(size))


def kinds(value: str) -> tuple[str, ...]:
    """Kinds of findings, separated by commas."""
    found = tuple(dict.fromkeys(part.strip().lower() for part in value.split(",") if part.strip()))
    for kind in found:
        if kind not in FAILING_KINDS:
            raise click.BadParameter(f"{kind!r} is no kind of finding; there are {', '.join(FAILING_KINDS)}")
    if not found:
        raise click.BadParameter(f"no kind of finding given; there are {', '.join(FAILING_KINDS)}")
    return found


def named_numbers(value: str) -> tuple[str, tuple[float, ...]]:
    """Values and what they are: ``batch=4,8``, or ``4,8`` of the batch."""
    name, is_named, values = value.rpartition("=")
    if is_named and not name.strip():
        raise click.BadParameter(f"{value!r} has no name before '='; try batch=8")
    return name.strip() or "batch", number_list(values)


def percentage(value: str) -> float:
    """A percentage as a share: ``10%``."""
    percent = _PERCENT.fullmatch(value)
    if not percent:
        raise click.BadParameter(f"{value!r} is not a percentage; try 10%")
    return float(percent[1]) / 100
