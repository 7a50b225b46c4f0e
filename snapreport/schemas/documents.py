"""The files that are generated from the contracts: a JSON Schema of each document, and the page's types."""

from __future__ import annotations

import inspect
import json
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
from snapreport.schemas.typescript import typescript

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


def schema_file(document: type[msgspec.Struct]) -> str:
    """``snapreport-check-1.schema.json``."""
    return f"{schema_name(document).replace('/', '-')}.schema.json"


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
    folder = checkout / "snapreport" / "schemas"
    page = checkout / "static" / "src" / "data" / "contracts.ts"
    schemas = {folder / schema_file(DOCUMENTS[name]): json.dumps(schema(name), indent=1) + "\n" for name in DOCUMENTS}
    return {**schemas, page: typescript(RawManifest)}
