"""The evidence of every finding has the keys and types that ``findings/evidence.py`` declares."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from expected import case

from snapreport.findings.evidence import EVIDENCE
from snapreport.findings.gate_rules import FAILING_KINDS
from snapreport.report import finding_cards


def misfits(value: Any, declared: Any, path: str = "evidence") -> list[str]:
    """Where ``value`` differs from the declared type."""
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (types.UnionType, Union):
        found = [misfits(value, one, path) for one in arguments]
        return [] if [] in found else found[0]
    if origin is list:
        if not isinstance(value, list):
            return [f"{path}: {type(value).__name__}, not a list"]
        return [line for i, item in enumerate(value) for line in misfits(item, arguments[0], f"{path}[{i}]")]
    if is_typeddict(declared):
        hints = get_type_hints(declared)
        if not isinstance(value, dict):
            return [f"{path}: {type(value).__name__}, not a dict"]
        lines = [f"{path}.{key}: missing" for key in declared.__required_keys__ - value.keys()]
        lines += [f"{path}.{key}: not declared" for key in value.keys() - hints.keys()]
        return lines + [
            line for key in value.keys() & hints for line in misfits(value[key], hints[key], f"{path}.{key}")
        ]
    expected = type(None) if declared is None else declared
    # A bool is an int in Python, but not in JSON.
    is_right = type(value) is expected or (expected is float and type(value) is int)
    return [] if is_right else [f"{path}: {value!r} is no {expected.__name__}"]


def test_evidence_is_as_declared(snapshot_path: Path) -> None:
    for finding in case(snapshot_path).found:
        tries = [misfits(finding.to_json()["evidence"], declared) for declared in EVIDENCE[finding.kind]]
        assert [] in tries, (finding.title, min(tries, key=len))


def test_every_kind_of_finding_is_known_everywhere() -> None:
    schema = json.loads(resources.files("snapreport").joinpath("schemas/snapreport-stats-2.schema.json").read_text())
    kinds = [found["enum"] for found in enums(schema) if "peak" in found["enum"] and "leak" in found["enum"]]
    assert kinds and all(set(enum) == EVIDENCE.keys() for enum in kinds)
    assert finding_cards._LABEL.keys() == EVIDENCE.keys()
    assert set(FAILING_KINDS) < EVIDENCE.keys()


def enums(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part of a schema that has an ``enum``."""
    if isinstance(schema, dict):
        if isinstance(schema.get("enum"), list):
            yield schema
        for part in schema.values():
            yield from enums(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from enums(part)


def test_what_is_not_declared_is_found() -> None:
    declared = EVIDENCE["leak"][1]
    right = {"bursts": 1, "burst_bytes": 2, "burst_count": 3, "share_of_bytes": 0.5}
    assert misfits(right, declared) == []
    assert misfits({**right, "more": 1}, declared) == ["evidence.more: not declared"]
    assert misfits({**right, "bursts": "1"}, declared) == ["evidence.bursts: '1' is no int"]
    assert misfits({"bursts": 1}, declared) != []
