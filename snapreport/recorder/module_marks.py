"""Which module of the program allocates: the module that runs, noted with the time whenever it changes.

Forward, through PyTorch's global hooks: on each call and return. Backward: hooks on a few nodes of the graph, those of
a module's outputs and those of its inputs, say which module's operations come next. Nothing is allocated on a device
and no tensor or node is kept alive. Modules inside of compiled code are part of the module around them.
"""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from snapreport.recorder.module_names import ModuleNames

# Marks to keep, of some 20 bytes each; a step has a few for each module.
MOST_MARKS = 1_000_000


class _Thread(threading.local):
    """Of each thread: ``calls``, the open module calls as (code, first node's number, code before, id of the module);
    ``code`` of the module that runs; numbers of nodes with a hook; whether nodes get hooks; the backward passes that it
    took part in.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int, int]] = []
        self.code = 0
        self.hooked: set[int] = set()
        self.hooks = True
        self.passes: set[int] = set()


class ModuleMarks:
    """Notes modules from :meth:`start` to :meth:`stop`, in bounded memory: the latest marks stay."""

    def __init__(self, names: ModuleNames) -> None:
        self._names = names
        self._times, self._codes = array("q"), array("i")  # ns since 1970, codes of ``names``
        self._output_times, self._output_addresses, self._outputs = array("q"), array("Q"), array("i")
        self._kinds: dict[tuple[Any, ...], int] = {}  # (device, shape, dtype) of outputs
        self._thread = _Thread()
        self._markers: dict[int, Any] = {}
        self._undo: list[Any] = []

    def start(self) -> None:
        hooks = sys.modules["torch"].nn.modules.module
        enter, leave = self._hooks()
        self._undo = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, always_call=True),
        ]

    def stop(self) -> None:
        for hook in self._undo:
            hook.remove()
        self._undo.clear()

    def _hooks(self) -> tuple[Callable[..., None], Callable[..., None]]:
        """The functions that PyTorch calls before and after each module's forward. They run some 100 times in a step
        of a few ms, so that names are local and nothing is called that can be spared: some 2 µs each.
        """
        torch = sys.modules["torch"]
        tensor_type, is_compiling, now = torch.Tensor, torch.compiler.is_compiling, time.time_ns
        next_node, current_pass = torch._C._autograd._get_sequence_nr, torch._C._current_graph_task_id
        thread, kinds, code_of = self._thread, self._kinds, self._names.code
        mark_time, mark_code = self._times.append, self._codes.append
        output_time, output_address, output_kind = (
            self._output_times.append, self._output_addresses.append, self._outputs.append,
        )  # fmt: skip
        markers = self._markers

        def hook(node: Any, number: int, code: int) -> None:
            """In the backward pass, ``node`` begins the operations of the module ``code``."""
            thread.hooked.add(number)
            marker = markers.get(code)
            if marker is None:
                marker = markers[code] = self._marker(code)
            node._register_hook_dict(marker)

        def enter(module: Any, args: Any) -> None:
            if is_compiling():
                return
            try:
                calls = thread.calls
                if calls:
                    code = code_of(module, calls[-1][0])
                else:
                    code = code_of(module, 0)
                    # A checkpoint runs this again in the backward pass: its nodes, numbered anew, only count if it is
                    # cut off from those of the forward pass.
                    thread.hooks = current_pass() < 0 or not any(
                        isinstance(one, tensor_type) and one.grad_fn is not None for one in args
                    )
                for one in args:
                    if isinstance(one, tensor_type) and (node := one.grad_fn) is not None and thread.hooks:
                        number = node._sequence_nr()
                        if number not in thread.hooked:  # made by an operation outside of this module
                            hook(node, number, next((call[0] for call in reversed(calls) if call[1] <= number), 0))
                calls.append((code, next_node(), thread.code, id(module)))
                thread.code = code
                mark_code(code)
                mark_time(now())
            except Exception:  # noqa: BLE001  a program's tensors may raise anything
                return

        def leave(module: Any, args: Any, output: Any) -> None:
            if is_compiling():
                return
            try:
                calls = thread.calls
                if not calls or calls[-1][3] != id(module):
                    if all(call[3] != id(module) for call in calls):
                        return  # entered before recording began
                    while calls[-1][3] != id(module):
                        calls.pop()
                code, first, before, _ = calls.pop()
                left = now()
                single = isinstance(output, tensor_type)
                for one in (output,) if single else _parts(output):
                    if single or isinstance(one, tensor_type):
                        if (node := one.grad_fn) is not None and thread.hooks:
                            number = node._sequence_nr()
                            if number >= first and number not in thread.hooked:
                                hook(node, number, code)
                        address = one.data_ptr()
                        kind = one.get_device(), one.shape, one.dtype
                        output_kind(kinds.setdefault(kind, len(kinds)))
                        output_time(left)
                        output_address(address)
                thread.code = before
                mark_code(before)
                mark_time(left)
            except Exception:  # noqa: BLE001  a program's tensors may raise anything
                return

        return enter, leave

    def _marker(self, code: int) -> Any:
        """What nodes take as a hook: a tensor, of whose hooks they call the one here."""
        torch = sys.modules["torch"]
        thread, current_pass = self._thread, torch._C._current_graph_task_id
        at_end_of_pass = torch.autograd.Variable._execution_engine.queue_callback

        def mark(now_running: int) -> None:
            thread.code = now_running
            self._codes.append(now_running)
            self._times.append(time.time_ns())

        def begin(_: Any) -> None:
            number = current_pass()
            if number not in thread.passes:
                thread.passes.add(number)
                resumed = self._codes[-1]  # of the thread that waits for this pass
                at_end_of_pass(lambda: mark(resumed))
            mark(code)

        with torch.utils._python_dispatch._disable_current_modes():
            marker = torch.empty(0, device="cpu")
        marker._backward_hooks = {0: begin}
        return marker

    def trim(self) -> None:
        """Forgets the numbers of nodes, which only count within a step, and the oldest marks of too many."""
        self._thread.hooked.clear()
        for columns in (self._times, self._codes), (self._output_times, self._output_addresses, self._outputs):
            if len(columns[0]) > MOST_MARKS:
                for column in columns:
                    del column[: MOST_MARKS // 2]

    def facts(self) -> dict[str, Any]:
        """``paths``: (path, class) of each code; ``times``, ``codes``: of each mark. ``outputs``: what modules
        returned, ``kinds`` being (device, shape, dtype, bytes of an element). Times are µs since 1970; of columns of
        times and addresses, the differences are given.
        """
        return {
            "paths": [list(pair) for pair in zip(self._names.paths, self._names.classes)],  # noqa: B905  Python 3.9
            "times": _differences(time // 1000 for time in self._times),
            "codes": list(self._codes),
            "outputs": {
                "kinds": [[device, list(shape), str(dtype), dtype.itemsize] for device, shape, dtype in self._kinds],
                "times": _differences(time // 1000 for time in self._output_times),
                "addresses": _differences(self._output_addresses),
                "codes": list(self._outputs),
            },
        }


def _parts(output: Any) -> Iterable[Any]:
    if isinstance(output, dict):
        return output.values()
    return output if isinstance(output, (tuple, list)) else ()


def _differences(values: Any) -> list[int]:
    result, last = [], 0
    for value in values:
        result.append(value - last)
        last = value
    return result
