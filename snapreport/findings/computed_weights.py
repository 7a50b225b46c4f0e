"""Weights that forward passes compute from others: LoRA that adds its product to them, a quantised layer by hand."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_births import LINEAR, births
from snapreport.findings.advice_context import AdviceContext, remembered
from snapreport.findings.graphs import born_in, possible_weights

_MIN_BYTES = 1 << 16
_WIDER = (1, 2, 4)
"""How many times larger: of the same type, of 16 bits from 8, or of 32 from 16 and from 8."""
_FEWEST = 4
"""Fewest parameters of one size of which weights are computed: activations may be as large as one or two."""

_MOST_ALIKE = 8
"""So many weights of one size, at most, are loaded one after another. Activations of a line have one size for longer,
until the batch changes.
"""


@remembered
def loaded_weights(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: weights that each pass of a program that infers copies to the device, as those of experts or
    of layers that do not fit. One line of the program makes them in turn, of several sizes, all of them parameters'.
    """
    lines = context.by_program | context.frames(r"torch/nn/modules/module\.py _apply$")
    large = context.is_traced & (context.size >= _MIN_BYTES) & lines[context.stack] & context.infers
    table = context.table(np.flatnonzero(large), line=context.lines[large]).sort("born")
    table = table.with_columns(alike=pl.col("size").is_in(np.unique(context.size[possible_weights(context)])))
    changes = (pl.col("size") != pl.col("size").shift()).sum()
    in_turn = pl.col("alike").all() & (changes >= 1) & (_MOST_ALIKE * changes >= pl.len())
    return context.marked(table.filter(in_turn.over("line"))["row"].to_numpy())


@remembered
def computed_weights(context: AdviceContext) -> np.ndarray:
    """Int64 sizes of weights that do not grow with the batch, although a pass makes them and the next one makes others:
    one for each of several parameters of a size, by one function alone, which makes its output next.
    """
    every = births(context)
    function, run = context.function[every.stack], born_in(context)[every.rows]
    made = every.forward & ~context.frames(LINEAR)[every.stack]  # a linear layer's output is as large by chance
    parameters = context.size[possible_weights(context) & (context.size >= _MIN_BYTES)]
    sizes, counts = np.unique(parameters, return_counts=True)
    inputs, found = context.size[context.category("input")], list[int]()
    for size in np.unique(np.outer(sizes[counts >= _FEWEST], _WIDER)).tolist():
        is_one = every.size == size
        at = np.flatnonzero(every.forward & is_one)
        first, last = at[~is_one[at - 1]], at[~np.append(is_one, False)[at + 1]]
        if not len(at) or size in inputs or at[0] == 0 or at[-1] + 1 == len(is_one) or not made[at].all():
            continue
        of = counts[np.isin(sizes, [size // times for times in _WIDER]) & (counts >= _FEWEST)]
        often = np.outer(of * len(np.unique(run[at])), (1, 2))  # or twice, where checkpointing computes them again
        # Nothing that the function makes before it, but for the output of its last call.
        begins = (function[first - 1] != function[at[0]]) | np.isin(first - 1, last + 1)
        is_alone = (function[np.append(at, last + 1)] == function[at[0]]).all() and begins.all()
        # Or by a function of its own, which unpacks a smaller type first, as of weights in 4 bits.
        own = function == function[at[0]]
        unpacks = own[np.append(at, first - 1)].all() and not own[last + 1].any() and every.size[own].max() == size
        if (is_alone or unpacks) and len(last) in often:
            found.append(size)
    return np.array(found, np.int64)
