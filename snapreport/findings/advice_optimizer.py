"""Advice about parameters, gradients and optimizers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from snapreport.findings.advice_context import ONE_LINE, SLOWER, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.graphs import backward_passes
from snapreport.findings.loaded_checkpoint import loaded_checkpoint
from snapreport.findings.noted_types import element_bytes
from snapreport.findings.saving import bytes_over_time, peak_without_spans, share_with_cost
from snapreport.findings.transfer_time import moved_each_step
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.phases import FORWARD, OPTIMIZER_STEP, ZERO_GRAD

_FSDP = "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_OPTIM = "https://docs.pytorch.org/docs/stable/optim.html"

_OPTIMIZERS = {
    "adamw?": "AdamW",
    "sgd": "SGD",
    "adagrad": "Adagrad",
    "adadelta": "Adadelta",
    "adamax": "Adamax",
    "asgd": "ASGD",
    "nadam": "NAdam",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "rprop": "Rprop",
    "_adafactor": "Adafactor",
}
"""File in torch.optim → class of the optimizer. Adam and AdamW share a file."""
_FUSED = ("AdamW", "SGD")
"""Optimizers with a fused kernel on every GPU: that of Adagrad is for the CPU alone up to PyTorch 2.9."""
_USUAL_BYTES = 4
"""Of a number in an optimizer's state whose type was not noted."""
FEWEST_PASSES = 3
"""Backward passes that find a gradient allocated, where no optimizer step shows."""
_ADAM = "(?i)adam"
"""Other optimizers have no ready one of torchao in their place."""
_REPLICATED = r"torch/nn/parallel/(parallel_apply|data_parallel|replicate)\.py"
"""Frames of DataParallel, which keeps the state of the optimizer on one device."""
_LIGHTNING = r"/(pytorch_)?lightning/(pytorch/)?loops/"
"""Lightning calls ``training_step``, then ``zero_grad``, then ``backward``."""
_LIGHTNING_LINE = "def on_train_batch_end(self, *_): self.optimizers().zero_grad()"
MUCH_STATE = 0.4
"""Of the peak: optimizer state is moved to the CPU only where it is most of the problem, for every step then waits."""


class GradientsEvidence(AdviceEvidence, kw_only=True):
    in_forward_bytes: int


def _foreach(context: AdviceContext) -> Advice | None:
    """Temporaries of torch.optim's multi-tensor code, which handles all parameters at once."""
    mask = context.remember("temporaries of foreach", lambda: _foreach_temporaries(context))
    size = context.bytes_at_peak(mask)
    if not context.is_much(size):
        return None
    optimizer = _foreach_optimizer(context, mask)
    allocates = sentence(
        "The optimizer's foreach code allocates temporaries for all parameters at once: {}.", context.share(size)
    )
    smaller = "A smaller batch would not change them."
    if optimizer in _FUSED:
        return Advice(
            "foreach-optimizer",
            "Use the fused optimizer (fused=True, or foreach=False)",
            [
                allocates,
                f"The fused kernel needs none; foreach=False needs those of one parameter at a time. {smaller}",
            ],
            "fused=True of torch.optim.AdamW, Adam and SGD",
            _OPTIM,
            mask,
            functions=("_multi_tensor_",),
            effort=ONE_LINE,
            line=f"optimizer = torch.optim.{optimizer}(parameters, fused=True)",
        )
    largest = int(context.size[mask & context.at_peak].max())
    return Advice(
        "foreach-optimizer",
        sentence("Use the optimizer with `foreach=False`"),
        [
            allocates,
            sentence(
                "`foreach=False` needs those of one parameter at a time, at most {} each. {smaller}",
                bytes_part(largest),
                smaller=smaller,
            ),
        ],
        "foreach=False of torch.optim",
        _OPTIM,
        mask,
        1 - largest / size,
        functions=("_multi_tensor_",),
        effort=ONE_LINE,
        line=f"optimizer = torch.optim.{optimizer}(parameters, foreach=False)" if optimizer else None,
    )


