"""How much memory this process may still take: what the machine, its control groups and its own limit leave."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def available_memory(*, with_swap: bool) -> int | None:
    """Bytes; None where the system does not say (macOS, Windows)."""
    return min((*_machine_room(with_swap), *_group_rooms(), *_own_room()), default=None)


def _machine_room(with_swap: bool) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError, KeyError):
        facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        names = ("MemAvailable", "SwapFree") if with_swap else ("MemAvailable",)
        yield 1024 * sum(int(facts[name].split()[0]) for name in names)


def _own_room() -> Iterator[int]:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit


def _group_rooms(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Iterator[int]:
    """What the control groups of this process have left, of either version of the interface."""
    with contextlib.suppress(OSError, ValueError):
        for line in own.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                yield from _rooms_upwards(root, path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                yield from _rooms_upwards(root / "memory", path, *names)


def _rooms_upwards(root: Path, path: str, limit: str, usage: str, cached: str) -> Iterator[int]:
    folder = root / path.lstrip("/")
    while True:
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / limit).read_text())  # "max" is no number: no limit
            facts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            yield max(0, most - int((folder / usage).read_text()) + int(facts.get(cached, 0)))
        if folder == root or root not in folder.parents:
            return
        folder = folder.parent
