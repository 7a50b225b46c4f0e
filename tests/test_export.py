"""Exports are read back by the libraries of their formats, and say what the snapshot says."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import corpus
import jsonschema
import numpy as np
import polars as pl
import pytest
from cli import in_process, on_loaded
from generator import write
from PIL import Image

import snapreport

NAME = "snap.pickle"
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def snap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / NAME
    write(path, "multi-gpu", steps=2, layers=2, devices=2)
    return path


@pytest.fixture(scope="module")
def snapshot(snap: Path) -> snapreport.Snapshot:
    return snapreport.load(snap)


def exported(snap: Path, kind: str, path: Path, *options: str) -> Path:
    run = in_process("export", snap, "--to", kind, "-o", path, *options)
    assert run.code == 0, run.err
    return path


def curve_at(snapshot: snapreport.Snapshot, device: int, position: int) -> int:
    return int(snapshot.curve(device).filter(pl.col("position") == position)["allocated"][0])


@pytest.mark.skipif(not shutil.which("go"), reason="pprof's own reader comes with Go: apt-get install golang-go")
def test_pprof_itself_reads_its_format(snap: Path, snapshot: snapreport.Snapshot, tmp_path: Path) -> None:
    path = exported(snap, "pprof", tmp_path / "heap.pb.gz")
    read = subprocess.run(["go", "tool", "pprof", "-raw", str(path)], capture_output=True, text=True, check=True).stdout
    head, _, samples = read.partition("Samples:\n")[2].partition("\n")
    assert head.split() == [
        "alloc_objects/count",
        "alloc_space/bytes",
        "inuse_objects/count",
        "inuse_space/bytes[dflt]",
    ]
    rows = re.findall(r"^ +(\d+) +(\d+) +(\d+) +(\d+): [\d ]+$", samples.partition("Locations")[0], re.MULTILINE)
    live = sum(snapshot.peak(device)["allocated"] for device in snapshot.devices)
    assert sum(int(row[3]) for row in rows) == live
    assert sum(int(row[0]) for row in rows) == sum(len(snapshot.allocations(device)) for device in snapshot.devices)


class TestTables:
    def test_parquet_is_what_the_library_gives(self, snap: Path, snapshot: snapreport.Snapshot, tmp_path: Path) -> None:
        folder = exported(snap, "parquet", tmp_path / "lake")
        rows = pl.read_parquet(folder / "allocations.parquet")
        assert rows["snapshot"].unique().to_list() == [NAME]
        for device in snapshot.devices:
            mine = snapshot.allocations(device, with_stacks=True).with_columns(pl.col(pl.Enum).cast(pl.String))
            assert rows.filter(pl.col("device") == device).drop("snapshot", "device").equals(mine)
        stack = int(rows["stack"].max())  # type: ignore[arg-type]
        frames = pl.read_parquet(folder / "stack_frames.parquet").filter(pl.col("stack") == stack).sort("depth")
        expected = snapshot.frames(stack)
        assert frames["function"].to_list() == expected["name"].to_list()
        assert frames["file"].to_list() == expected["filename"].to_list()
        again = in_process("export", snap, "--to", "parquet", "-o", folder)
        assert again.code == 2
        assert "not empty" in again.err

    def test_several_snapshots_are_folders_of_one_query(self, snap: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.pickle"
        other.write_bytes(snap.read_bytes())
        run = in_process("export", snap, other, "--to", "parquet", "-o", tmp_path / "lake")
        assert run.code == 0, run.err
        every = pl.read_parquet(tmp_path / "lake" / "*" / "allocations.parquet")
        counts = every.group_by("snapshot").len().sort("snapshot")
        assert counts["snapshot"].to_list() == ["other.pickle", NAME]
        assert counts["len"].n_unique() == 1

    def test_the_query_of_the_page_reads_a_lake(
        self, snap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import duckdb

        monkeypatch.chdir(tmp_path)
        (tmp_path / "other.pickle").write_bytes(snap.read_bytes())
        assert in_process("export", snap, "other.pickle", "--to", "parquet", "-o", "lake").code == 0
        _, sql = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "export.md").read_text("utf-8"), re.DOTALL)
        rows = duckdb.sql(sql).fetchall()
        largest = max(int(snapreport.load(snap).allocations(d)["size"].max()) for d in (0, 1))  # type: ignore[arg-type]
        assert {name for name, _, _ in rows} == {NAME, "other.pickle"} and rows[0][2] == largest

    @pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
    def test_databases_hold_the_rows_of_all_snapshots(
        self, kind: str, snap: Path, snapshot: snapreport.Snapshot, tmp_path: Path
    ) -> None:
        path = tmp_path / "memory.db"
        run = in_process("export", snap, snap, "--to", kind, "-o", path)
        assert run.code == 0, run.err
        device = snapshot.devices[0]
        table = snapshot.allocations(device)
        size = {row[0]: row[1] for row in table.group_by("category").agg(pl.col("size").sum()).iter_rows()}
        query = f"SELECT category, SUM(size) FROM allocations WHERE device = {device} GROUP BY category"
        assert {name: int(total) for name, total in ask(kind, path, query)} == {n: 2 * s for n, s in size.items()}
        joined = "SELECT COUNT(*) FROM allocations a JOIN stacks s ON s.stack = a.stack AND s.snapshot = a.snapshot"
        assert ask(kind, path, joined)[0][0] == 2 * 2 * sum(len(snapshot.allocations(d)) for d in snapshot.devices)

    def test_csv(self, snap: Path, snapshot: snapreport.Snapshot, tmp_path: Path) -> None:
        folder = exported(snap, "csv", tmp_path / "csv")
        rows = pl.read_csv(folder / "curve.csv")
        assert rows["allocated"].max() == max(snapshot.peak(device)["allocated"] for device in snapshot.devices)


def ask(kind: str, path: Path, query: str) -> list[Any]:
    if kind == "sqlite":
        connection = sqlite3.connect(path)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()
    import duckdb

    with duckdb.connect(str(path), read_only=True) as opened:
        return opened.execute(query).fetchall()


class TestProfiles:
    @pytest.mark.parametrize("at", ["peak", "end", "5"])
    def test_all_formats_hold_the_bytes_of_the_moment(
        self, at: str, snap: Path, snapshot: snapreport.Snapshot, tmp_path: Path
    ) -> None:
        expected = 0
        for device in snapshot.devices:
            last = len(snapshot.events(device)) - 1
            position = {"peak": snapshot.peak(device)["position"], "end": last}.get(at, 5)
            expected += curve_at(snapshot, device, position)
        lines = exported(snap, "folded", tmp_path / "a.folded", "--at", at).read_text().splitlines()
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == expected
        document = json.loads(exported(snap, "speedscope", tmp_path / "a.json", "--at", at).read_text())
        assert sum(sum(profile["weights"]) for profile in document["profiles"]) == expected
        for profile in document["profiles"]:
            assert profile["endValue"] == sum(profile["weights"])
            assert max(map(max, profile["samples"])) < len(document["shared"]["frames"])
        names = {
            "; ".join(document["shared"]["frames"][i]["name"] for i in sample)
            for profile in document["profiles"]
            for sample in profile["samples"]
        }
        messages = decoded(gzip.decompress(exported(snap, "pprof", tmp_path / "a.pb.gz", "--at", at).read_bytes()))
        strings = [value.decode() for value in messages[6]]
        assert [strings[decoded(one)[1][0]] for one in messages[1]][3] == "inuse_space"
        samples = [decoded(one) for one in messages[2]]
        assert sum(packed(one[2])[3] for one in samples) == expected
        locations = {decoded(one)[1][0]: decoded(decoded(one)[4][0])[1][0] for one in messages[4]}
        functions = {decoded(one)[1][0]: strings[decoded(one)[2][0]] for one in messages[5]}
        live = [one for one in samples if packed(one[2])[3]]
        assert {
            "; ".join(functions[locations[i]] for i in reversed(packed(one[1]))) for one in live
        } == names  # outermost first in both

    def test_speedscope_is_valid_by_its_own_schema(self, snap: Path, tmp_path: Path) -> None:
        schema = corpus.NODE_MODULES / "speedscope" / "dist" / "release" / "file-format-schema.json"
        if not schema.exists():
            pytest.skip("speedscope's schema comes with npm ci")
        for options in ((), ("--of", "segments")):
            document = json.loads(exported(snap, "speedscope", tmp_path / "a.json", *options, "--force").read_text())
            jsonschema.validate(document, json.loads(schema.read_text()))

    def test_a_moment_that_is_none(self, snap: Path, tmp_path: Path) -> None:
        run = in_process("export", snap, "--to", "folded", "-o", tmp_path / "x", "--at", "noon")
        assert run.code == 2
        assert "neither peak nor end nor an event" in run.err


def decoded(data: bytes) -> dict[int, list[Any]]:
    """A protobuf message by field number; written after the encoding's specification, without the schema."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            assert key & 7 == 2
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        fields.setdefault(key >> 3, []).append(value)
    return fields