def _foreach_optimizer(context: AdviceContext, mask: np.ndarray) -> str:
    """The class in torch.optim whose temporaries hold most at the peak; "" where none of the files is known."""
    held = np.bincount(context.stack, context.size * (mask & context.at_peak), len(context.phases.innermost))
    bytes_of = {
        name: float(held[context.frames(rf"torch/optim/{module}\.py _multi_tensor_")].sum())
        for module, name in _OPTIMIZERS.items()
    }
    return max(bytes_of, key=lambda name: bytes_of[name]) if any(bytes_of.values()) else ""


def _foreach_temporaries(context: AdviceContext) -> np.ndarray:
    within = context.frames(r"torch/optim/\w+\.py _multi_tensor_\w+$")
    mask: np.ndarray = within[context.stack] & (context.born >= 0) & (context.freed < len(context.timeline.events))
    if not mask.any():
        return mask
    # Allocations that outlive the step are state: SGD allocates its momentum buffers here, too.
    step = context.phases.runs(OPTIMIZER_STEP)
    others = np.sort(context.born[~step[context.stack] & (context.born >= 0)])
    following = np.append(others, len(context.timeline.events))[np.searchsorted(others, context.born, "right")]
    mask &= context.freed <= following
    return mask


class _OldGradients(Struct, frozen=True):
    """Gradients that an optimizer step has used, and that are still allocated in the next forward pass.

    mask: Bool per allocation. next_forward: Int64 per allocation, where that begins. first_forward: an event.
    """

    mask: np.ndarray
    next_forward: np.ndarray
    first_forward: int


def _old_gradients(context: AdviceContext) -> _OldGradients | None:
    """None where no forward pass is recorded."""
    innermost = context.phases.innermost
    events = context.timeline.events["stack"].to_numpy()
    steps = np.flatnonzero(innermost[events] == OPTIMIZER_STEP)
    forward = np.sort(context.born[(innermost[context.stack] == FORWARD) & (context.born >= 0)])
    if not len(forward):
        return None
    # Used by an optimizer step since they were made, or made before the trace.
    next_step = np.append(steps, len(events))[np.searchsorted(steps, context.born, "right")]
    used_at = np.where(context.born < 0, -1, next_step)
    next_forward = np.append(forward, len(events) + 1)[np.searchsorted(forward, used_at, "right")]
    old = context.category("gradient") & (next_forward < context.freed)
    return _OldGradients(old, next_forward, int(forward[0]))


def _keep_gradients(context: AdviceContext) -> Advice | None:
    """Gradients of an earlier step, still allocated during a forward pass."""
    if not context.trains:
        return None
    found = context.remember("old gradients", lambda: _old_gradients(context))
    if found is None:
        return None
    if not found.mask.any():
        return _never_freed(context)
    old, innermost, events = found.mask, context.phases.innermost, context.timeline.events["stack"].to_numpy()
    late = old & _freed_after_forward(context)
    if 2 * context.size[late].sum() > context.size[old].sum():
        return _freed_late(context, late, found.next_forward)
    # A forward pass that the trace joins midway is followed by the free, not by a backward pass that adds to them.
    size = int(context.size[old & context.alive_at(found.first_forward)].sum()) or context.bytes_at_peak(old)
    if not context.is_much(size):
        return None
    if _accumulates(context, old):
        return None
    at_peak = innermost[events[context.event]] if context.event >= 0 else FORWARD
    by_step = bool(at_peak == OPTIMIZER_STEP)
    steps = (context.phases.runs(OPTIMIZER_STEP) | context.phases.runs(ZERO_GRAD))[events]
    needed = by_step or not _until_each_backward(context, old, steps)
    user = "the optimizer's step needs" if by_step else "further micro-batches need"
    stays = sentence("The peak stays, because {user} them; the forward pass gains that much room.", user=user)
    return Advice(
        "keep-gradients",
        sentence("Free gradients between steps: `zero_grad(set_to_none=True)`"),
        [
            sentence(
                "{} of gradients stay allocated through the forward pass: they are zeroed in place, or never.",
                bytes_part(size),
            )
        ]
        + [stays] * needed,
        "Optimizer.zero_grad(set_to_none=True)",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
        old,
        spares_peak=needed,
        evidence=GradientsEvidence(in_forward_bytes=size),
        effort=ONE_LINE,
        line="optimizer.zero_grad(set_to_none=True)",
    )


