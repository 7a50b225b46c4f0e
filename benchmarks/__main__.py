"""``python -m benchmarks WHAT``: times, memory and sizes of the installed package, as tables. WHAT is one of these.

sizes   every real snapshot (taken from ``../shared/snapshots`` where there are any) and small generated ones: time of
        the whole process, size of the report against ``xz -9`` of the pickle, first picture in Chromium
peers   large generated snapshots (107 MB and 727 MB): the bare load, torch's trace_plot where torch is installed, and a
        report, taking turns in one run; then how the report opens and moves in Chromium
exports a generated snapshot of a million events: the bare load, a report, and every format of ``export``
switches
        the same in Chromium: the first switch to each view, at the moment a report is ready, and a later one
interactions
        the same in Chromium, on 920,183 events: slider, keys, sorting, hovering, zooming and first switches beside
        their targets, also at a quarter of the processor's speed; reports (.html) may be given too, and larger samples
        have targets of their own: --samples huge:3000000 huge:5000000
shapes  25 shapes of 300,000 events (--sizes): processor time of a load, of a report in an importing process, and of
        the command, and memory, as multiples of the bare unpickling, beside limits; names of shapes may be given
growth  10 thousand to 5 million events in two families: time, memory and bytes per event, and the knee in memory
findings
        200 generated runs, each with one planted cause or none: precision and recall of the findings
leaks   programs that keep memory or do not, and end in nine ways, over the driver of tests/fakecuda
        (``SNAPREPORT_FAKE_TORCH``) or as recorded in tests/recordings: what ``check --fail-on leak`` says of each
categories
        snapshots with their first stack traces hidden: how right inferred categories are, rule by rule
remedies
        programs recorded with and without a remedy: program, remedy, rank of the advice, promised and measured peak;
        recordings stay in the folder of --keep and are used again; names of programs may be given
remedy-times
        what a profiler's trace says that checkpointing costs, beside programs that run with it: on the CPU, as shares
        of a step, and over the driver of tests/fakecuda, with kernels added by hand; names of programs may be given
recording
        cost of recording a program with CUDA, or over the driver of tests/fakecuda (``SNAPREPORT_FAKE_TORCH``): time
        per step, host memory per million events, snapshots written by pickle.dump and streamed
clocks  times of the memory recorder and of the profiler beside the program's own, alone and beside busy loops, over the
        driver of tests/fakecuda and on the CPU
modules
        programs recorded over the driver of tests/fakecuda: share of bytes whose module, name and shape are right, and
        whether memory_stats are those without recording; names of programs may be given
layers  the same programs: share of the bytes of forward passes that get the number of a layer from stack traces, and
        how much of it is in that layer by the recorded names; names of programs may be given
operators
        programs recorded with a profile over the driver of tests/fakecuda: share of bytes whose operator is read from
        their stack traces, and how much of it ran then by the profile; names of programs may be given
tensor-shapes
        programs recorded over the driver of tests/fakecuda: share of the bytes with a known shape whose last dimension
        is inferred from sizes, and how much of it is right; names of programs may be given
fit     thirty programs at five values of a number, recorded over the driver of tests/fakecuda:
        peaks foretold from one, two or three of them against the runs, and the largest value on three cards; and
        programs with two remedies; recordings stay in the folder of --keep and are used again; then the time of a
        value at 22 thousand and a million events
soak    a hundred reports of random inputs opened in one page, then one driven (--steps): memory and errors
fuzz    20,000 hostile files (--cases, --seed): crashes, hangs, memory over the limit, numbers other than the oracle's
job     jobs with a planted outlier or none, generated and recorded over the driver of tests/fakecuda
        (``SNAPREPORT_FAKE_TORCH``): precision and recall of the ranks and of the causes named; then
        time on one and two processes, memory, size and opening of 64 and 1,024 ranks of 1.5 MB and 8 of 100 MB
        (--ranks 64 for some of them, --ranks alone for none), and of the report over 4,096 digests (--digests)
whatif  real traces replayed under their own settings: how many are exact, and why others are not; seconds per setting
        at 22,000 and 920,183 events, in Python and in the page; with --torch the model against PyTorch's compiled
        allocator on a fake CUDA runtime
reruns  programs recorded over the driver of tests/fakecuda (``SNAPREPORT_FAKE_TORCH``) and run again under other
        settings: how many peaks and retries the replay foretold to the byte (--runs programs for each PyTorch)

On a shared machine, ratios within one run mean more than seconds: figures are medians, ratios are taken pair by pair.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import (
    categories,
    clocks,
    findings,
    fit,
    fit_remedies,
    fuzz,
    growth,
    interactions,
    job_cost,
    job_digests,
    job_outliers,
    layers,
    leaks,
    modules,
    operators,
    peers,
    recording,
    remedies,
    remedy_times,
    reruns,
    shapes,
    sizes,
    soak,
    switches,
    tensor_shapes,
    torch_allocator,
    whatif,
)
from benchmarks.inputs import ROOT, generated, real
from benchmarks.measure import command, empty_report


@contextlib.contextmanager
def chromium(wanted: bool) -> Iterator[Any]:
    """A running Chromium, found as the tests find it; None where none is requested or playwright is not installed."""
    if not wanted or importlib.util.find_spec("playwright") is None:
        print("browser figures: not measured" + (" (no playwright)" if wanted else ""), file=sys.stderr)
        yield None
        return
    import browser

    with browser.launched() as running:
        yield running


def changes(now: Any, then: Any, path: str = "") -> Iterator[str]:
    """Lines "figure: then → now (ratio)" for every number that both runs have."""
    if isinstance(now, dict) and isinstance(then, dict):
        for key in now.keys() & then.keys():
            yield from changes(now[key], then[key], f"{path}.{key}".strip("."))
    elif isinstance(now, list) and isinstance(then, list):
        for number, (new, old) in enumerate(zip(now, then, strict=False)):
            name = next(
                (str(new[key]) for key in ("name", "file", "family") if isinstance(new, dict) and key in new),
                str(number),
            )
            yield from changes(new, old, f"{path}.{name}")
    elif isinstance(now, (int, float)) and isinstance(then, (int, float)) and then and now != then:
        yield f"{path}: {then:,.4g} → {now:,.4g} ({now / then:.2f})"


@dataclass(frozen=True)
class Run:
    """What a benchmark works with. folder: empty, and gone afterwards. browser: a running Chromium, or None."""

    options: argparse.Namespace
    folder: Path
    browser: Any

    @cached_property
    def empty(self) -> int:
        """Bytes of a report about nothing."""
        return empty_report(self.folder)

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.options.snapshots]

    @property
    def keep(self) -> Path:
        kept: Path | None = self.options.keep
        return kept or self.folder

    def paths(self, samples: Sequence[str], *before: Path) -> list[Path]:
        """The files that were given, or else those of ``before`` and generated ones."""
        return self.options.snapshots or [*before, *generated(self.folder, self.options.samples or list(samples))]


# Each prints what it measured and returns the document of --json.
Benchmark = Callable[[Run], dict[str, Any]]


def of_rows(measure: Callable[[Run], list[Any]], table: Callable[[list[Any]], str]) -> Benchmark:
    def run(given: Run) -> dict[str, Any]:
        rows = measure(given)
        print(table(rows))
        return {"rows": rows}

    return run


def of_sizes(run: Run) -> dict[str, Any]:
    rows = sizes.rows(run.paths(sizes.PRESETS, *real()), run.folder, run.empty, run.browser, run.options.runs)
    print(sizes.table(rows, run.empty))
    return {"rows": rows, "empty_html": run.empty}


def beside_peers(samples: Sequence[str], tools: Callable[[Path, Path], Any]) -> Benchmark:
    def measure(run: Run) -> list[Any]:
        return [
            peers.compare(path, run.folder, run.browser, run.options.runs, tools(path, run.folder))
            for path in run.paths(samples)
        ]

    return of_rows(measure, peers.table)


def in_chromium(what: Any) -> Benchmark:
    """Of a module that is measured in Chromium alone: it has SAMPLES, measure and table."""

    def measure(run: Run) -> list[Any]:
        if run.browser is None:
            sys.exit(f"{run.options.what} needs Chromium")
        return [what.measure(path, run.folder, run.browser, run.options.runs) for path in run.paths(what.SAMPLES)]

    return of_rows(measure, what.table)


def of_shapes(run: Run) -> dict[str, Any]:
    print(shapes.HEAD)
    rows = []
    for row in shapes.measure(run.folder, run.options.sizes, run.names, run.options.runs):
        print(shapes.line(row), flush=True)
        rows.append(row)
    return {"rows": rows}


def of_findings(run: Run) -> dict[str, Any]:
    document = findings.measure(run.folder)
    print(findings.table(document))
    return document


def of_fit(run: Run) -> dict[str, Any]:
    rows = fit.measure(run.keep)
    print(fit.table(rows))
    remedies_ = fit_remedies.measure(run.keep)
    print(fit_remedies.table(remedies_))
    times = fit.times(generated(run.folder, ["training:22000", "training:1000000"]))
    print(fit.times_table(times))
    return {"rows": rows, "remedies": remedies_, "times": times}


def of_categories(run: Run) -> dict[str, Any]:
    measured = categories.measure(run.paths(["training", "small"], *real()))
    print(categories.table(measured))
    return {"rows": measured.rows(named=True)}


def of_remedies(run: Run) -> dict[str, Any]:
    measured = remedies.measure(run.keep, [path.name for path in run.options.snapshots])
    print("\n".join(remedies.table(measured)))
    return {"rows": [vars(row) for row in measured]}


def of_whatif(run: Run) -> dict[str, Any]:
    torch, runs = run.options.torch, run.options.runs
    if torch is not None:
        site = Path(torch) if torch else torch_allocator.fetch(run.folder)
        document = torch_allocator.measure(torch_allocator.build(site, run.folder), run.folder, 10 * runs)
        print(torch_allocator.table(document))
        return document
    document = whatif.measure(real(), run.paths(list(whatif.SAMPLES)), runs, run.folder, run.browser)
    print(whatif.table(document))
    return document


def of_reruns(run: Run) -> dict[str, Any]:
    measured = reruns.measure(run.options.runs, run.folder, run.options.seed)
    print(reruns.table(measured))
    return {"reruns": measured}


def of_fuzz(run: Run) -> dict[str, Any]:
    found = fuzz.run(run.options.cases, run.folder, seed=run.options.seed, keep=run.options.keep)
    print(fuzz.table(found))
    return {"cases": run.options.cases, "faults": found.faults}


def of_soak(run: Run) -> dict[str, Any]:
    if run.browser is None:
        sys.exit("the soak runs in Chromium")
    snapshot = generated(run.folder, ["training:22000"])[0]
    report = run.folder / "driven.html"
    command("-m", "snapreport", snapshot, "-o", report)
    courses = [
        soak.open_in_turn(run.browser, min(100, run.options.cases), run.folder, run.options.seed),
        soak.drive(run.browser, report, run.options.steps, run.options.seed),
    ]
    print(soak.table(courses))
    return {"courses": [vars(course) for course in courses]}


def of_job(run: Run) -> dict[str, Any]:
    outliers = job_outliers.measure(run.options.runs, run.keep, ROOT.parent / "shared" / "recorded")
    print(job_outliers.table(outliers), flush=True)
    digests = job_digests.measure(run.folder, run.options.digests)
    return {"outliers": outliers, "digests": digests, "cost": job_cost.run(run.folder, run.browser, run.options.ranks)}


BENCHMARKS: dict[str, Benchmark] = {
    "sizes": of_sizes,
    "peers": beside_peers(["large", "huge"], peers.tools),
    "exports": beside_peers(["huge:1000000"], peers.exports),
    "switches": in_chromium(switches),
    "interactions": in_chromium(interactions),
    "growth": of_rows(lambda run: growth.grow(run.folder, run.empty, run.options.most), growth.table),
    "shapes": of_shapes,
    "findings": of_findings,
    "fit": of_fit,
    "leaks": of_rows(lambda run: leaks.measure(run.keep), leaks.table),
    "recording": of_rows(lambda _: recording.measure(), recording.table),
    "clocks": of_rows(lambda run: clocks.measure(run.folder), clocks.table),
    "modules": lambda run: {"rows": modules.run_all(run.names)},
    "layers": lambda run: {"rows": layers.run_all(run.names, run.options.stacks)},
    "operators": lambda run: {"rows": operators.run_all(run.keep, run.names, run.options.stacks)},
    "tensor-shapes": lambda run: {"rows": tensor_shapes.run_all(run.keep, run.names, run.options.stacks)},
    "remedies": of_remedies,
    "remedy-times": lambda run: {"rows": remedy_times.run_all(run.keep, run.names)},
    "categories": of_categories,
    "whatif": of_whatif,
    "reruns": of_reruns,
    "fuzz": of_fuzz,
    "soak": of_soak,
    "job": of_job,
}
BROWSED = ("sizes", "peers", "switches", "interactions", "soak", "whatif", "job")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=tuple(BENCHMARKS),
        default="sizes",
    )
    parser.add_argument("snapshots", nargs="*", type=Path, help="files to measure instead (sizes, peers, switches)")
    parser.add_argument(
        "--samples",
        nargs="*",
        metavar="PRESET[:EVENTS]",
        help="samples to generate and measure (sizes, peers, switches)",
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement; default 3")
    parser.add_argument("--sizes", nargs="*", type=int, default=list(shapes.EVENTS), help="shapes: numbers of events")
    parser.add_argument("--most", type=int, default=growth.EVENTS[-1], metavar="EVENTS", help="where growth stops")
    parser.add_argument(
        "--torch",
        nargs="?",
        const="",
        metavar="FOLDER",
        help="whatif: compare with the torch in FOLDER (site-packages); without FOLDER its CUDA wheel is fetched",
    )
    parser.add_argument("--cases", type=int, default=20_000, help="fuzz: files to read; default 20,000")
    parser.add_argument("--seed", type=int, default=1, help="fuzz: which files; reruns: the first program; default 1")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="fuzz: where to put files at fault; fit, remedies, leaks, job: where recordings stay",
    )
    parser.add_argument("--steps", type=int, default=20_000, help="soak: steps of driving one report; default 20,000")
    parser.add_argument(
        "--ranks", nargs="*", type=int, default=[64, 8, 1024], help="job: sizes of jobs; 8 ranks are of 100 MB"
    )
    parser.add_argument("--digests", nargs="*", type=int, default=[4096], help="job: numbers of digests to report on")
    parser.add_argument(
        "--stacks",
        choices=("python", "all"),
        default="python",
        help="layers, operators, tensor-shapes: frames of the recorded programs; all: C++ too, PyTorch's own default",
    )
    parser.add_argument("--no-browser", action="store_true", help="leave the browser's figures out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="figures of an earlier run to hold these against")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        chromium(not options.no_browser and options.what in BROWSED) as browser,
    ):
        document = {"what": options.what} | BENCHMARKS[options.what](Run(options, Path(scratch), browser))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.compare:
        print("\nagainst the earlier run:")
        print("\n".join(sorted(changes(document, json.loads(options.compare.read_text())))))


if __name__ == "__main__":
    main()
