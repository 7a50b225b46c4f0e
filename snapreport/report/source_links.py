"""Web or editor addresses of the lines that stack traces name.

Without a template, files of a working tree whose commit and remote were recorded link to that commit. With one
(``--link``), every file of the program that the template can name gets a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

import polars as pl
from msgspec import Struct

from snapreport.errors import SnapshotError
from snapreport.reading.recorder_metadata import RecorderMetadata
from snapreport.reading.recording import Recording
from snapreport.report.recorder_facts import recorded_commit, repository_url
from snapreport.timeline.modules import ARROW
from snapreport.timeline.operators import SEPARATOR
from snapreport.timeline.own_code import LAUNCHED_FROM, frame_lines, own_code

CALLED_BY = " ← "
"""Separates a line from its caller."""
SCHEMES = (
    "http", "https", "file", "vscode", "vscode-insiders", "vscodium", "cursor", "windsurf", "zed", "pycharm", "idea",
    "jetbrains", "subl", "txmt", "mvim", "emacs", "nvim",
)  # fmt: skip
"""Schemes of a template: pages, files and editors. All others are refused, above all those that run scripts."""
PLACEHOLDERS = ("path", "line", "commit", "remote")
_WEB = ("http", "https")
_REPOSITORY = "{remote}/blob/{commit}/{path}#L{line}"
_NAMED = re.compile(r"\{([^{}]*)\}")
# Characters that must be escaped in a URL, and parentheses, which would end a link in Markdown.
_FORBIDDEN = re.compile(r"[\s<>\"'`|\\^()\x00-\x1f\x7f]")
_ABSOLUTE = re.compile(r"/|[A-Za-z]:/")
BETWEEN = (SEPARATOR, LAUNCHED_FROM, CALLED_BY, ARROW)
"""The separators between the lines of one name."""
_BETWEEN = re.compile(f"({'|'.join(map(re.escape, BETWEEN))})")
_NOT_OWN = {"..", ".", "", "site-packages", "dist-packages"}


class Rule(Struct, frozen=True):
    """Files below ``root`` ("": every file) have the address ``url``, a template with {path} and {line}. ``absolute``:
    with root "", absolute names too.
    """

    root: str
    url: str
    absolute: bool = False


class SourceLinks(Struct, frozen=True):
    """``template``: as for ``--link``, "" for the recorder's repository; ``prefixes``: folders that paths are relative
    to.
    """

    template: str = ""
    prefixes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.template:
            _check(self.template)
        elif self.prefixes:
            raise SnapshotError("--strip-prefix needs --link or --redact")

    def rules(self, recorders: Iterable[RecorderMetadata | None]) -> list[Rule]:
        """The rules; the longest root that fits a file counts. A root with several addresses, of different commits, has
        none.

        Raises :class:`SnapshotError` if the template needs a commit or a remote and no recording has one.
        """
        found: dict[Rule, None] = {}
        missing = set()
        for recorder in recorders:
            git = recorder.git if recorder else None
            values = {"commit": recorded_commit(git) if git else "", "remote": repository_url(git) if git else ""}
            lacking = {name for name in values if f"{{{name}}}" in (self.template or _REPOSITORY) and not values[name]}
            if lacking:
                missing |= lacking
                continue
            root = _slashes(git.root).rstrip("/") if git and git.root else ""
            url = (self.template or _REPOSITORY).replace("{commit}", values["commit"])
            found |= dict.fromkeys(self._roots(url.replace("{remote}", values["remote"]), root))
        if self.template and missing and not found:
            raise SnapshotError(f"--link: no recording holds a {min(missing)}; write it into the template")
        urls: dict[str, set[Rule]] = {}
        for rule in found:
            urls.setdefault(rule.root, set()).add(rule)
        return [rule for rule in found if len(urls[rule.root]) == 1]

    def of(self, recording: Recording) -> Mapping[str, str]:
        """Addresses by line name as in sentences: "forward dit.py:83", "dit.py:83". A name shared by files has none."""
        rules = self.rules([recording.recorder]) if self._is_possible(recording) else []
        if not rules:
            return {}
        frames = recording.frames.select("filename", "line").with_columns(
            text=frame_lines(recording), own=pl.Series(own_code(recording))
        )
        frames = frames.filter(pl.col("line") > 0).unique()
        short = pl.col("text").str.split(" ").list.last()
        one_file = pl.concat([frames, frames.with_columns(text=short)]).filter(
            pl.col("filename").n_unique().over("text") == 1
        )
        return {
            text: url
            for filename, line, text, own in one_file.iter_rows()
            if (url := address(rules, filename, line, own=own))
        }

    def of_all(self, recordings: Sequence[Recording]) -> dict[str, Mapping[str, str]]:
        """:meth:`of` by the names of the recordings; none for names shared by several."""
        names = [recording.name for recording in recordings]
        return {recording.name: self.of(recording) for recording in recordings if names.count(recording.name) == 1}

    def _is_possible(self, recording: Recording) -> bool:
        """Whether the template's commit and remote are known: some of several recordings may lack them."""
        git = recording.recorder.git if recording.recorder else None
        template = self.template or _REPOSITORY
        return ("{remote}" not in template or bool(git and repository_url(git))) and (
            "{commit}" not in template or bool(git and recorded_commit(git))
        )

    def _roots(self, url: str, repository: str) -> list[Rule]:
        if self.prefixes:
            roots = [_slashes(prefix).rstrip("/") for prefix in self.prefixes]
            return [Rule(root, url, absolute=not root) for root in roots]
        if not self.template:
            return [Rule(repository, url)] if repository else []
        if not url.startswith(tuple(f"{scheme}:" for scheme in _WEB)):
            return [Rule("", url, absolute=True)]  # an editor opens whole paths
        return [*([Rule(repository, url)] if repository else []), Rule("", url)]


