"""Cost by shape: recordings of as many events, of which each writes something else than the politest layout. Ratios of
processor time and memory to the bare unpickling of the same file, beside their limits.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVENTS = (300_000,)
# Of the bare load's processor time: (load, whole report), for what recorders write, and for files that were edited.
RECORDED, EDITED = (1.5, 3.0), (3.0, 4.5)
_LIVE = 200

_MEASURED = """
import gc, json, os, pickle, resource, sys, time
gc.disable()
what, path, out = sys.argv[1:]
if what == "bare":
    class Plain(pickle.Unpickler):
        def find_class(self, module, name):
            raise pickle.UnpicklingError(name)
    began = time.process_time()
    with open(path, "rb") as file:
        kept = Plain(file).load()
    taken = time.process_time() - began
elif what == "load":
    import snapreport, snapreport.snapshot  # a report's imports are its own cost
    began = time.process_time()
    kept = snapreport.load(path)
    taken = time.process_time() - began
elif what == "imported":
    import snapreport, snapreport.snapshot, snapreport.report.build, snapreport.report.page
    began = time.process_time()
    snapreport.write_report([snapreport.load(path)], out)
    taken = time.process_time() - began
else:
    import subprocess
    subprocess.run([sys.executable, "-P", "-m", "snapreport", path, "-o", out, "--force"], check=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN if what == "report" else resource.RUSAGE_SELF)
if what == "report":
    taken = usage.ru_utime + usage.ru_stime
