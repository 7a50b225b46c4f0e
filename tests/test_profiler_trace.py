"""Profiler traces: a real one against the tensors that lived, and each rule on small ones written by hand."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import corpus
import polars as pl
import pytest

import snapreport
from snapreport.findings.run import findings
from snapreport.report.build import build_report
from tests.cli import in_process
from tests.profiled import Profiled, profile

CPU = -1


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="no torch: nothing to profile")
    return tmp_path_factory.mktemp("profiled")


@pytest.fixture(scope="session")
def plain(folder: Path) -> Profiled:
    return profile(folder, "plain")


@pytest.fixture(scope="session")
def leak(folder: Path) -> Profiled:
    return profile(folder, "leak", ".json.gz")


def stack_of(snapshot: snapreport.Snapshot, number: int) -> list[str]:
    recording = snapshot.recording
    rows = recording.frames[recording.stack(number)].select("filename", "name").rows()
    return [f"{name} {file}".strip() for file, name in rows]


class TestReal:
    def test_what_lives_at_the_end_are_the_tensors_that_lived(self, plain):
        snapshot = snapreport.load(plain.trace)
        assert snapshot.devices == [CPU]
        live = snapshot.allocations(CPU).filter(pl.col("free_event") < 0)
        assert dict(live.select("addr", "size").rows()) == plain.tensors
        assert len(live) == len(plain.tensors)

    def test_allocated_is_what_the_profiler_counted_at_every_event(self, plain):
        snapshot = snapreport.load(plain.trace)
        events = json.loads(plain.trace.read_text())["traceEvents"]
        memory = sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"])
        counted = [e["args"]["Total Allocated"] for e in memory]
        assert snapshot.timeline(CPU).allocated[1:].tolist() == counted
        assert snapshot.timeline(CPU).reconciliation_bytes == 0
        assert snapshot.timeline(CPU).recording_gaps == []

    @pytest.mark.parametrize(
        ("kind", "category"), [("parameters", "parameter"), ("gradients", "gradient"), ("states", "optimizer state")]
    )
    def test_categories_are_the_truth(self, plain, kind, category):
        rows = snapreport.load(plain.trace).allocations(CPU).filter(pl.col("free_event") < 0)
        addresses = getattr(plain, kind)
        found = rows.filter(pl.col("addr").is_in(list(addresses)))
        assert len(found) == len(addresses)
        assert found["category"].unique().to_list() == [category]

    def test_stacks_are_the_enclosing_functions_and_operators(self, plain):
        snapshot = snapreport.load(plain.trace)
        rows = snapshot.allocations(CPU)
        weight = next(a for a, name in plain.parameters.items() if name == "blocks.0.up.weight")
        stack = stack_of(snapshot, rows.filter((pl.col("addr") == weight) & (pl.col("free_event") < 0))["stack"][0])
        assert stack[0] == "aten::empty"
        wanted = ["empty <built-in>", "__init__ torch/nn/modules/linear.py", "__init__ train.py", "<module> train.py"]
        places = [stack.index(line) for line in wanted]
        assert places == sorted(places)
        assert stack[-1] == "<module> train.py"

    def test_a_gradient_leads_to_the_forward_pass_of_its_own_layer(self, plain):
        snapshot = snapreport.load(plain.trace)
        rows = snapshot.allocations(CPU).filter(pl.col("free_event") < 0)
        for name, module in (("blocks.1.down.weight", "nn.Module: Block_1"), ("head.weight", "nn.Module: Model_0")):
            address = next(a for a, n in plain.gradients.items() if n == name)
            stack = stack_of(snapshot, rows.filter(pl.col("addr") == address)["stack"][0])
            backward = stack.index("autograd::engine::evaluate_function: AddmmBackward0")
            assert stack.index("aten::linear") > backward
            blocks = [line for line in stack if re.match(r"nn\.Module: (Block|Model)", line)]
            assert blocks[0] == module

    def test_steps_and_regions_are_there(self, plain):
        snapshot = snapreport.load(plain.trace)
        assert snapshot.steps(CPU)["name"].to_list() == [f"step {n}" for n in range(8)]
        assert "Optimizer.step#Adam.step" in snapshot.spans(CPU)["name"].to_list()

    def test_a_leak_is_found_where_it_is_and_none_where_there_is_none(self, plain, leak):
        found = [f for f in findings(snapreport.load(leak.trace)) if f.kind == "leak"]
        assert len(found) == 1
        assert "keep_loss train.py" in found[0].title
        assert found[0].evidence["bytes_per_step"] == 128 * 10 * 4 * 50
        assert not [f for f in findings(snapreport.load(plain.trace)) if f.kind == "leak"]

    def test_a_diff_shows_what_grew(self, plain, leak):
        result = in_process("diff", plain.trace, leak.trace)
        assert result.code == 0
        assert "keep_loss train.py" in result.out

    def test_a_compressed_trace_is_the_same(self, plain, tmp_path):
        packed = tmp_path / "t.json.gz"
        packed.write_bytes(gzip.compress(plain.trace.read_bytes()))
        assert snapreport.load(packed).allocations(CPU).equals(snapreport.load(plain.trace).allocations(CPU))

    def test_without_stacks_it_says_how_to_have_them(self, folder):
        result = in_process("stats", profile(folder, "bare").trace)
        assert "Stack traces have no Python functions. Profile with with_stack=True." in result.out

    def test_no_sentence_speaks_of_a_device_or_its_allocator(self, plain, leak):
        for trace in (plain.trace, leak.trace):
            for arguments in (["stats"], ["stats", "--markdown"]):
                text = in_process(*arguments, trace).out
                text = text.replace("no segments, streams, pools or settings of the allocator", "")
                header = "| Device | Peak allocated | max_memory_allocated() | Peak reserved | At the end"
                text = text.replace(header, "")
                assert not re.search(r"(?i)cuda|gpu|device|segment|reserved|cached|fragment|empty_cache|host", text), (
                    text
                )

    def test_a_part_of_it_has_the_whole_curve_of_its_range(self, plain):
        whole = snapreport.load(plain.trace)
        device = whole.devices[0]
        count = len(whole.events(device))
        part = whole.part(events=(count // 3, count // 2))
        expected = whole.curve(device)["allocated"].to_list()[count // 3 : count // 2 + 1]
        assert part.curve(device)["allocated"].to_list() == expected
        assert build_report([part])

    def test_what_cannot_be_told_is_said(self, plain):
        text = " ".join(in_process("stats", plain.trace).out.split())
        assert "At every event, allocated is what the profiler counted." in text
        assert "it has no segments, streams, pools or settings of the allocator" in text
        assert "Only tensors of PyTorch are counted" in text

    def test_a_what_if_says_why_not(self, plain):
        assert "the model covers CUDA memory, not cpu memory" in in_process("whatif", plain.trace).out

    def test_it_makes_a_report(self, plain):
        assert b"train.py" in build_report([snapreport.load(plain.trace)])


def memory(ts: float, size: int, address: int = 0x1000, **more: Any) -> dict[str, Any]:
    arguments = {"Bytes": size, "Addr": address, "Device Type": 1, "Device Id": 0, **more.pop("args", {})}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, **more,
            "args": arguments}  # fmt: skip


def call(name: str, ts: float, dur: float, tid: int = 1, cat: str = "python_function", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def loaded(tmp_path: Path, events: list[dict[str, Any]], **top: Any) -> snapreport.Snapshot:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events, **top}))
    return snapreport.load(path)


class TestByHand:
    def test_a_free_without_an_allocation_existed_before(self, tmp_path):
        total = {"Total Allocated": 300}
        events = [memory(1, 100, 16, args={"Total Allocated": 800}), memory(2, -500, 32, args=total)]
        snapshot = loaded(tmp_path, events)
        rows = snapshot.allocations(0)
        assert rows.select("origin", "size", "alloc_event", "free_event").rows() == [
            ("ghost", 200, -1, -1),  # included in the total and shown by no event
            ("freed", 500, -1, 1),
            ("traced", 100, 0, -1),
        ]
        assert snapshot.timeline(0).allocated.tolist() == [700, 800, 300]
        assert "700 B were allocated before profiling started" in in_process("stats", tmp_path / "trace.json").out

    def test_mapped_files_have_totals_of_their_own(self, tmp_path):
        """Events as a DataLoader's workers cause them: batches in shared memory, each with a total of 0."""
        events = []
        allocated = 0
        for number, (size, address, mapped) in enumerate([
            (256, 900, True), (512, 16, False), (128, 32, False), (256, 901, True), (-256, 900, True), (64, 48, False),
            (256, 900, True), (-256, 901, True), (-64, 48, False), (-512, 16, False), (-96, 800, True),
            (-128, 32, False), (-256, 900, True),
        ]):  # fmt: skip
            allocated += 0 if mapped else size
            total = {"Total Allocated": 0 if mapped else allocated, "Total Reserved": max(size, 0) if mapped else 0}
            events.append(memory(number, size, address, args={"Device Type": 0, "Device Id": -1, **total}))
        snapshot = loaded(tmp_path, events)
        timeline = snapshot.timeline(CPU)
        # 96 bytes were mapped before the trace.
        assert timeline.allocated.tolist() == [
            96, 352, 864, 992, 1248, 992, 1056, 1312, 1056, 992, 480, 384, 256, 0,
        ]  # fmt: skip
        assert timeline.recording_gaps == [] and not timeline.reserved.any()
        assert "reserved" not in in_process("stats", tmp_path / "trace.json").out.splitlines()[2]

    def test_a_data_loader_with_workers_loses_nothing(self, folder):
        """What PyTorch really reports of shared memory."""
        import torch
        from torch.profiler import ProfilerActivity
        from torch.utils.data import DataLoader

        path = folder / "loader.json"
        with torch.profiler.profile(
            activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True, record_shapes=True
        ) as profiler:
            doubled = [batch * 2 for batch in DataLoader(torch.arange(64.0), batch_size=16, num_workers=1)]
        profiler.export_chrome_trace(str(path))
        assert sum(float(one.sum()) for one in doubled) == 64 * 63
        events = json.loads(path.read_text())["traceEvents"]
        uncounted = [e for e in events if e["name"] == "[memory]" and e["args"]["Total Allocated"] < e["args"]["Bytes"]]
        assert len(uncounted) == 4
        assert snapreport.load(path).timeline(CPU).recording_gaps == []

    def test_nested_calls_of_two_threads(self, tmp_path):
        events = [
            call("a.py(1): outer", 0, 100),
            call("a.py(5): inner", 10, 20),
            call("b.py(1): other", 0, 100, tid=2),
            call("aten::empty", 12, 3, cat="cpu_op"),
            memory(13, 1, 16),
            memory(25, 1, 32),
            memory(40, 1, 48),
            memory(13, 1, 64, tid=2),
            memory(200, 1, 80),
        ]
        snapshot = loaded(tmp_path, events)
        rows = snapshot.allocations(0).sort("addr")
        stacks = [stack_of(snapshot, s) for s in rows["stack"]]
        assert stacks == [
            ["aten::empty", "inner a.py", "outer a.py"],
            ["inner a.py", "outer a.py"],
            ["outer a.py"],
            ["other b.py"],
            [],
        ]

    def test_backward_on_another_thread_is_bridged_by_its_sequence_number(self, tmp_path):
        events = [
            call("a.py(1): forward", 0, 50),
            call("aten::linear", 5, 20, cat="cpu_op", **{"Sequence number": 7, "Fwd thread id": 0}),
            call("aten::addmm", 10, 5, cat="cpu_op", **{"Sequence number": 7, "Fwd thread id": 0}),
            call("autograd::engine::evaluate_function: AddmmBackward0", 60, 20, tid=2, cat="cpu_op",
                 **{"Sequence number": 7, "Fwd thread id": 1}),
            call("aten::mm", 65, 5, tid=2, cat="cpu_op"),
            memory(66, 8, tid=2),
        ]  # fmt: skip
        snapshot = loaded(tmp_path, events)
        assert stack_of(snapshot, snapshot.allocations(0)["stack"][0]) == [
            "aten::mm",
            "autograd::engine::evaluate_function: AddmmBackward0",
            "aten::addmm",
            "aten::linear",
            "forward a.py",
        ]

    def test_devices_are_told_apart(self, tmp_path):
        kinds = {(0, -1): "cpu", (1, 0): "cuda", (1, 3): "cuda", (12, 0): "xpu"}
        events = [
            memory(n, 8, args={"Device Type": kind, "Device Id": number}) for n, (kind, number) in enumerate(kinds)
        ]
        snapshot = loaded(tmp_path, events)
        found = [(d, snapshot.timeline(d).kind) for d in snapshot.devices]
        assert found == [(-1, "cpu"), (0, "cuda"), (1, "xpu"), (3, "cuda")]

    def test_reserved_is_what_the_profiler_counted(self, tmp_path):
        total = {"Total Reserved": 2 << 20, "Total Allocated": 512}
        snapshot = loaded(tmp_path, [memory(1, 512, args=total)])
        assert snapshot.timeline(0).reserved.tolist() == [2 << 20, 2 << 20]
        assert "512 B allocated, 2.00 MiB reserved" in in_process("stats", tmp_path / "trace.json").out

    def test_times_count_from_the_base(self, tmp_path):
        snapshot = loaded(tmp_path, [memory(1_500_000.25, 8)], baseTimeNanoseconds=1_790_857_026_000_000_000)
        assert snapshot.events(0)["time_us"].to_list() == [1_790_857_027_500_000]

    def test_a_list_of_events_alone_is_a_trace(self, tmp_path):
        path = tmp_path / "t.json"
        path.write_text(json.dumps([memory(1, 8)]))
        assert len(snapreport.load(path).allocations(0)) == 1


