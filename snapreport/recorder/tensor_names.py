"""Which addresses belong to parameters, gradients and optimizer state, by name: exact, not inferred."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterable, Iterator
from typing import Any

PARAMETER, GRADIENT, OPTIMIZER_STATE, BUFFER = "parameter", "gradient", "optimizer state", "buffer"
CATEGORIES = (PARAMETER, GRADIENT, OPTIMIZER_STATE, BUFFER)
MOST_TENSORS = 500_000
# Attributes in which torch.compile, FSDP and checkpoint wrappers hold the module that they wrap, and classes whose
# module has a name that others use, too.
_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_PARALLEL = ("DistributedDataParallel", "DataParallel")


def root_modules() -> list[Any]:
    """The program's modules that are not part of another, found among all Python objects (0.1 s per million)."""
    torch = sys.modules["torch"]
    module_type = torch.nn.Module
    # By type(): isinstance() would run the code of proxies that claim another class. One issubclass() per class:
    # torch.profiler records calls of built-in functions, and one per object was 99% of a trace.
    objects = gc.get_objects()
    classes = {kind for kind in set(map(type, objects)) if issubclass(kind, module_type)}
    modules = [thing for thing in objects if type(thing) in classes]
    children: set[int] = set()
    for module in modules:
        # A module may be half constructed, inside its __init__.
        children.update(id(child) for child in (module.__dict__.get("_modules") or {}).values() if child is not None)
    return [module for module in modules if id(module) not in children]


def named_tensors(
    roots: Iterable[tuple[Any, str]], optimizers: Iterable[Any], kind: str = "cuda"
) -> list[tuple[int, int, str, str, list[int], str]]:
    """(device, address, category, name, shape, dtype) of every storage on devices of ``kind`` that modules and
    optimizers hold, each address once. The CPU is device -1. roots: (module, prefix of its names).
    """
    found: dict[tuple[int, int], tuple[str, str, list[int], str]] = {}
    shared: dict[tuple[int, int], set[str]] = {}

    def put(tensor: Any, category: str, name: str) -> None:
        place = _place(tensor, kind)
        if place is None:
            return
        if place not in found:
            if len(found) < MOST_TENSORS:
                found[place] = category, name, list(map(int, tensor.shape)), str(tensor.dtype)
        elif found[place][1] != name:
            shared.setdefault(place, set()).add(name)

    names: dict[int, str] = {}
    for root, prefix in roots:
        for category, pairs in ((PARAMETER, root.named_parameters()), (BUFFER, root.named_buffers())):
            for own_name, tensor in _whole(pairs):
                name = prefix + clean(root, own_name)
                names.setdefault(id(tensor), name)
                put(tensor, category, name)
                if category == PARAMETER:
                    put(_gradient(tensor), GRADIENT, f"{name}.grad")
    for optimizer in optimizers:
        _put_optimizer(optimizer, names, put)
    return [
        (
            device,
            address,
            category,
            name + (f" and {len(shared[device, address])} more" if (device, address) in shared else ""),
            shape,
            dtype,
        )
        for (device, address), (category, name, shape, dtype) in found.items()
    ]


def _put_optimizer(optimizer: Any, names: dict[int, str], put: Any) -> None:
    for group in list(optimizer.param_groups):
        given = group.get("param_names")
        for number, parameter in enumerate(group["params"]):
            name = names.get(id(parameter)) or (given[number] if given else f"parameter {len(names)}")
            names.setdefault(id(parameter), name)
            put(parameter, PARAMETER, name)
            put(_gradient(parameter), GRADIENT, f"{name}.grad")
    for parameter, state in list(optimizer.state.items()):
        if isinstance(state, dict):
            name = names.get(id(parameter), "parameter")
            for key, value in list(state.items()):
                put(value, OPTIMIZER_STATE, f"{name}.{key}")


def gradient_addresses(optimizers: Iterable[Any]) -> tuple[int, ...]:
    """Those of all gradients that optimizers use, in some 0.3 µs each."""
    return tuple(
        gradient.data_ptr()
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
        if (gradient := parameter.grad) is not None
    )


def clean(root: Any, name: str) -> str:
    """``name`` of a module or tensor of ``root`` without what wrappers add: ``module.`` of DistributedDataParallel,
    ``_orig_mod.`` of ``torch.compile``.
    """
    parts, module = [], root
    for part in name.split("."):
        if part not in _WRAPPED and not (part == "module" and type(module).__name__ in _PARALLEL):
            parts.append(part)
        module = getattr(module, "_modules", {}).get(part)
    return ".".join(parts)


def innermost(module: Any) -> Any:
    """The module that wrappers wrap: of DistributedDataParallel, ``torch.compile``, FSDP, checkpoints."""
    while True:
        inner = [part for name, part in module._modules.items() if part is not None and not clean(module, name)]
        if not inner:
            return module
        module = inner[0]


def _whole(pairs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """``pairs`` as far as they can be iterated: another thread may change the model meanwhile."""
    with contextlib.suppress(RuntimeError):
        yield from pairs


def has_tensors(module: Any, kind: str) -> bool:
    """Whether a module has parameters or buffers on a device of ``kind``: not a template on the CPU."""
    with contextlib.suppress(RuntimeError, AttributeError):
        return any(one.device.type == kind for tensors in (module.parameters(), module.buffers()) for one in tensors)
    return False


def _gradient(parameter: Any) -> Any:
    # Reading .grad of a non-leaf tensor warns.
    return parameter.grad if getattr(parameter, "is_leaf", False) else None


def _place(tensor: Any, kind: str) -> tuple[int, int] | None:
    """(device, address) of a tensor's storage; None if it has none on a device of ``kind``."""
    local = getattr(tensor, "_local_tensor", tensor)  # a DTensor's shard
    device = getattr(local, "device", None)
    if device is None or device.type != kind:
        return None
    try:
        address = local.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # fake, functional or not yet materialized
        return None
    return (-1 if device.index is None else int(device.index), int(address)) if address else None