REPOSITORY_LINKS = SourceLinks()


def address(rules: Sequence[Rule], filename: str, line: int, *, own: bool) -> str:
    """The address of a line, "" if no rule covers its file. ``own``: whether it is the program's own code; other code
    has an address only inside a root. The page does the same, in ``static/src/data/source-links.ts``.
    """
    file = _slashes(filename)
    fitting = [rule for rule in rules if _fits(rule, file, own)]
    if not fitting or line <= 0:
        return ""
    rule = max(fitting, key=lambda rule: len(rule.root))
    path = file[len(rule.root) + 1 :] if rule.root else file.removeprefix("/")
    parts = path.split("/")
    if not _NOT_OWN.isdisjoint(parts) or parts[-1].startswith("<") or parts[-1] == "??":
        return ""
    try:
        values = {"path": "/".join(map(_quoted, parts)), "line": str(line)}
    except UnicodeEncodeError:  # a lone surrogate, which no URL can contain
        return ""
    return _NAMED.sub(lambda found: values[found[1]], rule.url)


def first_own_file(recording: Recording) -> str:
    """A file of the program's own code, "" if no stack trace names one."""
    own = recording.frames.filter(pl.Series(own_code(recording)) & (pl.col("line") > 0))
    return str(own["filename"][0]) if len(own) else ""


def linked_parts(text: str, links: Mapping[str, str]) -> list[tuple[str, str]]:
    """``text`` split into (part, address or ""): the lines of a name such as "forward dit.py:83 from train.py:42"."""
    if not links:
        return [(text, "")]
    return [(part, links.get(part, "")) for part in _BETWEEN.split(text) if part]


def _check(template: str) -> None:
    scheme = re.match(r"([a-z][a-z0-9+.-]*):", template)
    if not template.startswith("{remote}") and (not scheme or scheme[1] not in SCHEMES):
        raise SnapshotError(f"--link: a template begins with one of {', '.join(f'{name}:' for name in SCHEMES)}")
    names = _NAMED.findall(template)
    unknown = [name for name in names if name not in PLACEHOLDERS]
    if unknown or re.search("[{}]", _NAMED.sub("", template)):
        what = f"{{{unknown[0]}}}" if unknown else "a brace"
        raise SnapshotError(f"--link: {what} is not known; there are {', '.join(f'{{{n}}}' for n in PLACEHOLDERS)}")
    if "path" not in names:
        raise SnapshotError("--link: a template needs {path}")
    bad = _FORBIDDEN.search(template)
    if bad:
        raise SnapshotError(f"--link: write {bad[0]!r} as {quote(bad[0], safe='')}")


def _fits(rule: Rule, file: str, own: bool) -> bool:
    if rule.root:
        return file.startswith(f"{rule.root}/")
    return own and (rule.absolute or not _ABSOLUTE.match(file))


def _quoted(part: str) -> str:
    """Percent-encoded; a colon stays, for drives ("C:")."""
    return quote(part, safe=":")


def _slashes(path: str) -> str:
    return path.replace("\\", "/")
