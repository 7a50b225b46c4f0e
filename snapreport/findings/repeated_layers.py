"""Layers that repeat, and what activation checkpointing leaves of them.

A layer is told by the lines that allocate its activations: they run again in the next one, whatever the sizes, which
differ in networks that concatenate or halve the resolution. Lines whose first and last tensors of a forward pass
enclose each other's belong to one family of layers: an encoder's are apart from a decoder's.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.advice_context import AdviceContext, remembered
from snapreport.findings.graphs import backward_allocations, born_in, saved_for_backward
from snapreport.findings.saving import bytes_of_spans
from snapreport.integers import following, is_among
from snapreport.reading.noise import PYTHON, recorded_flags
from snapreport.timeline.phases import FORWARD

FEWEST_LAYERS = 4
"""Stacks whose tensors are alive so many times at once belong to repeated layers, which can be checkpointed."""
MOST = 0.5
"""Of the bytes of activations that repeat: their lines agree on the number of layers."""
FEWEST_IN_FAMILY = 3
"""Layers of one family, such as the levels of a U-Net's decoder."""
MAX_OUTPUT_RATIO = 64
"""Tensors so many times smaller than the largest of a layer are statistics of a normalisation, not its output."""


class Layers(Struct, frozen=True):
    """rows: Int64, allocations of the layers, in the whole trace. starts, ends: Int64 per row, the events between which
    a checkpointed layer does without it; an end is at most its free.
    """

    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def repeated_layers(context: AdviceContext, activation: np.ndarray, passes: int) -> Layers | None:
    """activation: Bool per allocation, those that a backward pass needs. passes: forward passes alive at the peak."""
    activation = activation & _saved(context)
    live = np.flatnonzero(activation & context.at_peak & context.is_traced)
    if not len(live):
        return None
    # What an earlier step left, as the number of its loss, is of no layer of this one.
    run = born_in(context)[live]
    live = live[run == np.argmax(np.bincount(run, context.size[live]))]
    lines = (
        context.table(live, stack=_lines(context)[live])
        .group_by("stack")
        .agg(n=pl.len(), bytes=pl.col("size").sum(), first=pl.col("born").min(), last=pl.col("born").max())
    )
    # What a line makes once in each of several forward passes, such as its logits, belongs to no layer.
    lines = lines.filter(pl.col("n") > passes).sort("first")
    if not len(lines):
        return None
    furthest = lines["last"].cum_max().shift(1, fill_value=-1)
    lines = lines.with_columns(family=(lines["first"] > furthest).cum_sum())
    # The family with most bytes first: its layers are as large as lowers the peak most, then those of the next.
    families = sorted((f for _, f in lines.group_by("family")), key=lambda f: (-int(f["bytes"].sum()), f["first"][0]))
    left, parts, counted = context.timeline.allocated.copy(), list[Layers](), 0
    for family in families:
        counts = _counts(family)
        counted += max(counts, default=0)
        tried = [_family(context, activation, family, count) for count in counts]
        curves = [
            left - bytes_of_spans(context.timeline, one.starts, one.ends, context.size[one.rows]) for one in tried
        ]
        if tried:
            best = min(range(len(tried)), key=lambda n: (curves[n].max(), curves[n][context.event + 1]))
            left = curves[best]
            parts.append(tried[best])
    if counted < FEWEST_LAYERS:
        return None
    return Layers(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "starts", "ends")))


@remembered
def _lines(context: AdviceContext) -> np.ndarray:
    """Int64 stack per allocation, one for a line. It is one, too, for all lines of a forward pass that differ in the
    numbers of modules alone, which a profiler's trace has among its frames (``nn.Module: Block_3``), or in the line
    that calls the model: SAM and a consistency loss call it twice in a step.
    """
    lines = context.lines.copy()
    recording = context.recording
    is_module = recording.frames["name"].str.starts_with("nn.Module: ").to_numpy()
    made = np.flatnonzero(context.is_traced & (context.category("activation") | context.forward[context.stack]))
    numbers, place = np.unique(lines[made], return_inverse=True)
    first: dict[tuple[bytes, bytes], int] = {}
    alike = list[int]()
    for stack in numbers.tolist():
        frames = np.asarray(recording.stack(stack), np.int64)
        frames = frames[~is_module[frames]]
        called = np.flatnonzero(context.frames_called[frames])[-1:].sum()
        # PyTorch's own layers are the same in all models.
        called = called if context.own_frames[frames[:called]].any() else len(frames)
        key = frames[:called].tobytes(), context.function_of_frame[frames[called:]].tobytes()
        alike.append(first.setdefault(key, stack))
    lines[made] = np.array(alike, np.int64)[place]
    return lines


