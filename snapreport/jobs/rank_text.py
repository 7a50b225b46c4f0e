"""Ranks and stacks as text, and sentences about ranks."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from snapreport.jobs.digest_model import DigestStack
from snapreport.sentence import code_part, place_part, rank_part

_NAMED = 12  # ranks listed one by one


class JobSentence(Struct, frozen=True):
    """rows, stack: the subject of the sentence, for selection on the page."""

    text: str
    rows: list[int]
    stack: int | None = None


def rank_ranges(ranks: Sequence[int]) -> str:
    """``0–5, 7`` from ascending ranks; the middle of long lists is omitted."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    texts = [str(a) if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in parts]
    return ", ".join(texts if len(texts) <= _NAMED else [*texts[: _NAMED - 2], "…", texts[-1]])


def ranks_text(ranks: Sequence[int]) -> str:
    """``rank 5``, ``ranks 0–5, 7``."""
    return rank_part(ranks[0]) if len(ranks) == 1 else f"ranks {rank_ranges(ranks)}"


def place(stack: DigestStack) -> str:
    """Where a stack allocates: ``moe/dispatch.py:88``; its name if it has no file."""
    if stack.file and stack.line:
        return place_part(f"{stack.file}:{stack.line}", stack.file, stack.line)
    return code_part(stack.name) if stack.file or stack.function else "allocations without a stack trace"
