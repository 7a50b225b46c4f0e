"""Pages that tests share: opening a report takes a second, resetting an opened one to its start a tenth of that.

A page is reused only when it looks as it did when it was new: the view, every visible element with its attributes, its
text and its scroll position. One that does not, or in which a test failed, is closed, and the next test opens a new
page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MOST = 4  # pages open: each has a process of its own, and the data of its report
# Follows the address without a hash, as the page does when a user removes the hash: as an entry without a state, for
# the page's own keep the theme and the bookmarks. Ends transitions at once.
START = """async () => {
    document.querySelector('.timeline.box-mode') && document.querySelector('button[title^="Zoom to a box"]').click()
    document.activeElement?.blur()
    getSelection().removeAllRanges()
    for (const element of document.querySelectorAll('#app *'))
        if (element.scrollTop || element.scrollLeft) element.scrollTo(0, 0)
    history.replaceState(null, '', location.pathname + location.search)
    dispatchEvent(new HashChangeEvent('hashchange'))
    await snapreport.setView({})
    for (const fading of document.getAnimations())
        if (fading.effect.getComputedTiming().endTime < Infinity) fading.finish()
}"""
FOLLOW = """fragment => {
    history.replaceState(null, '', fragment)
    dispatchEvent(new HashChangeEvent('hashchange'))
    return snapreport.setView({})
}"""
# Announcements stay in the document, unseen; a control without aria-invalid is the same as one with "false". The
# batch's chart is drawn when it is scrolled to.
LOOKS = """() => {
    const view = JSON.stringify(snapreport.getView())
    const seen = [view, location.hash, document.activeElement?.tagName, scrollX, scrollY]
    for (const element of [document.documentElement, ...document.querySelectorAll('body, body *')]) {
        if (!element.checkVisibility() || element.closest('.batch-chart')) continue
        const own = [...element.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('')
        seen.push(`<${element.tagName}> ${element.classList.contains('offscreen') ? '' : own}`)
        for (const { name, value } of element.attributes) {
            const kept = name === 'style' ? value.replace(/ ?cursor: [^;]*;/, '') : value
            if (kept !== '' && `${name}=${kept}` !== 'aria-invalid=false') seen.push(`${name}=${kept}`)
        }
        for (const name of ['value', 'checked', 'disabled', 'scrollTop', 'scrollLeft'])
            if (element[name]) seen.push(`${name} is ${element[name]}`)
    }
    return seen.join('\\n')
}"""


@dataclass
class Kept:
    """An opened report, what it was opened with, and how it looked then."""

    opened: pages.Opened
    key: Any
    looks: str


class Pool:
    """Opened reports by file and context, the longest unused first."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.kept: dict[Any, Kept] = {}

    def lend(self, path: Path, fragment: str = "", is_new: bool = False, **context: Any) -> Kept:
        """A page that shows a report from its start, or from where ``fragment`` leads, settled; ``is_new``: just
        opened.
        """
        size = context.pop("viewport", pages.SIZE)
        key = (path, repr(sorted(context.items())))
        page = None if is_new else self.kept.pop(key, None)
        if page is None or not self.is_new_again(page):
            opened = pages.open_report(self.browser, path, **context)
            opened.until("snapreport.debug.view()?.fixes?.isFitted !== false")
            page = Kept(opened, key, opened.js(LOOKS))
        if size != pages.SIZE:
            page.opened.page.set_viewport_size(size)
            page.opened.settle()
        if fragment:
            page.opened.js(FOLLOW, fragment)
            page.opened.settle()
        return page

    def is_new_again(self, page: Kept) -> bool:
        """Resets a page to its start; closes it where that fails."""
        opened = page.opened
        if opened.page.viewport_size != pages.SIZE:
            opened.page.set_viewport_size(pages.SIZE)
        opened.page.mouse.move(0, 0)
        opened.js(START)
        opened.settle()
        if opened.js(LOOKS) == page.looks:
            return True
        self.drop(page)
        return False

    def take_back(self, page: Kept) -> None:
        """A page that a test no longer needs. Of two of the same report one stays open."""
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
