"""Programs of kinds that no rule had seen when they were recorded: a simulation without any module, hooks that keep
what passes, federated averaging, trials in a loop, and smoothed labels written out.
"""

from __future__ import annotations

import copy

import torch
from pairs.kit import DEVICE, REMEDY, Layer, floats, halves, integers, program
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@program(checkpoint="checkpointing")
def fluid() -> None:
    """A force is learned through a simulation of Runge and Kutta, 24 steps in a while loop; there is no batch."""
    force = torch.zeros(2, 384, 384, device=DEVICE, requires_grad=True)
    target = floats(2, 384, 384)
    optimizer = torch.optim.Adam([force], 0.1)

    def change(u: torch.Tensor) -> torch.Tensor:
        dx = (u.roll(1, -1) - u.roll(-1, -1)) / 2
        dy = (u.roll(1, -2) - u.roll(-1, -2)) / 2
        return force - u[0] * dx - u[1] * dy + 0.01 * (u.roll(1, -1) + u.roll(-1, -1) - 2 * u)

    def advance(u: torch.Tensor, dt: float) -> torch.Tensor:
        a = change(u)
        b = change(u + dt / 2 * a)
        c = change(u + dt / 2 * b)
        d = change(u + dt * c)
        return u + dt / 6 * (a + 2 * b + 2 * c + d)

    for _ in range(3):
        u, t = torch.zeros_like(target), 0
        while t < 24:
            u = checkpoint(advance, u, 0.01, use_reentrant=False) if REMEDY == "checkpoint" else advance(u, 0.01)
            t += 1
        optimizer.zero_grad()
        ((u - target) ** 2).mean().backward()
        optimizer.step()


@program(cpu="leak collected-outputs")
def saliency() -> None:
    """Hooks put what each layer gives into lists, over all batches, for statistics afterwards."""
    net = nn.Sequential(*[m for w in (3, 48, 48, 48) for m in (nn.Conv2d(w, 48, 3, padding=1), nn.SiLU())]).to(DEVICE)
    seen: dict[str, list[torch.Tensor]] = {}

    def keeper(name: str) -> object:
        def keep(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
            seen.setdefault(name, []).append(output.detach().cpu() if REMEDY == "cpu" else output)

        return keep

    for name, module in net.named_children():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(keeper(name))
    net.eval()
    for _ in range(10):
        net(floats(4, 3, 128, 128))
    for kept in seen.values():
        torch.stack([one.mean((0, 2, 3)) for one in kept]).std(0)


@program(cpu="collected-weights")
def clients() -> None:
    """Federated averaging: the weights of each client are kept on the device until all have trained."""
    shared = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 100))
    shared.to(DEVICE)
    for _ in range(2):
        updates = []
        for _ in range(8):
            local = copy.deepcopy(shared)
            optimizer = torch.optim.SGD(local.parameters(), 0.1)
            for _ in range(3):
                functional.cross_entropy(local(floats(256, 1024)), integers(256)).backward()
                optimizer.step()
                optimizer.zero_grad()
            state = local.state_dict()
            updates.append({name: one.cpu() for name, one in state.items()} if REMEDY == "cpu" else state)
        with torch.no_grad():
            for name, weight in shared.state_dict().items():
                weight.copy_(sum(update[name].to(DEVICE) for update in updates) / len(updates))


@program(cpu="leak")
def trials() -> None:
    """Learning rates are tried one after the other; each trial's model and its optimizer stay in a list for later."""
    tried: list[tuple[float, object]] = []
    for rate in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5):
        model = nn.Sequential(*[Layer(512, 8, fused=True) for _ in range(4)]).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), rate)
        for _ in range(4):
            loss = model(floats(4, 128, 512)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        tried.append((loss.item(), model.cpu().state_dict() if REMEDY == "cpu" else (model, optimizer)))
    print(min(tried, key=lambda one: one[0])[0])


@program(index="one-hot", half="accumulation")
def smoothed() -> None:
    """Labels are smoothed into a tensor as large as the logits, beside which the divergence is computed."""
    body = nn.Sequential(nn.Embedding(12_000, 256), *[Layer(256, 4, fused=True) for _ in range(2)]).to(DEVICE)
    head = nn.Linear(256, 12_000, bias=False).to(DEVICE)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()])
    for _ in range(3):
        for (words,) in halves(integers(16, 128)):
            logits = head(body(words)).flatten(0, 1)
            labels = words.flatten()
            if REMEDY == "index":
                loss = functional.cross_entropy(logits, labels, label_smoothing=0.1)
            else:
                smooth = torch.full_like(logits, 0.1 / 11_999).scatter_(1, labels[:, None], 0.9)
                loss = functional.kl_div(logits.log_softmax(-1), smooth, reduction="batchmean")
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
