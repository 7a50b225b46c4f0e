"""Frames and stacks as columns: strings once, frames as numbers, stacks front-coded against their neighbour.

Stacks are numbered so that neighbours share their outer frames (see ``reading``): each then stores only how many it
shares and what follows. On a trace of 8,507 events with stacks of 100 frames this takes the stacks from 25,000 frame
numbers to 1,500.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from snapreport.packing.columns import Column
from snapreport.reading.noise import frame_flags
from snapreport.reading.recording import Recording
from snapreport.timeline.build import Snapshot
from snapreport.timeline.own_code import is_library

LIBRARY_FLAG = 4
"""Beside the flags of ``reading/noise.py``: code that the reader did not write."""


@dataclass(frozen=True)
class StackColumns:
    """``columns`` of the section "stacks"; ``base``: the number of each snapshot's first stack."""

    columns: list[Column]
    base: list[int]


def stack_columns(snapshots: Sequence[Snapshot]) -> StackColumns:
    """Front-code the stacks of all snapshots, one after the other, over shared string tables."""
    lcps, lengths, sequences, frames, base = [], [], [], [], []
    seen = total = 0
    for snapshot in snapshots:
        recording = snapshot.recording
        lcp, length, sequence = _front_coded(recording)
        base.append(total)
        total += len(length)
        lcps.append(lcp)
        lengths.append(length)
        sequences.append(sequence + seen)
        frames.append(recording.frames)
        seen += len(recording.frames)
    table = pl.concat(frames, how="diagonal") if frames else pl.DataFrame(schema={"filename": str, "line": int, "name": str})
    sequence = np.concatenate(sequences) if sequences else np.zeros(0, np.int64)
    order, coded = _numbered_by_appearance(sequence, len(table))
    table = table[order]
    files, file_index = _interned(table["filename"])
    names, name_index = _interned(table["name"])
    columns = [
        Column("filenames", files, "json"),
        Column("names", names, "json"),
        Column("frame_file", file_index, "u32"),
        Column("frame_name", name_index, "u32"),
        Column("frame_line", table["line"].clip(-(1 << 31), (1 << 31) - 1).to_numpy(), "i32"),
        Column("frame_flags", frame_flags(table).to_numpy() + LIBRARY_FLAG * is_library(table).to_numpy(), "u8"),
        Column("stack_lcp", np.concatenate(lcps) if lcps else [], "u32"),
        Column("stack_length", np.concatenate(lengths) if lengths else [], "u32"),
        Column("stack_new", coded, "u32"),
    ]
    extra = [name for name in table.columns if name.startswith("fx_")]
    if extra:
        rows = table.with_row_index("frame").filter(pl.any_horizontal(pl.col(extra).is_not_null()))
        values = {str(row["frame"]): {k: row[k] for k in extra if row[k] is not None} for row in rows.iter_rows(named=True)}
        columns.append(Column("frame_fx", values, "json"))
    return StackColumns(columns, base)


def _front_coded(recording: Recording) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(shared outer frames, frames, the new frames outermost first) of the stacks of one recording."""
    offsets, flat = recording.stack_offsets, recording.stack_frames
    stacks = [flat[a:b][::-1] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    lcp = np.zeros(len(stacks), np.int64)
    parts = []
    for number, stack in enumerate(stacks):
        previous = stacks[number - 1] if number else stack[:0]
        common = min(len(previous), len(stack))
        differs = np.flatnonzero(previous[:common] != stack[:common])
        lcp[number] = differs[0] if len(differs) else common
        parts.append(stack[lcp[number] :])
    sequence = np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)
    return lcp, np.diff(offsets).astype(np.int64), sequence


def _numbered_by_appearance(sequence: np.ndarray, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """The frames in order of first appearance, and the sequence coded as (frames seen so far - number), 0 for a new one."""
    distinct, first, inverse = np.unique(sequence, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    numbers = rank[inverse]
    is_new = np.zeros(len(sequence), bool)
    is_new[first] = True
    known = np.cumsum(is_new) - is_new
    absent = np.setdiff1d(np.arange(frames), distinct)
    return np.concatenate([distinct[order], absent]).astype(np.int64), known - numbers


def _interned(strings: pl.Series) -> tuple[list[str], np.ndarray]:
    """Distinct strings by first appearance, and an index for every row."""
    distinct = strings.unique(maintain_order=True)
    index = {text: number for number, text in enumerate(distinct.to_list())}
    return list(index), np.fromiter((index[text] for text in strings.to_list()), np.int64, len(strings))
