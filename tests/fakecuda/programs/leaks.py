"""Training and inference loops that keep memory or do not, and end in eight ways.

``leaks.py OUT NAME`` dumps a snapshot of the program to OUT; without arguments prints all programs and what each keeps,
as JSON.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import pickle
import sys
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

WIDTH, BATCH = 256, 256
ENDS = ("return", "exit", "exception", "freed", "gc", "alive", "oom", "empty_cache", "stopped")


@dataclass(frozen=True)
class Program:
    """``every``: something is kept after every so many steps (0: never), from step ``first`` on. ``most``: so many are
    kept; then the oldest goes ("oldest"), nothing is added ("stop"), or all go ("all"). ``what``: see ``kept``.
    ``where``: whether an object that outlives ``main`` holds it. ``micro``: micro-batches of a step. ``evaluate``: a
    validation pass after every so many steps, which is what keeps something. ``varied``: lengths of the batches vary.
    """

    steps: int
    every: int = 1
    first: int = 0
    most: int = 0
    full: str = "oldest"
    what: str = "output"
    where: str = "outer"
    micro: int = 1
    evaluate: int = 0
    varied: bool = False
    optimizer: str = "adam"
    kind: str = "training"
    end: str = "return"

    @property
    def growths(self) -> int:
        """How often something more is kept than ever before."""
        period = (self.evaluate or 1) * self.every
        happens = len([step for step in range(self.first, self.steps) if period and step % period == period - 1])
        return min(happens, self.most) if self.most else happens

    @property
    def leaks(self) -> bool:
        return self.every > 0 and self.most == 0 and self.growths > 0


def programs() -> dict[str, Program]:
    found = {f"period_{n}": Program(steps=max(12, 5 * n), every=n, end=ENDS[n % 8]) for n in range(1, 11)}
    found |= {f"four_growths_{n}": Program(steps=4 * n, every=n, end=ENDS[(n + 3) % 8]) for n in (1, 2, 3, 5, 8)}
    found |= {f"three_growths_{n}": Program(steps=3 * n, every=n, end="freed") for n in (2, 4)}
    found |= {f"once_{n}": Program(steps=n, every=n, end="alive") for n in (6, 8, 12)}
    found |= {f"ends_{end}": Program(steps=10, where="inner" if end == "return" else "outer", end=end) for end in ENDS}
    found |= {f"healthy_{end}": Program(steps=10, every=0, end=end) for end in ENDS}
    found |= {f"ring_{n}": Program(steps=30, most=n, end=ENDS[n % 8]) for n in (1, 2, 4, 8)}
    found |= {f"cache_{n}": Program(steps=24, most=n, full="stop", end=ENDS[n % 8]) for n in (2, 3, 5, 8)}
    found |= {f"made_once_{n}": Program(steps=12, every=n, most=1, full="stop", end=ENDS[n % 8]) for n in (3, 6, 9)}
    found |= {f"epochs_{n}": Program(steps=3 * n, most=n, full="all", end="freed") for n in (5, 10)}
    found |= {f"micro_{n}": Program(steps=10, micro=n, end="freed") for n in (2, 4)}
    found |= {f"micro_{n}_healthy": Program(steps=10, every=0, micro=n, end="freed") for n in (2, 4)}
    found |= {f"evaluation_{n}": Program(steps=5 * n, evaluate=n, end=ENDS[(n + 1) % 8]) for n in (2, 3, 5)}
    found |= {f"evaluation_{n}_healthy": Program(steps=5 * n, every=0, evaluate=n, end="freed") for n in (2, 3, 5)}
    found |= {
        "late": Program(steps=24, first=10, end="freed"),
        "varied": Program(steps=20, varied=True, end="freed"),
        "varied_healthy": Program(steps=20, every=0, varied=True, end="freed"),
        "varied_2": Program(steps=20, every=2, varied=True, end="return"),
        "varied_ring": Program(steps=30, most=4, varied=True, end="freed"),
        "graphs": Program(steps=8, what="graph", end="freed"),
        "gradients": Program(steps=8, what="gradients", end="freed"),
        "concatenated": Program(steps=12, what="concatenated", end="alive"),
        "weights_best": Program(steps=20, every=3, most=1, what="weights", end="freed"),
        "sgd": Program(steps=10, optimizer="sgd", end="return"),
        "sgd_healthy": Program(steps=10, every=0, optimizer="sgd", end="return"),
        "inference": Program(steps=16, kind="inference", end="freed"),
        "inference_2": Program(steps=16, every=2, kind="inference", end="return"),
        "inference_healthy": Program(steps=16, every=0, kind="inference", end="freed"),
        "inference_ring": Program(steps=24, most=4, kind="inference", end="alive"),
    }
    return found


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(functional.gelu(self.up(x)))


class Keeper:
    """Keeps what a program says."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.things: list[object] = []
        self.calls = 0

    def offer(self, model: nn.Module, output: torch.Tensor) -> None:
        """Called once a step, or once a validation pass."""
        self.calls += 1
        program = self.program
        if not program.every or self.calls % program.every or self.calls <= program.first:
            return
        if program.most and len(self.things) >= program.most:
            if program.full == "stop":
                return
            if program.full == "all":
                self.things.clear()
            else:
                del self.things[0]
        self.things.append(self.kept(model, output))

    def kept(self, model: nn.Module, output: torch.Tensor) -> object:
        what = self.program.what
        if what == "graph":
            return output.square().mean()
        if what == "gradients":
            return [parameter.grad for parameter in model.parameters()]
        if what == "weights":
            return [parameter.detach().clone() for parameter in model.parameters()]
        more = output.detach().repeat(4, 2)
        if what == "concatenated" and self.things:
            return torch.cat([self.things.pop(), more])
        return more


