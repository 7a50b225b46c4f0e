"""Pages that tests hand on: opening a report takes a second, putting an opened one back to its start a tenth of that.

A page is handed on only when it looks as it did when it was new: the view, every visible element with its attributes, its
text and how far it is scrolled. One that does not, or in which a test failed, is closed, and the next test opens its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser

import os
DIFF = os.environ.get("POOL_DIFF")
MOST = 4  # pages kept: each has a process of its own, and the data of its report
# Follows the address without a hash, as the page does when a reader takes the hash away.
START = """() => {
    document.querySelector('.timeline.box-mode') && document.querySelector('button[title^="Zoom to a box"]').click()
    document.activeElement?.blur()
    getSelection().removeAllRanges()
    for (const element of document.querySelectorAll('#app *')) if (element.scrollTop || element.scrollLeft) element.scrollTo(0, 0)
    history.replaceState(history.state, '', location.pathname + location.search)
    dispatchEvent(new HashChangeEvent('hashchange'))
    return snapreport.setView({})
}"""
FOLLOW = """fragment => {
    history.replaceState(history.state, '', fragment)
    dispatchEvent(new HashChangeEvent('hashchange'))
    return snapreport.setView({})
}"""
LOOKS = """() => {
    const seen = [JSON.stringify(snapreport.getView()), location.hash, document.activeElement?.tagName, scrollX, scrollY]
    for (const element of [document.documentElement, ...document.querySelectorAll('body, body *')]) {
        if (!element.checkVisibility()) continue
        const announces = element.classList.contains('offscreen')
        const own = announces ? '' : [...element.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('')
        const attributes = [...element.attributes].map(a => `${a.name}=${a.value.replace(/ ?cursor: [^;]*;/, '')}`).sort().join(' ')
        seen.push(`${element.tagName} ${attributes} ${own} ${element.value} ${element.checked} ${element.scrollTop} ${element.scrollLeft}`)
    }
    return seen.join('\\n')
}"""


@dataclass
class Kept:
    """An opened report, what it was opened with, and how it looked then."""

    opened: pages.Opened
    key: Any
    size: dict[str, int]
    looks: str


class Pool:
    """Opened reports by file and context, the one that waits longest first."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.kept: dict[Any, Kept] = {}

    def lend(self, path: Path, fragment: str = "", **context: Any) -> Kept:
        """A page that shows a report from its start, or from where ``fragment`` leads, at rest."""
        key = (path, repr(sorted(context.items())))
        page = self.kept.pop(key, None)
        if page is None or not self.is_new_again(page):
            opened = pages.open_report(self.browser, path, **context)
            page = Kept(opened, key, opened.page.viewport_size, opened.js(LOOKS))
        if fragment:
            page.opened.js(FOLLOW, fragment)
            page.opened.settle()
        return page

    def is_new_again(self, page: Kept) -> bool:
        """Put a page back to its start; closed where that does not succeed."""
        opened = page.opened
        if opened.page.viewport_size != page.size:
            opened.page.set_viewport_size(page.size)
        opened.page.mouse.move(0, 0)
        opened.js(START)
        opened.settle()
        looks = opened.js(LOOKS)
        if looks == page.looks:
            return True
        if DIFF:
            import difflib, sys
            print("NOT NEW", page.key[0].name, [l[:200] for l in difflib.unified_diff(page.looks.split("\n"), looks.split("\n"), n=0, lineterm="")][3:9], file=sys.stderr)
        self.drop(page)
        return False

    def take_back(self, page: Kept) -> None:
        """A page that a test is done with. Of two of the same report one is kept."""
        if page.key in self.kept:
            self.drop(self.kept.pop(page.key))
        self.kept[page.key] = page
        if len(self.kept) > MOST:
            self.drop(self.kept.pop(next(iter(self.kept))))

    def drop(self, page: Kept) -> None:
        page.opened.page.context.close()

    def close(self) -> None:
        while self.kept:
            self.drop(self.kept.popitem()[1])
