"""Two ranks of a launcher, one device each: ``parallel.py ddp|fsdp``. Knows nothing of snapreport."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

# DDP compares parameter shapes through the device, where everything reads as zero.
dist._verify_params_across_processes = lambda *args, **kwargs: None

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(3)]).cuda()
if sys.argv[1] == "ddp":
    model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
else:
    from torch.distributed.fsdp import fully_shard

    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(8 * (1 + rank), 128, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
