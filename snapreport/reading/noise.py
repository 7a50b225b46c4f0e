"""Which frames are runtime noise: the interpreter's loop, the dispatcher, the unwinder, the allocator itself.

With ``stacks="all"`` PyTorch records C++ frames too, and four of five frames of such a stack say nothing of the program
(on one real trace 220,086 of its frames are ``_PyEval_EvalFrameDefault``). Noise is hidden by default and one key shows
it; nothing is dropped. The flags are computed here once and stored with the frames, so the page has no rules of its own.
"""

from __future__ import annotations

import polars as pl

# Frames outside Python files, by function name. Symbols of stripped libraries resolve to the nearest exported name,
# which is why PyType_GetModule and friends stand in the middle of call chains.
_NATIVE = "|".join(
    (
        # the interpreter and its start
        r"^_?Py[A-Z_]",
        r"^_?py(run|main|eval)_",
        r"^run_(mod|eval_code_obj)",
        r"^(method|slot|cfunction|builtin|type|object|partial|wrap|vectorcall|func|context|thread)_\w*",
        r"^(_start|main|start_thread|(__)?clone3?|pythread_wrapper|execute_native_thread_routine)$",
        r"^(__libc_|pthread_|__pthread)",
        r"^dynamo_|^eval_(custom_code|frame_callback)|^_?custom_eval_frame",
        # the unwinder that recorded the stack
        r"torch::unwind|CapturedTraceback|gather_with_cpp|torch::cuda::.*gather",
        # the allocator
        r"CachingAllocator|^c10::(alloc_cpu|Allocator|DataPtr)",
        r"^c10::(StorageImpl|TensorImpl|intrusive_ptr|VariableVersion|UniqueVoidPtr)|^void c10::|TensorImpl::~",
        r"^at::detail::(empty_|_empty|make_tensor)|^at::TensorBase at::detail::|^at::(TensorBase|Tensor)::~",
        r"^at::(\(anonymous namespace\)::|native::)?(resize_out|create_out|empty_)",
        r"set_output_(raw_)?strided|^at::TensorIteratorBase::",
        # the dispatcher
        r"wrap_kernel_functor|make_boxed_from|BoxedKernel|^c10::(Dispatcher|KernelFunction|impl::)",
        r"^at::_ops::|::redispatch\(|::wrapper_CUDA|python_dispatcher|callBoxed|TypeError_to_NotImplemented|torch::autograd::VariableType::|ADInplaceOrView",
        # bindings and the autograd engine's threads
        r"^THP\w+|^torch::autograd::(THP|python::|Engine|Node::operator|PyNode|make_)|^pybind11::|^torch::jit::invoke",
        r"^__Pyx_|^__pyx_|^list_dealloc|^std::|^\(anonymous namespace\)::|^\?\?$|^$",
    )
)
# Call machinery in Python: it stands between every two modules of a model and says nothing of either.
_PYTHON_FILES = r"torch/nn/modules/module\.py$|torch/_dynamo/eval_frame\.py$|torch/utils/_contextlib\.py$|/contextlib\.py$|/runpy\.py$"
_PYTHON_NAMES = r"^(_call_impl|_wrapped_call_impl|_fn|wrapper|decorate_context|inner|_run_code|_run_module_as_main|compile_wrapper)$"


def is_noise(frames: pl.DataFrame) -> pl.Series:
    """Boolean series, one per row of ``frames`` (columns ``filename``, ``name``)."""
    in_python = pl.col("filename").str.ends_with(".py") | pl.col("filename").str.starts_with("<")
    machinery = pl.col("filename").str.replace_all("\\", "/", literal=True).str.contains(_PYTHON_FILES) & pl.col(
        "name"
    ).str.contains(_PYTHON_NAMES)
    native = ~in_python & pl.col("name").str.contains(_NATIVE)
    return frames.select(noise=native | machinery)["noise"]
