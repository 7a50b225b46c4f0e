"""Reads hostile files as a program would, one after the other: ``python -m benchmarks.fuzz_worker FOLDER SEED REAL``.

Case numbers arrive on standard input, and a line of JSON for each goes to standard output. Whatever is read is compared
with the tests' oracle, which replays what Python's own unpickler makes of the same bytes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import pickletools
import sys
import traceback
import zipfile
from pathlib import Path
from typing import Any

from benchmarks.fuzz_cases import Case, Cases
from benchmarks.inputs import ROOT

REPORTS = 10  # one in so many cases that can be read is made into a report
LONGEST = 1500  # characters of a line that says what is wrong
COLUMNS = ("addr", "size", "origin", "alloc_event", "free_requested_event", "free_event", "stream")


class UnlikeError(Exception):
    """Numbers that differ from the oracle's."""


def main() -> None:
    folder, seed, real = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "real"
    sys.path.insert(0, str(ROOT / "tests"))
    cases = Cases(seed, real=real)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        number = int(line)
        case = cases.case(number)
        path = folder / "case.pickle"
        path.write_bytes(case.content)
        answer: dict[str, Any] = {"number": number, "kind": case.kind, "container": case.container}
        # Left to the command line, which ends its child.
        result = ("command line", "") if case.kind == "keys" else outcome(case, path, number)
        print(json.dumps({**answer, "result": result[0], "detail": result[1]}), flush=True)


def outcome(case: Case, path: Path, number: int) -> tuple[str, str]:
    """(``refused``, ``read``, ``same``, ``wrong`` or ``crash``, details). ``same``: read, with the oracle's numbers."""
    import snapreport

    try:
        snapshot = snapreport.load(path)
        json.dumps(snapshot.stats())
        if number % REPORTS == 0:
            from snapreport.report.build import build_report

            build_report([snapshot])
    except snapreport.SnapshotError as error:
        text = str(error)
        fits = len(text) <= LONGEST and len(text.splitlines()) == 1 and text.isprintable()
        return ("refused", "") if fits else ("crash", f"not a line: {text[:300]!r}")
    except BaseException:  # noqa: BLE001  # any other exception is what the test looks for
        return "crash", traceback.format_exc()[-3000:]
    try:
        return ("same", "") if compared(case, snapshot) else ("read", "")
    except UnlikeError as error:
        return "wrong", str(error)


def compared(case: Case, snapshot: Any) -> bool:
    """Whether the oracle has numbers for this file, which are then equal. Raises :class:`UnlikeError`."""
    from oracle import replay

    try:
        content = case.whole or unpacked(case.content)
        try:
            raw = _Plain(io.BytesIO(content)).load()
        except pickle.UnpicklingError:
            raw = _Plain(io.BytesIO(without_frames(content))).load()
    except Exception as error:  # noqa: BLE001
        raise UnlikeError(f"read, although Python reads nothing: {error!r}") from None
    try:
        devices = replay(raw)
        wanted = {number: numbers(device) for number, device in devices.items()}
    except Exception:  # noqa: BLE001  # values that the oracle, written for good files, does not know
        return False
    if list(snapshot.devices) != sorted(wanted):
        raise UnlikeError(f"devices {list(snapshot.devices)}, not {sorted(wanted)}")
    for number, want in wanted.items():
        timeline, table = snapshot.timeline(number), snapshot.allocations(number)
        got = {name: table[name].to_list() for name in COLUMNS}
        got |= {"allocated": timeline.allocated.tolist(), "reserved": timeline.reserved.tolist()}
        got |= {"peak": [timeline.peak_event, timeline.peak_bytes]}
        for name, values in want.items():
            if got[name] != values:
                raise UnlikeError(f"device {number}: {name} {str(got[name])[:200]}, not {str(values)[:200]}")
    return True


def without_frames(content: bytes) -> bytes:
    """The pickle without its marks for reading ahead. Python refuses a value that a mark of a wrong length cuts, though
    all of it is there; ``pickletools`` and snapreport do not look at the marks.
    """
    ends = [position for code, _, position in pickletools.genops(content) if code.name == "FRAME"]
    parts = zip([0, *(position + 9 for position in ends)], [*ends, len(content)], strict=True)
    return b"".join(content[begin:end] for begin, end in parts)


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"{module}.{name}")


def numbers(device: Any) -> dict[str, list[Any]]:
    """The oracle's columns. It has None for an absent stream, which snapreport reads as 0, and does not support
    addresses and sizes that are present but None.
    """
    rows = device.allocations
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    columns["stream"] = [stream or 0 for stream in columns["stream"]]
    if None in columns["addr"] or None in columns["size"]:
        raise ValueError("an address or a size is None")
    return columns | {
        "allocated": list(device.allocated),
        "reserved": list(device.reserved),
        "peak": [device.peak_event, device.peak_bytes],
    }


def unpacked(content: bytes) -> bytes:
    """The content inside all containers, by Python's own modules."""
    for _ in range(4):
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        elif content.startswith(b"\xfd7zXZ\0"):
            content = lzma.decompress(content)
        elif content.startswith(b"BZh"):
            content = bz2.decompress(content)
        elif content.startswith(b"\x28\xb5\x2f\xfd"):
            import zstandard

            with zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True) as stream:
                content = stream.read()
        elif content.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                name = next(i for i in archive.infolist() if i.filename.rpartition("/")[2] == "data.pkl")
                content = archive.read(name)
        else:
            break
    return content


if __name__ == "__main__":
    main()
