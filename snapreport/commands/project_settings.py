"""Options from a project's pyproject.toml: ``[tool.snapreport]`` for every command that has them, and a table for each
command, ``[tool.snapreport.check]``. What is given on the command line comes first.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

from snapreport.errors import SnapshotError

NAME = "pyproject.toml"
COMMON = ("redact", "redact-pattern", "strip-prefix", "rules", "no-inference", "max-memory", "link", "source", "color")
"""Keys that stand in ``[tool.snapreport]`` itself."""


def project_options(command: click.Command, name: str, commands: list[str]) -> dict[str, Any]:
    """Parameter → value for a command called ``name``; {} without a file or without a table. ``commands``: the names
    that tables may have. Raises :class:`SnapshotError` for a key that is no option.
    """
    path = next((folder / NAME for folder in (Path.cwd(), *Path.cwd().parents) if (folder / NAME).is_file()), None)
    if path is None:
        return {}
    table = _table(path)
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    if unknown := sorted(tables.keys() - set(commands)):
        raise SnapshotError(f"{path}: [tool.snapreport.{unknown[0]}]: there is no such command")
    common = {key: value for key, value in table.items() if key not in tables}
    if unknown := sorted(common.keys() - set(COMMON)):
        raise SnapshotError(f"{path}: [tool.snapreport]: {unknown[0]!r} is none of {', '.join(COMMON)}")
    options = {option.removeprefix("--"): param for param in command.params for option in param.opts}
    own = tables.get(name, {})
    if unknown := sorted(own.keys() - options.keys()):
        raise SnapshotError(f"{path}: [tool.snapreport.{name}]: {unknown[0]!r} is no option of it")
    given = {**{key: value for key, value in common.items() if key in options}, **own}
    return {str(options[key].name): _value(options[key], value, path.parent) for key, value in given.items()}


def _table(path: Path) -> dict[str, Any]:
    """``[tool.snapreport]``. A file that is no TOML is somebody else's concern: no option was asked of it."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    tool = content.get("tool")
    table = tool.get("snapreport", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise SnapshotError(f"{path}: [tool.snapreport] is not a table")
    return table


def _value(param: click.Parameter, value: Any, folder: Path) -> Any:
    """Paths are relative to the file that names them."""
    if isinstance(value, list):
        return [_value(param, one, folder) for one in value]
    return str(folder / value) if isinstance(param.type, click.Path) and isinstance(value, str) else value
