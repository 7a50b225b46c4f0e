"""What a file says about the run that it was recorded in: read back exactly, shown, and harmless in any case."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import generator
import hypothesis
import pytest
from hypothesis import strategies as st

import snapreport
from snapreport.reading.recorder_metadata import read_metadata
from snapreport.report.payload import build_sections
from snapreport.report.recorder_facts import repository_url

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIB = 1 << 30


def recorded(**changes: Any) -> dict[str, Any]:
    return {
        "schema": "snapreport-recording/1",
        "reason": "oom",
        "oom": {"device": 0, "tried_bytes": 2 * GIB, "total_bytes": 80 * GIB, "free_bytes": GIB},
        "step": 412,
        "started_us": 1_000_000,
        "dumped_us": 4_500_000,
        "process": {"host": "node-12", "pid": 77, "command": ["python", "train.py", "--lr=3"]},
        "distributed": {"RANK": "37", "WORLD_SIZE": "64", "LOCAL_RANK": "5"},
        "versions": {"torch": "2.9.1+cu128", "cuda": "12.8", "python": "3.11.7", "hip": None},
        "allocator": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        "options": {"stacks": "python", "steps": [3, 6], "max_entries": 1_000_000},
        "git": {"commit": COMMIT, "remote": "git@github.com:team/project.git", "root": "/code", "dirty": True},
        "devices": {
            0: {
                "name": "H100",
                "uuid": "GPU-1",
                "total_bytes": 80 * GIB,
                "resident_threads": 132 * 2048,
                "memory_stats": {"num_ooms": 1},
            }
        },
        "memory_at_dump": {0: {"free_bytes": GIB, "total_bytes": 80 * GIB}},
        "steps": [],
        "marks": [],
        **changes,
    }


def with_metadata(metadata: Any, folder: Path, **options: Any) -> Path:
    """A generated snapshot with ``metadata``; or with the result of the function ``metadata`` for the snapshot."""
    snapshot = generator.make("small", **options)
    snapshot["snapreport"] = metadata(snapshot) if callable(metadata) else metadata
    path = folder / "recorded.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    return path


def test_everything_is_read(tmp_path: Path) -> None:
    found = snapreport.load(with_metadata(recorded(), tmp_path)).recording
    metadata = found.recorder
    assert metadata is not None and "unknown_keys" not in found.notes
    assert (metadata.reason, metadata.step, metadata.oom["tried_bytes"]) == ("oom", 412, 2 * GIB)
    assert metadata.command == ["python", "train.py", "--lr=3"] and metadata.distributed["RANK"] == "37"
    assert metadata.versions == {"torch": "2.9.1+cu128", "cuda": "12.8", "python": "3.11.7"}
    assert metadata.options == {"stacks": "python", "steps": "3:6", "max_entries": "1000000"}
    assert metadata.git.commit == COMMIT and metadata.git.dirty is True
    assert metadata.devices[0].total_bytes == 80 * GIB and metadata.devices[0].stats == {"num_ooms": 1}
    assert metadata.devices[0].resident_threads == 132 * 2048
    assert metadata.memory_at_dump == {0: (GIB, 80 * GIB)}


def test_report_shows_it(tmp_path: Path) -> None:
    """In "Recording", and memory outside the allocator beside the device's numbers."""
    path = with_metadata(recorded(), tmp_path)
    loaded = snapreport.load(path)
    snapreport.write_report([loaded], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in (
        "<dd>When memory ran out in step 412 3.5 s after recording began</dd>",
        "<dd>rank 37 of 64, local rank 5, on node-12, process 77</dd>",
        "<dd>python train.py --lr=3</dd>",
        "<dd>PyTorch 2.9.1+cu128, CUDA 12.8, Python 3.11.7</dd>",
        f'<a href="https://github.com/team/project/commit/{COMMIT}" target="_blank" rel="noreferrer">0123456789ab ',
        "<dd>H100, 80.0 GiB GPU-1</dd>",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, stacks=python, steps=3:6, max_entries=1000000",
    ):
        assert words in text, words
    reserved = sum(segment["total_size"] for segment in generator.make("small")["segments"])
    outside = (79 * GIB - reserved) / GIB
    assert f"{outside:.1f} GiB were outside PyTorch&#39;s caching allocator: the CUDA context, NCCL, " in text


def test_names_belong_to_what_lived_then(tmp_path: Path) -> None:
    """An address is named for the allocation that was live at the moment, not for others that had the address before or
    after; and the last moment is the end.
    """

    def metadata(snapshot: dict[str, Any]) -> dict[str, Any]:
        trace = next(t for t in snapshot["device_traces"] if t)
        owners: dict[int, list[int]] = {}
        for index, entry in enumerate(trace):
            if entry["action"] == "alloc":
                owners.setdefault(entry["addr"], []).append(index)
        # An address that several allocations had, and the moment just after the second of them.
        address, (first, second, *_) = next((a, o) for a, o in owners.items() if len(o) > 2)
        expected.update(address=address, event=second)
        tensors = [[0, address, "gradient", "layer.weight.grad"]]
        then = {"time_us": trace[second]["time_us"], "tensors": tensors}
        before = {"time_us": trace[0]["time_us"] - 10, "tensors": [[0, address, "parameter", "from before"]]}
        last = {"time_us": 2**61, "tensors": [[0, address + 1, "parameter", "of no allocation"]]}
        assert first < second
        return recorded(marks=[before, then, last])

    expected: dict[str, int] = {}
    table = snapreport.load(with_metadata(metadata, tmp_path)).allocations(0)
    named = table.filter(table["user_metadata"].is_in(["layer.weight.grad", "from before", "of no allocation"]))
    assert named.select("addr", "alloc_event").rows() == [(expected["address"], expected["event"])]
    assert named["category"].to_list() == ["gradient"] and named["user_metadata"].to_list() == ["layer.weight.grad"]


def test_steps_end_where_the_recorder_says(tmp_path: Path) -> None:
    def metadata(snapshot: dict[str, Any]) -> dict[str, Any]:
        trace = next(t for t in snapshot["device_traces"] if t)
        times = [entry["time_us"] for entry in trace]
        # Several events share a microsecond: the last of them.
        ends.extend(max(i for i, time in enumerate(times) if time <= times[len(times) // n]) for n in (3, 2))
        return recorded(steps=[[n, trace[end]["time_us"]] for n, end in enumerate(ends, 7)])

    ends: list[int] = []
    loaded = snapreport.load(with_metadata(metadata, tmp_path))
    rows = loaded.steps(0).select("step", "first_event", "last_event").rows()
    # Step 6 began before the recording of steps: only its end is known.
    assert rows == [(7, ends[0] + 1, ends[1]), (8, ends[1] + 1, len(loaded.events(0)) - 1)]
    assert loaded.steps(0)["name"].to_list() == ["step 7", "step 8 (unfinished)"]


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@hypothesis.given(st.dictionaries(st.sampled_from(sorted(recorded())), anything))
def test_malformed_metadata_is_harmless(changes: dict[str, Any]) -> None:
    """Any value in any place gives metadata with less in it, or none; never an error."""
    raw = {**recorded(), **changes}
    found = read_metadata(raw)
    if "schema" not in changes:
        assert found is not None and (found.step == 412 or "step" in changes)


@hypothesis.given(anything)
@hypothesis.settings(max_examples=30)
def test_hostile_values_deep_inside(value: Any) -> None:
    for key in ("devices", "memory_at_dump"):
        read_metadata(
            recorded(**{key: {0: {"total_bytes": value, "free_bytes": value, "memory_stats": value}, 1: value}})
        )
    read_metadata(
        recorded(steps=[value, [value, value]], marks=[value, {"time_us": value, "tensors": [value, [value] * 4]}])
    )
    read_metadata(recorded(git={"commit": value, "remote": value}, process={"command": [value], "host": value}))


def test_nested_without_end() -> None:
    """100,000 levels: nothing recurses into them."""
    deep: Any = ()
    for _ in range(100_000):
        deep = (deep,)
    assert read_metadata(recorded(oom=deep, versions={"torch": deep}, devices={0: deep}, marks=[deep], steps=[deep]))


def test_names_are_no_track_of_the_timeline(tmp_path: Path) -> None:
    """Names of tensors are shown with allocations; only metadata that the program set describes a moment."""
    plain = tmp_path / "plain.pickle"
    plain.write_bytes(pickle.dumps(generator.make("small")))
    names_only = []
    for path in (with_metadata(recorded(), tmp_path), plain):
        sections = build_sections([snapreport.load(path)], "")
        names_only.append([table.manifest.get("names_only") for table in sections.tables])
    assert set(names_only[0]) == {True} and set(names_only[1]) == {None}


def test_a_text_stays_text(tmp_path: Path) -> None:
    hostile = "</script><b onmouseover=alert(1)>"
    metadata = recorded(
        process={"host": hostile, "command": [hostile]},
        versions={"torch": hostile},
        git={"commit": COMMIT, "remote": f"javascript:alert(1)//{hostile}", "root": hostile, "dirty": None},
        devices={0: {"name": hostile, "uuid": hostile, "total_bytes": 1}},
    )
    snapreport.write_report([snapreport.load(with_metadata(metadata, tmp_path))], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert hostile not in text and "javascript:alert" not in text


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("git@github.com:team/project.git", "https://github.com/team/project"),
        ("ssh://git@gitlab.example.org/team/sub/project", "https://gitlab.example.org/team/sub/project"),
        ("https://github.com/team/project/", "https://github.com/team/project"),
        ("javascript:alert(1)", ""),
        ("https://evil.example/\nx", ""),
        ("/srv/git/project.git", ""),
        (None, ""),
    ],
)
def test_links_to_commits(remote: str | None, url: str) -> None:
    git = read_metadata(recorded(git={"commit": COMMIT, "remote": remote})).git
    assert repository_url(git) == url
