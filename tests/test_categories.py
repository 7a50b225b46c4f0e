"""What memory is for: the rules on stacks, lifetimes and freeing stacks, a user's own rules, and how they perform on
real snapshots.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import corpus
import polars as pl
import pytest
from scripted import Script
from test_pipeline import load

import snapreport
from snapreport.errors import SnapshotError
from snapreport.timeline import frame_search
from snapreport.timeline.category_rules import default_rules, load_rules
from snapreport.vocabulary import CATEGORIES

ALLOC = {"action": "alloc", "addr": 1 << 20, "size": 512, "stream": 0}
BACKWARD = [("/x/torch/autograd/graph.py", "_engine_run_backward"), ("/a/train.py", "step")]


def frames(*rows: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": 7, "name": name} for file, name in rows]


def categories(*lives: tuple[list[tuple[str, str]], int, list[tuple[str, str]] | None]) -> list[str]:
    """The categories of allocations (stack, lifetime in events: -1 to the end, stack of the free)."""
    position = 0
    events: list[dict[str, Any]] = []
    for number, (stack, lived, free_stack) in enumerate(lives):
        base = {"addr": (number + 1) << 20, "size": 512, "stream": 0}
        events.append({"action": "alloc", **base, "frames": frames(*stack)})
        position = len(events) - 1
        if lived > 0:
            events += [{"action": "snapshot", "addr": 0, "size": 0, "stream": 0}] * (lived - 2)
            free = {**base, "frames": frames(*(free_stack or stack))}
            events += [{"action": "free_requested", **free}, {"action": "free_completed", **free}]
            assert len(events) - 1 - position == lived
    return load({"segments": [], "device_traces": [events]}, 4).allocations(0)["category"].cast(pl.String).to_list()


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")  # Python may read sets as polars does, one day
@pytest.mark.parametrize(
    "pattern", ["a", "^b", r"(^|_)b$", "(?i)FORWARD", "(?!b)a", "[[]a", "[a&&b]$", "[a~~b]$", "x{,2}b", r"\d"]
)
def test_patterns_are_python_s(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever searches them: polars' patterns have no lookahead, and other sets of characters."""
    monkeypatch.setattr(frame_search, "_MANY", 0)
    names = ["a", "b", "ab", "a_b", "forward", "[a", "&", "-", "xxb", "x{,2}b", "layer7", "\u0663", ""]
    recording = load(
        {"segments": [], "device_traces": [[ALLOC | {"frames": frames(("/a.py", name))} for name in names]]}, 4
    ).recording
    found = frame_search.frames_matching(recording, re.compile(""), re.compile(pattern))
    shown = recording.frames["name"].to_list()
    assert set(names) <= set(shown)
    assert found.tolist() == [re.search(pattern, name) is not None for name in shown]


def test_by_stack_then_by_lifetime() -> None:
    adam, sgd = (
        [(f"/x/site-packages/torch/optim/{name}.py", f"_multi_tensor_{name}"), ("/a/train.py", "step")]
        for name in ("adam", "sgd")
    )
    forward = [("/a/model.py", "forward"), ("/x/torch/nn/modules/module.py", "_call_impl"), ("/a/train.py", "step")]
    assert categories((forward, -1, None), (forward, 12, None), (forward, 13, None)) == [
        "activation",
        "temporary",
        "activation",
    ]
    # A step's lists of temporaries live until it ends, however long it takes; its states outlive it. Adam makes none
    # here: a step in which memory runs out has freed nothing.
    assert categories((sgd, 600, None), (sgd, 1001, None), (sgd, -1, None)) == [
        "temporary",
        "temporary",
        "optimizer state",
    ]
    assert categories((adam, 600, None), (adam, -1, None)) == ["temporary", "temporary"]
    assert categories((BACKWARD, -1, None), (BACKWARD, 3, None)) == ["gradient", "temporary"]


