"""Which frames are noise: what users want to see stays, and Python frames are distinguished from native ones."""

import polars as pl
import pytest

from snapreport.reading.noise import NOISE, PYTHON, frame_flags

NOISY = [
    ("??", 0, "torch::unwind::unwind()"),
    ("??", 0, "torch::CapturedTraceback::gather(bool, bool, bool)"),
    ("memory_snapshot.cpp", 0, "torch::cuda::(anonymous namespace)::gather_with_cpp()"),
    (
        "CUDACachingAllocator.cpp",
        0,
        "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, CUstream_st*)",
    ),
    (
        "RegisterCUDA_0.cpp",
        0,
        "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<int>, at::Tensor "
        "()>::call()",
    ),
    ("??", 0, "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)"),
    ("", 0, "at::TensorBase at::detail::_empty_strided_generic<c10::ArrayRef<long> >(c10::ArrayRef<long>)"),
    ("??", 0, "_PyEval_EvalFrameDefault"),
    ("??", 0, "method_vectorcall.llvm.12275804309777372242"),
    ("", 0, "_PyObject_MakeTpCall.localalias"),
    ("??", 0, "PyObject_Call"),
    ("eval_frame.c", 0, "dynamo_custom_eval_frame_shim"),
    # An interpreter that is linked statically, as conda's is; the line is an offset.
    ("/opt/conda/bin/python3.11", 1461486, "_PyEval_EvalFrameDefault"),
    ("/opt/python/bin/python3.11", 4224, "_start"),
    ("./csu/../sysdeps/nptl/libc_start_call_main.h", 58, "__libc_start_call_main"),
    ("??", 0, "??"),
    ("TensorImpl.cpp", 0, "c10::TensorImpl::~TensorImpl() [clone .localalias]"),
    ("/x/site-packages/torch/nn/modules/module.py", 1784, "_call_impl"),
    ("/usr/lib/python3.11/runpy.py", 88, "_run_code"),
]
TELLING = [
    ("/home/me/train.py", 10, "forward"),
    ("/x/site-packages/torch/nn/modules/module.py", 900, "_apply"),
    ("<string>", 1, "<module>"),
    ("/usr/bin/torchrun", 8, "<module>"),
    ("??", 0, "at::native::clone(at::Tensor const&, std::optional<c10::MemoryFormat>)"),
    ("??", 0, "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)"),
    ("??", 0, "cublasCreate_v2"),
    ("??", 0, "c10d::ProcessGroupNCCL::allgather(std::vector<at::Tensor>&)"),
    ("python_variable_methods.cpp", 0, "torch::autograd::THPVariable_mul(_object*, _object*, _object*)"),
]
PYTHONS = {
    "/home/me/train.py",
    "/x/site-packages/torch/nn/modules/module.py",
    "<string>",
    "/usr/bin/torchrun",
    "/usr/lib/python3.11/runpy.py",
}


def flags(frame: tuple[str, int, str]) -> int:
    table = pl.DataFrame([frame], schema={"filename": pl.String, "line": pl.Int64, "name": pl.String}, orient="row")
    return int(frame_flags(table)[0])


@pytest.mark.parametrize("frame", NOISY, ids=lambda frame: frame[2])
def test_runtime_frames_are_noise(frame: tuple[str, int, str]) -> None:
    assert flags(frame) & NOISE


@pytest.mark.parametrize("frame", TELLING, ids=lambda frame: frame[2])
def test_what_a_reader_wants_to_see_stays(frame: tuple[str, int, str]) -> None:
    assert not flags(frame) & NOISE


@pytest.mark.parametrize("frame", NOISY + TELLING, ids=lambda frame: frame[2])
def test_python_frames_are_told_from_native_ones(frame: tuple[str, int, str]) -> None:
    assert bool(flags(frame) & PYTHON) == (frame[0] in PYTHONS)
