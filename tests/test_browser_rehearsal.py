"""Views are rendered once before they are needed: unnoticed, and they look as they would have without it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import numpy as np
from PIL import Image

VIEWS = ("segments", "reserved", "flame", "table", "events")
# What is put into the container where views are rehearsed, and whether it could be seen, read aloud or clicked there.
WATCH = """
window.rehearsed = []
new MutationObserver((changes) => {
  for (const { target, addedNodes } of changes) {
    if (!target.classList?.contains('prerender')) continue
    const css = getComputedStyle(target)
    const isRoomy = target.clientWidth > 300 && target.clientHeight > 300
    for (const view of addedNodes) rehearsed.push({
      view: view.className, isUnseen: css.visibility === 'hidden',
      isInert: target.inert && target.ariaHidden === 'true', isRoomy,
      size: [target.clientWidth, target.clientHeight],
    })
  }
}).observe(document, { childList: true, subtree: true })
"""


def test_each_view_once_and_unseen(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(report_of(corpus.path_of("training")), before=WATCH, is_rehearsed=True)
    rehearsed = opened.js("rehearsed")
    assert len(rehearsed) == len({seen["view"] for seen in rehearsed}) == len(VIEWS)
    assert all(seen["isUnseen"] and seen["isInert"] and seen["isRoomy"] for seen in rehearsed)
    assert opened.js("document.querySelectorAll('.prerender, .list-row').length") == 0, "it is cleared away"
    assert opened.view()["view"] == "timeline"
    assert opened.js("location.hash") == ""
    assert opened.js("document.querySelector('[aria-live=polite]').textContent") == ""


def test_each_view_at_the_size_at_which_it_is_shown(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    """Nothing has to be laid out or painted again: also where no legend lies below a view. The panel of fixes, which is
    beside the timeline alone, is closed.
    """
    opened = open_report(report_of(corpus.path_of("training")), "#fix.open=no", before=WATCH, is_rehearsed=True)
    rehearsed = [seen["size"] for seen in opened.js("rehearsed")]
    shown = []
    for view in ("reserved", "table", "segments", "events", "flame"):
        opened.set_view(view=view)
        shown.append(opened.js("(stage => [stage.clientWidth, stage.clientHeight])(document.querySelector('.stage'))"))
    assert rehearsed == shown
    assert len({height for _, height in shown}) == 2, "some have a legend"


def test_what_is_seen_is_as_without(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    """Compared pixel by pixel with a page that was opened on the view."""
    report = report_of(corpus.path_of("training"))
    opened = open_report(
        report, is_rehearsed=True, reduced_motion="reduce"
    )  # no animation is running when a picture is taken
    for view in VIEWS:
        straight = open_report(report, f"#view={view}", reduced_motion="reduce")
        opened.set_view(view=view)
        seen, wanted = (
            np.asarray(Image.open(io.BytesIO(each.page.screenshot())), np.int16) for each in (opened, straight)
        )
        # The edge of a canvas may be blended differently by 2 of 255.
        assert abs(seen - wanted).max() <= 4, view
        straight.page.context.close()


def test_none_where_there_is_no_room(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    """Opened on the summary, which hides the container; the views appear when requested."""
    opened = open_report(report_of(corpus.path_of("training")), "#view=summary", before=WATCH, is_rehearsed=True)
    assert opened.js("rehearsed") == []
    opened.set_view(view="table")
    assert opened.js("document.querySelectorAll('.list-row').length") > 5
