"""Prepares a comparison: snapshots in order, and their corresponding devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from snapreport.errors import SnapshotError
from snapreport.findings.diff import devices_with_data
from snapreport.number_format import device_name
from snapreport.snapshot import Snapshot

Order = Literal["given", "time", "name"]


def in_order(snapshots: Sequence[Snapshot]) -> tuple[list[Snapshot], Order]:
    """A series in order, and what it is ordered by: when the files were recorded, else their names, 2 before 10.

    Two snapshots stay in the order given: before and after.
    """
    if len(snapshots) < 3:
        return list(snapshots), "given"
    times = [_last_time(snapshot) for snapshot in snapshots]
    known = [time for time in times if time is not None]
    if len(set(known)) == len(snapshots):
        by_time = dict(zip(map(id, snapshots), known, strict=True))
        return sorted(snapshots, key=lambda snapshot: by_time[id(snapshot)]), "time"
    return sorted(snapshots, key=lambda snapshot: natural_key(snapshot.recording.name)), "name"


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key in which numbers within a name count as numbers."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part.lower()) for part in re.split(r"([0-9]+)", name)]


def _last_time(snapshot: Snapshot) -> int | None:
    """The time of the last event of any device, in µs; None where none is recorded."""
    latest = [snapshot.events(device)["time_us"].max() for device in snapshot.devices]
    return max((int(str(time)) for time in latest if time is not None), default=None)


def paired_devices(snapshots: Sequence[Snapshot], chosen: Sequence[int] | None = None) -> list[tuple[int, ...]]:
    """The corresponding devices, a number for each snapshot.

    ``chosen``: the user's, one for each snapshot. Else devices with the same number; else the only device with events
    of each snapshot. Raises :class:`SnapshotError` where nothing can be compared.
    """
    for snapshot in snapshots:
        if not devices_with_data(snapshot):
            raise SnapshotError(f"{snapshot.recording.path}: no events and no memory on any device: nothing to compare")
    if chosen is not None:
        return [_chosen(snapshots, chosen)]
    common = [
        device
        for device in devices_with_data(snapshots[0])
        if all(device in devices_with_data(other) for other in snapshots[1:])
    ]
    if common:
        return [(device,) * len(snapshots) for device in common]
    single = [_busiest(snapshot) for snapshot in snapshots]
    if all(len(devices) == 1 for devices in single):
        return [tuple(devices[0] for devices in single)]
    names = "; ".join(
        f"{snapshot.recording.name} has {_names(snapshot, devices_with_data(snapshot))}" for snapshot in snapshots
    )
    raise SnapshotError(f"no device in common: {names}; choose a pair with --device, e.g. --device 0:3")


def _chosen(snapshots: Sequence[Snapshot], chosen: Sequence[int]) -> tuple[int, ...]:
    if len(chosen) == 1:
        chosen = list(chosen) * len(snapshots)
    if len(chosen) != len(snapshots):
        raise SnapshotError(f"--device names {len(chosen)} devices for {len(snapshots)} snapshots; give one for each")
    for snapshot, device in zip(snapshots, chosen, strict=True):
        devices = devices_with_data(snapshot)
        if device not in devices:
            raise SnapshotError(
                f"{snapshot.recording.path}: no data on device {device}; it has {_names(snapshot, devices)}"
            )
    return tuple(chosen)


def _busiest(snapshot: Snapshot) -> list[int]:
    """The devices with events; without any, those with memory."""
    devices = devices_with_data(snapshot)
    return [device for device in devices if len(snapshot.events(device))] or devices


def _names(snapshot: Snapshot, devices: Sequence[int]) -> str:
    return ", ".join(device_name(snapshot.recording.devices[device].kind, device) for device in devices)
