"""The line of progress: what is told of the time left, and of stages side by side."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest

from snapreport import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still until its ``now`` (s) is set; nothing has been shown before."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "_is_slow", False)
    return clock


def pictures(terminal: Terminal) -> list[str]:
    return [text for text in terminal.getvalue().split("\r\x1b[K") if text]


def test_time_left_after_a_slow_beginning(clock: SimpleNamespace) -> None:
    """The first tenth takes as long as half of the rest. From a quarter on, the time left is right within 30%."""
    terminal, told = Terminal(), []
    whole = 10 + 20
    with progress.shown(terminal), progress.stage("reading", 1000, "B") as bar:
        for percent in range(1, 101):
            clock.now = percent if percent <= 10 else 10 + (percent - 10) * 20 / 90
            bar.advance(10)
            told.append((percent, whole - clock.now, pictures(terminal)[-1]))
    assert not any("left" in line for percent, _, line in told if percent < 25)
    for percent, left, line in told:
        if percent >= 25:
            seconds = re.search(r"(\d+) s left of this stage", line)
            assert seconds and abs(int(seconds[1]) - left) <= 0.3 * left + 0.5, (percent, left, line)


def test_the_latest_of_two_stages_has_the_line(clock: SimpleNamespace) -> None:
    terminal = Terminal()
    with progress.shown(terminal), progress.stage("findings", 8, "") as below:
        clock.now = 1
        below.advance(4)
        with progress.stage("packing", 100, "B") as above:
            clock.now = 2
            below.advance(1)
            above.advance(50)
        clock.now = 3
        below.advance(1)
    names = [line.split()[0] for line in pictures(terminal)]
    assert names == ["findings", "packing", "packing", "findings"], "a stage after a slow one is named at once"
    assert "left" not in pictures(terminal)[0] + pictures(terminal)[-1], "what differs in weight foretells nothing"


def test_nothing_elsewhere_than_on_a_terminal(clock: SimpleNamespace) -> None:
    file = io.StringIO()
    with progress.shown(file), progress.stage("reading", 100, "B") as bar:
        clock.now = 5
        bar.advance(50)
    assert file.getvalue() == ""
