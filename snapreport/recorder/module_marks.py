"""Which module of the program allocates: the module that runs, noted with the time whenever it changes.

Forward, through PyTorch's global hooks: on each call and return. Backward: hooks on a few nodes of the graph, those of
a module's outputs and those of its inputs, say which module's operations come next. Nothing is allocated on a device
and no tensor or node is kept alive. Modules inside of compiled code are part of the module around them.

A call and its return cost some 15 µs. In short steps that is too much, so that not all of them are noted: a report
takes the modules of the others from a noted step with the same requests (``timeline/repeated_steps.py``). The hooks
stay, at some 5 µs a call: without them PyTorch calls modules by other lines, and equal requests had two stack traces.
"""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from snapreport.recorder.compiled_calls import CompiledCalls
from snapreport.recorder.module_names import ModuleNames
from snapreport.recorder.saved_tensors import SavedTensors

# Marks to keep, of some 20 bytes each; a step has a few for each module.
MOST_MARKS = 1_000_000
# The first steps are noted, and later one of so many, where marks take more than a share of a step's time.
FIRST_STEPS, EVERY = 8, 10
MOST_SHARE, MARK_NS = 0.02, 5_000


class _Thread:
    """Of each thread: ``calls``, the open module calls as (code, first node's number, code before, id of the module);
    ``code`` of the module that runs; numbers of nodes with a hook; whether nodes get hooks; the backward passes that it
    took part in.
    """

    __slots__ = ("calls", "code", "hooked", "hooks", "passes")

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int, int]] = []
        self.code = 0
        self.hooked: set[int] = set()
        self.hooks = True
        self.passes: set[int] = set()


