"""The strings from snapshots that a report would contain: for ``--dry-run``, to check before sharing a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from snapreport import terminal
from snapreport.number_format import plural
from snapreport.report.activity_columns import activity_names
from snapreport.report.recorder_facts import recorder_facts
from snapreport.report.source_lines import source_lines
from snapreport.report.source_links import REPOSITORY_LINKS, SourceLinks
from snapreport.snapshot import Snapshot


def outgoing_strings(
    snapshots: Sequence[Snapshot], title: str, source: Sequence[str] = (), links: SourceLinks = REPOSITORY_LINKS
) -> dict[str, list[str]]:
    """Distinct strings by origin, sorted. The report's sentences are built from these and numbers."""
    recordings = [snapshot.recording for snapshot in snapshots]
    found: dict[str, set[str]] = {
        "titles and names of snapshots": {title, *(recording.name for recording in recordings)},
        "files of stack traces": set(),
        "functions of stack traces": set(),
        "FX nodes": set(),
        "compile contexts and metadata": set(),
        "annotations": set(),
        "allocator settings": set(),
        "notes": set(),
        "recorder": set(),
        "tensors": set(),
        "modules": set(),
        "addresses of source": set(),
        "profiler's trace": set(),
        "files quoted (--source)": set(source_lines([r.frames for r in recordings], source).files),
    }
    for snapshot in snapshots:
        for device in snapshot.devices:
            found["profiler's trace"].update(activity_names(snapshot.timeline(device)))
    for recording in recordings:
        frames = recording.frames
        found["files of stack traces"].update(frames["filename"].to_list())
        found["functions of stack traces"].update(frames["name"].to_list())
        for name in (name for name in frames.columns if name.startswith("fx_")):
            found["FX nodes"].update(frames[name].drop_nulls().to_list())
        for record in recording.devices.values():
            for name in ("compile_context", "user_metadata"):
                found["compile contexts and metadata"].update(record.events[name].unique().drop_nulls().to_list())
        for name in ("name", "stage"):
            found["annotations"].update(recording.annotations[name].drop_nulls().to_list())
        found["allocator settings"].update(_texts(recording.settings))
        found["notes"].update(_texts(recording.notes))
        if recording.recorder:
            facts = recorder_facts(recording.recorder)
            found["recorder"].update(text for fact in facts for text in (fact.text, fact.url))
            found["tensors"].update(recording.recorder.tensors["name"].to_list())
            noted = (recording.recorder.outputs, recording.recorder.saved)
            tensors = (table.drop("time_us", "device", "address", "bytes") for table in noted)
            for texts in (recording.recorder.modules, *tensors):
                found["modules"].update(*texts.unique().iter_columns())
    rules = links.rules([recording.recorder for recording in recordings])
    found["addresses of source"].update(text for rule in rules for text in (rule.root, rule.url))
    return {kind: sorted(texts - {""}) for kind, texts in found.items() if texts - {""}}


def outgoing_text(strings: dict[str, list[str]]) -> str:
    """A heading per kind, and a line per string; files are grouped by their folders."""
    blocks = [
        terminal.lines([f"{kind}: {plural(len(texts), 'string')}", *_grouped(kind, texts)])
        for kind, texts in strings.items()
    ]
    return "\n\n".join(blocks)


def _grouped(kind: str, texts: list[str]) -> list[str]:
    if kind != "files of stack traces":
        return [f"  {text}" for text in texts]
    folders: dict[str, list[str]] = {}
    for text in texts:
        folders.setdefault(text[: max(text.rfind("/"), text.rfind("\\")) + 1] or "without a folder", []).append(text)
    return [
        line
        for folder, files in sorted(folders.items())
        for line in (f"  {folder}: {plural(len(files), 'file')}", *(f"    {file}" for file in files))
    ]


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (*_texts(key), *_texts(item))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
