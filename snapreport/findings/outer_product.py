"""Matrices of all pairs of two tensors: a broadcast by mistake, and differences of all vectors to all others.

Sizes are products of shapes: of ``n`` and ``m`` numbers of ``e`` bytes, all pairs take ``a * b / e`` bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snapreport.findings.advice_births import LINEAR, births
from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, remembered
from snapreport.findings.attention_scores import attention_scores
from snapreport.findings.computed_weights import computed_weights
from snapreport.findings.graphs import born_in, freed_in
from snapreport.findings.saving import bytes_of_spans, bytes_over_time, share_with_cost
from snapreport.integers import is_among
from snapreport.sentence import sentence
from snapreport.timeline.phases import FORWARD, OPTIMIZER_STEP

ELEMENT_SIZES, _TYPES = (4, 2), (1, 2, 4, 8)
LAYER = (
    r"(?-u)torch/nn/(modules/(activation|\w*norm|normalization|conv|linear|pooling|upsampling)\.py forward"
    r"|functional\.py embedding(_bag)?)$"
)
"""Layers of PyTorch: a loss and lines of the program broadcast, these make activations, which may be squares, too."""
MIN_BYTES = 1 << 22
NEIGHBOURS = 8
LEAST_DEPTH, MOST_DEPTH = 8, 4096
FEWEST_VECTORS = 64
_TRIPLETS = r"(?i)triplet"
_IN_SUM = 2
"""Allocations from a difference on, its square and its sum, in which the remedy computes x·y."""
DISTANCE_CHUNKS = 8
"""Pieces of one side, as of a loss: see ``CHUNKS`` in chunked_loss.py."""
_OPERATOR = r"torch/(functional\.py einsum|_tensor\.py wrapped)$"
_INDEX = 8  # bytes of a number that argmin() returns


def broadcast(context: AdviceContext) -> Advice | None:
    """``[N] - [N, 1]``: a product's result has N numbers, the next large allocation of another line N times N."""
    every = births(context)
    rows, size, stack = every.rows, every.size, every.stack
    linear = context.frames(LINEAR)[stack]
    by_program = context.by_program[stack]
    mask = np.zeros(len(context.size), bool)
    # Positions of T tokens in 64 bits may be as large as a norm's weights, and their square as what a lookup gives.
    of_data = ~context.category("parameter", "gradient", "optimizer state")
    # Neither predictions nor targets are in an optimizer's step, which may scale blocks of weights.
    elsewhere = context.frames(LAYER) | (context.phases.innermost == OPTIMIZER_STEP)
    large = np.flatnonzero((size >= MIN_BYTES) & ~elsewhere[stack] & (stack > 0))
    for bytes_of in ELEMENT_SIZES:
        n = np.sqrt(size[large] / bytes_of).round().astype(np.int64)
        square = n * n * bytes_of == size[large]
        square[square] = np.isin(n[square] * bytes_of, size)
        places, n = large[square], n[square]
        before = np.maximum(places[:, None] - np.arange(1, NEIGHBOURS + 1), 0)
        vector = (n * bytes_of)[:, None]
        is_vector = size[before] == vector
        follows = _nearest(linear[before], is_vector)
        # Of products by lines of the program, all after the vector are smaller: operands of a product are larger.
        follows |= _nearest(size[before] >= vector, is_vector & by_program[before])
        found: set[int] = set()
        for at, side in zip(places[follows].tolist(), n[follows].tolist(), strict=True):
            if int(size[at]) in found:  # the first has marked all that follow
                continue
            born = context.born[rows[at]]
            alive = of_data & context.alive_before(born) & (context.size == side * bytes_of)
            # Among activations are some that are older than what looks like a prediction.
            made = context.born[rows[np.flatnonzero(size[:at] == side * bytes_of)[-1]]]
            is_first = not ((context.born < made) & (context.freed > born) & (context.size == size[at])).any()
            # The prediction and the target; all pairs by a matrix product have operands with more columns.
            if alive.sum() >= 2 and is_first:
                found.add(int(size[at]))
                mask |= context.as_large(size[at]) & (context.born >= born)
    mask &= ~passing_distances(context)  # of as many vectors as there are codes
    if not (bytes_ := context.much_at_peak(mask)):
        return None
    return Advice(
        "broadcast",
        "Give prediction and target the same shape",
        [
            sentence(
                "{} are squares of the number of predictions, from {}: a tensor of [N] and one of [N, 1] are "
                "broadcast to [N, N].",
                context.share(bytes_),
                context.first_line(mask),
            ),
            "The loss of such a broadcast compares every prediction with every target.",
        ],
        "broadcasting semantics",
        "https://docs.pytorch.org/docs/stable/notes/broadcasting.html",
        mask,
        effort=ONE_LINE,
        line="prediction = prediction.squeeze(-1)",
    )