class TestOtherJson:
    def test_an_exported_snapshot_is_the_snapshot(self, tmp_path):
        import pickle

        made = corpus.path_of("small")
        exported = tmp_path / "sample.json"
        exported.write_text(json.dumps(pickle.loads(made.read_bytes())))
        left, right = snapreport.load(made), snapreport.load(exported)
        assert left.devices == right.devices
        for device in left.devices:
            assert left.allocations(device).equals(right.allocations(device))
            assert left.segments(device).equals(right.segments(device))
        segments = tmp_path / "segments.json"
        segments.write_text("\n " + json.dumps(pickle.loads(made.read_bytes())["segments"]))
        assert snapreport.load(segments).segments(0).drop("stack").equals(left.segments(0).drop("stack"))

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ('{"a": 1, "b": 2}', "JSON with the keys 'a', 'b'; wanted is a memory snapshot, or a torch.profiler trace"),
            ("{}", "an empty JSON object; wanted is"),
            ("[]", "an empty JSON list; wanted is"),
            ('[{"x": 1}, {"x": 2}]', "a JSON list of 2 objects; wanted is"),
            ("[[1, 2], [3, 4]]", "looks like the memory timeline of torch.profiler (export_memory_timeline)"),
            ('{"schema": "snapreport-stats/3"}', "is output of snapreport itself (snapreport-stats/3)"),
            ('{"traceEvents": [{"ph": "X", "name": "f"}]}', "a profiler trace without memory events: record it with"),
            ('{"traceEvents": 3}', "JSON that is no profiler trace: Expected `array | null`, got `int`"),
            ('{"traceEvents": [{"ph": "i", "na', "damaged or cut short JSON"),
            ('{"segments": 3}', "segments: 3, not a list"),
            ('{"traceEvents": [{"name": "[memory]", "args": {"Bytes": "x"}}]}', "'Bytes' of an event is not a whole"),
            ('{"traceEvents": [{"name": "[memory]", "args": {"Bytes": 1e30}}]}', "more than any|64 bits"),
            ('{"traceEvents": [{"name": "[memory]", "ts": "x", "args": {"Bytes": 1}}]}', "a time that is no number"),
        ],
    )  # fmt: skip
    def test_one_line_says_what_it_looks_like(self, tmp_path, text, says):
        path = tmp_path / "x.json"
        path.write_text(text)
        result = in_process("stats", path)
        assert (result.code, result.out) == (2, "")
        assert result.err.count("\n") == 1
        assert any(part in result.err for part in says.split("|")), result.err

    def test_several_processes_in_one_trace(self, tmp_path):
        path = tmp_path / "x.json"
        path.write_text(json.dumps({"traceEvents": [memory(1, 8), memory(2, 8, pid=2)]}))
        assert "memory events of several processes in one trace" in in_process("stats", path).err

    def test_nested_deep(self, tmp_path):
        path = tmp_path / "x.json"
        path.write_text("[" * 200_000)
        result = in_process("stats", path)
        assert (result.code, result.err.count("\n")) == (2, 1)