def _saved(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: alive when a backward pass begins, to the end, or when memory ran out. A convolution without
    cuDNN unfolds its input in its own line, which counts no layer.
    """
    saved = saved_for_backward(context) | (context.freed >= len(context.timeline.events))
    ooms = context.timeline.oom_events
    return saved | context.alive_at(ooms[-1]) if ooms else saved


def _family(context: AdviceContext, activation: np.ndarray, lines: pl.DataFrame, count: int) -> Layers:
    """The layers of some lines (``stack``, ``n`` at the peak, ``bytes``), so many at the peak."""
    anchors = lines.filter(_tensors_of_each(pl.lit(count)) == 1)
    stack = _lines(context)
    rows = np.flatnonzero(activation & is_among(stack, lines["stack"].to_numpy()))
    rows = rows[np.argsort(context.born[rows], kind="stable")]
    born = context.born[rows]
    # A line that runs once in each layer counts them. A layer begins where the family's first line runs before it.
    once = born[stack[rows] == anchors["stack"][0]]
    begins = born[stack[rows] == lines["stack"][0]]
    of = np.searchsorted(once, begins, "left")
    first = np.minimum.reduceat(begins, np.flatnonzero(np.diff(of, prepend=-1)))
    layer = np.searchsorted(first, born, "right")
    table = context.table(rows, layer=layer)
    backward = np.flatnonzero(backward_allocations(context))
    # In the backward pass a layer is computed again before the first of its tensors goes.
    table = table.with_columns(end=pl.col("born").max().over("layer"), large=pl.col("size").max().over("layer"))
    again = following(backward, table["end"].to_numpy(), len(context.timeline.events))
    # Of a pass that was cut off, the last layer's lines may be alive that no other layer has.
    in_each = lines.filter((_tensors_of_each(pl.lit(count)) > 0) | (pl.col("n") >= FEWEST_IN_FAMILY))
    table = table.with_columns(around=is_among(stack[rows], _stacks_between_layers(context, in_each)))
    # Its output, which is the next one's input, stays: the last of its tensors but for statistics.
    is_output = (pl.col("size") * MAX_OUTPUT_RATIO >= pl.col("large")) & (pl.col("freed") > pl.col("end"))
    is_output &= ~pl.col("around")
    output = pl.when(is_output).then(pl.col("born")).max().over("layer")
    # So do others that the next layer reads, which its part of the backward pass frees before this one's.
    frees = table.group_by("layer").agg(half=pl.col("freed").median(), last=pl.col("freed").max()).sort("layer")
    frees = frees.with_columns(next=pl.col("last").shift(-1)).filter(pl.col("next") < pl.col("half"))
    table = table.join(frees.select("layer", "next"), on="layer", how="left", maintain_order="left")
    is_read = is_output & (pl.col("freed") <= pl.col("next"))
    is_kept = ((pl.col("born") == output) | is_read).fill_null(False) | pl.col("around")
    table = table.with_columns(backward=again, stays=is_kept)
    # A layer that is alive at the end of the trace is not computed again in it.
    never = len(context.timeline.events)
    is_used = (pl.col("freed") >= pl.col("backward")) & ~pl.col("stays") & (pl.col("freed") < never)
    used = pl.when(is_used).then(pl.col("freed"))
    table = table.with_columns(again=used.min().over("layer").fill_null(never + 1))
    grows = _concatenates(context, lines)
    concatenated = is_among(stack[rows], grows)
    part = 2 * context.size[rows[concatenated]].sum() >= context.size[rows].sum()
    stays = ~concatenated if part else table["stays"].to_numpy()
    starts = table["end"].to_numpy() + 1
    ends = np.minimum(table["again"].to_numpy() - 1, context.freed[rows])
    return Layers(rows, starts, np.where(stays, starts, np.maximum(starts, ends)))


def _concatenates(context: AdviceContext, lines: pl.DataFrame) -> np.ndarray:
    """Int64 stacks of the lines whose tensors grow by the same from layer to layer, as of a DenseNet: each reads what
    all before it made. Recomputed are what they concatenate and what is as large; layers keep their narrow tensors, as
    with torchvision's ``memory_efficient``.
    """
    stack = _lines(context)
    rows = np.flatnonzero(context.at_peak & is_among(stack, lines["stack"].to_numpy()))
    table = context.table(rows, stack=stack[rows])
    step = pl.col("size").sort_by("born").diff().drop_nulls()
    found = table.group_by("stack").agg(n=pl.len(), least=step.min(), most=step.max())
    found = found.filter((pl.col("n") >= FEWEST_LAYERS) & (pl.col("least") > 0) & (pl.col("least") == pl.col("most")))
    return found["stack"].to_numpy()


def _stacks_between_layers(context: AdviceContext, lines: pl.DataFrame) -> np.ndarray:
    """Int64 stacks of the lines that make something of the inputs or the outputs of layers where these are called, all
    at one line: a U-Net that concatenates what a level's module reads. A layer's own function calls several.
    """
    recording, stacks = context.recording, lines["stack"].to_list()
    is_python = recorded_flags(recording) & PYTHON > 0
    begins, ends = lines.select(pl.col("first").min(), pl.col("last").max()).row(0)
    made = (context.born >= begins) & (context.born <= ends) & context.forward[context.stack]
    beside = set(np.unique(_lines(context)[made]).tolist()) - set(stacks)
    # Outermost first: frames, and the functions they are in. C++ frames between them differ by operator.
    frames = {
        stack: [frame for frame in recording.stack(stack)[::-1] if is_python[frame]] for stack in [*stacks, *beside]
    }
    functions = {stack: context.function_of_frame[of] for stack, of in frames.items()}
    shortest = min(len(functions[stack]) for stack in stacks)
    alike = np.array([[functions[stack][at] for at in range(shortest)] for stack in stacks])
    common = int(np.cumprod((alike == alike[0]).all(axis=0)).sum())
    if not common:
        return np.zeros(0, np.int64)
    deeper = context.own_frames | np.append(context.frames_called, False)
    inside = [bool(deeper[frames[stack][common:]].any()) for stack in stacks]
    calling = [stack for stack, is_inside in zip(stacks, inside, strict=True) if is_inside]
    several = context.own_frames | np.append(context.texts_contain(r"torch/nn/modules/container\.py"), False)
    if not any(several[frames[stack][common:]].any() for stack in calling):
        # Where it calls PyTorch's layers alone it may be a layer's own function, which also calls what saves nothing.
        calling += [
            stack
            for stack in beside
            if np.array_equal(functions[stack][:common], alike[0, :common]) and deeper[frames[stack][common:]].any()
        ]
    if not any(inside) or len({frames[stack][common - 1] for stack in calling}) != 1:
        return np.zeros(0, np.int64)
    # Only what comes before all of the layer, or after it in no module: between its modules it is the layer's own.
    after = stacks[len(stacks) - inside[::-1].index(True) :]
    in_loss = context.phases.innermost[after] != FORWARD
    return np.append(stacks[: inside.index(True)], np.array(after, np.int64)[in_loss])


def _counts(lines: pl.DataFrame) -> list[int]:
    """Numbers of layers that most of the bytes agree on: ``n`` is a multiple of one, since a line may run several times
    in each layer, less one layer that the backward pass has begun to free.
    """
    rows = lines.group_by("n").agg(pl.col("bytes").sum())
    pairs = rows.select(layers="n").join(rows, how="cross").filter(_tensors_of_each(pl.col("layers")) > 0)
    agree = pairs.group_by("layers").agg(pl.col("bytes").sum())
    most = agree.filter((pl.col("bytes") >= MOST * pl.col("bytes").max()) & (pl.col("layers") >= FEWEST_IN_FAMILY))
    return sorted(most["layers"].to_list())


def _tensors_of_each(layers: pl.Expr) -> pl.Expr:
    """How many of ``n`` tensors each of so many layers made; 0 where they do not agree."""
    times = (pl.col("n") / layers).round().cast(pl.Int64)
    return pl.when((pl.col("n") - times * layers).abs() <= times).then(times).otherwise(0)
