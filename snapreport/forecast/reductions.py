"""Scratch memory of sums over rows: the gradient of a layer's bias, added up from that of its output.

PyTorch splits such a sum over blocks of threads once each thread would add 256 rows, and requests memory for the
blocks' parts: up to twice the summed gradient, from some thousand rows on. Recordings with fewer rows do not show it.
How much it is follows from the shape (``setReduceConfig`` in ATen/native/cuda/Reduce.cuh, the same in 2.6 to 2.15).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator.trace import ALLOC, FREE, Trace
from snapreport.timeline.curves import allocated_curve
from snapreport.timeline.phases import BACKWARD, stack_phases
from snapreport.timeline.workspaces import CUBLAS_WORKSPACE

MOST_THREADS, WARP, VECTOR = 512, 32, 4
LEAST_VALUES, MOST_VALUES = 16, 256
"""Of a thread: a sum is split over warps, and over blocks, so that a thread adds so many."""
PART = 4
"""Bytes: parts are added up in 32 bits, also those of 16-bit gradients; a semaphore has as many."""
NEAR = 12
"""Operations after a bias's gradient in which the summed gradient is freed: most within three."""
OF_LAYERS = ["parameter", "gradient", "optimizer state"]
"""Categories of what has no rows of a batch."""
_PAIR = np.array([1 << 31, 1])
"""Two sizes as one number: a bias has less than 2 GiB."""
RESIDENT_THREADS = np.array([40_960, 89_088, 110_592, 125_952, 163_840, 196_608, 218_112, 221_184, 270_336, 303_104])
"""Threads that a T4, L4, A10, RTX 3090, V100, RTX 4090, L40S, A100, H100 and B200 run at once."""
BEFORE_HOPPER = 221_184
"""An A100's: no device with cuBLAS's smaller workspace runs more at once. Before 2.9 PyTorch gives it to Blackwell, too
(``parseChosenWorkspaceSize`` in ATen/cuda/CublasHandlePool.cpp), which then needs more than is foretold.
"""


