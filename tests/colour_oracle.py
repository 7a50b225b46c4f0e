"""What allocations are coloured by, and how a colour looks once drawn, computed from the description alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from oracle import Device

Color = tuple[int, int, int]

FAINT = 0.24
UNITS = ("B", "KiB", "MiB", "GiB")


def lifetime(device: Device, allocation: int) -> int:
    """The number of positions at which it is live; a trace of n events has n + 1."""
    a = device.allocations[allocation]
    return (len(device.events) if a.free_event == -1 else a.free_event) - a.alloc_event + (a.free_event == -1)


def size_name(size: int) -> str:
    """The power of two that a size falls into, as text."""
    if size < 512:
        return "< 512 B"
    if size >= 1 << 30:
        return "≥ 1 GiB"
    low = 1 << (size.bit_length() - 1)
    return f"{words(low)} to {words(2 * low)}"


def words(size: int) -> str:
    power = (size.bit_length() - 1) // 10
    return f"{size >> 10 * power} {UNITS[power]}"


def age_name(events: int, positions: int) -> str:
    if events >= positions:
        return "the whole trace"
    if events < 10:
        return "under 10 events"
    low = 10 ** (len(str(events)) - 1)
    return f"{low:,} events and more" if low >= 10**6 else f"{low:,} to {10 * low - 1:,} events"


def groups(device: Device) -> dict[str, Callable[[int], Hashable]]:
    """By colouring: what two allocations must share to have the same colour."""
    of = device.allocations
    return {
        "stack": lambda i: of[i].stack,
        "size": lambda i: size_name(of[i].size),
        "age": lambda i: age_name(lifetime(device, i), len(device.events) + 1),
        "stream": lambda i: of[i].stream,
        "origin": lambda i: of[i].origin,
    }


@dataclass
class Sum:
    bytes: int = 0
    count: int = 0


def held(device: Device, group: Callable[[int], Hashable], position: int) -> dict[Hashable, Sum]:
    """Bytes and allocations of every group live at a position (an event; -1: before the first)."""
    sums: dict[Hashable, Sum] = defaultdict(Sum)
    for i in device.live_at(position):
        sums[group(i)].bytes += device.allocations[i].size
        sums[group(i)].count += 1
    return dict(sums)


def painted(color: Color, allocation: int) -> Color:
    """A colour as an allocation's band shows it: slightly lighter or darker, to set neighbours apart."""
    shade = ((allocation + 1) * 0x9E3779B1 & 0xFFFFFFFF) >> 24
    return tuple(min(255, round(part * (1 + 0.09 * (shade / 128 - 1)))) for part in color)  # type: ignore[return-value]


def faint(color: Color, panel: Color) -> Color:
    """The colour of an allocation that does not match."""
    return tuple(round(FAINT * part + (1 - FAINT) * back) for part, back in zip(color, panel, strict=True))  # type: ignore[return-value]
