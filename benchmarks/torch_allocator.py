"""The allocator's model against PyTorch's compiled one (libc10_cuda.so) on a fake CUDA runtime, on random programs.

Needs g++ and binutils. The sources of the fake runtime are in ``fake_runtime``; torch comes from a folder that it is
installed in, or its CUDA wheel is downloaded from the package index (1 GB, without NVIDIA's libraries).
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from snapreport.allocator.blocks import Block
from snapreport.allocator.model import CachingAllocator
from snapreport.allocator.placement import Ascending
from snapreport.allocator.settings import AllocatorSettings, parse_settings
from snapreport.timeline.rounding import AllocatorRules

SOURCES = Path(__file__).parent / "fake_runtime"
TORCH = "2.9.1"
MIB = 1 << 20
CONFIGURATIONS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64,max_non_split_rounding_mb:40",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:2,4:8,>:16]",
    "garbage_collection_threshold:0.4,per_process_memory_fraction:0.9",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:1,max_split_size_mb:32",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:True,per_process_memory_fraction:0.7",
)
CAPACITIES = (1 << 40, 600 * MIB, 250 * MIB)
_DRIVER = re.compile(rb"\bcu[A-Z][A-Za-z0-9]+(?:_v\d+)?\b")


def fetch(folder: Path) -> Path:
    """Downloads the wheels and unpacks them; returns the folder that torch is in."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "-q",
            "-d",
            folder,
            f"torch=={TORCH}",
            "nvidia-cuda-runtime-cu12",
        ],
        check=True,
    )
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder / "site")
    return folder / "site"


def build(site: Path, folder: Path) -> Path:
    """Compiles the fake runtime and the driver program against the torch in ``site``; returns the program."""
    library = site / "torch" / "lib" / "libc10_cuda.so"
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
    ).stdout
    wanted = set(re.findall(r" (cuda[A-Za-z0-9_]+)", symbols))
    wanted |= {name.decode() for name in _DRIVER.findall(library.read_bytes())}
    written = (SOURCES / "cudart.c").read_text()
    stubs = [
        f"int {name}(void) {{ return 0; }}"
        for name in sorted(wanted)
        if f" {name}(" not in written and f"*{name}(" not in written
    ]
    (folder / "stubs.c").write_text("\n".join(stubs))
    (folder / "versions.map").write_text("libcudart.so.12 { global: *; };\n")
    headers = [SOURCES / "include", site / "torch" / "include", *site.rglob("cuda_runtime/include")]
    fake = folder / "libcudart.so.12"
    linking = f"-Wl,-soname,{fake.name},--version-script={folder / 'versions.map'}"
    subprocess.run(
        ["gcc", "-w", "-O1", "-shared", "-fPIC", linking, "-o", fake,
         SOURCES / "cudart.c", folder / "stubs.c", "-ldl"], check=True,
    )  # fmt: skip
    (folder / "libcuda.so.1").symlink_to(fake.name)  # PyTorch 2.6 opens the driver's library by its name
    program = folder / "drive"
    include = [part for header in headers for part in ("-I", str(header))]
    subprocess.run(
        ["g++", "-w", "-O1", "-std=c++17", *include, "-o", program, SOURCES / "drive.cpp", fake,
         f"-L{library.parent}", "-lc10_cuda", "-lc10", f"-Wl,-rpath,{folder},-rpath,{library.parent}"], check=True,
    )  # fmt: skip
    return program


