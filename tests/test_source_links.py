"""Addresses of source lines: which lines have one, that nothing unsafe gets through, and where they are shown."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import generator
import pytest
from cli import in_process
from test_recorder_metadata import COMMIT, recorded, with_metadata

import snapreport
from snapreport.contracts.check import Check
from snapreport.errors import SnapshotError
from snapreport.reading.recorder_metadata import read_metadata
from snapreport.report.gate_output import check_markdown
from snapreport.report.markdown import place, prose
from snapreport.report.sentence_html import sentence_markup
from snapreport.report.source_links import REPOSITORY_LINKS, SCHEMES, Rule, SourceLinks, address
from snapreport.sentence import place_part, sentence, stack_part

GITHUB = "https://github.com/org/repo/blob/{commit}/{path}#L{line}"
EDITOR = "vscode://file/{path}:{line}"
BLOB = f"https://github.com/team/project/blob/{COMMIT}"
OWN = "/app/gpt/model.py"  # of the generated snapshots' stack traces


def of(root: str | None, commit: str = COMMIT) -> Any:
    return read_metadata(recorded(git={"commit": commit, "remote": "git@github.com:team/project.git", "root": root}))


def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.pickle"
    path.write_bytes(pickle.dumps(generator.make("small")))
    return path


def leaking(tmp_path: Path) -> Path:
    path = tmp_path / "leaking.pickle"
    path.write_bytes(pickle.dumps(generator.make("leak")))
    return path


def in_repository(tmp_path: Path) -> Path:
    remote = {"commit": COMMIT, "remote": "git@github.com:team/project.git", "root": "/app", "dirty": False}
    return with_metadata(recorded(git=remote), tmp_path)


class Links(HTMLParser):
    """(address, text) of every link of a document that leads out of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._open: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href") or ""
        if tag == "a":
            assert self._open is None, "a link inside a link"
            self._open = href
            self.found.append((href, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.found[-1] = (self._open, self.found[-1][1] + data)


def source_links(text: str, start: str) -> list[tuple[str, str]]:
    return [(url, name) for url, name in Links(text).found if url.startswith(start)]


def test_folders_of_the_recorder() -> None:
    rules = REPOSITORY_LINKS.rules([of("/code"), None, of("/code/"), of("C:\\src\\code")])
    assert rules == [Rule("/code", f"{BLOB}/{{path}}#L{{line}}"), Rule("C:/src/code", f"{BLOB}/{{path}}#L{{line}}")]
    other = COMMIT.replace("0", "f")
    assert REPOSITORY_LINKS.rules([of("/code"), of("/code", other), of(""), of(None), of("/")]) == []


def test_commit_and_remote_come_from_the_recording() -> None:
    (rule, anywhere) = SourceLinks(GITHUB).rules([of("/code")])
    assert rule == Rule("/code", f"https://github.com/org/repo/blob/{COMMIT}/{{path}}#L{{line}}")
    assert anywhere == Rule("", rule.url, absolute=False)
    (rule,) = SourceLinks("{remote}/src/{commit}/{path}", ["/w/", "C:\\w"]).rules([of(None)])[:1]
    assert rule == Rule("/w", f"https://github.com/team/project/src/{COMMIT}/{{path}}")
    for recorders in ([], [None], [read_metadata(recorded(git={"commit": "no hash", "remote": "x"}))]):
        with pytest.raises(SnapshotError, match=r"no recording holds a commit; write it into the template"):
            SourceLinks(GITHUB).rules(recorders or [None])


def test_which_lines_have_an_address() -> None:
    rules = SourceLinks("https://h/{path}#{line}", ["/app", "/app/vendor/lib"]).rules([None])

    def url(file: str, line: int = 7, own: bool = True) -> str:
        return address(rules, file, line, own=own)

    assert url("/app/train.py") == "https://h/train.py#7"
    assert url("\\app\\sub\\train.py") == "https://h/sub/train.py#7"
    assert url("/app/vendor/lib/x.py", own=False) == "https://h/x.py#7"
    assert url("/app/a b/#1?(it's)!*.py") == "https://h/a%20b/%231%3F%28it%27s%29%21%2A.py#7"
    assert url("/app/{line}.py") == "https://h/%7Bline%7D.py#7"
    for file in ("/application/x.py", "/usr/x.py", "train.py", "/app", "/app/../x", "/app//x", "??", "/app/<string>"):
        assert url(file) == "", file
    assert url("/app/venv/site-packages/x.py") == "" and url("/app/train.py", 0) == "" and url("/app/\ud800.py") == ""


def test_editors_open_whole_paths_of_own_code() -> None:
    rules = SourceLinks(EDITOR).rules([of("/home/me")])
    assert address(rules, "/home/me/train.py", 7, own=True) == "vscode://file/home/me/train.py:7"
    assert address(rules, "C:\\me\\train.py", 7, own=True) == "vscode://file/C:/me/train.py:7"
    assert address(rules, "/home/me/train.py", 7, own=False) == ""


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("javascript:alert(1)//{path}", "begins with one of"),
        (" javascript:{path}", "begins with one of"),
        ("JavaScript:{path}", "begins with one of"),
        ("data:text/html,{path}", "begins with one of"),
        ("vbscript:{path}", "begins with one of"),
        ("//host/{path}", "begins with one of"),
        ("{path}", "begins with one of"),
        ("{commit}:{path}", "begins with one of"),
        ("https://h/{line}", "needs {path}"),
        ("https://h/{path}/{branch}", "{branch} is not known"),
        ("https://h/{path}{", "a brace is not known"),
        ('https://h/{path}"onclick=', "write '\"' as %22"),
        ("https://h/{path} x", "write ' ' as %20"),
        ("https://h/({path})", r"write '\(' as %28"),
        ("https://h/<b>{path}", "write '<' as %3C"),
    ],
)
def test_templates_that_are_refused(template: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=reason.replace("{", r"\{")):
        SourceLinks(template)
    ran = in_process(plain(tmp_path), "-o", tmp_path / "report.html", "--link", template)
    assert ran.code == 2 and len(ran.err.splitlines()) == 1 and not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_that_is_let_through(scheme: str) -> None:
    rules = SourceLinks(f"{scheme}://x/{{path}}").rules([None])
    assert address(rules, "train.py", 1, own=True) == f"{scheme}://x/train.py"


