"""Memory in use on a device beside PyTorch's: planted by a program over the fake driver, and by hand."""

from __future__ import annotations

import functools
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cli
import hypothesis
import pytest
from fake_torch import PROGRAMS, TRAIN, FakeTorch, raw, snapshots
from hypothesis import strategies as st
from planted_trace import MIB, Recording

import snapreport
from snapreport.findings.run import findings
from snapreport.reading.device_memory import SCHEMA, device_memory
from snapreport.recorder.memory_alarm import MemoryAlarm

TOTAL = 4096 * MIB
CONTEXT = 500 * MIB
PLANTED = {"FAKE_CUBLAS_MIB": 64, "FAKE_GRAPH_MIB": 32, "FAKE_NCCL_MIB": 128}
STEP_US = 100_000  # between two samples made by hand
# What the main thread runs, innermost first, and what that says.
FRAMES = [
    ["/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 2806, "all_reduce"],
    ["/venv/lib/python3.12/site-packages/torch/cuda/graphs.py", 88, "replay"],
    ["/home/ada/train.py", 12, "step"],
    ["/home/ada/train.py", 40, "main"],
]
STACKS = [[2, 3], [0, 2, 3], [1, 2, 3]]


def by_hand() -> tuple[dict[str, Any], list[tuple[str, int]]]:
    """A snapshot whose samples are reserved memory plus what is planted, and what was planted in order."""
    planted = [
        ("CUDA context", CONTEXT), ("NCCL", 256 * MIB), ("other processes", 1024 * MIB),
        ("CUDA graphs", 40 * MIB), ("kernels and libraries", 24 * MIB), ("other processes", -512 * MIB),
    ]  # fmt: skip
    stack = {"NCCL": 1, "CUDA graphs": 2}
    device, held = Recording(), []
    columns: dict[str, list[int]] = {
        name: [] for name in ("times_us", "since_us", "used", "own", "stacks", "stacks_before")
    }
    own = others = 0
    for number, (cause, size) in enumerate(planted):
        time = (number + 1) * STEP_US
        held.append(device.request(100 + 10 * number))
        if number == 4:
            device.drop(held.pop(0))
        for event in device.trace:
            event.setdefault("time_us", time - STEP_US // 2)
        if cause == "other processes":
            others += size
        else:
            own += size
        row = (time, time - STEP_US, device.reserved + own + others, device.reserved + own, stack.get(cause, 0), 0)
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
    snapshot = device.snapshot()
    snapshot["snapreport"] = {
        "schema": "snapreport-recording/1",
        "device_memory": {
            "source": "nvml", "devices": {0: {"total": TOTAL, **columns}}, "frames": FRAMES, "stacks": STACKS,
        },
    }  # fmt: skip
    return snapshot, planted


@pytest.fixture(scope="module")
def planted_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("device") / "planted.pickle"
    path.write_bytes(pickle.dumps(by_hand()[0]))
    return path


def test_changes_are_those_that_were_planted(planted_file: Path) -> None:
    snapshot, planted = by_hand()
    found = cli.in_process("stats", planted_file, "--json").json["snapshots"][0]["devices"][0]["device_use"]
    assert sorted((one["cause"], one["bytes"]) for one in found["changes"]) == sorted(planted)
    lines = {one["cause"]: one["line"] for one in found["changes"]}
    assert lines["NCCL"] == lines["kernels and libraries"] == "step train.py:12" and lines["other processes"] is None
    columns = snapshot["snapreport"]["device_memory"]["devices"][0]
    peak = max(range(len(planted)), key=lambda row: columns["used"][row])
    events = snapshot["device_traces"][0]
    assert found["peak_used_bytes"] == columns["used"][peak] and found["total_bytes"] == TOTAL
    assert found["other_processes_bytes"] == columns["used"][peak] - columns["own"][peak] == 1024 * MIB
    assert found["outside_bytes"] == sum(size for cause, size in planted[: peak + 1] if cause != "other processes")
    before = [event for event in events if event["time_us"] <= columns["times_us"][peak]]
    assert found["peak_event"] == len(before) - 1
    sign = {"segment_alloc": 1, "segment_free": -1}
    assert found["reserved_bytes"] == sum(sign.get(event["action"], 0) * event["size"] for event in before)


def test_the_text_names_them(planted_file: Path) -> None:
    text = " ".join(cli.in_process("stats", planted_file).out.split())
    assert "of 4.00 GiB were in use on cuda:0" in text and "1.00 GiB of other processes (6 samples, NVML)" in text
    assert "NCCL +256 MiB in step train.py:12" in text and "other processes −512 MiB" in text


def test_what_is_too_little_for_a_process_is_none(tmp_path: Path) -> None:
    """NVML counts 9 MiB of an H200 that no process has."""
    snapshot, planted = by_hand()
    columns = snapshot["snapreport"]["device_memory"]["devices"][0]
    columns["own"] = [used - 9 * MIB for used in columns["used"]]
    path = tmp_path / "alone.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    use = cli.in_process("stats", path, "--json").json["snapshots"][0]["devices"][0]["device_use"]
    assert use["other_processes_bytes"] == 0
    assert use["outside_bytes"] == use["peak_used_bytes"] - use["reserved_bytes"]
    # What were changes of other processes are changes of this one.
    assert "other processes" not in {one["cause"] for one in use["changes"]}
    assert sorted(one["bytes"] for one in use["changes"]) == sorted(size for _, size in planted)


def test_check_limits_it(planted_file: Path, tmp_path: Path) -> None:
    used = max(by_hand()[0]["snapreport"]["device_memory"]["devices"][0]["used"])
    assert cli.in_process("check", planted_file, "--max-device-used", f"{used}B").code == 0
    over = cli.in_process("check", planted_file, "--max-device-used", f"{used - 1}B", "--json")
    assert over.code == 1 and over.json["checks"][0]["value"] == used
    assert any("other processes" in line for line in over.json["checks"][0]["evidence"])
    plain = by_hand()[0]
    del plain["snapreport"]
    path = tmp_path / "plain.pickle"
    path.write_bytes(pickle.dumps(plain))
    unknown = cli.in_process("check", path, "--max-device-used", f"{used}B")
    assert unknown.code == 2 and "no samples" in unknown.out


def test_a_failure_says_what_had_the_rest(tmp_path: Path) -> None:
    """Out of memory: what was outside of PyTorch's allocator then; first what other processes hold, if it is much."""
    failure = failed(tmp_path)
    text = " ".join(line for line in failure.basis if "outside" in line)
    assert "other processes 512 MiB, CUDA context 500 MiB, NCCL 256 MiB" in text
    assert failure.detail[0] == "Other processes hold 512 MiB of 4.00 GiB of the device."
    outside = CONTEXT + (256 + 512 + 64) * MIB
    named = {name: failure.evidence[name] for name in ("outside_bytes", "device_bytes", "other_processes_bytes")}
    assert named == {"outside_bytes": outside, "device_bytes": TOTAL, "other_processes_bytes": 512 * MIB}
    # Without NVML, or where it does not name this process, nobody knows whose memory it is.
    unnamed = failed(tmp_path, own=-1)
    assert unnamed.evidence["other_processes_bytes"] is None and unnamed.evidence["outside_bytes"] == outside
    assert not any("Other processes hold" in line for line in unnamed.detail)


def failed(tmp_path: Path, own: int | None = None) -> snapreport.Finding:
    """The failure of a program that ran out of memory after the samples. own: in place of each sample's."""
    snapshot, _ = by_hand()
    columns = snapshot["snapreport"]["device_memory"]["devices"][0]
    columns["own"] = columns["own"] if own is None else [own] * len(columns["own"])
    last = snapshot["device_traces"][0][-1]["time_us"] + STEP_US
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    free = TOTAL - reserved - CONTEXT - 256 * MIB - 512 * MIB - 64 * MIB
    snapshot["device_traces"][0].append({
        "action": "oom", "addr": 0, "size": TOTAL, "stream": 0, "frames": [], "device_free": free, "time_us": last,
    })  # fmt: skip
    snapshot["snapreport"]["memory_at_dump"] = {0: {"free_bytes": free, "total_bytes": TOTAL}}
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    (failure,) = (one for one in findings(snapreport.load(path)) if one.kind == "oom")
    return failure


def recorded(rows: list[tuple[int, int, int]]) -> dict[str, Any]:
    """Metadata with samples: ``time_us``, ``since_us``, ``used``, all of it by the process, without stacks."""
    times, since, used = map(list, zip(*rows, strict=True))
    none = [-1] * len(rows)
    columns = {"times_us": times, "since_us": since, "used": used, "own": used, "stacks": none, "stacks_before": none}
    facts = {"source": "nvml", "devices": {0: {"total": TOTAL, **columns}}, "frames": [], "stacks": []}
    return {"schema": "snapreport-recording/1", "device_memory": facts}


def test_samples_within_cuda_malloc_are_no_change(tmp_path: Path) -> None:
    """A sample that already has a segment that the trace has a moment later; or one that was read before the segment
    and stamped after it, which the next sample sees.
    """
    device = Recording()
    rows: list[tuple[int, int, int]] = []  # time_us, since_us, used
    for number in range(1, 7):
        device.request(200)
        time, late = number * STEP_US, 1000 if number % 2 else -1000
        for event in device.trace:
            event.setdefault("time_us", time + late)
        if late > 0:
            rows.append((time, time - 20_000, device.reserved + CONTEXT))
        else:
            rows.append((time, time - 20_000, device.reserved - 200 * MIB + CONTEXT))
            rows.append((time + 20_000, time, device.reserved + CONTEXT))
    path = tmp_path / "late.pickle"
    path.write_bytes(pickle.dumps({**device.snapshot(), "snapreport": recorded(rows)}))
    use = snapreport.load(path).file_stats().devices[0].device_use
    assert [(one.cause, one.bytes) for one in use.changes] == [("CUDA context", CONTEXT)]


@pytest.mark.parametrize(("overflowed", "events"), [(False, [-1, 1]), (True, [1])])
def test_samples_before_a_trace_that_overflowed_are_left_out(
    tmp_path: Path, overflowed: bool, events: list[int]
) -> None:
    """What was reserved then is not known; before the first event of a whole trace nothing was."""
    device = Recording()
    device.request(100)
    for event in device.trace:
        event["time_us"] = STEP_US
    rows = [(0, 0, CONTEXT), (2 * STEP_US, STEP_US, device.reserved + CONTEXT + 64 * MIB)]
    raw = {**device.snapshot(), "snapreport": recorded(rows)}
    raw["allocator_settings"] = {**raw.get("allocator_settings", {}), "trace_alloc_overflowed": overflowed}
    path = tmp_path / "early.pickle"
    path.write_bytes(pickle.dumps(raw))
    use = snapreport.load(path).file_stats().devices[0].device_use
    assert [one.event for one in sorted(use.changes, key=lambda one: one.event)] == events


def test_a_later_sample_tells_what_an_early_one_cannot(tmp_path: Path) -> None:
    """The first is taken within cudaMalloc. The sample before the next change saw as much in use, with all reserved."""
    device = Recording()
    device.request(100)
    for event in device.trace:
        event["time_us"] = 1000
    device.request(10)
    for event in device.trace:
        event.setdefault("time_us", 90_000)
    used = [100 * MIB + CONTEXT, device.reserved + CONTEXT + 64 * MIB]
    rows = [(0, 0, used[0]), (100_000, 80_000, used[1])]
    path = tmp_path / "early.pickle"
    path.write_bytes(pickle.dumps({**device.snapshot(), "snapreport": recorded(rows)}))
    use = snapreport.load(path).file_stats().devices[0].device_use
    assert [one.bytes for one in use.changes] == [CONTEXT, 64 * MIB]


def test_names_are_redacted(planted_file: Path) -> None:
    text = cli.in_process("stats", planted_file, "--json", "--redact-pattern", "train").out
    assert "step ***.py:12" in text and "train" not in text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4),
    max_leaves=8,
)


