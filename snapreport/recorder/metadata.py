"""A snapshot's metadata about the process that recorded it, under the key ``snapreport`` of the file.

Everything is plain data: dicts, lists, texts and numbers, so that torch's own viewers and any unpickler read the file.
Nothing here allocates on a device or creates a CUDA context.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from snapreport.recorder.options import Options

KEY = "snapreport"
SCHEMA = "snapreport-recording/1"
_DISTRIBUTED = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_PROCID",
)  # fmt: skip
_ALLOCATOR = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)
# Options of a program whose value is usually a secret.
_SECRET = re.compile(r"(?i)(^|[-_.])(api[-_]?key|token|secret|password|passwd|credentials?)$")
_GIT_SECONDS = 5.0


def now_us() -> int:
    """The time on the clock of the recorder's events: microseconds since 1970."""
    return time.time_ns() // 1000


def process_facts(options: Options) -> dict[str, Any]:
    """All facts that do not change while the process runs."""
    torch = sys.modules["torch"]
    return {
        "process": {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "directory": str(Path.cwd()),
            "command": redacted(sys.orig_argv if hasattr(sys, "orig_argv") else sys.argv, options.redact),
        },
        "run": {"id": options.run, "launch": _launch()},
        "distributed": distributed_facts(),
        "versions": {
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda,
            "hip": getattr(torch.version, "hip", None),
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        "allocator": {name: os.environ[name] for name in _ALLOCATOR if name in os.environ},
        "options": {
            key: value for key, value in asdict(options).items() if key not in ("git", "redact", "python", "run")
        },
        "git": options.git,
    }


def _launch() -> str:
    """What the launcher's processes on all hosts share; empty without a launcher."""
    elastic = os.environ.get("TORCHELASTIC_RUN_ID", "none")  # torchrun's default
    slurm = [os.environ[name] for name in ("SLURM_JOB_ID", "SLURM_STEP_ID") if name in os.environ]
    master = [os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in os.environ]
    return elastic if elastic != "none" else ".".join(slurm) or ":".join(master)


def distributed_facts() -> dict[str, str]:
    """The variables that launchers set. RANK and WORLD_SIZE come from torch.distributed if no launcher set them, as in
    workers started by vLLM, SGLang or ``mp.spawn``.
    """
    facts = {name: os.environ[name] for name in _DISTRIBUTED if name in os.environ}
    with contextlib.suppress(AttributeError, RuntimeError, ValueError):
        distributed = sys.modules["torch"].distributed
        if "RANK" not in facts and distributed.is_available() and distributed.is_initialized():
            facts["RANK"], facts["WORLD_SIZE"] = str(distributed.get_rank()), str(distributed.get_world_size())
    return facts


def device_facts(kind: str = "cuda") -> dict[int, dict[str, Any]]:
    """``name``, ``uuid``, ``total_bytes``, ``resident_threads`` (that run at once, 0 if unknown) and ``memory_stats``
    of each device that this process uses.
    """
    module = getattr(sys.modules["torch"], kind)
    facts = {}
    for device in used_devices(kind):
        properties = module.get_device_properties(device)
        facts[device] = {
            "name": str(properties.name),
            "uuid": str(getattr(properties, "uuid", "")),
            "total_bytes": int(properties.total_memory),
            "resident_threads": getattr(properties, "multi_processor_count", 0)
            * getattr(properties, "max_threads_per_multi_processor", 0),
            "memory_stats": {k: v for k, v in module.memory_stats(device).items() if type(v) is int},
        }
    return facts


def memory_info(kind: str = "cuda") -> dict[int, dict[str, int]]:
    """``free_bytes`` and ``total_bytes`` of each device that this process uses, as reported by the driver."""
    module = getattr(sys.modules["torch"], kind)
    info = {}
    for device in used_devices(kind):
        free, total = module.mem_get_info(device)
        info[device] = {"free_bytes": int(free), "total_bytes": int(total)}
    return info


def used_devices(kind: str = "cuda") -> list[int]:
    """Devices with a context of this process. Others are not queried: that would create a context on each."""
    torch = sys.modules["torch"]
    if kind == "cpu":
        return []
    if kind == "xpu":
        return [torch.xpu.current_device()]
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:  # PyTorch for ROCm of some versions
        return [torch.cuda.current_device()]
    return [device for device in range(torch.cuda.device_count()) if has_context(device)]


def redacted(command: list[str], patterns: tuple[str, ...] = ()) -> list[str]:
    """``command`` with the values of options such as ``--api-key`` and matches of ``patterns`` replaced by ***."""
    result: list[str] = []
    hide_next = False
    for argument in command:
        name, equals, _ = argument.partition("=")
        if hide_next and not argument.startswith("-"):
            argument = "***"
        elif equals and _SECRET.search(name):
            argument = f"{name}=***"
        hide_next = not equals and argument.startswith("-") and bool(_SECRET.search(argument))
        for pattern in patterns:
            argument = re.sub(pattern, "***", argument)
        result.append(argument)
    return result


def git_facts(directory: Path) -> dict[str, Any] | None:
    """``commit``, ``remote``, ``dirty`` and ``root`` of the working tree around ``directory``; None outside one.

    Starts processes, so it is called once at the start and never while memory runs out.
    """
    commit = _git(directory, "rev-parse", "HEAD")
    if not commit:
        return None
    status = _git(directory, "status", "--porcelain", "--untracked-files=no")
    remote = _git(directory, "config", "--get", "remote.origin.url") or None
    return {
        "commit": commit,
        "root": _git(directory, "rev-parse", "--show-toplevel"),
        # A remote may contain a user's token.
        "remote": re.sub(r"//[^/@]*@", "//", remote) if remote else None,
        "dirty": None if status is None else bool(status),
    }


def _git(directory: Path, *arguments: str) -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError, UnicodeDecodeError):
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True, text=True, timeout=_GIT_SECONDS, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.stdout.strip() if done.returncode == 0 else None
    return None
