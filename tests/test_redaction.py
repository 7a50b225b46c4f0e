"""What a report says about machines and people: only what it must, and with --redact less."""

from __future__ import annotations

import itertools
import json
import pickle
import re
from pathlib import Path
from typing import Any

import decoder
import numpy as np
import pytest
from cli import assert_refused, in_process
from test_bad_input import ALLOC, BLOCK, GOOD, SEGMENT

from snapreport.reading.redaction import Redaction
from snapreport.samples import recordings

FILES = [
    "/home/alice/project/train.py",
    "/nfs/fast/home/alice/lib/model.py",
    "/Users/bob.smith/code/data.py",
    "C:\\Users\\Carol\\work\\run.py",
    "/scratch/alice/job/main.py",
    "/root/proj/eval.py",
    "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py",
]
PROGRAM = ["/home/alice/env/bin/python", "/home/alice/project/train.py", "--data=/mnt/vault/set1", "--user", "alice"]
RECORDER = {
    "schema": "snapreport-recording/1",
    "reason": "exit",
    "process": {"host": "node17.secret.example", "pid": 4711, "directory": "/home/alice/project", "command": PROGRAM},
    "distributed": {"RANK": "0", "TORCHELASTIC_RUN_ID": "run-of-alice"},
    "versions": {"torch": "2.9.1", "platform": "Linux-node17"},
    "allocator": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "options": {"directory": "/home/alice/project/memory"},
    "git": {
        "commit": "a" * 40,
        "root": "/home/alice/project",
        "remote": "git@git.corp.example:alice/project.git",
        "dirty": False,
    },
    "devices": {0: {"name": "H200", "uuid": "GPU-1234", "total_bytes": 1 << 37, "memory_stats": {}}},
}
CODE = {"application", "views", "jobview"}
SECRETS = ("alice", "bob.smith", "Carol", "node17", "secret.example", "git.corp", "GPU-1234", "/root/")


def frames(files: list[str]) -> list[dict[str, Any]]:
    return [{"filename": name, "line": n + 3, "name": f"function{n}"} for n, name in enumerate(files)]


@pytest.fixture
def snap(tmp_path: Path) -> Path:
    path = tmp_path / "rank0_node17.pickle"
    entry = ALLOC | {
        "frames": frames(FILES),
        "user_metadata": "run by alice on node17, mail alice@corp.example",
        "compile_context": "/home/alice/cache/0",
    }
    snapshot = GOOD | {
        "segments": [SEGMENT | {"blocks": [BLOCK | {"frames": frames(FILES)}]}],
        "device_traces": [[entry]],
        "allocator_settings": {"path": "/home/alice/x"},
        "external_annotations": [{"name": "step of alice", "stage": "START", "device": 0, "time_us": 1}],
        "snapreport": RECORDER,
    }
    path.write_bytes(pickle.dumps(snapshot))
    return path


def text_of(report: Path) -> str:
    """The document and everything packed into it, as one text."""
    read = decoder.Report(report.read_text())
    return report.read_text() + "".join(
        json.dumps([read._blob(name)[0], _plain(read._blob(name)[1])]) for name in read.blobs if name not in CODE
    )


def _plain(columns: dict[str, Any]) -> list[Any]:
    """Columns of text; numbers contain no names."""
    return [value for value in columns.values() if not isinstance(value, np.ndarray)]


