"""axe-core (the rules behind most accessibility checkers) finds nothing in any view, in either theme, in forced
colours, and in a small window with its menu open; and every target is at least 24 pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest

# tests/run.py names the one that it has installed; in development it is where `npm ci` puts it.
AXE = Path(os.environ.get("SNAPREPORT_AXE", corpus.ROOT / "static" / "node_modules" / "axe-core" / "axe.min.js"))
VIEWS = ("timeline", "segments", "reserved", "flame", "table", "events", "summary")
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "forced": {"forced_colors": "active"},
    "small": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
}
RUN = """async () => {
    const { violations } = await axe.run(document, {
        rules: { 'target-size': { enabled: true } }, resultTypes: ['violations'],
    })
    return violations.map(({ id, nodes }) => `${id}: ` + nodes.slice(0, 4).map(node =>
        `${node.target.join(' ')} (${node.any.concat(node.all, node.none).map(check => check.message)[0]})`).join('; '))
}"""


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing(look: str, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `npm ci` in static/")
    opened = open_report(report_of(corpus.path_of("oom")), **LOOKS[look])
    opened.js(AXE.read_text(encoding="utf-8") + "; void 0")
    found = {}
    for view in VIEWS:
        opened.set_view(view=view)
        opened.settle()
        if look == "small":
            opened.js("document.querySelector('.toolbar').classList.add('menu-open')")
        found[view] = opened.js(RUN)
    opened.set_view(view="timeline", oom=opened.js("snapreport.stats(0).oom_events[0]"))
    opened.page.locator("#top .headline a").first.click()
    opened.settle()
    found["details"] = opened.js(RUN)
    assert not {view: violations for view, violations in found.items() if violations}
