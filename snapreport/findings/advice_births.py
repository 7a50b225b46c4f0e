"""Allocations in the order of their births, for rules about what stands beside what: shapes are known from sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snapreport.findings.advice_context import AdviceContext
from snapreport.timeline.phases import FORWARD

AT_ONCE = 4
"""Events after which a matrix product's workspace is gone: PyTorch 2.15 allocates one for each product."""
WORKSPACE = 8_519_680


@dataclass(frozen=True)
class Births:
    """rows: Int64 rows of the allocations of the trace by birth, without those of workspaces. stack, size: theirs.
    forward: Bool, in a forward pass. outside: Int64, how many allocations outside of any forward pass came before.
    """

    rows: np.ndarray
    stack: np.ndarray
    size: np.ndarray
    forward: np.ndarray
    outside: np.ndarray


def births(context: AdviceContext) -> Births:
    return context.remember("births", lambda: _births(context))


def _births(context: AdviceContext) -> Births:
    rows = np.argsort(context.born, kind="stable")
    is_workspace = (context.size == WORKSPACE) | context.category("workspace")
    rows = rows[(context.born[rows] >= 0) & ~is_workspace[rows]]
    stack = context.stack[rows]
    elsewhere = (stack > 0) & ~context.phases.runs(FORWARD)[stack]
    forward = (context.phases.innermost == FORWARD)[stack]
    return Births(rows, stack, context.size[rows], forward, np.cumsum(elsewhere))
