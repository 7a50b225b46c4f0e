"""Allocations in the order of their births, for rules about what stands beside what: shapes are known from sizes."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.advice_context import AdviceContext
from snapreport.timeline.phases import FORWARD

AT_ONCE = 2
"""Events after which a matrix product's workspace is gone: PyTorch 2.15 allocates one for each product."""
WORKSPACE = 8_519_680
"""Bytes of cuBLAS's, wherever it is kept for all products."""
LINEAR = r"torch/nn/modules/linear\.py forward$"
_MIN_PRODUCTS = 2
"""Sizes of results beside which workspaces of one size are: the size of a temporary follows from that of the result."""


class Births(Struct, frozen=True):
    """rows: Int64 rows of the allocations of the trace by birth, without those of workspaces. stack, size: theirs.
    calls: Int64, numbers of their Python frames: with C++ frames each operator of a line has a stack of its own.
    forward: Bool, in a forward pass. outside: Int64, how many allocations outside of any forward pass came before.
    """

    rows: np.ndarray
    stack: np.ndarray
    calls: np.ndarray
    size: np.ndarray
    forward: np.ndarray
    outside: np.ndarray


def births(context: AdviceContext) -> Births:
    return context.remember("births", lambda: _births(context))


def _births(context: AdviceContext) -> Births:
    rows = np.argsort(context.born, kind="stable")
    rows = rows[context.born[rows] >= 0]
    is_workspace = (context.size == WORKSPACE) | context.category("workspace")
    rows = rows[~is_workspace[rows] & ~_beside_products(context, rows)]
    stack = context.stack[rows]
    forward = context.forward[stack]
    elsewhere = (stack > 0) & ~forward & ~context.phases.runs(FORWARD)[stack]
    return Births(rows, stack, context.calls[stack], context.size[rows], forward, np.cumsum(elsewhere))


def _beside_products(context: AdviceContext, rows: np.ndarray) -> np.ndarray:
    """Bool per row, by birth: allocated by a line directly after a result, freed before anything else is allocated,
    and as large beside results of other sizes. cuBLAS's size depends on the GPU and on ``CUBLAS_WORKSPACE_CONFIG``.
    """
    born, calls, size = context.born[rows], context.calls[context.stack[rows]], context.size[rows]
    beside = np.zeros(len(rows), bool)
    at_once = (context.freed[rows] - born)[1:] <= AT_ONCE
    beside[1:] = at_once & (born[1:] == born[:-1] + 1) & (calls[1:] == calls[:-1]) & (size[1:] != size[:-1])
    pairs = pl.DataFrame({"size": size[1:], "result": size[:-1]}).filter(pl.Series(beside[1:]))
    sizes = pairs.group_by("size").agg(results=pl.col("result").n_unique()).filter(pl.col("results") >= _MIN_PRODUCTS)
    return beside & np.isin(size, sizes["size"].to_numpy())
