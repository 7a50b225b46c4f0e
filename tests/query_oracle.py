"""What queries mean, independently: each query with a predicate over one allocation, written by hand.

Nothing here parses anything, so a mistake of the parser cannot hide. What the oracle of the replay does not know
(category, pool, the number of a stack, steps and annotated spans) is taken from the product's own columns, which other
tests check.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import oracle

Predicate = Callable[["Row"], bool]
Pair = tuple[str, Predicate]


def fold(text: str) -> str:
    return text.lower().replace("\\", "/")


@dataclass
class Row:
    """One allocation: ``a`` as replayed, ``own`` the product's row, ``device`` its device."""

    a: oracle.Allocation
    own: dict[str, Any]
    device: Place

    @property
    def end(self) -> int:
        """The event that ended it; one past the last where there is none."""
        return self.a.free_event if self.a.free_event >= 0 else len(self.device.replay.events)

    @property
    def born_us(self) -> int | None:
        return self.device.us_of(self.a.alloc_event) if self.a.alloc_event >= 0 else None

    def frame(self, name: str, test: Callable[[str, int, str], bool]) -> bool:
        """Whether a frame passes; answers are cached by stack and by the name of the question."""
        key = (name, self.own["stack"])
        if key not in self.device.asked:
            self.device.asked[key] = any(test(fold(f), n, fold(c)) for f, n, c in self.a.stack)
        return self.device.asked[key]

    def word(self, text: str) -> bool:
        texts = (self.a.compile_context, self.a.user_metadata, self.own["category"], self.own["pool"])
        return any(t is not None and text in fold(t) for t in texts) or self.frame(
            f"word {text}", lambda file, _, name: text in file or text in name
        )

    def both(self, first: str, then: str) -> bool:
        own = (self.a.compile_context, self.a.user_metadata, self.own["category"], self.own["pool"])
        return any(t is not None and fits(fold(t), first, then) for t in own) or self.frame(
            f"both {first} {then}", lambda file, _, name: fits(file, first, then) or fits(name, first, then)
        )

    def file(self, text: str) -> bool:
        return self.frame(f"file {text}", lambda file, _, __: text in file)

    def func(self, text: str) -> bool:
        return self.frame(f"func {text}", lambda _, __, name: text in name)

    def freed_by(self, text: str) -> bool:
        return any(text in fold(f) or text in fold(c) for f, _, c in self.a.free_stack if f or c)

    def freed_in_step(self, is_meant: Callable[[int], bool]) -> bool:
        return self.a.free_event >= 0 and self.device.in_step(self.a.free_event, is_meant)

    def lives_in_step(self, is_meant: Callable[[int], bool]) -> bool:
        """Whether it is live after an event of such a step: born before its end, not freed before its beginning."""
        steps = [(first, last) for number, _, first, last in self.device.steps if is_meant(number) and last >= first]
        return any(self.a.alloc_event <= last and self.end > first for first, last in steps)

    def rank(self, is_meant: Predicate) -> int:
        """How many such allocations are larger, or equal and earlier."""
        key = (is_meant.__code__.co_code, is_meant.__code__.co_consts)
        if key not in self.device.asked:
            rows = [row for row in self.device.rows if is_meant(row)]
            order = sorted(range(len(rows)), key=lambda i: (-rows[i].a.size, i))
            self.device.asked[key] = {id(rows[i]): rank for rank, i in enumerate(order)}
        return self.device.asked[key].get(id(self), 1 << 60)

    def lives(self, event: int) -> bool:
        return self.a.lives_at(event)


