"""The operator that tells apart the stacks of one line: ``linear`` and ``softmax`` of ``forward dit.py:125``.

A line of the program often calls a module in which ten operators allocate. They are read from the frames inside the
one that names a stack: PyTorch's dispatcher, nodes of autograd, functions and modules of ``torch.nn``.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.memoize import memoize
from snapreport.reading.recording import Recording
from snapreport.timeline.frame_search import files_of
from snapreport.timeline.own_code import launched_from, own_places, stack_names

SEPARATOR = " · "
"""Between a line and its operator."""
# Names of PyTorch are ASCII: Unicode's \w makes an expression three to eight times as long to compile.
_DISPATCHED = r"(?-u)\bat::_ops::_*(\w+)::(?:call|redispatch)\b"
_CALLED = (
    r"(?-u)\b(?:torch::autograd::THPVariable_|at::native::(?:structured_)?)_*(\w+?)"
    r"(?:_symint|_cuda_out|_out_cuda|_cuda|_out)?(?:::impl)?\("
)
_NODE = r"(?-u)\b(\w+Backward\d*(?:_\w+)?|AccumulateGrad)::apply\b"
# An overload's name follows the operator's: add_Tensor, softmax_int, sum_dim_IntList, lstm_input.
_OVERLOAD = (
    r"(?-u)(\w*?[a-z0-9]_{0,2})_(?:(?:Tensor|Scalar|List|[Dd]imname)\w*"
    r"|(?:int|dtype|device|self|other|out|correction|memory_format|source)(?:_\w+)?"
    r"|(?:dim|generator)(?:_(?:int|max|min|values|dtype|out|[A-Z])\w*)?"
    r"|(?:dims|data|grad_input|input|padding|periodic|stable|tensor_lr|vec|src|value|decimals|n_scalar|x_scalar)"
    r"(?:_out)?)$"
)
# Operators whose own names end like that.
_WHOLE = (
    r"(?-u)^(?:take_along_dim|unique_dim|norm_except_dim|(?:add|remove)_batch_dim|(?:cudnn_)?affine_grid_generator"
    r"|\w*_with_dims|\w*softmax_backward_data|mkldnn_linear_backward_input)$"
)
_FUNCTIONS = r"(?:^|/)torch/(?:nn/)?functional\.py$"
_MODULES = r"(?-u)(?:^|/)torch/nn/modules/(\w+)\.py$"
_FRAMEWORK = ("module", "container", "utils")
# Files of modules whose operators are built in, without a frame of their own, as a table of operators names them.
_IN_TABLES = {"activation": "activation function", "sparse": "embedding"}
_HELPERS = r"(?-u)^(?:fn|handle_torch_function|has_torch_function\w*|_verify\w*|_get_softmax_dim)$"
# Every operator that returns a new tensor ends in one of these.
_FACTORY = r"^(?:new_)?empty|^resize_|^set_"
# Code that allocates different things line by line, without an operator that says which.
_OPTIMIZER = r"(?-u)(?:^|/)torch/optim/(\w+\.py)$"
_COMPILED = r"(?:^|/)torchinductor_[^/]*/"


@memoize
def frame_operators(recording: Recording) -> pl.Series:
    """String per row of ``frames``: the operator that a frame stands for, binds or implements; "" for none."""
    called = recording.frames["name"].str.extract(_CALLED)
    operators = _dispatched(recording)
    return pl.select(operator=pl.when(pl.lit(operators) != "").then(operators).otherwise(called.fill_null("")))[
        "operator"
    ]


@memoize
def _dispatched(recording: Recording) -> pl.Series:
    """String per row of ``frames``: the operator of the dispatcher, autograd or ``torch.nn.functional``."""
    name, file = pl.col("name"), pl.lit(files_of(recording))
    dispatched = name.str.extract(_DISPATCHED)
    function = pl.when(file.str.contains(_FUNCTIONS) & ~name.str.contains(_HELPERS)).then(
        name.str.strip_chars_start("_")
    )
    overloaded = pl.when(~dispatched.str.contains(_WHOLE)).then(dispatched.str.extract(_OVERLOAD))
    operator = pl.coalesce(overloaded, dispatched, name.str.extract(_NODE), function, pl.lit(""))
    return recording.frames.select(operator=operator)["operator"]


@memoize
def stack_operators(recording: Recording) -> pl.Series:
    """String per stack: the operator that tells it from other stacks with the same line, "" where none does.

    That is the outermost operator inside the frame that names the stack, or, where several stacks of the line share it,
    the innermost that does not only make room for a result. A line with one operator needs none.
    """
    outer, inner = _outer_and_inner(recording)
    stacks = pl.DataFrame({"line": own_places(recording), "outer": outer, "inner": inner})
    shared = pl.col("inner").n_unique().over("line", "outer") > 1
    stacks = stacks.with_columns(operator=pl.when(shared).then("inner").otherwise("outer"))
    distinguishes = pl.col("operator").n_unique().over("line") > 1
    return stacks.select(
        pl.when(distinguishes & (pl.col("line") != "")).then("operator").otherwise(pl.lit("")).alias("operator")
    )["operator"]


@memoize
def called_operators(recording: Recording) -> pl.Series:
    """String per stack: the operator that the program called there, the outermost one that says more than that it makes
    a tensor, or ``torch.optim.adam``, or ``compiled code``; "" where the stack shows none.
    """
    outer = _outer_and_inner(recording)[0].replace(_IN_TABLES)
    return outer.str.replace(r"(?-u)^(\w+)\.py:\d+$", "torch.optim.$1").str.replace(r"^compiled:\d+$", "compiled code")


@memoize
def stack_labels(recording: Recording) -> pl.Series:
    """String per stack: its name, ``forward dit.py:125 · linear from train.py:42``; "" for an empty stack."""
    operator = pl.lit(stack_operators(recording))
    suffix = pl.when(operator != "").then(pl.concat_str([pl.lit(SEPARATOR), operator])).otherwise(operator)
    parts = pl.lit(own_places(recording)), suffix, pl.lit(launched_from(recording))
    return pl.select(label=pl.concat_str(parts))["label"]


@memoize
def _outer_and_inner(recording: Recording) -> tuple[pl.Series, pl.Series]:
    """The outermost and the innermost operator inside the naming frame of each stack, "" without one."""
    flat, offsets = recording.stack_frames, recording.stack_offsets
    operators = _dispatched(recording)
    is_factory = operators.str.contains(_FACTORY)
    place = stack_names(recording).place
    outer, inner = np.full((2, len(offsets) - 1), "", object)
    # The more one says, the later it comes: a stack keeps the last.
    length = np.maximum(place, 0)
    stack = np.repeat(np.arange(len(length)), length)
    # Each entry inside the naming frame, innermost first.
    frames = flat[np.arange(len(stack)) + np.repeat(offsets[:-1] - (np.cumsum(length) - length), length)]
    for words in (
        operators.set(~is_factory, ""),
        _places_and_modules(recording),
        operators.set(is_factory, ""),
    ):
        at = np.flatnonzero((words != "").to_numpy()[frames])
        text = words.to_numpy()[frames[at]]
        outer[stack[at]] = text  # the last assignment wins: the outermost
        inner[stack[at][::-1]] = text[::-1]
    return pl.Series(outer, dtype=pl.String), pl.Series(inner, dtype=pl.String)


def _places_and_modules(recording: Recording) -> pl.Series:
    """String per row of ``frames``: ``adam.py:179`` of an optimizer, ``compiled:3063``, ``linear`` of a module of
    ``torch.nn``, "" of others.
    """
    file, line = pl.lit(files_of(recording)), pl.col("line").cast(pl.String)
    compiled = pl.when(file.str.contains(_COMPILED)).then(pl.concat_str([pl.lit("compiled:"), line]))
    module = file.str.extract(_MODULES)
    module = pl.when(pl.col("name").str.contains("forward") & ~module.is_in(_FRAMEWORK)).then(module)
    optimizer = pl.concat_str([file.str.extract(_OPTIMIZER), pl.lit(":"), line])
    return recording.frames.select(t=pl.coalesce(compiled, module, optimizer, pl.lit("")))["t"]
