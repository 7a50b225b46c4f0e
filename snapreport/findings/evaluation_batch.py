"""The batch of a forward pass that no backward pass follows, where the program trains: validation, or sampling."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, SETTING, Advice, AdviceContext, remembered
from snapreport.findings.graphs import backward_passes, born_in, freed_in
from snapreport.findings.retained_graphs import retained_graphs
from snapreport.findings.unused_graphs import CHECKPOINT, unused_graphs
from snapreport.sentence import sentence

_MOST = 0.5
"""Of what grows with the batch at the peak: with more of it in such a pass, accumulating gradients is no remedy. And of
backward passes: an evaluation runs after fewer."""

_OF_ONE = "A batch of one can be split into tiles or windows."
_CHUNK = "Tensor.chunk()", "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.chunk.html"
_LINE = "outputs = torch.cat([model(part) for part in batch.chunk(2)])"


def is_evaluation(context: AdviceContext, batch: np.ndarray) -> bool:
    """Whether most of ``batch`` (Bool per allocation) at the peak is of a pass that no backward pass follows."""
    computed = batch & evaluated(context) & context.forward[context.stack]
    return not context.is_cut_off and context.bytes_at_peak(computed) > _MOST * context.bytes_at_peak(batch)


def keeps_graphs(context: AdviceContext, batch: np.ndarray) -> bool:
    """Whether most of ``batch`` (Bool per allocation) at the peak are graphs that no backward pass uses, of passes that
    run between some training steps only: an evaluation without ``no_grad``. A teacher runs in each step.
    """
    graphs = batch & unused_graphs(context)
    if context.bytes_at_peak(graphs) <= _MOST * context.bytes_at_peak(batch):
        return False
    passes, begun = int(backward_passes(context)[-1]), born_in(context)[graphs]
    # A teacher runs before the end of each backward pass; what ran after the last is in no whole step.
    return bool(len(np.unique(begun[begun < passes])) <= _MOST * passes)


@remembered
def evaluated(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: freed before the pass begins of which the next backward pass frees something. Nothing that
    is alive at the end, whose backward pass may not have been recorded; no graph that is dropped, as a teacher's in a
    training step; and nothing of a checkpoint, which computes again between two parts of a backward pass.
    """
    freed, last = context.freed, len(context.timeline.events)
    run, unused = born_in(context), unused_graphs(context)
    saved = context.category("activation") & context.forward[context.stack] & ~unused
    saved &= ~context.freed_elsewhere | retained_graphs(context)
    saved &= freed_in(context) > run
    begins = np.full(int(run.max(initial=0)) + 1, last, np.int64)
    np.minimum.at(begins, run[saved], pass_begins(context)[saved])
    before = begins[run]
    passing = context.has_python & (freed <= before) & context.is_freed
    return np.asarray(passing & ~unused & ~context.frames(CHECKPOINT)[context.stack])


@remembered
def pass_begins(context: AdviceContext) -> np.ndarray:
    """Int64 per allocation: the event of the first that its forward pass made. Between two passes the program allocates
    outside of any: a batch, a loss.
    """
    order = np.argsort(context.born, kind="stable")
    outside = ~(context.forward | context.beside_passes)[context.stack[order]]
    begins = outside | np.append(True, outside[:-1])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    found = np.zeros(len(order), np.int64)
    found[order] = np.maximum(context.born[order[first]], 0)
    return found


def evaluation_batch(context: AdviceContext, batch: np.ndarray) -> Advice | None:
    """``batch``: Bool per allocation, what grows with the batch, most of it of an evaluation."""
    mask = batch & evaluated(context)
    size = context.bytes_at_peak(mask)
    if not context.is_much(size):
        return None
    return Advice(
        "evaluation-batch",
        "Evaluate half the batch at a time",
        [
            sentence(
                "{} are of a forward pass that no backward pass follows, such as validation or sampling.",
                context.share(size),
            ),
            _OF_ONE,
        ],
        *_CHUNK,
        mask,
        0.5,
        effort=ONE_LINE,
        line=_LINE,
    )


def inference_batch(context: AdviceContext, batch: np.ndarray) -> Advice:
    """The same of a program that does not train: any batch can be smaller, so that mistakes of one line come first."""
    size = context.share(context.bytes_at_peak(batch))
    has_cache = context.bytes_at_peak(context.category("kv cache")) > 0
    return Advice(
        "inference-batch",
        "Run half the batch at a time",
        [
            sentence("What grows with the batch (activations, inputs, temporaries, caches) holds {}.", size),
            "Of one sequence, half the context saves as much." if has_cache else _OF_ONE,
        ],
        *_CHUNK,
        batch,
        0.5,
        effort=SETTING,
        line=_LINE,
    )
