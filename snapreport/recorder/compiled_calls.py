"""Calls of modules that are compiled in place, by ``module.compile()``. PyTorch's hooks are part of the compiled code
there, in which nothing can be noted; so these calls are noted from outside of it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any


class CompiledCalls:
    """``enter(module, args)``, ``leave(module, args, output)``: called before and after each call."""

    def __init__(self, enter: Callable[..., None], leave: Callable[..., None]) -> None:
        self._enter, self._leave = enter, leave
        self._wrapped: list[tuple[Any, Any]] = []
        self._undo: Callable[[], None] = lambda: None

    def start(self, modules: Iterable[Any]) -> None:
        """From now on, and for those of ``modules`` that are compiled already."""
        module_type = sys.modules["torch"].nn.Module
        compile_in_place = module_type.compile

        def compile_and_note(module: Any, *args: Any, **kwargs: Any) -> None:
            compile_in_place(module, *args, **kwargs)
            self._wrap(module)

        def undo() -> None:
            if module_type.compile is compile_and_note:  # and no other tool has wrapped it
                module_type.compile = compile_in_place

        module_type.compile, self._undo = compile_and_note, undo
        for module in modules:
            self._wrap(module)

    def stop(self) -> None:
        self._undo()
        for weak, call in self._wrapped:
            module = weak()
            if module is not None and module._compiled_call_impl is call:
                module._compiled_call_impl = call.compiled
        self._wrapped.clear()

    def _wrap(self, module: Any) -> None:
        compiled = getattr(module, "_compiled_call_impl", None)
        if compiled is None or hasattr(compiled, "compiled"):
            return
        is_compiling, enter, leave = sys.modules["torch"].compiler.is_compiling, self._enter, self._leave

        def call(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():  # a part of compiled code around it
                return compiled(*args, **kwargs)
            output = None
            enter(module, args)
            try:
                output = compiled(*args, **kwargs)
            finally:
                leave(module, args, output)
            return output

        call.compiled = compiled  # type: ignore[attr-defined]
        module._compiled_call_impl = call
        self._wrapped.append((weakref.ref(module), call))