def packed(values: list[bytes]) -> list[int]:
    result, at = [], 0
    while at < len(values[0]):
        value, at = varint(values[0], at)
        result.append(value)
    return result


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


class TestTraces:
    def test_perfetto(self, snap: Path, snapshot: snapreport.Snapshot, tmp_path: Path) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

        trace = proto.Trace.FromString(exported(snap, "perfetto", tmp_path / "a.perfetto").read_bytes())
        tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
        device = snapshot.devices[0]
        (parent,) = (uuid for uuid, one in tracks.items() if one.name == f"cuda:{device}")
        points: dict[str, list[tuple[int, int]]] = {}
        depth: dict[int, int] = {}
        for packet in trace.packet:
            event = packet.track_event
            if event.type == proto.TrackEvent.TYPE_COUNTER and tracks[event.track_uuid].parent_uuid == parent:
                points.setdefault(tracks[event.track_uuid].name, []).append((packet.timestamp, event.counter_value))
            elif event.type in (proto.TrackEvent.TYPE_SLICE_BEGIN, proto.TrackEvent.TYPE_SLICE_END):
                change = 1 if event.type == proto.TrackEvent.TYPE_SLICE_BEGIN else -1
                depth[event.track_uuid] = depth.get(event.track_uuid, 0) + change
        assert not any(depth.values())
        self.check(points, snapshot, device, 1000)
        names = {one.name for one in tracks.values()}
        assert {"steps", "allocated", "reserved"} <= names

    def test_chrome_trace(self, snap: Path, snapshot: snapreport.Snapshot, tmp_path: Path) -> None:
        events = json.loads(exported(snap, "chrome-trace", tmp_path / "a.json").read_text())["traceEvents"]
        device = snapshot.devices[0]
        (process,) = (e["pid"] for e in events if e["ph"] == "M" and e["args"].get("name") == f"cuda:{device}")
        points: dict[str, list[tuple[int, int]]] = {}
        for event in events:
            if event["ph"] == "C" and event["pid"] == process:
                points.setdefault(event["name"], []).append((event["ts"], event["args"]["bytes"]))
        self.check(points, snapshot, device, 1)
        slices = [event for event in events if event["ph"] == "X" and event["pid"] == process]
        assert all(event["dur"] >= 0 for event in slices)
        kept = [e for e in slices if "bytes" in e["args"]]
        largest = snapshot.allocations(device)["size"].sort(descending=True)
        assert sorted((e["args"]["bytes"] for e in kept), reverse=True) == largest.head(len(kept)).to_list()
        for lane in {event["tid"] for event in kept}:
            within = sorted((e["ts"], e["ts"] + e["dur"]) for e in kept if e["tid"] == lane)
            assert all(before[1] <= after[0] for before, after in pairwise(within))

    @staticmethod
    def check(points: dict[str, Any], snapshot: snapreport.Snapshot, device: int, unit: int) -> None:
        """The counters at each moment of time against the curve after the moment's last event."""
        times = np.maximum.accumulate(snapshot.events(device)["time_us"].to_numpy().astype(np.int64))
        last = np.flatnonzero(np.append(times[1:] != times[:-1], True))
        curve = snapshot.curve(device)
        for name in ("allocated", "reserved"):
            at, value = (np.array(column) for column in zip(*points[name], strict=True))
            assert (np.diff(at) > 0).all()
            shown = value[np.searchsorted(at, times[last] * unit, side="right") - 1]
            assert (shown == curve[name].to_numpy()[1:][last]).all()
        sums = np.zeros(len(last), np.int64)
        for name in set(points) - {"allocated", "reserved"}:
            at, value = (np.array(column) for column in zip(*points[name], strict=True))
            sums += value[np.searchsorted(at, times[last] * unit, side="right") - 1]
        assert (sums == curve["allocated"].to_numpy()[1:][last]).all()

    def test_without_times_events_are_microseconds(self, tmp_path: Path) -> None:
        import pickle

        trace = [
            {"action": action, "addr": 4096, "size": 512, "stream": 0, "frames": []}
            for action in ("alloc", "free_requested", "free_completed")
        ]
        path = tmp_path / "no_times.pickle"
        path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
        run = in_process("export", path, "--to", "chrome-trace", "-o", "-")
        assert "has no times" in run.err
        counters = [e for e in json.loads(run.out)["traceEvents"] if e["ph"] == "C" and e["name"] == "allocated"]
        assert [(e["ts"], e["args"]["bytes"]) for e in counters] == [(0, 512), (2, 0)]


