"""Memory that no allocator of PyTorch knows of: what libraries, graphs and another process take, one after the other.

Prints what it planted as JSON: cause, bytes, and the line that ran.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any

import torch

MIB = 1 << 20
OTHER = 4242


def sampled() -> None:
    """Waits until the recorder has taken a sample that began after the call."""
    session = sys.modules.get("snapreport.recorder.session")
    samples: Any = session and session.active() and session.active()._devices.samples
    for _ in range(2 if samples and samples._thread else 0):
        now = time.time_ns() // 1000
        while samples._last.get(0, (0,))[0] <= now and samples._thread.is_alive():
            time.sleep(0.001)


def other_process(size: int) -> None:
    driver = ctypes.CDLL(f"{torch.__path__[0]}/../nvidia/cudnn/lib/libfakecuda.so")
    driver.fk_other_process(0, ctypes.c_uint(OTHER), ctypes.c_size_t(size))


def main() -> None:
    planted = []
    device = "cuda"

    def plant(cause: str, size: int) -> None:
        sampled()
        planted.append([cause, size])

    held = [torch.zeros(MIB, 24, device=device)]  # 96 MiB of the allocator, no jump
    sampled()
    weight = torch.ones(64, 64, device=device)
    held.append(weight @ weight)
    plant("cuBLAS", int(float(os.environ["FAKE_CUBLAS_MIB"]) * MIB))
    held.append(torch.zeros(MIB, 50, device=device))
    sampled()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held.append(weight + 1)
    plant("CUDA graphs", int(float(os.environ["FAKE_GRAPH_MIB"]) * MIB))
    other_process(300 * MIB)
    plant("other processes", 300 * MIB)
    held.clear()
    torch.cuda.empty_cache()
    sampled()
    os.environ.update(MASTER_ADDR="localhost", RANK="0", WORLD_SIZE="1")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda:0"))
    torch.distributed.all_reduce(weight)
    plant("NCCL", int(float(os.environ["FAKE_NCCL_MIB"]) * MIB))
    other_process(0)
    plant("other processes", -300 * MIB)
    torch.distributed.destroy_process_group()
    print(json.dumps(planted))


if __name__ == "__main__":
    main()
