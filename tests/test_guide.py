"""The walks of the user's guide: its commands run, and print the quoted sentences."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cli import in_process

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "guide.md"
WALKS = re.findall(r"^### (\d+\. .+?)\n(.*?)(?=^##)", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_there_are_ten() -> None:
    assert len(WALKS) == 10


@pytest.mark.parametrize("walk", [text for _, text in WALKS], ids=[title.partition(".")[0] for title, _ in WALKS])
def test_a_walk(walk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```sh\n(.*?)^```", walk, re.MULTILINE | re.DOTALL)
    quoted = [line.removeprefix("> ") for line in walk.splitlines() if line.startswith("> ")]
    assert quoted
    printed = ""
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "snapreport"
        result = in_process(*arguments)
        assert result.code == 0, result.err
        printed += result.out + result.err
    printed = " ".join(printed.split())
    for sentence in quoted:
        assert sentence in printed, f"not printed any more: {sentence}"


def test_pictures_are_there() -> None:
    for name in re.findall(r"!\[[^]]+\]\(([^)]+)\)", GUIDE.read_text("utf-8")):
        assert (GUIDE.parent / name).exists(), f"{name}: run docs/make_pictures.py"
