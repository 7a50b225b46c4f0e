"""Copies of the weights that stay on the device: of an earlier step, such as the best so far, while training goes on;
and of a model that serves in several versions, while others are in use.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence, remembered
from snapreport.findings.evaluation_batch import evaluated
from snapreport.findings.graphs import backward_passes, born_in, forward_births, freed_in
from snapreport.findings.live import names_of
from snapreport.findings.saving import share_of_lives
from snapreport.sentence import sentence
from snapreport.timeline.phases import OPTIMIZER_STEP

_DO = "Keep copies of the weights on the CPU"
_MIN_COPIES, _MIN_TENSORS, _MIN_STEPS, _MIN_VERSIONS = 2, 4, 2, 3
_MOST_USED = 0.5
_SIMILAR = 0.9
"""Of the model's bytes: a copy has all of its weights, and may leave out statistics of norms."""


class CopiesEvidence(AdviceEvidence, kw_only=True):
    copies: int


def weight_copies(context: AdviceContext) -> Advice | None:
    """As many tensors of the same sizes as the model has, which a line of the program makes anew after some training
    steps, while one optimizer's state stays: a copy that is trained would have a state of its own.
    """
    if context.infers:
        return _versions(context)
    copies = copied_weights(context)
    mask = context.marked(copies)
    size = context.bytes_at_peak(mask)
    if not context.is_much(size):
        return None
    largest = copies[np.argmax(context.size[copies] * context.at_peak[copies])]
    of_model = context.size[context.category("parameter") & (context.born < context.born[copies].min())].sum()
    has_state = np.bincount(born_in(context)[copies], context.size[copies]).max() > of_model
    often = " again and again" if len(np.unique(born_in(context)[copies])) >= _MIN_COPIES else ""
    return Advice(
        "weight-copies",
        _DO,
        [
            sentence(
                "{} are {what} of an earlier step, of which {} makes a copy{often}.",
                context.share(size),
                names_of(context.snapshot).line(int(context.stack[largest])),
                what="weights and optimizer state" if has_state else "weights",
                often=often,
            ),
            "A copy that no step computes with, such as that of the best weights, does not have to be on the device.",
        ],
        "Tensor.cpu()",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.cpu.html",
        mask,
        effort=ONE_LINE,
        line="best = {name: one.cpu() for name, one in model.state_dict().items()}",
    )


def _versions(context: AdviceContext) -> Advice | None:
    """Several times the weights of one model, or most of them, which a line makes between forward passes."""
    mine = context.traced("parameter", "unknown")
    rows = np.flatnonzero(mine)
    passes = forward_births(context)
    table = context.table(
        rows, line=names_of(context.snapshot).frames[context.stack[rows]],
        copy=np.searchsorted(passes, context.born[rows]), alive=context.at_peak[rows],
    )  # fmt: skip
    weights = np.unique(context.size[context.category("parameter") & (context.born < passes[:1].max(initial=0))])
    table = table.filter(pl.col("alive") & pl.col("size").is_in(pl.Series(weights).implode()))
    copies = table.group_by("line", "copy").agg(
        pl.col("size").sum(), n=pl.len(), sizes=pl.col("size").n_unique(), begins=pl.col("born").min()
    )
    copies = copies.filter((pl.col("n") >= _MIN_TENSORS) & (pl.col("sizes") > 1))
    copies = copies.filter(pl.len().over("line", "size", "n") >= _MIN_VERSIONS).sort("line", "begins")
    # One of them is on the device at a time.
    ends = copies.with_columns(end=pl.col("begins").shift(-1).over("line"))
    table = table.join(ends.select("line", "copy", "end"), on=["line", "copy"])
    made, last = table["row"].to_numpy(), len(context.timeline.events)
    mask = context.marked(made)
    size = context.bytes_at_peak(mask)
    if not context.is_much(size):
        return None
    fraction = share_of_lives(context.timeline, made, table["end"].fill_null(last).to_numpy())[0]
    if not fraction:
        return None
    return Advice(
        "weight-copies",
        _DO,
        [
            sentence(
                "{} are weights of {} versions of a model, from {}, each of which was made when a forward pass needed "
                "it.",
                context.share(size),
                len(copies),
                names_of(context.snapshot).line(int(context.stack[made[np.argmax(context.size[made])]])),
            ),
            "The replay leaves one of them at a time: the others wait on the CPU. Adapters that are not merged into "
            "the weights need no copies.",
        ],
        "Module.cpu()",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.cpu",
        mask,
        fraction,
        evidence=CopiesEvidence(copies=len(copies)),
        line="last_model.cpu()",
    )


@remembered
def copied_weights(context: AdviceContext) -> np.ndarray:
    """Int64 rows of copies, those of all times."""
    in_step = context.phases.runs(OPTIMIZER_STEP)[context.stack]
    state = context.category("optimizer state") & in_step & context.is_traced
    mine = context.traced("parameter", "unknown", "optimizer state") & context.has_python
    mine &= ~in_step & ~context.forward[context.stack] & (born_in(context) > 0) & ~context.outlives_loop
    rows = np.flatnonzero(mine)
    if not state.any() or not len(rows):
        return rows[:0]
    # Where most steps run a forward pass without a graph, it may be the copy's: a target network, or a teacher.
    used = np.unique(born_in(context)[evaluated(context) & context.forward[context.stack]])
    if len(used) > _MOST_USED * backward_passes(context)[-1]:
        return rows[:0]
    line = names_of(context.snapshot).frames[context.stack[rows]]  # deepcopy() calls itself, as deep as modules are
    table = context.table(rows, line=line, copy=born_in(context)[rows])
    # What an optimizer that a program writes itself adds to the weights stays until the next step's is made.
    begins = np.unique(born_in(context)[context.traced("gradient")])
    begins = begins if len(begins) > 1 else np.arange(1, 1 + backward_passes(context)[-1])
    steps = np.searchsorted(begins, freed_in(context)[rows], "right") - np.searchsorted(begins, table["copy"], "right")
    stays = ~context.is_freed[rows] | (steps >= _MIN_STEPS)
    copies = table.filter(stays).group_by("line", "copy").agg(pl.col("size").sum(), n=pl.len())
    lines = copies.group_by("line").agg(
        pl.col("size").max(), pl.col("n").max(), copies=pl.len(), first=pl.col("copy").min(),
        alike=(pl.col("size").n_unique() == 1) & (pl.col("n").n_unique() == 1),
    )  # fmt: skip
    lines = lines.filter(
        (pl.col("n") >= _MIN_TENSORS) & pl.col("alike") & (pl.col("first") >= int(born_in(context)[state].max()))
    )
    model = context.category("parameter") & (context.born < context.born[rows[0]])
    sizes, total = np.unique(context.size[model]), int(context.size[model].sum())
    # With the optimizer's state, as in a checkpoint to go back to: one such copy is no teacher, nor any other model.
    most = total + int(context.size[state].sum())
    lines = lines.filter((pl.col("size") >= _SIMILAR * total) & (pl.col("size") <= most))
    lines = lines.filter((pl.col("copies") >= _MIN_COPIES) | (pl.col("size").sum().over("first") >= _SIMILAR * most))
    # The program may end soon after the last copy.
    is_last = (pl.col("copy") == pl.col("copy").max().over("line")) & pl.col("size").is_in(pl.Series(sizes).implode())
    table = table.filter(pl.Series(stays) | is_last).join(lines.select("line"), on="line", how="semi")
    found: np.ndarray = table["row"].to_numpy()
    return found if np.isin(context.size[found], sizes).all() else found[:0]
