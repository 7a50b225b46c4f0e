"""The file's data: sections of columns, and the manifest that locates them.

The page decodes a section as a whole. Small reports have all sections in one blob, ``main``, since one brotli stream
compresses them against each other; in large ones each section is a separate blob, decoded when a view needs it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, convert, field

from snapreport import progress
from snapreport.contracts import plain
from snapreport.contracts.manifest import RawManifest
from snapreport.findings.opening import opening
from snapreport.packing.blob import GOOD_UP_TO, pack_encoded
from snapreport.packing.columns import Column, Encoded, encode_column
from snapreport.report.device_columns import DeviceTables, device_tables
from snapreport.report.leave_out import LeftOut
from snapreport.report.source_lines import SourceLines
from snapreport.report.source_links import REPOSITORY_LINKS, Rule, SourceLinks
from snapreport.report.stack_columns import stack_columns
from snapreport.snapshot import Snapshot

if TYPE_CHECKING:
    from snapreport.report.comparison import Comparison

FORMAT = 3
# Below this total of events and allocations, one blob is smaller and opens at once.
ONE_BLOB_UP_TO = 60_000
# Of data of more bytes than this, only blobs of up to SLOW_OF_LARGE are compressed slowly (blob.py): 1% of a large
# report's size would take a tenth of its time.
LARGE, SLOW_OF_LARGE = 1 << 20, 64 << 10
MAIN = "main"


class Payload(Struct, frozen=True):
    """``blobs``: name → text, ``main`` first."""

    blobs: dict[str, str]


class Sections(Struct, dict=True):
    """All encoded data of some snapshots for the page; :meth:`payload` packs all or part of it.

    ``pending``: section → its columns, which are still being encoded. ``place``: section → blob. ``extra``: more keys
    of the manifest.
    """

    title: str
    snapshots: Sequence[Snapshot]
    tables: list[DeviceTables]
    pending: dict[str, list[Future[list[Encoded]]]]
    place: dict[str, str]
    comparison: Comparison | None = None
    extra: dict[str, object] = field(default_factory=dict)
    _packed: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)

    @cached_property
    def columns(self) -> dict[str, list[list[Encoded]]]:
        """Section → its encoded columns, once they are all encoded."""
        return {name: [future.result() for future in futures] for name, futures in self.pending.items()}

    def payload(self, left_out: LeftOut) -> Payload:
        """The blobs without the omitted parts. Blobs that this does not affect are packed only once."""
        place = {name: blob for name, blob in self.place.items() if left_out.has_section(name)}
        manifest = _manifest(self.snapshots, self.tables, place, self.title, left_out)
        manifest.update(self.extra)
        if self.comparison:
            manifest["diff"] = self.comparison.manifest
        manifest = plain(convert(manifest, RawManifest))
        blobs: dict[str, list[Encoded]] = {MAIN: []}
        for name, blob in place.items():
            blobs.setdefault(blob, []).extend(p for parts in self.columns[name] for p in left_out.column(parts))
        texts: dict[str, str] = {}
        todo = {}
        for name, parts in blobs.items():
            key = (name, tuple(part.name for part in parts if part.layout == "c"))
            if name == MAIN or key not in self._packed:
                todo[name] = key
            else:
                texts[name] = self._packed[key]
        sizes = {name: sum(len(part.data) for part in parts) for name, parts in blobs.items()}
        is_large = sum(sizes.values()) > LARGE
        small = sum(size for size in sizes.values() if size <= SLOW_OF_LARGE)
        slow_up_to = GOOD_UP_TO if not is_large else SLOW_OF_LARGE if small <= GOOD_UP_TO else 0
        total = sum(sizes[name] for name in todo)
        # One core is for the summary, which is built meanwhile; a brotli encoder takes 16 MB at quality 8.
        with progress.stage("packing", total, "B") as bar, _workers(spare=1) as pool:

            def pack(name: str) -> str:
                meta = {"manifest": manifest} if name == MAIN else None
                text = pack_encoded(blobs[name], meta, slow_up_to)
                bar.advance(sizes[name])
                return text

            # The largest first, so that all cores end together; the order of the blobs does not depend on it.
            largest_first = sorted(todo, key=lambda name: -sizes[name])
            for name, text in zip(largest_first, pool.map(pack, largest_first), strict=True):
                texts[name] = self._packed[todo[name]] = text
        return Payload({name: texts[name] for name in blobs})


def build_sections(
    snapshots: Sequence[Snapshot],
    title: str,
    source: SourceLines | None = None,
    comparison: Comparison | None = None,
    links: SourceLinks = REPOSITORY_LINKS,
) -> Sections:
    """All data of ``snapshots`` for the page. Columns are encoded while the next ones are computed, and beyond.

    ``source``: lines to embed; ``comparison``: of the first with the last of them; ``links``: addresses of lines.
    """
    tables: list[DeviceTables] = []
    pending: dict[str, list[Future[list[Encoded]]]] = {}
    devices = [(number, snapshot, device) for number, snapshot in enumerate(snapshots) for device in snapshot.devices]
    rows = sum(len(snapshot.events(device)) for _, snapshot, device in devices)
    # numpy and brotli release the interpreter lock in long operations.
    with progress.stage("laying out", rows, "events") as bar, _workers(waits=False) as pool:

        def add(name: str, columns: list[Column]) -> None:
            pending.setdefault(name, []).extend(pool.submit(encode_column, column) for column in columns)

        rules = links.rules([snapshot.recording.recorder for snapshot in snapshots])
        numbering = stack_columns(snapshots, [rule for rule in rules if _is_named(rule, snapshots)])
        add("stacks", numbering.columns)
        if source and source.files:
            add("source", [Column("files", source.files, "json")])
        if comparison:
            add("diff", comparison.columns(numbering.base, sum(len(s.recording.stack_offsets) - 1 for s in snapshots)))
        for number, snapshot, device in devices:
            table = device_tables(
                snapshot, number, device, prefix=f"d{len(tables)}", stack_base=numbering.base[number], add=add
            )
            tables.append(table)
            bar.advance(len(snapshot.events(device)))
    small = sum(table.rows for table in tables) <= ONE_BLOB_UP_TO
    place = {name: MAIN if small else name for name in pending}
    return Sections(title, snapshots, tables, pending, place, comparison)


def _is_named(rule: Rule, snapshots: Sequence[Snapshot]) -> bool:
    """Whether stack traces contain the rule's directory anyway: a report names no other directory of the machine."""
    files = (snapshot.recording.frames["filename"].str.replace_all("\\", "/", literal=True) for snapshot in snapshots)
    return not rule.root or any(names.str.starts_with(f"{rule.root}/").any() for names in files)


@contextlib.contextmanager
def _workers(spare: int = 0, *, waits: bool = True) -> Iterator[ThreadPoolExecutor]:
    """As many threads as there are cores, less ``spare``: with six on two cores, laying out 920,183 events took 0.31 s
    instead of 0.24. ``waits``: for their work to end.
    """
    pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - spare), thread_name_prefix="snapreport-packing")
    try:
        yield pool
    finally:
        pool.shutdown(wait=waits)


def _manifest(
    snapshots: Sequence[Snapshot], tables: Sequence[DeviceTables], place: dict[str, str], title: str, left_out: LeftOut
) -> dict[str, object]:
    start = opening(snapshots)
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
            [*row, number]
            for number, snapshot in enumerate(snapshots)
            for row in snapshot.recording.annotations.select("device", "name", "stage", "time_us").iter_rows()
        ],
        "devices": [left_out.device(table.manifest) for table in tables],
        "opening": {"device": start.index, "event": start.event} if start else None,
        **left_out.manifest,
    }
