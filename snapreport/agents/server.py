"""The same answers as tools of the Model Context Protocol, by its own SDK (MIT, kept by the protocol's authors)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from snapreport import __version__
from snapreport.agents import answers
from snapreport.errors import SnapshotError, one_line

INSTRUCTIONS = """\
Reads PyTorch accelerator memory snapshots (torch.cuda.memory._dump_snapshot). Begin with `overview`: the headline,
what the program does, the peak, findings with the line to change, the remedy and what it saves, and the largest
stacks. `findings` has their reasons, `query` counts allocations, `stack` shows one stack trace, `whatif` replays
the trace under other settings or on another card, `fit` foretells other batch sizes, `diff` compares two snapshots.
Sizes are bytes or like 24GiB. A saving with is_lower_bound is one up to the failure: the whole run may need more."""


def server() -> MCPServer:
    """The server with its tools; ``.run()`` serves standard input and output until they are closed."""
    made = MCPServer("snapreport", version=__version__, instructions=INSTRUCTIONS, log_level="ERROR")
    for name, answer in _TOOLS.items():
        made.tool(name=name, structured_output=False)(answer)
    return made


def _answered(answer: Callable[..., str], *arguments: Any) -> str:
    """The answer, or an error in one line that its reader can act on. Defects are reported as such by the SDK."""
    try:
        return answer(*arguments)
    except SnapshotError as error:
        raise ToolError(one_line(str(error))) from None


def overview(path: str) -> str:
    """A snapshot in 8 KB of JSON: headline, activity, peaks, steps, findings (cause, where, remedy, effort, saving,
    confidence) and the largest stacks at the peak. Ask this first.
    """
    return _answered(answers.overview, path)


def findings(path: str, kind: str = "") -> str:
    """All findings with their reasons and evidence; `kind`: one of those in the overview, such as oom, leak, advice."""
    return _answered(answers.findings, path, kind)


def query(path: str, query: str, device: int | None = None) -> str:
    """Counts and sums the allocations that match, in all and at the peak, with their largest stacks. Words search
    functions, files and modules; also size>1MiB, category:activation, live:peak, live:EVENT, event:A..B,
    stack:N, step:3, top:20. Terms side by side must all hold; OR, -term and parentheses combine them.
    """
    return _answered(answers.query, path, query, device)


def stack(path: str, stack: int) -> str:
    """One stack trace, innermost frame first, and what it allocated; numbers are those of overview and findings."""
    return _answered(answers.stack, path, stack)


def whatif(
    path: str,
    settings: list[str] | None = None,
    without: list[str] | None = None,
    memory: str = "",
    cards: bool = False,
) -> str:
    """Replays the trace with PyTorch's allocator: `settings` as in PYTORCH_CUDA_ALLOC_CONF (none: the usual ones),
    `without` queries whose allocations never happen, `memory` such as 24GiB for the allocator; `cards` searches the
    smallest card, which takes longer.
    """
    return _answered(answers.whatif, path, settings or [], without or [], memory, cards)


def fit(
    paths: list[str],
    at: list[float],
    to: list[float] | None = None,
    memory: str = "",
    settings: list[str] | None = None,
) -> str:
    """Foretells peaks at batch sizes (or lengths) `to` from recordings of one program at the sizes `at`, and the
    largest that fits. With one path and `memory`: the cheapest remedies that run there.
    """
    return _answered(answers.fit, paths, at, to or [], memory, settings or [])


def diff(before: str, after: str) -> str:
    """What appeared, vanished, grew and shrank between two snapshots of one program."""
    return _answered(answers.diff, before, after)


_TOOLS: dict[str, Callable[..., str]] = {
    "overview": overview, "findings": findings, "query": query, "stack": stack, "whatif": whatif, "fit": fit,
    "diff": diff,
}  # fmt: skip
