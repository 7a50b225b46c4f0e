"""Allocations in the order of their births, for rules about what stands beside what: shapes are known from sizes."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.findings.advice_context import AdviceContext, remembered
from snapreport.integers import is_among, stable_order
from snapreport.timeline.phases import FORWARD
from snapreport.timeline.workspaces import CUBLAS_WORKSPACE, beside_products

LINEAR = r"torch/nn/modules/linear\.py forward$"
_FEWEST_GROWING = 3
"""The fewest allocations of a line that grows: two sizes may rise by chance."""


class Births(Struct, frozen=True):
    """rows: Int64 rows of the allocations of the trace by birth, without those of workspaces and of threads beside the
    passes. stack, size: theirs. calls: Int64, numbers of their Python frames: with C++ frames each operator of a line
    has a stack of its own. forward: Bool, in a forward pass. outside: Int64, how many allocations outside of any
    forward pass came before.
    """

    rows: np.ndarray
    stack: np.ndarray
    calls: np.ndarray
    size: np.ndarray
    forward: np.ndarray
    outside: np.ndarray


@remembered
def births(context: AdviceContext) -> Births:
    rows = np.argsort(context.born, kind="stable")
    is_workspace = (context.size == CUBLAS_WORKSPACE) | context.category("workspace")
    # By lines of Python: with C++ frames each operator of a line has a stack of its own.
    is_workspace |= beside_products(context.size, context.calls[context.stack], context.born, context.freed)
    rows = rows[(context.is_traced & ~is_workspace & ~context.beside_passes[context.stack])[rows]]
    stack = context.stack[rows]
    forward = context.forward[stack]
    elsewhere = (stack > 0) & ~forward & ~context.phases.runs(FORWARD)[stack]
    return Births(rows, stack, context.calls[stack], context.size[rows], forward, np.cumsum(elsewhere))


@remembered
def growing_lines(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: of a stack whose every allocation is larger than its last, as of a tensor to which each
    iteration concatenates more: the next one is computed from it.
    """
    every = births(context)
    order = stable_order(every.stack)
    stack, size = every.stack[order], every.size[order]
    begins = np.diff(stack, prepend=-1) != 0
    first = np.flatnonzero(begins)
    rises = np.logical_and.reduceat(begins | (np.diff(size, prepend=0) > 0), first)
    grows = rises & (np.diff(np.append(first, len(stack))) >= _FEWEST_GROWING)
    return is_among(context.stack, stack[first[grows]])
