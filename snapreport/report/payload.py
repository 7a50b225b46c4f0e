"""What goes into the file: sections of columns, and the manifest that says where they are.

A section is what the page decodes together. Small reports hold all sections in the one blob ``main``, since one brotli
stream compresses them against each other; in large ones each section has a blob of its own, so that the first picture
needs only ``main`` with the coarsest tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from snapreport.packing import base85
from snapreport.packing.blob import pack_text
from snapreport.packing.columns import Column
from snapreport.packing.prime import Prime
from snapreport.report.device_columns import DeviceTables, device_tables
from snapreport.report.stack_columns import stack_columns
from snapreport.timeline.build import Snapshot

FORMAT = 1
# Below this many events and allocations in all, one blob is smaller and opens at once.
ONE_BLOB_UP_TO = 60_000


@dataclass(frozen=True)
class Payload:
    """``prime``: u32le length of the shared text and its brotli stream, as text; ``blobs``: name to text, ``main`` first."""

    prime: str
    blobs: dict[str, str]


def build_payload(snapshots: Sequence[Snapshot], title: str) -> Payload:
    """Everything the page reads of ``snapshots``."""
    tables, sections = [], {}
    numbering = stack_columns(snapshots)
    sections["stacks"] = numbering.columns
    for number, snapshot in enumerate(snapshots):
        for device in snapshot.devices:
            table = device_tables(snapshot, number, device, prefix=f"d{len(tables)}", stack_base=numbering.base[number])
            tables.append(table)
            sections.update(table.sections)
    small = sum(table.rows for table in tables) <= ONE_BLOB_UP_TO
    first = next((index for index, table in enumerate(tables) if table.rows), 0)
    place = {name: "main" if small or name == f"d{first}.tiles" else name for name in sections}
    manifest = _manifest(snapshots, tables, place, title)
    blobs: dict[str, list[Column]] = {"main": []}
    for name, columns in sections.items():
        blobs.setdefault(place[name], []).extend(columns)
    prime = Prime((Path(__file__).parent / "prime.txt").read_bytes())
    # brotli releases the interpreter lock; the order of the blobs does not depend on who finishes first.
    with ThreadPoolExecutor() as pool:
        texts = pool.map(
            lambda item: pack_text(item[1], *(({"manifest": manifest}, prime) if item[0] == "main" else ())), blobs.items()
        )
        return Payload(base85.encode(len(prime.text).to_bytes(4, "little") + prime.stream), dict(zip(blobs, texts, strict=True)))


def _manifest(
    snapshots: Sequence[Snapshot], tables: Sequence[DeviceTables], place: dict[str, str], title: str
) -> dict[str, object]:
    return {
        "format": FORMAT,
        "title": title,
        "snapshots": [
            {
                "file": snapshot.recording.name,
                "bytes": snapshot.recording.file_bytes,
                "settings": snapshot.recording.settings,
                "notes": snapshot.recording.notes,
            }
            for snapshot in snapshots
        ],
        "sections": place,
        "annotations": [
            [*row, number] for number, snapshot in enumerate(snapshots) for row in _annotation_rows(snapshot)
        ],
        "devices": [table.manifest for table in tables],
    }


def _annotation_rows(snapshot: Snapshot) -> list[tuple[object, ...]]:
    return snapshot.recording.annotations.select("device", "name", "stage", "time_us").rows()
