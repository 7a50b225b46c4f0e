"""What is said does not depend on the order of groups and distinct rows, of which polars promises none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import answers
import numpy as np
import polars as pl
import pytest


@pytest.fixture
def other_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)

    def mixed(method: Callable[..., pl.DataFrame]) -> Callable[..., pl.DataFrame]:
        def call(self: object, *arguments: object, **options: object) -> pl.DataFrame:
            table = method(self, *arguments, **options)
            is_kept = getattr(self, "maintain_order", False) or options.get("maintain_order", False)
            return table if is_kept else table[rng.permutation(len(table))]

        return call

    groups = type(pl.DataFrame({"a": [1]}).group_by("a"))
    monkeypatch.setattr(groups, "agg", mixed(groups.agg))
    monkeypatch.setattr(pl.DataFrame, "unique", mixed(pl.DataFrame.unique))


@pytest.mark.usefixtures("other_order")
@pytest.mark.parametrize("path", answers.paths()[::8], ids=lambda path: path.name.partition(".")[0])
def test_the_same_is_said(path: Path) -> None:
    assert answers.answer(path)[0] == answers.accepted(path)
