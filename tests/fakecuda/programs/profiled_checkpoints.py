"""Trains with checkpoints, profiled and recorded at once: ``profiled_checkpoints.py PATH REENTRANT``.

Writes PATH.json and PATH.pickle, and prints how often and how long modules ran again in backward passes.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

recomputed_ns = []


class Block(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter_ns()
        try:
            return super().forward(x)
        finally:  # a checkpoint raises once it has what it needs
            if torch._C._current_graph_task_id() >= 0:
                recomputed_ns.append(time.perf_counter_ns() - began)


def main(path: str, *, is_reentrant: bool) -> None:
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    blocks = [Block(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).cuda() for _ in range(5)]
    optimizer = torch.optim.Adam([parameter for block in blocks for parameter in block.parameters()])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        for _ in range(4):
            hidden = torch.zeros(32, 64, device="cuda", requires_grad=True)
            for block in blocks:
                hidden = checkpoint(block, hidden, use_reentrant=is_reentrant)
            hidden.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(f"{path}.json")
    torch.cuda.memory._dump_snapshot(f"{path}.pickle")
    print(json.dumps({"recomputed": len(recomputed_ns), "recomputed_us": sum(recomputed_ns) / 1000}))


if __name__ == "__main__":
    main(sys.argv[1], is_reentrant=sys.argv[2] == "1")
