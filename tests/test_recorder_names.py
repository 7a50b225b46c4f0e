"""Names of modules and tensors, without what wraps them; on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from snapreport.recorder.module_names import ModuleNames
from snapreport.recorder.tensor_names import named_tensors


@pytest.fixture(autouse=True)
def is_installed() -> None:
    """Not when the file is imported: every worker imports it, for 1.6 s of processor time, and one runs its tests."""
    pytest.importorskip("torch", reason="torch is not installed: names of tensors were not tested")


def net() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU()))


def parallel(module: Any) -> Any:
    import torch

    return torch.nn.DataParallel(module)


def compiled(module: Any) -> Any:
    import torch

    return torch.compile(module, backend="eager")


def wrapped_inside(module: Any) -> Any:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    module[1] = checkpoint_wrapper(compiled(module[1]))
    return module


WRAPPERS = [
    (parallel,), (compiled,), (parallel, compiled), (compiled, parallel),
    (wrapped_inside, compiled, parallel, compiled),
]  # fmt: skip


@pytest.mark.parametrize("wrappers", WRAPPERS)
def test_wrappers_do_not_show(wrappers: tuple[Any, ...]) -> None:
    """Neither in names nor in classes, in whichever order they wrap each other."""
    inner = model = net()
    for wrap in wrappers:
        model = wrap(model)
    names = ModuleNames()
    names.kind = "cpu"
    names.watch([model])
    paths = {names.paths[names.code(module, 0)] for module in (inner, inner[0], model)}
    assert paths == {"Sequential", "0"}
    assert set(zip(names.paths[1:], names.classes[1:], strict=True)) == {
        ("Sequential", "Sequential"), ("0", "Linear"), ("1", "Sequential"), ("1.0", "Linear"), ("1.1", "ReLU"),
    }  # fmt: skip
    assert [row[3] for row in named_tensors(names.known_roots(), [], "cpu")] == ["0.weight", "0.bias", "1.0.weight"]


def test_a_module_that_outlives_its_wrapper_keeps_its_names() -> None:
    inner = net()
    names = ModuleNames()
    names.kind = "cpu"
    model = parallel(inner)
    names.watch([model])
    del model
    names.watch([inner[1], inner])
    assert [prefix for _, prefix in names.known_roots()] == [""]
    assert [row[3] for row in named_tensors(names.known_roots(), [], "cpu")] == ["0.weight", "0.bias", "1.0.weight"]


def test_a_module_of_no_root_is_part_of_whatever_calls_it() -> None:
    """Such as the one that ``torch.compile`` has made for several layers."""
    import torch

    model, graph = net(), torch.nn.ReLU()
    names = ModuleNames()
    names.kind = "cpu"
    names.watch([model])
    callers = [names.code(model[0], 0), names.code(model[1], 0)]
    assert [names.code(graph, caller) for caller in callers] == callers
    assert names.paths[names.code(graph, 0)] == "ReLU"


def test_several_tensors_of_one_storage_are_counted_once() -> None:
    """By the model and by the optimizer: the gradients of a bucket of DDP."""
    import torch

    model = net()
    bucket = torch.zeros(100)
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = bucket[12 * number : 12 * number + parameter.numel()].view_as(parameter)
    names = ModuleNames()
    names.kind = "cpu"
    names.watch([model])
    optimizer = torch.optim.SGD(model.parameters())
    rows = named_tensors(names.known_roots(), [optimizer], "cpu")
    assert [row[3] for row in rows if row[2] == "gradient"] == ["0.weight.grad and 2 more"]
