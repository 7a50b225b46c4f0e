"""The snapshots that tests run on: generated ones, small recordings of one cause each, and real ones if available."""

from __future__ import annotations

import atexit
import functools
import gzip
import io
import lzma
import os
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import name_oracle
import oracle

import snapreport

if TYPE_CHECKING:
    from snapreport.snapshot import Snapshot

ROOT = Path(__file__).resolve().parent.parent
REAL = Path(os.environ.get("SNAPREPORT_REAL_SNAPSHOTS", ROOT.parent / "shared" / "snapshots"))
# Of the package that is tested, which may be installed elsewhere.
SAMPLES = Path(snapreport.__file__).parent / "samples"
NODE_MODULES = Path(os.environ.get("SNAPREPORT_NODE_MODULES", ROOT / "static" / "node_modules"))
WITNESSES = ROOT / "tests" / "recordings" / "witnesses"
NO_REAL = "no real snapshots at ../shared/snapshots: only generated ones were tested"
# Every preset of the generator, cut to what the oracle replays in a second, and cases that the presets lack.
GENERATED: dict[str, tuple[str | None, dict[str, Any]]] = {
    "training": ("training", {}),
    "small": ("small", {}),
    "serving": ("serving", {"events": 4000}),
    "oom": ("oom", {}),
    "fragmentation": ("fragmentation", {}),
    "leak": ("leak", {"steps": 10}),
    "churn": ("churn", {"steps": 6}),
    "expandable": ("expandable", {"layers": 6}),
    "multi-gpu": ("multi-gpu", {"steps": 2, "devices": 3, "layers": 6}),
    "pools": ("pools", {}),
    "truncated": ("truncated", {}),
    "compiled": ("compiled", {"layers": 6}),
    "overlap": ("overlap", {"events": 5000}),
    "large": ("large", {"events": 70_000}),
    "huge": ("huge", {"events": 3000}),
    "layout-2.1": ("small", {"layout": "2.1", "record_from": 1}),
    "layout-2.5": ("small", {"layout": "2.5", "seed": 3}),
    "layout-2.8": ("small", {"layout": "2.8", "context": "state"}),
    "no-times": ("small", {"times": False, "seed": 9}),
    "no-stacks": ("small", {"context": "none", "snapshot_every": 1}),
}


@functools.cache
def scratch() -> Path:
    """One folder of generated snapshots for this run, removed at its end."""
    folder = tempfile.TemporaryDirectory(prefix="snapreport-corpus-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def names() -> list[str]:
    """Generated snapshots, the small one first, then the package's samples, and real ones, that differ."""
    recorded = [*sorted(path.name for path in SAMPLES.glob("*.pickle.xz")), *real_names()]
    if os.environ.get("HYPOTHESIS_PROFILE") != "deep":
        recorded = [name for name in recorded if name not in ALIKE]
    return ["small", *sorted(GENERATED.keys() - {"small"}), *recorded]


@functools.cache
def real_names() -> list[str]:
    return sorted(p.name for p in REAL.glob("*.pickle"))


def telling_names() -> list[str]:
    """Those that differ in what is found in them: generated ones, small recordings of one cause each, and
    real ones whose failures and gaps no other has.
    """
    real = {"expandable_oom_3gpu.pickle", "lightning_oom.pickle", "trimmed_inconsistent.pickle"}
    found = [name for name in names() if name != "large" and (name in real or name not in real_names())]
    found += sorted(path.name for path in WITNESSES.iterdir())
    return [name for name in found if not name.endswith(".xz") or name.partition(".")[0] not in WITHOUT_ORACLE]


# Recordings whose findings have an oracle only where steps are annotated (leaks, churn), or whose sentences have
# numbers that only the program knows (labels, masks, passes) or that a setting proposes.
WITHOUT_ORACLE = {
    "crowded", "cycles", "emptied", "fragmentation", "host", "masked_model", "masks", "predictions", "retried",
    "stored", "unsplit", "waiting",
}  # fmt: skip
# Recorded ones that show nothing in any view that the others do not, and of whose findings a small recording has the
# cause.
ALIKE = {
    "cycles.pickle.xz", "healthy.pickle.xz", "late.pickle.xz", "logits.pickle.xz",
    "adamw_foreach_ctx128.pickle", "adamw_foreach_step.pickle", "autocast_copies_forward.pickle",
    "cublas_workspace.pickle", "denoising_graphs.pickle", "empty_cache_loop.pickle", "forward_of_trained.pickle",
    "forward_without_no_grad.pickle", "inference_churn.pickle", "inference_fragmentation.pickle",
    "megatron_init.pickle", "previous_logits.pickle", "quantised_kv_llama7b.pickle", "train_step_fp32.pickle",
    "training_late_start.pickle", "transient_free_segment.pickle", "two_models_alive.pickle",
}  # fmt: skip
# Those that show nothing new: other layouts of the same program, and findings, which are tested without a browser.
UNSHOWN = {
    "churn", "compiled", "fragmentation", "layout-2.1", "layout-2.5", "layout-2.8", "leak", "training", "truncated",
    "churn.pickle.xz", "leak.pickle.xz", "lightning_oom.pickle", "zeroth_order.pickle",
}  # fmt: skip


def varied_names() -> list[str]:
    """The real snapshots that differ in what a view can show: devices, expandable segments, private pools, failures, no
    trace or a late one, contradictions, annotations, few events and most. The columns that views draw are compared with
    the oracle on all of :func:`names`.
    """
    return [name for name in shown_names() if name in real_names()]


def shown_names() -> list[str]:
    """All of :func:`names` but those that show nothing new."""
    return [name for name in names() if name not in UNSHOWN]


@functools.cache
def path_of(name: str) -> Path:
    """The file of a snapshot by its name; generated ones are made on first use."""
    if name not in GENERATED:
        return next(p for p in [REAL / name, WITNESSES / name, SAMPLES / name] if p.exists())
    import generator

    preset, changes = GENERATED[name]
    path = scratch() / f"{name}.pickle"
    path.write_bytes(pickle.dumps(generator.make(preset, **changes), 2))
    return path


@functools.lru_cache(maxsize=2)
def raw(path: Path) -> Any:
    """The object in a snapshot of ours or of ../shared, unpickled without restrictions; it must name no global."""
    content = path.read_bytes()
    for magic, module in ((b"\x1f\x8b", gzip), (b"\xfd7zXZ", lzma)):
        if content.startswith(magic):
            content = module.decompress(content)
    return Plain(io.BytesIO(content)).load()


@functools.lru_cache(maxsize=3)
def loaded(path: Path) -> Snapshot:
    """A snapshot that tests share: read once, with its timelines and findings; its tests run one after another."""
    from snapreport.snapshot import load  # not snapreport.load, in whose place cli.on_loaded has this function

    return load(path)


class Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a snapshot that names {module}.{name}")


@functools.lru_cache(maxsize=4)
def replayed(path: Path) -> dict[int, oracle.Device]:
    """The oracle's replay of a snapshot, made once while tests of that snapshot run; all of them at once take
    gigabytes.
    """
    devices = oracle.replay(raw(path))
    name_oracle.learn(devices)
    snapshot = loaded(path)
    for number, device in devices.items():
        own = snapshot.allocations(number).select("category", "module", "module_source").iter_rows()
        for allocation, (category, module, source) in zip(device.allocations, own, strict=True):
            allocation.category = category
            allocation.module = module if source == "recorded" and module else ""
    return devices
