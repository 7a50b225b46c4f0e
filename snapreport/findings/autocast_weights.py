"""16-bit copies of weights that autocast makes for the products that read them, and keeps until the backward pass."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import AdviceContext, remembered
from snapreport.findings.graphs import born_in
from snapreport.findings.noted_types import element_bytes, is_in_32_bits
from snapreport.findings.operator_kinds import HALF, kinds

_EMBEDDING = r"functional\.py embedding\w*$"
_RECURRENT = r"torch/nn/modules/rnn\.py "
FEWEST_CELLS = 16
"""Tensors as large as the largest that a recurrent layer makes: cuDNN's layer makes a few, one computed step by step
some for each step."""
LSTM_GATES, LSTM_TENSORS = 4, 3
"""A step of an LSTM makes three tensors of its four gates, those of other cells one as large as their largest."""


def weight_copies(context: AdviceContext) -> int:
    """Bytes of copies that exist at once. A recurrent layer without cuDNN casts its weights again in every step."""
    # Those noted in 16 bits are read as they are.
    parameters = context.category("parameter") & (is_in_32_bits(context) | (element_bytes(context) == 0))
    size = context.bytes_at_peak(parameters & ~_recurrent(context)) - _embeddings(context)
    return size // 2 + _recurrent_copies(context)


def _embeddings(context: AdviceContext) -> int:
    """Bytes of the tables that are read before any product: a backward pass makes their gradients last."""
    rows = births(context).rows
    run = born_in(context)[rows]
    made = context.category("activation")[rows]
    embeds = np.flatnonzero(made & context.frames(_EMBEDDING)[context.stack[rows]])
    if not len(embeds):
        return 0
    this = run[embeds[0]]
    products = np.flatnonzero(made & (run == this) & (kinds(context)[context.stack[rows]] == HALF))
    before = embeds[embeds < products.min(initial=len(rows))]
    tables = len(np.unique(context.stack[rows[before]]))
    gradients = rows[context.category("gradient")[rows] & (run == this + 1)]
    return int(context.size[gradients[max(0, len(gradients) - tables) :]].sum())


def _recurrent(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: a parameter of a recurrent layer, as ``_apply`` that moved it shows."""
    found: np.ndarray = context.frames(_RECURRENT)[context.stack] & context.category("parameter")
    return found


def _recurrent_copies(context: AdviceContext) -> int:
    weights = context.size[_recurrent(context)]
    made = context.frames(_RECURRENT)[context.stack] & context.category("activation") & context.at_peak
    size = context.size[made]
    if not len(weights) or not len(size):
        return int(weights.sum()) // 2
    sizes, counts = np.unique(size, return_counts=True)
    largest = int(sizes[np.argmax(sizes * counts)])  # of a step: the stacked outputs are larger, and one
    cells = int((size == largest).sum())
    hidden = size[size < largest]
    if len(hidden) and int(np.median(hidden)) * LSTM_GATES == largest:
        cells //= LSTM_TENSORS
    matrices = weights[weights * 16 >= weights.max()]
    layers = max(1, len(matrices) // 2)
    if cells < FEWEST_CELLS:
        return int(weights.sum()) // 2
    return cells // layers * int(matrices.sum()) // 2


@remembered
def copies_in_inference(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: a copy that a forward pass without gradients makes, until autocast's context ends."""
    leaves = context.frames(r"amp/autocast_mode\.py __exit__$")
    parameters = np.unique(context.size[~context.is_traced | context.category("parameter")])
    return np.asarray(np.isin(2 * context.size, parameters) & leaves[context.free_stack])
