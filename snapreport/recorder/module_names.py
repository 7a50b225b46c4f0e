"""Paths of the program's modules, as in ``named_modules()``: ``layers.7.attn``. Wrappers do not show in them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

from snapreport.recorder.tensor_names import clean, has_tensors, innermost, root_modules

# Searching all Python objects takes 0.1 s per million, so a program that makes modules all the time gets few searches.
MOST_SEARCHES = 20


class ModuleNames:
    """Names of modules, fixed once given: a later root does not rename an earlier one.

    The modules of a single root have the paths of its ``named_modules()``; those of several begin with its class.
    """

    def __init__(self) -> None:
        self.kind = "cuda"  # of the devices whose tensors make a module one to name
        self.paths: list[str] = [""]  # of each code; 0 is outside of modules
        self.classes: list[str] = [""]
        self._codes: dict[tuple[str, str], int] = {}
        self._of: dict[int, list[int]] = {}
        self.only_code: dict[int, int] = {}  # by the id of a module that has one
        self._prefixes: dict[int, str] = {}  # of the names in a module, by its id
        self._alive: dict[int, Any] = {}
        self._rootless: dict[int, Any] = {}
        self._roots: list[tuple[Any, str]] = []
        self._is_watching = False
        self._searches = 0

    def watch(self, modules: Iterable[Any]) -> None:
        """Names these modules, on whichever device they are now; others are not searched."""
        self._is_watching = True
        self._add(modules)

    def roots(self) -> list[tuple[Any, str]]:
        """(root, prefix of its names) of the modules to watch, or of all that have tensors."""
        if not self._is_watching:
            self._add(self._found())
        return self.known_roots()

    def known_roots(self) -> list[tuple[Any, str]]:
        """As :meth:`roots`, without a search for new ones."""
        return [(root, prefix) for weak, prefix in self._roots if (root := weak()) is not None]

    def code(self, module: Any, parent: int) -> int:
        """The code of a module that is called by the one of code ``parent`` (0: by none). A module that no root has is
        not told from its caller.
        """
        found = self._of.get(id(module)) or self._learn(module)
        if not found:
            return parent or self._new_code(type(module).__name__, type(module).__name__)
        if len(found) == 1:
            return found[0]
        start = self.paths[parent] + "."  # shared: the name below the caller
        return next((code for code in found if self.paths[code].startswith(start)), found[0])

    def _learn(self, module: Any) -> list[int]:
        """The codes of a module; none if no root has it, such as one that ``torch.compile`` has made for several."""
        if id(module) in self._rootless:
            return []
        for weak, prefix in self._roots:
            if (root := weak()) is not None:
                self._put_all(root, prefix)
        may_search = not self._is_watching and self._searches < MOST_SEARCHES
        if id(module) not in self._of and may_search and has_tensors(module, self.kind):
            self._searches += 1
            self._add(self._found())
        if id(module) not in self._of:
            self._rootless[id(module)] = weakref.ref(module, partial(self._rootless.pop, id(module)))
        return self._of.get(id(module), [])

    def _found(self) -> list[Any]:
        return [module for module in root_modules() if has_tensors(module, self.kind)]

    def _add(self, modules: Iterable[Any]) -> None:
        known = {id(weak()) for weak, _ in self._roots}
        new = [module for module in modules if id(module) not in known]
        for module in new:
            below = {id(part) for part in module.modules()}
            wrapped = [(weak, prefix) for weak, prefix in self._roots if id(weak()) in below]
            self._roots = [one for one in self._roots if one not in wrapped]
            if id(module) in self._prefixes:  # of a root that was freed, such as DistributedDataParallel
                prefix = self._prefixes[id(module)]
            elif wrapped:
                prefix = wrapped[0][1]
            else:
                prefix = self._prefix(module) if len(new) + len(self._roots) > 1 else ""
            self._roots.append((weakref.ref(module), prefix))
            self._put_all(module, prefix)

    def _prefix(self, root: Any) -> str:
        name, taken = type(innermost(root)).__name__, {prefix for _, prefix in self._roots}
        number = 1
        while (prefix := f"{name}{f'#{number}' if number > 1 else ''}.") in taken:
            number += 1
        return prefix

    def _put_all(self, root: Any, prefix: str) -> None:
        for name, module in root.named_modules(remove_duplicate=False):
            path = (prefix + clean(root, name)).rstrip(".")
            inner = innermost(module)
            self._prefixes.setdefault(id(module), f"{path}." if clean(root, name) else prefix)
            self._put(module, self._new_code(path or type(inner).__name__, type(inner).__name__))

    def _new_code(self, path: str, kind: str) -> int:
        key = path, kind
        if key not in self._codes:
            self._codes[key] = len(self.paths)
            self.paths.append(path)
            self.classes.append(kind)
        return self._codes[key]

    def _put(self, module: Any, code: int) -> None:
        number = id(module)
        codes = self._of.setdefault(number, [])
        if code not in codes:
            codes.append(code)
            if len(codes) == 1:
                self.only_code[number] = code
            else:
                self.only_code.pop(number, None)
        if number not in self._alive:
            self._alive[number] = weakref.ref(module, lambda _: self._forget(number))

    def _forget(self, number: int) -> None:
        self._of.pop(number, None)
        self.only_code.pop(number, None)
        self._prefixes.pop(number, None)
        self._alive.pop(number, None)
