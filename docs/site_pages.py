"""Pages that the build of the site makes, as a hook of mkdocs: the start page from the README, a gallery, and an
example of every finding.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

import snapreport
from snapreport.commands.check import check
from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.report.brief import brief

ROOT = Path(__file__).resolve().parent.parent
RECORDINGS = ROOT / "tests" / "recordings"
PROGRAMS = ROOT / "tests" / "fakecuda" / "programs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = f"{PROJECT['urls']['Repository']}/blob/main/"
# Programs over real PyTorch, recorded by snapreport: name → (recording, what the program does).
GALLERY = {
    "leak": ("leaks/2.15.0_ends_oom", "A loop keeps what each step makes; then a request is too large."),
    "distances": ("witnesses/codebook", "Nearest vectors of a codebook, by subtracting all pairs."),
    "loss": ("witnesses/vocabulary", "A language model whose loss needs all logits at once."),
    "evaluation": ("witnesses/evaluated_words", "Validation without `torch.no_grad()`."),
    "predictions": ("witnesses/predictions", "A loop that collects its results on the device."),
    "broadcast": ("witnesses/regression", "A prediction of `[N, 1]` compared with a target of `[N]`."),
    "data": ("witnesses/tables", "The whole data set is moved to the device."),
    "optimizer": ("witnesses/adam", "Adam over all parameters at once."),
    "autocast": ("witnesses/copies", "Inference under autocast copies the weights to 16 bits."),
    "lengths": ("witnesses/grown_lengths", "Sequences grow from batch to batch."),
    "fragmentation": ("witnesses/split", "Large blocks are split for small requests."),
    "modules": ("modules", "A transformer, with the module of each allocation."),
}


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    rows = ["| report | the program | what the report says first |", "|---|---|---|"]
    for name, (recording, program) in GALLERY.items():
        path = RECORDINGS / f"{recording}.pickle.xz"
        report = Path(config["site_dir"]).parent / f".{name}.html"
        snapshot = snapreport.load(path)
        snapreport.write_report([snapshot], report, title=name)
        files.append(File.generated(config, f"gallery/{name}.html", content=report.read_bytes()))
        report.unlink()
        said = brief(snapshot).headline[0].replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| [{name}]({name}.html) | {program} | {said} |")
    text = "\n".join(
        [
            "# Gallery",
            "",
            f"{len(GALLERY)} live reports. The programs ran on PyTorch's own allocator, over a driver that needs no "
            "GPU; the sentences are those of the reports.",
            "",
            *rows,
            "",
        ]
    )
    files.append(File.generated(config, "gallery/index.md", content=text))
    files.append(File.generated(config, "index.md", content=start_page()))
    witnesses = sorted((RECORDINGS / "witnesses").iterdir())
    files.append(File.generated(config, "findings.md", content=findings_page(witnesses)))
    return files


def findings_page(recordings: Iterable[Path]) -> str:
    """An example of every kind of finding and every rule of advice that is found in the recordings."""
    programs = {
        node.name: ast.get_docstring(node)
        for path in PROGRAMS.rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    examples: dict[str, str] = {}
    for path in recordings:
        name = path.name.partition(".")[0]
        for finding in findings(snapreport.load(path)):
            rule = (
                finding.evidence.get("rule")
                or f"{finding.kind}: {type(finding.evidence).__name__.removesuffix('Evidence')}"
            )
            examples.setdefault(rule, _example(rule, finding, name, programs.get(name) or ""))
    return "\n".join(
        [
            "# Findings and remedies",
            "",
            f"{len(examples)} findings, each of a small program that ran on PyTorch's own allocator. Advice has the "
            "name of its rule, as in the JSON of `snapreport stats`.",
            "",
            *(examples[rule] for rule in sorted(examples)),
        ]
    )


def _example(rule: str, finding: Finding, name: str, program: str) -> str:
    evidence = finding.evidence
    lines = [f"## {rule}", "", *([f"{' '.join(program.split())} (`{name}`)", ""] if program else [])]
    lines += [
        f"> **{_markdown(finding.title)}** [{finding.confidence}]",
        ">",
        f"> {_markdown(' '.join(finding.detail))}",
        "",
    ]
    if evidence.get("line"):
        lines += [f"The line should read `{evidence['line']}`."]
    if evidence.get("url"):
        lines += [f"[{_markdown(evidence['term'])}]({evidence['url']}). Effort: {evidence['effort']}."]
    return "\n".join([*lines, ""])


def _markdown(text: str) -> str:
    return re.sub(r"([*_<|\\[])", r"\\\1", text)


def check_options() -> list[str]:
    """Rows of a table of the options of ``snapreport check``, from its help."""
    rows = []
    for option in check.params:
        if isinstance(option, click.Option):
            name, text = option.get_help_record(click.Context(check)) or ("", "")
            rows.append(f"| `{name.replace('|', chr(92) + '|')}` | {text} |")
    return rows


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Files outside of this folder are in the repository, except the README, which is the start page."""
    markdown = markdown.replace("](../README.md", "](index.md")
    return re.sub(r"\]\(\.\./([^)]+)\)", lambda found: f"]({REPOSITORY}{found[1]})", markdown)


def start_page() -> str:
    """The README, with links as they are from the folder of these pages."""

    def link(found: re.Match[str]) -> str:
        target = found[1]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        return f"]({target.removeprefix('docs/')})" if target.startswith("docs/") else f"]({REPOSITORY}{target})"

    return re.sub(r"\]\(([^)]+)\)", link, (ROOT / "README.md").read_text("utf-8"))
