"""What a server's memory is for: to the byte what engines that really ran hold, and in whatever pool it is."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import corpus
import polars as pl
import pytest
from fake_torch import FakeTorch

import snapreport
from snapreport.report.stats_text import stats_text

ENGINE = Path(__file__).parent / "fakecuda" / "programs" / "serving" / "engine.py"
PARTS = {
    "reserved": "reserved_bytes",
    "weights": "weight_bytes",
    "kv_cache": "kv_cache_bytes",
    "graphs": "cuda_graph_bytes",
}


@pytest.mark.parametrize("kind", ["lists", "pool", "no_graphs"])
def test_engines(kind: str, torch_cuda: FakeTorch, tmp_path: Path) -> None:
    done = torch_cuda.run(ENGINE, tmp_path / "engine.pickle", kind)
    assert done.code == 0, done.err
    truth = json.loads(done.out)
    snapshot = snapreport.load(tmp_path / "engine.pickle")
    serving = snapshot.stats()["devices"][0]["serving"]
    assert {part: serving[key] for part, key in PARTS.items()} == {part: truth[part] for part in PARTS}
    # The engine counts the workspace that the first multiplication makes, too.
    assert 0 <= truth["activations"] - serving["peak_activation_bytes"] <= serving["other_bytes"]
    parts = ("weight", "kv_cache", "cuda_graph", "activation_reserve", "other")
    assert sum(serving[f"{part}_bytes"] for part in parts) == truth["reserved"]
    assert "CUDA graphs" in stats_text(snapshot).partition("were reserved: weights")[2]


CALL = {"filename": "/lib/torch/nn/modules/module.py", "name": "_call_impl", "line": 1}
FORWARD = [{"filename": "/app/net.py", "name": "forward", "line": 3}, CALL]
WEIGHTS = [{"filename": "/app/load.py", "name": "create_weights", "line": 1}]
CACHE = [{"filename": "/app/run.py", "name": "_allocate_kv_cache_tensors", "line": 1}]
BACKWARD = [{"filename": "/lib/torch/autograd/graph.py", "name": "_engine_run_backward", "line": 1}]


def server(folder: Path, *, last: list[dict[str, Any]] = FORWARD, cache: int = 3) -> snapreport.Snapshot:
    """Weights of 1 MiB in a ``MemPool`` of 2; in a segment of 8, ``cache`` MiB of keys and values, and 2 MiB of forward
    passes; a graph's pool of 4 MiB.
    """
    made = [(WEIGHTS, 0, 1), (CACHE, 16, cache), (FORWARD, 20, 2), (FORWARD, 32, 4)]
    trace = [
        {"action": "alloc", "addr": at << 20, "size": size << 20, "stream": 0, "time_us": at, "frames": frames}
        for frames, at, size in made
    ]
    freed = {"action": "free_completed", "time_us": 40}
    for frames in (*[FORWARD] * 10, last):
        trace += [trace[2] | freed, trace[2] | {"frames": frames}]
    trace.append(trace[2] | freed)
    segments = []
    for at, total, pool, used in ((0, 2, (0, 1), 1), (16, 8, (0, 0), cache), (32, 4, (1, 0), 4)):
        states = [(at, used, "active_allocated"), (at + used, total - used, "inactive")]
        blocks = [
            {"address": begin << 20, "size": size << 20, "requested_size": size << 20, "state": state}
            for begin, size, state in states
            if size
        ]
        segment = {"device": 0, "address": at << 20, "total_size": total << 20, "blocks": blocks, "stream": 0}
        sizes = {"allocated_size": used << 20, "active_size": used << 20, "segment_type": "large"}
        segments.append({**segment, **sizes, "segment_pool_id": pool})
    path = folder / "server.pickle"
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [trace]}))
    return snapreport.load(path)


def test_weights_in_a_pool_of_their_own_are_no_graph(tmp_path: Path) -> None:
    """Nor is what is left of the pool."""
    serving = server(tmp_path).stats()["devices"][0]["serving"]
    mib = {key.removesuffix("_bytes"): value >> 20 for key, value in serving.items()}
    whole, parts, most = ("reserved", 14), ("weight", 1, "kv_cache", 3, "cuda_graph", 4, "activation_reserve", 5), 2
    assert mib == dict([whole, *zip(parts[::2], parts[1::2], strict=True)], other=1, peak_activation=most)


def test_a_final_state_of_a_real_engine() -> None:
    """vLLM's in a rollout of verl, recorded without a trace: 24 tensors of `_allocate_kv_cache` in a pool of their own,
    and weights in another, beside the trainer's.
    """
    name = "pools_pending_no_trace.pickle"
    if name not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    snapshot = snapreport.load(corpus.path_of(name))
    serving = snapshot.stats()["devices"][0]["serving"]
    cache = snapshot.allocations(0, with_stacks=True).filter(pl.col("function") == "_allocate_kv_cache")
    pools = {one["pool"]: one["reserved_bytes"] for one in snapshot.stats()["devices"][0]["private_pools"]}
    assert len(cache) == 24 and serving["kv_cache_bytes"] == cache["size"].sum()
    assert 0 <= pools["(0, 2)"] - serving["kv_cache_bytes"] < 24 * 2**20  # of segments of 2 MiB
    assert serving["cuda_graph_bytes"] == 0 and serving["peak_activation_bytes"] is None
    parts = ("weight", "kv_cache", "cuda_graph", "activation_reserve", "other")
    assert sum(serving[f"{part}_bytes"] for part in parts) == serving["reserved_bytes"]
    text = " ".join(stats_text(snapshot).split())
    assert "weights 1.68 GiB, KV cache 20.3 GiB, CUDA graphs 0 B" in text and "outside of graphs" not in text


def test_nothing_is_said_of_training_and_without_a_cache(tmp_path: Path) -> None:
    assert "serving" not in server(tmp_path, last=BACKWARD).stats()["devices"][0]
    assert "serving" not in server(tmp_path, cache=0).stats()["devices"][0]
