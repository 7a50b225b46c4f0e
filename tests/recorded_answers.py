"""What is said of each small recording in tests/recordings, in numbers: the evidence of its findings, without their
sentences, and of witnesses the columns of allocations and the steps. ``python tests/recorded_answers.py`` writes
tests/recordings/answers.json again; read its diff, since each change there is one of an answer.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snapreport.contracts import plain

if TYPE_CHECKING:
    from snapreport.findings.model import Finding
    from snapreport.snapshot import Snapshot
    from snapreport.timeline.build import DeviceTimeline

RECORDINGS = Path(__file__).parent / "recordings"
ANSWERS = RECORDINGS / "answers.json"
OTHERS = [path for folder in ("causes", "leaks", "mistakes") for path in sorted((RECORDINGS / folder).glob("*.xz"))]
WORDS = (
    "title",
    "detail",
    "basis",
    "sentence",
    "line",
    "text",
    "name",
    "description",
    "note",
    "notes",
    "where_unknown",
)
RECORDED = {
    "id", "addr", "size", "alloc_event", "free_requested_event", "free_event", "alloc_us", "free_us", "stream", "pool",
    "stack", "free_stack",
}  # fmt: skip
"""Columns that only repeat the recording."""
MOST_VALUES = 8
"""Values of a column that are listed with their bytes; of more there is a checksum."""


def answer(snapshot: Snapshot, found: list[Finding]) -> dict[str, Any]:
    said: dict[str, Any] = {"findings": [_line(one) for one in found]}
    for device, stats in zip(snapshot.devices, snapshot.stats()["devices"], strict=True):
        table = snapshot.allocations(device, with_stacks=True)
        columns = {
            name: _by_value(table[name].to_list(), table["size"].to_list())
            for name in table.columns
            if name not in RECORDED
        }
        scalars = {key: value for key, value in _numbers(stats).items() if key != "findings"}
        said[f"device {device}"] = {
            **{name: values for name, values in columns.items() if values},
            **{
                key: _sum(value) if isinstance(value, dict | list) else value for key, value in scalars.items() if value
            },
            "all_steps": _sum(snapshot.steps(device).rows()),
            **_of_timeline(snapshot.timeline(device)),
        }
    return said


def findings_of(path: Path) -> list[str]:
    import snapreport
    from snapreport.findings.run import findings

    return [_line(one) for one in findings(snapreport.load(path))]


def key_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.partition('.pickle')[0]}"


def _of_timeline(timeline: DeviceTimeline) -> dict[str, str]:
    parts, blocks = timeline.fragmentation, timeline.blocks
    curves = (timeline.allocated, timeline.reserved, parts.rounding, parts.inactive_split, parts.unused_segments)
    return {
        "curves": " ".join(_sum(curve.tolist()) for curve in curves),
        "segment_history": _sum(timeline.segment_history.rows()),
        "blocks": f"{_sum(blocks.size.tolist())} {_sum(blocks.segment.tolist())}",
        "activity": f"{timeline.activity.kind} {_sum(plain(timeline.own_activity))}",
        "gaps": ", ".join(gap.key for gap in timeline.recording_gaps),
    }


def _by_value(column: list[Any], sizes: list[int]) -> Any:
    values: dict[str, int] = {}
    for value, size in zip(column, sizes, strict=True):
        if value is not None and value != "":
            values[str(value)] = values.get(str(value), 0) + size
    return values if len(values) <= MOST_VALUES else f"{len(values)} values {_sum(values)}"


def _line(finding: Finding) -> str:
    evidence = finding.to_json()["evidence"]
    rule = evidence.get("rule", "")
    about = (finding.kind, rule, finding.severity, finding.confidence, f"{finding.bytes} B", f"at {finding.event}")
    return f"{' '.join(filter(None, about))} {_sum([_numbers(evidence), finding.stack, finding.to_json()['link']])}"


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items() if key not in WORDS}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value


def _sum(value: Any) -> str:
    return f"{zlib.crc32(json.dumps(value, sort_keys=True, default=str).encode()):08x}"


def main() -> None:
    import snapreport
    from snapreport.findings.run import findings

    said: dict[str, Any] = {}
    for path in sorted((RECORDINGS / "witnesses").iterdir()):
        snapshot = snapreport.load(path)
        said[path.name.partition(".")[0]] = answer(snapshot, findings(snapshot))
    said |= {key_of(path): findings_of(path) for path in OTHERS}
    ANSWERS.write_text(_written(said) + "\n", encoding="utf-8")


def _written(value: Any, depth: int = 0) -> str:
    """JSON with a line for each finding and each column, so that a diff names what has changed."""
    if depth == 3 or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {_written(inner, depth + 1)}" for key, inner in value.items()]
        begin, end = "{}"
    else:
        items, (begin, end) = [_written(inner, depth + 1) for inner in value], "[]"
    indent = "\n" + " " * depth
    return f"{begin}{indent} {f',{indent} '.join(items)}{indent}{end}"


if __name__ == "__main__":
    main()
