"""Causes planted into a workload for the findings to detect: a leak, churn, reference cycles, fragmentation.

Also a false leak: a cache that grows for some steps and then stops.
"""

from __future__ import annotations

from generator.blocks import Block
from generator.device import Device
from generator.options import MIB, Options
from generator.stacks import APP, TORCH, Call, StackBook

CHURN_BYTES = 32 * MIB
CYCLE_BYTES = 8 * MIB
CACHE_BYTES = 4 * MIB
CAPTURE_STREAM = 94_107_269_705_216

EVALUATION_BYTES = 96 * MIB
PREDICTION_BYTES = 50 * MIB
"""A prediction is cut from the block that an evaluation freed, and the remaining 46 MiB are too small for either."""


class Plants:
    """The causes planted in one device's run; `caller` is the place of the loop in the program."""

    def __init__(self, device: Device, options: Options, book: StackBook, caller: Call) -> None:
        self.device = device
        self.options = options
        self._kept: list[Block] = []
        self._cycles: list[Block] = []
        self._graph_outputs: list[Block] = []
        self._leak = caller.call(APP + "metrics.py", 31, "log_step").stack("aten::clone")
        mixup = caller.call(APP + "augment.py", 52, "mixup")
        self._churn, self._churn_free = mixup.stack("aten::mul"), mixup.release()
        self._empty = (
            caller.call(APP + "housekeeping.py", 12, "end_step")
            .call(TORCH + "cuda/memory.py", 224, "empty_cache")
            .stack()
        )
        self._cycle = caller.call(APP + "callbacks.py", 33, "on_batch").stack("aten::empty")
        self._collect = caller.call(APP + "callbacks.py", 41, "collect_garbage").release()
        self._cache = caller.call(APP + "rotary.py", 26, "extend_cache").stack("aten::cat")
        evaluate = caller.call(APP + "evaluate.py", 77, "evaluate")
        self._evaluate = evaluate.module(APP + "model.py", 178).stack("aten::linear")
        self._evaluate_free = evaluate.release()
        self._predict = evaluate.call(APP + "evaluate.py", 83, "keep_prediction").stack("aten::clone")
        capture = caller.call(APP + "graphs.py", 61, "capture")
        self._capture, self._capture_free = capture.stack("aten::linear"), capture.release()

    def setup(self) -> None:
        """Capture the CUDA graphs, each into a separate private pool: (0, 1), (0, 2) and so on."""
        device, options = self.device, self.options
        wide = options.batch * options.sequence * options.hidden * 2
        for number in range(options.private_pools):
            device.allocator.begin_capture((0, number + 1))
            state = device.alloc(wide, self._capture, CAPTURE_STREAM)
            for _ in range(options.layers):
                scratch = device.alloc(4 * wide, self._capture, CAPTURE_STREAM)
                device.allocator.record_stream(scratch, 0)
                mean = device.alloc(options.batch * options.sequence * 4, self._capture, CAPTURE_STREAM)
                following = device.alloc(wide, self._capture, CAPTURE_STREAM)
                device.free(scratch, self._capture_free)
                device.free(mean, self._capture_free)
                device.free(state, self._capture_free)
                state = following
            device.allocator.end_capture()
            self._graph_outputs.append(state)

    def step(self, number: int) -> None:
        """Run the planted causes of one step."""
        device, options = self.device, self.options
        if number < options.cache_steps:
            self._kept.append(device.alloc(CACHE_BYTES, self._cache))
        if options.cycles:
            self._cycles.append(device.alloc(CYCLE_BYTES, self._cycle))
            if len(self._cycles) == options.cycles:
                device.free_all(self._cycles, self._collect)
                self._cycles.clear()
        if options.churn:
            buffers = [device.alloc(CHURN_BYTES, self._churn) for _ in range(options.churn)]
            device.free_all(buffers, self._churn_free)
            device.empty_cache(self._empty)
        if options.leak:
            self._kept.append(device.alloc(options.leak, self._leak))
        if options.snapshot_every and (number + 1) % options.snapshot_every == 0:
            device.allocator.note_snapshot()

    def fragment(self) -> None:
        """Evaluate and keep every prediction, until no free block fits an evaluation although much memory is free."""
        self.device.empty_cache(self._empty)
        while True:
            working = self.device.alloc(EVALUATION_BYTES, self._evaluate)
            self.device.free(working, self._evaluate_free)
            self._kept.append(self.device.alloc(PREDICTION_BYTES, self._predict))