@hypothesis.given(data=st.data())
def test_damaged_samples_are_left_out(data: Any) -> None:
    """Whatever one value of the metadata is replaced by, what is read is whole, or nothing."""
    facts = pickle.loads(pickle.dumps(by_hand()[0]["snapreport"]["device_memory"]))
    holder = data.draw(st.sampled_from([facts, facts["devices"], facts["devices"][0], *facts["devices"][0].values()]))
    if not isinstance(holder, (dict, list)):
        holder = facts
    key = data.draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
    holder[key] = data.draw(values)
    table = device_memory(data.draw(st.sampled_from([facts, holder[key]])))
    assert table.schema == SCHEMA and (table["used"] <= table["total"]).all() and (table["own"] <= table["used"]).all()


def test_the_alarm() -> None:
    """Once for each time that a device passes the share, or when memory has grown for so many steps."""
    alarm = MemoryAlarm(0.9, None)
    said = [bool(alarm.used(0, used, 1000)) for used in (899, 900, 950, 880, 910, 800, 901)]
    assert said == [False, True, False, False, False, False, True]
    assert not alarm.stepped(0, 1 << 40)
    alarm = MemoryAlarm(None, 3)
    assert [bool(alarm.stepped(0, size)) for size in (5, 4, 6, 7, 7, 8, 9, 10, 11)] == 7 * [False] + [True, False]
    assert not alarm.used(0, 1000, 1000)


