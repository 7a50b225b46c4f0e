"""Advice about mistakes that one line mends: what an expert looks for first."""

from __future__ import annotations

from collections.abc import Callable

from snapreport.findings.advice_context import Advice, AdviceContext
from snapreport.findings.cast_weights import cast_on_device
from snapreport.findings.collected_outputs import collected_outputs
from snapreport.findings.collected_weights import collected_weights
from snapreport.findings.exception_holds import exception_holds
from snapreport.findings.expanded_mask import expanded_mask
from snapreport.findings.frozen_base import frozen_base
from snapreport.findings.full_logits import full_logits
from snapreport.findings.one_hot import one_hot, one_hot_inputs
from snapreport.findings.outer_product import broadcast, distance_chunks, distance_matrix
from snapreport.findings.resident_data import data_on_device

MISTAKE_RULES: tuple[Callable[[AdviceContext], Advice | None], ...] = (
    broadcast,
    one_hot,
    one_hot_inputs,
    collected_outputs,
    exception_holds,
    expanded_mask,
    full_logits,
    distance_matrix,
    distance_chunks,
    data_on_device,
    frozen_base,
    cast_on_device,
    collected_weights,
)
