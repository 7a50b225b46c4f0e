"""Types of numbers that a recorder noted: of what modules return, what autograd saves, weights and optimizer state."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import AdviceContext, remembered
from snapreport.findings.operator_kinds import CREATED, FLOAT, HALF, LOSS, NORM, SOFTMAX, kinds
from snapreport.integers import is_among
from snapreport.timeline.phases import BACKWARD, OPTIMIZER_STEP

_BITS = r"^(?:b?float|complex|q?u?int)(\d+)"
_FLOAT = r"^b?float\d"
_PRODUCT = r"\b(Addmm|Mm|Bmm|Baddbmm|Addbmm|Mv|Convolution|CudnnConvolution|ScaledDotProduct\w*)Backward\d"
"""``grad_fn`` of operators that autocast computes in 16 bits: what they save is what they read or return."""
_KEPT_IN_32_BITS = (NORM, FLOAT, LOSS, SOFTMAX, CREATED)


@remembered
def element_bytes(context: AdviceContext) -> np.ndarray:
    """Int8 per allocation: bytes of one of its numbers, 0 where its type was not noted; 1 for truth values."""
    bits = _types(context).replace({"bool": "uint8"}).str.extract(_BITS).cast(pl.Int16).fill_null(0)
    return (bits // 8).cast(pl.Int8).to_numpy()


@remembered
def is_in_32_bits(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: of ``float32``, as noted."""
    return (_types(context) == "float32").fill_null(False).to_numpy()


@remembered
def bytes_of_products(context: AdviceContext) -> tuple[int, int]:
    """(in 32 bits or more, all) of what products read and return in forward passes, as noted; (0, 0) where no type was.
    Compiled code names no products: of all that it saves, then.
    """
    is_float = _types(context).str.contains(_FLOAT).fill_null(False).to_numpy()
    is_float &= context.traced("activation", "temporary")
    is_float &= ~is_among(context.phases.innermost, (BACKWARD, OPTIMIZER_STEP))[context.stack]
    if not is_float.any():
        return 0, 0
    kind = kinds(context)[context.stack]
    saved = context.timeline.allocations["saved_by"].str.contains(_PRODUCT).fill_null(False).to_numpy()
    products = is_float & ((kind == HALF) | saved)
    mine = products if products.any() else is_float & ~is_among(kind, _KEPT_IN_32_BITS)
    return int(context.size[mine & (element_bytes(context) >= 4)].sum()), int(context.size[mine].sum())


def _types(context: AdviceContext) -> pl.Series:
    return context.timeline.allocations["dtype"]
