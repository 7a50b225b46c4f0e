"""Pages of the documentation: command lines run, tables are what they describe, links lead somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest
import yaml
from cli import in_process

import snapreport
from snapreport.cli import main
from snapreport.exporting.tables import tables
from snapreport.samples import recordings

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def site_pages() -> Any:
    spec = importlib.util.spec_from_file_location("site_pages", DOCS / "site_pages.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def command_lines() -> list[tuple[str, list[str]]]:
    """Page and words of every ``snapreport …`` in a shell block, or between backticks in a line."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
        lines += re.findall(r"`(snapreport [^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
        for line in lines:
            for command in re.split(r"&&|\|\|?|;", line.split(" # ")[0]):
                words = shlex.split(command, comments=True)
                if words and words[0].rpartition("/")[2] == "snapreport":
                    found.append((page.name, words[1:]))
    return found


def test_command_lines_have_options_that_there_are() -> None:
    lines = command_lines()
    assert len(lines) > 60
    for page, words in lines:
        command: click.Command = main
        context = click.Context(main)
        while isinstance(command, click.Group):
            name = words[0] if words and words[0] in command.list_commands(context) else None
            if command is main and name is None:
                command = main.commands["report"]
            elif name is None:
                command = command.commands["show"]
            else:
                found = command.get_command(context, name)
                assert found, (page, words)
                command, words = found, words[1:]
        try:
            values, _, _ = command.make_parser(click.Context(command)).parse_args(list(words))
        except click.UsageError as error:
            if isinstance(error, click.BadOptionUsage) and words[-1].startswith("--"):
                continue  # an option that is only named
            pytest.fail(f"{page}: snapreport {' '.join(words)}: {error.format_message()}")
        for param in command.params:
            if isinstance(param.type, click.Choice) and values.get(str(param.name)):
                given = values[str(param.name)]
                for value in given if isinstance(given, list) else [given]:
                    assert value in param.type.choices, (page, words)


# Beginnings of those that do not run here.
NOT_RUN = {
    "record": "it records a program: test_recorder_*.py",
    "mcp": "it serves until its input ends: test_agents.py",
    "job s3:": "there is no such bucket",
    "fit job-": "it takes long: test_fit_jobs.py",
    "export --to": "only named, without files",
    "job --watch": "only named, without files",
    "diff before/ after/ [": "brackets are what may follow",
}
RUN_ELSEWHERE = {"guide.md", "first-steps.md"}
BARE = {"help", "skill --install", "schema stats", "sample"}
CAUSES = ROOT / "tests" / "recordings" / "causes"


def files_of_the_pages(folder: Path) -> None:
    """What the pages' commands read: small recordings by the names that the pages use."""
    small, later, ranks = CAUSES / "none.pickle.xz", CAUSES / "batch.pickle.xz", recordings("job")
    for name in ("SNAP", "A", "BEFORE", "snap.pickle", "before.pickle.gz", "batch4.pickle", "base.pickle"):
        shutil.copy(small, folder / name)
    for name in ("B", "AFTER", "after.pickle.gz", "batch8.pickle", "new.pickle"):
        shutil.copy(later, folder / name)
    for name, paths in (("run", ranks[:2]), ("runs", ranks[:2]), ("before", ranks[:2]), ("after", ranks[1:3])):
        (folder / name).mkdir()
        for number, path in enumerate(paths):
            shutil.copy(path, folder / name / f"rank_{number}.pickle")
    for name, path in (("job-batch4", small), ("job-batch8", later)):
        (folder / name).mkdir()
        for rank in range(2):
            shutil.copy(path, folder / name / f"rank{rank}.pickle")
    for number, path in enumerate(ranks[:3]):
        shutil.copy(path, folder / f"rank{number}.pickle")
    shutil.copy(ranks[0], folder / "run" / "rank_0.pickle.gz")


def test_command_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the guide run in test_guide.py, and print what it quotes; the first steps in test_first_steps.py."""
    files_of_the_pages(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("RUN", "run"),
        ("SLURM_ARRAY_TASK_ID", "1"),
        ("GITHUB_SHA", "f" * 40),
        ("HOME", str(tmp_path)),
    ):
        monkeypatch.setenv(name, value)
    ran, not_run = 0, set()
    for line in dict.fromkeys(shlex.join(words) for page, words in command_lines() if page not in RUN_ELSEWHERE):
        if reason := next((start for start in NOT_RUN if line.replace("'", "").startswith(start)), ""):
            not_run.add(reason)
            continue
        words = [os.path.expandvars(word) for word in shlex.split(line)]
        if words[0].startswith("snapreport/"):
            words[0] = str(ROOT / words[0])
        if line not in BARE and not any(Path(word).exists() or "*" in word for word in words[1:] or words):
            continue  # a command or an option that is only named
        done = in_process(*words)
        allowed = (0, 1, 2) if words[0] == "check" else (0,)  # a check may fail, and be UNKNOWN
        assert done.code in allowed and "see 'snapreport" not in done.err, (line, done.code, done.err)
        ran += 1
    assert ran > 25 and not_run == NOT_RUN.keys()


def test_columns_are_those_of_the_frames() -> None:
    text = (DOCS / "columns.md").read_text("utf-8")
    written = {
        title: [(column, kind) for column, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", part, re.MULTILINE)]
        for title, part in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    }
    snapshot = snapreport.load(recordings("fragmentation")[0])
    exported = dict(tables(snapshot))
    frames = {
        name: getattr(snapshot, name)(0)
        for name in ("allocations", "events", "segments", "curve", "steps", "spans", "modules")
    }
    frames |= {"frames": snapshot.frames(1), "blocks": snapshot.recording.devices[0].blocks}
    frames |= {name: exported[name].drop("snapshot") for name in ("stacks", "stack_frames")}
    frames["category_curve"] = exported["category_curve"].drop("snapshot", "device")
    in_width = snapshot.category_curve(0)
    assert in_width.columns == ["position", *sorted(frames["category_curve"]["category"].unique())]
    assert set(in_width.dtypes[1:]) == {pl.Int64}
    with_stacks = snapshot.allocations(0, with_stacks=True)
    frames["allocations with_stacks"] = with_stacks.drop(frames["allocations"].columns)
    assert written == {
        name: [(column, "Enum" if isinstance(kind, pl.Enum) else str(kind)) for column, kind in frame.schema.items()]
        for name, frame in frames.items()
    }
    assert exported.keys() == frames.keys() - {"allocations with_stacks", "modules", "frames"}


def test_the_table_of_check_is_its_help() -> None:
    page = (DOCS / "check.md").read_text("utf-8").splitlines()
    assert [line for line in page if line.startswith("| `")] == site_pages().check_options()


def test_a_finding_has_its_example() -> None:
    pages = site_pages()
    text = pages.findings_page([pages.RECORDINGS / "witnesses" / "codebook.pickle.xz"])
    assert "## distance-matrix" in text and "The nearest of a codebook's vectors" in text and "(replayed)**" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert re.match(r"[a-z]+:", target) or (page.parent / target).exists(), target


def test_the_site_has_all_pages_and_twelve_recordings() -> None:
    pages = site_pages()
    assert len(pages.GALLERY) == 12
    assert all((pages.RECORDINGS / f"{name}.pickle.xz").is_file() for name, _ in pages.GALLERY.values())
    nav = yaml.safe_dump(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert set(re.findall(r"[\w-]+\.md", nav)) - {"index.md", "findings.md"} == {
        page.name for page in DOCS.glob("*.md")
    }
    for target in re.findall(r"\]\(([^)#]+)", pages.start_page()):
        assert re.match(r"[a-z]+:", target) or (DOCS / target).exists(), target


def test_every_environment_variable_is_documented() -> None:
    """Those that code names where it uses the environment, and no others; Python itself reads TMPDIR."""
    section = (DOCS / "settings.md").read_text("utf-8").partition("## Environment variables")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    documented = {re.sub("=.*", "", name) for row in rows for name in re.findall(r"`(.+?)`", row)}
    name = re.compile(r'"(_?[A-Z]+(?:_[A-Z]+)+|RANK|TERM|PYTHONPATH)"')  # one word is a column of a table, or a signal
    package = Path(snapreport.__file__).parent  # of the wheel, in its tests: no checkout is beside them
    sources = [path.read_text("utf-8") for path in sorted(package.rglob("*.py"))]
    used = {found for source in sources if "environ" in source for found in name.findall(source)}
    assert documented - {"TMPDIR"} == used
