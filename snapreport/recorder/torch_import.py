"""Starts recording in an unmodified program: waits for ``import torch``, then removes itself.

Runs at the start of every Python process of a recorded command, so it imports almost nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


class TorchImport:
    """A finder that finds nothing itself: it lets the others find torch and calls back when torch is imported."""

    def __init__(self, callback: Any) -> None:
        self._callback = callback

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """The spec of torch whose loader calls back. PEP 451."""
        if name != "torch" or path is not None:
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec = find_spec(name)
        loader = spec.loader if spec else None
        if loader is None or not hasattr(loader, "exec_module"):
            self.install()  # not found yet: the program may extend sys.path
            return spec
        execute, was_own = loader.exec_module, "exec_module" in vars(loader)

        def execute_and_call(module: ModuleType) -> None:
            if was_own:
                loader.exec_module = execute  # type: ignore[method-assign]
            else:
                del loader.exec_module
            try:
                execute(module)
            except BaseException:
                self.install()
                raise
            self._callback()

        loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec


def start_recording() -> None:
    """Starts recording this process with the options in its environment."""
    import os

    from snapreport.recorder.options import VARIABLE, from_json
    from snapreport.recorder.session import Recorder, say

    try:
        Recorder(from_json(os.environ[VARIABLE])).start()
    except (ImportError, AttributeError, RuntimeError, ValueError, KeyError, TypeError) as error:
        say(f"not recording: {error}")
