"""The commands ``snapreport mcp`` and ``snapreport skill``: snapreport for agents."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click

from snapreport.commands.options import force_option
from snapreport.errors import SnapshotError
from snapreport.output_file import cannot_write, write_file
from snapreport.terminal import echo, lines

SKILLS = ".agents/skills"


@click.command()
def mcp() -> None:
    """Serve snapshots to agents by the Model Context Protocol, on standard input and output.

    Tools: overview, findings, query, stack, whatif, fit, diff. Every answer has at most 8,000 characters.
    """
    try:
        from snapreport.agents.server import server
    except ImportError:
        raise SnapshotError("the command mcp needs the package mcp: pip install 'snapreport[mcp]'") from None
    server().run()


@click.command()
@click.option(
    "--install",
    "folder",
    metavar="[DIR]",
    type=click.Path(),
    is_flag=False,
    flag_value=SKILLS,
    help=f"Write it to DIR/snapreport/SKILL.md; without DIR to {SKILLS} here.",
)
@force_option
def skill(folder: str | None, force: bool) -> None:
    """Print the skill that tells an agent how to use snapreport, or install it."""
    text = (resources.files("snapreport") / "agents" / "SKILL.md").read_text("utf-8")
    if folder is None:
        echo(text.rstrip())
        return
    path = Path(folder) / "snapreport" / "SKILL.md"
    try:
        if path.exists() and not force and path.read_text("utf-8") != text:
            raise SnapshotError(f"{path}: another skill is there; --force replaces it")
        path.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise cannot_write(path, "the skill", error) from None
    write_file(path, text.encode(), "the skill")
    echo(lines([f"{path}: written"]), err=True)