@dataclass
class Place:
    """A device of a snapshot, with all that predicates need of it."""

    number: int
    replay: oracle.Device
    steps: list[tuple[int, str, int, int]]  # number, name, first and last event
    spans: list[tuple[str, int, int]]
    rows: list[Row] = field(default_factory=list)
    asked: dict[Any, Any] = field(default_factory=dict)
    times: list[int] | None = None

    def us_of(self, event: int) -> int | None:
        return None if self.times is None else self.times[event] - self.times[0]

    @cached_property
    def peak(self) -> int:
        return self.replay.peak_event

    @cached_property
    def ooms(self) -> list[int]:
        return [i for i, e in enumerate(self.replay.events) if e["action"] == "oom"]

    def in_step(self, event: int, is_meant: Callable[[int], bool]) -> bool:
        return any(is_meant(number) and first <= event <= last for number, _, first, last in self.steps)

    def in_span(self, event: int, question: str, is_meant: Callable[[str], bool]) -> bool:
        """Whether an event lies in a step or annotated span with such a name. Spans are cached by the name of the
        question.
        """
        if question not in self.asked:
            spans = [*(step[1:] for step in self.steps), *self.spans]
            self.asked[question] = [(first, last) for name, first, last in spans if is_meant(fold(name))]
        return any(first <= event <= last for first, last in self.asked[question])


def places(devices: dict[int, oracle.Device], ours: Any) -> list[Place]:
    """Every device of a replayed snapshot; ``ours``: the product's."""
    made = []
    for number, device in devices.items():
        steps = ours.steps(number).select("step", "name", "first_event", "last_event").rows()
        spans = ours.spans(number).select("name", "first_event", "last_event").rows()
        place = Place(number, device, steps, spans, times=filled_times(device.events))
        own = ours.allocations(number).select("category", "pool", "stack", "free_stack").rows(named=True)
        place.rows = [Row(a, row, place) for a, row in zip(device.allocations, own, strict=True)]
        made.append(place)
    return made


def filled_times(events: list[dict[str, Any]]) -> list[int] | None:
    """An event without a time has the previous event's; those before the first time have that time."""
    known = [e.get("time_us") for e in events]
    first = next((t for t in known if t is not None), None)
    if first is None:
        return None
    filled = []
    for time in known:
        filled.append(time if time is not None else filled[-1] if filled else first)
    return filled


def expected(place: Place, predicate: Predicate) -> list[int]:
    return [i for i, row in enumerate(place.rows) if predicate(row)]


MIB = 1024**2

