"""A second model whose weights are still allocated while the program works with the first.

Weights of a transformer have a width: square matrices of ``width²`` elements, many of them equal, and others that are
simple multiples of it. What forward passes allocate is a multiple of the width of the model that is in use.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np

from snapreport.findings.advice_context import Advice, AdviceContext
from snapreport.number_format import count_text, plural
from snapreport.timeline.phases import FORWARD

FEWEST_SQUARES = 6
"""Equal square matrices that make a width."""
SIMPLE = 8
"""The largest denominator of a side of a weight matrix as a multiple of the width."""
UNUSED = 0.1
"""Of the bytes that are multiples of the width in use: a model with less is not in use."""
_ELEMENT_BYTES = (4, 2)


def unused_model(context: AdviceContext) -> Advice | None:
    """Weights of another width than that of all forward passes of the trace, from before it and never freed."""
    older = (context.born < 0) & (context.freed == len(context.timeline.events)) & (context.size > 0)
    forward = (context.born >= 0) & (context.phases.innermost == FORWARD)[context.stack]
    made = context.size[forward]
    for element in _ELEMENT_BYTES:
        sizes, counts = np.unique(context.size[older], return_counts=True)
        squares = [
            isqrt(size // element)
            for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
            if count >= FEWEST_SQUARES and size % element == 0 and isqrt(size // element) ** 2 == size // element
        ]
        # A matrix of width times four widths is a square of twice the width.
        widths = [width for width in squares if width >= 64 and not (width % 2 == 0 and width // 2 in squares)]
        if len(widths) < 2:
            continue
        used = {width: int(made[made % (width * element) == 0].sum()) for width in widths}
        main = max(widths, key=lambda width: (used[width], width))
        family = {size: _width_of(size // element, widths) for size in sizes.tolist() if size % element == 0}
        for width in sorted(widths):
            members = [size for size, owner in family.items() if owner == width]
            mask = older & np.isin(context.size, members)
            size = context.bytes_at_peak(mask)
            if width != main and used[width] < UNUSED * used[main] and context.is_much(size):
                return _advice(context, mask, size, width, main)
    return None


def _width_of(elements: int, widths: list[int]) -> int | None:
    """The width that a weight of so many elements is the simplest multiple of; None where it is of none."""
    best: tuple[int, int] | None = None
    for width in widths:
        side, rest = divmod(elements, width)
        denominator = Fraction(side, width).denominator if side > 1 else 1
        if not rest and denominator <= SIMPLE and (best is None or (denominator, -width) < best):
            best = denominator, -width
    return None if best is None else -best[1]


def _advice(context: AdviceContext, mask: np.ndarray, size: int, width: int, main: int) -> Advice:
    return Advice(
        "second-model",
        "Delete the model that is no longer in use",
        [
            f"Two models were allocated before recording started. The forward passes are of the one with width "
            f"{count_text(main)}.",
            f"{context.share(size)} in {plural(int(mask.sum()), 'block')} have the other's width, {count_text(width)}.",
            "They are its weights, and its gradients where it has any.",
        ],
        "del, then torch.cuda.empty_cache()",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
        mask,
        confidence="guess",
        evidence={"widths": [main, width], "blocks": int(mask.sum())},
    )
