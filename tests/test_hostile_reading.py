"""Small files that took minutes, gigabytes or wrapped a number: each is now refused, or read, at once."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cli import assert_refused, in_process
from test_bad_input import ALLOC, FRAME, GOOD

import snapreport
from snapreport.errors import SnapshotError
from snapreport.reading import open as opening


def doubled(times: int = 60) -> Any:
    """A tuple that doubles ``times`` times: hashing it, or comparing it with an equal one, never ends."""
    value: Any = (0, 0)
    for _ in range(times):
        value = (value, value)
    return value


def trace(*entries: dict[str, Any]) -> dict[str, Any]:
    return GOOD | {"device_traces": [list(entries)]}


HANGING = {
    "text": trace(ALLOC | {"compile_context": "x"}, ALLOC | {"compile_context": doubled()}),
    "text among texts": trace(*[ALLOC | {"user_metadata": "x"}] * 40, *[ALLOC | {"user_metadata": doubled()}] * 3),
    "pool": trace(ALLOC | {"pool_id": doubled()}, ALLOC | {"pool_id": doubled()}),
    "pool among pools": trace(*[ALLOC | {"pool_id": (0, 0)}] * 3, ALLOC | {"pool_id": doubled()}),
    "frame": trace(*[ALLOC | {"frames": [FRAME | {"extra": doubled()}]} for _ in range(4)]),
    "frame with fx": trace(*[ALLOC | {"frames": [FRAME | {"fx_a": doubled()}]} for _ in range(4)]),
    "state": GOOD | {"allocator_settings": {"a": doubled()}},
}


@pytest.mark.parametrize("name", HANGING)
@pytest.mark.parametrize("protocol", [2, 4])
def test_values_doubled_sixty_times(name: str, protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "doubled.pickle"
    path.write_bytes(pickle.dumps(HANGING[name], protocol))
    run = in_process("stats", path)  # otherwise it would never end
    assert run.code in (0, 2)
    if run.code:
        assert_refused(run, path.name)


def test_a_text_that_many_frames_share(tmp_path: Path) -> None:
    path = tmp_path / "shared.pickle"
    long = "x" * 1_000_000
    frames = [{"filename": long, "line": line, "name": "f"} for line in range(10_000)]
    path.write_bytes(pickle.dumps(trace(ALLOC | {"frames": frames}), 4))
    assert path.stat().st_size < 2_000_000
    assert_refused(in_process("stats", path), path.name, "characters")


def test_a_long_key_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "settings.pickle"
    path.write_bytes(pickle.dumps(GOOD | {"allocator_settings": {f"{i}" + "k" * 1_000_000: 1 for i in range(3)}}, 4))
    settings = snapreport.load(path).recording.settings
    assert max(map(len, settings)) <= 10_000


@pytest.mark.parametrize("number", [2, 2048])
def test_sizes_whose_sum_is_not_exact(number: int, tmp_path: Path) -> None:
    path = tmp_path / "sum.pickle"
    segments = [
        {"device": 0, "address": i << 53, "total_size": 2**53 - 1, "stream": 0, "segment_type": "large", "blocks": []}
        for i in range(number)
    ]
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": []}, 4))
    assert_refused(in_process("stats", path), path.name, "more than any memory")


@pytest.mark.parametrize("number", [257, 65_536])
def test_more_devices_than_machines_have(number: int, tmp_path: Path) -> None:
    path = tmp_path / "devices.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[] for _ in range(number)]}, 4))
    assert_refused(in_process("stats", path), path.name, f"{number}")
    segment = {"address": 512, "total_size": 512, "stream": 0, "segment_type": "small", "blocks": []}
    path.write_bytes(pickle.dumps([segment | {"device": i} for i in range(number)], 4))
    assert_refused(in_process("stats", path), path.name, "device")


def test_many_different_keys_of_frames(tmp_path: Path) -> None:
    path = tmp_path / "keys.pickle"
    frames = [FRAME | {f"fx_{i}": "x"} for i in range(30_000)]
    path.write_bytes(pickle.dumps(trace(ALLOC | {"frames": frames}), 4))
    assert_refused(in_process("stats", path), path.name, "fx_")
    # Keys that are not read cost nothing.
    path.write_bytes(pickle.dumps(trace(ALLOC | {"frames": [FRAME | {f"other_{i}": "x"} for i in range(30_000)]}), 4))
    assert in_process("stats", path).code == 0


def zipped(content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", content)
    return made.getvalue()


def zstandard_frame(content: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=19).compress(content)


CONTAINERS = {"gzip": gzip.compress, "xz": lzma.compress, "bzip2": bz2.compress, "zstd": zstandard_frame, "zip": zipped}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_one_limit_for_every_container(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "ALWAYS_ALLOWED", 1 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(CONTAINERS[kind](b"\x80\x04" + bytes(3 << 20)))
    with pytest.raises(SnapshotError, match=f"{kind}: .* more than"):
        snapreport.load(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_files_that_are_unpacked_without_a_limit(method: int, tmp_path: Path) -> None:
    """4 KB of bzip2 in a zip file became 5 GB in one step."""
    path = tmp_path / "archive.pt"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(GOOD))
    assert_refused(in_process("stats", path), path.name, "another method than deflate")


def test_a_zip_file_that_claims_more_than_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "archive.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(GOOD))
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[directory + 20 : directory + 28] = b"\xff\xff\xff\x7f" * 2
    path.write_bytes(content)
    assert_refused(in_process("stats", path), path.name, "damaged zip file: it is cut short")


@pytest.mark.parametrize("kind", CONTAINERS)
def test_what_is_spooled_to_disk_is_read_all_the_same(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "SPOOLED", 100)
    path = tmp_path / "spooled"
    path.write_bytes(CONTAINERS[kind](pickle.dumps(trace(ALLOC, ALLOC | {"addr": 1024}), 4)))
    assert snapreport.load(path).timeline(0).peak_bytes == 2 * ALLOC["size"]
