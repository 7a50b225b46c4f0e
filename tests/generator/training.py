"""The training loop: a batch, the model forward and backward, clipping, AdamW, gradients set to None."""

from __future__ import annotations

from generator.blocks import Block
from generator.device import Device
from generator.options import MIB, Options
from generator.sites import LoopStacks
from generator.stacks import StackBook
from generator.transformer import FLOAT, LONG, Transformer

COPY_STREAM = 94_107_263_411_328
"""The stream that copies batches to the device."""


class Training:
    """The program on one device: `setup`, then repeated `step`."""

    def __init__(self, device: Device, options: Options, book: StackBook) -> None:
        self.device = device
        self.options = options
        self.model = Transformer(device, options, book)
        self.place = self.model.sites.train
        self.stacks = LoopStacks(book, self.place)

    def setup(self) -> None:
        """Build the model: all parameters."""
        self.model.build(self.stacks.parameter)

    def step(self, number: int) -> None:
        """One step on one batch; with `vary`, its sequences are shorter by a random fraction."""
        options = self.options
        self._train(max(8, int(options.sequence * (1 - options.vary * self.device.rng.random())) // 8 * 8))

    def outgrow(self) -> None:
        """A batch of documents so long that its largest tensor fits once but not twice: plain demand.

        With flash attention the activations of many layers fill the memory first, so a small request fails.
        """
        memory = self.device.allocator.memory
        left = memory.total - memory.other - self.device.allocator.allocated
        length = self.options.sequence
        while self.model.largest_tensor(length) < 0.7 * left:
            length += 8
        while True:
            self._train(length)
            length *= 2

    def _train(self, length: int) -> None:
        device = self.device
        device.recorder.now_us += device.rng.randint(2_000, 9_000)
        with device.annotation("Optimizer.zero_grad#AdamW.zero_grad"):
            for weight in self.model.weights.values():
                if weight.grad is not None:
                    device.free(weight.grad, self.stacks.zero_grad)
                    weight.grad = None
        tokens = self.options.batch * length
        batch = self._batch(tokens)
        self.model.forward(tokens, length)
        self.model.backward(tokens, length)
        device.free_all(batch, self.model.sites.batch_free)
        self._clip()
        with device.annotation("Optimizer.step#AdamW.step"):
            self._optimize()
        self._log(tokens)

    def _batch(self, tokens: int) -> list[Block]:
        stream = COPY_STREAM if self.options.streams > 1 else 0
        blocks = [self.device.alloc(tokens * LONG, self.model.sites.batch, stream) for _ in range(2)]
        for block in blocks:
            self.device.allocator.record_stream(block, 0)
        return blocks

    def _clip(self) -> None:
        norms = [self.device.alloc(FLOAT, self.stacks.clip) for _ in self.model.weights]
        total = self.device.alloc(len(norms) * FLOAT, self.stacks.clip)
        self.device.free_all(norms, self.stacks.clip_free)
        self.device.free(total, self.stacks.clip_free)

    def _optimize(self) -> None:
        device, stacks = self.device, self.stacks
        weights = list(self.model.weights.values())
        for weight in weights:
            if weight.moments is None:
                size = weight.elements * FLOAT
                weight.moments = device.alloc(size, stacks.exp_avg), device.alloc(size, stacks.exp_avg_sq)
        if self.options.optimizer == "foreach":
            roots = [device.alloc(weight.elements * FLOAT, stacks.foreach) for weight in weights]
            device.free_all(roots, stacks.foreach_free)
            return
        for weight in weights:
            root = device.alloc(weight.elements * FLOAT, stacks.single)
            denominator = device.alloc(weight.elements * FLOAT, stacks.denominator)
            device.free(root, stacks.single_free)
            device.free(denominator, stacks.single_free)

    def _log(self, tokens: int) -> None:
        loss = self.device.alloc(FLOAT, self.stacks.metrics)
        per_token = self.device.alloc(min(tokens * FLOAT, 4 * MIB), self.stacks.metrics)
        self.device.free(per_token, self.stacks.metrics_free)
        self.device.free(loss, self.stacks.metrics_free)
