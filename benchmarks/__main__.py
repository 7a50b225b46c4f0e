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
first-picture
        reports of 22 thousand to 2.83 million events with and without a stored tile: bytes, and the times of
        the first picture, the first frame on screen and the finished page
shapes  25 shapes of 300,000 events (--sizes): processor time of a load and of a report, and memory, as multiples of
        the bare unpickling, beside their limits; names of shapes may be given
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
recording
        cost of recording a program with CUDA, or over the driver of tests/fakecuda (``SNAPREPORT_FAKE_TORCH``): time
        per step, host memory per million events, snapshots written by pickle.dump and streamed
modules
        programs recorded over the driver of tests/fakecuda: share of bytes whose module, name and shape are right, and
        whether memory_stats are those without recording; names of programs may be given
layers  the same programs: share of the bytes of forward passes that get the number of a layer from stack traces, and
        how much of it is in that layer by the recorded names; names of programs may be given
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import (
    categories,
    findings,
    first_picture,
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
    peers,
    recording,
    remedies,
    reruns,
    shapes,
    sizes,
    soak,
    switches,
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


# Measured in Chromium alone: each has SAMPLES, measure and table.
IN_CHROMIUM: dict[str, Any] = {
    "switches": switches,
    "interactions": interactions,
    "first-picture": first_picture,
}
BROWSED = ("sizes", "peers", *IN_CHROMIUM, "soak", "whatif", "job")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=(
            "sizes",
            "peers",
            "exports",
            "switches",
            "interactions",
            "first-picture",
            "growth",
            "shapes",
            "findings",
            "fit",
            "leaks",
            "recording",
            "modules",
            "layers",
            "remedies",
            "categories",
            "whatif",
            "reruns",
            "fuzz",
            "soak",
            "job",
        ),
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
    parser.add_argument("--no-browser", action="store_true", help="leave the browser's figures out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="figures of an earlier run to hold these against")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        chromium(not options.no_browser and options.what in BROWSED) as browser,
    ):
        folder = Path(scratch)
        empty = (
            empty_report(folder)
            if options.what
            not in (
                "findings",
                "fit",
                "leaks",
                "recording",
                "modules",
                "layers",
                "remedies",
                "categories",
                "whatif",
                "reruns",
                "fuzz",
                "shapes",
                "soak",
            )
            else 0
        )
        document: dict[str, Any] = {"what": options.what, "empty_html": empty}
        if options.what == "fuzz":
            found = fuzz.run(options.cases, folder, seed=options.seed, keep=options.keep)
            document |= {"cases": options.cases, "faults": found.faults}
            print(fuzz.table(found))
        elif options.what == "soak":
            if browser is None:
                sys.exit("the soak runs in Chromium")
            snapshot = generated(folder, ["training:22000"])[0]
            report = folder / "driven.html"
            command("-m", "snapreport", snapshot, "-o", report)
            courses = [
                soak.open_in_turn(browser, min(100, options.cases), folder, options.seed),
                soak.drive(browser, report, options.steps, options.seed),
            ]
            print(soak.table(courses))
            document["courses"] = [vars(course) for course in courses]
        elif options.what == "findings":
            document |= findings.measure(folder)
            print(findings.table(document))
        elif options.what == "fit":
            document["rows"] = fit.measure(options.keep or folder)
            print(fit.table(document["rows"]))
            document["remedies"] = fit_remedies.measure(options.keep or folder)
            print(fit_remedies.table(document["remedies"]))
            document["times"] = fit.times(generated(folder, ["training:22000", "training:1000000"]))
            print(fit.times_table(document["times"]))
        elif options.what == "categories":
            paths = options.snapshots or [*real(), *generated(folder, options.samples or ["training", "small"])]
            measured = categories.measure(paths)
            document["rows"] = measured.rows(named=True)
            print(categories.table(measured))
        elif options.what == "whatif" and options.torch is not None:
            site = Path(options.torch) if options.torch else torch_allocator.fetch(folder)
            program = torch_allocator.build(site, folder)
            document |= torch_allocator.measure(program, folder, 10 * options.runs)
            print(torch_allocator.table(document))
        elif options.what == "reruns":
            document["reruns"] = reruns.measure(options.runs, folder, options.seed)
            print(reruns.table(document["reruns"]))
        elif options.what == "whatif":
            paths = options.snapshots or generated(folder, options.samples or list(whatif.SAMPLES))
            document |= whatif.measure(real(), paths, options.runs, folder, browser)
            print(whatif.table(document))
        elif options.what == "job":
            document["outliers"] = job_outliers.measure(
                options.runs, options.keep or folder, ROOT.parent / "shared" / "recorded"
            )
            print(job_outliers.table(document["outliers"]), flush=True)
            document["digests"] = job_digests.measure(folder, options.digests)
            document["cost"] = job_cost.run(folder, browser, options.ranks)
        elif options.what == "remedies":
            measured_pairs = remedies.measure(options.keep or folder, [path.name for path in options.snapshots])
            document["rows"] = [vars(row) for row in measured_pairs]
            print("\n".join(remedies.table(measured_pairs)))
        elif options.what == "leaks":
            document["rows"] = leaks.measure(options.keep or folder)
            print(leaks.table(document["rows"]))
        elif options.what == "recording":
            document["rows"] = recording.measure()
            print(recording.table(document["rows"]))
        elif options.what == "modules":
            document["rows"] = modules.run_all([str(name) for name in options.snapshots])
        elif options.what == "layers":
            document["rows"] = layers.run_all([str(name) for name in options.snapshots])
        elif options.what == "shapes":
            document["rows"] = []
            print(shapes.HEAD)
            names = [str(name) for name in options.snapshots]
            for row in shapes.measure(folder, options.sizes, names, options.runs):
                print(shapes.line(row), flush=True)
                document["rows"].append(row)
        elif options.what == "growth":
            document["rows"] = growth.grow(folder, empty, options.most)
            print(growth.table(document["rows"]))
        elif options.what in ("peers", "exports"):
            samples, tools = (
                (["large", "huge"], peers.tools) if options.what == "peers" else (["huge:1000000"], peers.exports)
            )
            paths = options.snapshots or generated(folder, options.samples or samples)
            document["rows"] = [
                peers.compare(path, folder, browser, options.runs, tools(path, folder)) for path in paths
            ]
            print(peers.table(document["rows"]))
        elif options.what in IN_CHROMIUM:
            what = IN_CHROMIUM[options.what]
            if browser is None:
                sys.exit(f"{options.what} needs Chromium")
            paths = options.snapshots or generated(folder, options.samples or list(what.SAMPLES))
            document["rows"] = [what.measure(path, folder, browser, options.runs) for path in paths]
            print(what.table(document["rows"]))
        else:
            paths = options.snapshots or [*real(), *generated(folder, options.samples or list(sizes.PRESETS))]
            document["rows"] = sizes.rows(paths, folder, empty, browser, options.runs)
            print(sizes.table(document["rows"], empty))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.compare:
        print("\nagainst the earlier run:")
        print("\n".join(sorted(changes(document, json.loads(options.compare.read_text())))))


if __name__ == "__main__":
    main()
