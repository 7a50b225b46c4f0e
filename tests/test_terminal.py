"""Strings of a snapshot on a terminal, in Markdown and in spreadsheets: they are shown literally and do nothing."""

from __future__ import annotations

import pickle
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from cli import in_process, process
from test_bad_input import ALLOC, BLOCK, FRAME, GOOD, SEGMENT

from snapreport.report.markdown import code_cell, escape, prose
from snapreport.terminal import visible

FORGED = "all 9 checks passed"
# A window title, a cleared screen, an 8-bit control sequence, reversed and hidden text, and a separate line.
HOSTILE = f"a\x1b]0;owned\x07b\x1b[2Jc\x9b31md\u202ee\u200bf\u2066g\r\n{FORGED}\n\u2028{FORGED}\x85{FORGED}\x7f"


def hostile_snapshot(size: int = 8 << 20) -> dict[str, Any]:
    frames = [{"filename": f"/x/{HOSTILE}.py", "line": 3, "name": HOSTILE}]
    entry = ALLOC | {"size": size, "frames": frames, "compile_context": HOSTILE, "user_metadata": HOSTILE}
    block = BLOCK | {"size": 16 << 20, "requested_size": size, "frames": frames}
    segment = SEGMENT | {"total_size": 16 << 20, "blocks": [block], "segment_type": "large"}
    return GOOD | {
        "segments": [segment],
        "device_traces": [[entry | {"action": HOSTILE, "addr": 0, "size": 0}, entry]],
        "allocator_settings": {HOSTILE: HOSTILE, "PYTORCH_CUDA_ALLOC_CONF": HOSTILE},
        "external_annotations": [{"name": HOSTILE, "stage": "START", "device": 0, "time_us": 1}],
        HOSTILE: 1,
    }


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"x\x1b[31m\u202e{n}\n{FORGED}.pickle" for n in (1, 2, 3)]
    for path, size in zip(paths, (8 << 20, 9 << 20, 10 << 20), strict=True):
        path.write_bytes(pickle.dumps(hostile_snapshot(size)))
    return paths


def assert_harmless(text: str) -> None:
    bad = [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")]
    assert not bad, f"{bad[0]!r} in {text[:2000]!r}"
    assert not [line for line in text.split("\n") if line.strip().startswith(FORGED)], text


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", 0],
        ["stats", 0, 1, "--query", "live:peak"],
        ["stats", 0, "--query", f"func:'{FORGED}\x1b[31m'"],
        ["stats", 0, "--markdown"],
        ["stats", 0, "--json"],
        ["diff", 0, 1],
        ["diff", 0, 1, 2],
        ["diff", 0, 1, "--json"],
        ["check", 0, "--max-peak", "1MiB", "--max-reserved", "1MiB"],
        ["check", 0, "--max-peak", "1MiB", "--summary-md", "-"],
        ["check", 0, 1, 2, "--fail-on", "leak,oom,fragmentation"],
        ["check", 1, "--baseline", 0, "--max-growth", "1%"],
        ["whatif", 0],
        ["whatif", 0, "--memory", "1GiB", "--without", f"func:'{FORGED}\x1b'"],
        [0, "-o", "out.html"],
        [0, "-o", "\x1b[31mout\n.html"],
        [0, "--title", HOSTILE, "-o", "no/such/\x1b[31m"],
        ["\x1b[31mabsent.pickle"],
        ["stats", f"absent\n{FORGED}"],
        ["stats", 0, f"--no\x1b[31m\n{FORGED}"],
        [0, "--max-size", f"\x1b[31m\n{FORGED}"],
        ["diff", 0, 1, "--device", f"\x1b\n{FORGED}"],
        ["stats", 0, "--query", f"size>\x1b[31m\n{FORGED}"],
        ["check", 0, "--fail-on", f"\x1b[31m\n{FORGED}"],
    ],
    ids=repr,
)
def test_nothing_of_a_snapshot_reaches_a_terminal_raw(
    arguments: list[Any], files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = in_process(*[files[a] if isinstance(a, int) else a for a in arguments])
    assert run.out or run.err
    assert_harmless(run.out)
    assert_harmless(run.err)
    if run.code == 0 and "--json" not in arguments and arguments[0] in ("stats", "diff"):
        assert "\\x1b" in run.out


def test_bad_input_in_places_is_shown_harmlessly(tmp_path: Path) -> None:
    path = tmp_path / "bad.pickle"
    for bad in (
        GOOD | {"segments": [SEGMENT | {"blocks": [BLOCK | {"state": 3, HOSTILE: 1}]}]},
        {HOSTILE: 1},
        GOOD | {"device_traces": [[ALLOC | {"frames": [FRAME | {"line": HOSTILE}]}]]},
        GOOD | {"device_traces": [[ALLOC | {"size": HOSTILE}]]},
    ):
        path.write_bytes(pickle.dumps(bad))
        run = in_process("stats", path)
        assert run.code == 2 and len(run.err.splitlines()) == 1
        assert_harmless(run.err)


def test_an_output_that_cannot_show_every_character(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An arrow on a Latin-1 terminal ended in a traceback."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    run = process("diff", files[0], files[1])
    assert run.code == 0 and run.out.isascii() and "\\u2192" in run.out and not run.err


def test_visible_text() -> None:
    assert visible("plain text, ünïcode → 漢字 😀") == "plain text, ünïcode → 漢字 😀"
    assert visible("\x1b[2J\r\n\t\x9b\u202e\u200d\ufeff\ud800\u2028\u3164") == (
        r"\x1b[2J\r\n\t\x9b\u202e\u200d\ufeff\ud800\u2028\u3164"
    )


def test_markdown_stands_for_itself() -> None:
    assert escape("Tom & <b>Jerry</b>") == r"Tom \& \<b\>Jerry\</b\>"
    assert escape("see https://evil.example/?a=1&b=2 now") == r"see `https://evil.example/?a=1&b=2` now"
    assert escape("www.evil.example") == "`www.evil.example`"
    assert escape("write to x@evil.example or @team") == r"write to `x@evil.example` or \@team"
    assert escape("1. x") == r"1\. x" and escape("- x") == r"\- x" and escape("=== x") == r"\=== x"
    assert escape("2.50 GiB") == "2.50 GiB"
    assert escape("a\x1b[31m") == r"a\\x1b\[31m"
    assert code_cell("a|b") == r"`a\|b`" and "|" not in code_cell("a\\|b") and code_cell("") == ""
    assert code_cell("a`b\x1b\u202e") == r"``a`b\x1b\u202e``"
    for hostile in ("`x` | y", "](http://evil.example)", "![x](https://evil.example)", "<img src=x>", "&lt;", "``` x"):
        for text in (escape(hostile), prose(hostile)):
            outside = re.sub(r"(`+).*?\1", "", text)
            assert "http" not in outside and not re.search(r"(?<!\\)[<&\]]", outside), text
