"""Programs that allocate in different ways, drawn from a seed: for replays under other allocator settings.

``mixes.py OUT KIND SEED`` writes the snapshot and prints "RESULT peak_reserved peak_allocated retries", in bytes, or
"OOM" and the same where it runs out of memory.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable

import torch
import torch.utils.checkpoint

KIB, MIB = 1 << 10, 1 << 20


def tensor(size: float) -> torch.Tensor:
    return torch.empty(max(1, int(size)), dtype=torch.uint8, device="cuda")


def training(dice: random.Random) -> None:
    """Parameters, then steps of activations that are freed in reverse, gradients and two moments."""
    layers = [dice.randint(64, 40_000) * KIB for _ in range(dice.randint(4, 14))]
    parameters = [tensor(size) for size in layers]
    moments: list[torch.Tensor] = []
    for _ in range(dice.randint(3, 6)):
        batch = dice.uniform(0.3, 3)
        activations = []
        for size in layers:
            scratch = tensor(size * dice.uniform(0.1, 1))
            activations.append(tensor(size * batch))
            del scratch
        gradients = []
        for size in reversed(layers):
            gradients.append(tensor(size))
            activations.pop()
        moments = moments or [tensor(size) for size in layers for _ in range(2)]
    del parameters


def inference(dice: random.Random) -> None:
    """Requests of different lengths: caches that grow by whole copies, and end in any order."""
    live: list[torch.Tensor] = []
    for _ in range(dice.randint(60, 160)):
        action = dice.random()
        if action < 0.4 or not live:
            live.append(tensor(dice.lognormvariate(14, 1.6)))
        elif action < 0.7:
            at = dice.randrange(len(live))
            live[at] = tensor(live[at].numel() * dice.uniform(1.05, 1.6) % (900 * MIB))
        else:
            live.pop(dice.randrange(len(live)))
        if sum(one.numel() for one in live) > 6000 * MIB:
            live = live[len(live) // 2 :]


def streams(dice: random.Random) -> None:
    """Tensors of several streams, some of which another stream uses when they are freed."""
    others = [torch.cuda.Stream() for _ in range(dice.randint(2, 5))]
    live: list[torch.Tensor] = []
    for _ in range(dice.randint(80, 200)):
        with torch.cuda.stream(dice.choice(others)):
            live.append(tensor(2 ** dice.uniform(9, 27)))
        if dice.random() < 0.3:
            live[-1].record_stream(dice.choice(others))
        while len(live) > 12 or (live and dice.random() < 0.4):
            live.pop(dice.randrange(len(live)))
        if dice.random() < 0.05:
            torch.cuda.synchronize()


def small(dice: random.Random) -> None:
    """Thousands of small tensors beside a few large ones."""
    live: list[torch.Tensor] = []
    for _ in range(dice.randint(800, 2500)):
        live.append(tensor(dice.choice((dice.randint(1, 4 * KIB), dice.randint(1, MIB), dice.randint(1, 3 * MIB)))))
        if dice.random() < 0.02:
            live.append(tensor(dice.randint(30, 200) * MIB))
        if len(live) > 300:
            dice.shuffle(live)
            del live[dice.randint(0, 250) :]


def large(dice: random.Random) -> None:
    """Tensors of 10 MiB to 3 GiB, few at a time."""
    live: list[torch.Tensor] = []
    for _ in range(dice.randint(40, 90)):
        live.append(tensor(MIB * 10 * 2 ** dice.uniform(0, 8)))
        while sum(one.numel() for one in live) > 9000 * MIB:
            live.pop(0)
        if dice.random() < 0.3:
            live.pop(dice.randrange(len(live)))


def borders(dice: random.Random) -> None:
    """Sizes at and beside the borders of pools, segments, powers of two and their divisions."""
    live: list[torch.Tensor] = []
    for _ in range(dice.randint(80, 160)):
        base = dice.choice(
            (512, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 2 ** dice.randint(9, 30), 3 * 2 ** dice.randint(9, 28))
        )
        live.append(tensor(base + dice.choice((-512, -1, 0, 1, 512))))
        while sum(one.numel() for one in live) > 9000 * MIB:
            live.pop(0)
        if dice.random() < 0.5:
            live.pop(dice.randrange(len(live)))


def emptied(dice: random.Random) -> None:
    """Phases of different sizes, between which the cache is emptied."""
    kept = []
    for _ in range(dice.randint(3, 7)):
        unit = 2 ** dice.uniform(16, 25)
        phase = [tensor(unit * dice.uniform(0.5, 4)) for _ in range(dice.randint(5, 30))]
        kept.append(phase[dice.randrange(len(phase))])
        dice.shuffle(phase)
        del phase[: len(phase) // 2]
        if dice.random() < 0.7:
            torch.cuda.empty_cache()


def network(dice: random.Random) -> None:
    """A real network and optimizer on batches of different sizes."""
    width = 128 * dice.randint(2, 8)
    net = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(dice.randint(3, 9))]).cuda()
    adam = dice.choice((torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop))(net.parameters())
    for _ in range(dice.randint(4, 9)):
        net(torch.randn(dice.randint(10, 9000), width, device="cuda")).square().mean().backward()
        adam.step()
        adam.zero_grad(set_to_none=dice.random() < 0.7)


def transformer(dice: random.Random) -> None:
    """An encoder trained on sequences of different lengths, with micro-batches and an evaluation now and then."""
    heads = dice.choice((2, 4, 8))
    layer = torch.nn.TransformerEncoderLayer(32 * heads, heads, 128 * heads, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, dice.randint(2, 5), enable_nested_tensor=False).cuda()
    adam = torch.optim.AdamW(net.parameters())
    for step in range(dice.randint(3, 6)):
        for _ in range(dice.randint(1, 3)):
            net(torch.randn(dice.randint(1, 12), dice.randint(16, 600), 32 * heads, device="cuda")).mean().backward()
        adam.step()
        adam.zero_grad()
        if step % 2:
            with torch.no_grad():
                net.eval()(torch.randn(dice.randint(1, 24), 256, 32 * heads, device="cuda"))
            net.train()


def generation(dice: random.Random) -> None:
    """Caches of keys and values that grow by a row at a time, for requests that come and end."""
    width = 64 * dice.randint(4, 16)
    requests: list[list[torch.Tensor]] = []
    for _ in range(dice.randint(60, 140)):
        if len(requests) < 6 and dice.random() < 0.3:
            length = dice.randint(16, 900)
            requests.append([torch.zeros(length, width, device="cuda") for _ in range(2 * dice.randint(2, 4))])
        for caches in requests:
            for at, cache in enumerate(caches):
                caches[at] = torch.cat([cache, torch.zeros(dice.randint(1, 40), width, device="cuda")])
        if requests and dice.random() < 0.1:
            requests.pop(dice.randrange(len(requests)))


def checkpointed(dice: random.Random) -> None:
    """Blocks whose activations are computed again in the backward pass."""
    width = 128 * dice.randint(2, 6)
    blocks = [
        torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))
        for _ in range(dice.randint(3, 8))
    ]
    net = torch.nn.Sequential(*blocks).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=dice.choice((0, 0.9)))
    for _ in range(dice.randint(3, 7)):
        state = torch.randn(dice.randint(100, 20_000), width, device="cuda")
        for block in blocks:
            state = torch.utils.checkpoint.checkpoint(block, state, use_reentrant=False)
        state.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=dice.random() < 0.5)


def offloaded(dice: random.Random) -> None:
    """Layers that are on the device only while they compute, and results that stay."""
    width = 256 * dice.randint(2, 8)
    layers = [torch.nn.Linear(width, width * dice.randint(1, 3)) for _ in range(dice.randint(4, 9))]
    results: list[torch.Tensor] = []
    for _ in range(dice.randint(3, 8)):
        state = torch.randn(dice.randint(10, 6000), width, device="cuda")
        with torch.no_grad():
            for layer in layers:
                results.append(layer.cuda()(state))
                layer.cpu()
        dice.shuffle(results)
        del results[dice.randint(2, 12) :]


KINDS: dict[str, Callable[[random.Random], None]] = {
    run.__name__: run
    for run in (
        training,
        inference,
        streams,
        small,
        large,
        borders,
        emptied,
        network,
        transformer,
        generation,
        checkpointed,
        offloaded,
    )
}


def main() -> None:
    """Run one program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("seed", type=int)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
    outcome = "RESULT"
    try:
        KINDS[given.kind](random.Random(given.seed))
    except torch.cuda.OutOfMemoryError:
        outcome = "OOM"
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(given.out)
    print(outcome, *(stats[f"{kind}_bytes.all.peak"] for kind in ("reserved", "requested")), stats["num_alloc_retries"])


if __name__ == "__main__":
    main()
