"""What no code in the process can end: a parent process does, with one line that names the file."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cli import assert_refused, in_process, process
from test_bad_input import ALLOC, GOOD
from waiting import GUARD_SECONDS, wait_until

from snapreport import available_memory, supervision

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")

MIB = 1 << 20
# The command with less patience, for tests that are not about how long it waits: hanging uses a processor.
IMPATIENT = [
    sys.executable,
    "-c",
    "from snapreport import supervision, supervisor\n"
    "supervisor.HANG_SECONDS, supervision.HANG_SECONDS_OF_WORKERS = 0.5, 5.0\n"
    "from snapreport.__main__ import run\n"
    "run()",
]
# And one that is never ended for hanging.
PATIENT = [*IMPATIENT[:2], IMPATIENT[2].replace("= 0.5, 5.0", "= 1e9, 1e9")]


def doubled_key(times: int = 60) -> bytes:
    """A pickle whose dict has a key that takes 2**times steps to hash, in the unpickler itself."""
    key = b"K\x00K\x00\x86"
    for n in range(times):
        key += b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86"
    return b"\x80\x02}" + key + b"K\x01s."


def twins(times: int = 60) -> bytes:
    """Two equal keys, each with lists' worth of tuples: comparing them never ends, even where hashes are cached."""
    first, second = b"", b""
    for text, base in ((0, 0), (1, 100)):
        key = b"K\x00K\x00\x86"
        for n in range(times):
            key += b"q" + bytes([base + n]) + b"h" + bytes([base + n]) + b"\x86"
        first, second = (key, second) if text == 0 else (first, key)
    return b"\x80\x02}" + first + b"K\x01s" + second + b"K\x02s."


def in_snapshot(key: bytes) -> bytes:
    """The same as a value of a trace's entry."""
    marker = "\ue000deep"
    text = marker.encode()
    whole = pickle.dumps(GOOD | {"device_traces": [[ALLOC | {"user_metadata": marker}]]}, 3)
    return whole.replace(b"X" + len(text).to_bytes(4, "little") + text, key[2:-1])


HANGING = {
    "key": doubled_key(),
    "equal keys": twins(),
    "set": doubled_key().replace(b"\x80\x02}", b"\x80\x04\x8f(")[:-4] + b"\x90.",
    "in a trace": in_snapshot(doubled_key()),
}


@pytest.mark.parametrize(("name", "stdin"), [*((name, False) for name in HANGING), ("key", True)])
def test_values_that_multiply_as_keys(name: str, stdin: bool, tmp_path: Path) -> None:
    path = tmp_path / "hang.pickle"
    path.write_bytes(HANGING[name])
    # One with the unchanged command.
    program = None if stdin else IMPATIENT
    run = process("stats", "-" if stdin else path, stdin=HANGING[name] if stdin else None, program=program)
    assert_refused(run, "standard input" if stdin else path, "multiply when they are compared")


