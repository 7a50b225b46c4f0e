"""What ``snapreport record`` does to processes that it does not record: nothing. And its options, without a GPU."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import cli
import pytest

import snapreport
from snapreport.recorder import metadata
from snapreport.recorder.options import Options, from_json, parse_steps

PACKAGE = Path(snapreport.__file__).parent
BOOTSTRAP = PACKAGE / "recorder" / "bootstrap"
# The parts of snapreport that import nothing but the standard library.
LIGHT = tuple(
    f"snapreport.{name}" for name in ("recorder", "available_memory", "durable_rename", "number_format", "terminal")
)


def bootstrapped(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Python with the bootstrap folder first on PYTHONPATH, and ``path`` after it."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [BOOTSTRAP, *path])),
        "SNAPREPORT_RECORD": Options("unused").to_json(),
    }
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)


def test_recorder_imports_nothing_else() -> None:
    """It runs in processes that have torch and the standard library, and none of snapreport's dependencies."""
    allowed = {*sys.stdlib_module_names, "torch", "snapreport", "zstandard", "compression", "pynvml"}
    # The callbacks are imported in programs that use these.
    allowed |= {"lightning", "pytorch_lightning", "transformers"}
    for path in (PACKAGE / "recorder").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.partition(".")[0] in allowed, f"{path.name} imports {name}"
                light = name.startswith(LIGHT)
                assert light or not name.startswith("snapreport."), f"{path.name} imports {name}"


def test_silent_without_torch() -> None:
    done = bootstrapped("import sys, json; print('snapreport' in sys.modules, sys.path[1:2])")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("False ") and str(BOOTSTRAP) not in done.stdout


def test_an_existing_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.was_here = __name__, __file__")
    code = "import sys, sitecustomize; print(sys.was_here); print(sitecustomize.__file__)"
    done = bootstrapped(code, tmp_path)
    own = str(tmp_path / "sitecustomize.py")
    assert done.stdout.splitlines() == [str(("sitecustomize", own)), own] and not done.stderr


