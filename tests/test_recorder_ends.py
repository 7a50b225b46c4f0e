"""How recorded processes end, on PyTorch's own allocator and recorder (tests/fakecuda): each leaves its last snapshot,
and ends as it would have without us.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from fake_torch import TRAIN, FakeTorch, raw, snapshots

import snapreport

TERMINATED = "rank_00000_step_00000000_terminated.pickle.gz"
# Waits for a lock in C, with the interpreter's lock released, and no signal interrupts it: as a rank waits in NCCL.
BLOCKED = (
    "import ctypes\n"
    "libc = ctypes.CDLL(None); mutex = ctypes.create_string_buffer(256)\n"
    "libc.pthread_mutex_lock(mutex)\n"
    "def block(): libc.pthread_mutex_lock(mutex)\n"
)
# Another process sends the signals: one that a process sends to itself has arrived when the call returns.
SIGNAL_FROM_OUTSIDE = (
    "import os, subprocess, sys\n"
    "def send(number):\n"
    "    code = f'import os, time; time.sleep(0.2); os.kill({os.getpid()}, {int(number)})'\n"
    "    subprocess.Popen([sys.executable, '-S', '-c', code])\n"
)
TENSOR = "import os, signal, torch\nx = torch.ones(1000, device='cuda')\n"


def last_of(path: Path) -> int:
    """Bytes that the snapshot says are allocated."""
    return sum(segment["active_size"] for segment in raw(path)["segments"])


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_the_process(torch_cuda: FakeTorch, tmp_path: Path, name: str) -> None:
    """A last snapshot with what was live, and then the end by that signal."""
    default = f"import signal\nsignal.signal(signal.{name}, signal.SIG_DFL)\n"  # the tests may run under nohup
    command = ["-c", f"{default}{TENSOR}os.kill(os.getpid(), signal.{name})\nprint('not reached')"]
    done = torch_cuda.record("-o", tmp_path, command=command)
    assert (done.code, done.out) == (128 + getattr(signal, name), ""), done.err
    assert snapshots(tmp_path) == [TERMINATED] and last_of(tmp_path / TERMINATED) == 4096
    recorder = snapreport.load(tmp_path / TERMINATED).recording.recorder
    assert recorder is not None and recorder.reason == "terminated"


def test_a_signal_that_is_ignored(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """As under nohup: the program continues, and nothing more than its end is dumped."""
    program = (
        f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{TENSOR}os.kill(os.getpid(), signal.SIGHUP)"
    )
    done = torch_cuda.record("-o", tmp_path, command=["-c", program])
    assert done.code == 0 and snapshots(tmp_path) == ["rank_00000_step_00000000_exit.pickle.gz"]


@pytest.mark.parametrize("order", ["before", "after"])
def test_own_handler_of_a_program(torch_cuda: FakeTorch, tmp_path: Path, order: str) -> None:
    """It runs once, whether it was set before ours or replaces ours, and decides how the program ends."""
    handler = (
        "import signal, sys\ndef leave(*_): print('own handler', flush=True); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
    )
    parts = [handler, TENSOR] if order == "before" else [TENSOR, handler]
    done = torch_cuda.record("-o", tmp_path, command=["-c", "".join(parts) + "os.kill(os.getpid(), signal.SIGTERM)"])
    assert (done.code, done.out) == (3, "own handler\n"), done.err
    # One that replaces ours may end the program before the other thread has dumped: then that is its end.
    assert snapshots(tmp_path) in ([TERMINATED], ["rank_00000_step_00000000_exit.pickle.gz"])
    assert last_of(next(tmp_path.iterdir())) == 4096


@pytest.mark.parametrize(("name", "code"), [("USR1", 0), ("TERM", 128 + signal.SIGTERM), ("INT", 1)])
def test_chosen_signal_keeps_its_effect(torch_cuda: FakeTorch, tmp_path: Path, name: str, code: int) -> None:
    """USR1 means nothing by itself; TERM ends the process; INT raises KeyboardInterrupt."""
    command = ["-c", f"{TENSOR}os.kill(os.getpid(), signal.SIG{name})\nfor _ in range(10): pass\nprint('after')"]
    done = torch_cuda.record("-o", tmp_path, "--on-signal", name, "--no-at-exit", command=command)
    assert (done.code, done.out) == (code, "" if code else "after\n"), done.err
    assert ("KeyboardInterrupt" in done.err) == (name == "INT")
    assert snapshots(tmp_path) == ["rank_00000_step_00000000_signal.pickle.gz"]


def test_chosen_signal_before_anything_is_allocated(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    program = f"import os, signal, torch\nos.kill(os.getpid(), signal.SIGUSR1)\n{TENSOR}print('alive')"
    done = torch_cuda.record("-o", tmp_path, "--on-signal", "USR1", command=["-c", program])
    assert (done.code, done.out) == (0, "alive\n"), done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_main_thread_in_a_c_call(torch_cuda: FakeTorch, tmp_path: Path, number: signal.Signals) -> None:
    """A main thread that no signal interrupts: the other thread writes the snapshot, and SIGTERM ends the process."""
    # SIGUSR1 does not end it: the file does.
    watch = (
        "import threading, time, pathlib\n"
        "def leave():\n"
        f"    while not list(pathlib.Path({str(tmp_path)!r}).glob('rank*')): time.sleep(0.05)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "threading.Thread(target=leave, daemon=True).start()\n"
    )
    program = TENSOR + BLOCKED + SIGNAL_FROM_OUTSIDE + (watch if number == signal.SIGUSR1 else "")
    command = ["-c", f"{program}send({int(number)})\nblock()"]
    done = torch_cuda.record("-o", tmp_path, "--on-signal", "USR1", command=command)
    expected = "terminated" if number == signal.SIGTERM else "signal"
    assert done.code == 128 + (number if number == signal.SIGTERM else signal.SIGKILL), done.err
    assert snapshots(tmp_path) == [f"rank_00000_step_00000000_{expected}.pickle.gz"]


def test_cuda_in_another_thread(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """CUDA that a thread initialises: the handlers are set in the main thread none the less."""
    program = (
        "import os, signal, threading, torch\n"
        "kept = []\n"
        "thread = threading.Thread(target=lambda: kept.append(torch.ones(1000, device='cuda')))\n"
        "thread.start(); thread.join()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = torch_cuda.record("-o", tmp_path, command=["-c", program])
    assert done.code == 128 + signal.SIGTERM and snapshots(tmp_path) == [TERMINATED], done.err


def test_signal_while_a_snapshot_is_written(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """The snapshot is completed first, and no second one is written."""
    program = (
        f"{TENSOR}from snapreport.recorder import allocator, session\n"
        "write = allocator.write_snapshot\n"
        "def interrupted(*arguments):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return write(*arguments)\n"
        "allocator.write_snapshot = interrupted\n"
        "session.active().dump()\nprint('not reached')"
    )
    done = torch_cuda.record("-o", tmp_path, command=["-c", program])
    assert (done.code, done.out) == (128 + signal.SIGTERM, ""), done.err
    assert snapshots(tmp_path) == ["rank_00000_step_00000000_call.pickle.gz"]


def test_killed_while_a_snapshot_is_written(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """SIGKILL leaves the previous snapshot whole, and nothing half written."""
    program = (
        "import os, signal, sys\n"
        f"sys.argv = ['train.py', '9']; sys.path.insert(0, {str(TRAIN.parent)!r})\n"
        "import train\n"
        "from snapreport.recorder import dump, session\n"
        "write, calls = dump._write_list, []\n"
        "def killed(values, stream, deadline):\n"
        "    write(values, stream, deadline)\n"
        "    if session.active().step_number == 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        "dump._write_list = killed\n"
        "train.train(9, 99)\n"
    )
    done = torch_cuda.record("-o", tmp_path, "--every", 2, "--compression", "none", command=["-c", program])
    assert done.code == 128 + signal.SIGKILL, done.err
    name = "rank_00000_step_00000002_every.pickle"
    assert snapshots(tmp_path) == [name]
    assert snapreport.load(tmp_path / name).steps(0)["step"].to_list()[:2] == [0, 1]


CHILD = "def work(n):\n    global x\n    import torch\n    x = torch.ones(1000 * n, device='cuda')\n"
END_OF_CHILDREN = {
    "os.fork": "import os, torch\npid = os.fork()\nif pid == 0: work(2); os._exit(0)\nos.waitpid(pid, 0)\n",
    **{
        method: (
            "import multiprocessing\n"
            "if __name__ == '__main__':\n"
            f"    process = multiprocessing.get_context({method!r}).Process(target=work, args=(2,))\n"
            "    process.start(); process.join(); assert process.exitcode == 0, process.exitcode\n"
        )
        for method in ("fork", "spawn", "forkserver")
    },
}


@pytest.mark.parametrize("method", END_OF_CHILDREN)
def test_children(torch_cuda: FakeTorch, tmp_path: Path, method: str) -> None:
    """Children end with os._exit(), which skips exit handlers, and leave a snapshot of what they had."""
    (tmp_path / "program.py").write_text(CHILD + END_OF_CHILDREN[method])
    done = torch_cuda.record("-o", tmp_path / "run", command=[tmp_path / "program.py"], is_new=True)
    assert done.code == 0, done.err
    assert snapshots(tmp_path / "run") == ["rank_00000_step_00000000_exit.pickle.gz"]
    assert last_of(tmp_path / "run" / "rank_00000_step_00000000_exit.pickle.gz") == 8192


def test_child_of_a_recorded_process(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """A signal for a forked child is not one for its parent, and the child's end does not end the recording."""
    program = (
        f"{TENSOR}import sys\n"
        "pid = os.fork()\n"
        "if pid == 0: signal.pause()\n"
        "os.kill(pid, signal.SIGTERM); print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "pid = os.fork()\n"
        "if pid == 0: sys.exit(0)\n"
        "os.waitpid(pid, 0); y = torch.ones(1000, device='cuda'); print('alive')\n"
    )
    (tmp_path / "program.py").write_text(program)
    done = torch_cuda.record("-o", tmp_path / "run", command=[tmp_path / "program.py"], is_new=True)
    assert (done.code, done.out) == (0, f"{-signal.SIGTERM}\nalive\n"), done.err
    assert snapshots(tmp_path / "run") == ["rank_00000_step_00000000_exit.pickle.gz"]
    assert last_of(tmp_path / "run" / "rank_00000_step_00000000_exit.pickle.gz") == 8192