# Queries that apply to any snapshot.
QUERIES: list[Pair] = [
    ("", lambda r: True),
    ("   ", lambda r: True),
    ("forward", lambda r: r.word("forward")),
    ("FORWARD", lambda r: r.word("forward")),
    ("-forward", lambda r: not r.word("forward")),
    ("--forward", lambda r: r.word("forward")),
    ("forward linear", lambda r: r.word("forward") and r.word("linear")),
    ("forward AND linear", lambda r: r.word("forward") and r.word("linear")),
    ("backward OR optim", lambda r: r.word("backward") or r.word("optim")),
    ('"or"', lambda r: r.word("or")),
    ("a OR b c", lambda r: r.word("a") or (r.word("b") and r.word("c"))),
    ("(backward OR optim) .py", lambda r: (r.word("backward") or r.word("optim")) and r.word(".py")),
    ("-(backward OR size<1KiB)", lambda r: not (r.word("backward") or r.a.size < 1024)),
    ("( ( e ) )", lambda r: r.word("e")),
    ("e", lambda r: r.word("e")),
    ("at", lambda r: r.word("at")),
    ('"train"', lambda r: r.word("train")),
    ('"a b"', lambda r: r.word("a b")),
    ('"*"', lambda r: r.word("*")),
    ("at::native", lambda r: r.word("at::native")),
    ("std::vector", lambda r: r.word("std::vector")),
    ("operator()(int, float)", lambda r: r.word("operator()(int, float)")),
    ("torch\\nn", lambda r: r.word("torch/nn")),
    ("<module>", lambda r: r.word("<module>")),
    ("é", lambda r: r.word("é")),
    ("no-such-word-anywhere", lambda r: False),
    ("fo*rd", lambda r: r.both("fo", "rd")),
    ("file:torch/nn", lambda r: r.file("torch/nn")),
    ("file:*nn*.py", lambda r: r.frame("nn*.py", lambda f, _, __: fits(f, "nn", ".py"))),
    ('file:"*nn*"', lambda r: r.file("*nn*")),
    ("func:Backward", lambda r: r.func("backward")),
    ("func:*", lambda r: r.frame("any name", lambda _, __, c: c != "")),
    ("-func:*", lambda r: not r.frame("any name", lambda _, __, c: c != "")),
    ("file:train func:step", lambda r: r.file("train") and r.func("step")),
    ("line:42", lambda r: r.frame("42", lambda _, n, __: n == 42)),
    ("line:100..200", lambda r: r.frame("100..200", lambda _, n, __: 100 <= n <= 200)),
    ("line>1000", lambda r: r.frame(">1000", lambda _, n, __: n > 1000)),
    ("line<=0", lambda r: r.frame("<=0", lambda _, n, __: n <= 0)),
    ("size:512", lambda r: r.a.size == 512),
    ("size=512", lambda r: r.a.size == 512),
    ("SIZE>1MiB", lambda r: r.a.size > MIB),
    ("size>=1MiB", lambda r: r.a.size >= MIB),
    ("size<1.5KiB", lambda r: r.a.size < 1536),
    ("size<=1,024", lambda r: r.a.size <= 1024),
    ("size:1KiB..2MiB", lambda r: 1024 <= r.a.size <= 2 * MIB),
    ("size:1MB..", lambda r: r.a.size >= 1_000_000),
    ("size:..1.1KB", lambda r: r.a.size <= 1100),
    ('size:"1 MiB"', lambda r: r.a.size == MIB),
    ("size:0.5", lambda r: False),
    ("size>4TiB", lambda r: r.a.size > 4 * 1024**4),
    ("addr>0", lambda r: r.a.addr + max(r.a.size, 1) > 1),
    ("addr<0x7f0000000000", lambda r: r.a.addr < 0x7F00_0000_0000),
    ("addr:..4294967295", lambda r: r.a.addr <= 0xFFFF_FFFF),
    ("addr>0xffffffffffffffff", lambda r: False),
    ("stream:0", lambda r: r.a.stream == 0),
    ("stream>0", lambda r: r.a.stream is not None and r.a.stream > 0),
    ("stream:-1..7", lambda r: r.a.stream is not None and -1 <= r.a.stream <= 7),
    ("pool:default", lambda r: r.own["pool"] == "(0, 0)"),
    ("pool:0,0", lambda r: r.own["pool"] == "(0, 0)"),
    ('pool:"(0, 1)"', lambda r: r.own["pool"] == "(0, 1)"),
    ("pool:(0, 1)", lambda r: r.own["pool"] == "(0, 1)"),
    ("pool:private", lambda r: r.own["pool"] not in (None, "(0, 0)")),
    ("pool:none", lambda r: r.own["pool"] is None),
    ("device:0", lambda r: r.device.number == 0),
    ("device>0", lambda r: r.device.number > 0),
    ("device:cuda", lambda r: r.device.number >= 0),
    ("device:host", lambda r: r.device.number < 0),
    ("category:activation", lambda r: r.own["category"] == "activation"),
    ("category:STATE", lambda r: r.own["category"] == "optimizer state"),
    ("category:input OR category:temp", lambda r: r.own["category"] in ("input", "temporary")),
    ("origin:traced", lambda r: r.a.origin == "traced"),
    ("origin:preexisting", lambda r: r.a.origin in ("freed", "ghost")),
    ("origin:ghost", lambda r: r.a.origin == "ghost"),
    ("event:100", lambda r: 100 in (r.a.alloc_event, r.a.free_requested_event, r.a.free_event)),
    ("event:100..300", lambda r: 100 <= r.a.alloc_event <= 300),
    ("event<0", lambda r: r.a.alloc_event < 0),
    ("event:-1", lambda r: r.a.alloc_event == -1),
    ("event>=500", lambda r: r.a.alloc_event >= 500),
    ("time:0", lambda r: r.born_us == 0),
    ("time<5ms", lambda r: r.born_us is not None and r.born_us < 5000),
    ("time:1ms..0.5s", lambda r: r.born_us is not None and 1000 <= r.born_us <= 500_000),
    ("time>1.5min", lambda r: r.born_us is not None and r.born_us > 90e6),
    ("-time>0", lambda r: not (r.born_us is not None and r.born_us > 0)),
    ("lifetime<10", lambda r: r.end - max(r.a.alloc_event, -1) < 10),
    ("lifetime:1..3", lambda r: 1 <= r.end - max(r.a.alloc_event, -1) <= 3),
    ("lifetime>1ms", lambda r: (us := lived_us(r)) is not None and us > 1000),
    ("lifetime:..200us", lambda r: (us := lived_us(r)) is not None and us <= 200),
    ("live:start", lambda r: r.lives(-1)),
    ("live:peak", lambda r: r.lives(r.device.peak)),
    ("live:end", lambda r: r.a.free_event < 0),
    ("live:oom", lambda r: any(r.lives(i) for i in r.device.ooms)),
    ("live:50", lambda r: r.lives(50) and len(r.device.replay.events) > 50),
    ("live:50..60", lambda r: any(r.lives(i) for i in range(50, 61) if i < len(r.device.replay.events))),
    ("live:-1", lambda r: r.lives(-1)),
    ("live<0", lambda r: r.lives(-1)),
    ("live:99999999", lambda r: False),
    ("live:end -live:start size>0", lambda r: r.a.free_event < 0 and not r.lives(-1) and r.a.size > 0),
    ("stack:0", lambda r: r.own["stack"] == 0),
    ("stack>2", lambda r: r.own["stack"] > 2),
    ("stack:forward", lambda r: r.frame("either forward", lambda f, _, c: "forward" in f or "forward" in c)),
    ("step:1", lambda r: r.device.in_step(r.a.alloc_event, lambda n: n == 1)),
    ("step:0..2", lambda r: r.device.in_step(r.a.alloc_event, lambda n: 0 <= n <= 2)),
    ("step>1", lambda r: r.device.in_step(r.a.alloc_event, lambda n: n > 1)),
    ("step<=1", lambda r: r.device.in_step(r.a.alloc_event, lambda n: n <= 1)),
    ("-step:0..", lambda r: not r.device.in_step(r.a.alloc_event, lambda n: True)),
    ("step:99999999999999999999", lambda r: False),
    ("step:Step", lambda r: r.device.in_span(r.a.alloc_event, "step", lambda name: "step" in name)),
    ("step:annotation1", lambda r: r.device.in_span(r.a.alloc_event, "one", lambda name: "annotation1" in name)),
    ("step:a*t", lambda r: r.device.in_span(r.a.alloc_event, "a*t", lambda name: fits(name, "a", "t"))),
    ("step:*", lambda r: r.device.in_span(r.a.alloc_event, "*", lambda name: name != "")),
    ("live:step 1", lambda r: r.lives_in_step(lambda n: n == 1)),
    ('live:"step 0..2" size>0', lambda r: r.lives_in_step(lambda n: 0 <= n <= 2) and r.a.size > 0),
    ("freed-in:1", lambda r: r.freed_in_step(lambda n: n == 1)),
    ("freed-in:step 1", lambda r: r.freed_in_step(lambda n: n == 1)),
    ('-freed-in:"STEP 0..2"', lambda r: not r.freed_in_step(lambda n: 0 <= n <= 2)),
    ("(freed-in:step 1) size>512", lambda r: r.freed_in_step(lambda n: n == 1) and r.a.size > 512),
    ("freed-in:Step", lambda r: r.a.free_event >= 0 and r.device.in_span(r.a.free_event, "step", is_step)),
    ("free-stack:0", lambda r: r.own["free_stack"] == 0),
    ("free-stack>2", lambda r: r.own["free_stack"] > 2),
    ("free-stack:forward", lambda r: r.freed_by("forward")),
    ("-free-stack:*", lambda r: not r.freed_by("")),
    ("top:3", lambda r: r.rank(lambda o: True) < 3),
    ("live:peak top:20", lambda r: r.lives(r.device.peak) and r.rank(lambda o: o.lives(o.device.peak)) < 20),
    ("size<1MiB top:5 top:2", lambda r: r.a.size < MIB and r.rank(lambda o: o.a.size < MIB) < 2),
    ("top:2 OR size>4TiB", lambda r: r.rank(lambda o: True) < 2),
    ("-top:4", lambda r: r.rank(lambda o: True) >= 4),
    ("top:999999999", lambda r: True),
    ("kv-cache:7", lambda r: r.word("kv-cache:7")),
    ("operator!=", lambda r: r.word("operator!=")),
    ('"!"', lambda r: r.word("!")),
    ("func:<module>", lambda r: r.func("<module>")),
    ("func=<module>", lambda r: r.func("<module>")),
    ("meta:*", lambda r: bool(r.a.compile_context or r.a.user_metadata)),
    ("meta:a", lambda r: any("a" in fold(t) for t in (r.a.compile_context, r.a.user_metadata) if t)),
    (
        "meta:0/0 OR meta:b",
        lambda r: any(s in fold(t) for t in (r.a.compile_context, r.a.user_metadata) if t for s in ("0/0", "b")),
    ),
]  # fmt: skip


