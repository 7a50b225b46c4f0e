"""Which allocations are matrices of attention scores: recognised by softmax frames, and by the order of their sizes.

Attention that is not fused allocates, call by call: queries, keys and values of ``B·T·C`` elements; then matrices of
``B·H·T·T`` elements, one after another (the product, scaled, masked, the softmax, dropout); then an output as large as
the queries. A name that only contains the name of a fused kernel says nothing: programs wrap and imitate it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from snapreport.findings.advice_births import births as births_without_workspaces
from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.graphs import saved_for_backward
from snapreport.reading.noise import PYTHON, recorded_flags
from snapreport.reading.stack_marks import innermost_places, stacks_with
from snapreport.snapshot import Snapshot
from snapreport.timeline.activity import GRAPH_DROPPED
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.phases import BACKWARD, FORWARD

_SOFTMAX = r"(?i)softmax"
_NO_SCORES = r"(?i)log_?softmax|gumbel|cross_?entropy|nll_loss"
_IN_CALL = rf"{_SOFTMAX}|functional\.py (dropout|softmax)|dropout\.py forward"
_TORCH = r"(^|/)(torch|torchinductor_[^/]*)/"
_ATTENTION = r"(?i)atten|attn|sdpa"
_FUSED = (
    r"(?-u)^(at::native::)?_(scaled_dot_product_(flash|efficient|cudnn|fused)|flash_attention|efficient_attention|cudnn_attention)"
    r"|^(flash_attn\w*|_flash_attn\w*|_?flash_attention_forward|memory_efficient_attention\w*|flex_attention)$"
)
_FUSED_FILES = r"/(flash_attn|xformers|sageattention|transformer_engine)/"
MATH_KERNEL = r"(^|::)_scaled_dot_product_attention_math\b"
# Functions and files, not folders, that allocate equal sizes one after another for other reasons.
_OTHER = (
    r"(?i)(norm|mlp|ffn|feed_?forward|rope|rotary|loss|gelu|silu|swi?glu|activation|optim|expert|moe|embed"
    r"|sample|generat)[^/\\]*$|/torch/optim/|/generation/"
)

_SAVES_SCORES = r"\b(Softmax|Exp|CompiledFunction)Backward"
"""``grad_fn`` of operators that save scores; compiled code has one for all."""

NEIGHBOURS = 12
"""Allocations before and after a softmax that may belong to the same call."""
LIFE = 64
"""Allocations until which the scores of a call that no backward pass needs are freed."""
MIN_ROW_RATIO = 32
"""Allocations so many times smaller than the scores are row statistics or workspaces, and are skipped."""
MAX_SCORES_RATIO = 256
"""Scores are at most so many times larger than their output: one has the length where the other has the head's size."""
RATIOS = (1.0, 0.5, 2.0, 0.25)
"""Bytes of an element beside those of the softmax: casts between 16 and 32 bits, masks of one byte."""
_OF_EINSUM = (1.0, 0.5)


class Scores(Struct, frozen=True):
    """Bool per allocation. math: made by SDPA's math kernel, as C++ frames say if ``is_recorded``; otherwise one line
    of Python looks like it. written: by the program's own attention, or its model's.
    """

    math: np.ndarray
    written: np.ndarray
    is_recorded: bool = True


def attention_scores(context: AdviceContext) -> Scores:
    """The scores of every attention call of a device, with the row statistics and temporaries of their softmax."""
    return context.remember(("attention scores", context.trains), lambda: _scores(context))


def largest_scores(snapshot: Snapshot, timeline: DeviceTimeline) -> int:
    """Bytes of the largest matrix of attention scores of a device, or of a request for one that failed; 0 for none."""
    texts = snapshot.recording.frames["name"]
    if not texts.str.contains(f"{_SOFTMAX}|{_ATTENTION}").any():
        return 0
    context = AdviceContext(snapshot, timeline, ())  # has a row for each request that failed, too
    scores = attention_scores(context)
    return int(context.size[scores.math | scores.written].max(initial=0))


