"""How the recorder writes: a pickle that equals the object, whole or not there, never two in one file."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import pickletools
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import breadth
import generator
import hypothesis
import pytest
from hypothesis import strategies as st
from waiting import GUARD_SECONDS

import snapreport
from snapreport.reading.trace_stream import DivertedPickle
from snapreport.recorder import dump
from snapreport.recorder.file_names import FileNames, Retention

RANKS = 24
PACKAGE = str(Path(snapreport.__file__).parent.parent)

frame = st.fixed_dictionaries({"filename": st.text(max_size=8), "line": st.integers(0, 9), "name": st.text(max_size=8)})
event = st.fixed_dictionaries(
    {"action": st.sampled_from(["alloc", "free_completed"]), "addr": st.integers(0, 2**64 - 1)}
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.tuples(inner)
    ),
    max_leaves=10,
)


def written(snapshot: dict[str, Any], folder: Path, compression: str = "none") -> bytes:
    path = folder / f"snapshot{dump.SUFFIXES[compression]}"
    size = dump.write_snapshot(snapshot, path, compression)
    assert size == path.stat().st_size and [p.name for p in folder.iterdir()] == [path.name]
    return path.read_bytes()


@hypothesis.given(
    st.lists(st.lists(event, max_size=7), max_size=3), st.lists(event, max_size=7), st.dictionaries(st.text(), values)
)
@hypothesis.settings(max_examples=breadth.examples(60))
def test_the_pickle_equals_the_object(
    tmp_path_factory: pytest.TempPathFactory, traces: list[Any], segments: list[Any], more: dict[str, Any]
) -> None:
    """Whatever its content, and where the trace takes several chunks."""
    snapshot = {"device_traces": traces, "segments": segments, "snapreport": more}
    expected = pickle.loads(pickle.dumps(snapshot))
    before, dump.CHUNK = dump.CHUNK, 3
    try:
        content = written(snapshot, tmp_path_factory.mktemp("dump"))
    finally:
        dump.CHUNK = before
    assert pickle.loads(content) == expected and snapshot == {}
    assert pickle._loads(content) == expected  # the unpickler in Python
    opcodes = list(pickletools.genops(content))
    assert opcodes[0][1] == 4 and opcodes[-1][0].name == "STOP"


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_what_is_written_is_read(tmp_path: Path, compression: str) -> None:
    """By snapreport: the same allocations as from an ordinary pickle."""
    if compression == "zstd" and not dump.zstd_available():
        pytest.skip("no zstd in this Python")
    plain = tmp_path / "plain.pickle"
    plain.write_bytes(pickle.dumps(generator.make("small")))
    folder = tmp_path / "ours"
    folder.mkdir()
    written(generator.make("small"), folder, compression)
    ours = snapreport.load(next(folder.iterdir()))
    assert ours.allocations(0).equals(snapreport.load(plain).allocations(0))


def test_traces_are_read_while_they_are_unpickled(tmp_path: Path) -> None:
    """The reader recognises where each trace begins, so that it never stores one as dicts."""
    snapshot = generator.make("multi-gpu", steps=2)
    traces = sum(1 for trace in snapshot["device_traces"] if trace)
    assert traces > 1
    reader = DivertedPickle(io.BytesIO(written(snapshot, tmp_path)))
    reader.read()
    assert reader.diverted == traces


def test_equal_snapshots_are_equal_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a day later: gzip would store the time."""
    first = written(generator.make("small"), tmp_path, "gzip")
    tomorrow = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: tomorrow)
    assert written(generator.make("small"), tmp_path, "gzip") == first


def test_time_limit(tmp_path: Path) -> None:
    """What takes too long leaves nothing behind, not even a temporary file."""
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(b"the previous file")
    with pytest.raises(dump.TimeLimitError):
        dump.write_snapshot(generator.make("small"), path, "gzip", time.monotonic() - 1)
    assert [p.name for p in tmp_path.iterdir()] == [path.name] and path.read_bytes() == b"the previous file"


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        dump.write_snapshot({"segments": []}, tmp_path / "snapshot.pickle", "none")
    assert not list(tmp_path.iterdir())


