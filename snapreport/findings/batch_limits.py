"""Where a batch cannot be halved, where that changes the loss, and where it was done already."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_births import LINEAR, births
from snapreport.findings.advice_context import AdviceContext, remembered
from snapreport.findings.batch_pairs import BatchPairs, names_pairs, side
from snapreport.findings.graphs import (
    backward_allocations,
    backward_passes,
    born_in,
    forward_births,
    possible_weights,
    waiting_passes,
)
from snapreport.findings.outer_product import differences, triplets
from snapreport.findings.untrained_gradients import untrained
from snapreport.timeline.phases import BACKWARD, OPTIMIZER_STEP

_GRAPH_NETWORK = (
    r"(?i)torch_geometric|(^|/)dgl/|torch_scatter|torch_sparse|"
    r" (message|message_and_aggregate|propagate|aggregate|edge_update|scatter_(add|mean|max|sum)|spmm)$"
)
_MIN_BYTES = 1 << 16
_ALIKE, _OF_A_LAYER = 3, 4
"""Of what has no stack trace: tensors of one size, as sources and targets of edges; weights of layers are more. And
times that a transformer's layer widens its input at most, with weights as much larger.
"""
_SOME_GRADIENTS = 0.05
"""Of the gradient bytes of the backward pass that makes most: one that makes no more than this is not counted."""


@remembered
def is_batch_fixed(context: AdviceContext) -> bool:
    """Whether advice to halve the batch would be of no use, as far as the trace shows."""
    if waiting_passes(context) > 1:
        return True  # they are parts of a batch already
    is_fixed = (_is_one_graph, _has_batch_negatives, _accumulates, _is_single, _is_optimized, _has_triplets)
    return any(one(context) for one in (*is_fixed, _optimizer_differentiates))


def _is_one_graph(context: AdviceContext) -> bool:
    """A graph network whose steps all read the same data: it has no batch."""
    forward = forward_births(context)
    inputs, large = context.category("input") & ~context.forward[context.stack], context.size >= _MIN_BYTES
    later = inputs & (context.born > forward[:1].max(initial=0))
    if not len(forward) or (later & large).any():
        return False
    fixed = large & ~context.forward[context.stack] & (context.born < forward[0]) & (context.freed > forward[-1])
    # A trace that begins late does not show what older memory is: where nothing else is read, it may be the data.
    older = fixed & context.category("unknown") & ~context.is_traced & (not later.any())
    read = context.category("input", "unknown") & context.has_python
    named = fixed & read
    if context.occurs(context.frames(_GRAPH_NETWORK)):
        # One step does not show what is an input.
        read &= large & ~context.forward[context.stack] & (context.born > forward[0])
        return bool((older | (fixed & inputs)).any() or (named.any() and not read.any()))
    sizes, count = np.unique(context.size[older], return_counts=True)
    older &= np.isin(context.size, sizes[count <= _ALIKE])
    return _sends_messages(context, named) or _sends_messages(context, older, _OF_A_LAYER)


def _sends_messages(context: AdviceContext, fixed: np.ndarray, ratio: int = 1) -> bool:
    """Whether each pass goes from nodes to edges and back at least twice: a tensor of all nodes is directly followed by
    one of all edges, and that later by one of all nodes. fixed: Bool per allocation, inputs: sources and targets of
    edges are equally large, and a number for each node is smaller, by more than ``ratio``.
    """
    every = births(context)
    large = every.forward & (every.size >= _MIN_BYTES)
    size, run = every.size[large], born_in(context)[every.rows[large]]
    sizes, count = np.unique(context.size[fixed], return_counts=True)
    fewest = 2 * max(1, len(np.unique(run)))
    for edges in sizes[count >= 2].tolist():
        for nodes in sizes[ratio * sizes < edges].tolist():
            sent = size[1:] * nodes == size[:-1] * edges
            received = size[1:] * edges == size[:-1] * nodes
            if min(sent.sum(), received.sum()) >= fewest:
                return True
    return False


def _has_batch_negatives(context: AdviceContext) -> bool:
    """A loss over similarities or distances of all samples of the batch to all others: half a batch has half of the
    negatives.
    """
    compares = context.occurs(names_pairs(context)) or BatchPairs(context.timeline).samples > 0
    return compares or _has_distances(context)


def _has_distances(context: AdviceContext) -> bool:
    """Differences of all samples from all others: as many vectors on both sides, and no codebook, a parameter."""
    mask, output = differences(context)
    vectors = int(context.size[mask].max(initial=0)) // max(1, side(output))
    return side(output) > 0 and vectors not in context.size[possible_weights(context)]


def _has_triplets(context: AdviceContext) -> bool:
    return bool(context.much_at_peak(triplets(context)))


def _accumulates(context: AdviceContext) -> bool:
    """Most optimizer steps follow several backward passes, or most gradients are made in every second one at most: an
    optimizer that is fused, or has no state, allocates nothing.
    """
    begun = backward_passes(context)
    stacks = context.timeline.events["stack"].to_numpy()
    steps = begun[np.flatnonzero((context.phases.innermost == OPTIMIZER_STEP)[stacks])]
    mine = context.traced("gradient")
    made = np.bincount(born_in(context)[mine], context.size[mine])
    passes = np.unique(steps), np.flatnonzero(made > _SOME_GRADIENTS * made.max(initial=0))
    gaps = [np.diff(each) for each in passes]
    # Of a trace that shows one step only the passes before it are known; where that makes state, a scaler may have
    # skipped one.
    if len(passes[0]) == 1 and not context.traced("optimizer state").any():
        gaps.append(steps[:1])
    return any(len(each) > 0 and float(np.median(each)) >= 2 for each in gaps)


def _is_single(context: AdviceContext) -> bool:
    """A batch of one: the last linear layer makes as many numbers as its bias has, which is allocated after a weight
    of some times as many.
    """
    every = births(context)
    made = every.size[context.frames(LINEAR)[every.stack]]
    parameters = every.size[context.category("parameter")[every.rows]]
    weight, bias = parameters[:-1], parameters[1:]
    bias = np.unique(bias[(weight > bias) & (weight % np.maximum(bias, 1) == 0)])
    # A bias is of the layer, or a part of what it makes for each sample.
    return bool(len(made)) and bias[made[-1] % np.maximum(bias, 1) == 0].tolist() == [made[-1]]


def _is_optimized(context: AdviceContext) -> bool:
    """Gradients are as large as an input and no parameter: an image is what is trained. The weights are frozen, or get
    gradients that no optimizer uses.
    """
    if context.is_cut_off or not context.trains:  # before the gradients of parameters
        return False
    forward = forward_births(context)
    early = context.is_traced & (context.born < (forward[0] if len(forward) else 0)) & ~context.category("parameter")
    trained = context.category("gradient") & ~untrained(context)
    gradients, parameters = np.unique(context.size[trained]), np.unique(context.size[context.category("parameter")])
    is_input = np.isin(gradients, context.size[early]).all() and not np.isin(gradients, parameters).any()
    return bool(len(gradients) and len(parameters)) and bool(is_input)


def _optimizer_differentiates(context: AdviceContext) -> bool:
    """Each optimizer step runs a backward pass of its own, with no forward pass before it: AdaHessian differentiates
    the gradients, so that the graphs of all micro-batches would stay until the step.
    """
    stacks = context.timeline.events["stack"].to_numpy()
    backward = backward_allocations(context)
    step = (context.phases.innermost == OPTIMIZER_STEP)[stacks]
    at = np.flatnonzero(backward | step | context.forward[stacks])
    begins = np.ones(len(at), bool)
    begins[1:] = (backward[at][1:] != backward[at][:-1]) | (step[at][1:] != step[at][:-1])
    run = np.cumsum(begins) - 1
    # A second loss's backward() after a first optimizer's step allocates a gradient that it starts with.
    outside = context.phases.runs(BACKWARD)[stacks] & ~context.phases.runs(OPTIMIZER_STEP)[stacks]
    starts = np.bincount(run, outside[at]) > 0
    backward, step = backward[at[begins]], step[at[begins]]
    inside = backward[:-3] & step[1:-2] & backward[2:-1] & ~starts[2:-1] & step[3:]
    return int(inside.sum()) >= 2
