"""Runs programs of ``sized.py`` and ``wrapped.py`` and says what each allocation belongs to, without snapreport.

``named.py plain PROGRAM VALUE``: prints ``torch.cuda.memory_stats()`` after each step of an optimizer, and at the end
without counters of splits, which depend on the order in which the model is freed. ``named.py recorded PROGRAM VALUE
FOLDER``: the same, recorded by snapreport. ``named.py truth PROGRAM VALUE``: prints a row for each allocation in order:
bytes; the modules that it may be said to belong to, "" being none and an empty list unknown; the name of the parameter,
gradient or state in it; the shapes with which an operator or a module returned it whole; the nodes of the graph
that saved a part of it in calls of modules. ``STEPS`` in the environment:
of training; ``STACKS``: of the recording.

Forward, the truth sees every operator (a dispatch mode, which wrappers do not work under: there it has times alone) and
whose ``__call__`` runs. Backward, it has a hook on every node of the graph, whose number tells when its operator ran in
the forward pass; a dispatch mode would make autograd add gradients out of place.
"""

from __future__ import annotations

import bisect
import contextlib
import gc
import json
import os
import sys
import threading
import time
from collections import defaultdict
from typing import Any

import sized
import torch
import wrapped
from torch import nn
from torch._subclasses import FakeTensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

ACCUMULATES = 2**63
# ``nn.TransformerEncoderLayer`` takes another path under a dispatch mode.
NO_DISPATCH_MODE = ("vit_batch",)
BACKWARD = torch.autograd.backward
CALL = nn.Module.__call__


def stats(*left_out: str) -> dict[str, int]:
    found = torch.cuda.memory_stats().items()
    return {key: value for key, value in found if isinstance(value, int) and not key.startswith(left_out)}


