"""Ranks, steps and kinds of snapshots from the file names that frameworks write.

Known layouts, each with a test: snapreport (``rank_00003_step_00000412_oom.pickle``), torchtitan
(``step_000000000010/000003_step_10.pickle``, before 2026 ``iteration_10/rank3_memory_snapshot.pickle``; a folder that
ends in ``_exit`` is an OOM), Megatron-LM (``oom_rank-3_snapshot.pickle``, since 2026 ``snapshot_oom_rank-3.pickle`` and
``snapshot_rank-3.pickle``), Megatron-Bridge (``snapshot_3.pickle``, ``snapshot_oom_rank-3.pickle``), NeMo
(``memory_snapshot-rank3.pickle``), verl (``step5/torch_memory_rank3_pid41.pickle``), SGLang
(``{time}-TP-3-memory.pickle``, ``{time}-TP-3-memory-decode.pickle``), torchtune
(``iteration_10/rank0_memory_snapshot.pickle``), composer (``rank3.{batch}.memory_snapshot.pickle``,
``rank3.oom_snapshot.pickle``) and slime (``memory_snapshot_time12.5_rank3_snapshot.pickle``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec import Struct

from snapreport import supervision
from snapreport.errors import SnapshotError
from snapreport.findings.comparable import natural_key

MOST_RANK = 9_999_999
_RANK = re.compile(r"(?<![a-z])rank[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_TITAN = re.compile(r"^(\d{6})_step_")
_TENSOR_PARALLEL = re.compile(r"-TP-(\d{1,7})-")
_TRAILING = re.compile(r"^(.*)_(\d{1,7})$")
_STEPS = (
    re.compile(r"(?<![a-z])(?:step|iteration|iter|batch|ba)[-_.]?(\d{1,15})(?!\d)", re.IGNORECASE),
    re.compile(r"^steps\d{1,15}-(\d{1,15})$"),  # verl's folder of several steps
    re.compile(r"^rank\d{1,7}\.(\d{1,15})\.memory_snapshot$"),  # composer
)
_OOM = re.compile(r"(?<![a-z])oom(?![a-z])", re.IGNORECASE)
_TITAN_OOM = re.compile(r"^(?:step|iteration)_\d{1,15}_exit$")  # written only when memory ran out
_ENDINGS = (".gz", ".zst", ".xz", ".bz2", ".pickle", ".pkl", ".pt", ".pth", ".digest")


class NameFacts(Struct, frozen=True):
    """Facts from a path. rank, step (of training): None if not in the path. oom: whether the snapshot was written
    because memory ran out.
    """

    rank: int | None
    step: int | None
    oom: bool


def facts_of_names(paths: Sequence[str], pattern: str | None = None) -> list[NameFacts]:
    """Facts from the names of a job's files, one for each of ``paths``.

    ``pattern``: the user's regular expression whose first group (or group ``rank``) is the rank, searched in the
    whole path. Without one: the rules of this module on the file's name, then on its folders, nearest first. A trailing
    number counts as a rank only if it alone distinguishes sibling files. Raises :class:`SnapshotError` for a bad regex.
    """
    own = _compiled(pattern) if pattern else None
    ranks = [_by_pattern(own, path) if own else _by_rule(path) for path in paths]
    if own is None:
        # Also next to ranks found by a rule: Megatron-Bridge numbers its snapshots, but names the rank of an OOM
        # snapshot.
        rest = [i for i, rank in enumerate(ranks) if rank is None]
        for i, rank in zip(rest, _trailing_numbers([paths[i] for i in rest]), strict=True):
            ranks[i] = rank
    return [NameFacts(rank, _step(path), _is_oom(path)) for path, rank in zip(paths, ranks, strict=True)]


def _places(path: str) -> list[str]:
    """The file's name without endings, then its folder's."""
    return [stem(path), path.replace("\\", "/").rpartition("/")[0].rpartition("/")[2]]


def _step(path: str) -> int | None:
    for place in _places(path):
        for rule in _STEPS:
            if found := rule.search(place):
                return int(found[1])
    return None


def _is_oom(path: str) -> bool:
    folders = path.replace("\\", "/").split("/")[:-1]
    # Torchtitan can have a folder per replica below the step's folder.
    return any(_OOM.search(place) for place in _places(path)) or any(map(_TITAN_OOM.match, folders[-2:]))


def is_digest(path: str) -> bool:
    """Whether a file is a digest by its name."""
    return path.lower().endswith(".digest")


def are_ranks(paths: Sequence[str]) -> bool:
    """Whether files belong to several ranks by their names alone: every name has a rank, and at least two differ."""
    if len(paths) < 2 or len(set(paths)) < len(paths):
        return False
    ranks = [fact.rank for fact in facts_of_names(paths)]
    # Trailing numbers alone may count anything, such as moments of one process.
    return None not in ranks and len(set(ranks)) > 1 and any(_by_rule(path) is not None for path in paths)


def stem(path: str) -> str:
    """A file's name without folders and known endings."""
    name = path.replace("\\", "/").rpartition("/")[2]
    while (lower := name.lower()).endswith(_ENDINGS):
        name = name[: -len(next(ending for ending in _ENDINGS if lower.endswith(ending)))]
    return name


def missing_ranks(ranks: Sequence[int], world_size: int | None) -> list[int]:
    """The ranks of the world that are not in ``ranks``, ascending, at most 10,000. Without a world size, those between
    0 and the highest.
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
    """Which of several snapshots per rank to compare: indices of ``keys``, ascending, one for each rank.

    ``keys``: rank, step, whether memory ran out, path. A snapshot written when memory ran out comes first, since it
    shows the failure. Otherwise all ranks are compared at the latest step that most of them have. Files without a rank
    are all included.
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
    except (re.error, OverflowError, RecursionError) as error:
        raise SnapshotError(f"--rank-pattern {pattern!r}: {error}") from None
    if not compiled.groups:
        raise SnapshotError(f"--rank-pattern {pattern!r}: no group; put the rank into one: 'node\\d+_gpu(\\d+)'")
    return compiled


def _by_pattern(pattern: re.Pattern[str], path: str) -> int | None:
    found = supervision.match(lambda: pattern.search(path.replace("\\", "/")))
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
    """The number at the end of each name, if nothing else distinguishes the files."""
    found = [_TRAILING.match(stem(path)) for path in paths]
    folders = {path.replace("\\", "/").rpartition("/")[0] for path in paths}
    if len(paths) < 2 or len(folders) > 1 or any(match is None for match in found):
        return [None] * len(paths)
    numbers = [int(match[2]) for match in found if match]
    heads = {match[1] for match in found if match}
    return list(numbers) if len(heads) == 1 and len(set(numbers)) == len(numbers) else [None] * len(paths)