def _freed_after_forward(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: freed by ``zero_grad``; or by what no stack trace says, as PyTorch 2.11 records none of
    frees, between the last allocation of a forward pass and the first of its backward pass.
    """
    events = context.timeline.events["stack"].to_numpy()
    forward = np.sort(context.born[context.forward[context.stack] & (context.born >= 0)])
    backward = np.flatnonzero(np.diff(backward_passes(context), prepend=0))
    next_forward, next_backward = (
        np.append(at, len(events))[np.searchsorted(at, context.freed)] for at in (forward, backward)
    )
    unknown = (context.free_stack == 0) | (context.free_stack == context.stack)
    between = unknown & (next_backward < next_forward) & (context.freed > forward.min(initial=len(events)))
    return np.asarray((context.phases.runs(ZERO_GRAD)[context.free_stack] | between) & (context.freed < len(events)))


def _freed_late(context: AdviceContext, late: np.ndarray, next_forward: np.ndarray) -> Advice | None:
    _, step = np.unique(next_forward[late], return_inverse=True)
    size = int(np.bincount(step, weights=context.size[late]).max())
    fraction = _until_backward(context, late, next_forward) if context.is_much(size) else 0.0
    if not fraction:
        return None
    line, place = "optimizer.zero_grad(set_to_none=True)", ""
    if context.occurs(context.frames(_LIGHTNING)):
        line, place = _LIGHTNING_LINE, "in the LightningModule"
    elif not context.phases.runs(ZERO_GRAD)[context.free_stack[late]].any():
        place = "directly after the optimizer's step"
    return Advice(
        "keep-gradients",
        sentence("Call `zero_grad()` before the forward pass, not after it"),
        [sentence("{} of gradients are freed only after the forward pass of the next step.", bytes_part(size))],
        "Optimizer.zero_grad(set_to_none=True)",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
        late,
        fraction,
        evidence=GradientsEvidence(in_forward_bytes=size),
        effort=ONE_LINE,
        line=line,
        place=place,
    )


def _never_freed(context: AdviceContext) -> Advice | None:
    """Gradients that several backward passes find allocated, where no step and no ``zero_grad`` allocates or frees."""
    stacks, passes = context.timeline.events["stack"].to_numpy(), backward_passes(context)
    if (context.phases.runs(OPTIMIZER_STEP) | context.phases.runs(ZERO_GRAD))[stacks].any():
        return None
    last = passes[np.minimum(context.freed, len(passes) - 1)]
    old = context.category("gradient") & (context.born >= 0)
    old &= last - passes[np.maximum(context.born, 0)] >= FEWEST_PASSES
    size = context.bytes_at_peak(old)
    if not context.is_much(size):
        return None
    # Each forward pass begins after a step.
    forward = context.forward[stacks]
    first = np.flatnonzero(forward)[np.unique(passes[forward], return_index=True)[1]]
    steps = np.zeros(len(stacks), bool)
    steps[first] = True
    fraction = _until_each_backward(context, old, steps)
    if not fraction:
        return None
    return Advice(
        "keep-gradients",
        sentence("Free gradients between steps: `zero_grad(set_to_none=True)`"),
        [
            sentence(
                "{} of gradients stay allocated through {} backward passes: they are zeroed in place, or further "
                "micro-batches add to them.",
                bytes_part(size),
                int(passes[-1]),
            ),
            "No optimizer step is recorded, as of SGD without momentum, which allocates nothing.",
        ],
        "Optimizer.zero_grad(set_to_none=True)",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
        old,
        fraction,
        confidence="estimate",
        evidence=GradientsEvidence(in_forward_bytes=size),
        effort=ONE_LINE,
        line="optimizer.zero_grad(set_to_none=True)",
    )


def _until_backward(context: AdviceContext, old: np.ndarray, next_forward: np.ndarray) -> float:
    """The share of these gradients that may be taken out without saving more than it saves to free each of them from
    the next forward pass up to the next backward pass, which may make it again; 0 where that is nothing.
    """
    timeline, rows = context.timeline, np.flatnonzero(old)
    last = len(timeline.events)
    backward = np.flatnonzero(np.diff(backward_passes(context), prepend=0))
    starts = next_forward[rows]
    ends = np.minimum(np.append(backward, last)[np.searchsorted(backward, starts, "right")], context.freed[rows])
    size, born = context.size[rows], context.born[rows]
    without = peak_without_spans(timeline, starts, np.where(ends < last, ends, -1), size)[0]
    freed = np.where(context.freed[rows] < last, context.freed[rows], -1)
    for parts in range(16, 0, -1):
        if peak_without_spans(timeline, born, freed, np.floor(size * (parts / 16)).astype(np.int64))[0] >= without:
            return parts / 16
    return 0.0


def _until_each_backward(context: AdviceContext, old: np.ndarray, steps: np.ndarray) -> float:
    """The share of gradients that are never freed which leaves as much as to free them after each step: the first
    backward pass after it makes them again, one after another, and further micro-batches need them. steps: Bool
    per event.
    """
    events = context.timeline.events["stack"].to_numpy()
    place = np.arange(len(events))
    begins = np.diff(backward_passes(context), prepend=0) > 0
    stepped, begun = (np.maximum.accumulate(np.where(flag, place, -1)) for flag in (steps, begins))
    passes = np.cumsum(begins) - np.append(0, np.cumsum(begins))[stepped + 1]
    stops = np.append(np.flatnonzero(steps | context.forward[events]), len(events))
    ends = stops[np.searchsorted(stops, begun, "right")]
    part = np.where(passes == 0, 1.0, np.where(passes == 1, (ends - place) / np.maximum(ends - begun, 1), 0.0))
    rows = np.flatnonzero(old)
    gone = np.append(0.0, np.clip(part, 0.0, 1.0)) * bytes_over_time(context.timeline, rows)
    return share_with_cost(context.timeline, rows, 0.0, -gone.astype(np.int64))


def _accumulates(context: AdviceContext, old: np.ndarray) -> bool:
    """Whether the gradients are those of micro-batches: the trace has backward passes and never a step or zero_grad."""
    runs = context.phases.runs
    stacks = np.unique(context.timeline.events["stack"].to_numpy())
    return not (runs(OPTIMIZER_STEP)[stacks].any() or runs(ZERO_GRAD)[stacks].any()) and bool(old.any())


def _optimizer_state(context: AdviceContext) -> Advice | None:
    mask = _state(context)
    size = context.bytes_at_peak(mask)
    if not context.trains or not context.is_much(size):
        return None
    share, is_noted = _saved_in_8_bits(context, mask)
    sharded = context.occurs(
        context.frames(r"(?i)fsdp|fully_?shard|zero_?redundancy|deepspeed|distributed_?optim|distrib_optimizer")
    )
    devices = [
        device for device in context.snapshot.devices if device >= 0 and len(context.snapshot.events(device)) > 1
    ]
    holds = sentence("Optimizer state holds {}.", context.share(size))
    if len(devices) > 1 and not sharded and not context.occurs(context.frames(_REPLICATED)):
        return Advice(
            "optimizer-state",
            sentence("Shard the optimizer's state over the {} GPUs", len(devices)),
            [holds, "No recorded stack trace goes through FSDP or a sharded optimizer."],
            "fully_shard, or ZeroRedundancyOptimizer",
            _FSDP,
            mask,
            1 - 1 / len(devices),
        )
    ranks = "It is sharded already." if sharded else "With more than one GPU it can be sharded instead (FSDP)."
    types = "" if is_noted else "This assumes that it is in 32 bits today. "
    return Advice(
        "optimizer-state",
        "Keep optimizer state in 8 bits",
        [holds, sentence("{types}{ranks}", types=types, ranks=ranks)],
        "an 8-bit optimizer of torchao or bitsandbytes",
        "https://docs.pytorch.org/ao/stable/api_reference/api_ref_optim.html",
        mask,
        share,
        line="optimizer = torchao.optim.AdamW8bit(parameters)" if context.occurs(context.frames(_ADAM)) else None,
        confidence="estimate",
    )


def _saved_in_8_bits(context: AdviceContext, mask: np.ndarray) -> tuple[float, bool]:
    """(share of the state's bytes that 8 bits a number save, whether the types of all that matters were noted)."""
    mine = mask & context.at_peak
    size, width = context.size[mine], element_bytes(context)[mine]
    saved = 1.0 - 1.0 / np.where(width > 0, width, _USUAL_BYTES)
    return float((size * saved).sum() / size.sum()), not context.is_much(int(size[width == 0].sum()))


def _state(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: optimizer state, without the 32-bit master weights that some optimizers hold beside it."""
    masters = context.frames(r"(?i)main_param|master|fp32_from|float16_optimizer|shard_fp32|_init_fp32")
    state: np.ndarray = context.category("optimizer state") & ~masters[context.stack]
    return state


class OffloadEvidence(AdviceEvidence, kw_only=True):
    """``moved_bytes``: of gradients that each optimizer step copies to the host, and of parameters that it copies back,
    which takes ``cost_us`` of a step of ``step_us`` at the rates of the profiler's trace; one way alone where it has no
    rate of the other.
    """

    cost_us: int | UnsetType = UNSET
    step_us: int | UnsetType = UNSET
    moved_bytes: int | UnsetType = UNSET
    to_host_bytes_per_s: int | UnsetType = UNSET
    to_device_bytes_per_s: int | UnsetType = UNSET


def _offload(context: AdviceContext) -> Advice | None:
    mask = _state(context)
    size = context.bytes_at_peak(mask)
    if not context.trains or size < MUCH_STATE * context.timeline.peak_bytes:
        return None
    # The program's own files and folders may have any name.
    offloads = context.functions(r"(?i)offload") | context.frames(r"(?i)-packages/\S*offload")
    if not context.is_much(size) or context.occurs(offloads):
        return None
    copies = moved_each_step(context)
    return Advice(
        "offload",
        "Offload optimizer state to the CPU",
        [
            sentence(
                "Optimizer state holds {} and is used only in the optimizer's step, which offloading slows down.",
                context.share(size),
            ),
            *(copies.sentences if copies else []),
        ],
        "CPUOffloadOptimizer of torchao, or ZeRO-Offload",
        "https://docs.pytorch.org/ao/stable/api_reference/api_ref_optim.html",
        mask,
        evidence=OffloadEvidence(**(copies.evidence if copies else {})),
        effort=SLOWER,
        line=None
        if not context.occurs(context.frames(_ADAM))
        else "optimizer = torchao.optim.CPUOffloadOptimizer(parameters, torch.optim.AdamW)",
    )


OPTIMIZER_RULES: tuple[Callable[[AdviceContext], Advice | None], ...] = (
    _foreach,
    _keep_gradients,
    _optimizer_state,
    _offload,
    loaded_checkpoint,
)
