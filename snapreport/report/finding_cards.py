"""Findings as the static summary shows them: words, and a link that the page follows where scripts run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from markupsafe import Markup

from snapreport.findings.live import told as told_list
from snapreport.findings.model import Finding
from snapreport.number_format import bytes_text

MOST_ADVICE = 4
"""Pieces of advice shown, the greatest saving first; all of them stand in ``stats --json``."""

_LABEL = {
    "oom": "Out of memory", "fragmentation": "Fragmentation", "leak": "Leak", "kept": "New at the end",
    "churn": "Churn",
    "advice": "Advice", "peak": "Peak",
}  # fmt: skip
_SURE = {"sure": "", "likely": "Likely. ", "guess": "A guess. "}


@dataclass(frozen=True)
class FindingCard:
    """``label``: its kind in words; ``rests``: how sure it is and what it rests on; ``link``: the page's hash that
    shows it; ``term``, ``url``: of advice, PyTorch's own name for it and where that is described; ``chart``: of a leak,
    its steps; ``rank``: see :func:`rank`.
    """

    severity: str
    label: str
    title: str
    detail: list[str]
    rests: str
    link: str
    term: str = ""
    url: str = ""
    chart: Markup = field(default_factory=Markup)
    rank: int = 0


def rank(finding: Finding) -> int:
    """Among findings of one severity: what is, then what could be done about it, then what is merely new."""
    return {"advice": 1, "kept": 2}.get(finding.kind, 0)


def finding_cards(
    found: Sequence[Finding],
    index: dict[int, int],
    told: Sequence[str],
    names: dict[int, str],
    file: str = "",
    stack_base: int = 0,
) -> list[FindingCard]:
    """Cards of one snapshot's findings, in their order; the same advice for several devices is one.

    ``index``: the page's index of each device; ``told``: what findings rest on that is said once for all; ``names``: of
    the devices, where there are several; ``file``: said before each title where a report holds several; ``stack_base``:
    the page's number of the snapshot's first stack.
    """
    advice: dict[str, list[Finding]] = {}
    for finding in found:
        if finding.kind == "advice":
            advice.setdefault(finding.evidence["rule"], []).append(finding)
    first = {id(same[0]) for same in list(advice.values())[:MOST_ADVICE]}
    shown = [finding for finding in found if finding.kind != "advice" or id(finding) in first]
    return [
        FindingCard(
            finding.severity,
            _label(finding, names),
            f"{file}: {finding.title}" if file else finding.title,
            [*finding.detail, *_also(advice.get(finding.evidence.get("rule", ""), [])[1:], names)],
            _SURE[finding.confidence] + " ".join(line for line in finding.basis if line not in told),
            link_of(finding, index[finding.device], stack_base),
            str(finding.evidence.get("term", "")),
            str(finding.evidence.get("url", "")),
            _staircase(finding.evidence.get("staircase") or []),
            rank(finding),
        )
        for finding in shown
    ]


def _label(finding: Finding, names: dict[int, str]) -> str:
    """The kind, and of what device where the title does not tell."""
    label = _LABEL.get(finding.kind, finding.kind)
    name = names.get(finding.device, "")
    return f"{label}, {name}" if name and name not in finding.title else label


def _also(same: Sequence[Finding], names: dict[int, str]) -> list[str]:
    """The same advice for other devices."""
    if not same:
        return []
    parts = [
        names.get(f.device, "") + (f" (at most {bytes_text(f.bytes)})" if f.evidence["memory"] else "") for f in same
    ]
    return [f"The same holds for {told_list(parts)}."]


def _staircase(values: Sequence[int]) -> Markup:
    """The least live bytes of each step as stairs, 120 by 28, of many steps some; nothing of fewer than two."""
    values = values[:: -(-len(values) // 60)] if values else values
    if len(values) < 2 or max(values) <= 0:
        return Markup()
    width, top = 120 / len(values), max(values)
    path = "".join(f"V{27 - 26 * value / top:.4g}H{width * (k + 1):.4g}" for k, value in enumerate(values))
    return Markup(
        '<svg class="stairs" viewBox="0 0 120 28" role="img" aria-label="{}"><path d="M0 27{}"/></svg>'
    ).format("least live bytes of each step, rising", Markup(path))


def link_of(finding: Finding, device: int, stack_base: int = 0) -> str:
    """The page's hash for a finding: see ``static/src/app/hash.ts``. ``device`` and the stacks of its query are the
    page's.
    """
    link = finding.link
    parts = [f"view={link.get('view', 'timeline')}", f"device={device}"]
    if link.get("at") is not None:
        parts.append(f"at={link['at']}")
    if link.get("x"):
        parts.append(f"x={link['x'][0]}..{link['x'][1]}")
    if link.get("query"):
        query = re.sub(r"\bstack:(\d+)", lambda m: f"stack:{int(m[1]) + stack_base}", link["query"])
        parts.append(f"query={quote(query, safe='')}")
    return "#" + "&".join(parts)