def is_step(name: str) -> bool:
    return "step" in name


def fits(text: str, first: str, then: str) -> bool:
    """Whether ``then`` follows ``first`` in a text."""
    at = text.find(first)
    return at >= 0 and text.find(then, at + len(first)) >= 0


def lived_us(row: Row) -> int | None:
    if row.device.times is None:
        return None
    last = len(row.device.times) - 1
    return row.device.us_of(min(row.end, last)) - row.device.us_of(max(row.a.alloc_event, 0))


def queries_of(place: Place, seed: int = 1) -> list[Pair]:
    """Queries with this device's own addresses, events, stacks, places and times in them."""
    dice = random.Random(seed)
    made: list[Pair] = []
    for number, _, _, _ in dice.sample(place.steps, min(3, len(place.steps))):
        made.append((f"step:{number}", lambda r, n=number: r.device.in_step(r.a.alloc_event, lambda other: other == n)))
        made.append(
            (f"step:{number}..", lambda r, n=number: r.device.in_step(r.a.alloc_event, lambda other: other >= n))
        )
    for name, _, _ in dice.sample(place.spans, min(3, len(place.spans))):
        low = fold(name)
        if low.strip() and low.isprintable() and not set(low) & set('"0123456789.,_-'):
            made.append(
                (
                    f'step:"{name}"',
                    lambda r, w=low: r.device.in_span(r.a.alloc_event, f"span {w}", lambda other: w in other),
                )
            )
    for row in dice.sample(place.rows, min(4, len(place.rows))):
        a, size = row.a, max(row.a.size, 1)
        inside, stack, event = min(a.addr + dice.randrange(size), 2**64 - 1), row.own["stack"], a.alloc_event
        beyond = min(a.addr + 3 * size, 2**64 - 1)
        made += [
            (f"addr:0x{inside:x}", lambda r, x=inside: r.a.addr <= x < r.a.addr + max(r.a.size, 1)),
            (f"addr:{a.addr}", lambda r, x=a.addr: r.a.addr <= x < r.a.addr + max(r.a.size, 1)),
            (
                f"addr:0x{a.addr:x}..0x{beyond:X}",
                lambda r, lo=a.addr, hi=beyond: r.a.addr <= hi and r.a.addr + max(r.a.size, 1) > lo,
            ),
            (f"addr>0x{inside:x}", lambda r, x=inside: min(r.a.addr + max(r.a.size, 1), 2**64) - 1 > x),
            (f"stack:{stack}", lambda r, s=stack: r.own["stack"] == s),
            (f"stack:{stack}..{stack + 5}", lambda r, s=stack: s <= r.own["stack"] <= s + 5),
            (f"size:{a.size} event:{event}..", lambda r, s=a.size, e=event: r.a.size == s and r.a.alloc_event >= e),
            (f"live:{event} size>={a.size}", lambda r, s=a.size, e=event: r.lives(e) and r.a.size >= s),
        ]
        if row.born_us is not None:
            made.append((f"time:{row.born_us / 1e6:.6f}s", lambda r, t=row.born_us: r.born_us == t))
        if a.stream is not None:
            made.append((f"stream:{a.stream}", lambda r, s=a.stream: r.a.stream == s))
        named = [
            (f, n) for f, n, _ in a.stack if f and n >= 0 and not set(f) & set('"*()\u2028\u2029\\') and f.isprintable()
        ]
        if named:
            file, line = dice.choice(named)
            low = fold(file)
            made.append((
                f'file:"{file}:{line}"',
                lambda r, f=low, n=line: r.frame(f"at {f} {n}", lambda g, m, _: (f in g and m == n) or f"{f}:{n}" in g),
            ))  # fmt: skip
    return made
