"""The chips above the timeline: what is wrong, the line of the program, and the best remedy with what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from msgspec import Struct, field
from msgspec.structs import replace

from snapreport.findings.model import Finding
from snapreport.findings.run import KINDS
from snapreport.report.finding_cards import page_query
from snapreport.report.sentence_html import Links
from snapreport.sentence import bytes_part, joined, place_part, sentence

MOST = 12
_WORD = {"error": "Error", "warning": "Warning", "info": "Note"}
_LABEL = {kind.name: kind.label for kind in KINDS}


class Chip(Struct, frozen=True):
    """One finding. ``word``: its severity; ``cause``: a sentence without its period; ``place``: the line of the
    program, "" if the cause names it or none is known; ``remedy``: the best one for a problem, "" if there is none;
    ``link``: the page's hash that pins it; ``query``, ``device``: its allocations, on the page's device;
    ``is_advice``: whether it is a remedy; ``certainty``: :func:`certainty`; ``effort``: of a remedy; ``told``: the
    sentences of the headline that it repeats; ``links``: of its sentences; ``rule``: of the remedy it names, as in
    ``page_remedies``, "" for none; ``kind``: of the finding.
    """

    severity: str
    word: str
    cause: str
    place: str
    remedy: str
    link: str
    query: str
    device: int
    is_advice: bool
    certainty: str = ""
    effort: str = ""
    told: Sequence[str] = ()
    links: Links = field(default_factory=Links)
    rule: str = ""
    kind: str = ""


def chips(
    found: Sequence[Finding],
    index: Mapping[int, int],
    stack_base: int,
    links: Links,
    statements: Sequence[tuple[str, Finding]] = (),
    place_of: Callable[[int], str] = lambda stack: "",
    file: str = "",
    names: Mapping[int, str] | None = None,
) -> list[Chip]:
    """Chips of one snapshot's findings, worst first. ``index``: the page's index of each device; ``stack_base``: the
    page's number of the snapshot's first stack; ``statements``: the diagnosis of the device that the report opens on,
    which is the first chip; ``place_of``: the line of the program that a stack runs in; ``file``: precedes each
    sentence if a report has several, and so do ``names``, of the devices if there are several, of those that the report
    does not open on.
    """
    # A minor leak that the diagnosis ends with is a problem of its own.
    statements = [(text, f) for text, f in statements if f is statements[0][1] or f.kind != "leak"]
    lead = [_diagnosis_chip(statements, found, index, stack_base, links)] if statements else []
    told = {id(finding) for _, finding in statements}
    said = {f.evidence["rule"] for _, f in statements if f.kind == "advice"} | {chip.rule for chip in lead}
    found = [f for f in found if id(f) not in told]
    problems = [f for f in found if f.kind != "advice" and _is_shown(f)]
    # A remedy that a failure's chip names has no chip of its own, nor has the same remedy for another device.
    said |= {f.evidence["rule"] for problem in problems if problem.kind == "oom" for f in _remedies(problem, found)[:1]}
    advice = []
    for f in found:
        if f.kind == "advice" and _is_shown(f) and f.evidence["rule"] not in said:
            said.add(f.evidence["rule"])
            advice.append(f)
    opened = statements[0][1].device if statements else None

    def whose(finding: Finding) -> str:
        name = (names or {}).get(finding.device, "") if finding.device != opened else ""
        return joined([text for text in (file, name) if text and text not in finding.title], ", ")

    shown = [*lead, *(_chip(f, found, index[f.device], stack_base, links, whose(f)) for f in problems + advice)][:MOST]
    shown_for = [f for _, f in statements[:1]] + problems + advice
    return [
        replace(chip, place=place_of(f.stack))
        if f.kind in ("fragmentation", "churn") and f.stack and not chip.place
        else chip
        for chip, f in zip(shown, shown_for, strict=False)
    ]


def _diagnosis_chip(
    statements: Sequence[tuple[str, Finding]],
    found: Sequence[Finding],
    index: Mapping[int, int],
    stack_base: int,
    links: Links,
) -> Chip:
    """The diagnosis as a chip; a problem without a remedy among its sentences gets the best one."""
    finding = statements[0][1]
    texts = [text for text, _ in statements]
    chip = _chip(finding, found, index[finding.device], stack_base, links)
    # A leak's second sentence is its remedy.
    causes = 1 if finding.kind == "leak" else sum(f is finding for _, f in statements)
    cause, advised = joined(texts[:causes]), texts[causes:]
    if finding.kind == "leak":
        advised = [_peak_without_leak(finding), *advised]
    remedy = joined(text for text in advised if text)
    named = "" if remedy and finding.kind == "oom" else chip.rule
    return replace(
        chip,
        word="Peak" if finding.kind == "peak" else chip.word,
        cause=cause,
        place="" if chip.place and chip.place in cause else chip.place,
        remedy=remedy or chip.remedy,
        certainty="",  # the diagnosis says it
        told=texts,
        rule=next((rule_of(f, stack_base) for _, f in statements[causes:] if f.kind == "advice"), named),
    )


def _is_shown(finding: Finding) -> bool:
    """Problems, and remedies that were replayed. Figures of a failure are computed for the first ones of a device."""
    if finding.kind == "advice":
        return bool(finding.evidence.get("avoids_failure")) or finding.evidence["saving"] is not None
    is_problem = finding.severity != "info" or finding.kind == "leak"
    return is_problem and (finding.kind != "oom" or "verdict" in finding.evidence)


def _chip(
    finding: Finding, found: Sequence[Finding], device: int, stack_base: int, links: Links, whose: str = ""
) -> Chip:
    is_advice = finding.kind == "advice"
    link, query = _link(finding, device, stack_base)
    label = _LABEL.get(finding.kind, "")
    cause = finding.title
    if finding.severity != "info" and label and not cause.startswith(label):
        cause = sentence("{}: {}", label, cause)
    if whose:
        cause = sentence("{whose}: {}", cause, whose=whose)
    return Chip(
        finding.severity,
        "Advice" if is_advice else _WORD[finding.severity],
        cause,
        _place(finding),
        "" if is_advice else _remedy(finding, found),
        link,
        query,
        device,
        is_advice,
        certainty(finding) if is_advice else "",
        effort_of(finding) if is_advice else "",
        [sentence("{}.", finding.title), *finding.detail[:1]],
        links,
        next((rule_of(f, stack_base) for f in _remedies(finding, found)), ""),
        finding.kind,
    )


def _remedy(finding: Finding, found: Sequence[Finding]) -> str:
    """What to do, with its number: a leak has its own sentences, a failure has advice; of other problems, why."""
    if finding.kind == "leak":
        return joined(text for text in (_peak_without_leak(finding), finding.detail[-1]) if text)
    if finding.kind != "oom":
        return "" if finding.severity == "info" else joined(finding.detail[:1])
    return joined(sentence("{}.", f.title) for f in _remedies(finding, found)[:1])


def _remedies(finding: Finding, found: Sequence[Finding]) -> list[Finding]:
    """Itself, or a failure's, best first: what was replayed to avoid it, then most bytes."""
    if finding.kind != "oom":
        return [finding] if finding.kind in ("advice", "leak") else []
    advice = [f for f in found if f.kind == "advice" and f.device == finding.device and f.confidence != "estimate"]
    return sorted(filter(_is_shown, advice), key=lambda f: (not f.evidence.get("avoids_failure"), -f.bytes))