class Truth(TorchDispatchMode):
    def __init__(self, has_operators: bool) -> None:
        super().__init__()
        self.has_operators = has_operators
        self.threads: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.forward_thread = threading.get_ident()
        self.is_backward = self.is_nested = False
        self.calls = threading.local()
        self.names: dict[int, list[str]] = {}
        self.held: list[Any] = []
        self.marks: list[tuple[int, list[str]]] = []  # µs, modules that run from then on, in the backward pass
        self.shapes: list[tuple[int, int, list[int]]] = []  # µs, address, shape
        self.rows: list[tuple[int, int, int, list[str]]] = []  # begin, end (µs), address, modules
        self.tensors: list[tuple[int, int, str]] = []  # µs, address, name
        self.saved: list[tuple[int, int, int]] = []  # µs, address, number of the node
        self.node_names: dict[int, str] = {}

    def learn(self) -> None:
        for model, modules_by_name in wrapped.MODELS:
            for name, module in modules_by_name:
                self.names.setdefault(id(module), []).append(name or type(model).__name__)
        if wrapped.MODELS:
            return
        modules = [thing for thing in gc.get_objects() if isinstance(thing, nn.Module)]
        children = {id(child) for module in modules for child in module.children()}
        roots = [
            module
            for module in modules
            if id(module) not in children and any(one.is_cuda for one in (*module.parameters(), *module.buffers()))
        ]
        self.held += roots
        for root in roots:
            prefix = f"{type(root).__name__}." if len(roots) > 1 else ""
            for name, module in root.named_modules(remove_duplicate=False):
                path = (prefix + name).rstrip(".") or type(root).__name__
                if path not in self.names.setdefault(id(module), []):
                    self.names[id(module)].append(path)

    def path(self, module: nn.Module) -> str:
        for wrapped_as in ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"):
            module = module._modules.get(wrapped_as) or module
        module = module.module if isinstance(module, nn.parallel.DistributedDataParallel) else module
        if id(module) not in self.names:
            self.learn()
        names = self.names.get(id(module)) or self.stack[-1:] or [type(module).__name__]
        under = self.stack[-1] + "." if self.stack else ""
        return next((name for name in names if name.startswith(under)), names[0])

    @property
    def stack(self) -> list[str]:
        if not hasattr(self.calls, "stack"):
            self.calls.stack = []
        return self.calls.stack

    def change(self) -> None:
        thread = threading.get_ident()
        self.threads[thread].append((torch._C._autograd._get_sequence_nr(), self.stack[-1] if self.stack else ""))
        if self.is_backward:
            node = torch._C._current_autograd_node()
            self.marks.append((time.time_ns() // 1000, [self.stack[-1]] if self.stack else self.modules_of(node)))
        elif not self.has_operators:
            self.marks.append((time.time_ns() // 1000, self.stack[-1:] or [""]))

    def call(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        self.stack.append(self.path(module))
        self.change()
        try:
            result = CALL(module, *args, **kwargs)
        finally:
            self.stack.pop()
            self.change()
        for one in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(one, torch.Tensor):
                self.note_shape(one)
        return result

    def note_shape(self, tensor: torch.Tensor) -> None:
        if isinstance(tensor, FakeTensor):  # of torch.compile
            return
        if tensor.is_cuda and tensor.untyped_storage().nbytes() == tensor.nbytes:
            self.shapes.append((time.time_ns() // 1000, tensor.untyped_storage().data_ptr(), list(tensor.shape)))

    def modules_of(self, node: Any) -> list[str]:
        number = node._sequence_nr()
        if number >= ACCUMULATES:
            owners = [name for name, parameter in self.parameters() if parameter is node.variable]
            return [name.rpartition(".")[0] for name in owners]
        changes = self.threads[threading.get_ident() if self.is_nested else self.forward_thread]
        at = bisect.bisect_right(changes, number, key=lambda change: change[0]) - 1
        return [changes[at][1] if at >= 0 else ""]

    def backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        """Also that of a checkpoint within another, whose nodes are numbered by the thread that runs both."""
        self.is_nested = self.is_backward
        nodes: dict[Any, list[str]] = {}
        left = [one.grad_fn for one in ([tensors] if isinstance(tensors, torch.Tensor) else tensors)]
        while left:
            node = left.pop()
            if node is not None and node not in nodes:
                nodes[node] = self.modules_of(node)
                left += [one for one, _ in node.next_functions]
        self.node_names |= {node._sequence_nr(): node.name() for node in nodes}
        for node, modules in nodes.items():
            # Bound by default arguments.
            node.register_prehook(lambda _, modules=modules: self.marks.append((time.time_ns() // 1000, modules)))
        del nodes, node, left
        if self.is_nested:
            BACKWARD(tensors, *args, **kwargs)
            self.is_nested = False
            return
        self.is_backward = True
        self.marks.append((time.time_ns() // 1000, [""]))
        if self.has_operators:
            self.__exit__(None, None, None)
        try:
            BACKWARD(tensors, *args, **kwargs)
        finally:
            if self.has_operators:
                self.__enter__()
            self.marks.append((time.time_ns() // 1000, [] if self.has_operators else [""]))
            self.is_backward = False

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """A hook for tensors that autograd saves, which are part of the node that was created last. What a checkpoint
        itself saves, without a node, is not recorded.
        """
        is_checkpoint = sys._getframe(1).f_code.co_filename.endswith("torch/utils/checkpoint.py")
        if tensor.is_cuda and not self.is_backward and not is_checkpoint:
            number = torch._C._autograd._get_sequence_nr() - 1
            self.saved.append((time.time_ns() // 1000, tensor.untyped_storage().data_ptr(), number))
        return tensor.detach()

    def parameters(self) -> list[tuple[str, Any]]:
        found = []
        for _, modules_by_name in wrapped.MODELS:
            for name, module in modules_by_name:
                own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
                found += [(f"{name}.{key}".lstrip("."), tensor) for key, tensor in own]
        if wrapped.MODELS:  # a shared one has its first name
            found = list({id(tensor): (name, tensor) for name, tensor in reversed(found)}.values())[::-1]
        for root in self.held:
            base = "" if len(self.held) == 1 else f"{type(root).__name__}."
            tensors = (*root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False))
            found += [(base + name, tensor) for name, tensor in tensors]
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        begin = time.time_ns() // 1000
        result = func(*args, **(kwargs or {}))
        end = time.time_ns() // 1000 + 1
        for one in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(one, torch.Tensor) and one.is_cuda:
                self.rows.append((begin, end, one.untyped_storage().data_ptr(), [self.stack[-1] if self.stack else ""]))
                self.note_shape(one)
        return result

    def owner(self, name: str) -> str:
        paths = [path for paths in self.names.values() for path in paths if name.startswith(path + ".")]
        return max(paths, key=len, default="")

    def note(self, optimizer: torch.optim.Optimizer) -> None:
        now = time.time_ns() // 1000
        for name, parameter in self.parameters():
            mine = {"": parameter, ".grad": parameter.grad}
            mine |= {f".{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
            for key, value in mine.items():
                value = getattr(value, "_local_tensor", value)  # of FSDP2
                if isinstance(value, torch.Tensor) and value.is_cuda and value.untyped_storage().nbytes():
                    self.tensors.append((now, value.untyped_storage().data_ptr(), name + key))

    def answer(self) -> list[dict[str, Any]]:
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        allocations = [entry for entry in trace if entry["action"] == "alloc"]
        rows = [{"bytes": entry["size"], "modules": [], "name": "", "shapes": [], "saved": []} for entry in allocations]
        of_address: dict[int, list[int]] = defaultdict(list)
        for number, entry in enumerate(allocations):
            of_address[entry["addr"]].append(number)

        def at(address: int, when: int) -> int | None:
            times = [allocations[number]["time_us"] for number in of_address[address]]
            found = bisect.bisect_right(times, when) - 1
            return of_address[address][found] if found >= 0 else None

        starts = [when for when, _ in self.marks]
        for row, entry in zip(rows, allocations, strict=True):
            if mark := bisect.bisect_right(starts, entry["time_us"]):
                row["modules"] = self.marks[mark - 1][1]
                # A tensor's hook, with which FSDP gathers a module's weights, runs before those of its node.
                if any("/fsdp/" in frame["filename"] for frame in entry.get("frames", [])):
                    row["modules"] = [*row["modules"], *self.marks[min(mark, len(starts) - 1)][1]]
        for begin, end, address, modules in self.rows:
            number = at(address, end)
            if number is not None and allocations[number]["time_us"] >= begin:
                rows[number]["modules"] = modules
        for when, address, shape in self.shapes:
            number = at(address, when)
            if number is not None and shape not in rows[number]["shapes"]:
                rows[number]["shapes"].append(shape)
        for when, address, saver in self.saved:
            number = at(address, when)
            if number is not None and saver in self.node_names:
                rows[number]["saved"].append(self.node_names[saver])
        names: dict[int, dict[str, None]] = defaultdict(dict)
        for when, address, name in self.tensors:
            number = at(address, when)
            if number is not None:
                names[number][name] = None
                rows[number]["modules"] = [*rows[number]["modules"], self.owner(name)]
        for number, (first, *more) in names.items():
            rows[number]["name"] = first + (f" and {len(more)} more" if more else "")
        return rows


def main() -> None:
    mode, program, value, *folder = sys.argv[1:]
    torch.manual_seed(0)
    gc.disable()  # what has cycles is freed when the collector runs, which recording shifts
    run = wrapped.PROGRAMS.get(program) or getattr(sized, program)
    sized.STEPS = int(os.environ.get("STEPS", sized.STEPS))
    if mode == "truth":
        torch.cuda.init()
        torch.cuda.memory._record_memory_history(max_entries=10_000_000, context="alloc", stacks="python")
        truth = Truth(has_operators=program not in (*wrapped.PROGRAMS, *NO_DISPATCH_MODE))

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            # Modules inside of compiled code are part of what is around them.
            if torch.compiler.is_compiling():
                return CALL(module, *args, **kwargs)
            return truth.call(module, *args, **kwargs)

        nn.Module.__call__ = call  # type: ignore[method-assign]
        torch.autograd.backward = lambda *args, **kwargs: truth.backward(*args, **kwargs)  # type: ignore[assignment]
        register_optimizer_step_post_hook(lambda optimizer, *_: truth.note(optimizer))
        with contextlib.ExitStack() as stack:
            if "compiled" not in program:  # code is compiled anew for hooks
                stack.enter_context(torch.autograd.graph.saved_tensors_hooks(truth.pack, lambda tensor: tensor))
            if truth.has_operators:
                stack.enter_context(truth)
            run(int(value))
        print(json.dumps(truth.answer()))
        return
    every: list[dict[str, int]] = []
    register_optimizer_step_post_hook(lambda *_: every.append(stats()))
    recording: Any = contextlib.nullcontext()
    if mode == "recorded":
        import snapreport

        recording = snapreport.record(folder[0], stacks=os.environ.get("STACKS", "python"))
    with recording:
        run(int(value))
        print(json.dumps([*every, stats("inactive_split")]))


if __name__ == "__main__":
    main()
