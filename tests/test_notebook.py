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


# What viewers put around the output of a cell: a policy, and a frame with a sandbox of its own. VS Code's policy is the
# one of its notebooks where `notebook.experimental.enableCsp` is on. Within a sandbox, new tabs are sandboxed, too.
VSCODE = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src https: http: data:; font-src https:; connect-src https:; child-src https: data:;"
)
VIEWERS = {"page": ("", ""), "vscode": (VSCODE, ""), "sandbox": ("", "allow-scripts allow-downloads allow-popups")}
VIEWS = ("Segments", "Reserved", "Flame", "Table", "Events", "Summary")


@pytest.mark.parametrize("viewer", VIEWERS)
def test_everything_works_in_a_viewer_s_frame(chromium: Any, viewer: str) -> None:
    """Where the report has no origin: views, their addresses and Back, a replay, the clipboard, files and links."""
    snapshot = snapreport.load(corpus.WITNESSES / "codebook.pickle.xz")
    policy, sandbox = VIEWERS[viewer]
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    output = f"<!doctype html><meta charset=utf-8>{meta}<textarea></textarea>{snapshot._repr_html_()}"
    around = (
        f'<!doctype html><textarea></textarea><iframe sandbox="{sandbox}" src="output" width=1200 height=800></iframe>'
    )
    bodies = {"notebook": around if sandbox else output, "output": output}
    context = chromium.new_context(viewport={"width": 1250, "height": 850})
    html = "text/html; charset=utf-8"
    context.route(
        "http://localhost/*",
        lambda route: route.fulfill(body=bodies[route.request.url.rpartition("/")[2]], content_type=html),
    )
    context.route("https://docs.pytorch.org/**", lambda route: route.fulfill(body="Documentation", content_type=html))
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto("http://localhost/notebook")
    inside = page.frame_locator("iframe").frame_locator("iframe") if sandbox else page.frame_locator("iframe")
    inside.locator("body[data-view=timeline]").wait_for()
    (report,) = [frame for frame in page.frames if frame.url.startswith("about:srcdoc")]
    report.evaluate("snapreport.ready")
    assert ("does not allow workers" in inside.locator(".notice").inner_text()) == bool(policy)

    for view in VIEWS:
        inside.get_by_text(view, exact=True).first.click()
        hash_ = f"#view={view.lower()}"
        report.evaluate(f"new Promise(resolve => setInterval(() => location.hash === '{hash_}' && resolve(), 20))")
    report.evaluate("void history.back()")
    inside.locator("body[data-view=events]").wait_for()
    (device,) = snapshot.devices
    answer = report.evaluate("snapreport.whatIf(0, { settings: ['expandable_segments:True'] })")
    (there,) = snapshot.whatif(device, settings=["expandable_segments:True"])["devices"]
    assert [run["peakReserved"] for run in answer["runs"]] == [run["peak_reserved_bytes"] for run in there["runs"]]

    report.evaluate("snapreport.setView({ view: 'timeline', select: 0 })")
    inside.locator(".details").get_by_text("Copy", exact=True).first.click()
    names = snapshot.frames(snapshot.allocations(device)["stack"][0])["name"]
    inside.locator(".details").get_by_text("Copied").wait_for()
    page.locator("textarea").click()
    page.keyboard.press("Control+V")
    assert page.locator("textarea").input_value().partition(" ")[0] in names.to_list()
    assert inside.get_by_text("Copy link").count() == 0, "no other frame has its address"
    inside.get_by_text("Table", exact=True).first.click()
    with page.expect_download() as saved:
        inside.get_by_text("CSV", exact=True).click()
    assert len(Path(saved.value.path()).read_text("utf-8").splitlines()) > 2

    inside.get_by_text("Summary", exact=True).first.click()
    with context.expect_page() as opened:
        inside.locator("#summary a[href^='https://docs.pytorch.org']").first.click()
    opened.value.wait_for_load_state()
    assert opened.value.inner_text("body") == "Documentation"
    assert opened.value.evaluate("origin") == ("null" if sandbox else "https://docs.pytorch.org")
    refused = ("Creating a worker", "The Clipboard API has been blocked")  # and done in another way
    assert report in page.frames and not [error for error in errors if not any(text in error for text in refused)]
    context.close()


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
