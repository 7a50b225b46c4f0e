"""Removes everything that identifies people and machines from a recording, before anything else uses it.

The beginning of a path that may name a person becomes ``~`` (``private_paths.py``); the names in it, host names that
the recorder wrote, those of this machine, mail addresses, and matches of the user's patterns become ``***``. Nothing
else changes: numbers and the stacks of allocations stay the same.
"""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct, structs

from snapreport import supervision
from snapreport.errors import SnapshotError
from snapreport.reading.event_columns import distinct, enum_series
from snapreport.reading.private_paths import IN_TEXT, SEPARATORS, names_in, split, without_temporary
from snapreport.reading.recorder_metadata import MODULES_SCHEMA, RecorderMetadata
from snapreport.reading.recording import ACTIONS, Recording

HIDDEN = "***"
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
# Generic accounts and hosts of images and services: they identify nobody, and words such as "user" have other uses.
_NOBODY = {
    "", "root", "user", "users", "admin", "ubuntu", "debian", "runner", "jovyan", "docker", "vscode", "nobody",
    "shared", "default", "group", "scratch", "project", "projects", "work", "code", "src", "lib", "test",
    "tests", "main", "models", "training", "inference", "tmp", "opt", "usr", "local", "app", "workspace",
    "step", "localhost", "ec2-user", "conda", "python", "torch", "data", "model", "train", "home",
}  # fmt: skip


class Redaction(Struct, frozen=True):
    """``patterns``: regular expressions; ``prefixes``: directories that file names are made relative to.

    Raises :class:`SnapshotError` for an invalid pattern.
    """

    patterns: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise SnapshotError(f"--redact-pattern: {pattern}: {error}") from None

    def of(self, recordings: Sequence[Recording]) -> list[Recording]:
        """Redacted copies of ``recordings``: a name found in one of them is hidden in all."""
        hide = self._hide({name for recording in recordings for name in _names_in(recording)})
        with supervision.matching():
            return [_redacted(recording, hide) for recording in recordings]

    def of_paths(self, paths: Sequence[str], names: Iterable[str] = ()) -> dict[str, str]:
        """Redacted names for files of which only the path is known. ``names``: of users and hosts."""
        hide = self._hide({*names, *(name for path in paths for name in names_in(path))})
        return {path: hide.text(hide.path(path)) for path in paths}

    def hides(self, path: str, recording: Recording) -> bool:
        """Whether a path contains anything that is hidden in ``recording``."""
        return self.of_paths([path], _names_in(recording))[path] != path

    def _hide(self, names: set[str]) -> _Hide:
        return _Hide(self, sorted((names | _names_here()) - _NOBODY, key=lambda name: (-len(name), name)))


