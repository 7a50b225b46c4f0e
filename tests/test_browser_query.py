"""Queries in the page: the same answers and errors as Python's and the oracle's; the search box by keyboard."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
import query_oracle
from test_query import BAD, PIECES, ids

import snapreport
from snapreport import QueryError
from snapreport.number_format import bytes_text
from snapreport.snapshot import Snapshot

REAL = ("annotations", "attention", "expandable", "private", "synthetic", "torch20")
SNAPSHOTS = [
    "small", "oom", "pools", "no-times", "overlap", "training",
    *(name for name in corpus.real_names() if name.startswith(REAL)),
]  # fmt: skip
ASK = """([device, queries]) => Promise.all(queries.map(query => snapreport.search(device, query).then(
    found => [found.ids, found.count, found.bytes],
    error => [error.name, error.reason, error.position, error.length])))"""


def of_python(snapshot: Snapshot, device: int, query: str) -> list[Any]:
    """The expected answer of the page: positions in UTF-16 units, texts without what a terminal's line cannot hold."""
    try:
        found = ids(snapshot, query, device)
    except QueryError as error:
        before, bad = query[: error.position], query[error.position : error.position + error.length]
        return ["QueryError", error.reason, units(before), units(bad)]
    return [found, len(found), int(snapshot.allocations(device)[found]["size"].sum())]


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def random_queries(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    known = [query for query, _ in query_oracle.QUERIES]
    pieces = [*(piece for piece in PIECES if piece != "\ud800"), *known, " ", " ", " "]
    return ["".join(dice.choices(pieces, k=dice.randint(1, 6)))[:300] for _ in range(count)]


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_page_python_and_oracle_agree(
    name: str, report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    path = corpus.path_of(name)
    opened = borrow_report(report_of(path))
    snapshot = snapreport.load(path)
    for place in query_oracle.places(corpus.replayed(path), snapshot):
        pairs = [*query_oracle.QUERIES, *query_oracle.queries_of(place)]
        answers = opened.js(ASK, [place.number, [query for query, _ in pairs]])
        for (query, predicate), answer in zip(pairs, answers, strict=True):
            assert answer[0] == query_oracle.expected(place, predicate), f"{query!r} on device {place.number}"
            assert answer == of_python(snapshot, place.number, query), query


def test_random_and_bad_queries_agree(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    path = corpus.path_of("compiled")
    opened, snapshot = borrow_report(report_of(path)), snapreport.load(path)
    queries = [query for query, _ in BAD] + random_queries(600, 5)
    answers = opened.js(ASK, [0, queries])
    refused = 0
    for query, answer in zip(queries, answers, strict=True):
        assert answer == of_python(snapshot, 0, query), repr(query)
        refused += answer[0] == "QueryError"
    assert 100 < refused < len(queries) - 100


def test_folding_is_the_same_for_every_character(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """Lower case is that of Unicode in both; a query of one capital letter finds the small one."""
    opened = borrow_report(report_of(corpus.path_of("small")))
    ranges = [
        *range(0x20, 0x600),
        *range(0x1E00, 0x2200),
        *range(0x2C00, 0x2E00),
        *range(0xA640, 0xA700),
        *range(0xFF21, 0xFF5B),
    ]
    text = "".join(map(chr, ranges))
    assert opened.js("text => [...text].map(c => c.toLowerCase())", text) == [c.lower() for c in text]


def test_set_view_takes_good_queries_only(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("small")))
    assert opened.set_view(query="size>1KiB live:peak")["query"] == "size>1KiB live:peak"
    message = opened.js("snapreport.setView({query: 'a size:big', select: 3}).then(() => null, error => error.message)")
    assert "character 8" in message and '"big" is no size' in message
    view = opened.view()
    assert view["query"] == "size>1KiB live:peak" and view["select"] is None
    assert opened.set_view(query="")["query"] == ""
    assert "text" in opened.js("snapreport.search(0, 5).then(() => null, error => error.message)")


# The box


def typed(opened: Any, text: str) -> None:
    opened.page.keyboard.press("/")
    opened.page.keyboard.press("Control+A")
    opened.page.keyboard.type(text)


def first_is(opened: Any, label: str) -> None:
    """Waits until the first suggestion is ``label``."""
    opened.until("label => document.querySelector('.search-list .label')?.textContent === label", label)


def status(opened: Any) -> str:
    return opened.page.locator(".search-status").inner_text()


@pytest.fixture
def training(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> Any:
    return borrow_report(report_of(corpus.path_of("training")))


def test_typing_sets_the_query_and_tells_what_matches(training: Any) -> None:
    place = place_of("training")
    typed(training, "size>1MiB -live:end")
    training.until("snapreport.getView().query === 'size>1MiB -live:end'")
    want = [r for r in place.rows if r.a.size > query_oracle.MIB and r.a.free_event >= 0]
    live = sum(r.a.size for r in want if r.lives(place.peak))
    training.until(
        "text => document.querySelector('.search-status').textContent.startsWith(text)", f"{len(want):,} matches"
    )
    assert "at the peak" in status(training)
    assert status(training).split("; ")[1].split(" at ")[0] == bytes_text(live)
    event = place.replay.peak_event // 2
    training.set_view(at=event)
    then = sum(r.a.size for r in want if r.lives(event))
    assert status(training).split("; ")[1] == f"{bytes_text(then)} at event {event:,}"
    training.page.keyboard.press("Escape")
    training.until("snapreport.getView().query === ''")
    assert training.js("document.activeElement.classList.contains('search-input')") and status(training) == ""
    assert training.page.locator(".search-list").is_hidden(), "suggestions for a text that is gone"
    training.page.keyboard.press("Escape")
    assert not training.js("document.activeElement.classList.contains('search-input')")


def test_a_bad_query_is_marked_and_changes_nothing(training: Any) -> None:
    training.set_view(query="size>1MiB")
    assert training.page.locator(".search-input").input_value() == "size>1MiB"
    typed(training, "")
    training.page.locator(".search-input").fill("forward size:big live:peak")
    training.until("document.querySelector('.search-mirror mark')?.textContent === 'big'")
    assert training.page.locator(".search-message").inner_text().startswith('"big" is no size')
    assert training.js("document.querySelector('.search-input').getAttribute('aria-invalid')") == "true"
    assert training.view()["query"] == "size>1MiB"
    # The mark lies under the wrong letters: it ends where a text of as many letters ends.
    box = training.page.locator(".search-input").bounding_box()
    mark = training.page.locator(".search-mirror mark").bounding_box()
    letter = mark["width"] / 3
    scrolled = training.js("document.querySelector('.search-input').scrollLeft")
    assert abs(mark["x"] - (box["x"] + 10 + len("forward size:") * letter - scrolled)) < 1
    # An unfinished query is reported once typing stops.
    training.page.locator(".search-input").fill("category:")
    training.until("document.querySelectorAll('.search-list li').length > 1")
    top = training.page.locator(".search-list").bounding_box()["y"]
    training.until("document.querySelector('.search-message').textContent === 'category needs a value'")
    assert training.page.locator(".search-list").bounding_box()["y"] == top, "what is about to be clicked does not move"
    training.page.locator(".search-input").fill("size>2MiB")
    training.until("snapreport.getView().query === 'size>2MiB'")
    assert training.page.locator(".search-message").is_hidden()


def test_a_bad_query_in_a_link_is_told(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(report_of(corpus.path_of("small")), "#query=size%3Ebig")
    assert opened.page.locator(".search-input").input_value() == "size>big"
    assert opened.page.locator(".search-message").is_visible() and status(opened) == ""


def test_suggestions_by_keyboard(training: Any) -> None:
    place = place_of("training")
    typed(training, "cat")
    options = training.page.locator(".search-list [role=option]")
    first_is(training, "category:")
    training.page.keyboard.press("ArrowDown")
    active = training.js("document.querySelector('.search-input').getAttribute('aria-activedescendant')")
    assert training.page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    training.page.keyboard.press("Enter")
    assert training.page.locator(".search-input").input_value() == "category:"
    training.until("document.querySelector('.search-list .label')?.textContent !== 'category:'")
    held: dict[str, int] = {}
    for r in place.rows:
        if r.lives(place.peak):
            held[r.own["category"]] = held.get(r.own["category"], 0) + r.a.size
    best = max(held, key=held.__getitem__)
    assert options.first.locator(".label").inner_text() == f"category:{best}"
    assert options.first.locator(".detail").inner_text() == f"{bytes_text(held[best])} at the peak"
    training.page.keyboard.press("ArrowDown")
    training.page.keyboard.press("Tab")
    value = training.page.locator(".search-input").input_value()
    assert value.strip() == (f'category:"{best}"' if " " in best else f"category:{best}")
    training.until("query => snapreport.getView().query === query", value.strip())
    assert training.page.locator(".search-list").is_hidden()


def test_functions_are_ranked_by_bytes_at_the_peak(training: Any) -> None:
    place = place_of("training")
    typed(training, "func:for")
    first_is(training, "func:forward")
    want = sum(
        r.a.size for r in place.rows if r.lives(place.peak) and r.frame("forward", lambda _, __, c: c == "forward")
    )
    assert training.page.locator(".search-list .detail").first.inner_text() == f"{bytes_text(want)} at the peak"


def test_enter_steps_through_the_matches_by_size(training: Any) -> None:
    place = place_of("training")
    typed(training, "category:activation live:peak")
    training.until("snapreport.getView().query === 'category:activation live:peak'")
    rows = [(i, r) for i, r in enumerate(place.rows) if r.own["category"] == "activation" and r.lives(place.peak)]
    order = [i for i, r in sorted(rows, key=lambda row: (-row[1].a.size, row[0]))]
    seen = []
    for key in ("Enter", "Enter", "Enter", "Shift+Enter"):
        training.page.keyboard.press(key)
        training.settle()
        seen.append(training.view()["select"])
    assert seen == [order[0], order[1], order[2 % len(order)], order[1]]
    assert status(training).startswith(f"2 of {len(order):,} matches")


def test_keys_mean_what_was_typed_before_them(training: Any) -> None:
    """Also where they arrive faster than a frame."""
    place = place_of("training")
    training.set_view(query="size>4MiB")
    largest = max((r for r in place.rows if r.own["category"] == "gradient"), key=lambda r: r.a.size)
    training.js("""() => {
        const box = document.querySelector('.search-input')
        const press = key => box.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }))
        const type = text => {
            box.value = text
            box.setSelectionRange(text.length, text.length)
            box.dispatchEvent(new Event('input'))
        }
        box.focus()
        type('catego')
        press('ArrowDown')
        press('Enter')
        type(box.value + 'gradient')
        press('Enter')
    }""")
    view = training.view()
    assert view["query"] == "category:gradient" and view["select"] == place.rows.index(largest)


def test_queries_of_steps_find_what_is_shown_of_them(training: Any) -> None:
    steps = snapreport.load(corpus.path_of("training")).steps(0)
    training.set_view(colour="step")
    view = training.js("snapreport.debug.view()")
    assert {entry["query"] for entry in view["legend"]["entries"]} == {
        "-step:0..",
        *(f"step:{number}" for number in steps["step"]),
    }
    for entry in view["legend"]["entries"]:
        found = training.js("query => snapreport.search(0, query)", entry["query"])["ids"]
        assert found == [i for i, key in enumerate(view["colouring"]["keys"]) if key == entry["key"]]
    training.set_view(view="table", options={"table.group": "step"})
    training.page.get_by_text(steps["name"][1], exact=True).first.click()
    assert training.view()["query"] == f"step:{steps['step'][1]}"


def test_steps_are_suggested(training: Any) -> None:
    typed(training, "step:")
    first_is(training, "step:0")
    labels = training.page.locator(".search-list .label").all_inner_texts()
    names = training.page.locator(".search-list .detail").all_inner_texts()
    assert labels[:4] == [f"step:{i}" for i in range(4)] and names[:4] == [f"ProfilerStep#{i}" for i in range(4)]
    typed(training, "step:optimizer.s")
    training.until("document.querySelector('.search-list .label')?.textContent.startsWith('step:Optimizer.step')")
    training.page.keyboard.press("ArrowDown")
    training.page.keyboard.press("Enter")
    training.until("snapreport.getView().query.startsWith('step:Optimizer.step')")
    want = sum(
        r.device.in_span(r.a.alloc_event, "optim", lambda name: "optimizer.step" in name)
        for r in place_of("training").rows
    )
    training.until("text => document.querySelector('.search-status').textContent.startsWith(text)", f"{want:,} matches")


def test_a_step_that_is_not_there_is_told(training: Any) -> None:
    training.set_view(query="step:99")
    assert status(training).startswith("0 matches") and "no step of this device has such a number" in status(training)


def test_examples_of_the_help_can_be_read(training: Any) -> None:
    training.page.locator(".search-help-button").click()
    examples = training.page.locator(".search-help dt button")
    texts = examples.all_inner_texts()
    assert len(texts) > 8
    for text in texts:
        snapreport.load(corpus.path_of("small")).query(text)
    examples.nth(1).click()
    training.until("query => snapreport.getView().query === query", texts[1])
    assert training.page.locator(".search-help").is_hidden()


@pytest.mark.parametrize("size", [{"width": 360, "height": 640}, {"width": 1300, "height": 700}])
def test_the_box_fits(size: dict[str, int], report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("training")), viewport=size)
    typed(opened, "lin")
    opened.until("document.querySelectorAll('.search-list li').length > 1")
    for what in (".search-input", ".search-list", ".search-help-button"):
        box = opened.page.locator(what).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= size["width"], what


def place_of(name: str) -> query_oracle.Place:
    path = corpus.path_of(name)
    return query_oracle.places(corpus.replayed(path), snapreport.load(path))[0]