def test_nothing_of_a_person_or_host_is_left(snap: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    assert in_process(snap, "--redact", "-o", out).code == 0
    assert in_process("diff", snap, snap, "--redact", "-o", tmp_path / "diff.html").code == 0
    texts = [text_of(out), text_of(tmp_path / "diff.html")]
    stats = ["stats", snap]
    printed = ([snap, "--dry-run"], stats, [*stats, "--markdown"], [*stats, "--json"], ["diff", snap, snap, "--json"])
    texts += [in_process(*arguments, "--redact").out for arguments in printed]
    for text in texts:
        assert text
        for secret in SECRETS:
            assert secret not in text, (secret, text[max(0, text.find(secret) - 80) : text.find(secret) + 80])
    shown = [line.strip() for line in texts[2].splitlines()]
    for name in (
        "~/project/train.py",
        "~/lib/model.py",
        "~/code/data.py",
        "~\\work\\run.py",
        "~/main.py",
        "~/proj/eval.py",
        FILES[-1],
    ):
        assert name in shown and json.dumps(name)[1:-1] in texts[0], name


def test_nothing_is_left_in_what_other_commands_write(snap: Path, tmp_path: Path) -> None:
    ranks = tmp_path / "home" / "alice"
    ranks.mkdir(parents=True)
    for rank in range(2):
        (ranks / f"alice-node17.corp.example_rank{rank}.pickle").write_bytes(snap.read_bytes())
    page, digest = tmp_path / "job.html", tmp_path / "rank0.digest"
    junit, markdown = tmp_path / "out.xml", tmp_path / "out.md"
    rules = ["--max-peak", "1KiB", "--redact"]
    detail = ["--detail", "worst", "--redact", "--rank-pattern", r"rank(\d)", "--jobs", 1]
    assert in_process("job", ranks, "-o", page, *detail, "--each", tmp_path / "each").code == 0
    assert in_process("digest", snap, "-o", digest, "--redact").code == 0
    from snapreport.jobs.digest_format import unpack

    texts = [text_of(page), json.dumps(unpack(digest.read_bytes()), default=str)]
    texts += [text_of(path) for path in (tmp_path / "each").iterdir()]
    assert len(texts) == 4
    texts += [
        in_process(*arguments).out
        for arguments in (
            ["job", ranks, "--json", *detail],
            ["job", ranks, "--dry-run", *detail],
            [*sorted(ranks.iterdir()), "--dry-run", "--redact"],
            ["digest", snap, "--dry-run", "--redact"],
            ["check", snap, *rules, "--junit", junit, "--summary-md", markdown],
            ["check", snap, *rules, "--json"],
            ["check", ranks, *rules, "--max-imbalance", "1%"],
            ["whatif", snap, "--json", "--redact"],
            ["whatif", snap, "--redact"],
        )
    ]
    texts += [junit.read_text(), markdown.read_text()]
    for number, text in enumerate(texts):
        assert text, number
        for secret in SECRETS:
            assert secret not in text, (number, secret, text[max(0, text.find(secret) - 80) : text.find(secret) + 80])
    assert "node17" in in_process("job", ranks, "--json", "--jobs", 1).out


def test_a_dry_run_of_a_job_lists_what_its_report_holds(snap: Path, tmp_path: Path) -> None:
    """Files named by rank make a job's report: its strings are listed, not those of separate reports."""
    ranks = [tmp_path / f"rank{rank}.pickle" for rank in range(2)]
    for path in ranks:
        path.write_bytes(snap.read_bytes())
    (tmp_path / "out").mkdir()
    page = tmp_path / "out" / "job.html"
    for detail in ("none", "worst"):
        assert in_process("job", *ranks, "-o", page, "--force", "--detail", detail, "--jobs", 1).code == 0
        run = in_process("job", *ranks, "-o", page, "--dry-run", "--detail", detail, "--jobs", 1)
        listed, text = {line.strip() for line in run.out.splitlines()}, text_of(page)
        assert run.code == 0 and "rank0.pickle" in listed
        for secret in SECRETS:
            assert (secret in run.out) == (secret in text), (detail, secret)
        for name in ("step of alice", "/home/alice/x", "function3"):
            assert (name in run.out) == (json.dumps(name)[1:-1] in text), (detail, name)
    page.unlink()
    alone = in_process(*ranks, "--dry-run")
    assert alone.code == 0 and "job of" in alone.out and not page.exists()
    assert "job of" not in in_process(*ranks, "--dry-run", "--separate").out
    assert in_process("job", *ranks, "--dry-run", "--json").code == 2
    assert in_process("job", *ranks, "--dry-run", "--each", tmp_path / "each").code == 2
    digest = in_process("digest", snap, "--dry-run").out
    assert "node17.secret.example" in digest and "git.corp" not in digest


def test_a_dry_run_of_a_job_lists_the_sentences_of_its_findings() -> None:
    chosen = [*recordings("job"), "--jobs", 1, "--detail", "none"]
    findings = json.loads(in_process("job", *chosen, "--json").out)["findings"]
    listed = in_process("job", *chosen, "--dry-run").out
    assert findings and all(finding["title"] in listed for finding in findings)


def test_a_digest_is_not_redacted_later(snap: Path, tmp_path: Path) -> None:
    assert in_process("digest", snap, "-o", tmp_path / "a.digest").code == 0
    assert_refused(in_process("job", tmp_path / "a.digest", "--redact", "-o", tmp_path / "j.html"), "digest --redact")
    assert in_process("digest", snap).code == 2
    assert in_process("whatif", snap, "--strip-prefix", "/opt").code == 2


def test_numbers_do_not_change(snap: Path) -> None:
    plain, redacted = (in_process("stats", snap, "--json", *more).json for more in ([], ["--redact"]))
    for a, b in zip(plain["snapshots"][0]["devices"], redacted["snapshots"][0]["devices"], strict=True):
        assert {k: v for k, v in a.items() if isinstance(v, int)} == {k: v for k, v in b.items() if isinstance(v, int)}


def test_patterns_and_prefixes(snap: Path) -> None:
    run = in_process(snap, "--dry-run", "--redact-pattern", "function[0-3]", "--strip-prefix", "/opt/venv/")
    shown = run.out.splitlines()
    assert run.code == 0 and "  ***" in shown and "  function4" in shown and "  function2" not in shown
    assert "    lib/python3.11/site-packages/torch/nn/modules/linear.py" in shown
    assert_refused(in_process(snap, "--redact-pattern", "("), "--redact-pattern")
    assert in_process(snap, "--redact", "--source", ".").code == 2
    assert in_process(snap, "--strip-prefix", "/opt").code == 2


def test_a_pattern_reaches_every_string(tmp_path: Path) -> None:
    """Each string of a snapshot is a different secret: none is revealed, and what a plain report contains is listed."""
    numbers = itertools.count()

    def secret(text: str = "") -> str:
        return f"{text}SECRET{next(numbers)}"

    def frame() -> dict[str, Any]:
        return {"filename": secret("/home/alice/"), "line": 3, "name": secret()} | {
            key: secret() for key in ("fx_node_op", "fx_node_name", "fx_original_trace", "unknown")
        }

    def entry(number: int) -> dict[str, Any]:
        texts = {key: secret() for key in ("user_metadata", "compile_context", "category", "unknown")}
        return ALLOC | texts | {"addr": 512 * (number + 1), "frames": [frame(), frame()]}

    recorder = RECORDER | {
        "process": {"host": secret(), "directory": secret("/"), "command": [secret("/"), secret("--a=")]},
        "distributed": {"RANK": "0", "TORCHELASTIC_RUN_ID": secret()},
        "versions": {"torch": secret(), "platform": secret()},
        "allocator": {"PYTORCH_CUDA_ALLOC_CONF": secret()},
        "options": {"directory": secret()},
        "git": {"commit": "a" * 40, "root": secret("/"), "remote": f"git@host.example:{secret()}/x.git"},
        "devices": {0: {"name": secret(), "uuid": secret(), "total_bytes": 1 << 37, "memory_stats": {secret(): 1}}},
    }
    snapshot = {
        "segments": [SEGMENT | {"frames": [frame()], "blocks": [BLOCK | {"frames": [frame()], "category": secret()}]}],
        "device_traces": [[*map(entry, range(3)), entry(5) | {"action": secret()}]],
        "allocator_settings": {secret(): secret(), "list": [secret()], "dict": {secret(): secret()}},
        "external_annotations": [{"name": secret(), "stage": secret(), "device": 0, "time_us": 1}],
        "snapreport": recorder,
        secret(): secret(),
    }
    path, plain, redacted = tmp_path / f"{secret()}.pickle", tmp_path / "plain.html", tmp_path / "redacted.html"
    path.write_bytes(pickle.dumps(snapshot))
    options = ["--redact-pattern", r"SECRET\d+"]
    assert in_process(path, "-o", plain).code == 0 and in_process(path, "-o", redacted, *options).code == 0
    texts = [text_of(redacted)]
    commands = (
        [path, "--dry-run"],
        ["stats", path, "--json"],
        ["digest", path, "--dry-run"],
        ["whatif", path, "--json"],
    )
    texts += [in_process(*command, *options).out for command in commands]
    for text in texts:
        assert text and not re.findall(r"SECRET\d+", text)
    listed = set(re.findall(r"SECRET\d+", in_process(path, "--dry-run").out))
    written = set(re.findall(r"SECRET\d+", text_of(plain)))
    assert written <= listed and len(written) > 30


def test_names_of_functions_hold_no_home(tmp_path: Path) -> None:
    path = tmp_path / "names.pickle"
    names = ["<lambda at /home/alice/x.py>", "memcpy@GLIBC_2.2.5"]
    frames = [{"filename": "x.py", "line": 1, "name": name} for name in names]
    path.write_bytes(pickle.dumps(GOOD | {"device_traces": [[ALLOC | {"frames": frames}]]}))
    shown = in_process(path, "--dry-run", "--redact").out
    assert "<lambda at ~/x.py>" in shown and names[1] in shown and "alice" not in shown


PLANTED = [
    "/home/zed/p/a.py", "/mnt/lustre/project/group/cluster/home/zed/x.py", "/Users/Ann zed/proj/b.py",
    "C:\\Users\\Ann zed\\p\\c.py", "/mnt/my data/home/zed/d.py", "/data/users/zed/e.py", "backup/home/zed/f.py",
    "/export/home2/zed/g.py", "file:///home/zed/h.py", "/nfs/vol+1/home/zed/i.py", "/gpfs/u/home/zed/j.py",
    "/home/GROUP/zed/k.py", "/private/var/folders/zed/l.py", "/scratch/zed/m.py", "\\\\server\\Users\\zed\\p.py",
    "/home/zed,corp/w.py", "~zed/s.py", "/u/zed/a/b.py", "/h/382/zed/p/x.py", "/gris/gris-f/homestud/zed/p.py",
    "/volume/pt-train/users/zed/a.py", "/lfs/ampere8/0/zed/x/y.py", "/scratch/c-zed/d.py",
    "/mnt/data3/zed/miniconda3/lib/x.py", "/mnt/disk1/zed/proj/m.py", "/cluster/work/zed/src/n.py",
    "/tmp/torchinductor_zed/ab/o.py", "/private/var/folders/4t/zed/T/q.py",
]  # fmt: skip
NOBODYS = [
    "/opt/venv/lib/python3.11/site-packages/torch/x.py", "/usr/lib/python3/x.py", "/pytorch/build/x.cpp",
    "torch/csrc/autograd/x.cpp", "??", "<string>", "/workspace/train.py",
]  # fmt: skip


def test_a_person_s_folder_goes_wherever_it_stands() -> None:
    # Each alone: a name that is found in one path is hidden in all.
    assert [path for path in PLANTED if "zed" in Redaction().of_paths([path])[path]] == []
    assert Redaction().of_paths(NOBODYS) == {path: path for path in NOBODYS}


def test_a_commit_obeys_patterns(snap: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    assert in_process(snap, "--redact-pattern", "a{12,}", "-o", out).code == 0
    assert "a" * 12 not in text_of(out)


def test_a_dry_run_writes_nothing_and_lists_what_goes_out(
    snap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = in_process(snap, "--dry-run")
    assert run.code == 0 and [p.name for p in tmp_path.iterdir()] == [snap.name]
    shown = [line.strip() for line in run.out.splitlines()]
    texts = ["function0", "step of alice", "run by alice on node17, mail alice@corp.example", snap.name]
    for text in (*FILES, *texts, "/home/alice/x", "/home/alice/cache/0"):
        assert text in shown, text


def test_a_report_says_nothing_of_the_machine_that_made_it(
    snap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder-of-the-machine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("A_SECRET_VARIABLE", "value-of-a-secret")
    (folder / snap.name).write_bytes(snap.read_bytes())
    assert in_process(folder / snap.name, "-o", folder / "out.html").code == 0
    text = text_of(folder / "out.html")
    # Nor the recorder's machine: no directory that is not in a stack trace anyway.
    for secret in ("folder-of-the-machine", "A_SECRET_VARIABLE", "value-of-a-secret", str(tmp_path), "/mnt/vault",
                   "/home/alice/env", "/home/alice/project/memory"):  # fmt: skip
        assert secret not in text, secret
    assert "…/python train.py --data=…/set1 --user alice" in text