class TestPictures:
    def test_svg_and_png(self, snap: Path, tmp_path: Path) -> None:
        svg = exported(snap, "svg", tmp_path / "a.svg")
        text = " ".join(ET.parse(svg).getroot().itertext())
        assert "reserved" in text
        assert "peak" in text
        assert exported(snap, "svg", tmp_path / "b.svg").read_bytes() == svg.read_bytes()
        with Image.open(exported(snap, "png", tmp_path / "a.png")) as image:
            assert len(image.convert("RGB").getcolors(1 << 24)) > 6


class TestRefused:
    def test_a_file_of_somebody_else(self, snap: Path, tmp_path: Path) -> None:
        other = tmp_path / "notes.txt"
        other.write_text("mine")
        for kind in ("folded", "sqlite"):
            run = in_process("export", snap, "--to", kind, "-o", other)
            assert run.code == 2
            assert "--force replaces it" in run.err
        assert other.read_text() == "mine"

    def test_what_does_not_go_together(self, snap: Path) -> None:
        assert in_process("export", snap, "--to", "sqlite", "-o", "-").code == 2
        assert in_process("export", snap, "--to", "csv", "-o", "x", "--at", "end").code == 2

    def test_redacted(self, snap: Path, tmp_path: Path) -> None:
        def strings(node: Any) -> Iterator[str]:
            if isinstance(node, dict):
                for value in node.values():
                    yield from strings(value)
            elif isinstance(node, list):
                for value in node:
                    yield from strings(value)
            elif isinstance(node, str):
                yield node

        path = exported(snap, "speedscope", tmp_path / "a.json", "--redact-pattern", "train")
        assert not [text for text in strings(json.loads(path.read_text())["shared"]) if "train" in text]


