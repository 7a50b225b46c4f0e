"""Categories of programs that keep more than a model and its optimizer, against what the programs say their tensors are
for: data sets, caches, running means, state of optimizers of their own, weights of before the trace.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import fake_torch
import numpy as np
import polars as pl
import pytest
from fake_torch import PROGRAMS

import snapreport
from snapreport.timeline.transformer_weights import transformer_weights

# Program; the least share of the bytes that are right among those whose category is known, and that are known.
CASES = [
    ("moved", 1, 0.95), ("resident", 1, 0.99), ("replayed", 0.99, 1), ("averaged", 1, 1), ("copied", 1, 0.99),
    ("masters", 1, 1), ("constructed", 1, 0.95), ("built", 1, 0.99), ("appended", 0.97, 1), ("listed", 0.97, 1),
    ("quantised", 0.99, 1), ("static", 1, 1), ("shampoo", 1, 1), ("soap", 1, 1), ("muon", 1, 1), ("late", 1, 1),
    ("late_one", 1, 1), ("late_trained", 1, 0),
]  # fmt: skip


@pytest.mark.parametrize("torch", fake_torch.parameters())
@pytest.mark.parametrize(("program", "right", "known"), CASES)
def test_categories_are_what_the_program_says(
    torch: fake_torch.FakeTorch, tmp_path: Path, program: str, right: float, known: float
) -> None:
    out = tmp_path / "snapshot.pickle"
    done = torch.run(PROGRAMS / "categories.py", out, program)
    assert done.code == 0, done.err
    snapshot = snapreport.load(out)
    score = _score(snapshot, json.loads(Path(f"{out}.json").read_text()))
    total = score.total()
    assert total
    said = sum(size for (_, got, _), size in score.items() if got != "unknown")
    assert sum(size for (want, got, _), size in score.items() if want == got) >= right * said
    assert said >= known * total
    # What is wrong is inferred, but for the keys and values of a prompt, which a forward pass makes like activations.
    if program not in ("appended", "listed", "quantised"):
        assert all(how == "inferred" for want, got, how in score if got not in (want, "unknown"))


def _score(snapshot: snapreport.Snapshot, moments: list[dict[str, dict[str, str]]]) -> Counter[tuple[str, str, str]]:
    """Bytes by (truth, category, its source) over all noted moments."""
    table, clock = snapshot.allocations(0), snapshot.events(0)["time_us"].to_numpy()
    result = Counter[tuple[str, str, str]]()
    for moment in moments:
        event = int(np.searchsorted(clock, moment["time_us"], "right")) - 1
        free = pl.col("free_event")
        live = table.filter((pl.col("alloc_event") <= event) & ((free < 0) | (free > event)))
        for addr, size, category, source in live.select("addr", "size", "category", "category_source").iter_rows():
            if want := moment["live"].get(str(addr)):
                result[want, category, source] += size
    return result


def _model(width: int, layers: int, vocabulary: int, copies: int) -> np.ndarray:
    """Bytes of the weights of a Llama in 16 bits, without its tokenizer's odd ends."""
    layer = [width * width] * 4 + [width * width * 3] * 3 + [width] * 2
    return np.array((layer * layers + [width * vocabulary] * 2 + [width]) * copies, np.int64) * 2


@pytest.mark.parametrize("copies", [1, 2, 3, 4])
def test_weights_are_those_of_exactly_one_transformer(copies: int) -> None:
    size = _model(1024, 16, 32000, copies)
    assert transformer_weights(size).all() == (copies == 1)
    assert transformer_weights(size).any() == (copies == 1)


def test_weights_of_a_llama_of_7_billion() -> None:
    """As two matrices of each layer and three more: 90,177,536 bytes 96 times, 33,554,432 bytes 128 times."""
    size = np.repeat([90_177_536, 33_554_432, 8192, 262_144_000, 8_519_680], [96, 128, 65, 2, 1])
    found = transformer_weights(size)
    assert found[:-1].all() and not found[-1]


def test_matrices_of_another_width_are_of_another_model() -> None:
    """A model of width 2,560 beside one of 1,600, in 32 bits, with its gradients: 1,600 by 6,400 are 4,000 by 2,560."""
    size = np.repeat([104_857_600, 26_214_400, 10_240, 102_400_000, 40_960_000, 10_240_000, 6_400],
                     [96, 128, 65, 2, 288, 384, 194])  # fmt: skip
    assert transformer_weights(size).tolist() == [True] * (96 + 128 + 65 + 2) + [False] * (288 + 384 + 194)


def test_other_blocks_are_no_weights() -> None:
    size = np.append(_model(1024, 16, 32000, 1), [8_519_000, 1000, 77])
    assert transformer_weights(size).tolist() == [True] * (len(size) - 3) + [False] * 3
