"""The recorder's metadata about the run, as rows of "About this recording"."""

from __future__ import annotations

import re

from msgspec import Struct

from snapreport.number_format import bytes_text, count_text
from snapreport.reading.recorder_metadata import Git, RecorderMetadata

_REASONS = {
    "oom": "when memory ran out",
    "every": "as a periodic snapshot",
    "steps": "after the chosen steps",
    "signal": "on a signal",
    "alarm": "at an alarm",
    "terminated": "when a signal ended the program",
    "running": "for a digest while the program ran",
    "exit": "when the program ended",
    "call": "when the program called for it",
    "test": "when a test failed",
}
# https and ssh remotes of any forge; anything else gets no link.
_REMOTE = re.compile(r"(?:https://|ssh://git@|git@)([\w.-]+)[:/]([\w./~-]+?)(?:\.git)?/?\Z", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")
_LONGEST = 400  # characters of a command line


class Fact(Struct, frozen=True):
    """A row: ``label``, ``text``, and ``url`` if the text is a link."""

    label: str
    text: str
    url: str = ""


def recorder_facts(metadata: RecorderMetadata) -> list[Fact]:
    """The rows for one snapshot; only known facts."""
    facts = [Fact("Written", _written(metadata)), Fact("Process", _process(metadata))]
    command = " ".join(_without_folders(part, metadata.process.get("directory", "")) for part in metadata.command)
    facts.append(Fact("Command", command if len(command) <= _LONGEST else f"{command[: _LONGEST - 1]}…"))
    facts.append(Fact("Versions", _versions(metadata.versions)))
    if metadata.git:
        facts.append(Fact("Git commit", _commit(metadata.git), commit_url(metadata.git)))
    for number, device in metadata.devices.items():
        facts.append(Fact(f"cuda:{number}", f"{device.name}, {bytes_text(device.total_bytes)} {device.uuid}".strip()))
    settings = {**metadata.allocator, **{k: v for k, v in metadata.options.items() if k in _SHOWN_OPTIONS}}
    facts.append(Fact("Recorded with", ", ".join(f"{key}={value}" for key, value in settings.items())))
    return [fact for fact in facts if fact.text]


_SHOWN_OPTIONS = ("stacks", "context", "max_entries", "steps", "every")


def commit_url(git: Git) -> str:
    """The web page of a commit; empty if the remote has no known form."""
    base = repository_url(git)
    return f"{base}/commit/{git.commit}" if base else ""


def recorded_commit(git: Git) -> str:
    """The commit's full hash; "" if the recorded value is not one."""
    return git.commit if _COMMIT.match(git.commit) else ""


def repository_url(git: Git) -> str:
    """``https://host/owner/project`` of the remote, or "". Never another scheme: the remote is untrusted input."""
    found = _REMOTE.match(git.remote or "")
    return f"https://{found[1]}/{found[2]}" if found and _COMMIT.match(git.commit) else ""


def _without_folders(argument: str, directory: str) -> str:
    """An argument without directories of the machine: relative to the program's directory, or only the last name."""
    option, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    if not re.match(r"/|[A-Za-z]:[\\/]", value):
        return argument
    root = directory.rstrip("/\\")
    if root and value.startswith((f"{root}/", f"{root}\\")):
        short = value[len(root) + 1 :]
    else:
        short = f"…/{value.replace(chr(92), '/').rstrip('/').rpartition('/')[2]}"
    return f"{option}{equals}{short}"


def _written(metadata: RecorderMetadata) -> str:
    parts = [_REASONS.get(metadata.reason, "")]
    if metadata.step is not None:
        parts.append(f"in step {count_text(metadata.step)}")
    if metadata.started_us is not None and metadata.dumped_us is not None:
        seconds = (metadata.dumped_us - metadata.started_us) / 1e6
        if 0 <= seconds < 1e9:
            parts.append(f"{seconds:,.1f} s after recording began")
    return " ".join(filter(None, parts)).capitalize()


def _process(metadata: RecorderMetadata) -> str:
    given = metadata.distributed
    parts = []
    if "RANK" in given:
        parts.append(f"rank {given['RANK']}" + (f" of {given['WORLD_SIZE']}" if "WORLD_SIZE" in given else ""))
    for name, word in (("LOCAL_RANK", "local rank"), ("GROUP_RANK", "node"), ("TORCHELASTIC_RESTART_COUNT", "restart")):
        if given.get(name, "0") != "0":
            parts.append(f"{word} {given[name]}")
    if "host" in metadata.process:
        parts.append(f"on {metadata.process['host']}")
    if "pid" in metadata.process:
        parts.append(f"process {metadata.process['pid']}")
    if given.get("TORCHELASTIC_RUN_ID", "none") != "none":
        parts.append(f"run {given['TORCHELASTIC_RUN_ID']}")
    return ", ".join(parts)


def _versions(versions: dict[str, str]) -> str:
    names = (("torch", "PyTorch"), ("cuda", "CUDA"), ("hip", "HIP"), ("python", "Python"), ("platform", "on"))
    return ", ".join(f"{word} {versions[key]}" for key, word in names if versions.get(key))


def _commit(git: Git) -> str:
    state = {True: " with uncommitted changes", False: "", None: ""}[git.dirty]
    return f"{git.commit[:12]}{state}"