def _scores(context: AdviceContext) -> Scores:
    births = births_without_workspaces(context).rows
    fused = context.functions(_FUSED) | context.frames(_FUSED_FILES)
    in_math = context.functions(MATH_KERNEL)
    caller = context.function_of_frame[context.innermost(f"{_SOFTMAX}|{_TORCH}")]
    softmax = context.frames(_SOFTMAX) & ~context.frames(_NO_SCORES)
    named = context.frames(_ATTENTION) & ~fused
    direct = context.remember_of_stacks("direct frames of attention", lambda: _direct(context, caller, _IN_CALL))
    with_einsum = _IN_CALL + r"|functional\.py einsum"
    product = context.remember_of_stacks("products of attention", lambda: _direct(context, caller, with_einsum))
    marked = np.zeros(len(context.size), bool)
    # Softmax frames within something called attention, or within a function whose own lines make as large a product.
    centres = softmax[context.stack] & (named[context.stack] | _has_product(context, births, softmax, caller, product))
    shaped = _by_shape(context, births, caller, direct & ~fused, named)
    if centres.any():
        shaped &= _is_near(context, births, np.flatnonzero(centres[births]))
    marked |= centres | shaped
    marked |= _neighbours(context, births, np.flatnonzero(marked[births]), caller, direct, product)
    math_core = in_math[context.stack]
    one_line = _one_line(context, births, marked)
    # Not the last of a run, which is the output of a call and stays.
    inside = math_core[births]
    outputs = context.marked(births[inside & ~np.append(inside[1:], False)])
    math = (math_core & ~outputs) | one_line
    return Scores(math, (marked & ~math) | _of_backward(context, marked), not one_line.any())


def _direct(context: AdviceContext, caller: np.ndarray, between: str) -> np.ndarray:
    """Bool per stack: the innermost Python frame is of the calling function, or matches ``between`` and is in it."""
    innermost = context.innermost()
    own = context.function_of_frame[innermost] == caller
    called = np.append(context.texts_contain(between), False)
    direct: np.ndarray = (own | called[innermost]) & (caller > 0)
    return direct


def _has_product(
    context: AdviceContext, births: np.ndarray, softmax: np.ndarray, caller: np.ndarray, direct: np.ndarray
) -> np.ndarray:
    """Bool per allocation: made by a softmax, between an allocation as large that its function makes directly before
    it without a softmax, the product, and a smaller one after it, the output. The softmax of a loss has no output.
    """
    stack, size = context.stack[births], context.size[births]
    function, is_direct = caller[stack], direct[stack]
    without = is_direct & ~context.frames(_SOFTMAX)[stack]
    centres = np.flatnonzero(softmax[stack] & is_direct)
    product, output = np.zeros(len(centres), bool), np.zeros(len(centres), bool)
    for distance in range(1, NEIGHBOURS + 1):
        before, after = np.maximum(centres - distance, 0), np.minimum(centres + distance, len(births) - 1)
        product |= without[before] & (function[before] == function[centres]) & (size[before] == size[centres])
        smaller = (size[after] < size[centres]) & (size[after] * MAX_SCORES_RATIO > size[centres])
        output |= without[after] & (function[after] == function[centres]) & smaller
    return context.marked(births[centres[product & output]])


def _by_shape(
    context: AdviceContext, births: np.ndarray, caller: np.ndarray, direct: np.ndarray, named: np.ndarray
) -> np.ndarray:
    """Bool per allocation: the last of at least two equal matrices that one function makes directly, followed directly
    by an output as large as two of the tensors, or one third of a tensor, made within the same function before.

    Within a module's forward pass, or in something called attention (``named``, bool per stack).
    """
    found = np.zeros(len(context.size), bool)
    where = (context.phases.innermost == FORWARD) | named
    stack, size = context.stack[births], context.size[births]
    other = context.remember_of_stacks(("in module", _OTHER), lambda: _in_module(context, _OTHER))[stack]
    usable = direct[stack] & where[stack] & ~other & (size >= 1 << 16)
    rows = np.flatnonzero(usable)
    first, second = rows[:-1], rows[1:]
    candidate = (caller[stack[first]] == caller[stack[second]]) & (second - first <= 4) & (size[first] == size[second])
    # Without a backward pass scores go within their call. What outlives it is a cache that grows by concatenation.
    ends = np.append(context.born[births], len(context.timeline.events))[np.minimum(rows + LIFE, len(births))]
    saved = context.trains or context.timeline.activity.kind == GRAPH_DROPPED
    candidate &= saved | (context.freed[births[first]] <= ends[:-1]) & (context.freed[births[second]] <= ends[1:])
    # A softmax saves its result and not the product, as a gate saves what it concatenates.
    candidate &= ~_is_saved(context, births[first])
    candidate &= ~_lacks_softmax(context, births)[second]
    calls = _calls(context)
    known: dict[tuple[int, int, int], bool] = {}
    for place in np.flatnonzero(candidate).tolist():
        at, last = int(first[place]), int(second[place])
        key = int(stack[at]), int(stack[last]), int(size[at])
        if key not in known:
            known[key] = _is_call(context, births, at, last, usable, caller, calls)
        if known[key]:
            found[births[last]] = True
    return found