def stat_of(process: int) -> list[str]:
    """The fields of /proc/*/stat from the state on; none for a process that does not exist."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def hanging_child(running: subprocess.Popen[bytes]) -> int:
    """The command's child, once it has computed for so long (2 s) that imports are done: then it hangs."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")

    def found() -> int | None:
        for child in map(int, children.read_text().split()):
            fields = stat_of(child)
            if fields and int(fields[11]) + int(fields[12]) > 2 * os.sysconf("SC_CLK_TCK"):
                return child
        return None

    return wait_until(found, "the command's child reads the file")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_hanging_reader_hears_signals(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "hang.pickle"
    path.write_bytes(doubled_key())
    running = subprocess.Popen([*PATIENT, "stats", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    hanging_child(running)
    running.send_signal(number)
    out, errors = running.communicate(timeout=GUARD_SECONDS)
    assert running.returncode in (128 + number, -number) and not out and not errors


def test_nothing_survives_the_parent(tmp_path: Path) -> None:
    path = tmp_path / "hang.pickle"
    path.write_bytes(doubled_key())
    running = subprocess.Popen([*PATIENT, "stats", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child = hanging_child(running)
    running.kill()
    running.communicate(timeout=GUARD_SECONDS)
    wait_until(lambda: stat_of(child)[:1] in ([], ["Z"]), "the child ended")


def test_a_rank_that_hangs_is_one_failed_rank(tmp_path: Path) -> None:
    """Processes that read the ranks of a job have no supervisor: they end themselves."""
    names = [tmp_path / f"rank{n}.pickle" for n in range(3)]
    for path in names:
        path.write_bytes(pickle.dumps(GOOD))
    names[1].write_bytes(doubled_key())
    run = process("job", *names, "--jobs", "2", "-o", tmp_path / "job.html", program=IMPATIENT)
    assert "rank1.pickle" in run.err and "did not end" in run.err and (tmp_path / "job.html").exists()


def shared_text(rows: int, size: int) -> dict[str, Any]:
    text = "x" * size
    return GOOD | {"device_traces": [[ALLOC | {"user_metadata": text + str(n)} for n in range(rows)]]}


ENDLESS = "(a+)+$"


def snapshot_with_a_long_name(folder: Path) -> Path:
    path, frame = folder / "rank0.pickle", {"filename": "x.py", "line": 1, "name": "a" * 60 + "!"}
    path.write_bytes(pickle.dumps(GOOD | {"device_traces": [[ALLOC | {"frames": [frame]}]]}))
    return path


def test_a_pattern_that_never_ends(tmp_path: Path) -> None:
    """A match holds Python's lock: Ctrl-C would be ignored, and nothing would be written for years."""
    path = snapshot_with_a_long_name(tmp_path)
    run = process("stats", path, "--redact-pattern", ENDLESS, program=IMPATIENT)
    assert_refused(run, path, "a pattern takes too long to search one text")


@pytest.mark.parametrize(
    "options",
    [["stats", "{snap}", "--rules", "{rules}"], ["job", "{snap}", "--json", "--jobs", "1", "--rank-pattern", "k(0)"]],
    ids=["rules", "ranks"],
)
def test_matches_of_other_patterns_are_watched(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SearchedError(Exception):
        pass

    def watched(work: Callable[[], object]) -> NoReturn:
        raise SearchedError

    path, rules = snapshot_with_a_long_name(tmp_path), tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\nfunction = "(?=a)"\ncategory = "input"\n'
    )  # polars, which always ends, has no lookahead
    monkeypatch.setattr(supervision, "match", watched)
    with pytest.raises(AssertionError, match="SearchedError"):
        in_process(*(option.format(snap=path, rules=rules) for option in options))


def test_memory_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "large.pickle"
    path.write_bytes(pickle.dumps(shared_text(300, MIB)))
    for arguments in (["stats", path], [path, "-o", tmp_path / "out.html"], ["whatif", path]):
        run = process(*arguments, "--max-memory", "300MiB")
        assert_refused(run, path, "300 MiB", "--max-memory")
    assert [p.name for p in tmp_path.iterdir()] == ["large.pickle"]
    run = process("stats", "-", "--max-memory", "300MiB", stdin=path.read_bytes())
    assert_refused(run, "standard input", "300")


def test_endless_streams(tmp_path: Path) -> None:
    assert_refused(process("stats", "/dev/zero"), "/dev/zero")
    link = tmp_path / "link.pickle"
    link.symlink_to("/dev/zero")
    assert_refused(process("stats", link), link)
    fifo = tmp_path / "fifo.pickle"
    os.mkfifo(fifo)
    # A text that never ends, as a pickle may begin.
    head = b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little")
    octal = "".join(f"\\{byte:03o}" for byte in head)
    writer = subprocess.Popen(["sh", "-c", f"(printf '{octal}'; exec cat /dev/zero) > '{fifo}'"])
    try:
        assert_refused(process("stats", fifo, "--max-memory", "200MiB"), fifo)
    finally:
        writer.kill()
        writer.wait()


def test_limits_of_control_groups(tmp_path: Path) -> None:
    """The smallest remaining memory of all groups upwards, without files' pages that can be dropped."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for folder, most, used in ((tmp_path, "max", 5), (tmp_path / "a", "1000", 400), (inner, "max", 10)):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text("anon 1\ninactive_file 50\n")
    own = tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    assert list(available_memory._group_rooms(tmp_path, own)) == [650]
    own.write_text("4:cpu:/a\n")
    assert not list(available_memory._group_rooms(tmp_path, own))
    assert available_memory.available_memory(with_swap=True)


def test_the_library_is_not_supervised() -> None:
    assert supervision.memory_limit() is None


@pytest.mark.parametrize(("cores", "setting", "threads"), [(96, None, 4), (2, None, 2), (96, "7", 7)])
def test_threads_of_polars(cores: int, setting: str | None, threads: int) -> None:
    """At most four, since small tables cost more with more; and what the user says."""
    program = (
        f"import os; os.sched_getaffinity = lambda _: set(range({cores}))\n"
        "from snapreport.process_memory import keep_little\n"
        "keep_little()\n"
        "import polars; print(polars.thread_pool_size())"
    )
    others = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
    environment = others | ({"POLARS_MAX_THREADS": setting} if setting else {})
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == threads
