"""Gradients of embeddings, each as large as its table, although a step looks up few of its rows."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, REWRITE, Advice, AdviceContext
from snapreport.sentence import sentence
from snapreport.timeline.phases import OPTIMIZER_STEP

_COPIES = 3
"""Times the bytes of the rows that are looked up: a sparse gradient has their values and indices, and a sorted copy."""
_MOST_LOOKED_UP = 1 / 8
"""Of the gradients' bytes: with more rows, the copies take a large part of what is saved."""
_TAKES_SPARSE = r"torch/optim/(adam|sgd|adagrad|sparse_adam)\.py "
_ADAM = r"torch/optim/adam\.py "  # becomes SparseAdam, and another optimizer for the other weights
_TAKES_DENSE = r"(?i)clip_grad|/torch/distributed/|/torch/nn/parallel/|deepspeed"


def sparse_gradients(context: AdviceContext) -> Advice | None:
    """Gradients that C++ frames show to be of a table. That of a weight shared with a last layer is the layer's, to
    which the table's is added.
    """
    gradients, looked_up = context.category("gradient"), context.frames(r"functional\.py embedding(_bag)?$")
    by_table = context.frames(r"embedding(_bag)?_dense_backward")[context.stack]
    tables = gradients & by_table
    rows, size = (int(context.size[mask].sum()) for mask in (looked_up[context.stack], tables))
    if rows > _MOST_LOOKED_UP * size:
        return None
    others = context.bytes_at_peak(gradients & ~tables)
    if context.bytes_at_peak(tables) < others:  # a text model, whose other weights are most of it
        return None
    steps = context.phases.runs(OPTIMIZER_STEP)
    # SGD without momentum allocates nothing.
    is_plain = not (context.occurs(steps) or context.category("optimizer state").any())
    if context.occurs(context.frames(_TAKES_DENSE)) or not (is_plain or context.occurs(context.frames(_TAKES_SPARSE))):
        return None
    # A table that is read twice has two; those of the optimizer's step are as large, too.
    passing = by_table | steps[context.stack]
    mask = tables | (passing & context.category("temporary") & context.as_large(np.unique(context.size[tables])))
    if not (at_peak := context.much_at_peak(mask)):
        return None
    return Advice(
        "sparse-gradients",
        sentence("Use embeddings with `sparse=True`"),
        [
            sentence(
                "{} are gradients as large as their embedding tables and temporaries of these, although a step looks "
                "up few rows.",
                context.share(at_peak),
            ),
            sentence("`SparseAdam`, `SGD` and `Adagrad` take sparse gradients, without weight decay."),
            *([sentence("The other weights need an optimizer of their own beside `SparseAdam`.")] if others else []),
        ],
        "torch.nn.Embedding(sparse=True)",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
        mask,
        1 - _COPIES * rows / size * context.bytes_at_peak(tables) / at_peak,
        effort=REWRITE if others and context.occurs(context.frames(_ADAM)) else ONE_LINE,
        line="table = torch.nn.Embedding(rows, width, sparse=True)",
        place="where the table is created",
    )
