"""What differs between two programs where their traces prove it: layers, classes, precision, optimizer.

``diff_sides`` has what is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from snapreport.findings.diff_sides import EQUAL, EXPLAINED, MOST_OF, Comparison, Side, equal
from snapreport.number_format import bytes_text, plural

_ROUNDING = 512
"""Bytes: the allocator rounds each request up to a multiple."""
_PRECISIONS = (0.25, 0.5, 2.0, 4.0)
_MORE_PASSES, _SMALL = 1.5, 0.2
_CHECKPOINT, _AUTOCAST = r"torch/utils/checkpoint\.py", "autocast"
_DROPOUT = r"torch/nn/functional\.py (alpha_|feature_)*dropout(\dd)?$"
_CLASSES = r"torch/nn/functional\.py (cross_entropy|log_softmax|nll_loss)$"
_MEASURED = {"parameter": "parameters", "optimizer state": "optimizer state", "activation": "activations"}


def program_changes(compared: Comparison) -> str:
    """``parameters ×2, activations ×2: the model has twice as many layers.``; "" where nothing is proved."""
    changes = [
        *_of_parameters(compared),
        *_of_training(compared),
        *_of_activations(compared),
        *_of_optimizer(compared),
        *_of_leftovers(compared),
    ]
    if not changes:
        return ""
    changes += _of_inputs(compared)
    ratios = {noun: compared.ratio(category) for category, noun in _MEASURED.items()}
    parts = [f"{noun} {times(ratio)}" for noun, ratio in ratios.items() if ratio == ratio and not equal(ratio, 1.0)]
    return f"{', '.join(parts)}{': ' if parts else ''}{'; '.join(changes)}."


def _of_parameters(compared: Comparison) -> Iterator[str]:
    one, two = compared.before.parameters, compared.after.parameters
    if not len(one) or not len(two) or compared.has_same_parameters:
        return
    if len(one) == len(two):
        ratios = two / one
        middle = compared.ratio("parameter")
        if (
            any(equal(middle, ratio) for ratio in _PRECISIONS)
            and one[equal(ratios, middle)].sum() >= EXPLAINED * one.sum()
        ):
            yield f"every number takes {ratio_text(middle)} the bytes, another precision"
            return
        root = float(ratios.max() if ratios.max() * ratios.min() > 1 else ratios.min()) ** 0.5
        steps = [equal(ratios, root**power) for power in range(3)]
        if not equal(root, 1.0) and steps[1].any() and steps[2].any() and np.logical_or.reduce(steps).all():
            yield f"the width of the model is {ratio_text(root)} what it was"
            return
    elif set(one.tolist()) == set(two.tolist()):
        parts = list(_of_parts(compared))
        if parts:
            yield from parts
            return
    yield from _of_sizes(compared)


def _of_sizes(compared: Comparison) -> Iterator[str]:
    """As many parameters, of which some are larger; one more copy of all, none of which is trained; or some more."""
    before, after = compared.before, compared.after
    one, two = Counter(before.parameters.tolist()), Counter(after.parameters.tolist())
    removed, added = (np.sort([*each.elements()]) for each in (one - two, two - one))
    if len(removed) == len(added):
        ratio = float(added[-1] / removed[-1])
        follow = np.abs(added - ratio * removed) <= _ROUNDING * max(1.0, ratio)
        # A table of positions grows with the sequence or the image.
        if equal(ratio, 1.0) or not follow.all() or equal(ratio, compared.ratio("input")):
            return
        loss = after.bytes_of(_CLASSES) / max(1, before.bytes_of(_CLASSES)) / compared.longer
        if equal(loss, ratio * compared.ratio("input")):
            yield f"the vocabulary or the number of classes is {ratio_text(ratio)} what it was"
        else:
            count = f"{len(added)} of {plural(len(after.parameters), 'parameter')}"
            yield f"{count} {'is' if len(added) == 1 else 'are'} {ratio_text(ratio)} as large"
    elif not len(removed) or not len(added):
        changed = added if len(added) else removed
        copies = changed.sum() / max(1, min(before.most("parameter"), after.most("parameter")))
        is_multiple = copies > MOST_OF and equal(copies, round(copies))
        if before.gradients == after.gradients and is_multiple:
            count = "another copy" if round(copies) == 1 else f"{round(copies)} more copies"
            how = ", as of an average (EMA) or a reference model" if round(copies) == 1 else ""
            yield f"{'the device has' if len(added) else 'before, the device had'} {count} of all parameters{how}"
        elif before.gradients and after.gradients and before.gradients != after.gradients and not is_multiple:
            more = "more" if len(added) else "fewer"
            yield f"the model has {plural(len(changed), 'parameter')} {more} ({bytes_text(int(changed.sum()))})"


def _of_training(compared: Comparison) -> Iterator[str]:
    """Parameters that are there in both runs, of which one makes no gradient; gradients that stay from step to step;
    several passes for each step.
    """
    before, after = compared.before, compared.after
    if not (before.gradients and after.gradients and before.whole_steps and after.whole_steps):
        return
    for less, more, word in ((after, before, "fewer"), (before, after, "more")):
        untrained = Counter(less.parameters.tolist()) - less.gradients
        ungraded = more.gradients - less.gradients
        frozen = _bytes(ungraded & untrained)
        if frozen > EQUAL * _bytes(more.gradients) and frozen >= EXPLAINED * _bytes(ungraded):
            sizes = [bytes_text(_bytes(side.gradients)) for side in (after, before)]
            yield f"{word} parameters are trained, with gradients of {sizes[0]} instead of {sizes[1]}"
    stays = [side.rounds_of_gradients <= 1 + EQUAL and side.whole_steps > 2 for side in (before, after)]
    returns = [side.rounds_of_gradients > side.whole_steps - 1.5 > 1 for side in (before, after)]
    if stays[1] and returns[0]:
        yield "gradients stay from step to step, as with zero_grad(set_to_none=False)"
    elif stays[0] and returns[1]:
        yield "gradients are freed in each step, as with zero_grad(set_to_none=True)"
    yield from _of_passes(compared)


def _of_passes(compared: Comparison) -> Iterator[str]:
    """All lines of the same model allocate more often in a step, those of backward passes, too."""
    lines, before, after = compared.lines, compared.before, compared.after
    passes = lines.main(lines.many, lines.weight > 0)
    if before.gradients != after.gradients or lines.share(equal(lines.many, passes)) < EXPLAINED:
        return
    saved = after.saved_allocations / max(1, before.saved_allocations) / compared.longer
    if max(passes, 1 / passes) >= _MORE_PASSES and equal(saved, passes):
        how = "as with gradient accumulation" if passes > 1 else "as without gradient accumulation"
        yield f"each optimizer step has {ratio_text(passes)} as many forward and backward passes, {how}"


def _of_inputs(compared: Comparison) -> Iterator[str]:
    """Most of what a pass computes grew as its inputs did; tokens have the same precision as before."""
    lines, inputs = compared.lines, compared.ratio("input")
    one, two = compared.before.parameters, compared.after.parameters
    is_precise = len(one) == len(two) and any(equal(compared.ratio("parameter"), ratio) for ratio in _PRECISIONS)
    precision = compared.ratio("parameter") if is_precise else 1.0
    of_pass = lines.large / lines.many
    if not equal(inputs, 1.0) and lines.share(equal(of_pass, inputs * precision)) >= MOST_OF:
        yield f"the inputs are {ratio_text(inputs)} as large"


def _of_parts(compared: Comparison) -> Iterator[str]:
    """Lines that allocate more often: tensors of one size in layers; in experts, which share the rows, smaller ones
    that have the same bytes together.
    """
    lines, inputs = compared.lines, compared.ratio("input")
    rows = inputs if inputs > 0 else 1.0
    changed = ~equal(lines.many, 1.0)
    ratio = lines.main(lines.many, changed)
    repeated = changed & equal(lines.many, ratio)
    is_more = (ratio > 1) == (compared.ratio("parameter") > 1)
    if not is_more or lines.share(repeated, changed) < MOST_OF:
        return
    if lines.share(repeated) >= MOST_OF and lines.share(equal(lines.large, ratio * rows), repeated) >= MOST_OF:
        yield f"the model has {ratio_text(ratio)} as many layers"
    elif lines.share(equal(lines.large, rows), repeated) >= MOST_OF:
        yield f"the model has {ratio_text(ratio)} as many experts"


def _of_activations(compared: Comparison) -> Iterator[str]:
    before, after, lines = compared.before, compared.after, compared.lines
    grew = compared.ratio("activation")
    for what, pattern, saves in (("activation checkpointing", _CHECKPOINT, True), ("dropout", _DROPOUT, False)):
        was, now = before.runs(pattern), after.runs(pattern)
        if was != now and (grew < 1 - EQUAL if now == saves else grew > 1 + EQUAL):
            yield f"{what} is {'on' if now else 'off'}"
    yield from _of_scores(compared, grew)
    casts = before.runs(_AUTOCAST), after.runs(_AUTOCAST)
    if casts[0] != casts[1] or _casts(compared, before, after) or _casts(compared, after, before):
        yield f"autocast is {'on' if casts[1] > casts[0] or after.halved_weights > before.halved_weights else 'off'}"
    elif compared.has_same_parameters and equal(compared.ratio("input"), 1.0) and before.reads_inputs:
        changed = equal(lines.many, 1.0) & ~equal(lines.large, 1.0)
        ratio = lines.main(lines.large, changed)
        is_precision = any(equal(ratio, one) for one in _PRECISIONS)
        if is_precision and lines.share(changed & equal(lines.large, ratio)) >= MOST_OF:
            yield f"most activations take {ratio_text(ratio)} the bytes for inputs of one size, another precision"


def _of_scores(compared: Comparison, grew: float) -> Iterator[str]:
    """Scores of the same model's attention that one run alone has in memory."""
    if equal(grew, 1.0) or not compared.has_same_parameters:
        return
    before, after = compared.has_scores
    if before and not after and grew < 1:
        yield "attention scores are no longer in memory, as with scaled_dot_product_attention"
    elif after and not before and grew > 1:
        yield "attention scores are in memory, as without scaled_dot_product_attention"


