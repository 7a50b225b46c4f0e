"""Batches of input made in a training loop, and caches that grow token by token, are recognised by their lifetimes."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from scripted import MIB, Script
from test_findings_advice import BACKWARD, FORWARD, OPTIMIZER, TORCH, WEIGHTS

import snapreport

LOAD = (("/app/loop.py", "run"),)
ZERO = ((TORCH + "optim/optimizer.py", "zero_grad"),)
ATTENTION = (("/app/attention.py", "attend"), *FORWARD)


def said(script: Script, folder: Path) -> Counter[tuple[str, str, str]]:
    """How many allocations of each function there are by (category, source)."""
    path = folder / "written.pickle"
    path.write_bytes(pickle.dumps(script.raw(), 4))
    snapshot = snapreport.load(path)
    recording = snapshot.recording
    rows = snapshot.allocations(0).select("stack", pl.col("category", "category_source").cast(pl.String))
    names = recording.frames["name"]
    return Counter((names[recording.stack(stack)[0]], category, source) for stack, category, source in rows.iter_rows())


def training(*, collects: bool = False, after_forward: bool = False, steps: int = 5) -> Script:
    """A batch of two tensors in each step, freed when the next is there; ``collects``: never freed."""
    script = Script()
    for _ in range(6):
        script.alloc("parameter", 10 * MIB, *WEIGHTS)
    batch: list[int] = []
    for _ in range(steps):
        made = [] if after_forward else [script.alloc("input", 8 * MIB, *LOAD) for _ in range(2)]
        saved = [script.alloc("activation", 20 * MIB, *FORWARD) for _ in range(6)]
        made += [script.alloc("input", 8 * MIB, *LOAD) for _ in range(2 if after_forward else 0)]
        for address in [] if collects else batch:
            script.free(address, *LOAD)
        batch = made
        grads = [script.alloc("gradient", 10 * MIB, *BACKWARD) for _ in range(6)]
        for address in saved[::-1]:
            script.free(address, *BACKWARD)
        script.free(script.alloc("temporary", 10 * MIB, *OPTIMIZER), *OPTIMIZER)
        for address in grads:
            script.free(address, *ZERO)
    return script


def test_batches_are_inputs(tmp_path: Path) -> None:
    assert said(training(), tmp_path)["run", "input", "inferred"] == 10


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(training(collects=True), id="what a line collects is no batch"),
        pytest.param(training(after_forward=True), id="made after the forward pass, it is no input of it"),
        pytest.param(training(steps=1), id="once is no rule"),
    ],
)
def test_what_only_looks_like_a_batch(script: Script, tmp_path: Path) -> None:
    assert not [key for key in said(script, tmp_path) if key[1] == "input"]


def generation(grows: int, *, across: bool = True, tokens: int = 8, layers: int = 4, reads: int = 0) -> Script:
    """Keys and values concatenated in each pass; ``across``: blocks live until the next pass replaces them. ``reads``:
    of three more lines of a layer, how many make tensors of all words.
    """
    script = Script()
    for _ in range(6):
        script.alloc("parameter", 10 * MIB, *WEIGHTS)
    caches: dict[int, list[int]] = {}
    for token in range(tokens):
        for layer in range(layers):
            lines = [(("/app/model.py", f"part{line}"), *FORWARD) for line in range(3)]
            sizes = [3 * MIB + token * grows * (line < reads) for line in range(3)]
            work = [script.alloc("work", size, *line) for size, line in zip(sizes, lines, strict=True)]
            new = [script.alloc("cache", 2 * MIB + token * grows, *ATTENTION) for _ in range(2)]
            for address in caches.pop(layer, []):
                script.free(address, *ATTENTION)
            if across:
                caches[layer] = new
            else:
                for address in new:
                    script.free(address, *ATTENTION)
            for address in work:
                script.free(address, *FORWARD)
        script.free(script.alloc("logits", MIB, *LOAD), *LOAD)
    return script


def test_what_grows_token_by_token_is_a_cache(tmp_path: Path) -> None:
    found = said(generation(4096), tmp_path)
    assert found["attend", "kv cache", "inferred"] == 64


def test_outputs_of_layers_that_read_all_words_again_are_no_cache(tmp_path: Path) -> None:
    """Keys and values are read by lines that grow, too: scores and copies of them, but not by most."""
    assert said(generation(4096, reads=1), tmp_path)["attend", "kv cache", "inferred"] == 64
    assert said(generation(4096, reads=2), tmp_path)["attend", "activation", "stack"] == 64


@pytest.mark.parametrize(("grows", "across", "tokens"), [(0, True, 8), (4096, False, 8), (4096, True, 2)])
def test_what_only_looks_like_a_cache(grows: int, across: bool, tokens: int, tmp_path: Path) -> None:
    """Blocks of one size, scores that grow and are freed within their pass, and only two passes."""
    assert not [key for key in said(generation(grows, across=across, tokens=tokens), tmp_path) if key[1] == "kv cache"]
