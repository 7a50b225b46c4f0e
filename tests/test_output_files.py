"""Outputs: whole or not at all, through links and into devices, never over a stranger's file, never through a planted
link.
"""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli import assert_refused, command, in_process, process
from test_bad_input import ALLOC, GOOD
from waiting import GUARD_SECONDS, wait_until

from snapreport import supervision
from snapreport.output_file import is_ours, output_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")

STRANGE = "measured by somebody, and the only copy"


@pytest.fixture
def snap(tmp_path: Path) -> Path:
    path = tmp_path / "good.pickle"
    path.write_bytes(pickle.dumps(GOOD))
    return path


def outputs(snap: Path) -> dict[str, list[object]]:
    """Every command that writes a file, without the name of the file."""
    return {
        "report": [snap, "-o"],
        "diff": ["diff", snap, snap, "-o"],
        "sample": ["sample", "fragmentation", "-o"],
        "junit": ["check", snap, "--max-peak", "1GiB", "--junit"],
        "markdown": ["check", snap, "--max-peak", "1GiB", "--summary-md"],
    }


KINDS = ("report", "diff", "sample", "junit", "markdown")


@pytest.mark.parametrize("kind", KINDS)
def test_only_our_own_files_are_replaced(kind: str, snap: Path, tmp_path: Path) -> None:
    arguments, out = outputs(snap)[kind], tmp_path / "out"
    out.write_text(STRANGE)
    assert_refused(in_process(*arguments, out), out, "--force")
    assert out.read_text() == STRANGE
    assert in_process(*arguments, out, "--force").code == 0
    first = out.read_bytes()
    assert STRANGE.encode() not in first
    # What one of our runs wrote is replaced, and so is an empty file.
    assert in_process(*arguments, out).code == 0
    out.write_bytes(b"")
    assert in_process(*arguments, out).code == 0 and len(out.read_bytes()) == len(first)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["good.pickle", "out"]


@pytest.mark.parametrize("suffix", [".pickle", ".pickle.gz", ".pickle.xz"])
def test_samples_are_recognised_and_recordings_are_not(suffix: str, tmp_path: Path) -> None:
    out = tmp_path / f"sample{suffix}"
    for _ in range(2):
        assert in_process("sample", "fragmentation", "-o", out).code == 0
    assert in_process("stats", out).code == 0
    out.write_bytes(pickle.dumps(GOOD | {"snapreport": {"schema": "snapreport-recording/1"}}))
    assert_refused(in_process("sample", "fragmentation", "-o", out), out, "--force")


