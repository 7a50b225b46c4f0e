"""cuBLAS's workspaces where no C++ frame names them.

Up to PyTorch 2.12 the first matrix product of a thread and stream allocates one, which stays
(``aten/src/ATen/cuda/CublasHandlePool.cpp``), and up to 2.11 cuBLASLt's of 1 MiB after it; 2.15 allocates one for each
product, which is freed directly after it. Seen in 2.9.1 to 2.15.0, over a driver without a GPU and on an H200.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.timeline.lifetimes import NEVER

CUBLAS_WORKSPACE = 8_519_680  # bytes of PyTorch's default workspace, :4096:2:16:8 KiB, on all but Hopper
HOPPER_WORKSPACE = 32 << 20
"""Bytes on Hopper and Blackwell. Tensors have 32 MiB, too: 36 of 116 recordings of another GPU had some."""
LT_WORKSPACE = 1 << 20
"""Bytes of cuBLASLt's."""
_BESIDE = 8
"""Events between a workspace and the result of its product: under autocast its inputs are cast between them."""
AT_ONCE = 2
"""Events after which the workspace of one product is gone."""
_MIN_RESULTS = 2
"""Sizes of results beside which workspaces of one size are: the size of a temporary follows from that of the result."""
_IS_WIDE = pl.col("size") == HOPPER_WORKSPACE


def kept_workspaces(table: pl.DataFrame) -> np.ndarray:
    """Bool per row of ``table``: a workspace on Hopper that outlives its product.

    table: ``size`` bytes, ``alloc`` and ``free`` events (negative outside of the trace), ``stack`` (0 for none),
    ``engine``, whether a thread of the autograd engine allocated it, ``is_parameter``, ``is_named``, whether a recorder
    said what it is.
    """
    found = np.zeros(len(table), bool)
    if HOPPER_WORKSPACE not in table["size"]:  # as in most recordings: a tenth of a small timeline's time
        return found
    rows = table.with_row_index("row")
    traced = rows.filter(pl.col("alloc") >= 0).sort("alloc").with_columns(end=_end())
    found[_of_lines(traced)] = True
    if table["is_named"].any():
        found[_from_before(rows)] = True
    if found.any() and not len(table.filter(_IS_WIDE & pl.col("is_parameter"))):
        found[_of_the_engine(traced)] = True
    return found


def _of_lines(traced: pl.DataFrame) -> np.ndarray:
    """Rows: in the first run of its line, with cuBLASLt's directly after it, or with a result that is freed before the
    line runs again; and the only one there that stays.
    """
    lines = traced.filter(pl.col("stack") > 0).with_columns(
        first=pl.col("alloc").min().over("stack"), last=pl.col("alloc").max().over("stack")
    )
    stays = pl.col("end") > pl.col("last")
    wide = lines.filter(_IS_WIDE & stays & (pl.col("alloc") - pl.col("first") <= _BESIDE))
    wide = wide.filter(pl.len().over("stack") == 1)
    near = wide.select("row", "stack", wide="alloc").join(lines.drop("row"), on="stack")
    near = near.filter(((pl.col("alloc") - pl.col("wide")).abs() <= _BESIDE) & (pl.col("alloc") != pl.col("wide")))
    is_result = (pl.col("free") - pl.col("alloc") > AT_ONCE) & (pl.col("free") < pl.col("last"))
    is_lt = (pl.col("size") == LT_WORKSPACE) & stays & (pl.col("alloc") - pl.col("wide")).is_between(1, AT_ONCE)
    return near.filter(is_result | is_lt)["row"].unique().to_numpy()


def _from_before(rows: pl.DataFrame) -> np.ndarray:
    """Finds workspaces allocated before the trace: where parameters have names, the only unnamed block of its size."""
    older = rows.filter((pl.col("alloc") < 0) & ~pl.col("is_named") & (_IS_WIDE | (pl.col("size") == LT_WORKSPACE)))
    older = older.filter(pl.len().over("size") == 1)
    return older["row"].to_numpy() if len(older.filter(_IS_WIDE)) else np.zeros(0, np.int64)