def measure(program: Path, folder: Path, count: int, seed: int = 1) -> dict[str, Any]:
    """Runs ``count`` random programs under every configuration on every capacity, compiled and modelled."""
    total = {"runs": 0, "rows": 0, "differences": 0, "retries": 0, "out_of_memory": 0, "collected": 0}
    first = None
    for number in range(count):
        rows = _program(random.Random(seed * 1000 + number))
        for conf in CONFIGURATIONS:
            for capacity in CAPACITIES:
                real = _compiled(program, folder, rows, conf, capacity)
                model, collected = _modelled(rows, conf, capacity)
                total["runs"] += 1
                total["rows"] += len(real)
                total["retries"] += real[-1][2]
                total["out_of_memory"] += real[-1][0] == -2
                total["collected"] += collected
                if real != model:
                    total["differences"] += 1
                    at = next((i for i, pair in enumerate(zip(real, model, strict=False)) if pair[0] != pair[1]), -1)
                    first = first or {
                        "program": number,
                        "conf": conf,
                        "capacity": capacity,
                        "row": at,
                        "real": real[at],
                        "model": model[at],
                    }
    return {**total, "first_difference": first}


def _program(dice: random.Random) -> list[tuple[int, int, int, int]]:
    common = [
        dice.choice((512, 4096, MIB, 3 * MIB, 12 * MIB, 33 * MIB, 70 * MIB)) + dice.choice((0, 0, 1)) for _ in range(6)
    ]
    rows: list[tuple[int, int, int, int]] = []
    live: list[int] = []
    for number in range(dice.randint(200, 600)):
        draw = dice.random()
        if draw < 0.01:
            rows.append((-1, 0, 0, 0))
        elif live and draw < 0.47:
            rows.append((0, live.pop(dice.randrange(len(live))), 0, 0))
        else:
            size = dice.choice(common) if dice.random() < 0.7 else int(2 ** dice.uniform(9, 26))
            rows.append((1, number, size, 0 if dice.random() < 0.8 else 16))
            live.append(number)
    return rows


def _compiled(program: Path, folder: Path, rows: list[Any], conf: str, capacity: int) -> list[tuple[int, int, int]]:
    inputs, output = folder / "program.bin", folder / "result.bin"
    np.array([1000, *(value for row in rows for value in row)], np.int64).tofile(inputs)
    parts = [part for part in re.split(r",(?![^\[]*\])", conf) if part and not part.startswith("per_process")]
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": ",".join(parts), "FAKE_CAPACITY": str(capacity)}
    environment["LD_LIBRARY_PATH"] = str(program.parent)
    fraction = re.search(r"per_process_memory_fraction:([\d.]+)", conf)
    if fraction:
        environment["FRACTION"] = fraction[1]
    subprocess.run([program, inputs, output], env=environment, check=True, capture_output=True)
    return [tuple(row) for row in np.fromfile(output, np.int64).reshape(-1, 3).tolist()]


class _Collecting(CachingAllocator):
    block_type = Block


def _modelled(rows: list[Any], conf: str, capacity: int) -> tuple[list[tuple[int, int, int]], int]:
    settings = parse_settings([conf] if conf else [], AllocatorSettings())
    memory = Ascending(capacity)
    memory._next = 1 << 44  # the fake runtime's first address
    limit = None if settings.memory_fraction is None else int(settings.memory_fraction * capacity)
    allocator = _Collecting(memory, settings, None, limit)
    rounded = AllocatorRules(settings.divisions).rounded(np.array([row[2] for row in rows])).tolist()
    blocks: dict[int, Block] = {}
    result: list[tuple[int, int, int]] = []
    for (kind, number, _, stream), size in zip(rows, rounded, strict=True):
        address = 0
        if kind == 1:
            block = allocator.allocate(size, stream, allocator.pair(None))
            address = -2 if block is None else block.address
            if block is not None:
                blocks[number] = block
        elif kind == 0:
            allocator.free_block(blocks.pop(number))
        else:
            allocator.release_cached()
        result.append((address, memory.used, allocator.retries))
        if address == -2:
            break
    return result, allocator.collected


def table(document: dict[str, Any]) -> str:
    """The figures as text."""
    text = (
        f"{document['runs']:,} runs, {document['rows']:,} requests and frees, {document['retries']:,} retries, "
        f"{document['collected']:,} collected segments, {document['out_of_memory']:,} out of memory: "
        f"{document['differences']:,} runs differ from PyTorch's compiled allocator"
    )
    return text if not document["first_difference"] else f"{text}\nfirst: {document['first_difference']}"