@pytest.fixture
def nvml(torch_cuda: FakeTorch, tmp_path: Path) -> dict[str, object]:
    """The environment of a program that has nvidia-ml-py and finds the fake driver as NVML."""
    pynvml = pytest.importorskip("pynvml")
    site = next((torch_cuda.folder / "lib").glob("python3*/site-packages"))
    driver = site / "nvidia/cudnn/lib"
    if b"fk_other_process" not in (driver / "libfakecuda.so").read_bytes():
        pytest.skip("the fake driver was compiled before it had NVML: tests/fakecuda/build.py --library-only")
    package = tmp_path / "package"
    package.mkdir()
    shutil.copy(pynvml.__file__, package)
    return {"PYTHONPATH": package, "LD_LIBRARY_PATH": driver, **PLANTED}


def test_what_a_program_plants(torch_cuda: FakeTorch, nvml: dict[str, object], tmp_path: Path) -> None:
    """Every jump that the program planted is found, with its bytes and its cause; nothing else; and it alarms."""
    command = [PROGRAMS / "device_memory.py"]
    done = torch_cuda.record("-o", tmp_path / "run", "--alarm", "28%", command=command, is_new=True, **nvml)
    assert done.code == 0, done.err
    planted = [(cause, size) for cause, size in json.loads(done.out)]
    assert snapshots(tmp_path / "run") == [f"rank_00000_step_00000000_{why}.pickle.gz" for why in ("alarm", "exit")]
    assert "Alarm: 30% of the memory of cuda:0 are in use" in done.err or "Alarm: 29% of" in done.err
    loaded = snapreport.load(tmp_path / "run" / "rank_00000_step_00000000_exit.pickle.gz")
    use = loaded.file_stats().devices[-1].device_use
    found = sorted((one.cause, one.bytes) for one in use.changes)
    assert found == sorted([("CUDA context", CONTEXT), *planted])
    lines = {one.cause: one.line for one in use.changes}
    text = (PROGRAMS / "device_memory.py").read_text().splitlines()
    for cause, code in (("cuBLAS", "weight @ weight"), ("CUDA graphs", "weight + 1"), ("NCCL", "torch.distributed.")):
        assert code in text[int(lines[cause].rpartition(":")[2]) - 1]
    assert (use.source, use.total_bytes, use.other_processes_bytes) == ("nvml", TOTAL, 300 * MIB)


