"""Advice about parameters and optimizers."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET, UnsetType

from snapreport.findings.advice_context import ONE_LINE, SLOWER, Advice, AdviceContext, AdviceEvidence, remembered
from snapreport.findings.advice_gradients import keep_gradients
from snapreport.findings.loaded_checkpoint import loaded_checkpoint
from snapreport.findings.noted_types import element_bytes
from snapreport.findings.sparse_gradients import sparse_gradients
from snapreport.findings.transfer_time import moved_each_step
from snapreport.findings.untrained_gradients import untrained_gradients
from snapreport.integers import following
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.activity import UNKNOWN
from snapreport.timeline.phases import OPTIMIZER_STEP

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
_AT_ONCE = 2
"""Temporaries as large as a parameter that Adam has at a time with foreach=False: of one that is most of the model,
they are more than those of foreach.
"""
_STATES = 2
"""Of Adam, for each parameter."""
_USUAL_BYTES, _NARROW_BYTES = 4, 1
"""Of a number in an optimizer's state whose type was not noted; of one in a state half as large as a parameter: 8 bits
beside weights in 16. Of 16 beside 32 more could be saved, but the sizes are the same.
"""
_ADAM = "(?i)adam"
"""Other optimizers have no ready one of torchao in their place."""
MUCH_STATE = 0.4
"""Of the peak: optimizer state is moved to the CPU only where it is most of the problem, for every step then waits."""


def _foreach(context: AdviceContext) -> Advice | None:
    """Temporaries of torch.optim's multi-tensor code, which handles all parameters at once."""
    mask = _foreach_temporaries(context)
    if not (size := context.much_at_peak(mask)):
        return None
    optimizer = _foreach_optimizer(context, mask)
    allocates = sentence(
        "The optimizer's foreach code allocates temporaries for all parameters at once: {}.", context.share(size)
    )
    largest = int(context.size[mask & context.at_peak].max())
    fraction, term, option = 1 - largest / size, "foreach=False of torch.optim", "foreach=False"
    do: str = sentence("Use the optimizer with `foreach=False`")
    needs: str = sentence(
        "`foreach=False` needs those of one parameter at a time, at most {} each. A smaller batch would not change "
        "them.",
        bytes_part(largest),
    )
    if optimizer in _FUSED:
        by_one = _AT_ONCE * largest <= size // 2
        instead = "; foreach=False needs those of one parameter at a time" if by_one else ""
        fraction, term, option = 1.0, "fused=True of torch.optim.AdamW, Adam and SGD", "fused=True"
        do = f"Use the fused optimizer (fused=True{', or foreach=False' if by_one else ''})"
        needs = f"The fused kernel needs none{instead}. A smaller batch would not change them."
    return Advice(
        "foreach-optimizer",
        do,
        [allocates, needs],
        term,
        _OPTIM,
        mask,
        fraction,
        functions=("_multi_tensor_",),
        effort=ONE_LINE,
        line=f"optimizer = torch.optim.{optimizer}(parameters, {option})" if optimizer else None,
    )


def _foreach_optimizer(context: AdviceContext, mask: np.ndarray) -> str:
    """The class in torch.optim whose temporaries hold most at the peak; "" where none of the files is known."""
    held = np.bincount(context.stack, context.size * (mask & context.at_peak), len(context.phases.innermost))
    bytes_of = {
        name: float(held[context.frames(rf"torch/optim/{module}\.py _multi_tensor_")].sum())
        for module, name in _OPTIMIZERS.items()
    }
    return max(bytes_of, key=lambda name: bytes_of[name]) if any(bytes_of.values()) else ""


@remembered
def _foreach_temporaries(context: AdviceContext) -> np.ndarray:
    within = context.frames(r"(?-u)torch/optim/\w+\.py _multi_tensor_\w+$")
    mask: np.ndarray = within[context.stack] & (context.is_freed | context.category("temporary"))
    if not mask.any():
        return mask
    # Allocations that outlive the step are state: SGD allocates its momentum buffers here, too.
    step = context.phases.runs(OPTIMIZER_STEP)
    others = np.sort(context.born[~(step | context.beside_passes)[context.stack] & context.is_traced])
    mask &= context.freed <= following(others, context.born, len(context.timeline.events))
    return mask