def _casts(compared: Comparison, without: Side, with_casts: Side) -> bool:
    """Whether the same model copies its weights into half the bytes in one run, in lines that allocate more for it, as
    norms do not.
    """
    lines = compared.lines
    many = lines.many if with_casts is compared.after else 1 / lines.many
    shares = lines.share(many > 1 + EQUAL), lines.share(equal(many, 1.0))
    is_halved = with_casts.halved_weights - without.halved_weights >= MOST_OF
    return is_halved and min(shares) > 1 - EXPLAINED and without.gradients == with_casts.gradients


def _of_optimizer(compared: Comparison) -> Iterator[str]:
    sides = (compared.before, compared.after)
    was, now = (side.most("optimizer state") / max(1, side.most("parameter")) for side in sides)
    one, two = (" and ".join(side.optimizers) for side in sides)
    if one == two or abs(now - was) < EQUAL or not (compared.before.gradients and compared.after.gradients):
        return
    if one and two:
        yield f"the optimizer is {two} instead of {one}"
    elif one and not now:
        yield f"an optimizer without state, before it was {one}"
    elif two and not was:
        yield f"the optimizer is {two}, before it had no state"


def _of_leftovers(compared: Comparison) -> Iterator[str]:
    """Tensors that each step leaves allocated to the end, where they are most of what the peak changed by."""
    before, after = compared.before.leftovers, compared.after.leftovers
    change = int(after["bytes"].sum()) - int(before["bytes"].sum())
    of_peak = compared.after.peak_bytes - compared.before.peak_bytes
    if not of_peak or change / of_peak < MOST_OF:
        return
    less, more = (before, after) if change > 0 else (after, before)
    line = more.join(less, on="line", how="anti")["line"].to_list()
    if line:
        yield f"tensors of each step {'stay' if change > 0 else 'no longer stay'} allocated, most of {line[0]}"


def times(ratio: float) -> str:
    """``×1.5``."""
    return f"×{number(ratio)}"


def number(value: float) -> str:
    """Two decimals at most, three of small ones: ``1.5``, ``0.125``."""
    return f"{value:.{2 if value > _SMALL else 3}f}".rstrip("0").rstrip(".")


def ratio_text(ratio: float) -> str:
    return "twice" if equal(ratio, 2.0) else "half" if equal(ratio, 0.5) else f"{number(ratio)} times"


def _bytes(sizes: Counter[int]) -> int:
    return sum(size * count for size, count in sizes.items())
