"""Tensors that are all copied before the first of the old ones is freed, as a cache that beam search reorders."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.saving import share_of_lives
from snapreport.sentence import sentence

_MIN_BYTES = 1 << 20
_FEWEST_TENSORS, _FEWEST_TIMES = 4, 3


class ReplacedEvidence(AdviceEvidence, kw_only=True):
    previous_bytes: int


def replaced_together(context: AdviceContext) -> Advice | None:
    """``cache = [part.index_select(0, order) for part in cache]``: n tensors are freed directly after n of the same
    sizes, of other lines, were made one after another. If each replaced its own at once, one would be there twice. An
    optimizer's foreach code does the same on purpose.
    """
    if not context.infers:
        return None
    old, new = _replaced(context)
    if not len(old):
        return None
    until = context.born[new]
    twice = int(context.size[old][context.freed[old] > context.event].sum())
    share = share_of_lives(context.timeline, old, until + 1)[0]
    return Advice(
        "replaced-together",
        "Replace each tensor of a list before the next one is copied",
        [
            sentence(
                "{} have been copied by {}, and are freed only when all of them are: the list's name is assigned again "
                "after the last copy.",
                context.share(twice),
                context.first_line(context.marked(new)),
            ),
        ],
        "Tensor.index_select()",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_select.html",
        context.marked(old),
        share,
        held=context.marked(old),
        is_partly=True,
        evidence=ReplacedEvidence(previous_bytes=twice),
        effort=ONE_LINE,
        line="for i, part in enumerate(cache): cache[i] = part.index_select(0, order)",
    )


def _replaced(context: AdviceContext) -> tuple[np.ndarray, np.ndarray]:
    """Int64 rows of tensors that were replaced, and of those that replaced them, in the same order."""
    rows = np.flatnonzero(context.size >= _MIN_BYTES)
    rows = rows[np.argsort(context.born[rows], kind="stable")]
    # What is freed with no large birth in between has the number of large births until then.
    number = np.searchsorted(context.born[rows], context.freed[rows])
    table = context.table(rows, number=number, birth=np.arange(len(rows)))
    table = table.filter(pl.col("freed") < len(context.timeline.events))
    groups = table.group_by("number", "stack").agg("row", pl.col("size").sum(), pl.col("birth").max(), n=pl.len())
    begin = pl.col("number") - pl.col("n")
    total = np.append(0, np.cumsum(context.size[rows]))
    groups = groups.filter((pl.col("n") >= _FEWEST_TENSORS) & (pl.col("birth") < begin)).sort("number", "stack")
    old, new = [], []
    for last, before, size in groups.select("number", "row", "size").iter_rows():
        if total[last] - total[last - len(before)] != size:
            continue
        before, after = np.array(before), rows[last - len(before) : last]
        before, after = (each[np.lexsort((context.born[each], context.size[each]))] for each in (before, after))
        # Where the program ends, the last of the old ones may be freed after the first of the new.
        stays = context.freed[after].min() > np.median(context.freed[before])
        other = ~np.isin(context.stack[after], context.stack[before])
        if (context.size[before] == context.size[after]).all() and stays and other.all():
            old.append(before)
            new.append(after)
    if len(old) < _FEWEST_TIMES:
        return rows[:0], rows[:0]
    return np.concatenate(old), np.concatenate(new)
