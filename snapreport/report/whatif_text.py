"""The answer to a what-if as text: a table of runs, the minimum memory, the cards."""

from __future__ import annotations

from collections.abc import Sequence

from snapreport import terminal
from snapreport.allocator.cards import CARDS, CONTEXT
from snapreport.allocator.document import Answer, limits, start_text
from snapreport.allocator.minimum import Minimum
from snapreport.allocator.whatif import WhatIf
from snapreport.contracts.whatif import CardFit, ReplayRun
from snapreport.number_format import bytes_text, count_text, device_name, plural, share_text

_HEADER = ("settings", "peak reserved", "change", "error bar", "peak allocated", "retries", "out of memory")


def whatif_text(name: str, answers: Sequence[Answer]) -> str:
    """One file's answers."""
    parts = [_device(answer) for answer in answers]
    if not parts:
        return terminal.lines([f"{name}: no events on any device: nothing to replay"])
    return "\n\n".join([terminal.lines([name]), *parts])


def _device(answer: Answer) -> str:
    whatif, check = answer.whatif, answer.whatif.check
    timeline = whatif.timeline
    title = device_name(timeline.kind, timeline.device)
    if not check.exact:
        reason = f"The replay under the recorded settings is not exact: {check.reason}."
        return terminal.lines([f"{title}: not replayed. {reason}"])
    compared = f"{plural(check.allocations, 'allocation')}, {plural(check.segment_events, 'segment event')}"
    start = start_text(whatif)
    lines = [
        f"{title}: the same requests and frees, in the same order, on a device with {_capacity_text(whatif)}.",
        *([start] if start else []),
        f"Self-check: the replay under the recorded settings is exact ({compared}).",
        "",
        *_table(answer),
    ]
    least = [_least(found) for found in answer.least]
    if least:
        lines += ["", *least]
        lines += [line for found in answer.least[:1] for line in _cards(answer, found)]
    known = [text for text in limits(whatif) if text != start]
    if known:
        lines += ["", *known]
    return terminal.lines(lines)


def _capacity_text(whatif: WhatIf) -> str:
    if whatif.capacity is None:
        return "unlimited memory"
    room = f"{bytes_text(whatif.capacity)} for the allocator"
    if whatif.capacity_given:
        return room
    return f"{room}, as its {'out-of-memory event says' if whatif.trace.capacity.exact else 'failed requests suggest'}"


def _table(answer: Answer) -> list[str]:
    whatif, runs = answer.whatif, answer.runs
    trace = whatif.trace
    recorded_oom = _failure(next(iter(whatif.timeline.oom_events), None))
    first = (
        "recorded",
        bytes_text(trace.peak_reserved),
        "",
        "",
        bytes_text(whatif.timeline.peak_bytes),
        "",
        recorded_oom,
    )
    rows: list[tuple[str, ...]] = [_HEADER, first]
    base = runs[0].peak_reserved_bytes
    rows += [_row(run, base, index > 0) for index, run in enumerate(runs)]
    lines = terminal.aligned(rows)
    notes = [_error_bar(whatif), *(f"{run.name}: {run.note}." for run in runs if run.note)]
    return [*lines, "", *notes]


def _error_bar(whatif: WhatIf) -> str:
    off = whatif.residual
    wider = f", widened by the {bytes_text(off)} that the replayed recorded settings are off by" if off else ""
    return (
        f"Error bar: the lowest and the highest peak of {whatif.placements} replays, which place new segments at other "
        f'addresses{wider}; "none" where all agree.'
    )


def _failure(event: int | None) -> str:
    return "no" if event is None else "at the start" if event < 0 else f"event {count_text(event)}"


def _row(run: ReplayRun, base: int | None, compared: bool) -> tuple[str, ...]:
    name = run.name if compared else f"{run.name}, replayed"
    if run.without:
        name += f", without {run.without}"
    if run.scale:
        name += f", scale {run.scale}"
    allocated, retries = bytes_text(run.peak_allocated_bytes or 0), count_text(run.retries or 0)
    oom = _failure(run.oom_event)
    peak, low, high = run.peak_reserved_bytes, run.low_bytes, run.high_bytes
    if peak is None or low is None or high is None:
        return (name, "-", "", "", allocated, "-" if run.note else retries, "-" if run.note else oom)
    change = _change(peak, base) if compared and base is not None else ""
    bar = "none" if low == high else f"{bytes_text(low)} to {bytes_text(high)}"
    return (name, bytes_text(peak), change, bar, allocated, retries, oom)


def _card_table(answer: Answer, found: Sequence[Minimum]) -> list[str]:
    """A row per card: bytes usable by the allocator, and what the searched settings leave of them."""
    names = [least.settings.text() for least in found]
    header = ("card", "for the allocator", *("recorded settings" if name == "default" else name for name in names))
    rows: list[tuple[str, ...]] = [header]
    for card in CARDS:
        same = [next(c for c in answer.cards if (c.card, c.settings) == (card.name, name)) for name in names]
        rows.append((f"{card.name} ({card.example})", bytes_text(card.usable), *(_spare(one) for one in same)))
    return terminal.aligned(rows)


def _spare(card: CardFit) -> str:
    spare = card.spare_bytes
    if spare is None:
        return "fails"
    if spare < 0:
        return f"{bytes_text(-spare)} too small"
    return f"{bytes_text(spare)} to spare" if card.fits else "fails, though less would do"


def _change(value: int, base: int) -> str:
    if value == base:
        return "none"
    sign = "-" if value < base else "+"
    return f"{sign}{bytes_text(abs(value - base))} ({sign}{share_text(abs(value - base), base)})"


def _least(found: Minimum) -> str:
    settings = "the recorded settings" if found.settings.text() == "default" else found.settings.text()
    if found.memory is None:
        return f"Under {settings} the trace fails on any device."
    tail = "" if found.monotone else " Some sizes just above it fail again."
    return (
        f"Minimum memory under {settings}: {_exact(found.memory)} for the allocator, with "
        f"{_retries(found.retries)}.{tail}"
    )


def _exact(memory: int) -> str:
    """Formats a multiple of 2 MiB, which three digits of GiB would hide."""
    return f"{memory >> 20:,} MiB" if memory < 1 << 30 else f"{bytes_text(memory)} ({memory >> 20:,} MiB)"


def _retries(count: int) -> str:
    return "no retry" if not count else "1 retry" if count == 1 else f"{count_text(count)} retries"


def _cards(answer: Answer, found: Minimum) -> list[str]:
    """The smallest card that is large enough, and the next smaller one."""
    cards = [card for card in answer.cards if card.settings == found.settings.text()]
    fitting = next((card for card in cards if card.fits), None)
    if fitting is None:
        return [f"The trace fits on none of the cards known, the largest of which has {CARDS[-1].name}."]
    spare = bytes_text(fitting.spare_bytes or 0)
    text = f"The trace fits on a card of {fitting.card} ({fitting.example}) with {spare} to spare"
    smaller = cards[cards.index(fitting) - 1] if cards.index(fitting) else None
    if smaller is not None:
        text += f"; one of {smaller.card} is {bytes_text(-(smaller.spare_bytes or 0))} too small"
    reserve = f"{bytes_text(CONTEXT)} for the CUDA context"
    beside = f"For the allocator: what CUDA reports for the card, less {reserve}. NCCL and other processes take more."
    return [f"{text}.", "", *_card_table(answer, answer.least), beside]
