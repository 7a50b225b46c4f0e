"""Pages of the documentation: what their command lines say can be said, and where their links lead."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from snapreport.cli import main

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert re.match(r"[a-z]+:", target) or (page.parent / target).exists(), target


def test_the_site_has_all_pages_and_twelve_recordings() -> None:
    pages = site_pages()
    assert len(pages.GALLERY) == 12
    assert all((pages.RECORDINGS / f"{name}.pickle.xz").is_file() for name, _ in pages.GALLERY.values())
    nav = yaml.safe_dump(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert set(re.findall(r"[\w-]+\.md", nav)) - {"index.md"} == {page.name for page in DOCS.glob("*.md")}
    for target in re.findall(r"\]\(([^)#]+)", pages.start_page()):
        assert re.match(r"[a-z]+:", target) or (DOCS / target).exists(), target
