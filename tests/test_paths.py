"""Paths with wildcards and with a scheme: what is opened, what is streamed, and what is said where that fails."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snapreport
from snapreport.errors import SnapshotError
from snapreport.reading.paths import expand, file_name, is_remote, shown_path, without_profiles
from tests.cli import in_process

fsspec = pytest.importorskip("fsspec")

SNAPSHOT: dict[str, Any] = {
    "segments": [],
    "device_traces": [
        [
            {"action": "alloc", "addr": 4096, "size": 1024, "stream": 0, "frames": []},
            {"action": "free_requested", "addr": 4096, "size": 1024, "stream": 0, "frames": []},
        ]
    ],
}


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


class TestScheme:
    @pytest.mark.parametrize("path", ["s3://bucket/a.pickle", "https://host/a", "HF://datasets/x/y.pickle"])
    def test_a_url_is_remote(self, path):
        assert is_remote(path)

    @pytest.mark.parametrize("path", ["a.pickle", "/tmp/a", "C://x", "-", "./s3:/x", "a:b"])
    def test_a_local_path_is_not(self, path):
        assert not is_remote(path)

    def test_a_signature_is_not_shown(self):
        url = "https://user:secret@host.example/run/a.pickle?X-Amz-Signature=abc"
        assert shown_path(url) == "https://host.example/run/a.pickle"
        assert file_name(url) == "a.pickle"


class TestWildcards:
    def test_they_become_the_files_in_order(self, tmp_path, monkeypatch):
        for name in ("b_2.pickle", "b_1.pickle", "c.pickle"):
            (tmp_path / name).touch()
        (tmp_path / "b_dir.pickle").mkdir()
        monkeypatch.chdir(tmp_path)
        assert expand(["b_*.pickle", "c.pickle", "-"]) == ["b_1.pickle", "b_2.pickle", "c.pickle", "-"]
        assert expand(["[c].pickle", "missing.pickle"]) == ["c.pickle", "missing.pickle"]

    def test_two_asterisks_search_folders(self, tmp_path):
        (tmp_path / "x" / "y").mkdir(parents=True)
        (tmp_path / "x" / "y" / "a.pickle").touch()
        assert expand([f"{tmp_path}/**/*.pickle"]) == [f"{tmp_path}/x/y/a.pickle"]

    def test_profiles_of_the_run_are_read_with_its_snapshots(self, tmp_path):
        profile = tmp_path / "profile_rank_00000.json.gz"
        snapshot = tmp_path / "rank_00000_step_00000006_exit.pickle.gz"
        assert without_profiles([str(profile), str(snapshot)]) == [str(snapshot)]
        assert without_profiles([str(profile)]) == [str(profile)]

    def test_a_file_of_that_very_name_is_itself(self, tmp_path):
        path = tmp_path / "run[1].pickle"
        path.touch()
        (tmp_path / "run1.pickle").touch()
        assert expand([str(path)]) == [str(path)]

    def test_nothing_that_matches_is_an_error_of_one_line(self, tmp_path):
        result = in_process("stats", f"{tmp_path}/*.pickle")
        assert (result.code, result.out) == (2, "")
        assert result.err == f"snapreport: {tmp_path}/*.pickle: no file matches\n"
        for name in ("rank_0.json.gz", "rank_1.json.gz"):
            (tmp_path / name).touch()
        result = in_process("stats", f"{tmp_path}/*.pickle")
        assert result.err.endswith(f"no file matches; {tmp_path} has rank_0.json.gz and 1 more\n")

    def test_remote_ones_too(self, memory):
        for name in ("/run/rank_1.pickle", "/run/rank_0.pickle", "/run/other.txt"):
            memory.pipe(name, b"x")
        assert expand(["memory://run/rank_*"]) == ["memory:///run/rank_0.pickle", "memory:///run/rank_1.pickle"]
        with pytest.raises(SnapshotError, match=r"memory:///run/z\*: no file matches|memory://run/z\*: no file"):
            expand(["memory://run/z*"])

    def test_a_query_of_a_url_is_no_wildcard(self):
        assert expand(["https://host/a.pickle?x=1"]) == ["https://host/a.pickle?x=1"]


class TestRemote:
    def test_it_is_read_as_a_local_file_is(self, memory, tmp_path):
        for name, data in (
            ("a.pickle", pickle.dumps(SNAPSHOT, protocol=4)),
            ("a.pickle.gz", gzip.compress(pickle.dumps(SNAPSHOT, protocol=2))),
        ):
            memory.pipe(f"/run/{name}", data)
            (tmp_path / name).write_bytes(data)
            remote, local = snapreport.load(f"memory://run/{name}"), snapreport.load(tmp_path / name)
            assert remote.recording.name == name
            assert remote.recording.file_bytes == len(data)
            assert remote.allocations(0).equals(local.allocations(0))

    def test_the_command_names_the_report_after_it(self, memory, tmp_path, monkeypatch):
        memory.pipe("/run/a.pickle", pickle.dumps(SNAPSHOT))
        monkeypatch.chdir(tmp_path)
        assert in_process("memory://run/a.pickle").code == 0
        assert [path.name for path in tmp_path.iterdir()] == ["a.html"]

    def test_a_missing_one(self, memory):
        result = in_process("stats", "memory://run/none.pickle")
        assert (result.code, result.err) == (2, "snapreport: memory://run/none.pickle: no such file\n")

    def test_an_unknown_scheme(self):
        result = in_process("stats", "nosuch://run/none.pickle")
        assert result.code == 2
        assert result.err.startswith("snapreport: nosuch://run/none.pickle: cannot be read: ")
        assert result.err.count("\n") == 1

    def test_without_the_extra_one_line_says_how_to_get_it(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        result = in_process("stats", "s3://bucket/a.pickle?signature=abc")
        assert result.code == 2
        assert result.err == (
            "snapreport: s3://bucket/a.pickle: reading s3:// needs a package: pip install 'snapreport[remote]'\n"
        )


class _Ranges(http.server.BaseHTTPRequestHandler):
    """A web server of one file that sends ranges, as object stores do, and counts what it sends."""

    data = b""
    sent = 0
    ranges = True

    def do_HEAD(self) -> None:
        self._head(200, len(self.data))

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        if self.ranges and wanted.startswith("bytes="):
            begin, _, end = wanted[6:].partition("-")
            part = self.data[int(begin) : int(end) + 1 if end else None]
            self._head(206, len(part), f"bytes {begin}-{int(begin) + len(part) - 1}/{len(self.data)}")
        else:
            part = self.data
            self._head(200, len(part))
        with contextlib.suppress(ConnectionError):  # the reader has noticed that no range arrived
            self.wfile.write(part)
        type(self).sent += len(part)

    def _head(self, status: int, length: int, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.parametrize("ranges", [True, False])
def test_a_web_server_is_read_in_ranges_once_and_nothing_is_left_on_disk(ranges, tmp_path, monkeypatch):
    pytest.importorskip("aiohttp")
    frames = [[{"filename": f"{i:0200}", "line": i, "name": "g"}] for i in range(60_000)]
    entries = [
        {"action": action, "addr": 4096 * i, "size": 512, "stream": 0, "frames": frames[i]}
        for i in range(1, 60_000)
        for action in ("alloc", "free_requested")
    ]
    data = pickle.dumps({"segments": [], "device_traces": [entries]}, protocol=4)
    handler = type("_Handler", (_Ranges,), {"data": data, "sent": 0, "ranges": ranges})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    try:
        loaded = snapreport.load(f"http://127.0.0.1:{server.server_port}/run/a.pickle?token=secret")
    finally:
        server.shutdown()
        server.server_close()
    assert loaded.recording.path == f"http://127.0.0.1:{server.server_port}/run/a.pickle"
    assert len(loaded.events(0)) == len(entries)
    assert list(tmp_path.iterdir()) == []
    assert len(data) > 8 << 20
    if ranges:
        assert handler.sent <= len(data) + (9 << 20), "the head and one more block at most are sent twice"


def test_a_path_object_is_local(tmp_path):
    path = Path(tmp_path, "a.pickle")
    path.write_bytes(pickle.dumps(SNAPSHOT))
    assert snapreport.load(path).devices == [0]