print(json.dumps([taken, usage.ru_maxrss * 1024]), flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Shape:
    """``make``: a snapshot of about so many events. limits: see above. protocol: of the pickle."""

    name: str
    make: Callable[[int], Any]
    limits: tuple[float, float] = RECORDED
    protocol: int = 4


def fresh(text: str) -> str:
    """Another object with the same content, as PyTorch writes it for each entry."""
    return "".join(list(text)) if len(text) > 1 else text


def frame(number: int) -> dict[str, Any]:
    return {"filename": f"/home/user/model/layer{number % 40}.py", "line": number, "name": f"forward_{number}"}


def program(
    events: int,
    *,
    depth: int = 10,
    stacks: int = 300,
    change: Callable[[dict[str, Any], int], None] | None = None,
    stack: Callable[[random.Random, list[dict[str, Any]]], Any] | None = None,
    seed: int = 7,
) -> list[dict[str, Any]]:
    """A trace of allocations and frees in PyTorch's layout. change: edits an entry, given its number. stack: makes the
    frames of an allocation.
    """
    pick = random.Random(seed)
    frames = [frame(i) for i in range(700)]
    known = [[pick.choice(frames) for _ in range(depth)] for _ in range(stacks)]
    trace: list[dict[str, Any]] = []
    live: list[tuple[int, int]] = []

    def add(action: str, block: tuple[int, int], of: Any) -> None:
        entry = {
            "action": action, "addr": block[0], "size": block[1], "stream": 0,
            "time_us": 1795423888 * 10**6 + len(trace), "compile_context": fresh("N/A"), "user_metadata": "",
            "pool_id": (0, 0), "frames": of,
        }  # fmt: skip
        if change:
            change(entry, len(trace))
        trace.append(entry)

    while len(trace) < events:
        block = 0x7F << 40 | len(trace) << 13, pick.choice((512, 4096, 70_144, 1 << 20))
        add("alloc", block, stack(pick, frames) if stack else list(pick.choice(known)))
        live.append(block)
        if len(live) > _LIVE:
            freed = live.pop(pick.randrange(_LIVE))
            of = list(pick.choice(known)[:3])
            add("free_requested", freed, of)
            add("free_completed", freed, of)
    return trace


def snapshot(*traces: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"segments": [], "device_traces": list(traces), "external_annotations": [], **more}


def _with(**values: Callable[[int], Any]) -> Callable[[int], Any]:
    def change(entry: dict[str, Any], i: int) -> None:
        for key, value in values.items():
            entry[key] = value(i)

    return lambda events: snapshot(program(events, change=change))


def _deep(pick: random.Random, frames: list[dict[str, Any]]) -> Any:
    return [pick.choice(frames) for _ in range(10)] * 110


def _different(pick: random.Random, frames: list[dict[str, Any]]) -> Any:
    return [pick.choice(frames) for _ in range(10)]


def _new_file(pick: random.Random, frames: list[dict[str, Any]]) -> Any:
    return [{"filename": f"/tmp/generated/{pick.getrandbits(40)}.py", "line": 1, "name": "call"}, *frames[:8]]


def _each(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[int], Any]:
    return lambda events: snapshot([edit(entry) for entry in program(events)])


def _many_blocks(events: int) -> Any:
    count = max(1, events // 100)
    segments = []
    for i in range(count):
        start = 0x60 << 40 | i << 21
        block = {"size": 4096, "requested_size": 4000, "state": "active_allocated", "frames": []}
        blocks = [{"address": start + 4096 * j, **block} for j in range(100)]
        size = 409_600
        totals = dict.fromkeys(("total_size", "allocated_size", "active_size", "requested_size"), size)
        kind = {"stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False}
        segments.append({"device": 0, "address": start, **totals, **kind, "frames": [], "blocks": blocks})
    return snapshot(program(events // 5)) | {"segments": segments}


def _words(every: int, text: str) -> Callable[[int], str]:
    return lambda i: fresh(text.format(i)) if i % every == 0 else ""


SHAPES = (
    Shape("plain", lambda events: snapshot(program(events))),
    Shape("step N in each entry", _with(user_metadata=lambda i: fresh(f"step {i // 600}"))),
    Shape("JSON in each entry", _with(user_metadata=lambda i: fresh(f'{{"step": {i // 600}, "phase": "forward"}}'))),
    Shape("one step of seven", _with(user_metadata=lambda i: fresh(f"eval {i // 600}") if i // 600 % 7 == 6 else "")),
    Shape("every fifth", _with(user_metadata=_words(5, "request {}"))),
    Shape("unique", _with(user_metadata=lambda i: f"request {i:08x}")),
    Shape("840 compile contexts", _with(compile_context=lambda i: fresh(f"{i // 600 % 120}/{i // 100 % 7}"))),
    Shape("1,500 pools", _with(pool_id=lambda i: (i // 40 % 5, i // 200 % 300))),
    Shape("stacks of 60", lambda events: snapshot(program(events, depth=60))),
    Shape("stacks of 1,100", lambda events: snapshot(program(events // 5, stack=_deep))),
    Shape("all stacks different", lambda events: snapshot(program(events, stack=_different))),
    Shape("a new file each", lambda events: snapshot(program(events, stack=_new_file))),
    Shape("no stacks of frees", _each(lambda e: e if e["action"] == "alloc" else _without(e, "frames"))),
    Shape("32 streams", _with(stream=lambda i: i // 50 % 32 * 94_012_345_678)),
    Shape("64 devices", lambda events: snapshot(*(program(events // 64, seed=i) for i in range(64)))),
    Shape("blocks", _many_blocks),
    Shape("protocol 2", lambda events: snapshot(program(events)), EDITED, 2),
    Shape("protocol 5", lambda events: snapshot(program(events)), EDITED, 5),
    Shape("JSON and back", lambda events: json.loads(json.dumps(snapshot(program(events // 3)))), EDITED),
    Shape("frames as tuples", _each(lambda e: e | {"frames": tuple(e["frames"])}), EDITED),
    Shape("frames not shared", _each(lambda e: e | {"frames": [dict(one) for one in e["frames"]]}), EDITED),
    Shape("a key after frames", _each(lambda e: e | {"rank": 3}), EDITED),
    Shape("frames first", _each(lambda e: {"frames": e["frames"], **_without(e, "frames")}), EDITED),
    Shape("time_us None", _with(time_us=lambda _: None), EDITED),
    Shape("a key in some", _with(note=lambda i: i), EDITED),
)


def _without(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != key}


def cost(what: str, path: Path, out: Path) -> tuple[float, int]:
    """(processor seconds, bytes resident at the peak) of a process of its own."""
    command = [sys.executable, "-P", "-c", _MEASURED, what, str(path), str(out)]
    # An installed package has its bytecode. To compile 215 modules again takes 0.2 s.
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(out.parent / "bytecode")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | compiled)
    if done.returncode:
        sys.exit(f"{what} {path}: {done.stderr[-2000:]}")
    seconds, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory


def measure(folder: Path, sizes: list[int], names: list[str], runs: int) -> Iterator[dict[str, Any]]:
    """A row for each shape and size; of several runs the shortest of each. imported: load and report in a process that
    has imported the package, which takes as long as unpickling 300,000 events.
    """
    path = folder / "shape.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    cost("report", path, folder / "shape.html")  # writes the bytecode
    for events in sizes:
        for shape in SHAPES:
            if names and shape.name not in names:
                continue
            made = shape.make(events)
            with path.open("wb") as file:
                pickle.dump(made, file, shape.protocol)
            del made
            measured = {
                what: min(cost(what, path, folder / "shape.html") for _ in range(runs))
                for what in ("bare", "load", "imported", "report")
            }
            bare = measured["bare"]
            yield {
                "name": shape.name, "events": events, "bytes": path.stat().st_size, "bare": bare[0],
                "load": measured["load"][0] / bare[0], "load_limit": shape.limits[0],
                "imported": measured["imported"][0] / bare[0], "report": measured["report"][0] / bare[0],
                "report_limit": shape.limits[1],
                "memory": measured["report"][1] / bare[1],
            }  # fmt: skip


HEAD = (
    f"{'shape':22} {'events':>8} {'pickle':>8} {'bare':>7} {'load':>6} {'limit':>6} {'imported':>8} "
    f"{'report':>7} {'limit':>6} {'memory':>7}"
)


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['name']:22} {row['events']:8,} {row['bytes'] / 1e6:5.1f} MB {row['bare']:5.2f} s "
        f"{row['load']:6.2f} {row['load_limit']:6.1f} {row['imported']:8.2f} "
        f"{row['report']:7.2f} {row['report_limit']:6.1f} {row['memory']:7.2f}"
    )
