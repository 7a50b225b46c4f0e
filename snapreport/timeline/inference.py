"""Infers categories that neither the stack nor the free shows, from phases, sizes and lifetimes.

Contains only rules whose precision was measured (``python -m benchmarks categories`` prints it for each):

* *engine*: an allocation of the autograd engine's thread, which has no Python stack, is a temporary if the same
  backward pass frees it, an activation if a later one does or if it is larger than what a gradient can be of, otherwise
  a gradient;
* *growing cache*, *kept cache*, *input batch*: see ``repeated_tensors.py``;
* *copies*: blocks from before the trace that are never freed hold a few times the sizes of the model's parameters: the
  first copy is parameters, then gradients if the trace makes none, the rest is optimizer state;
* *forward only*: if the trace only runs forward passes and returns to its starting level, memory that is never freed is
  parameters; not if much more was reserved before than the trace ever uses, or if there are two models: such a program
  did something else before, and may have left gradients or optimizer state;
* *workspace*: cuBLAS's workspace has a distinctive size, or on Hopper a distinctive life, see ``workspaces.py``;
* *transformer*: see ``transformer_weights.py``; not in training, where gradients and state have the same sizes;
* *weight clones*, *own state*, *data*: see ``program_state.py``;
* *loaded state*: a checkpoint has as many tensors as the model has parameters, then those of the optimizer's state;
* *constructor*: what a constructor built is the model's, if no rule before knows better.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from snapreport.integers import is_among
from snapreport.timeline.activity import GRAPH_DROPPED, INFERENCE, KINDS, TRAINING, UNKNOWN
from snapreport.timeline.category_rules import (
    ACTIVATION,
    GRADIENT,
    INPUT,
    KV_CACHE,
    OPTIMIZER_STATE,
    PARAMETER,
    TEMPORARY,
    WORKSPACE,
)
from snapreport.timeline.life_phases import Evidence
from snapreport.timeline.model_widths import ELEMENT_BYTES, model_widths
from snapreport.timeline.parameter_copies import parameter_copies
from snapreport.timeline.phases import BACKWARD, FORWARD, NONE
from snapreport.timeline.program_state import own_optimizer_state, resident_data, weight_clones
from snapreport.timeline.recording_gaps import shows_earlier_peak
from snapreport.timeline.repeated_tensors import built_caches, growing_caches, input_batches, kept_caches
from snapreport.timeline.transformer_weights import transformer_weights
from snapreport.timeline.workspaces import CUBLAS_WORKSPACE, beside_kept, kept_workspaces

_MIN_SIZES, _MIN_SAME_BYTES, _MIN_SAME_SIZES = 4, 0.98, 0.9  # of copies: distinct sizes, share of bytes, of sizes
_MIN_TENSORS = 32  # tensors: a batch has few
_NUMBER = 8  # bytes of one: the steps that an optimizer has taken
_MAX_LOW, _MIN_RISE = 0.25, 0.5  # of the maximum that forward passes allocate


def infer(evidence: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """(UInt8 category of each allocation, 0 if none is inferred; UInt8 number of the rule in ``RULES``, from 1)."""
    codes, rule = np.zeros(len(evidence.size), np.uint8), np.zeros(len(evidence.size), np.uint8)
    for number, (make, activities) in enumerate(_RULES.values(), 1):
        if evidence.activity in activities:
            guess = make(evidence, np.where(codes > 0, codes, evidence.codes))
            new = (guess > 0) & (codes == 0)
            codes[new], rule[new] = guess[new], number
    return codes, rule


def _older(e: Evidence, known: np.ndarray) -> np.ndarray:
    """Bool per allocation: from before the trace, of no known category, and never freed but by the program's own code:
    it existed throughout, too.
    """
    stays = ~e.is_freed | (e.lives.own_frees & (e.lives.freed == NONE))
    return np.asarray((known == 0) & ~e.is_traced & stays)


def _workspace(e: Evidence, _: np.ndarray) -> np.ndarray:
    """A handle keeps its workspace: never freed, or only after the phase that allocated it."""
    stays = ~e.is_freed | ~e.lives.within
    default = e.size == CUBLAS_WORKSPACE
    mine = default & ((stays & is_among(e.codes, (0, GRADIENT))) | ~e.is_freed)
    columns = {
        "size": e.size, "alloc": e.alloc, "free": e.free, "stack": e.stack, "engine": e.lives.engine,
        "is_parameter": e.codes == PARAMETER, "is_named": e.named,
    }  # fmt: skip
    table = pl.DataFrame(columns)
    mine |= kept_workspaces(table)
    return np.where(mine | beside_kept(table, mine), WORKSPACE, 0)


def _engine(e: Evidence, known: np.ndarray) -> np.ndarray:
    mine = e.lives.engine & (e.codes == 0)
    result = np.where(mine, np.where(e.lives.within, TEMPORARY, GRADIENT), 0)
    # With create_graph=True a backward pass makes a graph, which a later one frees. Gradients are freed by the program,
    # and none is larger than any parameter or input, which is alive while the engine makes one. With C++ frames the
    # engine's threads have stacks.
    backward = e.is_traced & (e.lives.born == BACKWARD)
    made = e.alloc[backward]
    until = np.searchsorted(made, e.end)
    differentiated = until > np.searchsorted(made, e.alloc)
    others = e.size[~backward & differentiated & ~is_among(known, (ACTIVATION, TEMPORARY, WORKSPACE))]
    largest = int((others if len(others) else e.size).max(initial=0))
    freed = e.lives.own_frees & e.is_freed & (e.lives.freed == BACKWARD)
    of_graph = freed | (e.size > largest)
    result[of_graph & backward & is_among(e.codes, (0, GRADIENT)) & ~e.lives.within] = ACTIVATION
    # If the trace ends in a backward pass, live memory with the size of a gradient or parameter is a gradient.
    if e.lives.final == BACKWARD:
        alive = mine & ~e.is_freed
        known = np.unique(e.size[is_among(e.codes, (PARAMETER, GRADIENT)) | (mine & ~e.lives.within & e.is_freed)])
        if len(known):
            result[alive & ~np.isin(e.size, known)] = TEMPORARY
    return result


def _cache(e: Evidence, _: np.ndarray) -> np.ndarray:
    mine = growing_caches(e) & is_among(e.codes, (0, ACTIVATION, TEMPORARY))
    return np.where(mine, KV_CACHE, 0)


def _kept_cache(e: Evidence, _: np.ndarray) -> np.ndarray:
    open_ = is_among(e.codes, (0, ACTIVATION, TEMPORARY))
    weights = e.size[(e.codes == PARAMETER) | (e.probable == PARAMETER)]
    mine = (kept_caches(e, weights) | built_caches(e)) & open_
    return np.where(mine, KV_CACHE, 0)


def _input(e: Evidence, known: np.ndarray) -> np.ndarray:
    mine = input_batches(e) & (known == 0)
    return np.where(mine & ~_copies_of_weights(e, mine), INPUT, 0)


def _copies_of_weights(e: Evidence, mine: np.ndarray) -> np.ndarray:
    """Bool per allocation of ``mine``: whether its line makes many tensors, nearly all the size of a parameter: copies
    of the best weights so far.
    """
    rows = np.flatnonzero(mine)
    of_weight = np.isin(e.size[rows], np.unique(e.size[e.codes == PARAMETER]))
    count = np.bincount(e.stack[rows])
    alike = np.bincount(e.stack[rows], of_weight) >= _MIN_SAME_SIZES * count
    found = np.zeros(len(mine), bool)
    found[rows] = (alike & (count >= _MIN_TENSORS))[e.stack[rows]]
    return found


def _copies(e: Evidence, known: np.ndarray) -> np.ndarray:
    open_ = _older(e, known)
    if not open_.any():
        return np.zeros(len(e.size), np.uint8)
    return parameter_copies(e, known, open_)


def _forward_only(e: Evidence, known: np.ndarray) -> np.ndarray:
    result = np.zeros(len(e.size), np.uint8)
    if not _returns(e) or shows_earlier_peak(e.reserved_start, int(e.allocated.max())):
        return result
    mine = (known == 0) & ~e.is_traced & ~e.is_freed
    is_one_model = all(len(model_widths(e.size[mine], element)) < 2 for element in ELEMENT_BYTES)
    if is_one_model and not _several_copies(e.size[mine]):
        result[mine] = PARAMETER
    return result


def _transformer(e: Evidence, known: np.ndarray) -> np.ndarray:
    result = np.zeros(len(e.size), np.uint8)
    rows = np.flatnonzero(_older(e, known))
    result[rows[transformer_weights(e.size[rows])]] = PARAMETER
    return result


def _clones(e: Evidence, known: np.ndarray) -> np.ndarray:
    own = (e.lives.born == NONE) | (e.probable > 0)
    mine = weight_clones(e, (known == 0) & own, known == PARAMETER)
    return np.where(mine, OPTIMIZER_STATE, 0)


def _own_state(e: Evidence, known: np.ndarray) -> np.ndarray:
    return np.where(own_optimizer_state(e) & (known == 0), OPTIMIZER_STATE, 0)


def _loaded_state(e: Evidence, known: np.ndarray) -> np.ndarray:
    """What is loaded beyond as many tensors of each size as there are parameters of that size elsewhere, which come
    first in a checkpoint, where no other optimizer state is: ``load_state_dict()`` uses it as it is.
    """
    result = np.zeros(len(e.size), np.uint8)
    loaded = np.flatnonzero((e.codes == PARAMETER) & e.loaded & (e.size > _NUMBER))
    stays = e.end > e.alloc[loaded].max(initial=0)  # those of a model before are gone
    sizes, counts = np.unique(e.size[(e.codes == PARAMETER) & ~e.loaded & stays], return_counts=True)
    loaded = loaded[np.lexsort((e.alloc[loaded], e.size[loaded]))]
    size = e.size[loaded]
    if stays[known == OPTIMIZER_STATE].any() or not len(sizes) or not np.isin(size, sizes).all():
        return result
    first = np.searchsorted(size, size)
    models = counts[np.searchsorted(sizes, size)]
    copies = (np.searchsorted(size, size, "right") - first) / models
    if (copies == copies[:1]).all():  # of the model, of its state, or of both
        result[loaded[np.arange(len(size)) - first >= models]] = OPTIMIZER_STATE
    return result


def _data(e: Evidence, known: np.ndarray) -> np.ndarray:
    """Not of the size of a weight or a gradient."""
    mine = resident_data(e) & (known == 0)
    of_model = is_among(known, (PARAMETER, GRADIENT))
    return np.where(mine & ~np.isin(e.size, np.unique(e.size[of_model])), INPUT, 0)


def _constructor(e: Evidence, _: np.ndarray) -> np.ndarray:
    """Not of objects that come and go, as requests do: nothing but gradients says that such are models."""
    made = pl.DataFrame({"stack": e.stack, "alloc": e.alloc, "free": e.free}).filter(pl.Series(e.probable > 0))
    gone = pl.col("free").filter(pl.col("free") >= 0).min() < pl.col("alloc").max()
    again = made.group_by("stack").agg(gone=gone).filter("gone")["stack"].to_numpy()
    passing = is_among(e.stack, again) & ~np.isin(e.size, np.unique(e.size[e.codes == GRADIENT]))
    return np.where(passing, 0, e.probable)


def _several_copies(size: np.ndarray) -> bool:
    """Whether sizes occur in twos, threes or fours: then they include gradients, optimizer state or a second model."""
    sizes, counts = np.unique(size, return_counts=True)
    weight = sizes * counts
    if len(sizes) < _MIN_SIZES:
        return False
    fits = [counts % copies == 0 for copies in (2, 3, 4)]
    return any(weight[fit].sum() >= _MIN_SAME_BYTES * weight.sum() and fit.mean() >= _MIN_SAME_SIZES for fit in fits)


def _returns(e: Evidence) -> bool:
    """Whether allocated memory never falls below its start, and the memory that forward passes add returns to the
    start, or to a small part of its height (outputs and caches stay until the next pass).

    A trace that begins in the middle of a pass never rises much above its start, which includes activations.
    """
    start = int(e.allocated[0])
    if start == 0 or e.allocated.min() < 0.98 * start:
        return False
    mine = e.is_traced & (e.lives.born == FORWARD) & (e.size != CUBLAS_WORKSPACE)
    change = np.bincount(e.alloc[mine] + 1, e.size[mine], minlength=len(e.allocated))
    freed = mine & e.is_freed
    change -= np.bincount(e.free[freed] + 1, e.size[freed], minlength=len(change))
    height = np.cumsum(change)
    top = int(np.argmax(height))
    rise = int(e.allocated.max()) - start
    if rise < _MIN_RISE * height[top]:
        return False
    above = np.flatnonzero(e.allocated > 1.02 * start)
    if len(above) and (e.allocated[above[0] :] <= 1.005 * start).any():
        return True
    return bool(height[top:].min() <= _MAX_LOW * height[top]) if height[top] > 0 else False


_RULES: dict[str, tuple[Callable[[Evidence, np.ndarray], np.ndarray], tuple[str, ...]]] = {
    "workspace": (_workspace, KINDS),
    "engine": (_engine, KINDS),
    "growing cache": (_cache, (INFERENCE, GRAPH_DROPPED, UNKNOWN)),
    "kept cache": (_kept_cache, (INFERENCE, GRAPH_DROPPED)),
    "input batch": (_input, (TRAINING,)),
    "copies": (_copies, (TRAINING,)),
    "forward only": (_forward_only, (INFERENCE, GRAPH_DROPPED)),
    "transformer": (_transformer, (INFERENCE, GRAPH_DROPPED, UNKNOWN)),
    "weight clones": (_clones, KINDS),
    "own state": (_own_state, (TRAINING,)),
    "loaded state": (_loaded_state, (TRAINING,)),
    "data": (_data, (TRAINING,)),
    "constructor": (_constructor, KINDS),
}
"""Each with the activities of programs that it is about."""
RULES = tuple(_RULES)
