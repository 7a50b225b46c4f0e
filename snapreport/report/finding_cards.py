"""Findings as the static summary shows them: words, and a link that the page follows where scripts run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from snapreport.findings.model import Finding

MOST_ADVICE = 4
"""Pieces of advice shown per device, the greatest saving first; all of them stand in ``stats --json``."""

_LABEL = {"oom": "Out of memory", "fragmentation": "Fragmentation", "leak": "Leak", "churn": "Churn", "advice": "Advice", "peak": "Peak"}
_SURE = {"sure": "", "likely": "Likely. ", "guess": "A guess. "}


@dataclass(frozen=True)
class FindingCard:
    """``label``: its kind in words; ``rests``: how sure it is and what it rests on; ``link``: the page's hash that shows it;
    ``term``, ``url``: of advice, PyTorch's own name for it and where that is described; ``chart``: of a leak, its steps."""

    severity: str
    label: str
    title: str
    detail: list[str]
    rests: str
    link: str
    term: str = ""
    url: str = ""
    chart: Markup = Markup()


def finding_cards(
    found: Sequence[Finding], index: dict[int, int], told: Sequence[str], file: str = "", stack_base: int = 0
) -> list[FindingCard]:
    """Cards of one snapshot's findings, in their order. ``index``: the page's index of each device; ``told``: what findings
    rest on that is said once for all; ``file``: said before each title where a report holds several; ``stack_base``: the
    page's number of the snapshot's first stack."""
    shown, advice = [], dict.fromkeys(index, 0)
    for finding in found:
        if finding.kind == "advice":
            advice[finding.device] += 1
            if advice[finding.device] > MOST_ADVICE:
                continue
        shown.append(finding)
    return [
        FindingCard(
            finding.severity,
            _LABEL.get(finding.kind, finding.kind),
            f"{file}: {finding.title}" if file else finding.title,
            list(finding.detail),
            _SURE[finding.confidence] + " ".join(line for line in finding.basis if line not in told),
            link_of(finding, index[finding.device], stack_base),
            str(finding.evidence.get("term", "")),
            str(finding.evidence.get("url", "")),
            _staircase(finding.evidence.get("staircase") or []),
        )
        for finding in shown
    ]


def _staircase(values: Sequence[int]) -> Markup:
    """The least live bytes of each step as stairs, 120 by 28, of many steps some; nothing of fewer than two."""
    values = values[:: -(-len(values) // 60)] if values else values
    if len(values) < 2 or max(values) <= 0:
        return Markup()
    width, top = 120 / len(values), max(values)
    path = "".join(f"V{27 - 26 * value / top:.4g}H{width * (k + 1):.4g}" for k, value in enumerate(values))
    return Markup('<svg class="stairs" viewBox="0 0 120 28" role="img" aria-label="{}"><path d="M0 27{}"/></svg>').format(
        "least live bytes of each step, rising", Markup(path)
    )


def link_of(finding: Finding, device: int, stack_base: int = 0) -> str:
    """The page's hash for a finding: see ``static/src/app/hash.ts``. ``device`` and the stacks of its query are the page's."""
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
