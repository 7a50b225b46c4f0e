"""``snapreport check`` and ``snapreport diff`` as a job runs them: exit codes, files, one line for each error."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from xml.etree import ElementTree

import corpus
import pytest
from cli import in_process as run
from msgspec.structs import replace
from planted import path_of, planted, rewritten
from scripted import MIB, Script

import snapreport
from snapreport.contracts.check import Check
from snapreport.findings.gate import check
from snapreport.findings.gate_rules import Growth, Rules
from snapreport.report.gate_output import check_junit, check_markdown
from snapreport.report.markdown import code_cell, escape

GIB = 1 << 30
LOG = (("/app/metrics.py", "log"), ("/app/train.py", "main"))


def leak(**changes: object) -> str:
    return str(path_of("leak", **changes))


def test_rules_that_hold_pass() -> None:
    done = run("check", leak(), "--max-peak", "8GiB", "--max-reserved", "8 GiB", "--fail-on", "oom,fragmentation")
    assert (done.code, done.err) == (0, "")
    assert "FAIL" not in done.out
    assert "4 checks passed" in done.out


def test_a_limit_is_exact_to_the_byte() -> None:
    peak = planted("leak").timeline(0).peak_bytes
    assert run("check", leak(), "--max-peak", str(peak)).code == 0
    broken = run("check", leak(), "--max-peak", str(peak - 1))
    assert broken.code == 1
    assert "1 B over the limit" in broken.out


def test_a_leak_fails_and_names_the_function() -> None:
    done = run("check", leak(), "--fail-on", "leak")
    assert done.code == 1
    assert "log_step" in done.out
    assert run("check", leak(leak=0), "--fail-on", "leak").code == 0


def test_an_oom_fails() -> None:
    assert run("check", str(path_of("oom")), "--fail-on", "oom").code == 1
    assert run("check", str(path_of("training")), "--fail-on", "oom").code == 0


@pytest.mark.parametrize(("growth", "code"), [("4%", 1), ("500 %", 0), ("1MiB", 1), ("50GiB", 0), ("0%", 1)])
def test_growth_against_a_baseline(growth: str, code: int) -> None:
    after = str(path_of("training", steps=2, regression=1.5))
    done = run("check", after, "--baseline", str(path_of("training", steps=2)), "--max-growth", growth)
    assert done.code == code
    assert ("more from" in done.out) == (code == 1)


def test_reserved_growth_is_exact_to_the_byte() -> None:
    before, after = path_of("training", steps=2), path_of("training", steps=2, regression=1.5)
    grown = int(snapreport.load(after).timeline(0).reserved.max()) - int(
        snapreport.load(before).timeline(0).reserved.max()
    )
    assert grown > 0
    for allowed, code in ((grown, 0), (grown - 1, 1)):
        done = run("check", str(after), "--baseline", str(before), "--max-reserved-growth", f"{allowed}B")
        assert done.code == code and "max-reserved-growth" in done.out and "peak reserved" in done.out


def test_a_digest_is_a_baseline(tmp_path: Path) -> None:
    before, after = path_of("training", steps=2), path_of("training", steps=2, regression=1.5)
    digest = tmp_path / "before.digest"
    assert run("digest", str(before), "-o", str(digest)).code == 0
    grown = snapreport.load(after).timeline(0).peak_bytes - snapreport.load(before).timeline(0).peak_bytes
    for allowed, code in ((grown, 0), (grown - 1, 1)):
        done = run("check", str(after), "--baseline", str(digest), "--max-growth", f"{allowed}B")
        assert done.code == code, done.err
    assert "more in " in done.out


def test_growth_limits_are_exact() -> None:
    assert Growth(share=0.05).limit(1000) == 1050
    assert Growth(size=7).limit(1000) == 1007


def test_json_says_what_the_text_says() -> None:
    done = run("check", leak(), "--max-peak", "1GiB", "--fail-on", "leak", "--json")
    assert done.code == 1
    document = done.json
    assert document["schema"] == "snapreport-check/1"
    assert document["passed"] is False
    assert [entry["rule"] for entry in document["checks"]] == ["max-peak", "fail-on leak"]
    assert document["checks"][0]["value"] == planted("leak").timeline(0).peak_bytes
    assert document["checks"][0]["limit"] == GIB


def test_files_for_a_job(tmp_path: Path) -> None:
    done = run(
        "check", leak(), "--max-peak", "1GiB", "--max-reserved", "100GiB",
        "--summary-md", str(tmp_path / "summary.md"), "--junit", str(tmp_path / "junit.xml"),
    )  # fmt: skip
    assert done.code == 1
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("## 1 of 2 memory checks failed")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert len(suite.findall("testcase/failure")) == 1


def test_hostile_names_stay_inert_in_every_output() -> None:
    """Pipes and mentions in function names; control characters, which XML cannot contain at all."""

    def rename(frame: dict) -> None:
        frame["name"] = "a|b` @all <img src=x> \x00\x1b[31m \ud800 *x*\n# heading"

    path = rewritten(path_of("small"), "hostile.pickle", rename)
    checks = check(snapreport.load(path), Rules(max_peak=1))
    text = check_markdown(checks)
    assert "\n# heading" not in text
    outside = re.sub(r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)", "", text)  # in code every character is literal
    assert "<img" not in outside.replace("\\<img", "")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    failure = ElementTree.fromstring(check_junit(checks)).find("testsuite/testcase/failure")
    assert "a|b" in failure.text


def test_escaping() -> None:
    assert escape("a*b_c\n#d") == r"a\*b\_c \#d"
    assert code_cell("a`b|c") == "``a`b\\|c``"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no rule given"),
        (("--max-peak", "lots"), "is not a size"),
        (("--max-peak", "30"), "'30' has no unit; try 30GiB or 30MiB"),
        (("--max-reserved", "12.5"), "has no unit"),
        (("--max-peak", "-3GiB"), "is not a size"),
        (("--max-growth", "5%"), "given together"),
        (("--baseline", "SNAP"), "given together"),
        (("--baseline", "SNAP", "--max-growth", "5"), "neither a percentage nor a size"),
        (("--baseline", "SNAP", "--max-growth", "five"), "neither a percentage nor a size"),
        (("--fail-on", "leek"), "is no kind of finding"),
        (("--fail-on", ","), "no kind of finding given"),
        (("--max-peak", "1GiB", "--junit", "/nowhere/at/all.xml"), "cannot write"),
    ],
    ids=str,
)
def test_bad_usage_is_one_line(arguments: tuple[str, ...], told: str) -> None:
    small = str(path_of("small"))
    done = run("check", small, *(small if argument == "SNAP" else argument for argument in arguments))
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_nothing_to_check_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "empty.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    done = run("check", str(tmp_path / "empty.pickle"), "--max-peak", "1GiB")
    assert done.code == 2
    assert "nothing to check" in done.err


def test_diff_on_a_terminal_and_as_json() -> None:
    before, after = str(path_of("training", steps=2)), str(path_of("training", steps=2, regression=1.5))
    done = run("diff", before, after)
    assert done.code == 0
    assert "grew" in done.out
    document = run("diff", before, after, "--json").json
    assert document["schema"] == "snapreport-diff/1"
    assert json.loads(run("diff", before, before, "--json").out)["devices"][0]["moments"][0]["delta"] == 0


def test_every_line_names_the_file() -> None:
    done = run("check", leak(), "--max-peak", "1GiB", "--max-reserved", "8GiB", "--fail-on", "leak,oom")
    lines = [line for line in done.out.splitlines() if line.startswith(("ok", "FAIL"))]
    assert len(lines) == 4 and all(path_of("leak").name in line for line in lines)


def test_too_few_steps_are_no_pass() -> None:
    """A file that cannot show a leak exits 2 and says why; it is no failure of the program that it recorded."""
    path = path_of("training", steps=2)
    done = run("check", str(path), "--fail-on", "leak")
    assert done.code == 2 and done.out.startswith(f"UNKNOWN  {path.name}  fail-on leak  cuda:0: Too few steps")
    assert done.err == (
        f"snapreport: {path.name}: cuda:0: cannot decide fail-on leak: "
        "Too few steps to detect a leak: record at least four.\n"
    )
    document = run("check", str(path), "--fail-on", "leak", "--json").json
    assert document["passed"] is False and document["status"] == "unknown"
    assert [(c["passed"], c["status"]) for c in document["checks"]] == [(False, "unknown")]
    suite = ElementTree.fromstring(run("check", str(path), "--fail-on", "leak", "--junit", "-").out).find("testsuite")
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1") and suite.find("testcase/error") is not None


def test_no_rule_passes_that_the_recording_cannot_decide() -> None:
    sure = Check("fits", "a.pickle", "cuda:0", True, "cuda:0 runs", 1, 2)
    assert (sure.passed, sure.status) == (True, "passed")
    unsure = replace(sure, unknown="its start was lost")
    assert (unsure.passed, unsure.status) == (False, "unknown")


def test_what_is_broken_is_broken_whatever_else_is_unknown() -> None:
    done = run("check", str(path_of("training", steps=2)), "--fail-on", "leak", "--max-peak", "1MiB")
    assert done.code == 1 and done.err == ""
    assert "1 of 2 checks failed; 1 of 2 checks cannot be decided" in done.out


def test_start_and_end_equal_is_no_pass() -> None:
    """A program that frees everything ends as it began, whatever it kept in between."""
    path = corpus.scratch() / "equal.pickle"
    script = Script()
    for size in (3, 5, 8):
        script.free(script.alloc(f"work {size}", size * MIB, *LOG), *LOG)
    path.write_bytes(pickle.dumps(script.raw(), 4))
    done = run("check", str(path), "--fail-on", "leak")
    assert done.code == 2 and "Too few steps to detect a leak" in done.out


def test_a_lost_past_is_no_pass() -> None:
    """Where the recorder lost events an earlier peak may have been higher; a rule that is broken anyway fails."""
    path = str(path_of("truncated"))
    passed, failed = (run("check", path, "--max-peak", limit) for limit in ("100GiB", "1MiB"))
    assert (passed.code, failed.code) == (2, 1)
    assert "within the limit" in passed.out and passed.err.count("\n") == 1


def test_a_series_is_one_leak_check() -> None:
    """Each file has too few steps to show it; together they do, in any order."""
    growing = [str(path_of("leak", steps=steps, leak=20 * MIB)) for steps in (3, 1, 2)]
    done = run("check", *growing, "--fail-on", "leak", "--json")
    (check_of_all,) = done.json["checks"]
    assert done.code == 1 and check_of_all["file"].endswith("(3 files)")
    assert "log_step metrics.py:31 leaks 20.0 MiB a snapshot" in check_of_all["message"]
    steady = [str(path_of("leak", leak=0, steps=steps)) for steps in (3, 1, 2)]
    done = run("check", *steady, "--fail-on", "leak")
    assert done.code == 0 and done.out.count("fail-on leak") == 1 and "no stack grows over 3 snapshots" in done.out
    two = run("check", *growing[1:], "--fail-on", "leak")
    assert two.code == 2 and "give at least three" in two.err


def test_a_series_tells_the_growth() -> None:
    files = [str(path_of("leak", steps=steps)) for steps in (4, 6, 8)]
    document = run("diff", *files, "--json").json
    assert document["series"][0]["growth"] == 2 * 3 * (1 << 20)
    assert "from one snapshot to the next" in run("diff", *files).out


def test_diff_needs_two() -> None:
    done = run("diff", leak())
    assert done.code == 2
    assert "two snapshots are needed" in done.err
