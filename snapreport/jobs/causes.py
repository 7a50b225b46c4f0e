"""Why a rank has more than its group, where the ratios of its stacks prove it.

Each stack's own maximum is compared with what the group's ranks have: how much larger its allocations are, and how many
more there are. A larger batch makes all activations larger by one factor and leaves the parameters as they are; longer
sequences make attention scores larger by its square; one more layer is more activations of the same size, and more
parameters; one more expert is more parameters, with the tokens divided among more; a second model is all parameters
again. What fits none of these has no cause.
"""

from __future__ import annotations

import re
from functools import reduce
from math import gcd

import numpy as np
from msgspec import Struct

from snapreport.contracts.job import CauseKind
from snapreport.findings.diff_sides import EQUAL, equal
from snapreport.jobs.digest_model import DigestStack
from snapreport.jobs.groups import Group
from snapreport.jobs.outliers import Outlier
from snapreport.jobs.rows import Row
from snapreport.jobs.slopes import fitted_lines
from snapreport.jobs.stack_identity import EMPTY
from snapreport.timeline.operators import SEPARATOR
from snapreport.timeline.own_code import LAUNCHED_FROM

EXACT = 0.0005
"""The factor is the ratio that most bytes have to within this."""
EXPLAINED = 0.95
"""Minimum share of the excess in stacks that follow the rule."""
OWN_ACTIVATIONS = 0.8
"""Minimum share of all activations that a larger batch makes larger: routing to experts makes only a part larger."""
NEGLIGIBLE = 0.002
"""Share of the peak below which a change of a stack proves nothing."""
UNLISTED = 0.01
"""Share of the peak up to which a stack that only this rank lists may be too small to be listed by the others."""
CONSTANT = 1 << 20
"""Bytes of the workspace that cuBLASLt takes in lines of matrix products, whatever their sizes."""
OF_LEAK = 0.5
"""Minimum share of the excess that a leak of this rank alone explains."""
MOST_COPIES = 4
_STATE = ("parameter", "gradient", "optimizer state")
_BACKWARD = ("temporary", "gradient", "unknown")
_ATTENTION = re.compile(r"attn|attention|sdpa|softmax", re.IGNORECASE)
_EXPERT = re.compile(r"expert|moe(?![a-z])|mixture", re.IGNORECASE)


class Cause(Struct, frozen=True):
    """kind: see ``contracts.job.JobCause``. factor: how many times as large, or as many; count: of layers, experts or
    models more, 0 where the ratios do not say. stack: the row of ``Job.stacks`` that a leak is in, else None.
    """

    kind: CauseKind
    factor: float
    count: int = 0
    stack: int | None = None


class Comparison:
    """An outlier's stacks beside its group's, as columns over ``Job.stacks``.

    most, count: Float64 bytes and allocations at each stack's own maximum; expected, expected_count: of the group.
    category: of this rank's allocations, of the others' where it has none.
    """

    def __init__(
        self, rows: list[Row], stack_ids: np.ndarray, stacks: list[DigestStack], outlier: Outlier, group: Group
    ):
        others = [row for row in group.rows if row != outlier.row]
        shape = (len(group.rows), len(stack_ids))
        most, count = np.zeros(shape), np.zeros(shape)
        for place, row in enumerate(group.rows):
            packed = rows[row].packed
            at = np.searchsorted(stack_ids, packed.stack_ids)
            most[place, at], count[place, at] = packed.stack_most, packed.stack_most_count
        own = group.rows.index(outlier.row)
        rest = [place for place, row in enumerate(group.rows) if row in others]
        if group.kind == "slope":
            x = np.array(group.rows, np.float64)
            self.expected, self.expected_count = fitted_lines(x, most)[0][own], fitted_lines(x, count)[0][own]
        else:
            self.expected, self.expected_count = np.median(most[rest], axis=0), np.median(count[rest], axis=0)
        self.most, self.count = most[own], count[own]
        self.digest = rows[outlier.row].packed.read()
        described = {int(stack.identity, 16): stack for stack in self.digest.stacks}
        self.stacks = [described.get(number, stack) for number, stack in zip(stack_ids.tolist(), stacks, strict=True)]
        self.category = np.array([stack.category for stack in self.stacks], dtype=object)
        self.is_named = stack_ids != int(EMPTY, 16)
        self.is_state = np.isin(self.category, _STATE)
        self.more = self.most - self.expected
        self.peak = float(self.digest.peak_allocated)
        # What others lack may be there, but too small to be in their digests.
        is_listed = (self.expected > 0) | (self.most > UNLISTED * self.peak)
        self.is_change = self.is_named & is_listed & (np.abs(self.more) > NEGLIGIBLE * self.peak)
        with np.errstate(divide="ignore", invalid="ignore"):
            self.times = self.most / self.expected
            self.times_as_many = self.count / self.expected_count
            self.times_as_large = self.times / self.times_as_many
        self.others = [rows[row].packed for row in others]

    def named(self, pattern: re.Pattern[str]) -> np.ndarray:
        """Boolean: stacks with such a name in their lines."""
        names = (" ".join((s.name.partition(SEPARATOR)[0], s.file, *s.callers)) for s in self.stacks)
        return np.array([bool(pattern.search(name)) for name in names], bool)

    def explained(self, stacks: np.ndarray, without: np.ndarray | None = None) -> float:
        """The share of all changes, in either direction, that ``stacks`` (Boolean) have of the excess; ``without``: of
        changes that count for nothing.
        """
        is_counted = self.is_change if without is None else self.is_change & ~without
        changed = float(np.abs(self.more[is_counted]).sum())
        return float(np.maximum(self.more, 0)[stacks & self.is_change].sum()) / max(changed, 1.0)


