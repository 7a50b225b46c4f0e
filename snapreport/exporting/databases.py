"""The tables of snapshots in one database file."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from snapreport.exporting.tables import tables, write_parquet
from snapreport.snapshot import Snapshot

# SQLite knows no more; an address above 2^63 becomes the same 64 bits as a negative number.
_SQLITE = {pl.String: "TEXT", pl.Float64: "REAL"}
_ROWS = 50_000  # a million rows of allocations at once would be 1 GB of Python objects


def write_sqlite(snapshots: Sequence[Snapshot], path: Path) -> None:
    """One table for each of :data:`TABLES`, all snapshots in it."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=OFF")  # a file that is not finished is thrown away as a whole
        for snapshot in snapshots:
            for name, rows in tables(snapshot):
                _insert(connection, name, rows.with_columns(pl.col(pl.UInt64).reinterpret(signed=True)))
    connection.close()


def _insert(connection: sqlite3.Connection, name: str, rows: pl.DataFrame) -> None:
    columns = ", ".join(f'"{key}" {_SQLITE.get(kind.base_type(), "INTEGER")}' for key, kind in rows.schema.items())
    connection.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({columns})')
    places = ", ".join("?" * rows.width)
    for part in rows.iter_slices(_ROWS):
        connection.executemany(f'INSERT INTO "{name}" VALUES ({places})', part.rows())


def write_duckdb(snapshots: Sequence[Snapshot], path: Path) -> None:
    """As :func:`write_sqlite`. DuckDB reads Parquet by itself, without pyarrow, which polars would need."""
    import duckdb

    with duckdb.connect(str(path)) as connection, tempfile.TemporaryDirectory() as scratch:
        for number, snapshot in enumerate(snapshots):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            write_parquet(snapshot, folder)
            for file in folder.iterdir():
                action = "INSERT INTO {} BY NAME" if number else "CREATE TABLE {} AS"
                connection.execute(f"{action.format(file.stem)} SELECT * FROM read_parquet(?)", [str(file)])
                file.unlink()