def test_summary_links_lines_of_the_recorded_commit(tmp_path: Path) -> None:
    """Without any option, where the recorder recorded the working tree."""
    recording = snapreport.load(in_repository(tmp_path))
    snapreport.write_report([recording], tmp_path / "report.html")
    found = source_links((tmp_path / "report.html").read_text(encoding="utf-8"), f"{BLOB}/")
    assert found
    for url, name in found:
        file, line = re.fullmatch(rf"{re.escape(BLOB)}/gpt/(\w+\.py)#L(\d+)", url).groups()
        assert name.split(" ")[-1] == f"{file}:{line}"


def test_summary_and_markdown_with_a_template(tmp_path: Path) -> None:
    path, out = plain(tmp_path), tmp_path / "report.html"
    options = ("--link", GITHUB.replace("{commit}", "main"), "--strip-prefix", "/nowhere", "--strip-prefix", "/app/")
    ran = in_process(path, "-o", out, *options)
    assert ran.code == 0 and "--link" not in ran.err
    start = "https://github.com/org/repo/blob/main/gpt/"
    html = source_links(out.read_text(encoding="utf-8"), start)
    markdown = in_process("stats", "--markdown", path, *options).out
    linked = re.findall(r"\[`([^`]*)`\]\((https:[^)]*)\)", markdown)
    assert html and linked and {url for _, url in linked} <= {url for url, _ in html}
    assert all(url.startswith(start) for _, url in linked)
    # A row of the table of stacks: each line of the program's own is a separate link.
    row = next(line for line in markdown.splitlines() if line.startswith("| ") and " ← " in line)
    assert row.count("](") == row.count(" ← ") + 1