def find_cause(
    rows: list[Row], stack_ids: np.ndarray, stacks: list[DigestStack], outlier: Outlier, group: Group
) -> Cause | None:
    """The cause of an outlier's excess; None where the ratios prove none. ``stack_ids``, ``stacks``: of ``Job``."""
    compared = Comparison(rows, stack_ids, stacks, outlier, group)
    if not compared.is_change.any():
        return None
    return _leak(compared, outlier) or _larger(compared) or _second_model(compared) or _more_parts(compared)


def _leak(compared: Comparison, outlier: Outlier) -> Cause | None:
    """A leak that this rank's own findings report, and those of most others do not."""
    own = [finding for finding in compared.digest.findings if finding.kind == "leak" and finding.severity != "info"]
    found = []
    for finding in own:
        key = ("leak", finding.rule, finding.stack)
        if sum(any(of[0] == key for of in other.findings) for other in compared.others) * 2 < len(compared.others):
            found.append(finding)
    if not found:
        return None
    functions = {finding.stack for finding in found}
    is_leak = np.array([_function(stack.name) in functions for stack in compared.stacks], bool)
    excess = float(np.maximum(compared.more, 0)[is_leak].sum())
    if max(excess, sum(finding.bytes for finding in found)) < OF_LEAK * outlier.bytes_above:
        return None
    stack = int(np.argmax(np.where(is_leak, compared.more, -1.0))) if is_leak.any() else None
    return Cause("leak", 0.0, 0, stack)


def _function(line: str) -> str:
    """``forward dit.py`` of ``forward dit.py:83 · linear from train.py:42``."""
    return line.partition(LAUNCHED_FROM)[0].partition(SEPARATOR)[0].rpartition(":")[0]


def _larger(compared: Comparison) -> Cause | None:
    """A larger batch or longer sequences: as many activations, all larger by one factor, and the same parameters."""
    if not _is_unchanged(compared, compared.category == "parameter"):
        return None
    is_larger = compared.is_change & equal(compared.times_as_many, 1.0) & ~compared.is_state
    is_activation = compared.is_named & np.isin(compared.category, ("activation", "input"))
    if not is_larger.any():
        return None
    ratios = sorted(set(compared.times[is_larger].tolist()))
    exactly = [is_larger & (np.abs(compared.times / ratio - 1) < EXACT) for ratio in ratios]
    best = ratios[int(np.argmax([compared.more[exact].sum() for exact in exactly]))]
    scores = _scores_ratio(compared)
    for factor in dict.fromkeys((best, scores**0.5)):
        if factor < 1 + 2 * EQUAL:
            continue
        is_linear = is_larger & _has_factor(compared, factor)
        # A line of the backward pass makes both gradients, which stay as they are, and temporaries.
        is_both = ~is_linear & np.isin(compared.category, _BACKWARD) & (compared.times > 1) & (compared.times < factor)
        if compared.explained(is_linear, is_both) >= EXPLAINED:
            larger = is_linear & is_activation
            if compared.expected[larger].sum() < OWN_ACTIVATIONS * compared.expected[is_activation].sum():
                return None
            if scores and not equal(scores, factor):
                return None
            # Scores that grow like everything else prove a batch. Where attention keeps none, both look alike.
            is_batch = scores or not compared.named(_ATTENTION).any()
            return Cause("batch" if is_batch else "batch or sequence", factor)
        # A line of attention may make both scores and what is as large as its input.
        between = (compared.times > factor) & (compared.times < factor**2 * (1 + EQUAL))
        is_sequence = equal(scores, factor**2) and is_linear.any()
        if is_sequence and compared.explained(is_linear | (is_larger & between), is_both) >= EXPLAINED:
            return Cause("sequence", factor)
    return None