def _nearest(counts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Bool per row of two matrices: whether the first column that counts is a wanted one."""
    return np.asarray(np.take_along_axis(counts & wanted, counts.argmax(1)[:, None], 1)[:, 0])


@remembered
def differences(context: AdviceContext) -> tuple[np.ndarray, int]:
    """``(x[:, None] - y[None]).square().sum(-1)``: two tensors of N times M times D, then one of N times M, beside two
    of N times D and M times D. Bool per allocation, of N times M times D; and bytes of the largest N times M, 0 for
    none.
    """
    every = births(context)
    # What is smaller is no sum, but may be a number for each dimension, by which vectors are scaled.
    large = (every.size >= MIN_BYTES // MOST_DEPTH) & ~attention_scores(context).written[every.rows]
    rows, size, stack, calls = every.rows[large], every.size[large], every.stack[large], every.calls[large]
    mask, output = np.zeros(len(context.size), bool), 0
    # The program's own lines compute both and their sum, one directly after the other.
    function = np.where(context.outside_of_torch, context.function, 0)[stack]
    alike = (function[:-1] == function[1:]) & (function[:-1] > 0) & (size[:-1] == size[1:]) & (size[:-1] >= MIN_BYTES)
    alike &= ~np.isin(size[:-1], computed_weights(context))
    known: dict[tuple[int, int, int, bool], bool] = {}
    pairs = np.flatnonzero(alike[:-1] & (function[2:] == function[:-2]) & (size[2:] != size[1:-1]))
    pairs = pairs[~_adds_more(size, calls, pairs)]
    for at in pairs.tolist():
        sums = int(size[at + 2])
        # Scaled by a number for each dimension, a difference is two tensors of all pairs.
        for first in (at, at - 1) if at and alike[at - 1] else (at,):
            key = int(stack[first]), int(size[first]), sums, first < at
            if key not in known:
                known[key] = _is_difference(context, rows[first], int(size[first]), sums, is_scaled=first < at)
            if known[key]:
                output = max(output, sums)
                of_lines = is_among(context.calls, calls[first : at + 2].tolist())[context.stack]
                mask |= of_lines & context.as_large(size[first])
    return mask, output


def distance_matrix(context: AdviceContext) -> Advice | None:
    """Differences of all pairs of vectors, of which the program needs the sums alone."""
    mask, output = differences(context)
    if not output:
        return None
    # Their gradients are as large, and sums over one axis of those take scratch memory while they are alive.
    engine = context.without_python[context.stack] & context.is_traced
    whole = engine & np.isin(context.size, np.unique(context.size[mask]))
    beside = bytes_over_time(context.timeline, np.flatnonzero(whole))[context.born + 1] > 0
    mask = mask | (beside & (context.size > output))
    if not (bytes_ := context.much_at_peak(mask)):
        return None
    # The products x·y are as large as the sums, and so are their gradients.
    cost = output * (2 if context.trains else 1)
    share = share_with_cost(context.timeline, np.flatnonzero(mask), 1.0, cost * _computing(context, mask))
    return Advice(
        "distance-matrix",
        "Compute distances with torch.cdist, or as x² - 2xy + y²",
        [
            sentence(
                "Differences of all pairs of vectors hold {}, from {}. Only their sums are needed.",
                context.share(bytes_),
                context.first_line(mask),
            ),
        ],
        "torch.cdist",
        "https://docs.pytorch.org/docs/stable/generated/torch.cdist.html",
        mask,
        share,
        line="distances = torch.cdist(x, y).square()",
    )


def _adds_more(size: np.ndarray, calls: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Bool per place of ``pairs``: its line makes one more tensor as large soon after the two, and not two, as the next
    difference of a loop and its square: it adds to ``x² - 2xy`` the ``y²`` that it has made in between.
    """
    at = np.minimum(pairs[:, None] + np.arange(3, 6), len(size) - 1)
    third, fourth, fifth = ((size[at] == size[pairs, None]) & (calls[at] == calls[pairs, None])).T
    return np.asarray((third & ~fourth) | (~third & fourth & ~fifth))


def _computing(context: AdviceContext, mask: np.ndarray) -> np.ndarray:
    """Int64 per place in a curve: 1 where distances or their gradients are computed, 0 where differences are only kept
    for a backward pass: the exponentials of a kernel keep what they need in either case.
    """
    last, rows = len(context.timeline.events), np.flatnonzero(mask)
    born, freed = context.born[rows], context.freed[rows]
    kept = (freed_in(context) > born_in(context))[rows]
    # The sum of what is kept follows directly; at the other end its gradient, which has no stack trace, is alive.
    order = np.append(context.born[births(context).rows], [last] * (_IN_SUM + 1))
    following = order[np.searchsorted(order, born, "right") + _IN_SUM]
    ends = np.where(kept, np.minimum(following, freed), freed)
    return np.asarray(np.minimum(bytes_of_spans(context.timeline, born, ends, 1), 1))


@remembered
def passing_distances(context: AdviceContext) -> np.ndarray:
    """``x²[:, None] + y²[None] - 2 * (x @ y.T)`` that no backward pass needs: bool per allocation, at least two tensors
    of N times M numbers, one after another, beside two of N and M numbers. Within a forward pass or a training they are
    those of a codebook, of which the program uses the index of the nearest code alone.
    """
    trains = context.timeline.activity.trains
    every = births(context)
    rows, size, stack = every.rows, every.size, every.stack
    innermost = context.innermost(_OPERATOR)
    of_stack = np.where(context.frames_outside_of_torch[innermost], context.function_of_frame[innermost], 0)
    function = of_stack[stack]
    run = np.cumsum(np.diff(function, prepend=0) != 0)
    # A term of the sum is freed before the next is made; activations of a layer stay for a backward pass.
    later = np.append(context.born[rows], np.zeros(NEIGHBOURS, np.int64))[NEIGHBOURS:]
    by_backward = context.is_freed & context.may_be_backward[context.free_stack]
    passing = (context.freed[rows] < later) & ~by_backward[rows]
    alike = (function[:-1] == function[1:]) & (function[:-1] > 0) & (size[:-1] == size[1:]) & (size[:-1] >= MIN_BYTES)
    mask = np.zeros(len(context.size), bool)
    known: dict[tuple[int, int], bool] = {}
    for at in np.flatnonzero(alike & passing[:-1]).tolist():
        key = int(stack[at]), int(size[at])
        if key not in known:
            by_index = trains or every.forward[at]
            after = slice(at + 2, at + 2 + NEIGHBOURS)
            follow = size[after][function[after] == function[at]]
            # The line may make the norms of the codes last.
            counts = norms_of_sum(context, int(rows[at]), int(size[at]), follow if by_index else follow[:0])
            known[key] = len(counts) > 0
            if by_index:
                index = counts[np.isin(counts * _INDEX, follow)] * _INDEX
                of_run = np.flatnonzero(run == run[at])
                ends = of_run[(of_run > at) & np.isin(size[of_run], index)]
                again = of_run[(stack[of_run] == stack[at]) & (size[of_run] == size[at])]
                # A function that goes on with the next distances computes in chunks already.
                known[key] = len(ends) > 0 and int(again.max()) < int(ends.min())
        if known[key]:
            mask |= (of_stack == function[at])[context.stack] & context.as_large(size[at])
    return mask & ~by_backward if trains else mask


def distance_chunks(context: AdviceContext) -> Advice | None:
    """Distances of which a loop over parts of one side need not make all at once."""
    mask = passing_distances(context)
    if not (bytes_ := context.much_at_peak(mask)):
        return None
    return Advice(
        "distance-chunks",
        "Compute distances in chunks of rows",
        [
            sentence(
                "Distances of all vectors to all others hold {}, from {}. With {DISTANCE_CHUNKS} chunks, those of one "
                "are allocated at a time.",
                context.share(bytes_),
                context.first_line(mask),
                DISTANCE_CHUNKS=DISTANCE_CHUNKS,
            ),
        ],
        "Tensor.chunk(), torch.cdist",
        "https://docs.pytorch.org/docs/stable/generated/torch.cdist.html",
        mask,
        1 - 1 / DISTANCE_CHUNKS,
        line=f"nearest = torch.cat([distances(part, y).argmin(1) for part in x.chunk({DISTANCE_CHUNKS})])",
    )


@remembered
def triplets(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: tensors of all triplets of a batch, ``x[:, :, None] - x[:, None]`` of the distances of all n
    to all n, masks of such, and gradients. The program makes n³ numbers, as no layer does, while two tensors of n² are
    alive that are no weights. Powers of two are products of many things, and a module computes scores of attention:
    there a function has to say that it is about triplets.
    """
    every, mask = births(context), context.marked()
    of_data = ~context.category("parameter", "gradient", "optimizer state")
    layers = np.unique(every.size[context.frames(LAYER)[every.stack]])
    is_named, by_module = context.functions(_TRIPLETS), context.phases.runs(FORWARD)
    large = (context.outside_of_torch & (is_named | ~by_module))[every.stack]
    large &= (every.size >= MIN_BYTES) & ~np.isin(every.size, layers)
    sizes, first = np.unique(every.size[large], return_index=True)
    for bytes_of in ELEMENT_SIZES:
        count = np.rint(np.cbrt(sizes / bytes_of)).astype(np.int64)
        is_cube = count**3 * bytes_of == sizes
        for n, at in zip(count[is_cube].tolist(), every.rows[large][first[is_cube]].tolist(), strict=True):
            alive = of_data & context.alive_before(context.born[at])
            of_pairs = alive & np.isin(context.size, [n**2 * each for each in _TYPES])
            if (n & (n - 1) or is_named[context.stack[at]]) and of_pairs.sum() >= 2:
                mask[every.rows[np.isin(every.size, [n**3 * each for each in _TYPES])]] = True
    return mask


def triplet_chunks(context: AdviceContext) -> Advice | None:
    """Tensors of all triplets of a batch, which a loop over parts of it need not make at once."""
    mask = triplets(context)
    if not context.trains or not (bytes_ := context.much_at_peak(mask)):
        return None
    return Advice(
        "triplet-chunks",
        "Compute triplets in chunks of anchors, each checkpointed",
        [
            sentence(
                "Tensors of all triplets of a batch hold {}, from {}. With {DISTANCE_CHUNKS} chunks, those of one "
                "are allocated at a time.",
                context.share(bytes_),
                context.first_line(mask),
                DISTANCE_CHUNKS=DISTANCE_CHUNKS,
            ),
            "Half a batch has an eighth of its triplets, which changes the loss.",
        ],
        "torch.utils.checkpoint",
        "https://docs.pytorch.org/docs/stable/checkpoint.html",
        mask,
        1 - 1 / DISTANCE_CHUNKS,
        line=f"loss = sum(checkpoint(loss_of, part, use_reentrant=False) for part in anchors.chunk({DISTANCE_CHUNKS}))",
    )


def norms_of_sum(context: AdviceContext, row: int, whole: int, follow: Sequence[int] | np.ndarray = ()) -> np.ndarray:
    """Counts n and m where tensors of n, m, n·d and m·d numbers are alive and ``whole`` bytes are n·m numbers; or none.

    follow: bytes of tensors that are made after it and may be among them.
    """
    born = context.born[row]
    alive = np.union1d(context.size[context.is_traced & context.alive_before(born)], np.array(follow, np.int64))
    counts: list[int] = []
    for bytes_of in ELEMENT_SIZES:
        norms = alive[alive >= FEWEST_VECTORS * bytes_of]
        for n in norms[whole * bytes_of % norms == 0].tolist():
            m = whole * bytes_of // n
            depths = alive[alive % n == 0] // n
            depths = depths[(depths >= LEAST_DEPTH) & (depths <= MOST_DEPTH)]
            if np.isin(m, norms) and np.isin(m * depths, alive).any():
                counts += [n // bytes_of, m // bytes_of]
    return np.array(counts, np.int64)


def _is_difference(context: AdviceContext, row: int, whole: int, sums: int, *, is_scaled: bool) -> bool:
    """Whether two tensors that are alive have n·d and m·d numbers, where ``whole`` bytes are n·m·d and ``sums`` n·m.
    Nothing as large is, in any type: a softmax or a norm computes from such a tensor. ``is_scaled``: one has d numbers.
    """
    depth, rest = divmod(whole, sums)
    if rest or not LEAST_DEPTH <= depth <= MOST_DEPTH:
        return False
    born = context.born[row]
    alive = np.unique(context.size[context.alive_before(born)])
    if np.isin((whole // 2, whole, 2 * whole), alive).any():
        return False
    for bytes_of in ELEMENT_SIZES:
        vector = depth * bytes_of
        if is_scaled and vector not in alive:
            continue
        sides = alive[(alive % vector == 0) & (alive >= FEWEST_VECTORS * vector) & (alive < whole)]
        m, left = np.divmod(sums // bytes_of, sides // vector)
        if ((left == 0) & np.isin(m * vector, sides)).any():
            return True
    return False
