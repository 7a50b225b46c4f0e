"""Whole jobs: a snapshot for each rank of a simulated parallel training, the same on every machine.

    generator.write_job("job/", "experts", ranks=64, straggler=37)

Each rank runs one program over the caching allocator of ``allocator.py``: layers with parameters, micro-batches
whose activations live from the forward to the backward pass, gradients, AdamW.
"""

from __future__ import annotations

import math
import os
import pickle
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generator.allocator import Allocator, OutOfMemoryError
from generator.blocks import Block
from generator.build import OTHER_BYTES, START_US
from generator.device import Device
from generator.layout import entry_dicts, segment_dicts, settings_dict
from generator.memory import DeviceMemory
from generator.options import GIB, MIB, Options
from generator.recorder import Recorder
from generator.stacks import Call, StackBook

KINDS = ("data", "pipeline", "tensor", "experts")
STEP_US = 400_000
STEP_FILE = "rank_{rank:05}_step_{step:08}_{reason}.pickle"


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of one job; sizes in bytes. Equal options give equal snapshots.

    kind: "data" (replicas), "pipeline" (stages; early ones hold more micro-batches, the first has the embedding, the
    last the head), "tensor" (each rank has a part of every layer), "experts" (uneven routing, drawn anew for each
    rank).
    replicas: of each pipeline stage, adjacent in rank. ``straggler``: a rank that keeps ``leak`` bytes in every step
    (``metrics.py log_step``). ``oom``: a rank whose last step is too large for its ``memory``. ``heavy``: a rank whose
    batch is larger by ``factor`` (its expert's share of tokens, with "experts"). ``jitter``: random variation of batch
    lengths between ranks and steps. ``hosts``: ranks on each host. ``clock_us``: offset between the clocks of hosts.
    metadata: include what snapreport's recorder writes, such as the rank.
    """

    kind: str = "data"
    ranks: int = 8
    steps: int = 4
    seed: int = 0
    layers: int = 8
    hidden: int = 1024
    tokens: int = 4096
    micro_batches: int = 4
    replicas: int = 1
    operations: int = 6
    vocabulary: int = 32_000
    memory: int = 80 * GIB
    jitter: float = 0.0
    unevenness: float = 0.25
    straggler: int | None = None
    leak: int = 64 * MIB
    oom: int | None = None
    heavy: int | None = None
    factor: float = 1.5
    hosts: int = 8
    clock_us: int = 0
    metadata: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}; it can be {', '.join(KINDS)}")
        for name in (
            "ranks",
            "steps",
            "layers",
            "hidden",
            "tokens",
            "micro_batches",
            "replicas",
            "operations",
            "hosts",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("straggler", "oom", "heavy"):
            rank = getattr(self, name)
            if rank is not None and not 0 <= rank < self.ranks:
                raise ValueError(f"{name} is {rank}, but ranks are 0 to {self.ranks - 1}")


def write_job(folder: str | os.PathLike[str], kind: str = "data", **options: Any) -> list[Path]:
    """Write the snapshots of a job into a folder, named as snapreport's recorder names them; returns the paths."""
    chosen = JobOptions(kind=kind, **options)
    Path(folder).mkdir(parents=True, exist_ok=True)
    return [write_rank(chosen, rank, folder) for rank in range(chosen.ranks)]


def write_rank(options: JobOptions, rank: int, folder: str | os.PathLike[str]) -> Path:
    """Write one rank's snapshot; the same file as from :func:`write_job`."""
    reason = "oom" if rank == options.oom else "steps"
    # The recorder counts completed steps: the last one of a rank that runs out of memory is not.
    step = options.steps - (rank == options.oom)
    path = Path(folder) / STEP_FILE.format(rank=rank, step=step, reason=reason)
    path.write_bytes(pickle.dumps(make_rank(options, rank), 4))
    return path


def make_rank(options: JobOptions, rank: int) -> dict[str, Any]:
    """The snapshot of one rank; it does not depend on the others."""
    book = StackBook("python")
    rng = random.Random(options.seed * 1_000_003 + rank)
    host = rank // options.hosts
    skew = options.clock_us * host
    recorder = Recorder(START_US + skew, rng)
    memory = DeviceMemory(rank % options.hosts, options.memory, OTHER_BYTES)
    allocator = Allocator(rank % options.hosts, memory, recorder)
    device = Device(allocator, rng, None, "all", True)
    program = _Program(options, rank, device, book)
    ends: list[list[int]] = []
    oom: dict[str, int] = {}
    try:
        program.setup()
        for number in range(options.steps):
            # All ranks wait for each other at the end of a step.
            recorder.now_us = max(recorder.now_us, START_US + skew + number * STEP_US)
            program.step(number)
            if rank == options.oom and number == options.steps - 1:
                program.outgrow()
            ends.append([number + 1, recorder.now_us])
    except OutOfMemoryError:
        oom = {"device": rank % options.hosts, "tried_bytes": recorder.rows[-1][2], "free_bytes": memory.free_bytes}
    plain = Options()
    # Traces of the other devices of the host are empty in a rank's file.
    traces: list[list[dict[str, Any]]] = [[] for _ in range(options.hosts)]
    traces[rank % options.hosts] = entry_dicts(recorder, plain.layout, True, True)
    snapshot = {
        "segments": segment_dicts(allocator),
        "device_traces": traces,
        "allocator_settings": settings_dict(plain, False),
        "external_annotations": [],
    }
    if options.metadata:
        snapshot["snapreport"] = _metadata(options, rank, memory, ends, oom, recorder.now_us)
    return snapshot


def _metadata(
    options: JobOptions, rank: int, memory: DeviceMemory, ends: list[list[int]], oom: dict[str, int], now_us: int
) -> dict[str, Any]:
    number = rank % options.hosts
    return {
        "schema": "snapreport-recording/1",
        "reason": "oom" if oom else "steps",
        "step": len(ends),
        "oom": oom,
        "dumped_us": now_us,
        "process": {"host": f"node{rank // options.hosts:03}", "pid": 4000 + rank},
        "distributed": {"RANK": str(rank), "LOCAL_RANK": str(number), "WORLD_SIZE": str(options.ranks)},
        "devices": {number: {"name": "NVIDIA H100 80GB HBM3", "uuid": "", "total_bytes": memory.total}},
        "memory_at_dump": {number: {"free_bytes": memory.free_bytes, "total_bytes": memory.total}},
        "steps": ends,
    }


class _Program:
    """The program on one rank."""

    def __init__(self, options: JobOptions, rank: int, device: Device, book: StackBook) -> None:
        self.options, self.rank, self.device = options, rank, device
        self.stage = rank // options.replicas
        self.stages = -(-options.ranks // options.replicas)
        # The same code is in a different folder on every host.
        root = f"/local/node{rank // options.hosts:03}/train/"
        main = book.program(root + "pretrain.py", 112)
        self.loop = main.call(root + "pretrain.py", 88, "train_step")
        build = main.call(root + "pretrain.py", 41, "build_model")
        self.weight = build.call(root + "model/layers.py", 23, "__init__").stack("aten::empty")
        self.embedding = build.call(root + "model/embedding.py", 17, "__init__").stack("aten::empty")
        self.head = build.call(root + "model/head.py", 12, "__init__").stack("aten::empty")
        self.optimizer = self.loop.call(root + "optim/adamw.py", 64, "step").stack("aten::zeros_like")
        self.logits = self.loop.module(root + "model/head.py", 31).stack("aten::mm")
        self.gradient = self.loop.call(root + "pretrain.py", 97, "backward").stack("aten::mm")
        self.release = self.loop.call(root + "pretrain.py", 99, "backward").release()
        self.log = self.loop.call(root + "metrics.py", 31, "log_step").stack("aten::clone")
        self.long = self.loop.call(root + "data/collate.py", 58, "pad_batch").stack("aten::full")
        self.dispatch = self.loop.module(root + "moe/layer.py", 40).call(root + "moe/dispatch.py", 88, "dispatch")
        self.block = self.loop.module(root + "model/transformer.py", 70)
        self.forward = [self._operation(root, number) for number in range(options.operations)]
        self.weights: list[Block] = []
        self.state: list[Block] = []
        self.kept: list[Block] = []
        self.share = self._expert_share()

    def _operation(self, root: str, number: int) -> Any:
        place: Call = self.block.call(root + f"model/{('attention', 'mlp')[number % 2]}.py", 30 + 7 * number, "forward")
        return place.stack("aten::mm")

    def _expert_share(self) -> float:
        """Relative number of tokens routed to this rank's experts, 1 on average."""
        if self.options.kind != "experts":
            return 1.0
        drawn = math.exp(self.options.unevenness * self.device.rng.gauss(0, 1) - self.options.unevenness**2 / 2)
        return drawn * (self.options.factor if self.rank == self.options.heavy else 1.0)

    def setup(self) -> None:
        """Allocate the parameters of this rank's part of the model."""
        options = self.options
        layer = 12 * options.hidden**2 * 4
        parts = self.stages if options.kind == "pipeline" else 1
        if options.kind == "tensor":
            layer //= options.ranks
        layers = max(1, options.layers // parts)
        for _ in range(layers):
            self.weights += [self.device.alloc(layer // 4, self.weight) for _ in range(4)]
        table = options.vocabulary * options.hidden * 4
        if options.kind != "pipeline" or self.stage == 0:
            self.weights.append(
                self.device.alloc(table // (options.ranks if options.kind == "tensor" else 1), self.embedding)
            )
        if options.kind == "pipeline" and self.stage == self.stages - 1:
            self.weights.append(self.device.alloc(table, self.head))
        self.layers = layers

    def step(self, number: int) -> None:
        """One step: the micro-batches of the schedule, gradients, AdamW; and a straggler's leak."""
        options, device = self.options, self.device
        # 1F1B: stage s of p has p - s micro-batches in flight.
        under_way = self.stages - self.stage if options.kind == "pipeline" else 1
        waiting: list[list[Block]] = []
        gradients: list[Block] = []
        for _ in range(options.micro_batches + under_way - 1):
            waiting.append(self._forward())
            if len(waiting) >= under_way:
                gradients += self._backward(waiting.pop(0), first=not gradients)
        while waiting:
            gradients += self._backward(waiting.pop(0), first=not gradients)
        if not self.state:
            self.state = [device.alloc(w.requested, self.optimizer) for w in self.weights for _ in range(2)]
        temporary = [device.alloc(w.requested, self.optimizer) for w in self.weights[:4]]
        device.free_all(temporary, self.release)
        device.free_all(gradients, self.release)
        if self.rank == options.straggler:
            self.kept.append(device.alloc(options.leak, self.log))

    def outgrow(self) -> None:
        """A document that is far too long: its padded batch grows until memory runs out."""
        size = self.options.memory // 64
        while True:
            self.kept.append(self.device.alloc(size, self.long))

    def _forward(self) -> list[Block]:
        options, device = self.options, self.device
        length = options.tokens * (1 - options.jitter * device.rng.random())
        if self.rank == options.heavy and options.kind != "experts":
            length *= options.factor
        size = int(length) * options.hidden * 2
        saved = []
        for _ in range(self.layers):
            for number, stack in enumerate(self.forward):
                saved.append(device.alloc(size * (4 if number % 2 else 1), stack))
                scratch = device.alloc(size, stack)
                device.free(scratch, self.release)
            if options.kind == "experts":
                saved.append(device.alloc(size * 8 * self.share, self.dispatch.stack("aten::index_select")))
        if options.kind != "pipeline" or self.stage == self.stages - 1:
            saved.append(device.alloc(int(length) * options.vocabulary // 4, self.logits))
        return saved

    def _backward(self, saved: list[Block], first: bool) -> list[Block]:
        device = self.device
        made = [device.alloc(weight.requested, self.gradient) for weight in self.weights] if first else []
        for block in reversed(saved):
            scratch = device.alloc(block.requested, self.gradient)
            device.free(scratch, self.release)
            device.free(block, self.release)
        return made
