"""Training steps: the events of each. The rules that detect them are data, ``steps.toml``."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np
import polars as pl

from snapreport.memoize import memoize
from snapreport.reading.recording import ACTIONS, Recording
from snapreport.reading.stack_marks import stacks_with
from snapreport.timeline.annotations import clock_of, regions_of_all
from snapreport.timeline.frame_search import frames_matching
from snapreport.timeline.lifetimes import ALLOC, action_codes, allocates
from snapreport.timeline.own_code import own_frames
from snapreport.timeline.phases import BACKWARD, stack_phases

SOURCES = ("recorder", "annotation", "metadata", "optimizer", "stack")
STEPS_SCHEMA: dict[str, pl.DataType] = {
    "step": pl.Int64(), "name": pl.String(), "first_event": pl.Int32(), "last_event": pl.Int32(),
    "source": pl.Enum(SOURCES),
}  # fmt: skip
_MAX_STEP_NUMBER = 2**53  # larger numbers in names are not step numbers
_MANY_NAMES = 500
_MIN_CYCLES = 3  # of several optimizers: fewer may be a coincidence
_MIN_REST_SHARE = 0.05  # minimum share of a step's lines for events after the last optimizer step to be a step


@functools.cache
def _rules() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(resources.files(__package__).joinpath("steps.toml").read_text(encoding="utf-8"))


def device_steps(recording: Recording, events: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The steps of a device: ``step`` Int64 (its number), ``name`` String, ``first_event``, ``last_event`` Int32,
    ``source`` Enum.

    Ascending, without overlap; no row if nothing shows steps. ``events``: the device's; ``spans``: its annotated ones
    (see ``annotations.py``). If these contain no step, those of other devices are used, since the program is the same.
    """
    if not len(events):
        return _no_steps("annotation")
    if recording.recorder is not None:
        steps = _from_recorder(recording.recorder.steps, events)
        if len(steps):
            return steps
    # Computed only if the device's own spans have none: most snapshots have one device.
    spans_of: list[Callable[[], pl.DataFrame]] = [lambda: spans] if len(spans) else []
    if len(recording.annotations):
        spans_of.append(lambda: regions_of_all(recording, events))
    for source in spans_of:
        steps = _counted(source(), len(events))
        if len(steps):
            return steps
    steps = _from_metadata(events)
    if len(steps):
        return steps
    for source in spans_of:
        steps = _from_optimizer(recording, source(), events)
        if len(steps):
            return steps
    return _from_stacks(recording, events)


@functools.cache
def _no_steps(source: str) -> pl.DataFrame:
    return _table([], [], [], [], source)


def _table(number: Any, name: Any, first: Any, last: Any, source: str) -> pl.DataFrame:
    table = pl.DataFrame(
        {"step": number, "name": name, "first_event": first, "last_event": last},
        schema={key: dtype for key, dtype in STEPS_SCHEMA.items() if key != "source"},
    )
    return table.with_columns(source=pl.lit(source, pl.Enum(SOURCES)))