def test_what_outlives_its_phase_was_made_to_stay() -> None:
    """States that a hand-written optimizer replaces at every step, and gradients that the program's own code frees."""
    adam = [("/x/site-packages/torch/optim/adam.py", "step"), ("/a/train.py", "main")]
    forward = [("/a/model.py", "forward"), ("/a/train.py", "main")]
    main = [("/a/train.py", "main")]

    def events(*rows: tuple[str, int, list[tuple[str, str]]]) -> list[dict[str, Any]]:
        made = []
        for action, block, stack in rows:
            base = {"addr": block << 20, "size": 512, "stream": 0, "frames": frames(*stack)}
            names = ["alloc"] if action == "alloc" else ["free_requested", "free_completed"]
            made += [{"action": name, **base} for name in names]
        return made

    trace = events(
        ("alloc", 1, adam), ("alloc", 2, adam), ("free", 2, adam[1:]), ("alloc", 3, forward), ("alloc", 4, BACKWARD),
        ("alloc", 5, BACKWARD), ("free", 5, BACKWARD), ("free", 3, BACKWARD), ("free", 4, main),
        ("alloc", 6, adam), ("free", 1, adam),
    )  # fmt: skip
    table = load({"segments": [], "device_traces": [trace]}, 4).allocations(0)
    assert table["category"].to_list() == [
        "optimizer state", "temporary", "activation", "gradient", "temporary", "optimizer state",
    ]  # fmt: skip
    assert set(table["category_source"]) == {"stack"}


def test_what_backward_lets_go_was_an_activation() -> None:
    plain = [("/a/attention.py", "scores"), ("/a/train.py", "step")]
    assert categories((plain, 40, BACKWARD), (plain, 40, plain), (plain, -1, None)) == [
        "activation",
        "unknown",
        "unknown",
    ]
    # Without stacks of frees, a free shows its alloc's: backward's own gradients keep their category.
    assert categories((BACKWARD, 40, BACKWARD)) == ["gradient"]


