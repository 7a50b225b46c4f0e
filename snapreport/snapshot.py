"""A snapshot file, read: what ``snapreport.load`` gives. What queries and what-ifs need is imported with the first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from msgspec import UNSET, structs
from msgspec.structs import replace

from snapreport.errors import SnapshotError
from snapreport.forks import check_fork
from snapreport.reading.open import open_recording
from snapreport.reading.recording import DeviceRecord, Recording
from snapreport.reading.run_profile import RunProfile, profile_beside
from snapreport.timeline.build import DeviceTimeline, build_timeline
from snapreport.timeline.categories import StackCategories, stack_categories
from snapreport.timeline.category_rules import Rules, load_rules
from snapreport.timeline.curves import allocated_curve
from snapreport.timeline.device_use import device_use
from snapreport.timeline.serving_memory import serving_memory
from snapreport.timeline.stats import file_stats, private_pools
from snapreport.timeline.step_memory import step_memory
from snapreport.timeline.time_costs import run_costs

if TYPE_CHECKING:
    from snapreport.allocator.document import Answer
    from snapreport.contracts.stats import FileStats
    from snapreport.search.evaluate import Searcher
    from snapreport.search.texts import StackTexts
    from snapreport.timeline.part import Range


class Snapshot:
    """A snapshot file, read, that can be searched. Timelines and folded strings are made when first asked for."""

    def __init__(self, recording: Recording, rules: Rules | None = None, *, inference: bool = True) -> None:
        self.recording = recording
        self._rules = rules
        self._inference = inference
        self._timelines: dict[int, DeviceTimeline] = {}
        self._idle: DeviceTimeline | None = None  # that of any device on which nothing happened
        self._searchers: dict[int, Searcher] = {}

    def __repr__(self) -> str:
        return f"<Snapshot {self.recording.name!r} devices={self.devices}>"

    def _repr_html_(self) -> str:
        """The report, where a notebook shows this snapshot."""
        # By name: reports are above snapshots, and only notebooks ask for this.
        html: str = import_module("snapreport.notebook").frame([self])
        return html

    @cached_property
    def _categories(self) -> StackCategories:
        return stack_categories(self.recording, self._rules)

    @cached_property
    def _stack_texts(self) -> StackTexts:
        from snapreport.search.texts import StackTexts

        return StackTexts(self.recording)

    @property
    def devices(self) -> list[int]:
        """Device numbers in order, those without data too; -1 is pinned host memory."""
        return list(self.recording.devices)

    def events(self, device: int) -> pl.DataFrame:
        return self._record(device).events

    def segments(self, device: int) -> pl.DataFrame:
        return self._record(device).segments

    def allocations(self, device: int, *, with_stacks: bool = False) -> pl.DataFrame:
        """A row per allocation, in order of allocation. with_stacks: with ``function``, ``file``, ``line``,
        ``forward_stack``, ``forward_lines`` and ``forward_source``, see
        :func:`snapreport.timeline.stack_columns.with_stacks`.
        """
        if with_stacks:
            from snapreport.timeline.stack_columns import with_stacks as joined

            return joined(self.timeline(device))
        return self.timeline(device).allocations

    def curve(self, device: int) -> pl.DataFrame:
        """Memory after each event: ``position`` Int32 (event index, -1: before the first), ``allocated`` and
        ``reserved`` Int64 bytes.
        """
        timeline = self.timeline(device)
        position = pl.Series("position", np.arange(-1, len(timeline.events), dtype=np.int32))
        return pl.DataFrame(
            [position, pl.Series("allocated", timeline.allocated), pl.Series("reserved", timeline.reserved)]
        )

    def category_curve(self, device: int) -> pl.DataFrame:
        """Memory of each category after each event: ``position`` as in :meth:`curve`, and Int64 bytes in a column for
        every category that the device has; together they are ``allocated``.
        """
        timeline = self.timeline(device)
        allocations = timeline.allocations.with_columns(pl.col("category").cast(pl.String))
        columns = {"position": pl.Series(np.arange(-1, len(timeline.events), dtype=np.int32))}
        for (category,), rows in sorted(allocations.partition_by("category", as_dict=True).items()):
            born, freed, size = (rows[name].to_numpy() for name in ("alloc_event", "free_event", "size"))
            columns[str(category)] = pl.Series(allocated_curve(born, freed, size, len(timeline.events)))
        return pl.DataFrame(columns)

    def peak(self, device: int, step: int | None = None) -> dict[str, int]:
        """The highest ``allocated`` bytes after any event, the first such ``position``, ``reserved`` bytes there, and
        ``max_reserved``, the highest of those; of a training step: after its events. Raises KeyError for a step that
        the device does not have.
        """
        curve = self.curve(device)
        if step is not None:
            spans = self.steps(device).filter(pl.col("step") == step)
            if not len(spans):
                raise KeyError(f"no step {step} on device {device}; it has {self.steps(device)['step'].to_list()}")
            within = [
                pl.col("position").is_between(first, last)
                for first, last in spans.select("first_event", "last_event").iter_rows()
            ]
            curve = curve.filter(pl.any_horizontal(within))
        if not len(curve):
            raise KeyError(f"step {step} of device {device} has no events")
        highest = curve.row(curve["allocated"].arg_max() or 0, named=True)
        return {**highest, "max_reserved": int(curve["reserved"].to_numpy().max())}

    def frames(self, stack: int) -> pl.DataFrame:
        """The frames of a stack trace, innermost first: ``filename``, ``line``, ``name``; none for stack 0. Raises
        KeyError for a number that no stack has.
        """
        if not 0 <= stack < len(self.recording.stack_offsets) - 1:
            raise KeyError(f"no stack {stack} in this snapshot; it has {len(self.recording.stack_offsets) - 1}")
        return self.recording.frames.select("filename", "line", "name")[self.recording.stack(stack)]

    def steps(self, device: int) -> pl.DataFrame:
        """Training steps as far as the snapshot tells of them: ``step``, ``name``, ``first_event``, ``last_event``,
        ``source``.
        """
        return self.timeline(device).steps

    def modules(self, device: int) -> pl.DataFrame:
        """A row per recorded module, parents first, with its memory at the peak and all below it: the columns of
        :class:`snapreport.contracts.stats.ModuleMemory`.
        """
        from snapreport.timeline.module_tree import module_tree, modules_table

        return modules_table(module_tree(self.timeline(device)))

    def spans(self, device: int) -> pl.DataFrame:
        """Annotated spans: ``name``, ``kind``, ``first_event``, ``last_event``, ``depth``, ``start_us``, ``end_us``,
        ``starts``, ``ends``.
        """
        return self.timeline(device).annotated.spans

    def timeline(self, device: int) -> DeviceTimeline:
        """Raises KeyError for a device that is not in ``devices``, :class:`SnapshotError` for impossible sizes."""
        if device not in self._timelines:
            check_fork()
            record = self._record(device)
            is_idle = not (len(record.events) or len(record.segments) or len(record.blocks))
            if is_idle and self._idle:  # PyTorch writes all devices that a process sees, most of them idle
                timeline = structs.replace(self._idle, device=device, kind=record.kind, events=record.events)
            else:
                try:
                    timeline = build_timeline(self.recording, record, self._categories, inference=self._inference)
                except SnapshotError as error:
                    raise SnapshotError(f"{self.recording.path}: device {device}: {error}") from None
                self._idle = timeline if is_idle else self._idle
            self._keep(device, timeline)
        return self._timelines[device]

    def _keep(self, device: int, timeline: DeviceTimeline) -> None:
        timeline._others = lambda: [self.timeline(other) for other in self.devices if other != device]
        self._timelines[device] = timeline

    def part(self, *, events: Range | None = None, last: int | None = None, steps: Range | None = None) -> Snapshot:
        """This snapshot as if only some events of each device had been recorded: ``events`` from the first to the one
        before the end (None: to its end), the ``last`` ones, or those of ``steps``, by their numbers, end excluded.

        What is alive at its beginning is memory from before the trace; events are numbered from 0 again. Raises
        ValueError for a range without any, :class:`SnapshotError` if no device has an event in it.
        """
        from snapreport.timeline.part import PartChoice, part_of

        recording, timelines = part_of(self.recording, self.timeline, PartChoice(events, last, steps))
        part = Snapshot(recording, self._rules, inference=self._inference)
        for device, timeline in timelines.items():
            part._keep(device, timeline)
        return part

    def query(self, text: str, device: int | None = None) -> pl.DataFrame:
        """The allocations that match ``text``, in birth order, of one device or of all.

        The columns are those of :meth:`allocations` after ``device`` Int64. Raises :class:`QueryError` for a query that
        cannot be read, and KeyError for a device that is not in ``devices``.
        """
        from snapreport.search.grammar import parse

        parse(text)
        devices = self.devices if device is None else [device]
        frames = []
        for number in devices:
            mask = self.searcher(number).find(text).mask
            rows = self.allocations(number).filter(mask)
            frames.append(
                rows.insert_column(0, pl.Series("device", [number], dtype=pl.Int64).new_from_index(0, len(rows)))
            )
        return pl.concat(frames) if frames else pl.DataFrame()

    def stats(self, query: str | None = None) -> dict[str, Any]:
        """This file's entry in ``snapreport stats --json``; with a query each device says what matches it."""
        from snapreport.contracts import plain

        entry: dict[str, Any] = plain(self.file_stats(query))
        return entry

    def file_stats(self, query: str | None = None) -> FileStats:
        """As :meth:`stats`, as a Struct."""
        timelines = [self.timeline(device) for device in self.devices]
        devices = [
            replace(
                one.counted_stats,
                steps=step_memory(one) or UNSET,
                private_pools=private_pools(one) or UNSET,
                serving=serving_memory(one) or UNSET,
                device_use=device_use(one),
            )
            for one in timelines
        ]
        if query is not None:
            from snapreport.search.matches import device_matches

            devices = [replace(one, matches=device_matches(self.searcher(one.device), query)) for one in devices]
        return replace(file_stats(self.recording, devices), time=run_costs(timelines) or UNSET)

    def whatif(
        self,
        device: int | None = None,
        *,
        settings: Sequence[str] = (),
        without: Sequence[str] = (),
        scale: Sequence[tuple[str, float]] = (),
        memory: int | None = None,
        start: str = "fresh",
        cards: bool = True,
    ) -> dict[str, Any]:
        """What the recorded traces would have reserved under other settings: the document of ``snapreport whatif``.

        settings: PYTORCH_CUDA_ALLOC_CONF's syntax; without: queries whose allocations never happen; scale: (query,
        factor) of sizes; memory: bytes for the allocator; start: ``fresh`` or ``recorded``; cards: whether to search
        the minimum memory on which the trace runs. Raises :class:`SettingsError` and :class:`QueryError`.
        """
        from snapreport.contracts import plain
        from snapreport.contracts.whatif import WhatIfFile, whatif_document

        answers = self.whatif_answers(
            device, settings=settings, without=without, scale=scale, memory=memory, start=start, cards=cards
        )
        file = WhatIfFile(self.recording.path, [answer.device() for answer in answers])
        document: dict[str, Any] = plain(whatif_document([file]))
        return document

    def whatif_answers(self, device: int | None = None, **question: Any) -> list[Answer]:
        """As :meth:`whatif`, with the curves; devices without events are left out."""
        from snapreport.allocator.document import Question, answer

        devices = self.devices if device is None else [device]
        timelines = [timeline for number in devices if len((timeline := self.timeline(number)).events)]

        def mask(number: int, text: str) -> np.ndarray:
            return self.searcher(number).find(text).mask

        return [answer(timeline, Question(**question), mask) for timeline in timelines]

    def searcher(self, device: int) -> Searcher:
        from snapreport.search.evaluate import Searcher

        if device not in self._searchers:
            self._searchers[device] = Searcher(self.timeline(device), self._stack_texts)
        return self._searchers[device]

    def _record(self, device: int) -> DeviceRecord:
        try:
            return self.recording.devices[device]
        except KeyError:
            raise KeyError(f"no device {device} in this snapshot; it has {self.devices}") from None


