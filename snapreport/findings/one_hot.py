"""One-hot vectors, first in 64 bits, then in the type of what they meet: as targets of a loss, with as many numbers as
logits, and of several columns side by side, in front of a linear layer.
"""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.findings.graphs import backward_passes, born_in
from snapreport.sentence import sentence
from snapreport.timeline.phases import FORWARD, NONE

_INDEX_BYTES = 8  # bytes of an element of functional.one_hot
_LOGITS_AND_LABELS = 3
"""Tensors of one size before a divergence, with the logarithms of the logits: a teacher's logits are a fourth."""
_NEIGHBOURS = 6
"""Allocations after the cast within which the product with the logits follows."""


def _is_beside(context: AdviceContext, size: int, made: np.ndarray) -> bool:
    """Whether logits of ``size`` are alive when the last of ``made`` is allocated."""
    born = context.born[made[-1]]
    alive = context.alive_before(born) & (context.size == size)
    alive[made] = False
    return bool((alive & context.category("activation", "temporary")).any())


def is_cast(context: AdviceContext, times: int) -> np.ndarray:
    """Bool per birth: followed by one of the same line with 1/``times`` of its bytes, and freed before any other."""
    every = births(context)
    size, calls = every.size, every.calls
    following = np.append(context.born[every.rows], [len(context.timeline.events)] * 2)[2:]
    cast = (size[:-1] == times * size[1:]) & (calls[:-1] == calls[1:])
    return np.asarray(np.append(cast, False) & (context.freed[every.rows] <= following))


def one_hot(context: AdviceContext) -> Advice | None:
    """An allocation of 64-bit integers, which has no gradient, and a product of the same function that is as large as
    logits which were made before. It is cast first, or the product reads it as it is.
    """
    if not context.trains:
        return None
    every = births(context)
    rows, size = every.rows, every.size
    function = context.function[every.stack]
    # Where C++ frames are recorded, the backward pass has stack traces, too.
    by_engine = np.unique(size[context.may_be_backward[every.stack]])
    mask = np.zeros(len(context.size), bool)
    in_module = (context.phases.innermost == FORWARD)[every.stack]
    passes = int(backward_passes(context)[-1])
    for bytes_of in (4, 2):
        times = _INDEX_BYTES // bytes_of
        large = (size % times == 0) & (size >= times * (1 << 20)) & ~np.isin(size, by_engine)
        # A loss has one in each step; casts and products within a layer are as many as there are layers.
        # In a module, larger tensors may be of another type: there the cast follows, and frees the integers.
        large &= ~in_module | is_cast(context, times)
        once = np.bincount(every.stack[large], minlength=int(every.stack.max(initial=0)) + 1) <= passes + 1
        for at in np.flatnonzero(large & once[every.stack]).tolist():
            hot, after = int(size[at]) // times, slice(at + 1, at + 1 + _NEIGHBOURS)
            made = rows[after][(size[after] == hot) & (function[after] == function[at])]
            # Logits are there when the last of them, the product, is made.
            if len(made) and _is_beside(context, hot, made):
                mask[np.append(made, rows[at])] = True
    what = "One-hot vectors and their product with the logits"
    same = "cross_entropy(logits, index) and nll_loss(log_probabilities, index) give the same loss."
    call = "cross_entropy(logits, index)"
    if not mask.any():
        mask = _smoothed_labels(context)
        what, call = (
            "Smoothed labels and what kl_div() computes from them",
            "cross_entropy(logits, index, label_smoothing=0.1)",
        )
        same = sentence("`{call}` gives the same loss, with the share of the other classes.", call=call)
    if not (bytes_ := context.much_at_peak(mask)):
        return None
    return Advice(
        "one-hot",
        "Give the loss indices of classes instead of one-hot vectors",
        [
            sentence(
                "{what} hold {}, from {}.", context.share(bytes_), context.first_line(mask & context.at_peak), what=what
            ),
            same,
        ],
        "torch.nn.functional.cross_entropy",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html",
        mask,
        effort=ONE_LINE,
        line=f"loss = torch.nn.functional.{call}",
    )


def _smoothed_labels(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: smoothed labels that a line of the program writes out for ``kl_div``, and what that computes
    of them. Of a teacher's probabilities the logits are there, too.
    """
    every, found = births(context), np.zeros(len(context.size), bool)
    rows, size, stack = every.rows, every.size, every.stack
    divergence = context.frames(r"torch/nn/functional\.py kl_div$")[stack]
    by_program = context.outside_of_torch[stack] & (context.phases.innermost == NONE)[stack]
    in_program = ~context.may_be_backward[stack]
    passes = born_in(context)[rows]
    for run in np.unique(passes[divergence]).tolist():
        inside = np.flatnonzero(divergence & (passes == run))
        whole = int(size[inside].max())
        before = np.flatnonzero((passes == run) & (size == whole) & in_program & (np.arange(len(size)) < inside[0]))
        # The logits, their logarithms, which the backward pass frees, and the labels, which it does not.
        kept = by_program[before] & ~context.may_be_backward[context.free_stack[rows[before]]]
        kept &= context.freed[rows[before]] > context.born[rows[inside[-1]]]
        if kept.sum() == 1 and len(before) <= _LOGITS_AND_LABELS:
            found[rows[np.append(before[kept], inside[size[inside] == whole])]] = True
    return found


def one_hot_inputs(context: AdviceContext) -> Advice | None:
    """One-hot vectors of several columns of indices, made one after another by one line and joined, all in 64
    bits, then cast to the type of a weight.
    """
    every = births(context)
    rows, size, stack = every.rows, every.size, every.stack
    mask = np.zeros(len(context.size), bool)
    for bytes_of in (4, 2):
        times = _INDEX_BYTES // bytes_of
        joined = (size >= times * (1 << 20)) & (stack > 0) & is_cast(context, times)
        for at in np.flatnonzero(joined).tolist():
            # Parts of one line, whose sizes add up to that of the join.
            first = at
            while first > 0 and every.calls[first - 1] == every.calls[at - 1] and size[first:at].sum() < size[at]:
                first -= 1
            if at - first >= 2 and size[first:at].sum() == size[at] and _have_indices(context, rows[first:at]):
                mask[rows[first : at + 2]] = True
    if not (bytes_ := context.much_at_peak(mask)):
        return None
    return Advice(
        "one-hot-inputs",
        "Use an embedding instead of one-hot vectors",
        [
            sentence(
                "One-hot vectors of several columns hold {}, from {}.",
                context.share(bytes_),
                context.first_line(mask & context.at_peak),
            ),
            "A linear layer over them selects rows of its weight, which torch.nn.EmbeddingBag does without them.",
        ],
        "torch.nn.EmbeddingBag",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.EmbeddingBag.html",
        mask,
        line="hidden = torch.nn.functional.embedding_bag(index + offsets, weight, mode='sum')",
    )


def _have_indices(context: AdviceContext, parts: np.ndarray) -> bool:
    """Whether indices in 64 bits are alive of which each of ``parts`` (Int64 rows) has a vector of at least two."""
    born = context.born[parts[0]]
    alive = context.alive_before(born) & context.category("input", "unknown", "activation")
    indices = np.unique(context.size[alive])
    count = len(parts)
    columns = indices[indices % (_INDEX_BYTES * count) == 0] // count
    vectors = np.concatenate((columns, indices[indices % _INDEX_BYTES == 0]))
    parts_of = context.size[parts][:, None]
    return bool(((parts_of % vectors == 0) & (parts_of >= 2 * vectors)).all(0).any())
