"""Logits of all positions, of which only a few are used."""

from __future__ import annotations

from math import isqrt

import numpy as np

from snapreport.findings.advice_births import LINEAR, births
from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.findings.collected_outputs import collections
from snapreport.findings.evaluation_batch import pass_begins
from snapreport.findings.graphs import backward_passes, born_in, forward_births
from snapreport.findings.repeated_layers import MAX_OUTPUT_RATIO
from snapreport.number_format import share_text
from snapreport.sentence import sentence
from snapreport.timeline.phases import NONE

_ELEMENT_SIZES = (4, 2)
_NEIGHBOURS = 4
_MAX_USED_SHARE = 0.5
_MIN_BYTES = 1 << 23
# Words of a vocabulary, and least of them per unit of width: with fewer, as the 7.8 of LLaMA, other layers look alike.
_LEAST_WORDS = 8
_INDEX = 8  # bytes of the number that argmax() returns
_MAX_PASSES = 2  # live at the peak from one line: a line with more runs in every layer, as for queries and keys


def full_logits(context: AdviceContext) -> Advice | None:
    """The output of a linear layer, then directly a copy of less than half of its rows, and nothing of its size
    but its gradient: the vocabulary V is known from the layer's weight, V by C, and its input, rows by C. Inference may
    cast it to 32 bits first, and take the highest of each row, whose number has 64.
    """
    every = births(context)
    rows, size, stack = every.rows, every.size, every.stack
    linear = context.frames(LINEAR)[stack]
    if context.infers:
        is_cast = np.zeros(len(size), bool)
        is_cast[1:] = linear[:-1] & ~linear[1:] & (size[1:] == 2 * size[:-1])
        rows, size, stack, linear = (column[~is_cast] for column in (rows, size, stack, linear))
    function = context.function[stack]
    # What the loop's line before the pass makes, as the next batch, is none of the logits' rows.
    first = np.full(int(stack.max(initial=0)) + 1, len(stack))
    np.minimum.at(first, stack, np.arange(len(stack)))
    # A function without modules is not known to be a forward pass where little of what it makes is saved.
    by_program = context.outside_of_torch[stack]
    by_program &= (context.forward | (context.phases.innermost == NONE))[stack]
    # Without a product's workspace, which is live where the peak is in that product.
    live = np.bincount(every.stack[context.at_peak[every.rows]], minlength=int(context.stack.max(initial=0)) + 1)
    live = np.maximum(live, _most_runs(context))
    mask, share = np.zeros(len(context.size), bool), 1.0
    candidates = (linear | by_program) & (size >= _MIN_BYTES) & (live[stack] <= _MAX_PASSES)
    # What joins all outputs of a loop is none of its passes.
    candidates &= _few_follow(size, linear, function) & ~collections(context)[rows]
    # Of 4 × 320 positions, 16-bit logits are as large as the weight of a last layer of width 1,280.
    is_made = context.is_traced & ~context.category("parameter", "optimizer state")
    known: dict[tuple[int, int], int] = {}  # a line computes the same in each step
    for at in np.flatnonzero(candidates).tolist():
        whole, after = int(size[at]), slice(at + 1, at + 1 + _NEIGHBOURS)
        if mask[rows[at]]:
            continue
        key = int(stack[at]), whole
        if key not in known:
            known[key] = row_of_logits(context, rows[at], whole)
        row = known[key]
        # Where no frame names the product, the same function selects from it.
        selected = ~linear[after] & (linear[at] | (function[after] == function[at]))
        selected &= first[stack[after]] >= first[stack[at]]
        few = size[after][selected & (size[after] % row == 0) & (size[after] <= _MAX_USED_SHARE * whole)] if row else []
        used = int(few[0]) // row if len(few) else _highest(context, size[after], stack[after]) if row else 0
        if used and used <= _MAX_USED_SHARE * (whole // row):
            # In inference with their copies in 32 bits, if there are any.
            mask |= np.isin(context.size, [whole, 2 * whole] if context.infers else [whole]) & is_made
            share = min(share, 1 - used * row / whole)
    if not (bytes_ := context.much_at_peak(mask)):
        return None
    return Advice(
        "full-logits",
        "Select the positions before the last layer, not after it",
        [
            sentence(
                "Logits of all positions{gradient} hold {}, from {}. {} of them are used.",
                context.share(bytes_),
                context.first_line(mask),
                share_text(round(10**6 * (1 - share)), 10**6),
                gradient=" and their gradient" if context.trains else "",
            ),
            "head(hidden[positions]) computes the same numbers as head(hidden)[positions].",
        ],
        "indexing of the hidden states",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html",
        mask,
        share,
        effort=ONE_LINE,
        line="logits = head(hidden[positions])",
    )


def _highest(context: AdviceContext, size: np.ndarray, stack: np.ndarray) -> int:
    """Rows of logits of which inference takes the highest next, outside of the forward pass: births after them."""
    is_next = context.infers and bool((~context.forward & context.outside_of_torch)[stack[0]])
    return int(size[0]) // _INDEX if is_next and size[0] % _INDEX == 0 else 0


def _few_follow(size: np.ndarray, linear: np.ndarray, function: np.ndarray) -> np.ndarray:
    """Bool per birth: neither logits of another type nor others of their size follow, but one of few of their rows."""
    whole, few = np.zeros(len(size), bool), np.zeros(len(size), bool)
    for distance in range(1, min(_NEIGHBOURS, len(size) - 1) + 1):
        here, after = slice(None, -distance), slice(distance, None)
        # Whole logits are computed with, or cast to another type first.
        for times in (0.5, 1, 2):
            whole[here] |= size[after] == size[here] * times
        # Where no frame names the product, the same function selects from it.
        selected = ~linear[after] & (linear[here] | (function[after] == function[here]))
        few[here] |= selected & (size[after] <= _MAX_USED_SHARE * size[here])
    return few & ~whole


def _most_runs(context: AdviceContext) -> np.ndarray:
    """Int64 per stack: how often it allocates one size between two backward passes at most. A request that failed in
    the first layer is alive once, and ran in every layer of the steps before. 0 where no backward pass runs.
    """
    begun, rows = backward_passes(context), births(context).rows
    most = np.zeros(int(context.stack.max(initial=0)) + 1, np.int64)
    if begun.any():
        runs = context.table(rows, run=born_in(context)[rows]).group_by("stack", "size", "run").len()
        np.maximum.at(most, runs["stack"].to_numpy(), runs["len"].to_numpy())
    return most


def row_of_logits(context: AdviceContext, row: int, whole: int) -> int:
    """Bytes of the logits of one position; 0 where no weight and input fit, or where the first that fit are of another
    layer. Its input is what was allocated last before it, but for statistics of a normalisation: a projection to
    queries, keys and values, 3 C from C, would fit one of 6 C from C / 2 with an older mask of a dropout.
    """
    born = context.born[row]
    alive = context.alive_before(born)
    before = context.born < forward_births(context)[:1].max(initial=0)
    weights = np.unique(context.size[alive & (context.category("parameter") | before)])
    inputs = np.flatnonzero(alive & context.category("activation", "temporary"))
    inputs = inputs[np.argsort(-context.born[inputs], kind="stable")]
    latest = context.size[inputs].tolist()
    # Logits of the pass before may be alive, too.
    of_pass = inputs[context.born[inputs] >= pass_begins(context)[row]][:_NEIGHBOURS]
    least = max(context.size[of_pass].tolist() or latest[:_NEIGHBOURS], default=0) / MAX_OUTPUT_RATIO
    for hidden in dict.fromkeys(latest):
        if not max(least, 1 << 16) <= hidden < whole:
            continue
        for bytes_of in _ELEMENT_SIZES:
            for weight in weights[weights >= _MIN_BYTES].tolist():
                square, rest = divmod(hidden * weight, bytes_of * whole)
                width = isqrt(square)
                if rest or width * width != square or weight % (width * bytes_of) or hidden % (width * bytes_of):
                    continue
                words = weight // (width * bytes_of)
                return int(words * bytes_of) if words > _LEAST_WORDS * width else 0
    return 0
