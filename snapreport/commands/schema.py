"""The command ``snapreport schema``: the JSON Schema of what a command prints."""

from __future__ import annotations

import json

import click

from snapreport.terminal import echo


@click.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print the JSON Schema (2020-12) of a document: stats, brief, check, diff, whatif, fit, history, job, job-diff.

    Without NAME, list the documents.
    """
    from snapreport.schemas.documents import DOCUMENTS, schema_name
    from snapreport.schemas.documents import schema as schema_of

    commands = {
        schema_name(document).removeprefix("snapreport-").partition("/")[0]: command
        for command, document in DOCUMENTS.items()
    }
    if name is None:
        echo("\n".join(f"{name:9} {command}" for name, command in commands.items()))
        return
    if name not in commands:
        raise click.UsageError(f"no document is called {name!r}; there are {', '.join(commands)}")
    text = json.dumps(schema_of(commands[name]), indent=1)
    echo(text)
