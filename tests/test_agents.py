"""The server for agents, asked by the SDK's own client, and the skill."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import corpus
import pytest
from cli import in_process

from snapreport.agents import answers
from snapreport.findings.run import findings

T = TypeVar("T")


@pytest.fixture(autouse=True)
def is_installed() -> None:
    """Not when the file is imported, which every worker does."""
    pytest.importorskip("mcp.server.mcpserver")


def in_a_thread(conversation: Coroutine[Any, Any, T]) -> T:
    """Its result. This thread may have a loop already: the one that drives browsers."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, conversation).result()


def ask(*questions: tuple[str, dict[str, Any]]) -> list[tuple[bool, str]]:
    """Whether it is an error, and the text, of each question in turn."""
    from mcp.client import Client

    from snapreport.agents.server import server

    async def talk() -> list[tuple[bool, str]]:
        async with Client(server()) as client:
            results = [await client.call_tool(name, arguments) for name, arguments in questions]
        return [(bool(result.is_error), "".join(part.text for part in result.content)) for result in results]

    return in_a_thread(talk())


def test_an_out_of_memory_error_is_understood_by_calls_alone() -> None:
    """From the overview to the stack trace, each answer within its limit."""
    path = str(corpus.path_of("oom"))
    ((failed, text),) = ask(("overview", {"path": path}))
    assert not failed and len(text) <= answers.MOST
    (device,) = json.loads(text)["snapshots"][0]["devices"]
    snapshot = corpus.loaded(Path(path))
    best = next(f for f in findings(snapshot) if f.kind == "advice")
    advice = next(f for f in device["findings"] if f["kind"] == "advice")
    assert (advice["rule"], advice["where"]) == (best.evidence["rule"], best.evidence["where"])
    stack = device["stacks"][0]
    reasons, matches, trace, replay = ask(
        ("findings", {"path": path, "kind": "advice"}),
        ("query", {"path": path, "query": f"stack:{stack['stack']} live:peak"}),
        ("stack", {"path": path, "stack": stack["stack"]}),
        ("whatif", {"path": path, "settings": ["expandable_segments:True"]}),
    )
    assert all(not failed and len(text) <= answers.MOST for failed, text in (reasons, matches, trace, replay))
    assert str(best.detail[0]) in reasons[1]
    assert f"{stack['count']:,}" in matches[1]
    frames = snapshot.frames(stack["stack"])
    assert f"{frames['filename'][0]}:{frames['line'][0]}" in trace[1]
    assert "expandable_segments:True" in replay[1]


def test_other_batches_and_differences() -> None:
    small, oom = str(corpus.path_of("small")), str(corpus.path_of("oom"))
    changed, cheapest = ask(
        ("diff", {"before": small, "after": oom}), ("fit", {"paths": [oom], "at": [], "memory": "24GiB"})
    )
    assert not changed[0] and "peak" in changed[1].lower() and len(changed[1]) <= answers.MOST
    assert not cheapest[0] and "24.0 GiB" in cheapest[1]


def test_errors_are_told_in_a_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(b"no")
    path = str(corpus.path_of("small"))
    told = ask(
        ("overview", {"path": str(broken)}),
        ("overview", {"path": "-"}),
        ("query", {"path": path, "query": "size=="}),
        ("stack", {"path": path, "stack": 10**6}),
        ("findings", {"path": path, "kind": "nonsense"}),
        ("whatif", {"path": path, "memory": "much"}),
    )
    for failed, text in told:
        assert failed and "\n" not in text and "Traceback" not in text
    assert "broken.pickle" in told[0][1] and "not a size" in told[5][1]


def test_long_answers_say_how_to_ask_for_less() -> None:
    text = answers.cut("a line of an answer\n" * 1000, "Ask for less.")
    assert len(text) <= answers.MOST and re.search(r"… [0-9,]+ more lines left out. Ask for less.$", text)


def test_the_tools_are_described() -> None:
    from mcp.client import Client

    from snapreport.agents.server import server

    async def tools() -> list[Any]:
        async with Client(server()) as client:
            return list((await client.list_tools()).tools)

    found = in_a_thread(tools())
    assert {tool.name for tool in found} == {"overview", "findings", "query", "stack", "whatif", "fit", "diff"}
    assert all(tool.description and len(tool.description) < 600 for tool in found)


def test_the_skill(tmp_path: Path) -> None:
    printed = in_process("skill").out
    head = printed.split("---")[1]
    assert "name: snapreport" in head and len(re.search(r"description: (.*)", head)[1]) < 1024  # type: ignore[index]
    done = in_process("skill", "--install", tmp_path)
    assert done.code == 0 and (tmp_path / "snapreport" / "SKILL.md").read_text() == printed
    assert in_process("skill", "--install", tmp_path).code == 0
    (tmp_path / "snapreport" / "SKILL.md").write_text("mine")
    assert in_process("skill", "--install", tmp_path).code == 2
    for command in re.findall(r"`snapreport (\w+)", printed):
        if command != "SNAP":
            assert in_process(command, "--help").code == 0, command