COUNTED = """
import gc, json, sys
import torch
sys.path.insert(0, {folder!r})
import train
train.train(10, sys.maxsize)
gc.collect()
print(json.dumps(torch.cuda.memory_stats()))
"""


@pytest.mark.parametrize("source", ["mem_get_info", "nvml"])
@pytest.mark.parametrize("names", ["--modules", "--no-modules"])
def test_the_program_allocates_the_same(
    torch_cuda: FakeTorch, request: pytest.FixtureRequest, tmp_path: Path, source: str, names: str
) -> None:
    """With samples of the device's memory by either way, and with and without names: PyTorch counts the same."""
    variables = request.getfixturevalue("nvml") if source == "nvml" else {"PYTHONPATH": ""}
    program = tmp_path / "counted.py"
    program.write_text(COUNTED.format(folder=str(PROGRAMS)))
    done = torch_cuda.record("-o", tmp_path / "run", names, command=[program], is_new=True, **variables)
    assert done.code == 0, done.err
    counted = json.loads(done.out.splitlines()[-1])
    assert counted == _counted_without(torch_cuda, program.read_text()) and counted["allocation.all.allocated"] > 100
    recorded = raw(tmp_path / "run" / "rank_00000_step_00000010_exit.pickle.gz")["snapreport"]
    assert recorded["device_memory"]["source"] == source and recorded["device_memory"]["devices"][0]["used"]
    assert bool(recorded["modules"]["times"]) == (names == "--modules")


