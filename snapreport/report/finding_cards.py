"""Findings for the static summary: sentences, and a link that the page follows if scripts run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from urllib.parse import quote

from markupsafe import Markup
from msgspec import Struct, field

from snapreport.findings.model import Finding
from snapreport.findings.remedy_place import remedy_sentence
from snapreport.findings.run import KINDS
from snapreport.report.sentence_html import Links
from snapreport.sentence import bytes_part, listed, parts_of, sentence

_KINDS = {kind.name: kind for kind in KINDS}


class FindingCard(Struct, frozen=True):
    """``label``: its kind, shown before the title; ``certainty``: one word; ``basis``: its evidence beyond that stated
    once for the device; ``link``: the page's hash that shows it; ``remedy``: of advice, its effort and place, and
    ``term``, ``url``, PyTorch's own name for it and its documentation; ``chart``: of a leak, its steps; ``rank``: see
    :func:`rank`; ``links``: of its sentences; ``is_remedy``: it has a replayed saving.
    """

    severity: str
    label: str
    title: str
    detail: Sequence[str]
    certainty: str
    basis: str
    link: str
    remedy: str = ""
    term: str = ""
    url: str = ""
    chart: Markup = field(default_factory=Markup)
    rank: int = 0
    links: Links = field(default_factory=Links)
    is_remedy: bool = False

    @property
    def full_title(self) -> str:
        """The title as a complete sentence, without the period."""
        return sentence("{}{}", self.label, self.title) if self.title.startswith((":", " ")) else self.title


def rank(finding: Finding) -> int:
    """Order among findings of one severity: problems, then advice, then memory that is merely new."""
    return _KINDS[finding.kind].rank


def finding_cards(
    found: Sequence[Finding],
    index: dict[int, int],
    common: Collection[str],
    names: dict[int, str],
    file: str = "",
    stack_base: int = 0,
    links: Mapping[str, str] | None = None,
) -> list[FindingCard]:
    """Cards of one snapshot's findings, in their order; the same advice for several devices is one card.

    ``index``: the page's index of each device; ``common``: statements made once for all findings and omitted here;
    ``names``: of the devices, if several; ``file``: precedes each title if a report has several; ``stack_base``: the
    page's number of the snapshot's first stack; ``links``: addresses of lines by their name.
    """
    advice: dict[str, list[Finding]] = {}
    for finding in found:
        if finding.kind == "advice":
            advice.setdefault(finding.evidence["rule"], []).append(finding)
    first = {id(same[0]) for same in advice.values()}
    shown = [finding for finding in found if finding.kind != "advice" or id(finding) in first]
    return [
        FindingCard(
            finding.severity,
            *_label_and_title(finding, names, file),
            [*finding.detail, *_other_devices(advice.get(finding.evidence.get("rule", ""), [])[1:], names)],
            finding.confidence,
            " ".join(line for line in finding.basis if line not in common),
            link_of(finding, index[finding.device], stack_base),
            remedy_sentence(finding),
            str(finding.evidence.get("term", "")),
            str(finding.evidence.get("url", "")),
            _staircase(finding.evidence.get("staircase") or []),
            rank(finding),
            Links(links or {}, index[finding.device], index, stack_base),
            finding.kind == "advice" and bool(finding.evidence.get("saving")),
        )
        for finding in shown
    ]


def _label_and_title(finding: Finding, names: dict[int, str], file: str) -> tuple[str, str]:
    """The kind, with the device unless the title names it, and the rest of the title: a title that begins with its kind
    is split there.
    """
    label, name = _KINDS[finding.kind].label, names.get(finding.device, "")
    if finding.kind == "leak" and finding.severity == "info":
        label = "Growth"  # of a cache, or until the garbage collector runs
    if finding.title.startswith((f"{label} ", f"{label}:")):
        return label, f" in {file}" * bool(file) + finding.title[len(label) :]
    title = sentence("{file}: {}", finding.title, file=file) if file else finding.title
    return (f"{label}, {name}" if name and name not in finding.title else label), title


def _other_devices(same: Sequence[Finding], names: dict[int, str]) -> list[str]:
    """The same advice for other devices."""
    if not same:
        return []
    parts = [
        sentence("{} ({} less)", names.get(f.device, ""), bytes_part(f.bytes))
        if f.evidence["saving"]
        else names.get(f.device, "")
        for f in same
    ]
    return [sentence("The same holds for {}.", listed(parts))]


def _staircase(values: Sequence[int]) -> Markup:
    """The minimum live bytes of each step as a 120 by 28 px staircase, subsampled; empty below two steps."""
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
    if finding.kind == "oom" and "verdict" in finding.evidence:
        parts.append(f"oom={finding.event}")
    if link.get("x"):
        parts.append(f"x={link['x'][0]}..{link['x'][1]}")
    if link.get("query"):
        parts.append(f"query={quote(page_query(link['query'], stack_base), safe='')}")
    return "#" + "&".join(parts)


def page_query(query: str, stack_base: int) -> str:
    """A query with the page's numbers of stacks."""
    return "".join(
        part.text if part.kind != "stack" else str((part.number or 0) + stack_base) for part in parts_of(query)
    )
