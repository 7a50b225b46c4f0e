"""What came of a check, for people and machines: text, JSON, Markdown for a job's summary page, JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from snapreport.findings.gate import Check
from snapreport.report.markdown import code_cell, escape

SCHEMA = "snapreport-check/1"
# XML 1.0 cannot hold these even escaped; names in a snapshot may.
_NOT_XML = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 65534, 65535, *range(55296, 57344)))


def check_json(checks: Sequence[Check]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "passed": all(check.passed for check in checks),
        "checks": [check.to_json() for check in checks],
    }


def check_text(checks: Sequence[Check]) -> str:
    """A line per check, and under each that failed what it rests on."""
    lines = []
    for check in checks:
        lines.append(f"{'ok  ' if check.passed else 'FAIL'}  {check.rule}  {check.message}")
        lines += [f"        {line}" for line in check.evidence]
    failed = sum(not check.passed for check in checks)
    lines.append(f"{failed} of {len(checks)} checks failed" if failed else f"all {len(checks)} checks passed")
    return "\n".join(lines)


def check_markdown(checks: Sequence[Check]) -> str:
    """A section for a job's summary page: a verdict, a row per check, and the evidence of those that failed."""
    failed = [check for check in checks if not check.passed]
    verdict = (
        f"{len(failed)} of {len(checks)} memory checks failed" if failed else f"All {len(checks)} memory checks passed"
    )
    lines = [f"## {verdict}", "", "| | Rule | File | What was found |", "|---|---|---|---|"]
    lines += [
        f"| {'✅' if check.passed else '❌'} | {code_cell(check.rule)} | {code_cell(check.file)} | "
        f"{escape(check.message)} |"
        for check in checks
    ]
    for check in failed:
        if check.evidence:
            lines += ["", f"**{escape(check.rule)}**, {escape(check.device)}:", ""]
            lines += [f"- {escape(line)}" for line in check.evidence]
    return "\n".join(lines) + "\n"


def check_junit(checks: Sequence[Check]) -> str:
    """JUnit XML: a test case per check, in one suite."""
    failed = sum(not check.passed for check in checks)
    suite = ElementTree.Element(
        "testsuite", name="snapreport", tests=str(len(checks)), failures=str(failed), errors="0", skipped="0"
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
            failure = ElementTree.SubElement(
                case, "failure", message=_xml(check.message), type=_xml(check.rule.split()[0])
            )
            failure.text = _xml("\n".join([check.message, *check.evidence]))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _xml(text: str) -> str:
    return text.translate(_NOT_XML)
