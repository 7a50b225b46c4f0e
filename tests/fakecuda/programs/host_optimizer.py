"""Trains with an optimizer on the GPU, or on the CPU: ``host_optimizer.py COPIES [offload|torchao]``.

The second does what CPUOffloadOptimizer of torchao does: gradients are copied to pinned memory as soon as they are
there, and parameters back in the step. Writes each copy between host and device to COPIES, as the time in ns since
1970, its direction and its bytes: the driver of these tests has no kernels and no copies for a profiler.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

COPIES, REMEDY = (*sys.argv[1:], "")[:2]
WIDTH, LAYERS, BATCH, STEPS = 1024, 6, 384, 6


class Noted(TorchDispatchMode):
    """Notes copies between host and device."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[tuple[int, str, int]] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        begin = time.time_ns()
        result = operator(*args, **(kwargs or {}))
        if operator in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default):
            source = args[1] if operator is torch.ops.aten.copy_.default else args[0]
            if source.device.type != result.device.type:
                way = "HtoD" if result.is_cuda else "DtoH"
                self.copies.append((begin, way, result.nbytes))
        return result


class OnCpu:
    """AdamW whose state and arithmetic are on the CPU."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.hosts = {p: torch.empty_like(p, device="cpu", pin_memory=True).copy_(p.detach()) for p in parameters}
        for parameter, host in self.hosts.items():
            host.grad = torch.empty_like(host, pin_memory=True)
            parameter.register_post_accumulate_grad_hook(self.copy)
        self.optimizer = torch.optim.AdamW(list(self.hosts.values()))

    def copy(self, parameter: nn.Parameter) -> None:
        self.hosts[parameter].grad.copy_(parameter.grad, non_blocking=True)

    @torch.no_grad()
    def step(self) -> None:
        self.optimizer.step()
        for parameter, host in self.hosts.items():
            parameter.copy_(host, non_blocking=True)

    def zero_grad(self) -> None:
        for parameter in self.hosts:
            parameter.grad = None


def main() -> None:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS))).cuda()
    parameters = list(net.parameters())
    if REMEDY == "torchao":
        from torchao.optim import CPUOffloadOptimizer

        optimizer: Any = CPUOffloadOptimizer(parameters, torch.optim.AdamW)
    else:
        optimizer = OnCpu(parameters) if REMEDY else torch.optim.AdamW(parameters, fused=True)
    with Noted() as noted:
        for _ in range(STEPS):
            out = net(torch.randn(BATCH, WIDTH).cuda())
            out.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            out.detach().cpu()
    Path(COPIES).write_text(json.dumps(noted.copies))


main()