def test_the_hook_undoes_itself(tmp_path: Path) -> None:
    """After ``import torch``: no finder, no changed loader; and a torch that appears on the path late is found."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("from . import inner\nclass version: cuda = hip = None\n")
    (tmp_path / "torch" / "inner.py").touch()
    code = (
        "import importlib.util, sys\n"
        "finders = lambda: [n for n in (type(finder).__name__ for finder in sys.meta_path) if n == 'TorchImport']\n"
        "before = finders()\n"
        "try: import torch\n"
        "except ImportError: pass\n"
        f"sys.modules.pop('torch', None); sys.path.insert(0, {str(tmp_path)!r})\n"
        "again = finders()\n"
        "import torch\n"
        "print(before, again, finders(), 'exec_module' in vars(torch.__spec__.loader), torch.__file__)\n"
    )
    # Without site-packages, where a torch may be.
    start = f"import sys; sys.path.insert(0, {str(BOOTSTRAP)!r})\nimport sitecustomize\n"
    without_torch = [sys.executable, "-S", "-c", start + code]
    variables = {**os.environ, "SNAPREPORT_RECORD": Options("unused").to_json()}
    done = subprocess.run(without_torch, env=variables, capture_output=True, text=True, check=False)
    file = tmp_path / "torch" / "__init__.py"
    assert done.stdout == f"['TorchImport'] ['TorchImport'] [] False {file}\n", done.stderr


def test_a_process_on_a_build_without_cuda(tmp_path: Path) -> None:
    """The tensors on the CPU are recorded; the program is unaffected."""
    pytest.importorskip("torch", reason="torch is not installed: what record says without CUDA was not tested")
    program = "import torch; assert torch.version.cuda is None; print(torch.ones(3).sum().item())"
    done = cli.process("record", "-o", tmp_path / "run", "--", sys.executable, "-c", program)
    if "AssertionError" in done.err:
        pytest.skip("this torch has CUDA")
    assert (done.code, done.out) == (0, "3.0\n")
    lines = [line for line in done.err.splitlines() if line.startswith("snapreport: ")]
    assert lines == [f"snapreport: 1 snapshot in {tmp_path / 'run'}: rank_00000_step_00000000_exit.json.gz"]


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["no-such-command"], 127, "snapreport: no-such-command: command not found"),
        ([str(PACKAGE)], 126, f"snapreport: {PACKAGE}: Permission denied"),
    ],
)
def test_a_command_that_cannot_run(tmp_path: Path, command: list[str], code: int, message: str) -> None:
    done = cli.process("record", "-o", tmp_path, "--", *command)
    assert done.code == code and done.err.splitlines()[0] == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "6:3"], "'6:3' is an empty range of steps"),
        (["--steps", "later"], "'later' is not a range of steps such as 3:6"),
        (["--on-signal", "KILL"], "not a signal that can be caught"),
        (["--redact", "("], "redact is '('"),
        (["--every", "0"], "--every"),
    ],
)
def test_bad_options(options: list[str], message: str, tmp_path: Path) -> None:
    done = cli.in_process("record", "-o", tmp_path / "run", *options, "--", "true")
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1 and not (tmp_path / "run").exists()


def test_options_of_the_command_are_its_own(tmp_path: Path) -> None:
    done = cli.process("record", "-o", tmp_path, "--", sys.executable, "-c", "import sys; print(sys.argv)", "-o", "x")
    assert done.out == "['-c', '-o', 'x']\n"


def test_the_command_has_no_settings_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy in a recorded program has as many threads as without the recorder."""
    ours = ("OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "_RJEM_MALLOC_CONF")
    for name in ours:
        monkeypatch.delenv(name, raising=False)
    program = f"import os; print([name for name in {ours} if name in os.environ])"
    assert cli.process("record", "-o", tmp_path, "--", sys.executable, "-c", program).out == "[]\n"


def test_options_travel() -> None:
    options = Options("run", steps=(3, 6), redact=("a", "b"), every=7, git={"commit": "c", "dirty": None})
    assert from_json(options.to_json()) == options
    newer = json.dumps({**json.loads(options.to_json()), "of_the_next_version": 1})
    assert from_json(newer) == options
    assert parse_steps("3") == (3, 4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stacks": "java"}, "stacks is 'java'; it can be python, all"),
        ({"max_entries": True}, "max_entries is True"),
        ({"steps": (3, 3)}, "steps: 3:3 is no step"),
        ({"everry": 3}, "everry"),
    ],
)
def test_record_says_which_option_is_wrong(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        snapreport.record("unused", **wrong)


def test_secrets_are_redacted() -> None:
    command = [
        "train.py",
        "--api-key",
        "A",
        "--hub_token=B",
        "--lr=3",
        "--tokenizer",
        "gpt2",
        "--password",
        "--fast",
        "C9",
    ]
    expected = [
        "train.py",
        "--api-key",
        "***",
        "--hub_token=***",
        "--lr=3",
        "--tokenizer",
        "gpt2",
        "--password",
        "--fast",
        "C9",
    ]
    assert metadata.redacted(command) == expected
    assert metadata.redacted(["s3://bucket/C9"], ("C9", "bucket")) == ["s3://***/***"]


def test_a_rank_without_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.distributed knows it where no variable says it; what a launcher set takes precedence."""
    initialized = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 5, get_world_size=lambda: 8
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(distributed=initialized))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert {k: metadata.distributed_facts()[k] for k in ("RANK", "WORLD_SIZE")} == {"RANK": "5", "WORLD_SIZE": "8"}
    monkeypatch.setenv("RANK", "7")
    assert metadata.distributed_facts()["RANK"] == "7" and "WORLD_SIZE" not in metadata.distributed_facts()


def test_what_runs_later_is_not_decorated() -> None:
    async def serve() -> None: ...

    with pytest.raises(ValueError, match="cannot decorate serve"):
        snapreport.record("unused")(serve)


def test_git(tmp_path: Path) -> None:
    """The commit, whether it is what ran, and a remote without its user's token."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert metadata.git_facts(tmp_path) is None
    git("init", "-q")
    (tmp_path / "train.py").write_text("1")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "first")
    git("remote", "add", "origin", "https://user:secret@example.org/team/project.git")
    expected = {
        "commit": git("rev-parse", "HEAD"), "root": str(tmp_path.resolve()), "dirty": False,
        "remote": "https://example.org/team/project.git",
    }  # fmt: skip
    assert metadata.git_facts(tmp_path) == expected
    (tmp_path / "train.py").write_text("2")
    assert metadata.git_facts(tmp_path) == {**expected, "dirty": True}