def _has_factor(compared: Comparison, factor: float) -> np.ndarray:
    """Boolean: stacks that are ``factor`` times as large, but for a workspace."""
    constant = (factor * compared.expected - compared.most) / max(factor - 1, EQUAL)
    return np.asarray(equal(compared.times, factor) | equal(constant, CONSTANT))


def _scores_ratio(compared: Comparison) -> float:
    """How many times as large a matrix of attention scores is as on the other ranks; 0 where none are in memory."""
    expected = float(np.median([other.digest.scores for other in compared.others]))
    return compared.digest.scores / expected if expected else 0.0


def _is_unchanged(compared: Comparison, stacks: np.ndarray) -> bool:
    change = float(np.abs(compared.more[stacks]).sum())
    return change < max(EQUAL * float(compared.expected[stacks].sum()), NEGLIGIBLE * compared.peak)


def _second_model(compared: Comparison) -> Cause | None:
    """All parameters again, in bytes and in number, without gradients and state of the optimizer."""
    is_parameter = compared.category == "parameter"
    size, count = compared.expected[is_parameter].sum(), compared.expected_count[is_parameter].sum()
    if not size or not _is_unchanged(compared, np.isin(compared.category, ("gradient", "optimizer state"))):
        return None
    # A copy may be recognised as parameters or not.
    is_new = (compared.category == "unknown") & (compared.expected == 0)
    added = compared.count - compared.expected_count
    for is_copy in (is_parameter, is_parameter | is_new):
        more, more_count = compared.more[is_copy & compared.is_named].sum(), added[is_copy & compared.is_named].sum()
        copies = round(float(more / size))
        is_whole = abs(more - copies * size) < EQUAL * size and abs(more_count - copies * count) < max(EQUAL * count, 1)
        if 1 <= copies <= MOST_COPIES and is_whole:
            return Cause("model", 1.0 + copies, copies)
    return None


def _more_parts(compared: Comparison) -> Cause | None:
    """More layers or experts: more parameters, and of some lines' activations more, by one ratio."""
    is_parameter = compared.category == "parameter"
    if compared.more[is_parameter].sum() <= max(
        NEGLIGIBLE * compared.peak, EQUAL * compared.expected[is_parameter].sum()
    ):
        return None
    added = np.rint(compared.count - compared.expected_count)
    # The optimizer's temporaries are as many as the parameters.
    of_each = compared.expected_count - compared.expected_count[is_parameter].sum()
    is_state = compared.is_state | ((np.abs(of_each) < 1) & (added == added[is_parameter].sum()))
    is_added = compared.is_named & ~is_state & (added > 0)
    is_more = is_added & compared.is_change & equal(compared.times_as_large, 1.0)
    is_divided = is_added & equal(compared.times, 1.0) & (compared.expected > NEGLIGIBLE * compared.peak)
    if not is_more.any():
        # The tokens are divided among more experts: as many bytes, in more and smaller tensors.
        is_proved = is_divided.any() and compared.explained(is_state) >= EXPLAINED
        return _parts("experts", compared, is_divided, added) if is_proved else None
    if compared.named(_EXPERT)[is_more].all():
        is_proved = compared.explained(is_more | is_state) >= EXPLAINED
        return _parts("experts", compared, is_more, added) if is_proved else None
    ratio = _common(compared, is_more)
    is_layer = is_more & equal(compared.times_as_many, ratio)
    changed = compared.is_change & ~is_state
    if compared.more[is_layer].sum() < EXPLAINED * np.abs(compared.more[changed]).sum():
        return None
    return _parts("layers", compared, is_layer, added)


def _parts(kind: CauseKind, compared: Comparison, stacks: np.ndarray, added: np.ndarray) -> Cause:
    """So many more layers or experts, as the numbers of allocations in ``stacks`` and of parameters say."""
    counted = stacks | (compared.is_named & (compared.category == "parameter"))
    divisor = reduce(gcd, (int(number) for number in added[counted] if number > 0), 0)
    return Cause(kind, _common(compared, stacks), divisor if divisor == 1 else 0)


def _common(compared: Comparison, stacks: np.ndarray) -> float:
    """The ratio of counts that most bytes of ``stacks`` have."""
    ratios, weights = compared.times_as_many[stacks], compared.most[stacks]
    return float(ratios[int(np.argmax(equal(ratios[:, None], ratios) @ weights))])
