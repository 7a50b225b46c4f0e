"""What the options of ``snapreport check`` take: growth, kinds of findings, values with a name, percentages."""

from __future__ import annotations

import re
from typing import Any

import click

from snapreport.commands.options import ValuesType
from snapreport.findings.gate_rules import FAILING_KINDS, Growth
from snapreport.sizes import parse_size

_PERCENT = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%\s*")


class GrowthType(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """A share of the baseline or a number of bytes: ``5%``, ``0.5 %``, ``512MiB``."""

    name = "growth"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Growth:
        if isinstance(value, Growth):
            return value
        percent = _PERCENT.fullmatch(value)
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
        percent = _PERCENT.fullmatch(value)
        if not percent:
            self.fail(f"{value!r} is not a percentage; try 10%", param, ctx)
        return float(percent[1]) / 100