def test_headlines_link_lines_beside_the_moment(tmp_path: Path) -> None:
    """A sentence of the header links to its moment, and each line that it names to its source."""
    out = tmp_path / "report.html"
    assert in_process(leaking(tmp_path), "-o", out, "--link", EDITOR).code == 0
    (header,) = re.findall(r'<header id="top">(.*?)</header>', out.read_text(encoding="utf-8"), re.DOTALL)
    assert '<ul class="verdict"' in header and '<p class="headline">' in header
    found = Links(header).found
    own = [(url, text) for url, text in found if url.startswith("vscode:")]
    assert own and all(re.fullmatch(rf"(.* )?\w+\.py:{url.rpartition(':')[2]}", text) for url, text in own)
    lines = re.findall(r"\w+\.py:\d+", re.sub("<[^>]*>", " ", header))
    assert lines == [text.rpartition(" ")[2] for _, text in own]
    assert any(url.startswith("#") and len(text) > 10 for url, text in found)
    text = sentence("Most is {}.", stack_part(7, "f a.py:1 ← g b.py:2"))
    assert sentence_markup(text, "#x") == '<a href="#x">Most is <code>f a.py:1 ← g b.py:2</code>.</a>'
    assert sentence_markup(text, "#x", {"g b.py:2": "h:b"}) == (
        '<span><a href="#x">Most is <code>f a.py:1</code><code> ← </code></a>'
        '<a href="h:b" rel="noreferrer"><code>g b.py:2</code></a>.</span>'
    )
    assert sentence_markup("<b>") == "<span>&lt;b&gt;</span>"


def test_a_comparison_links_lines_too(tmp_path: Path, open_report: Callable[..., Any]) -> None:
    out, paths = tmp_path / "diff.html", [tmp_path / f"{name}.pickle" for name in "abc"]
    for seed, path in enumerate(paths):
        path.write_bytes(pickle.dumps(generator.make("leak", seed=seed)))
    assert in_process("diff", *paths[:2], "--link", EDITOR).code == 2, "text has no links"
    ran = in_process("diff", *paths, "-o", out, "--link", "https://h/{path}#{line}", "--strip-prefix", "/app")
    assert ran.code == 0 and "--link" not in ran.err
    assert source_links(out.read_text(encoding="utf-8"), "https://h/gpt/")
    opened = open_report(out)
    opened.set_view(view="timeline", stack=1)
    assert opened.page.locator(".details .frames a[href^='https://h/gpt/']").count() > 0


def test_a_check_links_lines_too(tmp_path: Path) -> None:
    line = place_part("append_loss metrics.py:41", "metrics.py", 41)
    message = sentence("cuda:0: Leak: {} keeps 3.00 MiB every step", line)
    checks = [
        Check("fail-on leak", name, "cuda:0", False, message, 1, 0, [message]) for name in ("a.pickle", "b.pickle")
    ]
    text = check_markdown(checks, {"a.pickle": {"append_loss metrics.py:41": "https://h/a#41"}})
    assert text.count("[`append_loss metrics.py:41`](https://h/a#41)") == 1 and text.count("`append_loss") == 2
    path, out = leaking(tmp_path), tmp_path / "out.md"
    options = ("--fail-on", "leak", "--summary-md", out, "--link", EDITOR)
    assert in_process("check", path, *options).code == 1
    assert re.search(r"\[`\w+ \w+\.py:(\d+)`\]\(vscode://file/app/[\w/.]+:\1\)", out.read_text(encoding="utf-8"))


