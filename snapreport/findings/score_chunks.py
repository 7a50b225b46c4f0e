"""Scores of all vectors with all others in one product, of which the best of each row are used."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import MIN_SHARE, ONE_LINE, Advice, AdviceContext, remembered
from snapreport.findings.attention_scores import attention_scores
from snapreport.findings.graphs import fails_in_backward
from snapreport.findings.outer_product import (
    DISTANCE_CHUNKS,
    ELEMENT_SIZES,
    FEWEST_VECTORS,
    LEAST_DEPTH,
    MIN_BYTES,
    MOST_DEPTH,
    NEIGHBOURS,
    norms_of_sum,
)
from snapreport.sentence import sentence

_INDEX = 8  # bytes of a number that argmax() or topk() returns


@remembered
def scores_of_pairs(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: ``(queries @ documents.T).topk(k)`` without a backward pass: a product of N times D and M
    times D numbers outside of any layer, and what is as large, of which the program uses the best of each row alone.
    """
    every = births(context)
    rows, size, stack = every.rows, every.size, every.stack
    function, mask = context.function[stack], np.zeros(len(context.size), bool)
    by_backward = context.is_freed & context.may_be_backward[context.free_stack]
    if fails_in_backward(context):
        by_backward |= ~context.is_freed
    large = context.outside_of_torch[stack] & ~every.forward & (size >= MIN_BYTES) & ~by_backward[rows]
    large &= ~attention_scores(context).written[rows]
    # One line may multiply, scale, and take a softmax, of which the best are taken.
    first = np.maximum.accumulate(np.where(np.diff(size, prepend=-1) != 0, np.arange(len(size)), 0))
    ends = np.flatnonzero(large & (np.diff(size, append=-1) != 0))
    passes = np.cumsum(every.forward)[ends]
    # A few dozen at most are each worth advice where the whole trace is highest.
    highest = context.alive_at(context.timeline.peak_event)[rows[ends]]
    worth = ends[highest & (size[ends] >= MIN_SHARE * context.timeline.peak_bytes)]
    for one, whole in np.unique(np.stack((stack[worth], size[worth])), axis=1).T.tolist():
        mine = (stack[ends] == one) & (size[ends] == whole)
        at, row = int(ends[mine][0]), int(rows[first[ends[mine][0]]])
        # A line that runs again before the next forward pass computes in chunks already.
        if (np.diff(passes[mine]) == 0).any() or len(norms_of_sum(context, row, whole)):
            continue
        after = slice(at + 1, at + 1 + NEIGHBOURS)
        if _has_best(context, row, size[after][function[after] == function[at]]):
            of_function = (context.function == function[at])[context.stack]
            mask |= of_function & context.as_large(whole)
    return mask


def score_chunks(context: AdviceContext) -> Advice | None:
    """Scores of all pairs, of which a loop over parts of one side need not make all at once."""
    mask = scores_of_pairs(context)
    if not (bytes_ := context.much_at_peak(mask)):
        return None
    return Advice(
        "score-chunks",
        "Compute scores in chunks of rows",
        [
            sentence(
                "Scores of all vectors with all others hold {}, from {}, and the best of each row are used. With "
                "{DISTANCE_CHUNKS} chunks, those of one are allocated at a time.",
                context.share(bytes_),
                context.first_line(mask),
                DISTANCE_CHUNKS=DISTANCE_CHUNKS,
            ),
        ],
        "Tensor.chunk()",
        "https://docs.pytorch.org/docs/stable/generated/torch.chunk.html",
        mask,
        1 - 1 / DISTANCE_CHUNKS,
        effort=ONE_LINE,
        line=f"best = [(part @ documents.T).topk(k) for part in queries.chunk({DISTANCE_CHUNKS})]",
    )


def _has_best(context: AdviceContext, row: int, best: np.ndarray) -> bool:
    """Whether an allocation is a product of two tensors of vectors, not a list that is joined, and ``best``, the sizes
    of what follows, has one of the index of the best score of each row, or of some scores and their indices.
    """
    whole, born = int(context.size[row]), context.born[row]
    alive = context.alive_before(born) & ~context.category("parameter", "optimizer state")
    factors, counts = np.unique(context.size[alive & (context.size < whole)], return_counts=True)
    best = best[2 * best <= whole]
    if (factors * counts >= whole).any():
        return False
    for bytes_of in ELEMENT_SIZES:
        scores = best[:-1][best[1:] * bytes_of == best[:-1] * _INDEX] // bytes_of
        for one in factors.tolist():
            depths = np.rint(np.sqrt(factors / whole * one / bytes_of)).astype(np.int64)
            depths = np.clip(depths, LEAST_DEPTH, MOST_DEPTH)
            rows = one // (bytes_of * depths)
            is_product = (rows * depths * bytes_of == one) & (factors * rows == depths * whole)
            rows = rows[is_product & (rows >= FEWEST_VECTORS)]
            if np.isin(rows * _INDEX, best).any() or (scores[:, None] % rows == 0).any():
                return True
    return False