def _is_saved(context: AdviceContext, rows: np.ndarray) -> np.ndarray:
    """Bool per row: a backward pass needs it, or it is alive when memory runs out although its line ran again."""
    saved: np.ndarray = saved_for_backward(context)[rows]
    ooms = context.timeline.oom_events
    if not ooms:
        return saved
    last = np.full(int(context.stack.max()) + 1, -1, np.int64)
    np.maximum.at(last, context.stack, context.born)
    ran_again = last[context.stack[rows]] > context.born[rows]
    return np.asarray(saved | (context.alive_at(ooms[-1])[rows] & ran_again))


def _lacks_softmax(context: AdviceContext, births: np.ndarray) -> np.ndarray:
    """Bool per birth: autograd saves some of what is made within reach, as noted, and no softmax saves any of it. A
    norm that computes in 32 bits in a model in 16 makes equal matrices, too.
    """
    saved_by = context.timeline.allocations["saved_by"].gather(births)
    is_noted = saved_by.is_not_null().to_numpy()
    softmax = saved_by.str.contains(_SAVES_SCORES).fill_null(False).to_numpy()
    begin, end = (np.clip(np.arange(len(births)) + way, 0, len(births)) for way in (-NEIGHBOURS, NEIGHBOURS + 1))
    count = [np.append(0, np.cumsum(flag)) for flag in (is_noted, softmax)]
    noted, of_softmax = (each[end] - each[begin] for each in count)
    return np.asarray((noted > 0) & (of_softmax == 0))


