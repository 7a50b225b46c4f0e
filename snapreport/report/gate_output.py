"""Results of a check for people and machines: text, JSON, Markdown for a CI job's summary page, JUnit XML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from snapreport import terminal
from snapreport.contracts.check import Check, CheckDocument, Status
from snapreport.number_format import plural
from snapreport.output_file import MARKDOWN_MARK
from snapreport.report.markdown import code_cell, escape, prose

_MARKS = {"passed": "ok     ", "failed": "FAIL   ", "unknown": "UNKNOWN"}
_EMOJI = {"passed": "✅", "failed": "❌", "unknown": "❔"}


def overall(checks: Sequence[Check]) -> Status:
    """The status of all checks together: failed if any failed, otherwise unknown if any is unknown."""
    found = {check.status for check in checks}
    return "failed" if "failed" in found else "unknown" if "unknown" in found else "passed"


def _verdict(checks: Sequence[Check], noun: str) -> str:
    """``1 of 3 checks failed``, ``1 of 3 checks cannot be decided``, ``3 checks passed``."""
    counted = plural(len(checks), noun)
    parts = [
        f"{count} of {counted} {outcome}"
        for status, outcome in (("failed", "failed"), ("unknown", "cannot be decided"))
        if (count := sum(check.status == status for check in checks))
    ]
    return "; ".join(parts) or f"{counted} passed"


def check_document(checks: Sequence[Check]) -> CheckDocument:
    """The document of ``snapreport check --json``."""
    return CheckDocument(all(check.passed for check in checks), overall(checks), list(checks))


def check_text(checks: Sequence[Check]) -> str:
    """A line per check, followed by the reasons if it failed or is unknown."""
    lines = []
    for check in checks:
        lines.append(f"{_MARKS[check.status]}  {check.file}  {check.rule}  {check.message}")
        lines += [f"           {line}" for line in _reasons(check)]
    return terminal.lines([*lines, _verdict(checks, "check")])


def _reasons(check: Check) -> list[str]:
    """The evidence of a check; a message may be the reason itself."""
    return [line for line in (check.unknown, *check.evidence) if line and line not in check.message]


def check_markdown(
    checks: Sequence[Check], links: Mapping[str, Mapping[str, str]] | None = None, charts: str = ""
) -> str:
    """A section for a job's summary page: a verdict, a row per check, and the reasons of those that did not pass.
    ``links``: addresses of lines by their name, for each file; ``charts``: Markdown that follows the table.
    """
    links = links or {}
    lines = [f"## {_verdict(checks, 'memory check')}", "", "| | Rule | File | Result |", "|---|---|---|---|"]
    for check in checks:
        result = prose(check.message, links.get(check.file, {}))
        lines.append(f"| {_EMOJI[check.status]} | {code_cell(check.rule)} | {code_cell(check.file)} | {result} |")
    lines += ["", charts] if charts else []
    for check in checks:
        if not check.passed and _reasons(check):
            lines += ["", f"**{escape(check.rule)}**, {escape(check.file)}, {escape(check.device)}:", ""]
            lines += [f"- {prose(line, links.get(check.file, {}))}" for line in _reasons(check)]
    return "\n".join([*lines, "", MARKDOWN_MARK]) + "\n"


def check_junit(checks: Sequence[Check]) -> str:
    """JUnit XML: a test case per check, in one suite. What cannot be decided is an error, not a failure."""
    failed, unknown = (sum(check.status == status for check in checks) for status in ("failed", "unknown"))
    suite = ElementTree.Element(
        "testsuite",
        name="snapreport",
        tests=str(len(checks)),
        failures=str(failed),
        errors=str(unknown),
        skipped="0",
    )
    for check in checks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_xml(f"snapreport.{check.file}"),
            name=_xml(f"{check.rule} {check.device}"),
            time="0",
        )
        if not check.passed:
            tag, message = ("error", check.unknown) if check.unknown else ("failure", check.message)
            entry = ElementTree.SubElement(case, tag, message=_xml(message), type=_xml(check.rule.split()[0]))
            entry.text = _xml("\n".join([check.message, *_reasons(check)]))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _xml(text: str) -> str:
    return "\n".join(map(terminal.visible, text.split("\n")))