def load(
    path: str | os.PathLike[str],
    rules: str | os.PathLike[str] | None = None,
    *,
    inference: bool = True,
    events: Range | None = None,
    last: int | None = None,
    steps: Range | None = None,
    profile: str | os.PathLike[str] | None = None,
) -> Snapshot:
    """Read a snapshot file (``-``: standard input). Raises :class:`SnapshotError` for whatever is not one.

    rules: a TOML file of categories that are asked before the built-in ones, see :func:`load_rules`. inference: whether
      categories that neither a stack nor a free tells are inferred from phases, sizes and lifetimes. events, last,
      steps: a part of the trace, see :meth:`Snapshot.part`. profile: a ``torch.profiler`` trace of the same run; by
      default the one that ``snapreport record --profile`` wrote beside the file.
    """
    own = None if rules is None else load_rules(rules)
    snapshot = Snapshot(open_recording(path), own, inference=inference)
    recording = snapshot.recording
    all_events = [device.events for device in recording.devices.values()]
    if profile is None:
        recording.profile = profile_beside(os.fspath(path), recording.recorder, all_events)
    else:
        recording.profile = RunProfile(os.fspath(profile), all_events)
        if recording.profile.activities is None:
            raise SnapshotError(recording.profile.problem)
    is_whole = events is None and last is None and steps is None
    return snapshot if is_whole else snapshot.part(events=events, last=last, steps=steps)