class _Hide:
    def __init__(self, redaction: Redaction, names: list[str]) -> None:
        self._names = set(names)
        words = "|".join(map(re.escape, names))
        self._words = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])") if names else None
        self._patterns = [re.compile(pattern) for pattern in redaction.patterns]
        self._prefixes = sorted(
            (p.replace("\\", "/").rstrip("/") + "/" for p in redaction.prefixes), key=len, reverse=True
        )
        self._here = str(Path.home()) if len(Path.home().parts) > 1 else ""

    def text(self, text: str) -> str:
        """Redacts a sentence, a command or a setting."""
        text = IN_TEXT.sub(lambda found: split(found[0])[0], self._without_home(without_temporary(text)))
        text = _MAIL.sub(HIDDEN, text)
        if self._words:
            text = self._words.sub(HIDDEN, text)
        return self.matches(text)

    def path(self, path: str) -> str:
        """Redacts a file's path: names match only whole parts, since a module may share a user's name."""
        slashes = path.replace("\\", "/")
        for prefix in self._prefixes:
            if slashes.startswith(prefix):
                path = path[len(prefix) :]
                break
        path = split(self._without_home(without_temporary(path)))[0]
        parts = (HIDDEN if part in self._names else part for part in SEPARATORS.split(path))
        return self.matches("".join(parts))

    def name(self, text: str) -> str:
        """Redacts the name of a function or tensor: it may equal a user's name, or contain @ as C symbols do."""
        text = self._without_home(without_temporary(text))
        return self.matches(IN_TEXT.sub(lambda found: split(found[0])[0], text))

    def matches(self, text: str) -> str:
        return supervision.match(lambda: self._without_matches(text)) if self._patterns else text

    def _without_matches(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(HIDDEN, text)
        return text

    def _without_home(self, text: str) -> str:
        return re.sub(rf"{re.escape(self._here)}(?![\w.-])", "~", text) if self._here else text


def _names_in(recording: Recording) -> Iterable[str]:
    """Names that a recording identifies as users or hosts."""
    for name in recording.frames["filename"].unique().to_list():
        yield from names_in(name)
    if recording.recorder is None:
        return
    host = recording.recorder.process.get("host", "")
    yield from (host, host.partition(".")[0])
    for text in (recording.recorder.process.get("directory", ""), *recording.recorder.command):
        yield from (name for found in IN_TEXT.finditer(text) for name in names_in(found[0]))


def _names_here() -> set[str]:
    host = socket.gethostname()
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        user = ""
    return {host, host.partition(".")[0], user}


def _redacted(recording: Recording, hide: _Hide) -> Recording:
    frames = recording.frames.with_columns(
        _mapped(recording.frames["filename"], hide.path),
        _mapped(recording.frames["name"], hide.name),
        *(_mapped(recording.frames[name], hide.text) for name in recording.frames.columns if name.startswith("fx_")),
    )
    devices = {
        number: structs.replace(
            record,
            events=record.events.with_columns(
                _actions(record.events["action"], hide),
                *(_mapped(record.events[name], hide.text) for name in ("compile_context", "user_metadata")),
            ),
        )
        for number, record in recording.devices.items()
    }
    return structs.replace(
        recording,
        name=hide.text(recording.name),
        path=hide.text(recording.name),
        settings=_deep(recording.settings, hide.text),
        notes=_deep(recording.notes, hide.text),
        frames=frames,
        annotations=recording.annotations.with_columns(
            _mapped(recording.annotations[name], hide.text) for name in ("name", "stage")
        ),
        devices=devices,
        recorder=_recorder(recording.recorder, hide) if recording.recorder else None,
        profile=recording.profile and recording.profile.redacted(hide.name),
    )


def _recorder(metadata: RecorderMetadata, hide: _Hide) -> RecorderMetadata:
    process = {key: value for key, value in metadata.process.items() if key != "host"}
    git = metadata.git and structs.replace(
        metadata.git,
        commit=hide.matches(metadata.git.commit) if metadata.git.commit else metadata.git.commit,
        remote=None,
        root=hide.path(metadata.git.root) if metadata.git.root else None,
    )
    return structs.replace(
        metadata,
        process=_deep(process, hide.text),
        command=[hide.text(part) for part in metadata.command],
        run=_deep(metadata.run, hide.text),
        distributed=_deep(metadata.distributed, hide.text),
        versions=_deep(metadata.versions, hide.text),
        allocator=_deep(metadata.allocator, hide.text),
        options=_deep(metadata.options, hide.text),
        git=git,
        devices={
            number: structs.replace(device, name=hide.text(device.name), uuid="")
            for number, device in metadata.devices.items()
        },
        tensors=metadata.tensors.with_columns(_mapped(metadata.tensors["name"], hide.name)),
        device_memory=metadata.device_memory.with_columns(
            _mapped(metadata.device_memory["line"].cast(pl.String), hide.name)
        ),
        saved=metadata.saved.with_columns(_mapped(metadata.saved["saved_by"], hide.name)),
        modules=metadata.modules.with_columns(*(_mapped(metadata.modules[key], hide.name) for key in MODULES_SCHEMA)),
    )


def _actions(column: pl.Series, hide: _Hide) -> pl.Series:
    """Redacts unknown actions, which are texts of the file."""
    unknown = column.dtype.categories.to_list()[len(ACTIONS) :] if isinstance(column.dtype, pl.Enum) else []
    if not unknown:
        return column
    return enum_series("action", column.to_physical().to_numpy(), distinct([*ACTIONS, *map(hide.text, unknown)]))


def _mapped(column: pl.Series, change: Callable[[str], str]) -> pl.Series:
    """``column`` with ``change`` applied once to each distinct text; nulls are unchanged."""
    distinct = column.unique().drop_nulls().to_list()
    changed = [change(text) for text in distinct]
    different = [(old, new) for old, new in zip(distinct, changed, strict=True) if old != new]
    if not different:
        return column
    return column.replace(*map(list, zip(*different, strict=True)))


def _deep(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_deep(key, change): _deep(item, change) for key, item in value.items()}
    return [_deep(item, change) for item in value] if isinstance(value, list) else value
