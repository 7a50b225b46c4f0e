"""Which operator made an allocation, as its innermost frame names it, and in which type autocast computes it."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import AdviceContext

HALF, NORM, FLOAT, LOSS, SOFTMAX, CREATED, KEEPS_RESULT, SAME, USER = range(9)
"""Kinds of operators. HALF: computes in 16 bits. NORM, FLOAT: in 32, and saves its input. LOSS: a cross entropy, in
32, which saves its log softmax and a cast of it. SOFTMAX: in 32, saves its result. CREATED: 32 bits, whatever is read.
KEEPS_RESULT: in the type of its input, saves its result. SAME: in the type of its input. USER: the program's own line.
"""
_F = r"torch/nn/functional\.py "
_KINDS = (
    (LOSS, _F + r"(cross_entropy|nll_loss)$"),
    (SOFTMAX, _F + r"(log_)?softm(ax|in)$"),
    (CREATED, _F + r"(embedding|embedding_bag|one_hot|gumbel_softmax)$"),
    (NORM, _F + r"(layer|group|rms|local_response)_norm$"),
    (FLOAT, _F + r"(?-u)(normalize|cosine_similarity|pairwise_distance|softplus|kl_div|\w*loss|binary_\w+)$"),
    (KEEPS_RESULT, _F + r"(relu6?|sigmoid|tanh|selu|celu|hardtanh)$|torch/nn/modules/activation\.py forward$"),
    (
        HALF,
        r"(?-u)torch/nn/modules/(linear|conv|rnn)\.py \w+$|torch/functional\.py (einsum|tensordot|chain_matmul)$|"
        + _F
        + r"(linear|bilinear|conv\w+|scaled_dot_product_attention|multi_head_attention_forward|_in_projection\w*)$",
    ),
)
_TORCH = r"(^|/)torch/"


def kinds(context: AdviceContext) -> np.ndarray:
    """Int8 per stack: the kind of operator that its innermost frame names."""
    innermost = context.innermost()
    texts = context._texts
    kind = np.full(len(texts) + 1, USER, np.int8)
    kind[:-1][texts.str.contains(_TORCH).to_numpy()] = SAME
    for name, pattern in reversed(_KINDS):
        kind[:-1][texts.str.contains(pattern).to_numpy()] = name
    return np.asarray(kind[innermost])
