"""Builds a snapshot from options: runs the workload on each device and assembles what torch's `_snapshot()` returns."""

from __future__ import annotations

import gc
import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from generator.allocator import Allocator, OutOfMemoryError
from generator.device import BudgetSpentError, Device
from generator.layout import entry_dicts, segment_dicts, settings_dict
from generator.memory import DeviceMemory
from generator.options import MIB, Options, make_options
from generator.overlap import Overlap
from generator.pinned import PinnedMemory
from generator.plants import Plants
from generator.recorder import Recorder
from generator.serving import Serving
from generator.stacks import StackBook
from generator.training import Training

START_US = 1_760_000_000_000_000
"""The clock's start: 9 October 2025."""
OTHER_BYTES = 520 * MIB
"""Device memory outside the allocator: the CUDA context and loaded kernels."""

Workload = Training | Serving | Overlap
_WORKLOADS: dict[str, type[Training] | type[Serving] | type[Overlap]] = {
    "training": Training, "serving": Serving, "overlap": Overlap,
}  # fmt: skip


def make(preset: str | None = None, **given: Any) -> dict[str, Any]:
    """A snapshot as `torch.cuda.memory._snapshot()` returns it: segments, device_traces, settings, annotations.

    `given` are the fields of `Options`; raises ValueError for an invalid one. Equal options give equal snapshots.
    """
    options = make_options(preset, **given)
    with _no_collection():
        book = StackBook(options.stacks, options.depth)
        devices = [_run(options, index, book) for index in range(options.devices)]
        frames = options.context in ("all", "alloc")
        annotations = [note for device in devices for note in device.recorder.annotations]
        snapshot: dict[str, Any] = {
            "segments": [segment for device in devices for segment in segment_dicts(device.allocator)],
            "device_traces": [
                entry_dicts(device.recorder, options.layout, options.times, frames) for device in devices
            ],
        }
        if options.layout != "2.1":
            overflowed = any(device.recorder.overflowed for device in devices)
            snapshot["allocator_settings"] = settings_dict(options, overflowed)
        if options.host:
            pinned = PinnedMemory(options, START_US, book)
            pinned.run(max(device.steps for device in devices))
            snapshot["host_segments"] = pinned.segments()
            snapshot["host_traces"] = entry_dicts(pinned.recorder, options.layout, options.times, frames)
        snapshot["external_annotations"] = sorted(annotations, key=lambda note: note["time_us"])
        return snapshot


def write(path: Path, preset: str | None = None, **options: Any) -> None:
    """Makes a snapshot and writes it as a pickle."""
    snapshot = make(preset, **options)
    with _no_collection():
        path.write_bytes(pickle.dumps(snapshot, 4))


def _run(options: Options, index: int, book: StackBook) -> Device:
    """Run the workload on one device to its end: its steps, its event budget, or running out of memory."""
    rng = random.Random(options.seed * 1009 + index)
    recorder = Recorder(START_US, rng, options.max_entries)
    memory = DeviceMemory(index, options.memory, OTHER_BYTES)
    allocator = Allocator(index, memory, recorder, options.expandable, options.max_split_size)
    oom = options.oom if index == options.oom_device % options.devices else "none"
    budget = options.events if oom == "none" else None
    device = Device(allocator, rng, budget, options.context, options.own_stacks)
    workload = _WORKLOADS[options.workload](device, options, book)
    plants = Plants(device, options, book, workload.place)
    try:
        _loop(options, device, workload, plants)
        if oom == "demand":
            workload.outgrow()
        elif oom == "fragmentation":
            plants.fragment()
    except (BudgetSpentError, OutOfMemoryError):
        pass
    return device


def _loop(options: Options, device: Device, workload: Workload, plants: Plants) -> None:
    recorder = device.recorder
    recorder.recording = options.record_from == 0
    workload.setup()
    plants.setup()
    number = before = 0
    last = None if options.steps is None else options.record_from + options.steps
    while last is None or number < last:
        recorder.recording = number >= options.record_from
        # Without a budget that stops it mid-step, a run that will end in an OOM stops before the step that exceeds the
        # events.
        if device.budget is None and options.events is not None and 2 * recorder.count - before > options.events:
            break
        before = recorder.count
        _label(options, recorder, number)
        with device.annotation(f"ProfilerStep#{number}"):
            workload.step(number)
            plants.step(number)
        number += 1
        device.steps = number - options.record_from


def _label(options: Options, recorder: Recorder, number: int) -> None:
    """Sets user_metadata to the step; the first two steps compile."""
    if options.metadata:
        recorder.user_metadata = f"step={number}"
    if options.compiled:
        recorder.compile_context = f"0/{number}" if number < 2 else "N/A"


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pauses the garbage collector, which would repeatedly traverse millions of dicts without cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
