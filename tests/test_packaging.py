"""The package's guarantees: a light start, layers, the same bytes every time, nothing from outside."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Container, Iterator
from graphlib import CycleError, TopologicalSorter
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path

import click
import corpus
import pytest
from cli import process

import snapreport
from snapreport.cli import main

PACKAGE = Path(snapreport.__file__).parent
FLOORS = [
    {"available_memory", "contracts", "terminal", "version"},
    {"supervision"},
    {"supervisor"},
    {"allocator_facts", "vocabulary"},
    {
        "durable_rename",
        "errors",
        "integers",
        "memoize",
        "number_format",
        "process_memory",
        "progress",
        "sizes",
    },
    {"output_file", "forks", "plugins", "samples", "sentence"},
    {"reading", "packing", "recorder"},
    {"timeline"},
    {"allocator"},
    {"search"},
    {"snapshot"},
    {"findings"},
    {"forecast", "exporting"},
    {"report"},
    {"jobs", "agents"},
    {"history"},
    {"notebook", "pytest_plugin", "schemas", "trackers"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
HEAVY = ("polars", "numpy", "torch", "jinja2", "brotli")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["stats", "--help"], ["sample", "--help"]], ids=" ".join
)
def test_help_is_light(arguments: list[str], tmp_path: Path) -> None:
    code = (
        f"import sys; sys.argv = ['snapreport', *{arguments!r}]\n"
        "from snapreport.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_import_is_light_and_reading_needs_no_torch(tmp_path: Path) -> None:
    path = corpus.path_of("small")
    code = (
        "import sys, snapreport\n"
        f"assert not [n for n in {HEAVY!r} if n in sys.modules]\n"
        f"snapreport.write_report([snapreport.load({str(path)!r})], 'out.html')\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def floor(module: str) -> int:
    room = module.split(".")[1] if "." in module else "cli"
    found = [i for i, rooms in enumerate(FLOORS) if room in rooms]
    assert found, f"{module}: say in FLOORS which floor {room} is on"
    return found[0]


def imports(path: Path) -> set[str]:
    """The snapreport modules that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found |= (
                {node.module or ""} if node.module != "snapreport" else {f"snapreport.{a.name}" for a in node.names}
            )
    return {name for name in found if name.startswith("snapreport.") and name.split(".")[1] not in ("__version__",)}


def test_imports_only_go_down() -> None:
    """A package imports itself and packages on lower floors; no two packages of one floor import each other."""
    files = [p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"]
    assert len(files) > 10
    for path in files:
        module = ".".join(("snapreport", *path.relative_to(PACKAGE).with_suffix("").parts))
        for other in imports(path):
            if (PACKAGE / other.split(".")[1]).exists() or (PACKAGE / f"{other.split('.')[1]}.py").exists():
                same = other.split(".")[1] == module.split(".")[1]
                assert same or floor(other) < floor(module), f"{module} imports {other}, which is not under it"


def test_no_file_imports_itself_by_way_of_others() -> None:
    """Of module-level imports, and then with those that only types need: neither has a circle."""
    bodies = {module_name(path): ast.parse(path.read_text("utf-8")).body for path in PACKAGE.rglob("*.py")}
    for with_types in (False, True):
        graph = {name: {*module_imports(body, bodies, with_types)} for name, body in bodies.items()}
        assert sum(map(len, graph.values())) > 1000
        TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_circles_of_types_are_found() -> None:
    body = ast.parse("if TYPE_CHECKING:\n    from b import c").body
    assert not [*module_imports(body, {"b"}, with_types=False)]
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {*module_imports(body, {"b"}, with_types=True)}, "b": {"a"}}).prepare()


def module_name(path: Path) -> str:
    parts = ("snapreport", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_imports(body: list[ast.stmt], names: Container[str], with_types: bool) -> Iterator[str]:
    """The modules of ``names`` that statements outside functions import; with those ``if TYPE_CHECKING``, too."""
    for node in body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from [inner] if inner in names else [node.module] if node.module in names else []
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.If) and (with_types or "TYPE_CHECKING" not in ast.unparse(node.test)):
            yield from module_imports([*node.body, *node.orelse], names, with_types)
        elif isinstance(node, ast.Try):
            handlers = [line for handler in node.handlers for line in handler.body]
            yield from module_imports([*node.body, *handlers, *node.orelse], names, with_types)


