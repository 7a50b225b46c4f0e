"""Notebooks: a snapshot shows itself as its report, and a magic records a cell."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import corpus
import pytest
from waiting import GUARD_SECONDS

import snapreport
from snapreport.notebook import Shown

NEEDED = "pip install --group trackers"


class Frames(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "iframe"
        self.found.append(dict(attrs))


def frame_of(html: str) -> dict[str, str | None]:
    parser = Frames()
    parser.feed(html)
    (only,) = parser.found
    return only


def test_a_snapshot_is_its_report(tmp_path: Path) -> None:
    snapshot = snapreport.load(corpus.path_of("small"))
    frame = frame_of(snapshot._repr_html_())
    snapreport.write_report(snapshot, tmp_path / "report.html")
    assert frame["srcdoc"] == (tmp_path / "report.html").read_text("utf-8")
    assert "allow-same-origin" not in str(frame["sandbox"])


def test_the_page_works_inside_the_frame(tmp_path: Path, chromium: Any) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{snapreport.load(corpus.path_of('small'))._repr_html_()}")
    assert "train_step" in table_of(chromium, path)


def table_of(chromium: Any, path: Path) -> str:
    """The text of the report in a frame, after a click on Table; no script failed."""
    page = chromium.new_page(viewport={"width": 1000, "height": 800})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    inside = page.frame_locator("iframe")
    inside.get_by_text("Table", exact=True).click()
    inside.locator("body[data-view=table]").wait_for()
    text = inside.locator("body").inner_text()
    page.close()
    assert not errors
    return text


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    made = interactive.InteractiveShell.instance()
    yield made
    interactive.InteractiveShell.clear_instance()


def test_a_cell_is_recorded(shell: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_line_magic("load_ext", "snapreport")
    record: Callable[[str, str], Any] = lambda line, cell: shell.run_cell_magic("snapreport", line, cell)  # noqa: E731
    shown = record(f"-o {tmp_path / 'kept'}", "import torch\nrows = [torch.ones(1000, 1000) for _ in range(3)]\n")
    assert isinstance(shown, Shown)
    (snapshot,) = shown.snapshots
    sizes = [snapshot.allocations(device)["size"].to_list() for device in snapshot.devices]
    assert sum(size == 4_000_000 for of in sizes for size in of) >= 3
    assert frame_of(shown._repr_html_())["srcdoc"]
    assert list((tmp_path / "kept").iterdir())
    assert len(shell.user_ns["rows"]) == 3
    assert record("--nonsense", "1") is None and "unrecognized" in capsys.readouterr().err
    assert record("", "1 / 0") is None and "nothing was recorded" in capsys.readouterr().out


CELLS = [
    "%load_ext snapreport",
    "%%snapreport\nimport torch\nlayer = torch.nn.Linear(1000, 1000)\nlayer(torch.ones(500, 1000)).sum().backward()",
    "import snapreport\nsnapreport.load({path!r})",
]


def test_in_a_kernel(tmp_path: Path, chromium: Any) -> None:
    """A recorded cell and a loaded snapshot in Jupyter's own kernel: what its messages hold is a page that works."""
    nbclient, nbformat = (pytest.importorskip(name, reason=NEEDED) for name in ("nbclient", "nbformat"))
    pytest.importorskip("ipykernel", reason=NEEDED)
    cells = [nbformat.v4.new_code_cell(cell.format(path=str(corpus.path_of("small")))) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": tmp_path}}
    nbclient.NotebookClient(notebook, timeout=GUARD_SECONDS, kernel_name="python3", resources=resources).execute()
    shown = [out.data for cell in cells for out in cell.outputs if out.output_type == "execute_result"]
    assert [data["text/plain"][:1] for data in shown] == ["[", "<"]
    for data in shown:
        path = tmp_path / "output.html"
        path.write_text(f"<!doctype html><meta charset=utf-8>{data['text/html']}")
        assert "gradient" in table_of(chromium, path)
