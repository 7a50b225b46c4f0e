"""Ranks, steps and kinds of snapshots from file names, as the frameworks write them.

Known layouts, each with a test: snapreport (``rank_00003_step_00000412_oom.pickle``), torchtitan
(``step_000000000010_exit/000003_step_10.pickle``, before that ``iteration_10/rank3_memory_snapshot.pickle``), Megatron
(``snapshot_3.pickle``, ``snapshot_oom_rank_3.pickle``), Megatron-Bridge and NeMo (``…_rank3.pickle``, ``…-rank-3…``),
verl (``{tag}_rank3_pid41.pickle``), SGLang (``{id}-TP-3-memory.pickle``), torchtune (``rank0_memory_snapshot.pickle``),
composer (``rank3.{batch}.memory_snapshot.pickle``) and slime (``memory_snapshot_time12_rank3_{name}.pickle``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from snapreport.errors import SnapshotError
from snapreport.findings.comparable import natural_key

MOST_RANK = 9_999_999
_RANK = re.compile(r"(?<![a-z])rank[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_TITAN = re.compile(r"^(\d{6})_step_")
_TENSOR_PARALLEL = re.compile(r"-TP-(\d{1,7})-")
_TRAILING = re.compile(r"^(.*)_(\d{1,7})$")
_STEP = re.compile(r"(?<![a-z])(?:step|iteration|iter|batch|ba)[-_.]?(\d{1,15})(?!\d)", re.IGNORECASE)
_OOM = re.compile(r"(?<![a-z])oom(?![a-z])", re.IGNORECASE)
_ENDINGS = (".gz", ".zst", ".xz", ".bz2", ".pickle", ".pkl", ".pt", ".pth", ".digest")


@dataclass(frozen=True)
class NameFacts:
    """What a path says. rank: None where nothing does. step: of the training, None where it is not named. oom: whether
    the snapshot was written because memory ran out.
    """

    rank: int | None
    step: int | None
    oom: bool


def facts_of_names(paths: Sequence[str], pattern: str | None = None) -> list[NameFacts]:
    """What the names of a job's files say, one for each of ``paths``.

    ``pattern``: a regular expression of the user's whose first group (or group ``rank``) is the rank, searched in the
    whole path. Without one: the rules of this module on the file's name, then on the folders that it lies in, the
    nearest first. A trailing number counts as a rank only where it alone tells sibling files apart. Raises
    :class:`SnapshotError` for a bad pattern.
    """
    own = _compiled(pattern) if pattern else None
    ranks = [_by_pattern(own, path) if own else _by_rule(path) for path in paths]
    if own is None and all(rank is None for rank in ranks):
        ranks = _trailing_numbers(paths)
    facts = []
    for path, rank in zip(paths, ranks, strict=True):
        name, folder = stem(path), path.replace("\\", "/").rpartition("/")[0].rpartition("/")[2]
        step = _STEP.search(name) or _STEP.search(folder)
        facts.append(NameFacts(rank, int(step[1]) if step else None, bool(_OOM.search(name) or _OOM.search(folder))))
    return facts


def are_ranks(paths: Sequence[str]) -> bool:
    """Whether files are those of several ranks, by their names alone: every name has a rank, two ranks at least."""
    if len(paths) < 2 or len(set(paths)) < len(paths):
        return False
    ranks = [fact.rank for fact in facts_of_names(paths)]
    # Trailing numbers alone may count anything, moments of one process as well.
    return None not in ranks and len(set(ranks)) > 1 and any(_by_rule(path) is not None for path in paths)


def stem(path: str) -> str:
    """A file's name without folders and known endings."""
    name = path.replace("\\", "/").rpartition("/")[2]
    while (lower := name.lower()).endswith(_ENDINGS):
        name = name[: -len(next(ending for ending in _ENDINGS if lower.endswith(ending)))]
    return name


def missing_ranks(ranks: Sequence[int], world_size: int | None) -> list[int]:
    """The ranks of the world that are not among ``ranks``, ascending, at most 10,000. Without a world size, those
    between 0 and the greatest.
    """
    present = set(ranks)
    world = world_size or (max(present) + 1 if present else 0)
    found: list[int] = []
    for rank in range(min(world, MOST_RANK)):
        if rank not in present:
            found.append(rank)
            if len(found) == 10_000:
                break
    return found


def newest_of_each(keys: Sequence[tuple[int | None, int | None, bool, str]]) -> list[int]:
    """Of several snapshots a rank, which to compare: indices of ``keys``, ascending, one for each rank.

    ``keys``: rank, step, whether memory ran out, path. What was written when memory ran out comes first, since it
    shows the failure. Else all ranks are compared at the latest of the steps that most of them have. Files without a
    rank stay.
    """
    by_rank: defaultdict[int, list[int]] = defaultdict(list)
    chosen = []
    for index, (rank, *_) in enumerate(keys):
        if rank is None:
            chosen.append(index)
        else:
            by_rank[rank].append(index)
    steps = Counter(step for step, _ in {(keys[i][1], rank) for rank, rows in by_rank.items() for i in rows})
    common = max(steps, key=lambda step: (steps[step], -1 if step is None else step), default=None)

    def order(index: int) -> tuple[bool, bool, int, list[tuple[int, int, str]]]:
        _, step, oom, path = keys[index]
        return oom, step == common, -1 if step is None else step, natural_key(path)

    chosen += [max(rows, key=order) for rows in by_rank.values()]
    return sorted(chosen)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SnapshotError(f"--rank-pattern {pattern!r}: {error}") from None
    if not compiled.groups:
        raise SnapshotError(f"--rank-pattern {pattern!r}: no group; put the rank into one: 'node\\d+_gpu(\\d+)'")
    return compiled


def _by_pattern(pattern: re.Pattern[str], path: str) -> int | None:
    found = pattern.search(path.replace("\\", "/"))
    text = found["rank" if "rank" in pattern.groupindex else 1] if found else None
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 7:
        return None
    return int(text)


def _by_rule(path: str) -> int | None:
    *folders, _ = path.replace("\\", "/").split("/")
    name = stem(path)
    for part, rules in ((name, (_RANK, _TITAN, _TENSOR_PARALLEL)), *((folder, (_RANK,)) for folder in folders[:-3:-1])):
        for rule in rules:
            if found := rule.search(f"{part}-" if rule is _TENSOR_PARALLEL else part):
                return int(found[1])
    return None


def _trailing_numbers(paths: Sequence[str]) -> list[int | None]:
    """The number at the end of each name, where nothing else tells the files apart."""
    found = [_TRAILING.match(stem(path)) for path in paths]
    folders = {path.replace("\\", "/").rpartition("/")[0] for path in paths}
    if len(paths) < 2 or len(folders) > 1 or any(match is None for match in found):
        return [None] * len(paths)
    numbers = [int(match[2]) for match in found if match]
    heads = {match[1] for match in found if match}
    return list(numbers) if len(heads) == 1 and len(set(numbers)) == len(numbers) else [None] * len(paths)