@pytest.mark.parametrize(
    "name", ["oom", "small", "multi-gpu", "expandable_oom_3gpu.pickle", "forward_of_trained.pickle"]
)
def test_segments_by_what_caused_them_are_what_is_reserved(name: str, tmp_path: Path) -> None:
    if name not in corpus.names():
        pytest.skip("needs ../shared")
    path, recording = corpus.path_of(name), corpus.loaded(corpus.path_of(name))
    devices = [device for device in recording.devices if recording.timeline(device).reserved.any()]
    for at in ("peak", "end"):
        run = on_loaded("export", path, "--to", "folded", "--of", "segments", "--at", at, "-o", "-")
        lines = run.out.splitlines()
        for device in devices:
            timeline = recording.timeline(device)
            position = timeline.peak_event if at == "peak" else len(timeline.events) - 1
            sizes = [int(line.rpartition(" ")[2]) for line in lines if line.startswith(f"cuda:{device} ")]
            assert sum(sizes) == timeline.reserved[position + 1]
    # A segment of the trace is under the stack trace of the event that allocated it.
    first = next((e for e in recording.events(devices[0]).rows(named=True) if e["action"] == "segment_alloc"), None)
    if first and first["stack"]:
        outermost = recording.frames(first["stack"])["name"][-1]
        assert any(f";{outermost} " in line or f";{outermost};" in line for line in lines)
    assert in_process("export", path, "--to", "svg", "--of", "segments", "-o", tmp_path / "x.svg").code == 2
