"""A file's content decides what it is, not its name; every container and pickle protocol reads the same."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import lzma
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import assert_refused, in_process
from test_bad_input import GOOD


def zipped(content: bytes, root: str = "archive", method: int = zipfile.ZIP_STORED) -> bytes:
    """What torch.save writes: a zip with ROOT/data.pkl, a version and a byte order."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(f"{root}/data.pkl", content)
        archive.writestr(f"{root}/byteorder", "little")
        archive.writestr(f"{root}/version", "3\n")
    return out.getvalue()


def zstd(content: bytes) -> bytes:
    if importlib.util.find_spec("compression") is not None:
        from compression import zstd as module  # Python 3.14

        return module.compress(content)
    import zstandard

    return zstandard.compress(content)


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda content: content,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstd,
    "two gzip members": lambda content: gzip.compress(content[:50]) + gzip.compress(content[50:]),
    "pt": zipped,
    "pt named otherwise": lambda content: zipped(content, "snapshot_rank0"),
    "pt in gzip": lambda content: gzip.compress(zipped(content)),
}


def numbers(path: Path) -> Any:
    run = in_process("stats", path, "--json")
    assert run.code == 0, run.err
    return run.json["snapshots"][0]["devices"]


@pytest.fixture
def expected(tmp_path: Path) -> Any:
    path = tmp_path / "plain.pickle"
    path.write_bytes(pickle.dumps(GOOD, 4))
    return numbers(path)


@pytest.mark.parametrize(
    "name", ["snapshot.pickle", "snapshot.json", "snapshot", "snapshot.pickle.gz", "s n\u00e4p;$(x)'\".pt"]
)
@pytest.mark.parametrize("container", CONTAINERS)
def test_by_content_not_by_name(tmp_path: Path, expected: Any, container: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(CONTAINERS[container](pickle.dumps(GOOD, 4)))
    assert numbers(path) == expected


@pytest.mark.parametrize("protocol", range(6))
def test_protocols(tmp_path: Path, expected: Any, protocol: int) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(GOOD, protocol))
    assert numbers(path) == expected


def test_torch_save_itself(tmp_path: Path, expected: Any) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: its own .pt files were not tried")
    torch.save(GOOD, tmp_path / "new.pt")
    assert numbers(tmp_path / "new.pt") == expected


@pytest.mark.parametrize(
    "content",
    [
        zipped(b"not a pickle"),
        zipped(pickle.dumps(GOOD), "a", zipfile.ZIP_DEFLATED)[:-30],
        gzip.compress(b"text"),
        lzma.compress(pickle.dumps({})),
        gzip.compress(pickle.dumps(GOOD))[:-12],
    ],
    ids=["zip of text", "zip cut", "gzip of text", "xz of a dict", "gzip without its end"],
)
def test_broken_containers(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken"
    path.write_bytes(content)
    assert_refused(in_process("stats", path), path.name)


def test_zip_without_a_pickle(tmp_path: Path) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", json.dumps({"a": 1}))
    assert_refused(in_process("stats", path), path.name)


def test_compressed_bomb_is_bounded_by_what_it_is(tmp_path: Path) -> None:
    """A gzip of zeros, 1000 times its size: refused quickly, for its content."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    assert_refused(in_process("stats", path), path.name)


BLOCK = GOOD["segments"][0]["blocks"][0]


def old_layout() -> dict[str, Any]:
    """The layout of 2022: blocks without addresses, their contents in ``history``."""
    segment = {k: v for k, v in GOOD["segments"][0].items() if k not in ("segment_pool_id", "is_expandable", "frames")}
    frames = BLOCK["frames"]
    history = [{"addr": 4096, "real_size": 500, "frames": frames}, {"addr": 4096, "real_size": 9, "frames": []}]
    blocks = [
        {"size": 512, "state": "active_allocated", "history": history},
        {"size": 1024, "state": "inactive"},
        {"size": 512, "state": "active_pending_free", "history": [{"addr": 5632, "real_size": 400}]},
    ]
    return {"segments": [segment | {"blocks": blocks}], "device_traces": [[]]}


def test_old_layout(tmp_path: Path) -> None:
    path = tmp_path / "old.pickle"
    path.write_bytes(pickle.dumps(old_layout()))
    (device,) = numbers(path)
    assert device["allocations"] == 2 and device["peak_allocated_bytes"] == 900 and device["reconciliation_bytes"] == 0
    import snapreport

    table = snapreport.load(path).allocations(0)
    assert table["addr"].to_list() == [4096, 5632] and table["size"].to_list() == [500, 400]


def test_bare_list_of_segments(tmp_path: Path) -> None:
    path = tmp_path / "list.pickle"
    path.write_bytes(pickle.dumps(GOOD["segments"]))
    (device,) = numbers(path)
    assert (device["events"], device["allocations"], device["peak_event"], device["peak_allocated_bytes"]) == (
        0,
        1,
        -1,
        500,
    )


def test_host_memory_is_a_device_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "host.pickle"
    trace = GOOD["device_traces"]
    path.write_bytes(
        pickle.dumps(GOOD | {"host_traces": trace, "host_segments": [GOOD["segments"][0] | {"device": 0}]})
    )
    kinds = {d["device"]: d["kind"] for d in numbers(path)}
    assert kinds == {-1: "host", 0: "cuda"}
