"""What a program would allocate under ``torch.autocast``: which tensors are of 16 bits, and which exist in both types.

Autocast decides operator by operator (docs.pytorch.org, "Autocast Op Reference"): products compute in 16 bits, norms,
softmax and losses in 32, all others in the type of their input. An operator that needs the other type saves a copy for
its backward pass. The operator that made a tensor is named by its innermost frame; the one that reads it is the next.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import AdviceContext, remembered
from snapreport.findings.attention_scores import attention_scores
from snapreport.findings.graphs import backward_allocations, born_in, freed_in
from snapreport.findings.noted_types import element_bytes, is_in_32_bits
from snapreport.findings.operator_kinds import (
    CREATED,
    FLOAT,
    HALF,
    KEEPS_RESULT,
    LOSS,
    NORM,
    SOFTMAX,
    USER,
    kinds,
)
from snapreport.integers import is_among
from snapreport.timeline.phases import BACKWARD, OPTIMIZER_STEP

CALL = 6
"""Scores of one call of attention have at most so many tensors between them."""
MIN_BYTES = 1 << 16
"""Smaller ones, as gradients of biases, say nothing."""
_LINEAR = r"torch/nn/modules/linear\.py "
_DROPOUT = r"functional\.py dropout\w*$"


class AutocastFactors(Struct, frozen=True):
    """Float64 per allocation: bytes under autocast beside the bytes recorded, 1.0 for all that stays. low, high: where
    what the program's own lines make is of 16 and of 32 bits.
    """

    factor: np.ndarray
    low: np.ndarray
    high: np.ndarray


@remembered
def autocast_factors(context: AdviceContext) -> AutocastFactors:
    born = births(context)
    phase = context.phases.innermost[born.stack]
    forward = context.category("activation", "temporary", "input")[born.rows] & (born.stack > 0)
    forward &= ~is_among(phase, (BACKWARD, OPTIMIZER_STEP)) & ~context.category("gradient")[born.rows]
    rows = born.rows[forward]
    if not len(rows):
        return AutocastFactors(*(np.ones(len(context.size)) for _ in range(3)))
    is_input = context.category("input")[rows]
    table = context.table(
        rows,
        kind=np.where(is_input, CREATED, kinds(context)[context.stack[rows]]),
        run=born_in(context)[rows],
        is_input=is_input,
        is_kept=((freed_in(context) > born_in(context)) | (context.freed >= len(context.timeline.events)))[rows],
    )
    produced, factor = _of_forward(context, table)
    # Noted in 16 bits, or as integers, these are the same under autocast.
    stays = (element_bytes(context)[rows] > 0) & ~is_in_32_bits(context)[rows]
    produced, factor = np.where(stays, 1.0, produced), np.where(stays, 1.0, factor)
    own = (table["kind"] == USER).to_numpy() & (factor < 1.5) & ~stays
    low, high = np.where(own, np.minimum(factor, 0.5), factor), np.where(own, np.maximum(factor, 1.0), factor)
    most = np.where(own, 1.0, produced)
    return AutocastFactors(
        _with_backward(context, rows, factor, produced),
        _with_backward(context, rows, low, np.where(own, 0.5, produced)),
        _with_backward(context, rows, high, most),
    )


def _of_forward(context: AdviceContext, table: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """(type, factor), Float64 per row of ``table``: 0.5 for one made in 16 bits, and its bytes, copies included."""
    kind = table["kind"].to_numpy()
    # In a loss everything is in 32 bits: targets are, and what autocast computes so.
    last_product = pl.when(pl.col("kind") == HALF).then("at").max().over("run").fill_null(len(table))
    in_float = pl.col("kind").is_in([FLOAT, NORM, SOFTMAX, LOSS, CREATED])
    in_float |= (pl.col("kind") == USER) & (pl.col("at") > last_product)
    # Where no frame names a product, the program's own lines compute them.
    by_program = (pl.col("kind") == USER) & ~(pl.col("kind") == HALF).any()
    made = pl.when((pl.col("kind") == HALF) | by_program).then(0.5).when(in_float).then(1.0)
    table = table.with_row_index("at").with_columns(
        made=made.forward_fill().fill_null(1.0),
        call=(pl.col("stack") != pl.col("stack").shift()).fill_null(True).cum_sum(),
    )
    calls = table.group_by("call", maintain_order=True).agg(pl.col("kind").first())
    reader = calls["kind"].shift(-1).fill_null(USER).to_numpy()[table["call"].to_numpy() - 1]
    made_in = table["made"].to_numpy()
    normed = _is_normed(table)
    keeps = is_among(kind, (KEEPS_RESULT, SOFTMAX)) | table["is_input"].to_numpy()
    is_float = (made_in == 1.0) & (keeps | (reader != HALF)) | (reader == FLOAT) | normed
    is_half = (made_in == 0.5) & (keeps | ~(normed | (reader == FLOAT))) | (reader == HALF)
    casts = np.where(made_in == 1.0, _readers(context, table), 1)
    factor = np.where(table["is_kept"].to_numpy(), is_float + is_half * 0.5 * casts, made_in)
    factor = np.where(kind == LOSS, 1.5, factor)
    # Gradients of the logits are of 16 bits.
    made_in = np.where(kind == LOSS, 0.5, made_in)
    scores = _of_scores(context, table)
    made_in = np.where(scores > 0, 1.0, made_in)
    factor = np.where(scores > 0, scores, factor)
    # Masks of a dropout, indices of a pooling, and rows of integers have no 16-bit type.
    factor = np.where(_is_mask(context, table), 1.0, factor)
    return made_in, factor


def _is_normed(table: pl.DataFrame) -> np.ndarray:
    """Bool per row: the input of a norm, which is as large as its result: the last before it that a backward pass
    needs.
    """
    kept = pl.when("is_kept").then("at").forward_fill()
    before = table.sort("size", "at").with_columns(last=kept.shift().over("size", "run"))
    # A norm makes one result; what its call makes beside it, as a copy in another layout, is read by itself.
    read = before.filter((pl.col("kind") == NORM) & pl.col("last").is_not_null())["last"].unique()
    return np.asarray(table.select(r=pl.col("at").is_in(read.implode()) & (pl.col("kind") != NORM))["r"])


def _readers(context: AdviceContext, table: pl.DataFrame) -> np.ndarray:
    """Int64 per row: how many products in a row read it, 1 where the next reads the result of the one before.

    ``down(up(x))`` is one after another: in the backward pass, the second's gradient alone is made between the frees of
    what the two read. ``q(x), k(x), v(x)`` read the same: their results go together, or scores between them.
    """
    rows, size, kept = (table[name].to_numpy() for name in ("row", "size", "is_kept"))
    # A convolution unfolds its input sample by sample; what a linear layer makes is its result.
    linear = context.frames(_LINEAR)[table["stack"].to_numpy()] & (size >= MIN_BYTES)
    product = (table["kind"].to_numpy() == HALF) & (kept | linear)
    run = table["run"].to_numpy()
    pair = np.flatnonzero(product[1:] & product[:-1] & (run[1:] == run[:-1]))
    counts = np.ones(len(table), np.int64)
    if not len(pair):
        return counts
    one, two = rows[pair], rows[pair + 1]
    backward = backward_allocations(context)
    made = np.flatnonzero(context.is_traced & (context.size >= MIN_BYTES))
    made = made[np.argsort(context.born[made], kind="stable")]
    parameter = np.isin(context.size[made], np.unique(context.size[context.category("parameter")]))
    made = made[backward[context.born[made]] & ~parameter & ~context.category("workspace")[made]]
    born, sizes = context.born[made], context.size[made]
    start, end = context.freed[two], context.freed[one]

    def between(which: np.ndarray) -> np.ndarray:
        return np.asarray(np.searchsorted(which, end) - np.searchsorted(which, start))

    total, own = between(born), np.zeros(len(pair), np.int64)
    for each in np.unique(size[pair]).tolist():
        own = np.where(size[pair] == each, between(born[sizes == each]), own)
    for each in np.unique(size[pair + 1]).tolist():
        here = (size[pair + 1] == each) & (size[pair] != each)
        own += np.where(here, between(born[sizes == each]), 0)
    together = kept[pair + 1] & (end >= start) & ((total == 0) | (total > own))
    alike = ~kept[pair] | together
    beside = np.zeros(len(table), bool)
    beside[pair[alike] + 1] = True
    # The row before the first of them is what they read.
    first = product & ~beside
    group = np.cumsum(first)
    many = np.bincount(group[product], minlength=int(group[-1]) + 1)
    at = np.flatnonzero(first)
    at = at[at > 0]
    counts[at - 1] = many[group[at]]
    return counts


def _of_scores(context: AdviceContext, table: pl.DataFrame) -> np.ndarray:
    """Float64 per row, 0.0 where it is no matrix of scores that a backward pass needs: softmax keeps its result in 32
    bits, and the product that reads the last of them a cast.
    """
    attention = attention_scores(context)
    written = attention.written if attention.is_recorded else attention.written | attention.math
    mine = written[table["row"].to_numpy()] & table["is_kept"].to_numpy()
    found = np.zeros(len(table))
    rows = table.filter(pl.Series(mine))
    # A dropout's mask is a quarter of them.
    large = rows.filter(pl.col("size") * 2 > pl.col("size").max().over("run"))
    large = large.with_columns(
        layer=((pl.col("at") - pl.col("at").shift() > CALL) | (pl.col("size") != pl.col("size").shift()))
        .fill_null(True)
        .cum_sum()
    )
    is_last = pl.col("at") == pl.col("at").max().over("layer")
    alone = pl.len().over("layer") == 1
    large = large.with_columns(factor=pl.when(alone).then(1.5).when(is_last).then(0.5).otherwise(1.0))
    found[large["at"].to_numpy()] = large["factor"].to_numpy()
    return found


def _is_mask(context: AdviceContext, table: pl.DataFrame) -> np.ndarray:
    """Bool per row: of a dropout, a quarter of what its call makes beside it."""
    dropout = context.frames(_DROPOUT)[table["stack"].to_numpy()]
    quarter = pl.col("size") * 4 <= pl.col("size").max().over("call") + 2048
    return np.asarray(dropout & table.select(q=quarter)["q"].to_numpy())


def _with_backward(context: AdviceContext, rows: np.ndarray, factor: np.ndarray, made_in: np.ndarray) -> np.ndarray:
    """Factors of all allocations: ``factor`` for ``rows``. Gradients of activations have the type (``made_in``) that
    the tensors of their size have on average.
    """
    factors = np.ones(len(context.size))
    factors[rows] = factor
    sizes = pl.DataFrame({"size": context.size[rows], "type": made_in}).group_by("size").agg(pl.col("type").mean())
    mine = np.flatnonzero(context.is_traced & ~context.category("parameter", "optimizer state", "input"))
    mine = mine[backward_allocations(context)[context.born[mine]]]
    mine = mine[~np.isin(context.size[mine], np.unique(context.size[context.category("parameter")]))]
    found = pl.DataFrame({"size": context.size[mine]}).join(sizes, on="size", how="left", maintain_order="left")
    factors[mine] = found["type"].fill_null(1.0).to_numpy()
    return factors