@functools.cache
def _counted_without(torch_cuda: FakeTorch, program: str) -> dict[str, int]:
    """What PyTorch counts in a program that is not recorded."""
    plain = torch_cuda.run("-c", program, is_new=True)
    assert plain.code == 0, plain.err
    counted: dict[str, int] = json.loads(plain.out.splitlines()[-1])
    return counted


def test_without_nvml(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """``mem_get_info`` at the ends of steps. Memory that grows for some steps alarms; a program without growth is left
    alone.
    """
    done = torch_cuda.record("-o", tmp_path, "--alarm-growth", 2, command=[TRAIN, 6], PYTHONPATH="")
    assert done.code == 0 and "Alarm" not in done.err
    facts = raw(tmp_path / "rank_00000_step_00000006_exit.pickle.gz")["snapreport"]["device_memory"]
    assert facts["source"] == "mem_get_info" and 1 <= len(facts["devices"][0]["used"]) <= 6
    grows = tmp_path / "grows.py"
    grows.write_text(
        "import torch\n"
        "kept, weight = [], torch.nn.Parameter(torch.zeros(10, device='cuda'))\n"
        "optimizer = torch.optim.SGD([weight])\n"
        "for step in range(5):\n"
        "    kept.append(torch.zeros(1 << 20, device='cuda'))\n"
        "    optimizer.step()\n"
    )
    done = torch_cuda.record("-o", tmp_path / "grown", "--alarm-growth", 3, command=[grows])
    assert snapshots(tmp_path / "grown") == [
        f"rank_00000_step_0000000{step}_{why}.pickle.gz" for step, why in ((4, "alarm"), (5, "exit"))
    ]
    assert "Alarm: memory of cuda:0 grew in each of 3 steps, from 4.00 MiB to 16.0 MiB allocated. Step 4." in done.err


def test_pinned_memory(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """PyTorch records it from 2.10 on; before, the option changes nothing."""
    program = tmp_path / "pinned.py"
    program.write_text(
        "import torch\n"
        "torch.zeros(8, device='cuda')\n"
        "kept = [torch.empty(1 << 20, pin_memory=True) for _ in range(3)]\n"
        "print('record_pinned_host_memory' in"
        " str(__import__('inspect').signature(torch.cuda.memory._record_memory_history)))\n"
    )
    done = torch_cuda.record("-o", tmp_path / "run", command=[program])
    loaded = snapreport.load(tmp_path / "run" / "rank_00000_step_00000000_exit.pickle.gz")
    if done.out.strip() == "False":
        assert loaded.devices == [0]
        return
    assert loaded.devices == [-1, 0] and loaded.timeline(-1).peak_bytes == 3 * 4 * MIB
    off = torch_cuda.record("-o", tmp_path / "off", "--no-pinned", command=[program])
    assert off.code == 0
    without = snapreport.load(tmp_path / "off" / "rank_00000_step_00000000_exit.pickle.gz")
    assert not len(without.timeline(-1).events if -1 in without.devices else ())


def test_the_report_draws_it(planted_file: Path, report_of: Callable[..., Path], borrow_report: Any) -> None:
    """Above reserved memory, as high as the samples say; with what other processes have."""
    snapshot, _ = by_hand()
    page = borrow_report(report_of(planted_file))
    page.set_view(view="reserved", at=None)
    used = page.js("snapreport.debug.view().used")
    columns = snapshot["snapreport"]["device_memory"]["devices"][0]
    times = [event["time_us"] for event in snapshot["device_traces"][0]]
    for row, time in enumerate(columns["times_us"]):
        assert used[sum(one <= time for one in times)] == columns["used"][row]
    legend = page.page.locator(".reserved-view .segments-legend").inner_text()
    assert "Used on the device" in legend
    figures = page.page.locator(".reserved-view .figures").inner_text()
    assert "Outside the allocator" in figures and "Other processes" in figures