def rule_of(finding: Finding, stack_base: int) -> str:
    """The name of a remedy in addresses."""
    return f"leak-{(finding.stack or 0) + stack_base}" if finding.kind == "leak" else str(finding.evidence["rule"])


def certainty(finding: Finding) -> str:
    """Says of a remedy whose saving was not replayed that it is an estimate; "" of others."""
    return finding.confidence if finding.confidence == "estimate" else ""


def effort_of(finding: Finding) -> str:
    """A remedy's effort; a leak has none."""
    return str(finding.evidence.get("effort") or "")


def _peak_without_leak(leak: Finding) -> str:
    """The peak that is left without a leak, where it is lower; nothing is replayed without a cache, which is needed, or
    without what waits for the garbage collector.
    """
    saving, needed = leak.evidence.get("saving"), leak.evidence.get("needed_peak_bytes", 0)
    if leak.severity == "info" or not saving or needed >= saving["peak_bytes"] + saving["saves_bytes"]:
        return ""
    return sentence("Without it the peak is {} (replayed).", bytes_part(int(needed)))


def _place(finding: Finding) -> str:
    """The line of the program: of advice, where it applies; of a failure, the request's, else the largest stack's."""
    evidence = finding.evidence
    if finding.kind == "advice":
        file, _, line = str(evidence.get("where") or "").rpartition(":")
        if not file:
            return ""
        return sentence("{}", place_part(f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}", file, int(line)))
    if finding.kind != "oom":
        return ""
    own = [str(row["line"]) for row in evidence.get("stacks", []) if row["stack"]]
    line = str(evidence.get("line") or "")
    return line if ":" in line else (own[0] if own else "")


def _link(finding: Finding, device: int, stack_base: int) -> tuple[str, str]:
    """The hash that pins a finding on the timeline with its details open, and its query."""
    at = finding.link.get("at")
    query = page_query(finding.link.get("query") or "", stack_base)
    parts = ["view=timeline", f"device={device}"]
    if at is not None:
        parts.append(f"at={at}")
    if finding.kind == "oom":
        parts.append(f"oom={finding.event}")
    elif stack := _stack(finding):
        parts.append(f"stack={stack + stack_base}")
    if query:
        parts.append(f"query={quote(query, safe='')}")
        # A leak of some MiB under GiB of weights is a staircase where it stands alone.
        if finding.kind == "leak":
            parts.append("timeline.only=yes")
    return "#" + "&".join(parts), query


def _stack(finding: Finding) -> int:
    """The stack whose details explain the finding; 0 for none."""
    rows = finding.evidence.get("stacks") or []
    return finding.stack or next((int(row["stack"]) for row in rows if row["stack"]), 0)
