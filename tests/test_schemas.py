"""What the commands print as JSON conforms to the JSON Schemas that `snapreport schema` prints."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import jsonschema
import pytest
from cli import in_process, on_loaded
from generator import write_job

from snapreport.schemas.documents import DOCUMENTS, generated, schema_name

NAMES = [schema_name(document).removeprefix("snapreport-").partition("/")[0] for document in DOCUMENTS.values()]


@functools.cache
def schema(name: str) -> dict[str, Any]:
    document: dict[str, Any] = in_process("schema", name).json
    return document


def test_documents_are_listed() -> None:
    assert [line.split()[0] for line in in_process("schema").out.splitlines()] == NAMES
    assert in_process("schema", "stat").code == 2


def test_generated_files_are_fresh() -> None:
    checkout = Path(__file__).resolve().parents[1]  # the package may be an installed one
    stale = [path.name for path, content in generated(checkout).items() if path.read_text("utf-8") != content]
    assert not stale, "python -m snapreport.schemas writes these again"


def valid(name: str, document: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(schema(name)).validate(document)


def objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield node
        for value in node.values():
            yield from objects(value)
    elif isinstance(node, list):
        for value in node:
            yield from objects(value)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_one(name: str) -> None:
    document = schema(name)
    jsonschema.Draft202012Validator.check_schema(document)
    assert name in str(document["properties"]["schema"])
    for node in objects(document):
        assert set(node.get("required", [])) <= set(node.get("properties", {})), node


def printed(*arguments: str | Path, codes: tuple[int, ...] = (0,), is_job: bool = False) -> dict[str, Any]:
    result = (in_process if is_job else on_loaded)(*arguments)
    assert result.code in codes, result.err
    document: dict[str, Any] = result.json
    return document


# At least one of every kind of document: no device, several, without stacks, damaged, with an error, from strangers.
SOME = ["small", "oom", "multi-gpu", "pools", "no-stacks", "truncated", "leak", "expandable"]
SOME += [
    name
    for name in corpus.real_names()
    if name.startswith(("lightning", "pools_", "tiny", "trimmed", "attention", "megatron", "private"))
]


@pytest.fixture(params=SOME)
def path(request: pytest.FixtureRequest) -> Path:
    return corpus.path_of(request.param)


def test_stats(path: Path) -> None:
    valid("stats", printed("stats", path, "--json", "--frames"))
    valid("stats", printed("stats", path, "--json", "--query", "size>1MiB"))


def test_check(path: Path) -> None:
    rules = ["--max-peak", "1GiB", "--fail-on", "oom,leak,fragmentation,churn"]
    valid("check", printed("check", path, *rules, "--json", codes=(0, 1, 2)))


def test_whatif(path: Path) -> None:
    valid("whatif", printed("whatif", path, "--set", "expandable_segments:True", "--json"))


def test_diff(path: Path) -> None:
    valid("diff", printed("diff", path, path, "--json"))


@pytest.mark.parametrize("name", ["small", "multi-gpu", "no-stacks"])
def test_diff_of_a_series(name: str) -> None:
    path = corpus.path_of(name)
    valid("diff", printed("diff", path, path, path, "--json"))


@pytest.mark.parametrize("oom", [None, 1])
def test_job(oom: int | None, tmp_path: Path) -> None:
    write_job(tmp_path, ranks=3, steps=2, oom=oom)
    valid("job", printed("job", tmp_path, "--json", "--jobs", "1", is_job=True))


def test_diff_of_jobs(tmp_path: Path) -> None:
    write_job(tmp_path / "a", ranks=3, steps=2, straggler=1)
    write_job(tmp_path / "b", ranks=2, steps=2, hidden=512)
    valid("job-diff", printed("diff", tmp_path / "a", tmp_path / "b", "--json", is_job=True))


def test_a_damaged_document_is_refused() -> None:
    document = printed("stats", corpus.path_of("small"), "--json")
    del document["snapshots"][0]["devices"][0]["peak_event"]
    with pytest.raises(jsonschema.ValidationError, match="peak_event"):
        valid("stats", document)