@pytest.mark.parametrize(
    ("name", "function", "file", "want"),
    [
        ("kv", "_allocate_kv_cache", "/x/vllm/worker/cache_engine.py", "kv cache"),
        ("inputs", "get_input", "/a/attention.py", "input"),
        ("nccl", "all_reduce", "/x/torch/distributed/distributed_c10d.py", "communication"),
        ("to", "convert", "/x/torch/nn/modules/module.py", "parameter"),
        ("own code", "to_rgb", "/a/picture.py", "unknown"),
        ("cuBLAS", "at::cuda::getNewWorkspace()", "??", "workspace"),
        ("vLLM", "initialize_kv_cache", "/x/vllm/v1/worker/gpu_model_runner.py", "kv cache"),
        ("transformers", "update", "/x/transformers/cache_utils.py", "kv cache"),
        ("Megatron's masters", "_build_model_and_main_param_groups", "/m/megatron/core/optimizer/o.py", "parameter"),
        ("Megatron's states", "init_state_fn", "/m/megatron/core/optimizer/__init__.py", "optimizer state"),
        ("Megatron's buffer", "__init__", "/m/megatron/core/distributed/param_and_grad_buffer.py", "gradient"),
        (
            "DeepSpeed's states",
            "initialize_optimizer_states",
            "/x/deepspeed/runtime/zero/stage_1_and_2.py",
            "optimizer state",
        ),
        ("DeepSpeed's shards", "__init__", "/x/deepspeed/runtime/zero/stage3.py", "parameter"),
        ("DeepSpeed's buckets", "setup_buckets", "/x/deepspeed/runtime/zero/stage_1_and_2.py", "gradient"),
        ("FSDP 2", "_init_sharded_param", "/x/torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "parameter"),
        (
            "FSDP 2 gradients",
            "foreach_reduce",
            "/x/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
            "gradient",
        ),
        ("FSDP 1", "flatten_tensors", "/x/torch/distributed/fsdp/_flat_param.py", "parameter"),
        ("an ensemble", "construct_stacked_leaf", "/x/torch/_functorch/functional_call.py", "parameter"),
        ("Adagrad", "__init__", "/x/torch/optim/adagrad.py", "optimizer state"),
        ("an LSTM moves", "_apply", "/x/torch/nn/modules/rnn.py", "parameter"),
    ],
)
def test_functions(name: str, function: str, file: str, want: str) -> None:
    assert categories(([(file, function), ("/a/main.py", "main")], -1, None)) == [want]


@pytest.mark.parametrize("file", ["/a/model.py", "/a/replay.py", "/a/optimizers/own.py", "/a/optimizer.py"])
def test_what_a_constructor_makes_is_inferred(file: str) -> None:
    stack = [
        {"filename": name, "line": 7, "name": function} for name, function in ((file, "__init__"), ("/a/t.py", "f"))
    ]
    event = {"action": "alloc", "addr": 1 << 20, "size": 512, "stream": 0, "frames": stack}
    table = load({"segments": [], "device_traces": [[event]]}, 4).allocations(0)
    assert table["category_source"].to_list() == ["inferred"]


def test_what_a_constructor_makes_of_requests_that_come_and_go_is_no_parameter() -> None:
    passes = [("alloc", 2, "forward"), ("free_completed", 2, "forward")] * 100
    rows = [("alloc", 1, "__init__"), *passes, ("free_completed", 1, "f"), ("alloc", 3, "__init__")]
    events: list[dict[str, object]] = [
        {"action": action, "addr": number << 20, "size": 512 * number, "stream": 0}
        | {"frames": [{"filename": "/a/serve.py", "line": 7, "name": function}]}
        for action, number, function in rows
    ]
    for last, want in ((None, "unknown"), (-1, "parameter")):
        table = load({"segments": [], "device_traces": [events[:last]]}, 4).allocations(0)
        assert table.filter(size=512)["category"].to_list() == [want]


def test_a_move_makes_gradients_from_the_line_that_applies_to_them() -> None:
    """The lines of ``Module._apply`` in PyTorch 2.15: of a submodule, a parameter, its gradient and a buffer."""
    module, calls = "/x/torch/nn/modules/module.py", 933
    events = []
    for number, line in enumerate((966, 1010, 1036), 1):
        rows = ((module, 1371, "convert"), (module, line, "_apply"), (module, calls, "_apply"), ("/a/t.py", 3, "main"))
        stack = [{"filename": file, "line": at, "name": name} for file, at, name in rows]
        events.append({"action": "alloc", "addr": number << 20, "size": 512, "stream": 0, "frames": stack})
    table = load({"segments": [], "device_traces": [events]}, 4).allocations(0)
    assert table["category"].to_list() == ["parameter", "gradient", "parameter"]


def test_the_first_of_megatrons_buffers_holds_parameters() -> None:
    file = "/m/megatron/core/distributed/param_and_grad_buffer.py"
    events = []
    for line in (612, 598, 612):
        stack = [{"filename": file, "line": line, "name": "__init__"}]
        events.append({"action": "alloc", "addr": line << 20, "size": 512, "stream": 0, "frames": stack})
    table = load({"segments": [], "device_traces": [events]}, 4).allocations(0)
    assert table["category"].to_list() == ["gradient", "parameter", "gradient"]


# Shares of the peak that no rule covers, in percent at most. Shares above 1 have no frames (from before the trace), or
# are buffers of parameters and gradients made by the same function.
UNKNOWN = {
    "annotations_compile.pickle": 50.1, "attention_97_events.pickle": 1, "expandable_oom_3gpu.pickle": 0.1,
    "pools_pending_no_trace.pickle": 12, "private_pool_gpu3.pickle": 32, "torch20_history_blocks.pickle": 0,
    "train_22k_events.pickle": 14.5, "train_step_fp32.pickle": 48.1, "trimmed_inconsistent.pickle": 0.1,
}  # fmt: skip


def test_unknown_share_of_real_peaks(real_path: Path) -> None:
    snapshot = corpus.loaded(real_path)
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        if not timeline.peak_bytes or real_path.name not in UNKNOWN:
            continue
        at, free = timeline.peak_event, pl.col("free_event")
        live = timeline.allocations.filter((pl.col("alloc_event") <= at) & ((free < 0) | (free > at)))
        unknown = live.filter(pl.col("category") == "unknown")
        assert unknown["size"].sum() <= UNKNOWN[real_path.name] / 100 * timeline.peak_bytes
        with_frames = unknown.filter((pl.col("stack") > 0) & (pl.col("alloc_event") >= 0))
        if real_path.name != "private_pool_gpu3.pickle":
            assert with_frames["size"].sum() <= 0.01 * timeline.peak_bytes


def test_real_optimizers_are_told(real_path: Path) -> None:
    """Two states for each of the parameters of a hand-written AdamW, observed as they are replaced and freed."""
    if real_path.name != "train_22k_events.pickle":
        pytest.skip("another file")
    table = corpus.loaded(real_path).allocations(0)
    freed = table.filter((pl.col("origin") == "freed") & (pl.col("category") == "optimizer state"))
    by_stack = freed.group_by("free_stack").len().sort("len")["len"].to_list()
    # And two temporaries of the step in which recording began.
    assert by_stack == [2, 218, 218] and freed["size"].n_unique() > 3
    assert set(freed["category_source"]) == {"freed in"} and freed["stack"].max() == 0


OWN = """
[[rule]]
category = "input"
function = '^forward$'

[[rule]]
category = "parameter"
file = 'model\\.py$'
short = "temporary"
short_lived_events = 3
"""


def test_own_rules_come_first(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(OWN)
    plain = snapreport.load(corpus.path_of("training")).allocations(0)
    mine = snapreport.load(corpus.path_of("training"), rules=rules).allocations(0)
    theirs = ["category", "category_source", "shape"]  # which is inferred beside parameters
    assert plain.drop(theirs).equals(mine.drop(theirs))
    changed = mine.filter(mine["category"] != plain["category"])
    assert len(changed) and set(changed["category"].cast(pl.String)) <= {"input", "parameter", "temporary"}
    built_in = plain.filter(pl.col("category") == "optimizer state")["id"]
    assert (mine["category"].gather(built_in) == "optimizer state").all()
    own = load_rules(rules)
    assert [r.events for r in own.own] == [12, 3]
    assert own.rules == default_rules().rules and own.freed == default_rules().freed


@pytest.mark.parametrize(
    ("text", "says"),
    [("x = " + "[" * 100_000, "nested too deep"), ("#" * 1_100_000, "more than 1 MiB of rules")],
    ids=["deep", "long"],
)
def test_hostile_rules_are_refused(tmp_path: Path, text: str, says: str) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(text)
    with pytest.raises(snapreport.SnapshotError, match=f"rules.toml: .*{says}"):
        load_rules(rules)


def test_own_rules_of_frees_are_for_what_is_unknown(tmp_path: Path) -> None:
    script, (read, release, close) = Script(), [("/app/data.py", name) for name in ("read", "release", "close")]
    made_by = (("/app/model.py", "forward"), read, read)
    blocks = [script.alloc("", size << 20, frame) for size, frame in enumerate(made_by, 1)]
    for address, frame in zip(blocks, (release, release, close), strict=True):
        script.free(address, frame)
    path, rules = tmp_path / "frees.pickle", tmp_path / "rules.toml"
    path.write_bytes(pickle.dumps(script.raw()))
    rules.write_text("[[freed]]\ncategory = 'input'\nfunction = '^release$'\n")
    columns = ("size", pl.col("category", "category_source").cast(pl.String))
    plain, mine = (snapreport.load(path, rules=of).allocations(0).select(columns).rows() for of in (None, rules))
    assert set(mine) - set(plain) == {(2 << 20, "input", "freed in")}


def test_own_lifetime_holds_for_own_rules_alone(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("short_lived_events = 1\n" + OWN)
    own = load_rules(rules)
    assert [r.events for r in own.own] == [1, 3] and own.short_lived_events == default_rules().short_lived_events


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]", "Expected"),
        ("", "no [[rule]] in it"),
        ("rules = 1", "rules: no such setting; there are short_lived_events, rule and freed"),
        ("rule = 3", "rule: not a list of tables; write [[rule]]"),
        ("[[rule]]\nfile = 'x'", "rule 1: no category"),
        ("[[rule]]\ncategory = 'input'", "rule 1: neither file nor function: it would match every stack"),
        (
            "[[rule]]\ncategory = 'weights'\nfile = 'x'",
            f"rule 1: category is 'weights'; it can be {', '.join(CATEGORIES)}",
        ),
        (
            "[[rule]]\ncategory = 'input'\nfile = 'x'\n[[rule]]\ncategory = 'input'\nfile = '('",
            "rule 2: file: missing ), unterminated",
        ),
        ("[[rule]]\ncategory = 'input'\nfile = 5", "rule 1: file is 5, not a text"),
        ("[[rule]]\ncategory = 'input'\nfile = 'x'\nshort = 1", "rule 1: short is 1"),
        ("[[rule]]\ncategory = 'input'\nname = 'x'", "rule 1: name: no such key"),
        (
            "short_lived_events = true\n[[rule]]\ncategory = 'input'\nfile = 'x'",
            "short_lived_events is True, not a number of events",
        ),
        ("[[freed]]\ncategory = 'input'\nfile = '['", "freed 1: file: unterminated character set"),
    ],
)
def test_bad_rules_are_told(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(SnapshotError) as told:
        snapreport.load(corpus.path_of("small"), rules=path)
    assert str(told.value).startswith(f"{path}: ") and message in str(told.value)


def test_no_file_of_rules(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"nowhere\.toml: No such file"):
        load_rules(tmp_path / "nowhere.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SnapshotError, match=r"binary\.toml: not a text in UTF-8"):
        load_rules(tmp_path / "binary.toml")
