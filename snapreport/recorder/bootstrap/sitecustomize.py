"""Found first on PYTHONPATH by every Python process of ``snapreport record``; runs before the program.

Waits for ``import torch`` and changes nothing else: removes its folder from ``sys.path`` and runs the ``sitecustomize``
that it shadows. The environment stays, so that child processes are recorded too.
"""

# No __future__ imports and no newer syntax: old Pythons also run this file, and record nothing.
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

FOLDER = __file__.replace("\\", "/").rpartition("/")[0]
PACKAGE = FOLDER.rsplit("/", 2)[0]


def _load(name: str, path: str, *submodules: str) -> ModuleType:
    """Import a module from a file, regardless of any module of that name in the program's environment."""
    spec = spec_from_file_location(name, path, submodule_search_locations=list(submodules) or None)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _start() -> None:
    if "snapreport" not in sys.modules:
        _load("snapreport", f"{PACKAGE}/__init__.py", PACKAGE)
    sys.modules[_HOOK].start_recording()


def _chain() -> None:
    """Run the next ``sitecustomize`` after ours, under its own name."""
    sys.path[:] = [entry for entry in sys.path if entry.replace("\\", "/") != FOLDER]
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


_HOOK = "_snapreport_torch_import"
if "SNAPREPORT_RECORD" in os.environ and sys.version_info >= (3, 9):
    try:
        _load(_HOOK, f"{PACKAGE}/recorder/torch_import.py").TorchImport(_start).install()
    except OSError as error:  # snapreport was uninstalled or moved since the command started
        sys.stderr.write(f"snapreport: not recording: {error!r}\n")
_chain()
