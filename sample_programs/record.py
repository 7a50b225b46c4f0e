"""Records the samples of ``snapreport sample`` again: ``python record.py PYTHON [SAMPLE...]``.

PYTHON has a CUDA build of PyTorch, with a GPU or over the driver of tests/fakecuda, which also sets the size of the
device. The recordings lose the folders and the name of this machine.
"""

from __future__ import annotations

import gzip
import lzma
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent
sys.path.insert(0, str(PROGRAMS.parent))
from snapreport.output_file import SAMPLE_SCHEMA  # noqa: E402
from snapreport.samples import FOLDER as SAMPLES  # noqa: E402

TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "4", "--no-python"]
# Sample: GiB of a device, options of `snapreport record`, None where the program records itself, what Python runs.
RECORDED: dict[str, tuple[float, list[str] | None, list[str]]] = {
    "training": (11, [], ["train.py", "--long"]),
    "fragmentation": (6, [], ["evaluate.py"]),
    "healthy": (24, [], ["train.py", "--fused", "--layers", "2", "--steps", "8"]),
    "leak": (24, [], ["train.py", "--fused", "--layers", "2", "--steps", "8", "--keep"]),
    "logits": (24, [], ["train.py", "--fused", "--layers", "2", "--vocabulary", "50304"]),
    "late": (24, None, ["train.py", "--fused", "--layers", "2", "--steps", "6", "--dump", "../run/late.pickle"]),
    "cycles": (24, [], ["callbacks.py", "cycle"]),
    "churn": (24, [], ["callbacks.py", "empty"]),
    "serving": (24, [], ["serve.py"]),
    "two_devices": (4, [], ["two_devices.py"]),
    "job": (2, [], ["shards.py"]),
}
SETTINGS = {"two_devices": {"FAKE_GPU_COUNT": "2", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
SETTINGS["job"] = {"FAKE_GPU_COUNT": "4"}


def main(python: Path, names: list[str]) -> None:
    for name in names or RECORDED:
        with tempfile.TemporaryDirectory() as folder:
            for number, recording in enumerate(record(python.absolute(), name, Path(folder))):
                target = SAMPLES / (f"job/rank{number}.pickle.xz" if name == "job" else f"{name}.pickle.xz")
                target.parent.mkdir(exist_ok=True)
                marked = anonymous(recording, Path(folder), python.absolute().parent.parent)
                target.write_bytes(lzma.compress(pickle.dumps(marked, 4), preset=9 | lzma.PRESET_EXTREME))
                print(f"{target.relative_to(SAMPLES)}: {target.stat().st_size:,} bytes")


def record(python: Path, name: str, folder: Path) -> list[dict[str, Any]]:
    """The snapshots that the program of a sample leaves, of each rank in turn."""
    size, options, command = RECORDED[name]
    app = folder / "app"
    shutil.copytree(PROGRAMS, app)
    launcher = [str(python), *TORCHRUN, str(python)] if name == "job" else [str(python)]
    variables = {**os.environ, "FAKE_GPU_GIB": str(size), "OMP_NUM_THREADS": "1", **SETTINGS.get(name, {})}
    (run := folder / "run").mkdir()
    recorder = [sys.executable, "-m", "snapreport", "record", *(options or ()), "-o", str(run), "--"]
    call = [*([] if options is None else recorder), *launcher, *command]
    subprocess.run(call, cwd=app, env=variables, check=False, capture_output=True)
    return [
        pickle.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        for path in sorted(run.iterdir())
    ]


def anonymous(recording: dict[str, Any], folder: Path, environment: Path) -> dict[str, Any]:
    """The recording with every path below ``/app`` or ``/venv``, without the host's name, and marked as a sample: a
    later run may replace its file.
    """
    places = {str(folder / "app"): "/app", str(folder): "", str(environment): "/venv"}
    known: dict[int, Any] = {}

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            for place, name in places.items():
                value = value.replace(place, name)
            return value
        if not isinstance(value, (dict, list, tuple)):
            return value
        if id(value) not in known:
            if isinstance(value, dict):
                known[id(value)] = value
                value.update({key: renamed(part) for key, part in value.items()})
            else:
                known[id(value)] = type(value)(map(renamed, value))
        return known[id(value)]

    named: dict[str, Any] = renamed(recording)
    about = named.pop("snapreport", {})
    if about:
        about["process"]["host"] = "gpu-1"
    return {"snapreport": {"sample": SAMPLE_SCHEMA, **about}, **named}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
