"""The parts of a path that may name a person: all before a folder of an environment, and below homes and mounts.

A folder's name does not say whether it is a person's. So what is kept is what is known to name nobody: the folders of
systems and images (``/usr``, ``/opt``, ``/workspace``), of Python environments, and of projects below a home.
"""

from __future__ import annotations

import re

SEPARATORS = re.compile(r"([/\\]+)")
# The parts after which a person's name follows, wherever they stand: /home, /home2, /homestud, /Users.
_PEOPLE = re.compile(r"(?:home(?:s|[\d_-]\w*|stud\w*|dir\w*|local)?|users?|people|students?|staff)\Z", re.IGNORECASE)
# Where systems, images and builds of PyTorch are; below all others, people may have folders.
_SYSTEM = {
    "usr", "opt", "lib", "lib64", "bin", "sbin", "build", "buildx", "workspace", "workdir", "app", "tmp", "var",
    "pytorch", "content", "kaggle", "databricks", "nix", "etc", "proc", "src", "code", "snap", "run", "torch",
    "conda", "croot", "__w", "github", "venv", "library", "system", "applications", "windows", "sys", "dev",
    "local_disk0", "azureml-envs", "builds", "folders", "private", "program files", "program files (x86)",
}  # fmt: skip
_ENVIRONMENT = re.compile(
    r"(?:site-packages|dist-packages|(?:mini|ana)conda\d*|mini(?:forge|mamba)\d*|mambaforge\d*|\.?v?envs?|\.?virtualenvs?"
    r"|python\d[\d.]*|\.(?:local|cache|conda|pyenv|triton|cargo|rye|pixi|vscode-server))\Z",
    re.IGNORECASE,
)
_PROJECT = {
    "project", "projects", "proj", "src", "source", "code", "work", "workspace", "repo", "repos", "git",
    "github", "dev", "app", "lib", "libs", "scripts", "examples", "documents", "desktop", "downloads",
    "notebooks", "experiments", "job", "jobs", "p", "memory", "cache",
}  # fmt: skip
_DEEPEST = 4  # folders above a person's at most: /lfs/ampere8/0/NAME
# After their user, or on macOS (/var/folders/4t/1ywkc5hx…/T) by a number for one.
_TEMPORARY = re.compile(r"(torchinductor_|pytest-of-|/var/folders/)([^/\\\s]+(?:(?<=/var/folders/..)/[^/\\\s]+(?=/))?)")
# In a text. A URL's path is none.
IN_TEXT = re.compile(r"(?<![\w.~:/\\-])(?:[A-Za-z]:)?(?:[/\\][^\s/\\\"'=:;,<>|()]+){2,}[/\\]?")


def split(path: str) -> tuple[str, str, list[str]]:
    """What stays of a path after a beginning that may name a person, that beginning ("" if none), and the names there.

    What stays begins with ``~`` if there is such a beginning.
    """
    pieces = SEPARATORS.split(path)
    parts = pieces[::2]
    folders = parts[:-1]
    if parts[0].startswith("~") and len(parts[0]) > 1:
        return _cut(pieces, 0, [parts[0][1:]])
    people = [i for i, part in enumerate(folders[:-1]) if _PEOPLE.match(part)]
    if not people and len(parts) > 1 and _PEOPLE.match(folders[-1]):
        people = [len(folders) - 1]  # the home itself
    environment = next((i for i, part in enumerate(folders) if _ENVIRONMENT.match(part)), None)
    if people:
        last = people[-1]
        before = [i for i in people if environment is None or i < environment]
        last = before[-1] if before else last
        names = [parts[i + 1] for i in people if i + 1 < len(parts)]
        end = last + 1
        if environment is not None and environment > end:
            return _cut(pieces, environment - 1, [*names, *parts[end + 1 : environment]])
        # Homes may be below those of groups: the next folder is a project's only if it is named so.
        if end + 1 < len(folders) and parts[end + 1].lower() not in _PROJECT:
            return _cut(pieces, end + 1, [*names, parts[end + 1]])
        return _cut(pieces, end, names)
    if path == "/root":
        return _cut(pieces, 1, [])
    is_absolute = len(pieces) > 1 and (not parts[0] or re.fullmatch(r"[A-Za-z]:|file:", parts[0]) is not None)
    top = 1 if is_absolute else 0
    if not is_absolute or len(folders) <= top or parts[top].lower() in _SYSTEM:
        return path, "", []
    if parts[top] == "root":
        return _cut(pieces, top, [])
    if environment is not None:
        return _cut(pieces, environment - 1, parts[top + 1 : environment])
    end = min(len(folders) - 1, top + _DEEPEST - 1)
    return _cut(pieces, end, parts[top + 1 : end + 1])


def _cut(pieces: list[str], last: int, names: list[str]) -> tuple[str, str, list[str]]:
    begin, rest = pieces[: 2 * last + 1], pieces[2 * last + 1 :]
    return "~" + "".join(rest), "".join(begin), [name for name in names if name]


def without_temporary(path: str) -> str:
    """A path whose folders for temporary files, which programs name after their user, have no name."""
    return _TEMPORARY.sub(r"\1***", path)


def names_in(path: str) -> list[str]:
    """Names of people in a path; also other folders of which it is not known that they name nobody."""
    found = [*split(path)[2], *(found[2] for found in _TEMPORARY.finditer(path))]
    return [name for name in found if len(name) > 1 and not name.isdigit() and name.lower() not in _SYSTEM | _PROJECT]