class _Markers(dict[int, Any]):
    """By the code of a module, what the nodes take as a hook that its operations begin with; made when first used."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def __missing__(self, code: int) -> Any:
        self[code] = self._make(code)
        return self[code]


class ModuleMarks:
    """Notes modules from :meth:`start` to :meth:`stop`, in bounded memory: the latest marks stay."""

    def __init__(self, names: ModuleNames) -> None:
        self._names = names
        self._times, self._codes = array("q"), array("i")  # ns since 1970, codes of ``names``
        self._output_times, self._output_addresses, self._outputs = array("q"), array("Q"), array("i")
        self._kinds: dict[tuple[Any, ...], int] = {}  # (device, shape, dtype) of outputs
        self._saved = SavedTensors()
        self._threads: dict[int, _Thread] = {}
        self._markers = _Markers(self._marker)
        self._undo: list[Callable[[], None]] = []
        self._pauses: list[list[int]] = []  # ns since 1970, beginning and end
        self._is_noting = [True]  # read by the hooks
        self._step_began = self._marks_before = 0
        self._is_cheap = False

    def start(self) -> None:
        hooks = sys.modules["torch"].nn.modules.module
        enter, leave = self._hooks()
        compiled = CompiledCalls(enter, leave)
        compiled.start(module for root, _ in self._names.known_roots() for module in root.modules())
        self._undo = [
            hooks.register_module_forward_pre_hook(enter).remove,
            hooks.register_module_forward_hook(leave, always_call=True).remove,
            compiled.stop,
            self._saved.start(),
        ]

    def stop(self) -> None:
        for undo in self._undo:
            undo()
        self._undo.clear()

    def step_ended(self, number: int, end_ns: int, steps: tuple[int, int] | None) -> None:
        """Chooses whether step ``number`` is noted, which begins at ``end_ns``; ``steps``: (first, end) of the recorded
        ones.
        """
        duration = end_ns - self._step_began
        if self._is_noting[0]:
            self._is_cheap = (len(self._codes) - self._marks_before) * MARK_NS <= MOST_SHARE * duration
        self.trim()
        since = number - (steps[0] if steps else 0)
        is_due = self._is_cheap or since < FIRST_STEPS or since % EVERY == 0
        if steps and not steps[0] <= number < steps[1]:
            is_due = False
        if is_due != self._is_noting[0]:
            if is_due:
                self._pauses[-1][1] = end_ns
            else:
                self._pauses.append([end_ns, 2**63 - 1])
                del self._pauses[:-MOST_MARKS]
            self._threads.clear()  # what is open now ends unseen
            self._is_noting[0] = is_due
        self._saved.step_began(end_ns, is_noted=is_due)
        self._step_began, self._marks_before = end_ns, len(self._codes)

    def _hooks(self) -> tuple[Callable[..., None], Callable[..., None]]:
        """The functions that PyTorch calls before and after each module's forward. They run some 100 times in a step
        of a few ms, so that names are local and nothing is called that can be spared: some 3 µs each.
        """
        torch = sys.modules["torch"]
        tensor_type, is_compiling, now = torch.Tensor, torch.compiler.is_compiling, time.time_ns
        next_node, current_pass = torch._C._autograd._get_sequence_nr, torch._C._current_graph_task_id
        threads, kinds, code_of, only_code = self._threads, self._kinds, self._names.code, self._names.only_code.get
        mark_time, mark_code = self._times.append, self._codes.append
        output_time, output_address, output_kind = (
            self._output_times.append, self._output_addresses.append, self._outputs.append,
        )  # fmt: skip
        markers, thread_id, is_noting = self._markers, threading.get_ident, self._is_noting
        saved, is_reading = self._saved, self._saved.is_reading

        # ``is_compiling()`` first: what compiled code reads before it is compiled anew when it changes.
        def enter(module: Any, args: Any) -> None:
            if is_compiling() or not is_noting[0]:
                return
            try:
                thread = threads.get(thread_id()) or threads.setdefault(thread_id(), _Thread())
                calls, number_of_module = thread.calls, id(module)
                parent = calls[-1][0] if calls else 0
                code = only_code(number_of_module) or code_of(module, parent)
                if not calls:
                    # A checkpoint runs this again in the backward pass: its nodes, numbered anew, only count if it is
                    # cut off from those of the forward pass.
                    thread.hooks = current_pass() < 0 or not any(
                        isinstance(one, tensor_type) and one.grad_fn is not None for one in args
                    )
                if thread.hooks:
                    for one in args:
                        if isinstance(one, tensor_type) and (node := one.grad_fn) is not None:
                            number = node._sequence_nr()
                            if number not in thread.hooked:  # made by an operation outside of this module
                                owner = 0
                                for call in reversed(calls):
                                    if call[1] <= number:
                                        owner = call[0]
                                        break
                                thread.hooked.add(number)
                                node._register_hook_dict(markers[owner])
                calls.append((code, next_node(), thread.code, number_of_module))
                thread.code = code
                mark_code(code)
                mark_time(now())
            except Exception:  # noqa: BLE001  a program's tensors may raise anything
                return

        def leave(module: Any, args: Any, output: Any) -> None:
            if is_compiling() or not is_noting[0]:
                return
            try:
                thread = threads[thread_id()]
                calls, number_of_module = thread.calls, id(module)
                if not calls or calls[-1][3] != number_of_module:
                    if all(call[3] != number_of_module for call in calls):
                        return  # entered before recording began
                    while calls[-1][3] != number_of_module:
                        calls.pop()
                code, first, before, _ = calls.pop()
                left = now()
                for one in (output,) if isinstance(output, tensor_type) else _parts(output):
                    if isinstance(one, tensor_type):
                        if thread.hooks and (node := one.grad_fn) is not None:
                            number = node._sequence_nr()
                            if number >= first and number not in thread.hooked:
                                thread.hooked.add(number)
                                node._register_hook_dict(markers[code])
                        address = one.data_ptr()
                        kind = one.get_device(), one.shape, one.dtype
                        output_kind(kinds.setdefault(kind, len(kinds)))
                        output_time(left)
                        output_address(address)
                thread.code = before
                mark_code(before)
                mark_time(left)
                if is_reading[0]:
                    if saved.has_hooks():
                        saved.hide(first, next_node())
                    if not calls and thread.hooks and current_pass() < 0:
                        saved.read((output,) if isinstance(output, tensor_type) else _parts(output), first)
            except Exception:  # noqa: BLE001  a program's tensors may raise anything
                return

        return enter, leave

    def _marker(self, code: int) -> Any:
        """What nodes take as a hook: an object, of whose ``_backward_hooks`` they call the one here."""
        torch = sys.modules["torch"]
        threads, thread_id, current_pass = self._threads, threading.get_ident, torch._C._current_graph_task_id
        codes, times, now = self._codes, self._times, time.time_ns
        at_end_of_pass = torch.autograd.Variable._execution_engine.queue_callback

        def mark(now_running: int) -> None:
            if thread := threads.get(thread_id()):
                thread.code = now_running
            codes.append(now_running)
            times.append(now())

        def begin(_: Any) -> None:
            number = current_pass()
            thread = threads.get(thread_id()) or threads.setdefault(thread_id(), _Thread())
            if number not in thread.passes:
                thread.passes.add(number)
                resumed = codes[-1]  # of the thread that waits for this pass
                at_end_of_pass(lambda: mark(resumed))
            thread.code = code
            codes.append(code)
            times.append(now())

        with torch.utils._python_dispatch._disable_current_modes():
            marker = torch.empty(0, device="cpu")
        marker._backward_hooks = {0: begin}
        return marker

    def trim(self) -> None:
        """Forgets the numbers of nodes, which only count within a step, and the oldest marks of too many."""
        for thread in list(self._threads.values()):
            thread.hooked.clear()
        for columns in (
            (self._times, self._codes),
            (self._output_times, self._output_addresses, self._outputs),
            (self._saved.times, self._saved.addresses, self._saved.codes),
        ):
            if len(columns[0]) > MOST_MARKS:
                for column in columns:
                    del column[: MOST_MARKS // 2]

    def facts(self) -> dict[str, Any]:
        """``paths``: (path, class) of each code; ``times``, ``codes``: of each mark. ``outputs``: what modules
        returned, ``kinds`` being (device, shape, dtype, bytes of an element). ``saved``: the same of what autograd
        saved, ``kinds`` with the name of the ``grad_fn``. ``pauses``: (beginning, end) of times in which nothing was
        noted. Times are µs since 1970; of columns of times and addresses, the differences are given.
        """
        outputs, saved = (
            [[device, list(shape), str(dtype), dtype.itemsize, *name] for device, shape, dtype, *name in kinds]
            for kinds in (self._kinds, self._saved.kinds)
        )
        return {
            "paths": [list(pair) for pair in zip(self._names.paths, self._names.classes)],  # noqa: B905  Python 3.9
            "times": _differences(time // 1000 for time in self._times),
            "codes": list(self._codes),
            "pauses": [[begin // 1000, end // 1000] for begin, end in self._pauses],
            "outputs": {
                "kinds": outputs,
                "times": _differences(time // 1000 for time in self._output_times),
                "addresses": _differences(self._output_addresses),
                "codes": list(self._outputs),
            },
            "saved": {
                "kinds": saved,
                "times": _differences(time // 1000 for time in self._saved.times),
                "addresses": _differences(self._saved.addresses),
                "codes": list(self._saved.codes),
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
