"""Stacks of a simulated program, as torch records them: lists of shared frame dicts, innermost first.

A `Call` is a place in the program (a Python function called at a line); places form a tree. A stack belongs to a place
and an operator. Two styles, as in `torch.cuda.memory._record_memory_history(stacks=...)`: "python" has only Python
frames, "all" also has C++ frames: the unwinder and the allocator innermost, the interpreter between the Python frames,
and no Python frame at all in the backward pass, which runs in autograd's thread.
"""

from __future__ import annotations

from typing import Any

from generator.recorder import Frames

APP = "/app/gpt/"
TORCH = "/app/.venv/lib/python3.11/site-packages/torch/"

STYLES = ("python", "all")

_UNWIND = (
    ("??", 0, "torch::unwind::unwind()"),
    ("??", 0, "torch::CapturedTraceback::gather(bool, bool, bool)"),
    ("memory_snapshot.cpp", 0, "torch::cuda::(anonymous namespace)::gather_with_cpp()"),
)
# Real names at full length.
# ruff: noqa: E501
_MALLOC = (
    ("CUDACachingAllocator.cpp", 0, "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, CUstream_st*)"),
    ("", 0, "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**, signed char, unsigned long, CUstream_st*)"),
    ("", 0, "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)"),
    ("??", 0, "at::detail::empty_generic(c10::ArrayRef<long>, c10::Allocator*, c10::DispatchKeySet, c10::ScalarType, std::optional<c10::MemoryFormat>)"),
    ("??", 0, "at::detail::empty_cuda(c10::ArrayRef<long>, c10::TensorOptions const&)"),
)  # fmt: skip
_FREE = (
    ("CUDACachingAllocator.cpp", 0, "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::free(c10::cuda::CUDACachingAllocator::Native::(anonymous namespace)::Block*)"),
    ("CUDACachingAllocator.cpp", 0, "c10::cuda::CUDACachingAllocator::Native::local_raw_delete(void*)"),
    ("", 0, "c10::StorageImpl::~StorageImpl()"),
    ("TensorImpl.cpp", 0, "c10::TensorImpl::~TensorImpl() [clone .localalias]"),
)  # fmt: skip
_FREE_FROM_PYTHON = (
    ("python_variable.cpp", 0, "THPVariable_clear(THPVariable*)"),
    ("python_variable.cpp", 0, "THPVariable_dealloc(_object*)"),
)
_ENGINE = (
    ("engine.cpp", 0, "torch::autograd::Node::operator()(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)"),
    ("??", 0, "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&, torch::autograd::Node*, torch::autograd::InputBuffer&, std::shared_ptr<torch::autograd::ReadyQueue> const&)"),
    ("??", 0, "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"),
    ("??", 0, "torch::autograd::Engine::thread_init(int, std::shared_ptr<torch::autograd::ReadyQueue> const&, bool)"),
    ("", 0, "torch::autograd::python::PythonEngine::thread_init(int, std::shared_ptr<torch::autograd::ReadyQueue> const&, bool)"),
    ("??", 0, "execute_native_thread_routine"),
    ("./nptl/pthread_create.c", 442, "start_thread"),
    ("./misc/../sysdeps/unix/sysv/linux/x86_64/clone3.S", 81, "__clone3"),
)  # fmt: skip
_INTERPRETER = (("??", 0, "_PyEval_EvalFrameDefault"), ("??", 0, "_PyFunction_Vectorcall"))
_PROCESS = (
    ("??", 0, "PyEval_EvalCode"),
    ("??", 0, "_PyRun_SimpleFileObject"),
    ("??", 0, "_PyRun_AnyFileObject"),
    ("??", 0, "Py_RunMain"),
    ("??", 0, "Py_BytesMain"),
    ("./csu/../sysdeps/nptl/libc_start_call_main.h", 58, "__libc_start_call_main"),
    ("./csu/../csu/libc-start.c", 392, "__libc_start_main_impl"),
    ("??", 0, "_start"),
)

_LAUNCHERS = (("run.py", "run"), ("launcher/api.py", "launch_agent"), ("elastic/agent/server/api.py", "run"))

Place = tuple[str, int, str]


