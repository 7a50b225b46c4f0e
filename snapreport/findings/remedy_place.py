"""What a piece of advice takes to apply, where, and the line as it should read, in sentences."""

from __future__ import annotations

from snapreport.contracts.finding import Finding
from snapreport.findings.effort import AT_STEP
from snapreport.sentence import Sentence, code_part, joined, place_part, sentence

_CONSTRUCTOR = "Where: the constructor of the optimizer whose `step()` is called in {}."


def remedy_place(where: str) -> Sentence:
    """``zoo.py:566`` of ``/app/zoo.py:566``."""
    file, _, line = where.rpartition(":")
    return place_part(f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}", file, int(line))


def remedy_sentence(finding: Finding) -> str:
    """``Effort: one line. Where: eval.py:33. The line should read: with torch.no_grad():``; "" for other findings."""
    if finding.kind != "advice":
        return ""
    evidence = finding.evidence
    parts = [sentence("Effort: {}.", evidence["effort"])]
    if evidence["where"]:
        place = remedy_place(evidence["where"])
        # No stack trace has the constructor: it allocates nothing on a device.
        of_optimizer = evidence["rule"] in AT_STEP
        parts.append(sentence(_CONSTRUCTOR if of_optimizer else "Where: {}.", place))
    elif evidence["where_unknown"]:
        parts.append(sentence("Where: {why}.", why=evidence["where_unknown"]))
    if evidence["line"]:
        parts.append(sentence("The line should read: {}", code_part(evidence["line"])))
    return joined(parts)