def test_a_default_name_is_no_permission(snap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.html").write_text(STRANGE)
    assert_refused(in_process("good.pickle"), "good.html")


@pytest.mark.parametrize("kind", KINDS)
def test_modes_links_and_names(kind: str, snap: Path, tmp_path: Path) -> None:
    arguments, real, link = outputs(snap)[kind], tmp_path / "real", tmp_path / "link"
    real.touch()
    real.chmod(0o640)
    link.symlink_to(real)
    assert in_process(*arguments, link).code == 0
    assert link.is_symlink() and real.stat().st_size and stat.S_IMODE(real.stat().st_mode) == 0o640
    # A link to nothing creates the file that it names; a new file has the mode of any new file.
    dangling, target = tmp_path / "dangling", tmp_path / "target"
    dangling.symlink_to(target)
    assert in_process(*arguments, dangling).code == 0
    (tmp_path / "plain").touch()
    assert target.stat().st_mode == (tmp_path / "plain").stat().st_mode
    long = tmp_path / ("\U0001f600" * 60 + ".out")  # 244 bytes: no longer name can start with it
    assert in_process(*arguments, long).code == 0 and long.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_devices_and_pipes_are_written_to(kind: str, snap: Path, tmp_path: Path) -> None:
    arguments = outputs(snap)[kind]
    assert in_process(*arguments, "/dev/null").code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    assert in_process(*arguments, null).code == 0 and null.is_symlink()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    reader.start()
    assert in_process(*arguments, fifo).code == 0
    reader.join(10)
    assert found and found[0] and stat.S_ISFIFO(fifo.stat().st_mode)
    if Path("/dev/full").exists():
        assert_refused(in_process(*arguments, "/dev/full"), "/dev/full")


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_of_links_is_refused(kind: str, snap: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.symlink_to(b)
    b.symlink_to(a)
    assert_refused(in_process(*outputs(snap)[kind], a), a)
    assert_refused(in_process("stats", a), a)


def test_a_planted_part_is_not_followed(tmp_path: Path) -> None:
    """``sample NAME -o x`` wrote through a link named x.part."""
    precious, out = tmp_path / "precious", tmp_path / "x.pickle"
    precious.write_text(STRANGE)
    (tmp_path / "x.pickle.part").symlink_to(precious)
    assert in_process("sample", "fragmentation", "-o", out).code == 0
    assert precious.read_text() == STRANGE and not out.is_symlink()


def test_the_recorder_follows_no_planted_part(tmp_path: Path) -> None:
    from snapreport.recorder.dump import write_snapshot

    precious, out = tmp_path / "precious", tmp_path / "r.pickle"
    precious.write_text(STRANGE)
    (tmp_path / f".r.pickle.{os.getpid()}.part").symlink_to(precious)
    write_snapshot(copy.deepcopy(GOOD), out, "none")  # which empties what it writes
    assert precious.read_text() == STRANGE
    assert pickle.loads(out.read_bytes())["device_traces"] == [[ALLOC]]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_at_any_step_leaves_what_was_there(
    failing: str, snap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert in_process(snap, "-o", out).code == 0
    before = out.read_bytes()

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, no_room)
    for arguments in outputs(snap).values():
        assert_refused(in_process(*arguments, out), out, "No space left")
    assert out.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["good.pickle", "out"]


def test_a_mounted_file_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is itself a container's mount cannot be replaced by a rename."""
    out = tmp_path / "out"
    out.write_text("before")

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "replace", busy)
    with output_file(out) as file:
        file.write(b"after")
    assert out.read_text() == "after" and list(tmp_path.iterdir()) == [out]


def test_a_job_summary_is_added_to(snap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "summary.md"
    page.write_text("# from the step before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    for _ in range(2):
        assert in_process("check", snap, "--max-peak", "1GiB", "--summary-md", page).code == 0
    text = page.read_text()
    assert text.startswith("# from the step before\n") and text.count("## 1 memory check passed") == 2


# The command, which waits for a signal as soon as it compresses.
STOPS_WHILE_WRITING = """
import lzma, pathlib, signal
def write(file, data):
    pathlib.Path("writing").touch()
    signal.pause()
lzma.LZMAFile.write = write
from snapreport.__main__ import run
run()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_while_writing_leaves_no_part(number: signal.Signals, tmp_path: Path) -> None:
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here, as under nohup: so do the processes started from here")
    out = tmp_path / "big.pickle.xz"
    out.write_bytes(b"")
    running = subprocess.Popen(
        [sys.executable, "-c", STOPS_WHILE_WRITING, "sample", "fragmentation", "-o", str(out)],
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    wait_until(lambda: (tmp_path / "writing").exists(), "a part is being written")
    assert list(tmp_path.glob(".snapreport-*.part")) and running.poll() is None
    (tmp_path / "writing").unlink()
    running.send_signal(number)
    _, errors = running.communicate(timeout=GUARD_SECONDS)
    assert running.returncode == 128 + number and b"Traceback" not in errors
    assert [p.name for p in tmp_path.iterdir()] == ["big.pickle.xz"] and not out.stat().st_size


def test_whoever_ends_the_program_knows_the_part_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[bool] = []

    @contextlib.contextmanager
    def noted(path: str) -> Iterator[None]:
        known.append(Path(path).exists())
        yield

    monkeypatch.setattr(supervision, "temporary_file", noted)
    with output_file(tmp_path / "out") as file:
        file.write(b"x")
    assert known == [False] and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_marks(tmp_path: Path) -> None:
    assert is_ours(tmp_path / "absent")
    for text in ("<html>snapreport</html>", "snapreport", '{"schema": "other"}', "\x1f\x8b broken"):
        (tmp_path / "file").write_text(text)
        assert not is_ours(tmp_path / "file"), text


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", ["stats good.pickle", "good.pickle -o out.html", "stats -", "--version"])
def test_closed_streams(closed: str, arguments: str, snap: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {' '.join(command())} {arguments} {closed}"],
        capture_output=True, text=True, cwd=snap.parent, check=False, timeout=GUARD_SECONDS,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    writes = "out.html" not in arguments
    # A report's size and peak, and its first sentence.
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= (1 if writes else 2), done.stderr
    fails = arguments == "stats -" or (writes and ">&-" in closed.replace("2>&-", ""))
    assert done.returncode == (2 if fails else 0), (done.returncode, done.stderr)
    if not writes:
        assert (snap.parent / "out.html").read_bytes().rstrip().endswith(b"</html>")


def test_a_long_name_that_is_absent_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["x" * 300], ["diff", "x" * 300, "y" * 300, "-o", "out.html"], ["stats", "x" * 300]):
        run = in_process(*arguments)
        assert_refused(run, "xxx", "cannot be read")
        assert "write" not in run.err
    # A name that fits by itself, and whose report's does too.
    path = tmp_path / ("n" * 251)
    path.write_bytes(pickle.dumps(GOOD))
    assert in_process(path.name).code in (0, 2)


# The command, interrupted when the module named first is imported, in whichever process that is.
INTERRUPTED = """
import os, signal, sys
started, module = os.getpid(), sys.argv.pop(1)
class Interrupt:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(started, signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from snapreport.__main__ import run
run()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a process of its own reads files on Linux alone")
@pytest.mark.parametrize(
    "module", ["snapreport.supervision", "click", "snapreport.cli", "polars", "snapreport.snapshot"]
)
def test_interrupted_while_it_starts(module: str, snap: Path) -> None:
    """Ctrl-C at any moment of the imports ended in a traceback."""
    call = [sys.executable, "-c", INTERRUPTED, module, "stats", str(snap)]
    done = subprocess.run(call, capture_output=True, timeout=GUARD_SECONDS, check=False)
    assert done.returncode in (130, -signal.SIGINT) and not done.stdout and not done.stderr, done


def test_process_passes_exit_codes(snap: Path) -> None:
    assert process("check", snap, "--max-peak", "1").code == 2  # a number without a unit
    assert process("check", snap, "--max-peak", "1B").code == 1
    assert process("check", snap, "--max-peak", "1MiB").code == 0
    assert process("stats", snap).code == 0