def python(code: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": PACKAGE, **environment}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """SIGKILL at the worst moment: half the new file is written, the previous one is intact."""
    path = tmp_path / "snapshot.pickle.gz"
    with gzip.open(path, "wb") as file:
        pickle.dump({"segments": [], "device_traces": [["the previous one"]]}, file)
    code = (
        "import signal, sys; from pathlib import Path; from snapreport.recorder import dump\n"
        "pickled, chunks = dump._appended, []\n"
        "def appended(entries):\n"
        "    chunks.append(1)\n"
        "    if len(chunks) == 20: print('half', flush=True); signal.pause()\n"
        "    return pickled(entries)\n"
        "dump._appended, dump.CHUNK = appended, 1000\n"
        "trace = [{'action': 'alloc', 'addr': n * 7919 % 1000003, 'size': n} for n in range(40000)]\n"
        "dump.write_snapshot({'device_traces': [trace], 'segments': []}, Path(sys.argv[1]), 'none')\n"
    )
    process = python(code, path)
    assert process.stdout is not None and process.stdout.readline() == "half\n"
    parts = [p for p in tmp_path.iterdir() if p.name.endswith(".part")]
    assert len(parts) == 1 and parts[0].stat().st_size > 0
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with gzip.open(path) as file:
        assert pickle.load(file)["device_traces"] == [["the previous one"]]


def test_many_processes_at_once(tmp_path: Path) -> None:
    """24 ranks dump into one folder at the same moment, and 24 whole files say which rank each is."""
    code = (
        "import os, sys; from pathlib import Path\n"
        "from snapreport.recorder import dump\n"
        "from snapreport.recorder.file_names import FileNames\n"
        "names = FileNames(Path(sys.argv[1]), '.pickle.gz')\n"
        "trace = [{'action': 'alloc', 'addr': n, 'size': int(os.environ['RANK'])} for n in range(20000)]\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "dump.write_snapshot({'segments': [], 'device_traces': [trace]}, names.path(412, 'oom'), 'gzip')\n"
    )
    running = [python(code, tmp_path, RANK=str(rank)) for rank in range(RANKS)]
    for process in running:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=GUARD_SECONDS)
    assert [process.returncode for process in running] == [0] * RANKS
    files = sorted(path for path in tmp_path.iterdir() if not path.name.endswith(".lock"))
    assert [path.name for path in files] == [f"rank_{rank:05}_step_00000412_oom.pickle.gz" for rank in range(RANKS)]
    for rank, path in enumerate(files):
        trace = pickle.loads(gzip.decompress(path.read_bytes()))["device_traces"][0]
        assert len(trace) == 20_000 and {entry["size"] for entry in trace} == {rank}


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "37")
    names = FileNames(tmp_path / "run", ".pickle.gz")
    path = names.path(412, "oom")
    assert path == tmp_path / "run" / "rank_00037_step_00000412_oom.pickle.gz"
    path.touch()
    assert names.path(412, "oom").name == "rank_00037_step_00000412_oom_2.pickle.gz"  # never over an earlier one
    other = FileNames(tmp_path / "run", ".pickle.gz")  # as another process: a lock belongs to a file handle
    assert other.path(412, "oom").name == f"rank_00037_pid_{os.getpid()}_step_00000412_oom.pickle.gz"
    names.release()
    late = FileNames(tmp_path / "run", ".pickle.gz")
    assert late.path(1, "exit").name == "rank_00037_step_00000001_exit.pickle.gz"
    late.set_rank(3)  # of torch.distributed, in a process without RANK
    assert late.path(1, "exit").name == "rank_00003_step_00000001_exit.pickle.gz"
    assert FileNames(tmp_path / "run", ".pickle.gz").path(1, "exit").name == "rank_00037_step_00000001_exit.pickle.gz"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    restarted = FileNames(tmp_path / "run", ".pickle.gz").path(412, "oom")
    assert restarted.name == "rank_00037_restart_02_step_00000412_oom.pickle.gz"


def test_retention(tmp_path: Path) -> None:
    """The newest of each reason stay."""
    retention = Retention(2)
    for step, reason in ((1, "every"), (2, "every"), (2, "oom"), (3, "every"), (4, "every")):
        path = tmp_path / f"{step}_{reason}"
        path.touch()
        retention.add(reason, path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2_oom", "3_every", "4_every"]
