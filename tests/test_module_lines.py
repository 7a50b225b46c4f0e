"""The tree of modules as text: siblings that are built alike are one row, whatever stands below them, too."""

from __future__ import annotations

import corpus
import polars as pl
from click.testing import CliRunner

import snapreport
from snapreport.cli import main
from snapreport.contracts.stats import ModuleMemory
from snapreport.findings.diff import diff
from snapreport.findings.diff_document import diff_document
from snapreport.findings.run import findings
from snapreport.number_format import bytes_text
from snapreport.report.diff_text import diff_text
from snapreport.report.group_text import groups_text
from snapreport.report.module_lines import module_cells, module_rows
from snapreport.timeline.module_tree import numbered_modules

MIB = 1 << 20
RECORDING = corpus.ROOT / "tests" / "recordings" / "modules.pickle.xz"


def module(path: str, peak: int, *, like: str | None = None, kind: str = "Block", **parts: int) -> ModuleMemory:
    return ModuleMemory(
        path, kind, like, peak_bytes=peak * MIB, **{f"{key}_bytes": size * MIB for key, size in parts.items()}
    )


TREE = [
    module("net", 100, kind="Net"),
    module("net.layers", 90, kind="ModuleList"),
    module("net.layers.0", 30, parameter=10),
    module("net.layers.0.up", 20, kind="Linear", parameter=10),
    module("net.layers.1", 30, like="net.layers.0", parameter=10),
    module("net.layers.1.up", 20, kind="Linear", parameter=10),
    module("net.layers.2", 30, parameter=5),
    module("net.layers.2.up", 20, kind="Linear", parameter=5),
    module("net.norm", 0, kind="LayerNorm"),
]


def test_what_is_built_alike_is_one_row() -> None:
    (net,) = module_rows(TREE)
    (layers, norm) = net.below
    assert [(row.name, row.modules, row.bytes["peak_bytes"] // MIB) for row in layers.below] == [
        ("0–1", 2, 60),
        ("2", 1, 30),
    ]
    assert [(row.name, row.modules, row.bytes["parameter_bytes"] // MIB) for row in layers.below[0].below] == [
        ("up", 2, 20)
    ]
    assert norm.name == "norm" and norm.depth == 1


def test_rows_that_hold_little_are_left_out_and_the_rest_is_said() -> None:
    head, *cells = module_cells(TREE, 120 * MIB)
    assert head == ["", "peak", "share", "parameter"]
    assert [row[0] for row in cells] == [
        "net  Net", "  layers  ModuleList", "    0–1 × 2  Block", "      up × 2  Linear", "    2  Block",
        "      up  Linear", "without a module",
    ]  # fmt: skip
    assert cells[2][1:] == ["60.0 MiB", "50%", "20.0 MiB"]
    assert cells[-1][1:3] == ["20.0 MiB", "17%"]


def test_a_model_beside_its_modules() -> None:
    """The path of the only model is its class, those of its modules begin below it."""
    rows = [module("Net", 50, kind="Net"), module("up", 50, kind="Linear")]
    assert [row[0] for row in module_cells(rows, 100 * MIB)[1:]] == ["Net itself", "up  Linear"]


def test_text_and_markdown_of_a_recording_with_modules() -> None:
    text = CliRunner().invoke(main, ["stats", str(RECORDING)], catch_exceptions=False).output
    tree = text.partition("Modules at the peak of cuda:0\n")[2].partition("\n\n")[0]
    assert "0–3 × 4  Block" in tree and "qkv × 4  Linear" in tree and "without a module" in tree
    markdown = CliRunner().invoke(main, ["stats", "--markdown", str(RECORDING)], catch_exceptions=False).output
    assert "| `embedding Embedding` | 12.2 MiB | 9.8% |" in markdown


def test_a_comparison_names_modules() -> None:
    """The first step against the whole recording; numbered modules that changed alike are one row of the text."""
    whole = snapreport.load(RECORDING)
    first = whole.part(steps=(0, 1))
    result = diff(first, whole)
    peaks = []
    for snapshot in (first, whole):
        at = snapshot.timeline(0).peak_event
        rows = snapshot.allocations(0).to_dicts()
        live = [r for r in rows if r["alloc_event"] <= at and not 0 <= r["free_event"] <= at]
        sizes: dict[str, int] = {}
        for row in live:
            if row["module"] is not None:
                sizes[row["module"]] = sizes.get(row["module"], 0) + row["size"]
        peaks.append(sizes)
    before, after = peaks
    changes = diff_document(result).devices[0].moments[0].modules
    assert isinstance(changes, list) and len(changes) > 20
    expected = {name: after.get(name, 0) - before.get(name, 0) for name in before | after}
    shown = {change.name: change.delta for change in changes}
    assert shown.items() <= expected.items()
    assert all(expected[name] == 0 for name in expected.keys() - shown.keys())
    rows = diff_text(result).partition("at the peak, by module:\n")[2].partition("at the peak, by function")[0]
    (qkv,) = [line for line in rows.splitlines() if "layers.*.qkv (4 modules)" in line]
    assert bytes_text(sum(expected[f"layers.{n}.qkv"] for n in range(4))) in qkv


def test_advice_names_the_layers_to_checkpoint() -> None:
    (advice,) = [f for f in findings(corpus.loaded(RECORDING)) if f.evidence.get("rule") == "checkpointing"]
    assert advice.evidence["modules"] == ["layers.0", "layers.1", "layers.2", "layers.3"]
    assert "They are the modules layers.0 to layers.3." in advice.detail


def test_layers_are_those_of_one_family() -> None:
    def layers(*rows: tuple[str | None, int]) -> list[str]:
        modules, sizes = zip(*rows, strict=True)
        return numbered_modules(pl.Series(modules, dtype=pl.String), pl.Series(sizes))

    assert layers(("m.layers.10.up", 40), ("m.layers.9", 40), ("m.layers.9.experts.3.up", 10), ("head", 10)) == [
        "m.layers.9", "m.layers.10",
    ]  # fmt: skip
    assert layers(("up.0", 50), ("down.0", 50), ("up.1", 50), ("down.1", 50)) == []
    assert layers(("layers.0", 50), (None, 1)) == []
    assert layers(("head", 50)) == []


def test_the_table_by_module_folds_what_is_alike() -> None:
    """With the bytes of all, and as many modules as the tree has."""
    snapshot = snapreport.load(RECORDING)
    text = groups_text(snapshot, "module", None)
    like = {one.module: one.like for one in snapshot.timeline(0).stats.modules or () if one.like}
    family, *_ = like.values()
    alike = [family, *(path for path, first in like.items() if first == family)]
    own = snapshot.allocations(0)
    below = [path for path in own["module"].drop_nulls().unique() if path.startswith(family + ".")]
    assert len(below) > 2 and len(alike) == 4
    parent, _, first = family.rpartition(".")
    for inner in below:
        rest, last = inner.removeprefix(family), alike[-1].rpartition(".")[2]
        size = own.filter(pl.col("module").is_in([path + rest for path in alike]))["size"].sum()
        [line] = [line for line in text.splitlines() if line.startswith(f"{parent}.{first}–{last}{rest} ")]
        assert bytes_text(size) in line