def _of_the_engine(traced: pl.DataFrame) -> np.ndarray:
    """Rows: the only one of autograd's thread that stays, where no parameter has a gradient of 32 MiB: it has no stack.
    Without one that is never freed, of its earlier half: a temporary of the last pass outlives all there, too.
    """
    engine = traced.filter(pl.col("engine"))
    wide = engine.filter(_IS_WIDE)
    mine = wide.filter(pl.col("free") < 0)
    if not len(mine) and len(wide):
        mine = wide.filter((pl.col("end") > engine["alloc"].max()) & (pl.col("alloc") < engine["alloc"].median()))
    return mine["row"].to_numpy() if len(mine) == 1 else np.zeros(0, np.int64)


def beside_kept(table: pl.DataFrame, workspaces: np.ndarray) -> np.ndarray:
    """Bool per row: cuBLASLt's workspace, which a line allocates directly after cuBLAS's and which stays as long; or
    directly after its first result, where another line has allocated cuBLAS's: the only tensor of its size that the
    line never frees, although it runs again.
    """
    found = np.zeros(len(table), bool)
    if not workspaces.any():
        return found
    rows = table.with_row_index("row").with_columns(end=_end(), is_workspace=pl.Series(workspaces))
    rows = rows.filter(pl.col("alloc") >= 0).sort("alloc")
    line = pl.col("alloc").max().over("stack")
    rows = rows.with_columns(
        stays=pl.col("end") > line,
        after=pl.col("is_workspace").shift(1, fill_value=False),
        follows=(pl.col("alloc").shift(1) == pl.col("alloc").min().over("stack")) & (pl.col("free").shift(1) >= 0),
        again=line > pl.col("alloc") + _BESIDE,
    )
    is_next = (pl.col("stack") == pl.col("stack").shift(1)) & (pl.col("alloc") - pl.col("alloc").shift(1) <= AT_ONCE)
    beside = rows.filter(is_next & (pl.col("size") == LT_WORKSPACE) & pl.col("stays"))
    found[beside.filter("after")["row"].to_numpy()] = True
    if not found.any():
        left = rows.filter((pl.col("size") == LT_WORKSPACE) & pl.col("stays")).group_by("stack").len().filter(len=1)
        alone = beside.filter((pl.col("free") < 0) & (pl.col("stack") > 0) & pl.col("follows") & pl.col("again"))
        alone = alone.join(left, on="stack", how="semi")
        found[alone["row"].to_numpy()] = len(alone) == 1
    return found


def beside_products(size: np.ndarray, stack: np.ndarray, born: np.ndarray, freed: np.ndarray) -> np.ndarray:
    """Bool per allocation: made by a line directly after a result, freed before anything else is made, and as large
    beside results of other sizes. cuBLAS's size depends on the GPU and on ``CUBLAS_WORKSPACE_CONFIG``.
    """
    order = np.argsort(born, kind="stable")
    order = order[born[order] >= 0]
    before, rows = order[:-1], order[1:]
    beside = (born[rows] == born[before] + 1) & (stack[rows] == stack[before]) & (size[rows] != size[before])
    beside &= (freed[rows] >= born[rows]) & (freed[rows] - born[rows] <= AT_ONCE)
    before, rows = before[beside], rows[beside]
    pairs = np.unique(np.stack((size[rows], size[before])), axis=1)
    alike, results = np.unique(pairs[0], return_counts=True)
    found = np.zeros(len(size), bool)
    found[rows[np.isin(size[rows], alike[results >= _MIN_RESULTS])]] = True
    return found


def _end() -> pl.Expr:
    """The event of the free; after all others where there is none."""
    return pl.when(pl.col("free") < 0).then(pl.lit(NEVER)).otherwise(pl.col("free"))
