"""Programs of a few events, each with where it runs, its category and its size: what a rule finds in them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from scripted import Frame, Script
from test_findings_advice import BACKWARD, FORWARD, OPTIMIZER, TORCH, WEIGHTS

import snapreport
from snapreport.findings.advice_context import AdviceContext
from snapreport.timeline.categories import StackCategories
from snapreport.timeline.phases import stack_phases
from snapreport.vocabulary import CATEGORIES

KIB = 1 << 10
LINEAR = ((TORCH + "nn/modules/linear.py", "forward"), *FORWARD)
DATA: tuple[Frame, ...] = (("/app/data.py", "load"),)
FRAMES: dict[str, tuple[Frame, ...]] = {
    "e": (), "f": FORWARD, "lin": LINEAR, "b": BACKWARD, "o": OPTIMIZER, "d": DATA, "w": WEIGHTS,
    "l": (("/app/loss.py", "loss"),),
    "m": (("/app/loss.py", "loss"), ("/app/loss.py", "mean")),  # the same function, called elsewhere
    "ob": (*BACKWARD, *OPTIMIZER), "g": (("/env/torch_geometric/nn/conv.py", "propagate"), *FORWARD),
    "ce": ((TORCH + "nn/functional.py", "cross_entropy"), ("/app/loss.py", "loss")),
    "c": (("/env/site-packages/torch/_weights_only_unpickler.py", "load"),),
    "z": ((TORCH + "optim/optimizer.py", "zero_grad"),),
    "r": ((TORCH + "autograd/__init__.py", "_make_grads"), *BACKWARD),
    "kl": ((TORCH + "nn/functional.py", "kl_div"), ("/app/loss.py", "loss")),
    "bce": ((TORCH + "nn/functional.py", "binary_cross_entropy_with_logits"), ("/app/loss.py", "loss")),
}  # fmt: skip
NAMES = {
    "p": "parameter", "i": "input", "g": "gradient", "a": "activation", "s": "optimizer state", "t": "temporary",
    "u": "unknown",
}  # fmt: skip


def context_of(program: str, folder: Path) -> AdviceContext:
    """``program``: ``f:a64`` is an allocation of 64 KiB by a line of a forward pass, an activation; ``f2:a64`` by
    another function of it. ``-2`` frees the third in the program, ``b-2`` in a backward pass;
    ``e:t64`` is of the autograd engine.
    """
    script, made, categories = Script(), list[int](), list[str]()
    for word in program.split():
        if "-" in word:
            where, _, number = word.partition("-")
            script.free(made[int(number)], *FRAMES[where or "d"])
            continue
        where, what = word.split(":")
        kind = where.rstrip("0123456789")
        own = () if kind == where else ((f"/app/model{where}.py", where),)
        made.append(script.alloc(word, int(what[1:]) * KIB, *own, *FRAMES[kind]))
        categories.append(NAMES[what[0]])
    for one in script.events:  # a thread of the engine has no stack trace
        if script.tags[one["addr"]].startswith("e:") and one["action"] == "alloc":
            one["frames"] = []
    (folder / "program.pickle").write_bytes(pickle.dumps(script.raw()))
    snapshot = snapreport.load(folder / "program.pickle", inference=False)
    none = np.zeros(len(snapshot.recording.stack_offsets) - 1, np.uint8)  # to look for each rule takes most of the time
    phases = stack_phases(snapshot.recording)
    snapshot.__dict__["_categories"] = StackCategories(none, none, none > 0, none, none, phases, none > 0)
    context = AdviceContext(snapshot, snapshot.timeline(0), [])
    assert np.all(np.diff(context.born) > 0)
    context.__dict__["is_much"] = bool  # whatever has any bytes at the peak
    context.__dict__["_categories"] = np.array([CATEGORIES.index(name) for name in categories])
    return context


def marks(mask: np.ndarray | None) -> str:
    """An x for each allocation of a mask, a dot for others; nothing without one."""
    return "" if mask is None else "".join(".x"[int(each)] for each in mask)
