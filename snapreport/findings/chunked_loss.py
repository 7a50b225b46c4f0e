"""Logits and what a loss computes from them, which chunks of the last layer and the loss allocate one after another."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_births import LINEAR, births
from snapreport.findings.advice_context import MIN_BYTES, Advice, AdviceContext
from snapreport.findings.full_logits import row_of_logits
from snapreport.findings.graphs import unknown_of_a_step
from snapreport.findings.saving import bytes_over_time
from snapreport.sentence import sentence
from snapreport.timeline.phases import OPTIMIZER_STEP

CHUNKS = 8
"""Pieces in which a chunked loss is computed. Recorded with and without, MiB replayed and measured: 505, 505; 1,058,
1,058; 1,350, 1,353."""

_SIGMOID = r"(?i)binary_?cross_?entropy"
"""Of each class alone: with a convolution as its last layer, chunks of the loss leave the logits and their gradient (of
a focal loss 128 MiB were promised, 241 taken)."""
_LOSS = r"(?i)cross_?entropy|log_?softmax|nll_?loss"
_CROSS_ENTROPY = r"(?i)cross_?entropy|nll_?loss"
_OF_ONE_STEP = 4
"""Logits, what the loss computes from them, and the gradients of both."""
_BESIDE_LOGITS, _FEWEST_POSITIONS = 4, 16
"""Allocations between logits and what the loss computes from them, and positions of which it leaves out one."""


def chunked_loss(context: AdviceContext) -> Advice | None:
    if not context.trains and not context.infers:
        return None
    # In inference a softmax of logits alone may sample from them.
    is_named = context.trains or context.occurs(context.frames(_CROSS_ENTROPY))
    mask = _loss_sized(context, _by_name(context) if is_named else _scores_of_tokens(context))
    if not (size := context.much_at_peak(mask)):
        return None
    what = "The logits, their softmax and the gradients of both hold" if context.trains else "Logits and softmax hold"
    return Advice(
        "chunked-loss",
        "Compute the last layer and the loss in chunks, or fuse them",
        [
            sentence(
                "{what} {}. With {CHUNKS} chunks, those of one are allocated at a time.",
                context.share(size),
                what=what,
                CHUNKS=CHUNKS,
            ),
        ],
        "chunked or fused linear cross entropy",
        "https://docs.pytorch.org/torchtune/0.4/generated/torchtune.modules.loss.CEWithChunkedOutputLoss.html",
        mask,
        1 - 1 / CHUNKS,
    )


def _by_name(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: made by a cross entropy or a log softmax, which a frame names."""
    return np.asarray((context.frames(_LOSS) & ~context.frames(_SIGMOID))[context.stack])


def _scores_of_tokens(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: a softmax of logits of which ``gather()`` takes one number for each position next. What
    samples takes an index, in 64 bits.
    """
    every = births(context)
    linear, size = context.frames(LINEAR)[every.stack], every.size
    found = list[int]()
    for at in np.flatnonzero(
        linear[:-2] & ~linear[1:-1] & (size[1:-1] == size[:-2]) & (size[:-2] >= MIN_BYTES)
    ).tolist():
        positions = int(size[at]) // max(1, row_of_logits(context, every.rows[at], int(size[at])))
        if _FEWEST_POSITIONS <= positions < size[at] and size[at + 2] in (2 * positions, 4 * positions):
            found.append(int(every.rows[at + 1]))
    return context.marked(np.array(found, np.int64))


def _loss_sized(context: AdviceContext, loss: np.ndarray) -> np.ndarray:
    """Bool per allocation: of a cross entropy or log softmax, ``loss``; the logits it reads and the gradients of both,
    which are as large as its largest, and nothing else in a forward pass is. The sum of a bias's gradient takes scratch
    memory of a multiple of that size beside it.
    """
    largest = int(context.size[loss].max(initial=0))
    unknown = unknown_of_a_step(context) if context.trains else context.category("unknown")
    of_step = (context.category("activation", "temporary") | unknown) & context.is_traced
    # The optimizer's temporaries of a last layer's weight may be as large.
    of_step &= ~(context.phases.innermost == OPTIMIZER_STEP)[context.stack]
    alike = of_step & (context.size == largest)
    if not context.is_cut_off and np.count_nonzero(stored := alike & ~context.is_freed) > _OF_ONE_STEP:
        alike &= ~stored  # outputs that the program stores
    found: np.ndarray = loss | alike
    if largest < MIN_BYTES // 2:
        return np.asarray(loss)
    found |= of_step & _other_logits(context, found, largest)
    scratch = (
        context.without_python[context.stack]
        & context.is_traced
        & (context.size > largest)
        & (context.size % largest == 0)
    )
    if scratch.any():
        gradients = np.flatnonzero(alike & context.without_python[context.stack])
        found |= scratch & (bytes_over_time(context.timeline, gradients)[context.born + 1] > 0)
    return found


def _other_logits(context: AdviceContext, found: np.ndarray, largest: int) -> np.ndarray:
    """Bool per allocation: made directly before or after one of ``largest`` bytes, in 16 bits where that is in 32, or
    with one position more, which language models leave out of the loss; so are their gradients.
    """
    rows = births(context).rows
    size, whole = context.size[rows], (found & (context.size == largest))[rows]
    other = np.zeros(len(rows), bool)
    for times in (1, 2):
        more = times * size - largest
        position = np.maximum(more, 1)
        longer = (more > 0) & (largest % position == 0) & (largest // position >= _FEWEST_POSITIONS)
        other |= longer | ((times > 1) & (more == 0))
    near = np.zeros(len(rows), bool)
    for distance in range(1, _BESIDE_LOGITS + 1):
        near[:-distance] |= whole[distance:]
        near[distance:] |= whole[:-distance]
    return context.marked(rows[other & near])