def test_torchrun_ends_the_other_ranks(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """One rank runs out of memory, another is in Python code and a third in a C call: each has its file."""
    program = (
        "import os, signal, threading, time\n"
        f"{BLOCKED}"
        "import torch\n"
        "rank = int(os.environ['RANK']); torch.cuda.set_device(rank)\n"
        "x = torch.ones(1000 * (1 + rank), device='cuda')\n"
        f"ready = {str(tmp_path / 'ready')!r}\n"
        "open(f'{ready}{rank}', 'w').close()\n"
        "while not all(os.path.exists(f'{ready}{other}') for other in range(3)): time.sleep(0.05)\n"
        "if rank == 1: torch.empty(5 << 30, dtype=torch.uint8, device='cuda')\n"
        "if rank == 2: block()\n"
        "while True: time.sleep(0.05)\n"
    )
    (tmp_path / "program.py").write_text(program)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 3, tmp_path / "program.py"]
    done = torch_cuda.record("-o", tmp_path / "run", command=launch, is_new=True, FAKE_GPU_COUNT=3)
    assert done.code == 1 and "OutOfMemoryError" in done.err
    reasons = ("terminated", "oom", "terminated")
    names = [f"rank_{rank:05}_step_00000000_{reason}.pickle.gz" for rank, reason in enumerate(reasons)]
    assert snapshots(tmp_path / "run") == names
    assert last_of(tmp_path / "run" / names[2]) == 12288