def _optimizer_state(context: AdviceContext) -> Advice | None:
    mask = _state(context)
    size = context.bytes_at_peak(mask)
    if not context.trains or not context.is_much(size):
        return None
    sharded = context.occurs(
        context.frames(r"(?i)fsdp|fully_?shard|zero_?redundancy|deepspeed|distributed_?optim|distrib_optimizer")
    )
    share, is_noted = _saved_in_8_bits(context, mask, is_whole=not sharded)
    holds = sentence("Optimizer state holds {}.", context.share(size))
    if not context.is_much(int(share * size)):
        return None
    why = [] if is_noted else ["This assumes that it is in 32 bits today."]
    if sharded:
        why.append("It is sharded already.")
    elif sum(context.snapshot.timeline(device).activity.kind != UNKNOWN for device in context.snapshot.devices) <= 1:
        # Where one process computes on several, each has layers, or a replica, of its own.
        why.append("With more than one GPU it can be sharded instead (FSDP).")
    return Advice(
        "optimizer-state",
        "Keep optimizer state in 8 bits",
        [holds, *([" ".join(why)] if why else [])],
        "an 8-bit optimizer of torchao or bitsandbytes",
        "https://docs.pytorch.org/ao/stable/api_reference/api_ref_optim.html",
        mask,
        share,
        line="optimizer = torchao.optim.AdamW8bit(parameters)" if context.occurs(context.frames(_ADAM)) else None,
        confidence="estimate",
    )


def _saved_in_8_bits(context: AdviceContext, mask: np.ndarray, *, is_whole: bool) -> tuple[float, bool]:
    """(share of the state's bytes that 8 bits a number save, whether the types of all that matters were noted).
    is_whole: the state is not sharded.
    """
    mine = mask & context.at_peak
    size, width = context.size[mine], element_bytes(context)[mine]
    parameters = np.unique(context.size[context.category("parameter")])
    is_half = np.isin(2 * size, parameters) & ~np.isin(size, parameters) & is_whole
    usual = np.where(is_half, _NARROW_BYTES, _USUAL_BYTES)
    saved = 1.0 - 1.0 / np.where(width > 0, width, usual)
    return float((size * saved).sum() / size.sum()), not context.is_much(int(size[width == 0].sum()))


def _state(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: optimizer state, without the 32-bit master weights that some optimizers hold beside it, and
    without averages of the weights: where the optimizer's step makes state, copies made elsewhere are those. Not that
    of LBFGS, whose step runs passes of the model and reads its state between them.
    """
    left_out = context.frames(r"(?i)main_param|master|fp32_from|float16_optimizer|shard_fp32|_init_fp32|/lbfgs\.py ")
    state: np.ndarray = context.category("optimizer state") & ~left_out[context.stack]
    in_step = state & context.phases.runs(OPTIMIZER_STEP)[context.stack]
    mine = state & (in_step | ~context.has_python) if in_step.any() else state
    return np.asarray(mine & ~_third_copies(context, mine))


def _third_copies(context: AdviceContext, state: np.ndarray) -> np.ndarray:
    """Bool per allocation: of state from before the trace, what is there beyond two for each parameter of its size. Few
    optimizers hold three; an average of the weights, or a reference model, looks the same.
    """
    rows = np.flatnonzero(state & ~context.is_traced)
    rows = rows[np.argsort(context.size[rows], kind="stable")]
    size, parameters = context.size[rows], np.sort(context.size[context.category("parameter")])
    parameters_of = np.searchsorted(parameters, size, "right") - np.searchsorted(parameters, size)
    turn = np.arange(len(size)) - np.searchsorted(size, size)
    return context.marked(rows[turn >= np.where(parameters_of, _STATES * parameters_of, len(rows))])


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
    if context.occurs(offloads):
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


OPTIMIZER_RULES = (
    _foreach,
    sparse_gradients,
    untrained_gradients,
    keep_gradients,
    _optimizer_state,
    _offload,
    loaded_checkpoint,
)