class StackBook:
    """All frames and stacks of one snapshot, each made once: equal frames are one dict, equal stacks one list."""

    def __init__(self, style: str = "python", depth: int = 0) -> None:
        self.cpp = style == "all"
        self._launchers = [_LAUNCHERS[at % len(_LAUNCHERS)] for at in range(depth)]
        self._frames: dict[Place, dict[str, Any]] = {}
        self._stacks: dict[tuple[Place, ...], Frames] = {}

    def program(self, filename: str, line: int) -> Call:
        """The module level of the program's main file: where every stack of the main thread ends."""
        call = Call(self, None, ())
        for at, (launcher, name) in enumerate(self._launchers):
            call = call.call(TORCH + "distributed/" + launcher, 100 + 7 * at, name)
        return call.call(filename, line, "<module>")

    def frames(self, places: tuple[Place, ...]) -> Frames:
        """The one list for these frames (innermost first)."""
        stack = self._stacks.get(places)
        if stack is None:
            stack = self._stacks[places] = [self._frame(place) for place in places]
        return stack

    def backward(self, caller: Call, node: str, operator: str, free: bool = False) -> Frames:
        """A stack of the backward pass: an autograd node that runs an operator, or frees a saved tensor.

        In the style "all" it is a stack of autograd's thread. In "python" the program has called
        `torch.autograd.set_multithreading_enabled(False)`, so that backward runs in the thread of the caller.
        """
        if not self.cpp:
            engine = caller.call(TORCH + "_tensor.py", 648, "backward").call(
                TORCH + "autograd/graph.py", 829, "_engine_run_backward"
            )
            name = f"{node.removesuffix('0')}.backward"
            place = engine.call(APP + "functions.py", 20 + _line_of(node), name)
            return place.release() if free else place.stack()
        function = "release_variables()" if free else "apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)"
        inner = _FREE if free else _MALLOC + _operator_frames(operator)
        apply = ("Functions.cpp", 0, f"torch::autograd::generated::{node}::{function}")
        return self.frames((*_UNWIND, *inner, apply, *_ENGINE))

    def _frame(self, place: Place) -> dict[str, Any]:
        frame = self._frames.get(place)
        if frame is None:
            filename, line, name = place
            frame = self._frames[place] = {"name": name, "filename": filename, "line": line}
        return frame


class Call:
    """A place in the program: the Python frames up to a function, innermost first."""

    def __init__(self, book: StackBook, caller: Call | None, frames: tuple[Place, ...]) -> None:
        self._book = book
        self._frames: tuple[Place, ...] = frames + (caller._frames if caller is not None else ())

    def call(self, filename: str, line: int, name: str) -> Call:
        """A function called here that is at `line`."""
        return Call(self._book, self, ((filename, line, name),))

    def module(self, filename: str, line: int, name: str = "forward") -> Call:
        """An nn.Module called here whose `forward` is at `line`, with two frames of torch between."""
        wrapped = self.call(TORCH + "nn/modules/module.py", 1775, "_wrapped_call_impl")
        return wrapped.call(TORCH + "nn/modules/module.py", 1786, "_call_impl").call(filename, line, name)

    def stack(self, operator: str = "") -> Frames:
        """The stack of an allocation that an operator ("aten::addmm") makes here."""
        return self._with_cpp(_MALLOC + _operator_frames(operator), self._frames)

    def release(self) -> Frames:
        """The stack of a free: a tensor's last reference is dropped on the line below."""
        filename, line, name = self._frames[0]
        return self._with_cpp(_FREE + _FREE_FROM_PYTHON, ((filename, line + 1, name), *self._frames[1:]))

    def _with_cpp(self, inner: tuple[Place, ...], frames: tuple[Place, ...]) -> Frames:
        if not self._book.cpp:
            return self._book.frames(frames)
        places = list(_UNWIND + inner)
        for place in frames:
            places.append(place)
            places.extend(_INTERPRETER)
        return self._book.frames(tuple(places) + _PROCESS)


def _operator_frames(operator: str) -> tuple[Place, ...]:
    """The C++ frames between an allocation and the Python that called an operator such as "aten::mm"."""
    if not operator:
        return ()
    name = operator.removeprefix("aten::")
    one, two = "(at::Tensor const&, at::Tensor const&)", "(c10::DispatchKeySet, at::Tensor const&, at::Tensor const&)"
    kernel = (
        "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<"
        "c10::CompileTimeFunctionPointer<at::Tensor {}, &{}>, at::Tensor, c10::guts::typelist::typelist<"
        "at::Tensor const&, at::Tensor const&> >, at::Tensor {}>::call(c10::OperatorKernel*, c10::DispatchKeySet, "
        "at::Tensor const&, at::Tensor const&)"
    )
    return (
        ("??", 0, "at::TensorIteratorBase::allocate_or_resize_outputs()"),
        ("??", 0, "at::TensorIteratorBase::build(at::TensorIteratorConfig&)"),
        ("??", 0, f"at::native::{name}_cuda{one}"),
        ("RegisterCUDA_0.cpp", 0, f"at::(anonymous namespace)::(anonymous namespace)::wrapper_CUDA_{name}{one}"),
        ("RegisterCUDA_0.cpp", 0, kernel.format(one, f"at::(anonymous namespace)::wrapper_CUDA_{name}", one)),
        ("??", 0, f"at::_ops::{name}::redispatch{two}"),
        ("ADInplaceOrViewType_0.cpp", 0, f"torch::ADInplaceOrView::(anonymous namespace)::{name}{two}"),
        ("VariableType_0.cpp", 0, f"torch::autograd::VariableType::(anonymous namespace)::{name}{two}"),
        ("VariableType_0.cpp", 0, kernel.format(two, f"torch::autograd::VariableType::{name}", two)),
        ("??", 0, f"at::_ops::{name}::call{one}"),
        ("autocast_mode.cpp", 0, f"at::autocast::WrapFunction_<at::_ops::{name}>::call{one}"),
        ("python_torch_functions_0.cpp", 0, f"torch::autograd::THPVariable_{name}(_object*, _object*, _object*)"),
        ("??", 0, "cfunction_call"),
        ("??", 0, "_PyObject_MakeTpCall"),
    )


def _line_of(name: str) -> int:
    """A line number for a generated function: the same on every run, unlike hash()."""
    return sum(ord(letter) * (at + 1) for at, letter in enumerate(name)) % 600