def test_program_that_ends_the_history(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """It is recorded until there, and one line says where that is."""
    program = (
        f"{TENSOR}y = torch.ones(1000, device='cuda')\n"
        "torch.cuda.memory._record_memory_history(enabled=None)\n"
        "z = torch.ones(1000, device='cuda')\n"
        "torch.cuda.memory._record_memory_history(None)\n"
    )
    done = torch_cuda.record("-o", tmp_path, command=["-c", program])
    assert done.code == 0 and snapshots(tmp_path) == ["rank_00000_step_00000000_call.pickle.gz"], done.err
    said = [line for line in done.err.splitlines() if "itself" in line]
    assert said == ["snapreport: the program ends the recording itself (<string>:4): recorded until here"]
    trace = raw(tmp_path / "rank_00000_step_00000000_call.pickle.gz")["device_traces"][0]
    assert [entry["action"] for entry in trace if entry["action"] == "alloc"] == ["alloc"] * 2


def test_program_that_records_and_dumps(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Its own snapshot is written as without us; one line each says so."""
    own = tmp_path / "own.pickle"
    program = (
        f"{TENSOR}"
        "for _ in range(3):\n"
        "    torch.cuda.memory._record_memory_history(max_entries=5000)\n"
        "    y = torch.ones(1000, device='cuda')\n"
        f"    torch.cuda.memory._dump_snapshot({str(own)!r})\n"
    )
    done = torch_cuda.record("-o", tmp_path / "run", command=["-c", program])
    assert done.code == 0 and own.exists(), done.err
    assert re.findall("snapreport: (the program.*)", done.err) == [
        "the program sets up the recording itself (<string>:4): its settings apply from there on",
        "the program writes snapshots itself (<string>:6)",
    ]
    assert snapshots(tmp_path / "run") == ["rank_00000_step_00000000_exit.pickle.gz"]