def test_same_bytes_every_time(tmp_path: Path) -> None:
    """Two processes, two working folders, two hash seeds, one core and four: the same file."""
    path = corpus.path_of("small")
    documents = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / path.name).write_bytes(path.read_bytes())
        cores = [1, 4][number]
        run = f"import os; os.cpu_count = lambda: {cores}; from snapreport.__main__ import run; run()"
        seeds = {"PYTHONHASHSEED": str(number), "PATH": "", "TZ": ["UTC", "Asia/Tokyo"][number]}
        done = subprocess.run(
            [sys.executable, "-c", run, path.name, "-o", "out.html"],
            cwd=folder,
            check=False,
            env={**seeds, "POLARS_MAX_THREADS": str(cores)},
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr
        documents.append((folder / "out.html").read_bytes())
    assert documents[0] == documents[1]


class References(HTMLParser):
    """Everything in a document that a browser would fetch, and everything it would run."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.handlers: list[str] = []
        self.scripts = 0
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.fetched += [
            f"{tag} {k}={v}"
            for k, v in attrs
            if k in ("src", "href", "data", "srcset", "poster", "action", "xlink:href")
            and not (v or "").startswith(("data:", "#", "blob:"))
            # A link that the reader may follow is not fetched; advice names PyTorch's own pages.
            and not (tag == "a" and (v or "").startswith("https://docs.pytorch.org/"))
        ]
        self.handlers += [k for k, _ in attrs if k.startswith("on")]
        self.scripts += tag == "script" and given.get("type") != "application/octet-stream"
        if tag == "meta" and (given.get("http-equiv") or "").lower() == "content-security-policy":
            self.policy = given.get("content") or ""


def test_page_refers_to_nothing_outside(report_of: Callable[..., Path]) -> None:
    html = report_of(corpus.path_of("small")).read_text(encoding="utf-8")
    found = References()
    found.feed(html)
    assert not found.fetched and not found.handlers
    assert found.scripts == 1
    directives = dict(d.strip().partition(" ")[::2] for d in found.policy.split(";"))
    assert directives["default-src"] == "'none'" and "connect-src" not in directives
    assert (
        "unsafe-eval" not in directives["script-src"].replace("wasm-unsafe-eval", "")
        and "unsafe-inline" not in directives["script-src"]
        and "blob:" not in directives["script-src"]
        and directives["worker-src"].split() == ["blob:"]
    )
    style = "".join(re.findall(r"<style.*?</style>", html, re.S))
    assert "@import" not in style and not re.search(r"url\((?!['\"]?(?:data:|#))", style)


def test_the_preview_has_its_colours_where_styles_are_forbidden(report_of: Callable[..., Path]) -> None:
    """A shape without its own fill is black in a viewer that drops the style sheet."""
    html = report_of(corpus.path_of("oom")).read_text(encoding="utf-8")
    shapes = re.findall(r"<(?:path|circle) [^>]*>", "".join(re.findall(r"<svg.*?</svg>", html, re.S)))
    assert len(shapes) >= 3
    assert all(' fill="' in shape for shape in shapes)
    assert all(' stroke="' in shape for shape in shapes if 'fill="none"' in shape)


def test_bytes_survive_latin_1(report_of: Callable[..., Path]) -> None:
    """Served with the wrong charset, the blobs and the application are unchanged: ASCII."""
    html = report_of(corpus.path_of("small")).read_bytes()
    for text in re.findall(rb"<script[^>]*>(.*?)</script>", html, re.S):
        assert text.isascii()
    assert re.search(rb"<meta charset=[\"']?utf-8", html[:1024], re.I)


def test_module_runs_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "snapreport", "--version"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0 and snapreport.__version__ in done.stdout
    assert process("--version").out == done.stdout


LINK = re.compile(r"\]\(([^)]+)\)")


def test_links_of_the_readme_are_absolute_in_a_package_index() -> None:
    """As rewritten in the build; each names a file of the repository that ``project.urls`` gives."""
    project = tomllib.loads((corpus.ROOT / "pyproject.toml").read_text())
    urls = project["project"]["urls"]
    assert all(url.startswith(urls["Repository"]) for url in urls.values())
    rewritten = readme = (corpus.ROOT / "README.md").read_text()
    for rule in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        rewritten = re.sub(rule["pattern"], rule["replacement"].replace("$HFPR_VERSION", "1.2.3"), rewritten)
    before, after = LINK.findall(readme), LINK.findall(rewritten)
    assert len(before) == len(after) > 8
    for link, absolute in zip(before, after, strict=True):
        if not link.startswith(("https:", "#")):
            kind = "raw" if link.endswith((".png", ".webp")) else "blob"
            assert absolute == f"{urls['Repository']}/{kind}/v1.2.3/{link}" and (corpus.ROOT / link).exists()


def test_compiled_templates_are_kept_where_that_is_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process compiles none; where none can be written, reports are written all the same."""
    from snapreport.report import page

    def shown() -> str:
        made = page._environment.__wrapped__()
        monkeypatch.setattr(made.bytecode_cache, "directory", str(folder))
        return str(made.get_template("footer.html.j2").render(size="7 B"))

    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = tmp_path / "__pycache__"
    first = shown()
    assert list(folder.iterdir())
    monkeypatch.setattr("jinja2.Environment.compile", None)  # would fail
    assert shown() == first
    monkeypatch.undo()
    folder = tmp_path / "absent" / "__pycache__"
    assert shown() == first


def test_the_wheel_has_a_manual_page_for_every_command() -> None:
    files = {one.name: one for one in metadata.Distribution.from_name("snapreport").files or ()}
    if "cli.py" not in files:
        pytest.skip("a checkout, not an installed wheel: tests/run.py tests that")
    for name in main.list_commands(click.Context(main)):
        if name != "report":
            text = files[f"snapreport-{name}.1"].read_text().replace("\\-", "-")
            options = [option for param in main.get_command(click.Context(main), name).params for option in param.opts]
            assert all(option in text for option in options if option.startswith("--")), name
    assert "--max-size" in files["snapreport.1"].read_text().replace("\\-", "-")
