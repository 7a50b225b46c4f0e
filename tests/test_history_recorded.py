"""Thirty commits of one program, each recorded on PyTorch: one makes it hold more, the others only move things."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fake_torch
import pytest
from cli import in_process

from snapreport.history.document import FEWEST

COMMITS, FIRST_BAD = 30, 17
# The first commit that has it, and what it does to the program. No peak depends on any of these.
RENAMED, SPLIT, MOVED, NEWER_TORCH, ANNOTATED = 6, 9, 11, 13, 22

ATTEND = """
def attend(query, key, value):
    scores = query @ key.transpose(-2, -1)
    weights = torch.softmax({scores}, -1)
    return weights.to(value.dtype) @ value
"""
ATTENTION = """
class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        query, key, value = self.qkv(x).chunk(3, -1)
        return self.out(attend(query, key, value))
"""
MLP = """
class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x)))
"""
SPLIT_MLP = """
class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down = nn.Linear(4 * width, width)
        self.up = nn.Linear(width, 4 * width)

    def expand(self, x):
        return functional.gelu(self.up(x))

    def forward(self, x):
        hidden = self.expand(x)
        return self.down(hidden)
"""
NET = """
class Net(nn.Module):
    def __init__(self, width=256, layers=3):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(layers):
            self.layers.append(Attention(width))
            self.layers.append(Mlp(width))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)
"""
STEP = """
def {step}(model, optimizer, length):
    x = torch.randn(8, length, 256, device="cuda", dtype=torch.bfloat16)
    loss = model(x).float().logsumexp(-1).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
MAIN = """
def main():
    model = Net().cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in {lengths}:
        {step}(model, optimizer, length)


if __name__ == "__main__":
    main()
"""


def program(commit: int, dice: random.Random) -> str:
    """The source of a commit."""
    parts = [ATTEND.format(scores="scores.float()" if commit >= FIRST_BAD else "scores"), ATTENTION, NET]
    parts.append(SPLIT_MLP if commit >= SPLIT else MLP)
    step = "run_step" if commit >= RENAMED else "train_step"
    parts.append(STEP.format(step=step))
    dice.shuffle(parts)
    lengths = [512, 384, 256, 512, 448]
    dice.shuffle(lengths)
    text = "import torch\nfrom torch import nn\nfrom torch.nn import functional\n"
    for part in [*parts, MAIN.format(lengths=lengths, step=step)]:
        text += "\n" + "# A remark.\n" * dice.randrange(6) + part
    return text.replace("(self, x):", "(self, x: torch.Tensor) -> torch.Tensor:") if commit >= ANNOTATED else text


def record_commits(
    folder: Path, sources: Sequence[str], moved: int, versions: Sequence[fake_torch.FakeTorch]
) -> dict[int, Any]:
    """Records each source with its version of PyTorch, checks it against the history of those before, and adds it; the
    checks that did not pass. At the commit ``moved`` the file moves into a folder.
    """
    history, failed = folder / "history", {}
    for commit, (source, fake) in enumerate(zip(sources, versions, strict=True)):
        file = folder / ("model/train.py" if commit >= moved else "train.py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)
        run = fake.record("-o", folder / f"run{commit}", command=[file])
        assert run.code == 0, run.err
        (snapshot,) = (folder / f"run{commit}").iterdir()
        if commit >= FEWEST:
            checked = in_process("check", "--history", history, snapshot)
            if checked.code:
                failed[commit] = checked
        assert in_process("history", "add", history, snapshot, "--commit", f"c{commit}").code == 0
    return failed


def line_of(source: str, text: str) -> int:
    (line,) = [number for number, line in enumerate(source.splitlines(), 1) if text in line]
    return line


def test_thirty_commits(tmp_path: Path) -> None:
    """In every commit lines move, classes are defined and batches come in another order. Functions are renamed and
    split, the file moves, annotations come, PyTorch changes; and one commit computes its softmax in float32.
    """
    if not fake_torch.FOLDERS:
        pytest.skip(fake_torch.NONE)
    older, newer = (fake_torch.FakeTorch(fake_torch.FOLDERS[k]) for k in (0, -1))
    history, dice = tmp_path / "history", random.Random(1)
    sources = [program(commit, dice) for commit in range(COMMITS)]
    versions = [newer if commit >= NEWER_TORCH else older for commit in range(COMMITS)]
    failed = record_commits(tmp_path, sources, MOVED, versions)
    assert [(commit, run.code) for commit, run in failed.items()] == [(FIRST_BAD, 1)]
    line = line_of(sources[FIRST_BAD], "torch.softmax(")
    assert f"+24.0 MiB in attend model/train.py:{line}\n" in failed[FIRST_BAD].out
    document = in_process("history", history, "--json").json
    rises = [shift for shift in document["shifts"] if shift["after_bytes"] > shift["before_bytes"]]
    (rise,) = [shift for shift in rises if shift["measure"] == "allocated"]
    assert rises == [rise] and rise["commit"] == f"c{FIRST_BAD}" and rise["is_confirmed"]
    place = {"function": "attend", "file": "model/train.py", "line": line, "change_bytes": 24 << 20}
    assert rise["places"][0] == place
    falls = [shift["commit"] for shift in document["shifts"] if shift is not rise]
    assert set(falls) <= ({f"c{NEWER_TORCH}"} if newer != older else set())
    text = in_process("history", history).out
    assert re.match(rf"c{FIRST_BAD}: peak allocated \d+ → \d+ MiB, attend model/train.py:{line} \+24.0 MiB\n", text)
    if newer == older:
        return
    names = [fake.version for fake in (older, newer)]
    if falls:
        assert re.search(rf"c{NEWER_TORCH}: .* MiB with PyTorch {' → '.join(names)}", text)
    file = tmp_path / "model" / "train.py"
    file.write_text(program(COMMITS, dice).replace("randn(8,", "randn(16,"))
    assert older.record("-o", tmp_path / "other", command=[file]).code == 0
    run = in_process("check", "--history", history, *(tmp_path / "other").iterdir())
    assert run.code == 2 and f"PyTorch {' → '.join(reversed(names))} since c{COMMITS - 1}" in run.out
