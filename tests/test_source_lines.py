"""``--source``: which files are quoted, which never, and that their text stays text."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import cli
import corpus
import decoder
import polars as pl
import pytest

import snapreport
from snapreport.report import source_lines as module
from snapreport.report.source_lines import source_lines


def frames(*rows: tuple[str, int, str]) -> list[pl.DataFrame]:
    return [pl.DataFrame(rows, schema={"filename": pl.String, "line": pl.Int64, "name": pl.String}, orient="row")]


def written(folder: Path, path: str, lines: int = 20, text: str = "line {} of {}") -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(text.format(n, path) for n in range(1, lines + 1)), encoding="utf-8")
    return file


def quoted(folder: Path, *rows: tuple[str, int, str]) -> dict[str, dict[int, str]]:
    """File name of frames → line number → its text."""
    found = source_lines(frames(*rows), [folder]).files
    return {
        name: {first + i: text for first, texts in stretches for i, text in enumerate(texts)}
        for name, stretches in found.items()
    }


def test_three_lines_on_either_side(tmp_path: Path) -> None:
    written(tmp_path, "gpt/model.py")
    found = quoted(
        tmp_path, ("/app/gpt/model.py", 10, "f"), ("/app/gpt/model.py", 12, "g"), ("/app/gpt/model.py", 1, "h")
    )
    assert found == {
        "/app/gpt/model.py": {n: f"line {n} of gpt/model.py" for n in [1, 2, 3, 4, *range(7, 16)]},
    }


def test_the_longest_common_end_wins(tmp_path: Path) -> None:
    written(tmp_path, "a/pkg/model.py", text="a {}")
    written(tmp_path, "b/pkg/model.py", text="b {}")
    found = quoted(tmp_path, ("C:\\run\\b\\pkg\\model.py", 5, "f"))
    assert found["C:\\run\\b\\pkg\\model.py"][5] == "b 5"
    assert quoted(tmp_path, ("/elsewhere/pkg/model.py", 5, "f")) == {}, "two fit equally well: neither is taken"


def test_a_name_alone_needs_the_function(tmp_path: Path) -> None:
    written(tmp_path, "train.py", text="def step(): {}")
    assert quoted(tmp_path, ("/app/train.py", 5, "step"))
    assert quoted(tmp_path, ("/app/train.py", 5, "<module>"))
    assert quoted(tmp_path, ("/site-packages/other/train.py", 5, "unheard_of")) == {}


def test_a_line_past_the_end_is_another_file(tmp_path: Path) -> None:
    written(tmp_path, "gpt/model.py", lines=8)
    assert quoted(tmp_path, ("/app/gpt/model.py", 9, "f")) == {}


@pytest.mark.parametrize(
    "name", ["", "??", "<string>", "/", "..", "../..", "/app/../gpt/secret.py", "../gpt/secret.py", "\\\\", "."]
)
def test_what_names_no_file(name: str, tmp_path: Path) -> None:
    written(tmp_path, "in/gpt/secret.py")
    written(tmp_path, "gpt/secret.py")
    assert quoted(tmp_path / "in", (name, 5, "f")) == {}


def test_never_from_outside(tmp_path: Path) -> None:
    """Links that lead out of the folder are not followed, neither to files nor to folders; those that stay
    inside are.
    """
    inside, outside = tmp_path / "in", tmp_path / "out"
    secret = written(outside, "gpt/secret.py")
    own = written(inside, "gpt/own.py")
    os.symlink(secret, inside / "gpt" / "secret.py")
    os.symlink(outside / "gpt", inside / "linked")
    os.symlink("../../out/gpt/secret.py", inside / "gpt" / "relative.py")
    os.symlink(own, inside / "gpt" / "alias.py")
    os.symlink("loop.py", inside / "gpt" / "loop.py")
    rows = [
        (f"/app/{place}", 5, "f") for place in ("gpt/secret.py", "linked/secret.py", "gpt/relative.py", "gpt/loop.py")
    ]
    assert quoted(inside, *rows) == {}
    assert list(quoted(inside, ("/app/gpt/alias.py", 5, "f"), ("/app/gpt/own.py", 5, "f"))) == [
        "/app/gpt/alias.py",
        "/app/gpt/own.py",
    ]
    # The folder itself may be a link: its target was requested.
    os.symlink(inside, tmp_path / "shortcut")
    assert quoted(tmp_path / "shortcut", ("/app/gpt/own.py", 5, "f"))


def test_only_text_and_only_so_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("nul.py", b"a\n\0\n" * 20), ("latin.py", b"\xff\xfe\n" * 20), ("pipe.py", None)):
        (tmp_path / "pkg").mkdir(exist_ok=True)
        if content is None:
            os.mkfifo(tmp_path / "pkg" / name)
        else:
            (tmp_path / "pkg" / name).write_bytes(content)
        assert quoted(tmp_path, (f"/app/pkg/{name}", 3, "f")) == {}
    written(tmp_path, "pkg/long.py", text="x" * 3000)
    assert max(map(len, quoted(tmp_path, ("/app/pkg/long.py", 3, "f"))["/app/pkg/long.py"].values())) == module.MAX_LINE
    monkeypatch.setattr(module, "MAX_TEXT", 3000)
    written(tmp_path, "pkg/short.py")
    found = source_lines(frames(("/app/pkg/long.py", 10, "f"), ("/app/pkg/short.py", 10, "f")), [tmp_path])
    assert list(found.files) == ["/app/pkg/short.py"] and found.cut and "not all of them" in found.sentence
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 100)
    assert quoted(tmp_path, ("/app/pkg/short.py", 3, "f")) == {}


def snapshot_with(tmp_path: Path, name: str) -> Path:
    stack = [{"filename": name, "line": 5, "name": "f"}]
    trace: list[dict[str, Any]] = [
        {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 1, "frames": stack}
    ]
    path = tmp_path / "made.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    return path


def test_the_report_holds_them_and_says_so(tmp_path: Path) -> None:
    hostile = "</script><script>alert({})</script><!-- {{{{ 7 * 7 }}}} \u2028"
    written(tmp_path / "src", "gpt/model.py", text=hostile)
    path, report = snapshot_with(tmp_path, "/app/gpt/model.py"), tmp_path / "r.html"
    assert cli.in_process(path, "-o", report, "--source", tmp_path / "src").code == 0
    text = report.read_text(encoding="utf-8")
    assert "alert(" not in text.split("<script", 1)[0] and "<script>alert(" not in text
    files = decoder.Report(text).section("source")["files"]
    assert files == {"/app/gpt/model.py": [[2, [hostile.format(n) for n in range(2, 9)]]]}
    assert "7 lines of source of 1 file (--source)" in text
    assert str(tmp_path) not in text, "the folder's name stays at home"


def test_never_by_default_and_first_to_go(tmp_path: Path) -> None:
    # Text that does not compress, so that leaving it out saves something.
    (tmp_path / "src" / "gpt").mkdir(parents=True)
    (tmp_path / "src" / "gpt" / "model.py").write_text(
        "\n".join(random.Random(n).randbytes(200).hex() for n in range(12))
    )
    path, report = snapshot_with(tmp_path, "/app/gpt/model.py"), tmp_path / "r.html"
    size = snapreport.write_report(snapreport.load(path), report)
    plain = decoder.Report(report.read_text(encoding="utf-8"))
    assert "source" not in plain.manifest["sections"] and "of source" not in report.read_text(encoding="utf-8")
    full = snapreport.write_report(snapreport.load(path), report, source=[tmp_path / "src"])
    assert full > size
    run = cli.in_process(path, "-o", report, "--source", tmp_path / "src", "--max-size", f"{full - 1}")
    assert run.code == 0 and "lines of source" in run.err
    assert "this report holds" not in report.read_text(encoding="utf-8")
    assert "source" not in decoder.Report(report.read_text(encoding="utf-8")).manifest["sections"]


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    run = cli.in_process(corpus.path_of("small"), "-o", tmp_path / "r.html", "--source", tmp_path / "nowhere")
    cli.assert_refused(run, "no such directory (--source)")
    assert not (tmp_path / "r.html").exists()
