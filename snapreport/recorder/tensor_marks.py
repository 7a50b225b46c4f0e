"""Marks of tensors: which addresses belong to parameters, gradients and optimizer state at some moments of a run."""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import Any

from snapreport.recorder import tensor_names
from snapreport.recorder.metadata import now_us
from snapreport.recorder.module_names import ModuleNames

# Moments at which all addresses are noted.
MOST_MARKS = 4
# Different sets of gradients to note, one after each step: the allocator mostly repeats the addresses of a step.
MOST_GRADIENT_MARKS = 64
MOST_GRADIENT_TIMES = 1000
# Of the places of a trace, for the names of tensors.
MOST_OF_TRACE = 0.01


class TensorMarks:
    """names: of the program's modules, with the kind of its devices."""

    def __init__(self, names: ModuleNames) -> None:
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._names = names
        self._marks: list[dict[str, Any]] = []
        self._gradients: dict[tuple[int, ...], dict[str, Any]] = {}
        self._annotated: set[tuple[int, str]] = set()

    def mark_all(self) -> None:
        """Records the addresses of parameters, gradients and optimizer state at this moment."""
        with contextlib.suppress(Exception):  # a snapshot without names is better than none
            tensors = tensor_names.named_tensors(self._names.roots(), list(self.optimizers), self._names.kind)
            self._marks.append({"time_us": now_us(), "tensors": tensors})
            del self._marks[:-MOST_MARKS]

    def annotate(self, entries: int, *, is_new: bool) -> None:
        """Has PyTorch (2.15) write the names of parameters, buffers and optimizer state into its trace, where its own
        viewer shows them: an ``annotate`` event for each, some 5 µs. Gradients are left out, which most programs
        allocate in each step. entries: that the trace has room for; is_new: it was cleared.
        """
        write = getattr(sys.modules["torch"]._C, "_cuda_annotateMemory", None)
        if write is None or self._names.kind != "cuda" or not self._marks:
            return
        if is_new:
            self._annotated.clear()
        with contextlib.suppress(RuntimeError):  # another allocator than PyTorch's own
            for device, address, category, name, *_ in self._marks[-1]["tensors"]:
                is_due = device >= 0 and category != tensor_names.GRADIENT and (address, name) not in self._annotated
                if is_due and len(self._annotated) < MOST_OF_TRACE * entries:
                    self._annotated.add((address, name))
                    write(address, name)

    def mark_gradients(self) -> None:
        """Records the addresses of gradients, which are allocated in each step, unless they are those of another."""
        with contextlib.suppress(Exception):
            addresses = tensor_names.gradient_addresses(self.optimizers)
            mark = self._gradients.get(addresses)
            if mark is not None:
                mark["again_us"].append(now_us())
                del mark["again_us"][:-MOST_GRADIENT_TIMES]
            elif addresses and len(self._gradients) < MOST_GRADIENT_MARKS:
                roots = self._names.known_roots()
                named = tensor_names.named_tensors(roots, list(self.optimizers), self._names.kind)
                gradients = [row for row in named if row[2] == tensor_names.GRADIENT]
                self._gradients[addresses] = {"time_us": now_us(), "again_us": [], "tensors": gradients}

    def facts(self) -> list[dict[str, Any]]:
        """The marks as plain data."""
        return [
            {**mark, "tensors": [list(tensor) for tensor in mark["tensors"]]}
            for mark in (*self._gradients.values(), *self._marks)
        ]