def _is_near(context: AdviceContext, births: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Bool per allocation: within reach of a softmax, and as large or half or twice as large: where a program's
    attention is known by its softmax, equal sizes elsewhere are of something else.
    """
    found = np.zeros(len(context.size), bool)
    size = context.size[births]
    for distance in range(-NEIGHBOURS, NEIGHBOURS + 1):
        at = np.clip(centres + distance, 0, len(births) - 1)
        found[births[at[np.isin(size[at] / size[centres], (1.0, 0.5, 2.0))]]] = True
    return found


def _in_module(context: AdviceContext, pattern: str) -> np.ndarray:
    """Bool per stack: whether a frame matches that runs within the innermost module: ``compute_loss`` calls models."""
    recording = context.recording
    matching, called = (
        innermost_places(recording, marks) for marks in (context.texts_contain(pattern), context.frames_called)
    )
    return np.asarray((matching >= 0) & ((called < 0) | (matching < called)))


def _is_call(
    context: AdviceContext,
    births: np.ndarray,
    at: int,
    last: int,
    usable: np.ndarray,
    caller: np.ndarray,
    calls: Callable[[int], list[tuple[int, tuple[int, ...]]]],
) -> bool:
    """Whether an output follows two equal matrices, and before them come two tensors of its size, or one of three
    times that: in the same call of a function, since an adapter runs around projections and around other layers. One
    of them is alive when the output is made, which reads the values; a gate's inputs are not read again.
    """
    stack, size, freed = context.stack[births], context.size[births], context.freed[births]
    function, scores = caller[stack[at]], int(size[at])
    call = next(call for call in calls(int(stack[at])) if call[0] == function)
    before = slice(max(0, at - NEIGHBOURS), at)
    of_call = np.array([call in calls(int(s)) for s in stack[before]], bool)
    for place in range(last + 1, min(last + 9, len(size))):
        output = int(size[place])
        if not usable[place]:
            continue
        if call not in calls(int(stack[place])):
            return False
        if output * MAX_SCORES_RATIO <= scores or output == scores:
            continue
        # Since the call before this one, and since what joins the inputs of a call of fused attention.
        since = np.logical_and.accumulate((of_call & (size[before] <= max(scores, 3 * output)))[::-1])[::-1]
        inputs, is_alive = size[before][since], freed[before][since] > context.born[births[place]]
        # A picture is three times as large as the same in gray, which a jitter of its colours computes after products.
        projected = inputs[~(usable[before] & (size[before] == scores))[since]]
        parts = inputs == output
        if output < scores and ((parts.sum() >= 2 and parts[is_alive].any()) or (projected == 3 * output).any()):
            return True
        if output / scores not in RATIOS:
            return False
    return False


def _calls(context: AdviceContext) -> Callable[[int], list[tuple[int, tuple[int, ...]]]]:
    """A function that gives the calls in a stack, innermost first, computed once for each stack: the number of a
    function, and the frames outside of it.
    """
    recording, numbers = context.recording, context.function_of_frame
    known: dict[int, list[tuple[int, tuple[int, ...]]]] = {}

    def of(stack: int) -> list[tuple[int, tuple[int, ...]]]:
        if stack not in known:
            frames = recording.stack(stack)
            functions = numbers[frames].tolist()
            known[stack] = [(function, tuple(frames[at + 1 :])) for at, function in enumerate(functions)]
        return known[stack]

    return of


def _neighbours(
    context: AdviceContext,
    births: np.ndarray,
    centres: np.ndarray,
    caller: np.ndarray,
    direct: np.ndarray,
    product: np.ndarray,
) -> np.ndarray:
    """Bool per allocation: in a run around a centre that its function made directly, as large up to the element's size.

    centres: places in ``births``. product: Bool per stack, those of an einsum, too: it copies what it reads, so that
    only what is as large is a matrix of scores, or half as large: autocast's copy of a softmax in 32 bits.
    """
    found = np.zeros(len(context.size), bool)
    stack, size = context.stack[births], context.size[births]
    function, is_direct = caller[stack], direct[stack]
    scores, of = size[centres], function[centres]
    is_product = np.append(product[stack], False)  # nothing follows the last
    projected = _projected(context, births, centres, of, product[stack])
    for step in (-1, 1):
        going = np.arange(len(centres))
        for distance in range(1, NEIGHBOURS + 1):
            at = centres[going] + step * distance
            inside = (at >= 0) & (at < len(births))
            going, at = going[inside], at[inside]
            if not len(going):
                break
            tiny = size[at] * MIN_ROW_RATIO <= scores[going]
            ratio = size[at] / np.maximum(scores[going], 1)
            alike = (is_direct[at] & np.isin(ratio, RATIOS)) | (is_product[at] & np.isin(ratio, _OF_EINSUM))
            alike &= (function[at] == of[going]) & ~((ratio != 1.0) & (size[at][:, None] == projected[going]).any(1))
            if step > 0:
                # The last of a call is its output, which stays: another number of bytes only if more follows directly.
                more = is_product[at + 1] & (np.append(function, 0)[at + 1] == of[going])
                alike &= (ratio == 1.0) | more
            found[births[at[alike]]] = True
            going = going[alike | tiny]
    return found


def _projected(
    context: AdviceContext, births: np.ndarray, centres: np.ndarray, of: np.ndarray, direct: np.ndarray
) -> np.ndarray:
    """Int64 bytes, a row per centre: what modules make in its function before it, 0 for other allocations. Queries,
    keys and values may have half the bytes of scores, as in cross-attention, and matmul copies them.
    """
    recording, stack = context.recording, context.stack[births]
    place = np.clip(centres[:, None] - np.arange(1, NEIGHBOURS + 1), 0, None)
    found = np.where(direct[place], 0, context.size[births[place]])
    for number in np.unique(of).tolist():
        within = stacks_with(recording, context.function_of_frame == number)
        mine = of == number
        found[mine] = np.where(within[stack[place[mine]]], found[mine], 0)
    return found


def _one_line(context: AdviceContext, births: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """Bool per allocation: marked ones, where one line of Python scales queries and keys and makes all scores.

    SDPA's math kernel does so. Without C++ frames its one call in Python is all that is recorded.
    """
    stack = context.stack[births]
    softmax = context.frames(_SOFTMAX)[stack]
    here = marked[births] & ~softmax
    if here.any():
        recording = context.recording
        here &= ~stacks_with(recording, recorded_flags(recording) & PYTHON == 0)[stack]
    found = np.zeros(len(context.size), bool)
    for number in np.unique(stack[here]).tolist():
        mine = stack == number
        sizes = context.size[births[mine]]
        is_score = marked[births[mine]]
        if is_score.all():
            continue
        first = int(np.argmax(is_score))
        # Scaled queries and keys come first, then at least two matrices of scores, then the output. Where the last is
        # a matrix of scores, the program makes the output in another line.
        copies = first >= 2 and sizes[first - 1] == sizes[first - 2]
        if copies and is_score[first : first + 2].all() and not is_score[-1]:
            found[births[mine & marked[births]]] = True
    return found


def _of_backward(context: AdviceContext, scores: np.ndarray) -> np.ndarray:
    """Bool per allocation: gradients of scores. Of a backward pass, as large as scores and as nothing else in a
    forward.
    """
    if not scores.any():
        return np.zeros(len(scores), bool)
    phase = context.phases.innermost[context.stack]
    forward = (phase == FORWARD) & context.is_traced
    sizes = np.setdiff1d(context.size[scores], context.size[forward & ~scores])
    largest = int(context.size[scores].max())
    sizes = sizes[sizes * MIN_ROW_RATIO > largest]
    from_engine = (phase == BACKWARD) | (context.stack == 0)
    gradients: np.ndarray = from_engine & np.isin(context.size, sizes)
    return gradients