def _from_recorder(ends: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Steps between the step ends of snapreport's recorder, counted from 0 as in its file names."""
    clock = clock_of(events)
    if clock is None or ends.is_empty():
        return _no_steps("recorder")
    last = np.searchsorted(clock, ends["time_us"].to_numpy(), "right").astype(np.int64) - 1
    number = ends["step"].to_numpy() - 1
    first = np.append(0 if number[0] == 0 else last[0] + 1, last[:-1] + 1)
    names = [f"step {n}" for n in number.tolist()]
    requests = _requests(events)
    if len(requests) and requests[-1] > last[-1]:
        number, first = np.append(number, number[-1] + 1), np.append(first, last[-1] + 1)
        last = np.append(last, len(events) - 1)
        names.append(f"step {number[-1]} (unfinished)")
    else:  # only frees follow: the program ends
        last = np.append(last[:-1], len(events) - 1)
    inside = np.flatnonzero(last >= np.maximum(first, 0))  # the trace may have begun later
    return _table(number[inside], [names[i] for i in inside], first[inside], last[inside], "recorder")


def _requests(events: pl.DataFrame) -> np.ndarray:
    """Int64: the events that allocate, or fail to."""
    return np.flatnonzero(np.isin(action_codes(events), [ALLOC, ACTIONS.index("oom")]))


def _counted(spans: pl.DataFrame, events: int) -> pl.DataFrame:
    """Spans whose names have step numbers, by the first rule that matches any."""
    for rule in _rules()["annotation"]:
        numbers = _numbers(spans["name"], rule["name"])
        if numbers.null_count() == len(numbers):
            continue
        table = (
            spans.with_columns(step=numbers)
            .filter(pl.col("step").is_not_null())
            # Several threads may name the same step.
            .group_by("step", "name", maintain_order=True)
            .agg(pl.col("first_event").min(), pl.col("last_event").max())
            .sort("first_event", "step", maintain_order=True)
        )
        # A step ends when the next one begins, even if its end is not recorded.
        following = table["first_event"].shift(-1).fill_null(events)
        last = pl.min_horizontal(pl.col("last_event"), pl.lit(following) - 1)
        table = table.with_columns(last_event=pl.max_horizontal(last, pl.col("first_event") - 1))
        return _table(table["step"], table["name"], table["first_event"], table["last_event"], "annotation")
    return _no_steps("annotation")


def _numbers(names: pl.Series, pattern: str) -> pl.Series:
    """Int64 number in each name, null if the pattern does not match. Checks each distinct name once."""
    matches = re.compile(pattern)
    known = {}
    distinct = names.drop_nulls().unique()
    # Python takes ten times as long to find no number in 300,000 names of requests, polars to compile for a few.
    if len(distinct) > _MANY_NAMES:
        distinct = distinct.filter(distinct.str.contains(pattern))
    for name in distinct.to_list():
        found = matches.search(name)
        if found and (number := int(found[1][:17])) < _MAX_STEP_NUMBER:
            known[name] = number
    return names.replace_strict(known, default=None, return_dtype=pl.Int64) if known else pl.Series(
        names.name, [None], dtype=pl.Int64).new_from_index(0, len(names))  # fmt: skip


def _from_metadata(events: pl.DataFrame) -> pl.DataFrame:
    metadata = events["user_metadata"]
    if metadata.null_count() < len(metadata):
        for rule in _rules()["metadata"]:
            numbers = _numbers(metadata, rule["name"])
            known = np.flatnonzero(numbers.is_not_null().to_numpy())
            if not len(known):
                continue
            values = numbers.gather(known).to_numpy()
            begins = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
            first = known[begins]
            number = values[begins]
            names = [f"step {n}" for n in number.tolist()]
            return _table(number, names, first, np.append(first[1:], len(events)) - 1, "metadata")
    return _no_steps("metadata")


def _from_optimizer(recording: Recording, spans: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    for rule in _rules()["optimizer"]:
        ends = spans.filter(pl.col("name").str.contains(rule["name"]) & pl.col("ends"))
        if ends.is_empty():
            continue
        often = ends.group_by("name").agg(count=pl.len(), latest=pl.col("last_event").max())
        name = often.sort("count", "latest", "name")["name"][-1]
        calls = ends.filter(pl.col("name") == name).group_by("last_event").agg(pl.col("first_event").min())
        calls = calls.sort("last_event")
        first, last = (calls[key].to_numpy() for key in ("first_event", "last_event"))
        stack = events["stack"].to_numpy()
        births = np.flatnonzero(allocates(events) & (stack > 0))
        # The line that calls: that of the call's last allocation, -1 if it has none.
        place = np.searchsorted(births, last, "right") - 1
        has_any = np.append(births, -1)[place] >= first
        caller = np.full(len(last), -1, np.int64)
        caller[has_any] = own_frames(recording)[stack[births[place[has_any]]]]
        # A backward pass whose hooks step each parameter has many calls of one step.
        others = births[~stack_phases(recording).runs(BACKWARD)[stack[births]]]
        is_last = np.searchsorted(others, first[1:]) > np.searchsorted(others, last[:-1], "right")
        if is_last.any():
            last, caller = (column[np.append(is_last, True)] for column in (last, caller))
        return _ending_at(last[_of_last_optimizer(caller)], events, "optimizer")
    return _no_steps("optimizer")


def _from_stacks(recording: Recording, events: pl.DataFrame) -> pl.DataFrame:
    stack = events["stack"].to_numpy()
    every = np.flatnonzero(allocates(events) & (stack > 0))
    backward = stack_phases(recording).runs(BACKWARD)
    for rule, of_optimizer in zip(_rules()["stack"], _optimizer_stacks(recording), strict=True):
        births = every
        if (of_optimizer & backward)[stack[every]].any():
            # Hooks of the backward pass step each parameter: many calls of one step.
            births = every[(of_optimizer | ~backward)[stack[every]]]
        mine = np.flatnonzero(of_optimizer[stack[births]])
        if not len(mine):
            continue
        # The last allocation of each call; later frees of the call still belong to the step.
        ends = mine[np.append(np.diff(mine) > rule["apart"] + 1, True)]
        ends = ends[_of_last_optimizer(own_frames(recording)[stack[births[ends]]])]
        # The optimizer's own frees precede the next allocation of other code.
        frees = np.flatnonzero(of_optimizer[stack])
        until = np.append(births, len(events))[ends + 1]
        last = frees[np.searchsorted(frees, until) - 1]
        return _ending_at(last, events, "stack")
    return _no_steps("stack")


@memoize
def _optimizer_stacks(recording: Recording) -> list[np.ndarray]:
    """Bool per stack, for each rule: whether a frame is of an optimizer's step. Computed once for all devices."""
    found = []
    for rule in _rules()["stack"]:
        hit = frames_matching(recording, re.compile(rule["file"]), re.compile(rule["function"]))
        found.append(stacks_with(recording, hit))
    return found


def _of_last_optimizer(caller: np.ndarray) -> np.ndarray:
    """Bool per call of an optimizer: whether it ends a step. ``caller``: Int64, the program's line that calls.

    A program with several optimizers (a GAN's generator and discriminator) calls them in the same order in every step,
    which ends with the last of those that are called least often.
    """
    lines, first, counts = np.unique(caller, return_index=True, return_counts=True)
    rarest = counts == counts.min()
    ends: np.ndarray = caller == lines[rarest][np.argmax(first[rarest])]
    at = np.flatnonzero(ends)
    every = np.ones(len(caller), bool)
    if len(at) < _MIN_CYCLES or (np.diff(at) != at[1] - at[0]).any():
        return every
    cycles = caller[at[0] + 1 : at[-1] + 1].reshape(len(at) - 1, -1)
    return ends if (cycles == cycles[0]).all() else every


def _begins(events: pl.DataFrame, first: np.ndarray, last: np.ndarray) -> bool:
    """Whether the events after the last step come from as many lines as a new step, rather than from the few that log
    or copy something after the optimizer.
    """
    stack = events["stack"].to_numpy()
    lines, after = (len(np.unique(part)) for part in (stack[first[-1] : last[-1] + 1], stack[last[-1] + 1 :]))
    return after >= _MIN_REST_SHARE * lines


def _ending_at(last: np.ndarray, events: pl.DataFrame, source: str) -> pl.DataFrame:
    """Steps by their last events, ascending. Later allocations are an unfinished step, or, if few, the last step's work
    after its optimizer (such as logging).
    """
    last = last[last >= 0]
    if not len(last):
        return _no_steps(source)
    first = np.append(0, last[:-1] + 1)
    names = [f"step {number}" for number in range(1, len(last) + 1)]
    requests = _requests(events)
    rest = len(events) - 1 - last[-1]
    is_long = len(requests) and requests[-1] > last[-1] and rest >= _MIN_REST_SHARE * (last[-1] + 1) / len(last)
    if is_long and _begins(events, first, last):
        first, last = np.append(first, last[-1] + 1), np.append(last, len(events) - 1)
        names.append(f"step {len(last)} (unfinished)")
    else:
        last = np.append(last[:-1], len(events) - 1)
    return _table(np.arange(1, len(last) + 1), names, first, last, source)
