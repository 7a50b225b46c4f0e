"""What autograd saves, and for which ``grad_fn``: read from the graph when the outermost module returns, and when a
backward pass begins for what was computed outside of modules, such as a loss.

Reading unpacks a saved tensor, which would run the program's own hooks for saved tensors: a checkpoint would compute
again, an offload copy. What such hooks may have packed is therefore left out: everything between the entry and the exit
of ``saved_tensors_hooks``, and in a module that runs with hooks of another origin. Nothing is kept alive or allocated
on a device. An operation with what it saves takes some 5 µs, and so the graphs of few steps are read.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

MOST_SHARE = 0.01
"""Of the time since recording began."""
MOST_READ = 32
"""Times to read graphs in a step."""
_ACCUMULATES = 2**63  # numbers of nodes that add to gradients of leaves, which belong to no pass


class SavedTensors:
    """``is_reading[0]``: whether the graphs of this step are read. Calls from several threads may overlap."""

    def __init__(self) -> None:
        self.is_reading = [False]
        self.times, self.addresses, self.codes = array("q"), array("Q"), array("i")  # ns since 1970, of ``kinds``
        self.kinds: dict[tuple[Any, ...], int] = {}  # (device, shape, dtype, name of the grad_fn)
        # By thread, numbers of nodes: first and end of those that may have hooks, and those seen in this step.
        self._hidden: defaultdict[int, list[list[float]]] = defaultdict(list)
        self._known: defaultdict[int, set[int]] = defaultdict(set)
        self._saves: dict[type, tuple[str, list[str]]] = {}
        self._first_of_step: dict[int, int] = {}  # by thread, the number of its first node
        self._began = self._spent = self._left = 0
        self._is_possible = False
        self.has_hooks: Callable[[], bool] = lambda: False

    def start(self) -> Callable[[], None]:
        """From now on, where PyTorch says which hooks it uses (2.8 and newer); what is returned undoes it."""
        torch = sys.modules["torch"]
        top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        if top is None:
            return lambda: None
        self.has_hooks = lambda: top(True) is not None
        self._is_possible, self._began = True, self._began or time.time_ns()
        self.step_began(time.time_ns(), is_noted=True)
        hooks, hidden = torch.autograd.graph.saved_tensors_hooks, self._hidden
        variable = torch.autograd.Variable
        engine = variable._execution_engine
        variable._execution_engine = noted = self._noted(engine)
        next_node, is_compiling, thread_id = (
            torch._C._autograd._get_sequence_nr, torch.compiler.is_compiling, threading.get_ident,
        )  # fmt: skip
        enter, leave = hooks.__enter__, hooks.__exit__

        def enter_noted(context: Any) -> Any:
            if not is_compiling():
                hidden[thread_id()].append([next_node(), float("inf")])
            return enter(context)

        def leave_noted(context: Any, *error: Any) -> Any:
            if not is_compiling():
                inner = [span for span in hidden[thread_id()] if span[1] == float("inf")]
                if inner:
                    inner[-1][1] = next_node()
            return leave(context, *error)

        hooks.__enter__, hooks.__exit__ = enter_noted, leave_noted

        def undo() -> None:
            if hooks.__enter__ is enter_noted and hooks.__exit__ is leave_noted:  # no other tool has wrapped them
                hooks.__enter__, hooks.__exit__ = enter, leave
            if variable._execution_engine is noted:
                variable._execution_engine = engine

        return undo

    def _noted(self, engine: Any) -> Any:
        """PyTorch's engine, which notes on its way what a backward pass begins with. Whoever asks it for its method has
        the tensors: looking at them there leaves no frame of ours in the stack traces of what the pass allocates.
        """
        torch = sys.modules["torch"]
        is_compiling, current_pass = torch.compiler.is_compiling, torch._C._current_graph_task_id

        class Engine(type(engine)):  # type: ignore[misc]
            @property
            def run_backward(_: Any) -> Any:
                if not is_compiling() and self.is_reading[0] and current_pass() < 0:
                    try:  # torch/autograd/graph.py, _engine_run_backward, of 2.8 to 2.15
                        outputs = sys._getframe(1).f_locals["t_outputs"]
                        self.read(outputs, self._first_of_step.get(threading.get_ident(), 0))
                    except Exception:  # noqa: BLE001  called by another tool
                        pass
                return engine.run_backward

        return Engine()

    def step_began(self, now_ns: int, *, is_noted: bool) -> None:
        """Chooses whether the graphs of the step are read that begins now."""
        for spans in list(self._hidden.values()):
            spans[:] = [span for span in spans if span[1] == float("inf")]
        self._known.clear()
        self._first_of_step = {threading.get_ident(): sys.modules["torch"]._C._autograd._get_sequence_nr()}
        is_cheap = self._spent <= MOST_SHARE * (now_ns - self._began)
        self.is_reading[0], self._left = self._is_possible and is_noted and is_cheap, MOST_READ

    def hide(self, first: int, end: int) -> None:
        """Nodes of this thread with these numbers may have hooks."""
        self._hidden[threading.get_ident()].append([first, end])

    def read(self, outputs: Iterable[Any], first: int) -> None:
        """Notes what new nodes in the graph of ``outputs`` hold, of those with the number ``first`` or a higher one."""
        began = time.time_ns()
        # What is created here and freed again counts for the collector, whose turns are to be those of the program.
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            self._read(outputs, first, began)
        finally:
            if is_collecting:
                gc.enable()
            self._left -= 1
            self._spent += time.time_ns() - began
            if not self._left:
                self.is_reading[0] = False

    def _read(self, outputs: Iterable[Any], first: int, now_ns: int) -> None:
        tensor_type, thread = sys.modules["torch"].Tensor, threading.get_ident()
        hidden, known = self._hidden[thread], self._known[thread]
        left = [one.grad_fn for one in outputs if isinstance(one, tensor_type)]
        seen = set()
        while left:
            node = left.pop()
            number = -1 if node is None else node._sequence_nr()
            if not first <= number < _ACCUMULATES or number in seen:
                continue
            seen.add(number)
            left += [one for one, _ in node.next_functions]
            if number in known or any(begin <= number < end for begin, end in hidden):
                continue
            known.add(number)
            name, attributes = self._saves.get(type(node)) or self._learn(node)
            for attribute in attributes:
                try:
                    saved = getattr(node, attribute)
                    for one in saved if isinstance(saved, (tuple, list)) else (saved,):
                        if isinstance(one, tensor_type) and one.grad_fn is None and one.requires_grad:
                            continue  # a parameter
                        if isinstance(one, tensor_type) and one.get_device() >= 0:
                            self._put(one, name, now_ns)
                except Exception:  # noqa: BLE001  changed in place since, or a program's own class of tensors
                    continue

    def _put(self, tensor: Any, name: str, now_ns: int) -> None:
        address = tensor.untyped_storage().data_ptr()
        kind = tensor.get_device(), tensor.shape, tensor.dtype, name
        self.codes.append(self.kinds.setdefault(kind, len(self.kinds)))
        self.times.append(now_ns)
        self.addresses.append(address)

    def _learn(self, node: Any) -> tuple[str, list[str]]:
        """The name of the node's class, and its attributes that hold saved tensors."""
        kind = type(node)
        found = [name.replace("_raw", "", 1) for name in dir(kind) if name.startswith("_raw_saved_")]
        # A function of the program's own has them in one attribute.
        self._saves[kind] = node.name(), [name if hasattr(kind, name) else "saved_tensors" for name in found]
        return self._saves[kind]