class Sums(Struct, frozen=True):
    """Sums over rows in a trace, in order; Int64, a row for each.

    at: the operation that requests the result. result: its id. counted: id of an allocation that has as many rows as
    are summed, of numbers of item_bytes; weight: id of one that has a row of it for each number of the result, -1 where
    rows are as long as the result. parts, semaphores: ids of the scratch memory, -1 where the recording has none.
    threads, fewest_threads: that the device runs at once, at most and at least: equal if a recording shows it.
    """

    at: np.ndarray
    result: np.ndarray
    counted: np.ndarray
    weight: np.ndarray
    item_bytes: np.ndarray
    parts: np.ndarray
    semaphores: np.ndarray
    threads: int
    fewest_threads: int

    def __len__(self) -> int:
        return len(self.at)

    def scratch(self, sizes: np.ndarray, *, least: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Int64 bytes of parts and semaphores, 0 for none, with ``sizes`` in bytes by allocation id; ``least``: on the
        device with the fewest threads.
        """
        return scratch_bytes(*self.shape(sizes), self.fewest_threads if least else self.threads)

    def shape(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Int64 (rows, columns)."""
        columns = np.maximum(sizes[self.result] // self.item_bytes, 1)
        width = np.where(self.weight >= 0, sizes[self.weight] // (columns * self.item_bytes), columns)
        return sizes[self.counted] // np.maximum(width * self.item_bytes, 1), columns

    def where(self, mask: np.ndarray) -> Sums:
        return replace(
            self,
            at=self.at[mask],
            result=self.result[mask],
            counted=self.counted[mask],
            weight=self.weight[mask],
            item_bytes=self.item_bytes[mask],
            parts=self.parts[mask],
            semaphores=self.semaphores[mask],
        )


def scratch_bytes(rows: np.ndarray, columns: np.ndarray, threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Int64 bytes of parts and semaphores of sums over ``rows`` (Int64) of ``columns`` numbers, on a device that runs
    so many threads at once.
    """
    shape = _shape(rows, columns)
    blocks = np.minimum(-(-threads // (shape.threads * shape.grid)), -(-shape.values // LEAST_VALUES))
    blocks = np.maximum(blocks, -(-shape.values // MOST_VALUES))
    is_split = shape.may_split & (shape.grid * shape.threads <= threads) & (blocks > 1)
    parts = np.where(is_split, PART * columns * blocks * shape.across, 0)
    return parts, np.where(is_split, PART * shape.grid, 0)


class _Shape(Struct, frozen=True):
    """Of a kernel, Int64: threads in a block, columns that a block has, blocks over all columns, rows of a thread."""

    threads: np.ndarray
    across: np.ndarray
    grid: np.ndarray
    values: np.ndarray
    may_split: np.ndarray


def _shape(rows: np.ndarray, columns: np.ndarray) -> _Shape:
    vector = np.where(columns % VECTOR == 0, VECTOR, np.where(columns % 2 == 0, 2, 1))
    most = MOST_THREADS // vector
    wide, high = np.minimum(_power(columns // vector), most), np.minimum(_power(rows), most)
    height = np.minimum(high, most // np.minimum(wide, WARP))
    width = np.minimum(wide, most // height)
    is_tall = rows >= np.minimum(height * LEAST_VALUES, MOST_VALUES)
    values = -(-rows // height)
    grid = -(-(columns // vector) // width)
    return _Shape(width * height, width * vector, grid, values, is_tall & (values >= MOST_VALUES))


def _power(count: np.ndarray) -> np.ndarray:
    """The largest power of two that is not above ``count``, at least 1."""
    found: np.ndarray = 1 << np.floor(np.log2(np.maximum(count, 1))).astype(np.int64)
    return found


def sums_of(trace: Trace) -> Sums:
    """The sums over rows that a trace shows, as far as what it allocates for them is what PyTorch would.

    The backward pass of a layer requests the gradient of its weight, then that of its bias, whose size divides the
    first; with both, that of its output is no longer needed, and is freed.
    """
    lasting = _lasting(trace)
    trace = replace(trace, kind=trace.kind[lasting], item=trace.item[lasting])
    size = trace.size.astype(np.int64)
    request = np.flatnonzero(trace.kind == ALLOC)
    parts, semaphores = _recorded_scratch(trace, request)
    behind = request + np.where(parts >= 0, 5, 1)
    is_behind = _are_gradients(trace, behind, request)
    is_sum = _are_gradients(trace, request - 1, request) | is_behind
    request, parts, semaphores = request[is_sum], parts[is_sum], semaphores[is_sum]
    # Requested before it are the weight's gradient, and that of the layer's input.
    weight, given = _requested(trace, request - 1), _requested(trace, request - 2)
    result = trace.item[request]
    width = np.where(weight >= 0, size[weight], 0) // size[result]
    summed, item_bytes, is_sure = _freed_soon(trace, request, np.where(parts >= 0, 4, 0), width, size[given])
    item_bytes[~is_sure] = 2 if 2 * (item_bytes[is_sure] == 2).sum() > is_sure.sum() else 4
    none, most = np.full_like(summed, -1), int(RESIDENT_THREADS[-1])
    of_output = Sums(lasting[request], result, summed, none, item_bytes, parts, semaphores, most, most)
    of_input = replace(of_output, counted=given, weight=weight)
    recorded = _recorded_threads(trace)
    fewest, threads = (recorded, recorded) if recorded else _device_threads(of_output.where(is_sure), size)
    first = (weight >= 0) & (given >= 0) & (size[given] % np.maximum(width * item_bytes, 1) == 0)
    first &= _as_recorded(of_input, size, threads)
    second = ~first & (summed >= 0) & _as_recorded(of_output, size, threads)
    counted, weight = np.where(first, given, summed), np.where(first, weight, -1)
    of_layer = trace.timeline.allocations["category"].is_in(OF_LAYERS).to_numpy()[counted]
    found = replace(of_output, counted=counted, weight=weight, threads=threads, fewest_threads=fewest)
    return found.where((first | second) & ~of_layer)


def _lasting(trace: Trace) -> np.ndarray:
    """Operations but for memory that is freed at once, such as the workspaces of cuBLAS; the scratch memory of a sum is
    two requests, and stays.
    """
    kind, item = np.concatenate(([FREE], trace.kind, [ALLOC] * 2)), np.concatenate(([-1], trace.item, [-2] * 2))
    first = np.flatnonzero((kind[:-3] == FREE) | (item[:-3] != item[3:]))  # not between a request and its free
    first = first[(kind[first + 1] == ALLOC) & (kind[first + 2] == FREE) & (item[first + 1] == item[first + 2])]
    return np.setdiff1d(np.arange(len(trace.kind)), np.concatenate((first, first + 1)), assume_unique=True)


def _requested(trace: Trace, at: np.ndarray) -> np.ndarray:
    """Ids of what operations request, -1 for other operations, and for none."""
    inside = (at >= 0) & (at < len(trace.kind))
    at = np.where(inside, at, 0)
    return np.where(inside & (trace.kind[at] == ALLOC), trace.item[at], -1)


def _are_gradients(trace: Trace, of_weight: np.ndarray, of_bias: np.ndarray) -> np.ndarray:
    """Boolean: whether two operations of a backward pass request the sizes of a layer's weight and bias: parameters
    that were allocated one after the other, or half of their bytes.
    """
    timeline = trace.timeline
    size = trace.size.astype(np.int64)
    parameter = np.flatnonzero((timeline.allocations["category"] == "parameter").to_numpy())
    layers = np.column_stack((size[parameter[:-1]], size[parameter[1:]]))
    layers = np.unique(np.concatenate((layers, layers // 2)) @ _PAIR)
    weight, bias = _requested(trace, of_weight), _requested(trace, of_bias)
    stack = timeline.allocations["stack"].to_numpy()[bias]
    is_backward = (stack == 0) | (stack_phases(timeline.recording).innermost[stack] == BACKWARD)
    w, b = np.where(weight >= 0, size[weight], 0), np.maximum(size[bias], 1)
    found: np.ndarray = is_backward & (w > b) & (w % b == 0) & np.isin(np.column_stack((w, b)) @ _PAIR, layers)
    return found


def _recorded_scratch(trace: Trace, request: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the two requests behind each, where they are freed at once in reverse order; -1 elsewhere."""
    kind, item = np.append(trace.kind, [FREE] * 4), np.append(trace.item, [-1] * 4)
    at = [item[request + step] for step in range(1, 5)]
    both = (kind[request + 1] == ALLOC) & (kind[request + 2] == ALLOC)
    both &= (kind[request + 3] == FREE) & (kind[request + 4] == FREE) & (at[2] == at[1]) & (at[3] == at[0])
    return np.where(both, at[0], -1), np.where(both, at[1], -1)


def _freed_soon(
    trace: Trace, request: np.ndarray, skipped: np.ndarray, width: np.ndarray, given: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ids of what is summed, -1 for none, bytes of a number, whether it is sure) behind each request.

    It is sure if it has as many rows as the gradient of the layer's input, of ``given`` bytes with ``width`` numbers in
    a row. Else it is what is freed first, in whole rows.
    """
    size = trace.size.astype(np.int64)
    result = size[trace.item[request]]
    summed, first = np.full((2, len(request)), -1, np.int64)
    item_bytes, freed_before = np.full(len(request), 4, np.int64), np.zeros(len(request), bool)
    for step in range(1, NEAR + 1):
        at = np.minimum(request + skipped + step, len(trace.kind) - 1)
        is_free = trace.kind[at] == FREE
        freed = np.where(is_free, trace.item[at], 0)
        rows, rest = np.divmod(np.where(is_free, size[freed], 0), result)
        whole = (rows > 1) & (rest == 0)
        for number in (2, 4):
            same = whole & (given == rows * width * number) & (summed < 0)
            summed[same], item_bytes[same] = freed[same], number
        first = np.where(whole & ~freed_before, freed, first)
        freed_before |= is_free
    return np.where(summed < 0, first, summed), item_bytes, summed >= 0


def _recorded_threads(trace: Trace) -> int:
    """Threads that the device runs at once, as the recorder noted; 0 if unknown."""
    timeline = trace.timeline
    recorder = timeline.recording.recorder
    device = recorder.devices.get(timeline.device) if recorder else None
    return device.resident_threads if device else 0


def _device_threads(sums: Sums, size: np.ndarray) -> tuple[int, int]:
    """(fewest, most). What most sums show that have fewer blocks than work for them: the device runs no more at once.
    Else of the known devices those on which most sums have the recorded scratch memory.
    """
    split = sums.where(sums.parts >= 0)
    rows, columns = split.shape(size)
    shape = _shape(rows, columns)
    blocks, rest = np.divmod(size[split.parts], PART * columns * shape.across)
    is_full = shape.may_split & (rest == 0) & (size[split.semaphores] == PART * shape.grid)
    is_full &= (blocks > -(-shape.values // MOST_VALUES)) & (blocks < -(-shape.values // LEAST_VALUES))
    found, count = np.unique((blocks * shape.grid * shape.threads)[is_full], return_counts=True)
    if len(found):
        return int(found[np.argmax(count)]), int(found[np.argmax(count)])
    known = RESIDENT_THREADS
    if (size == CUBLAS_WORKSPACE).any():
        known = known[known <= BEFORE_HOPPER]
    right = np.array([_as_recorded(sums, size, int(threads)).sum() for threads in known])
    return int(known[right == right.max()].min()), int(known[right == right.max()].max())


def _as_recorded(sums: Sums, size: np.ndarray, threads: int) -> np.ndarray:
    """Boolean: those whose recorded scratch memory, or none, is as foretold."""
    foretold = replace(sums, threads=threads).scratch(size)
    recorded = [np.where(sums.parts >= 0, size[one], 0) for one in (sums.parts, sums.semaphores)]
    found: np.ndarray = (foretold[0] == recorded[0]) & (foretold[1] == recorded[1])
    return found


class SummedTrace:
    """A trace in which every sum over rows has its scratch memory, of 0 bytes where the recording has none."""

    def __init__(self, trace: Trace) -> None:
        self.recorded = trace
        self.sums = sums_of(trace)
        self._new, self._shown = np.flatnonzero(self.sums.parts < 0), np.flatnonzero(self.sums.parts >= 0)

    @cached_property
    def trace(self) -> Trace:
        """Allocations of the recording first, then parts and semaphores of each sum that has none."""
        old, sums, new = self.recorded, self.sums, self._new
        count = len(new)
        ids = len(old.size) + np.arange(count)
        after = sums.at[new] + 1
        # Parts, then semaphores, which are freed first.
        added = [(ALLOC, ids), (ALLOC, ids + count), (FREE, ids + count), (FREE, ids)]
        where = np.tile(after, 4)
        order = np.argsort(np.concatenate([4 * np.arange(count) + step for step in range(4)]), kind="stable")
        kinds = np.concatenate([np.full(count, kind, old.kind.dtype) for kind, _ in added])[order]
        items = np.concatenate([item for _, item in added])[order]
        where = where[order]
        row = np.concatenate((np.arange(len(old.size)), np.tile(sums.result[new], 2)))
        return replace(
            old,
            kind=np.insert(old.kind, where, kinds),
            item=np.insert(old.item, where, items),
            event=np.insert(old.event, where, old.event[where - 1]),
            size=np.concatenate((old.size, np.zeros(2 * count, old.size.dtype))),
            stream=old.stream[row],
            pool=old.pool[row],
            born=np.concatenate((old.born, np.ones(2 * count, bool))),
        )

    @property
    def scratch(self) -> np.ndarray:
        """Ids of the recorded scratch memory of sums."""
        return np.concatenate((self.sums.parts[self._shown], self.sums.semaphores[self._shown]))

    def with_scratch(self, sizes: np.ndarray, *, least: bool = False) -> np.ndarray:
        """Int64 bytes by id of :attr:`trace`, of those by id of the recording; ``least``: see :meth:`Sums.scratch`."""
        parts, semaphores = self.sums.scratch(sizes, least=least)
        sums, shown = self.sums, self._shown
        sizes = np.concatenate((sizes, parts[self._new], semaphores[self._new]))
        sizes[sums.parts[shown]], sizes[sums.semaphores[shown]] = parts[shown], semaphores[shown]
        return sizes

    def peak_allocated(self, sizes: np.ndarray) -> int:
        """Bytes at most, of ``sizes`` by id of :attr:`trace`."""
        curve = self.curve(sizes[: len(self.recorded.size)])
        born = self.recorded.timeline.allocations["alloc_event"].to_numpy()[self.sums.result[self._new]]
        added = sizes[len(self.recorded.size) :].reshape(2, -1).sum(axis=0)
        return int(max(curve.max(), (curve[born.astype(np.int64) + 1] + added).max(initial=0)))

    def curve(self, sizes: np.ndarray) -> np.ndarray:
        """Int64 bytes allocated before the first event and after each, of ``sizes`` by id of the recording."""
        timeline = self.recorded.timeline
        alloc, free = (timeline.allocations[name].to_numpy() for name in ("alloc_event", "free_event"))
        return allocated_curve(alloc, free, sizes, len(timeline.events))
