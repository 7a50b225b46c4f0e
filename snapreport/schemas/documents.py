"""What is generated from the contracts: a JSON Schema of each document, the list of all keys, and the page's types."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import msgspec

from snapreport.contracts.brief import BriefDocument
from snapreport.contracts.check import CheckDocument
from snapreport.contracts.diff import DiffDocument
from snapreport.contracts.fit import FitDocument
from snapreport.contracts.history import HistoryDocument
from snapreport.contracts.job import JobDiffDocument, JobDocument
from snapreport.contracts.manifest import RawManifest
from snapreport.contracts.stats import StatsDocument
from snapreport.contracts.whatif import WhatIfDocument
from snapreport.findings.run import KINDS
from snapreport.schemas.typescript import signatures, typescript

DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "stats --json": StatsDocument,
    "stats --brief --json": BriefDocument,
    "check --json": CheckDocument,
    "diff --json": DiffDocument,
    "diff --json of two jobs": JobDiffDocument,
    "whatif --json": WhatIfDocument,
    "fit --json": FitDocument,
    "history --json": HistoryDocument,
    "job --json": JobDocument,
}
"""Command → the document that it prints."""


def schema_name(document: type[msgspec.Struct]) -> str:
    """``snapreport-check/1``: the value of its key ``schema``."""
    return str(document.__struct_config__.tag)


def schema(command: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document that ``command`` prints."""
    evidence = [one for kind in KINDS for one in kind.evidence] if DOCUMENTS[command] is StatsDocument else []
    (root, *_), parts = msgspec.json.schema_components([DOCUMENTS[command], *evidence], ref_template="#/$defs/{name}")
    if evidence:
        _declare_kinds(parts)
    for node in parts.values():
        _as_written(node)
    top = parts.pop(root["$ref"].removeprefix("#/$defs/"))
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "title": f"snapreport {command}"}
    return {**head, "$defs": parts} if parts else head


def _declare_kinds(parts: dict[str, Any]) -> None:
    """Add what the contract of a finding leaves to the kinds: their names, and each one's evidence. Where a type of
    evidence has subclasses, the numbers that only some rules have are optional keys of it.
    """
    refs = []
    for kind in KINDS:
        for one in kind.evidence:
            base = next(other for other in kind.evidence if issubclass(one, other))
            if base is one:
                refs.append({"$ref": f"#/$defs/{one.__name__}"})
            else:
                more = parts.pop(one.__name__)["properties"]
                parts[base.__name__]["properties"] = {**parts[base.__name__]["properties"], **more}
    del parts["Evidence"]
    properties = parts["Finding"]["properties"]
    properties["kind"] = {"enum": sorted(kind.name for kind in KINDS)}
    properties["evidence"] = {"anyOf": refs, "description": "depends on the kind"}
    parts["Finding"]["required"] = list(properties)


def _as_written(node: dict[str, Any]) -> None:
    """A key with a default value is required, since it is always written; one whose default is UNSET has none here."""
    properties = node.get("properties", {})
    required = {*node.get("required", []), *(key for key, value in properties.items() if "default" in value)}
    for value in properties.values():
        value.pop("default", None)
    node["required"] = [key for key in properties if key in required]
    if "description" in node:
        node["description"] = plain_text(node["description"])


def plain_text(docstring: str) -> str:
    """A docstring's paragraphs, each on one line."""
    paragraphs = inspect.cleandoc(docstring).replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def generated(checkout: Path) -> dict[Path, str]:
    """File of ``checkout`` → its content."""
    return {
        checkout / "static" / "src" / "data" / "contracts.ts": typescript(RawManifest),
        checkout / "docs" / "json.md": keys_page(),
    }


def keys_page() -> str:
    """All keys of all documents on one page of Markdown, where a review sees what a change breaks."""
    rows = [
        f"| `{command}` | `{schema_name(document)}` | `{document.__name__}` |"
        for command, document in DOCUMENTS.items()
    ]
    evidence = [one for kind in KINDS for one in kind.evidence]
    lines = signatures(*DOCUMENTS.values(), *evidence)
    kinds = [f"| `{kind.name}` | {', '.join(f'`{one.__name__}`' for one in kind.evidence)} |" for kind in KINDS]
    return PAGE.format(rows="\n".join(rows), kinds="\n".join(kinds), objects="\n".join(lines))


PAGE = """\
# JSON

<!-- Generated from snapreport/contracts: `python -m snapreport.schemas` writes this page again. -->

The commands below print JSON that keeps its keys: the number in `schema` rises when a key is removed or changes its
meaning, not when one is added. `snapreport schema stats` prints the JSON Schema (2020-12) with a description of every
key. Sizes are bytes; `name?` is a key that may be missing.

| command | `schema` | object |
| --- | --- | --- |
{rows}

A finding's `evidence` depends on its `kind`:

| kind | evidence |
| --- | --- |
{kinds}

```text
{objects}
```
"""
