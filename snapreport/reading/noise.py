"""Which frames are Python's, and which are runtime noise: interpreter, dispatcher, unwinder, the allocator itself.

With ``stacks="all"`` PyTorch records C++ frames too, and four of five frames of such a stack are not about the program
(on one real trace 220,086 of its frames are ``_PyEval_EvalFrameDefault``). Noise is hidden by default and one key shows
it; nothing is dropped. The flags are computed once, here, and stored with the frames, so the page needs no rules. Based
on recorded stacks of torch 2.0 to 2.9 on CPython 3.9 to 3.13.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.memoize import memoize
from snapreport.reading.recording import Recording

# A statically linked interpreter, such as conda's, has its C functions in the executable. PyTorch 2.15 reports an
# offset as their line.
_NATIVE_FILE = r"(?i-u)\.(c|cc|cpp|cxx|cu|cuh|h|hpp|pyx|rs|s|so[.\d]*|dylib|dll|pyd|exe)$|(^|/)python[\d.]*$"
# Plain C functions belong to the interpreter or libc (stripped libraries resolve to the nearest exported name, hence
# PyType_GetModule in the middle of call chains), except those of accelerator libraries, which allocate memory
# themselves.
_C_FUNCTION = r"^[A-Za-z_](?-u:\w)*(\.(?-u:\w)+)*( \[clone [^\]]*\])*$"
_ACCELERATOR = (
    r"^(cuda|cublas|cudnn|cusolver|cusparse|cufft|nccl|pnccl|hip|rocblas|miopen|rccl|mkl|dnnl|onednn|ze[A-Z])"
)
# C++ names, after the return type, which is printed for templates.
_RETURNED = "|".join(
    (
        # tensors being created and freed
        r"c10::(StorageImpl|TensorImpl|intrusive_ptr|VariableVersion|UniqueVoidPtr|alloc_cpu|detail::)",
        r"at::(detail::_?empty_|detail::make_tensor|native::(empty_|resize_)|empty|TensorBase::|Tensor::)",
        # the dispatcher and its generated wrappers
        r"c10::(impl|Dispatcher|OperatorHandle|KernelFunction|BoxedKernel)\b",
        r"at::(_ops|\(anonymous namespace\)|functorch|meta|TensorIteratorBase|autocast|redispatch|impl)::",
        r"torch::(autograd::VariableType|ADInplaceOrView|TraceType|detail|handle_torch_function)",
        # bindings and the autograd engine's own loop; the nodes it runs are kept
        r"torch::autograd::(Engine::|python::PythonEngine|Node::operator\(\)|PyNode::|make_)",
        r"THP(?-u:\w)+|torch::jit::invoke|pybind11|__gnu_cxx::|boost::|std::|__Pyx_|__pyx_",
    )
)
_NATIVE = "|".join(
    (
        r"^$|^\?\?$",
        # the unwinder that recorded the stack
        r"torch::unwind|CapturedTraceback|::gather_with_cpp|torch::(cuda|xpu)::.*gather|torch::symbolize",
        # the allocator: the allocation itself
        r"CachingAllocator|CachingHostAllocator|HostAllocatorImpl|local_raw_delete",
        r"c10::intrusive_ptr<.*::reset|TensorImpl::~|^at::TensorBase at::detail::",
        r"TypeError_to_NotImplemented|autogradNotImplemented|python_dispatcher|callBoxed|wrap_kernel_functor",
        r"\(anonymous namespace\)::THPFunction_apply",
        rf"^([0-9A-Za-z_:]+(<.*>)?[*&]* )?({_RETURNED})",
    )
)
# Call machinery in Python: between any two modules of a model, or between a command line and a script.
_MACHINERY = (
    (r"torch/nn/modules/module\.py$", r"^(_call_impl|_wrapped_call_impl|inner)$"),
    (r"torch/utils/_contextlib\.py$", r"^decorate_context$"),
    (
        r"torch/(_dynamo/eval_frame|optim/optimizer|amp/autocast_mode|_compile)\.py$",
        r"(?-u)^(_fn|wrapper|inner|decorate_\w+|compile_wrapper|profile_hook_step|_use_grad)$",
    ),
    (r"snapreport/recorder/compiled_calls\.py$", r"^call$"),
    (r"^<frozen (importlib|runpy)|(^|/)(runpy|contextlib)\.py$", r""),
)

PYTHON, NOISE = 2, 1


def frame_flags(frames: pl.DataFrame) -> pl.Series:
    """UInt8 per row of ``frames`` (columns ``filename``, ``line``, ``name``): ``PYTHON`` and ``NOISE`` bits.

    Scripts need not end in ``.py``: a frame with a line in a file that is not a native source, and with a plain name,
    counts as Python's.
    """
    file = pl.col("filename").str.replace_all("\\", "/", literal=True)
    name = pl.col("name")
    script = (
        (pl.col("line") > 0)
        & ~file.is_in(["", "??"])
        & ~file.str.contains(_NATIVE_FILE)
        & name.str.contains(r"^[\w<>.]+$")
    )
    python = file.str.ends_with(".py") | file.str.starts_with("<") | script
    machinery = pl.any_horizontal(*(file.str.contains(where) & name.str.contains(what) for where, what in _MACHINERY))
    native = name.str.contains(_NATIVE) | (name.str.contains(_C_FUNCTION) & ~name.str.contains(_ACCELERATOR))
    is_python = frames.select(python=python)["python"]
    flags = np.zeros(len(frames), np.uint8)
    for mask, bits, noise in ((is_python, PYTHON, machinery), (~is_python, 0, native)):
        if mask.any():  # half of all recordings have one kind alone
            flags[mask.to_numpy()] = (
                frames.filter(mask).select(noise.cast(pl.UInt8) * NOISE).to_series().to_numpy() + bits
            )
    return pl.Series("flags", flags)


@memoize
def recorded_flags(recording: Recording) -> np.ndarray:
    """UInt8 per frame of a recording: :func:`frame_flags`."""
    return frame_flags(recording.frames).to_numpy()