def test_a_prefix_that_fits_nothing_is_reported(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    ran = in_process(plain(tmp_path), "-o", out, "--link", "https://h/{path}", "--strip-prefix", "/src")
    assert ran.code == 0 and "no line is linked: --strip-prefix has to fit the names of files, such as /app/" in ran.err
    for arguments in (("--strip-prefix", "/src"), ("--link", GITHUB)):
        ran = in_process(plain(tmp_path), "-o", tmp_path / "other.html", *arguments)
        assert ran.code == 2 and len(ran.err.splitlines()) == 1 and not (tmp_path / "other.html").exists()
    assert in_process("stats", plain(tmp_path), "--link", "https://h/{path}").code == 2


def test_a_name_of_two_files_has_no_link(tmp_path: Path) -> None:
    """ "main train.py:1" in a sentence could be either file's."""
    snapshot = generator.make("small")
    for trace in snapshot["device_traces"]:
        for number, event in enumerate(trace):
            event["frames"] = [{"filename": f"/{'ab'[number % 2]}/train.py", "line": 1, "name": "main"}]
    path = tmp_path / "two.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    links = SourceLinks(EDITOR).of(snapreport.load(path).recording)
    assert "<module> train.py:214" in links  # of the blocks in the final state
    assert not {"main train.py:1", "train.py:1"} & set(links)


def test_hostile_names_stay_inert(tmp_path: Path) -> None:
    hostile = '/app/"><img src=x onerror=alert(1)>](javascript:alert(1)) `|{line}.py'
    snapshot = generator.make("small")
    for trace in snapshot["device_traces"]:
        for event in trace:
            event["frames"] = [{"filename": hostile, "line": 3, "name": "f"}]
    path, out = tmp_path / "hostile.pickle", tmp_path / "report.html"
    path.write_bytes(pickle.dumps(snapshot))
    assert in_process(path, "-o", out, "--link", EDITOR).code == 0
    text = out.read_text(encoding="utf-8")
    assert "<img src=x" not in text
    assert {url for url, _ in Links(text).found if "alert" in url} <= {
        "vscode://file/app/%22%3E%3Cimg%20src=x".replace("=", "%3D")
        + "%20onerror%3Dalert%281%29%3E%5D%28javascript:alert%281%29%29%20%60%7C%7Bline%7D.py:3"
    }


def test_code_in_sentences() -> None:
    links = {"forward dit.py:83": "https://h/a#1", "train.py:42": "https://h/b#2"}
    lines = (("forward dit.py:83", "dit.py", 83), ("train.py:42", "train.py", 42), ("main other.py:1", "other.py", 1))
    text = sentence("Most of it is {} from {} and {}.", *(place_part(*line) for line in lines))
    assert prose(text, links) == (
        "Most of it is [`forward dit.py:83`](https://h/a#1) from [`train.py:42`](https://h/b#2) and `main other.py:1`."
    )
    assert (
        place("forward dit.py:83 ← step train.py:9", links)
        == "[`forward dit.py:83`](https://h/a#1) ← `step train.py:9`"
    )
    assert place("a|b") == "`a\\|b`"


def test_the_page_links_what_python_links(tmp_path: Path, open_report: Callable[..., Any]) -> None:
    """Every frame of every stack in the details panel, unfolded: the same address as by Python's rule."""
    path, out = plain(tmp_path), tmp_path / "report.html"
    assert in_process(path, "-o", out, "--link", EDITOR, "--strip-prefix", "/").code == 0
    opened = open_report(out)
    recording = snapreport.load(path).recording
    rules = SourceLinks(EDITOR, ["/"]).rules([None])
    seen = 0
    for stack in range(1, min(12, len(recording.stack_offsets) - 1)):
        opened.set_view(stack=stack)
        box = opened.page.locator(".details .switch input")
        if not box.is_checked():
            box.check()
        shown = opened.js("""() => [...document.querySelectorAll('.details .frames .place')].map(place =>
            [place.title, place.getAttribute('href') ?? '', place.target ?? ''])""")
        frames = opened.js("stack => snapreport.frames(0, stack)", stack)
        assert len(shown) == len(frames)
        for (title, href, target), frame in zip(shown, frames, strict=True):
            is_own = not re.search("site-packages|/torch/", frame["filename"])
            assert href == address(rules, frame["filename"], frame["line"], own=is_own), title
            assert target == ""  # an editor opens no tab
            seen += bool(href)
    assert seen
    summary = opened.js("[...document.querySelectorAll('#summary a[href^=\"vscode:\"]')].map(a => a.href)")
    assert summary and all(unescape(url).startswith("vscode://file/app/gpt/") for url in summary)
    opened.check()