def batch(program: Program, step: int) -> torch.Tensor:
    rows = BATCH + (64 * (step * 7 % 5) if program.varied else 0)
    return torch.randn(rows, WIDTH, device="cuda")


@torch.no_grad()
def validate(model: nn.Module, program: Program, keeper: Keeper) -> None:
    for part in range(2):
        output = model(batch(program, part))
    keeper.offer(model, output)


def train(model: nn.Module, program: Program, keeper: Keeper) -> torch.optim.Optimizer:
    optimizer = (torch.optim.Adam if program.optimizer == "adam" else torch.optim.SGD)(model.parameters(), 1e-3)
    for step in range(program.steps):
        for part in range(program.micro):
            output = model(batch(program, step * program.micro + part))
            output.square().mean().backward(retain_graph=program.what == "graph")
        optimizer.step()
        if not program.evaluate:
            keeper.offer(model, output)
        optimizer.zero_grad()
        if program.evaluate and step % program.evaluate == program.evaluate - 1:
            validate(model, program, keeper)
    if program.end == "oom":
        model(torch.randn(8 << 20, WIDTH, device="cuda"))
    return optimizer


@torch.no_grad()
def infer(model: nn.Module, program: Program, keeper: Keeper) -> None:
    for step in range(program.steps):
        hidden = model(batch(program, step))
        hidden = model(functional.relu(hidden))
        keeper.offer(model, hidden.softmax(-1))


def main(program: Program, out: str, keeper: Keeper) -> None:
    if program.where == "inner":
        keeper = Keeper(program)
    model = Net().cuda()
    optimizer = train(model, program, keeper) if program.kind == "training" else infer(model, program, keeper)
    if program.end == "stopped":
        torch.cuda.memory._record_memory_history(None)
    if program.end in ("alive", "stopped"):
        dump(out)
    if program.end == "exit":
        sys.exit(0)
    if program.end == "exception":
        raise ValueError("the program fails")
    if program.end in ("freed", "gc", "empty_cache"):
        del model, optimizer
    if program.end == "gc":
        gc.collect()
    if program.end == "empty_cache":
        keeper.things.clear()
        torch.cuda.empty_cache()
    if program.end in ("freed", "gc", "empty_cache"):
        dump(out)


def dump(out: str) -> None:
    with open(out, "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)


def run(out: str, name: str) -> None:
    program = programs()[name]
    keeper = Keeper(program)
    torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=1_000_000)
    try:
        main(program, out, keeper)
    except (ValueError, torch.OutOfMemoryError, SystemExit) as error:
        error.__traceback__ = None  # with it, the frames and what they hold go
    if program.end in ("return", "exit", "exception", "oom"):
        dump(out)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run(sys.argv[1], sys.argv[2])
    else:
        print(
            json.dumps({
                name: {"leaks": program.leaks, "growths": program.growths, **dataclasses.asdict(program)}
                for name, program in programs().items()
            })
        )  # fmt: skip
