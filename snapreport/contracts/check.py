"""The document of ``snapreport check --json``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Status = Literal["passed", "failed", "unknown"]


class Check(Struct):
    """The result of one rule on one device. ``message``: one sentence; ``evidence``: the reasons, a line each.

    ``file``: of a series, all of them. A rule whose result is unknown has not passed.
    """

    rule: str
    file: str
    device: str
    passed: bool
    message: str
    value: Annotated[int, Meta(description="bytes; of fail-on rules the number of findings")]
    limit: Annotated[int, Meta(description="bytes; of fail-on rules 0")]
    evidence: list[str] = []
    unknown: Annotated[str, Meta(description="why the recording cannot decide; empty where it can")] = ""
    status: Status = "passed"

    def __post_init__(self) -> None:
        self.passed = self.passed and not self.unknown
        self.status = "unknown" if self.unknown else "passed" if self.passed else "failed"


class CheckDocument(Struct, tag_field="schema", tag="snapreport-check/1"):
    """The results of all rules. ``status``: failed if any rule failed, otherwise unknown if any is unknown."""

    passed: bool
    status: Status
    checks: list[Check]
