"""Entries parsed from their bytes: the same recording as by the unpickler, whatever a pickle holds."""

from __future__ import annotations

import pickle
import re
import tracemalloc
from pathlib import Path
from typing import Any

import breadth
import corpus
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_trace_stream import assert_equal, diverted, plain

import snapreport
from snapreport.reading import parsing_time, trace_parser, trace_stream
from snapreport.reading.trace_parser import TraceParser

ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_map", "snapshot", "renamed"]
FRAMES = [{"filename": f"f{i}.py", "line": i, "name": f"g{i}"} for i in range(300)]
NUMBERS = st.one_of(
    st.integers(0, 300), st.integers(0, 2**53 - 1), st.sampled_from([255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**40])
)


def own(text: str) -> str:
    """Another object with the same content, which pickle does not write as a reference."""
    return "".join(list(text)) if len(text) > 1 else text


@st.composite
def traces(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Traces whose entries share keys, texts, pools, frames and lists of frames in all ways that pickle can write."""
    lists = [draw(st.lists(st.sampled_from(FRAMES), max_size=6)) for _ in range(4)]
    pools = [(0, 0), (0, 1), (70_000, 3)]
    has_time, has_pool, has_unknown = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    made = []
    for _ in range(draw(st.integers(1, 2))):
        trace: list[dict[str, Any]] = []
        for _ in range(draw(st.integers(0, 60))):
            action = draw(st.sampled_from(ACTIONS))
            frames = draw(st.sampled_from(lists))
            entry: dict[str, Any] = {
                "action": action if draw(st.booleans()) else own(action),
                "addr": draw(st.one_of(NUMBERS, st.integers(2**63, 2**64 - 1))),
                "size": draw(NUMBERS),
                "stream": draw(st.one_of(st.just(0), st.integers(-(2**63), 2**63 - 1))),
            }
            if has_time:
                entry["time_us"] = draw(st.one_of(NUMBERS, st.none())) if draw(st.booleans()) else 5
            if has_pool:
                a, b = draw(st.sampled_from(pools))
                entry["segment_pool_id"] = (a, b) if draw(st.booleans()) else pools[0]
            if has_unknown:
                entry["internal_metadata"] = draw(st.sampled_from(["", "x" * 300, "é", None, 7, {"a": 1}, 0.5]))
            long = draw(st.sampled_from(["eval step 17", "eval step 18", '{"step": 3}' * 30]))
            entry["user_metadata"] = draw(st.sampled_from(["", own("step"), long, own(long), None, "}\x94(h"]))
            # The list itself, an equal one, or one with frames of its own.
            entry["frames"] = draw(st.sampled_from([frames, list(frames), [dict(frame) for frame in frames]]))
            trace.append(entry)
            if action == "free_requested":
                trace.append({**entry, "action": "free_completed"})
        # No collector replaces a single entry, so its frames are numbered later.
        made.append(trace if len(trace) != 1 else [])
    return made


@settings(max_examples=breadth.examples(80), deadline=None)
@given(traces(), st.sampled_from([4, 5]), st.sampled_from([64, 700, 1 << 20]), st.booleans())
def test_any_entries(made: list[list[dict[str, Any]]], protocol: int, block: int, is_first: bool) -> None:
    """Also through files that end in the middle of an entry, and with later references to lists of the trace."""
    shared = made[0][0]["frames"] if made[0] else []
    segment = {"device": 0, "address": 512, "total_size": 512, "blocks": [], "frames": shared}
    parts = {"segments": [segment], "device_traces": made}
    raw = dict(reversed(parts.items())) if is_first else parts
    pickled = pickle.dumps(raw, protocol)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_stream, "BLOCK", block)
        try:
            recording = diverted(pickled)[0]
        except trace_stream.Unusual:
            # Another object than the first with the same content is referred to.
            recording = diverted(pickled, parse=False)[0]
    assert_equal(recording, plain(pickled))


def entries(n: int, **more: Any) -> list[dict[str, Any]]:
    return [{"action": "alloc", "addr": i, "size": i + 2, "stream": 0, **more, "frames": FRAMES[:1]} for i in range(n)]


def parsers(patch: pytest.MonkeyPatch) -> list[TraceParser]:
    made: list[TraceParser] = []
    create = TraceParser.__init__

    def keep(self: TraceParser, *arguments: Any) -> None:
        create(self, *arguments)
        made.append(self)

    patch.setattr(TraceParser, "__init__", keep)
    patch.setattr(parsing_time, "ALLOWED_SECONDS", 1e6)  # however slow this machine is
    return made


@pytest.mark.parametrize("name", ["training_late_start.pickle", "expandable_oom_3gpu.pickle"])
def test_few_entries_of_real_snapshots_are_read_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = corpus.REAL / name
    if not path.exists():
        pytest.skip(f"no {name}")
    made = parsers(monkeypatch)
    diverted(path.read_bytes())
    assert made[0].rows > 5000 and made[0].alone < 0.03 * made[0].rows


def test_numbers_of_all_widths_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An opcode for each width of a number: entries with 32 combinations of them, one of which is rare."""
    numbers = [7, 700, 70_000, 7_000_000_000]
    made = entries(3000)
    for i, one in enumerate(made):
        one |= {"addr": numbers[i % 4] + i, "size": numbers[i // 4 % 4], "stream": numbers[2 * (i % 500 == 499)]}
    parsers_made = parsers(monkeypatch)
    pickled = pickle.dumps({"segments": [], "device_traces": [made]}, 4)
    assert_equal(diverted(pickled)[0], plain(pickled))
    assert parsers_made[0].rows == 3000 and parsers_made[0].alone < 100


def test_fresh_texts_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch writes the text of ``_set_memory_metadata`` anew in each entry; a program may also share it."""
    made = entries(4000, user_metadata="", compile_context="")
    texts = [f"validation of epoch {i}" for i in range(16)]
    for i, one in enumerate(made):
        text = texts[i // 250]
        one |= {"user_metadata": text if i // 1000 % 2 else own(text), "compile_context": own(f"{i // 90}/0")}
    parsers_made = parsers(monkeypatch)
    pickled = pickle.dumps({"segments": [], "device_traces": [made]}, 4)
    assert_equal(diverted(pickled)[0], plain(pickled))
    assert parsers_made[0].rows == 4000 and parsers_made[0].alone < 200


def test_new_texts_and_stacks_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry has a text, a pool and an order of frames that none before it has."""
    made = entries(4000, user_metadata="", compile_context="", pool_id=(0, 0))
    for i, one in enumerate(made):
        one |= {"user_metadata": f"request {i:06}", "compile_context": f"{i}", "pool_id": (i // 4, 1)}
        one["frames"] = [FRAMES[i % 300], FRAMES[i // 300], FRAMES[i * i % 300]]
    parsers_made = parsers(monkeypatch)
    pickled = pickle.dumps({"segments": [], "device_traces": [made, [dict(one) for one in made[:300]]]}, 4)
    assert_equal(diverted(pickled)[0], plain(pickled))
    assert parsers_made[0].rows == 4300 and parsers_made[0].alone < 20


def test_frames_of_any_text_and_key_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["f", "ф" * 20, "Ôé\u4e94\U0001f600", "\ud894", "}\x94(h", "x" * 300, ""]
    frames: list[dict[str, Any]] = [
        {"filename": own(name), "line": 3 ** (i % 39), "name": own(name)} for i, name in enumerate(names * 40)
    ]
    frames[5:] = [one | {"fx_node_name": own(f"n{i % 9}"), "fx_line": None} for i, one in enumerate(frames[5:])]
    made = entries(3000)
    for i, one in enumerate(made):
        one["frames"] = [frames[i % 7 * 40], frames[i // 11], frames[min(i // 11, 200) + i % 3]]
    parsers_made = parsers(monkeypatch)
    pickled = pickle.dumps({"segments": [], "device_traces": [made]}, 4)
    recording = diverted(pickled)[0]
    assert_equal(recording, plain(pickled))
    assert len(recording.frames) > 200 and parsers_made[0].alone < 20


def test_later_references_to_parsed_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By entries with a key that others lack, which are unpickled, and by what follows the trace."""
    made = entries(4000, user_metadata="", pool_id=(0, 0))
    texts = [f"request {i:06}" for i in range(40)]
    pools = [(i, 7) for i in range(40)]
    for i, one in enumerate(made):
        one |= {"user_metadata": texts[i // 100], "pool_id": pools[i // 100]}
    for i in range(300, 4000, 100):
        made[i] |= {"note": {"odd": 1.5}, "user_metadata": texts[i // 100 - 2], "pool_id": pools[i // 100 - 3]}
    annotations = [{"device": 0, "name": text, "stage": "START", "time_us": 1} for text in texts]
    raw = {
        "segments": [],
        "device_traces": [made, [dict(one) for one in made[:500]]],
        "external_annotations": annotations,
    }
    parsers_made = parsers(monkeypatch)
    pickled = pickle.dumps(raw, 4)
    assert_equal(diverted(pickled)[0], plain(pickled))
    assert parsers_made[0].alone < 200


def test_where_parsing_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """After many entries with something new each, the others are unpickled, in the middle of a batch or between two."""
    made = parsers(monkeypatch)
    monkeypatch.setattr(parsing_time.ParsingTime, "_allowed", lambda *_: -1.0)
    for n in (30, 998, 1000, 1001, 2500):
        long = [one | {"user_metadata": f"step {i}"} for i, one in enumerate(entries(n))]
        pickled = pickle.dumps({"segments": [], "device_traces": [long, entries(3)]}, 4)
        assert_equal(diverted(pickled)[0], plain(pickled))
        assert not made[-1].is_worthwhile


@pytest.mark.parametrize("protocol", [4, 5])
def test_giving_up_half_way_reads_nothing_twice(protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries after that refer to lists of frames of entries that were parsed, of this trace or of one before."""
    shared = [[FRAMES[i % 300], FRAMES[7 * i % 300]] for i in range(50)]
    trace = [
        one | {"action": action, "frames": shared[(i * i) % 50] if i % 3 else [*shared[i % 50]]}
        for i, one in enumerate(entries(1500))
        for action in ("alloc", "free_completed")
    ]
    pickled = pickle.dumps({"segments": [], "device_traces": [trace, [dict(one) for one in trace[:900]]]}, protocol)
    expected = plain(pickled)
    for rows in (1, 400, 1999, 2001, 3100):
        monkeypatch.setattr(TraceParser, "is_worthwhile", property(lambda self, rows=rows: self.rows < rows))
        assert_equal(diverted(pickled)[0], expected)


def test_many_pools_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is written anew in each entry, as PyTorch does for private pools of CUDA graphs."""
    made = entries(6000, segment_pool_id=(0, 0))
    for i, one in enumerate(made):
        one["segment_pool_id"] = (i // 4 % 700, i // 4 % 300)
    parsers_made = parsers(monkeypatch)
    pickled = pickle.dumps({"segments": [], "device_traces": [made]}, 4)
    assert_equal(diverted(pickled)[0], plain(pickled))
    assert parsers_made[0].rows == 6000 and parsers_made[0].alone < 100


@pytest.mark.parametrize("value", [-1, 2**53, 2**70, "512", None, True], ids=str)
def test_a_wrong_size_is_an_error(value: Any, tmp_path: Path) -> None:
    made = entries(50)
    made[40]["size"] = value
    path = tmp_path / "wrong.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [made]}, 4))
    with pytest.raises(snapreport.SnapshotError, match=r"device_traces\[0\]\[40\]: .*'size'"):
        snapreport.load(path)


def test_what_refers_to_a_parsed_entry_is_not_lost(tmp_path: Path) -> None:
    """The settings hold texts and a pool that entries have, too."""
    made = entries(50, user_metadata="seldom", pool_id=(0, 1))
    made[40]["user_metadata"] = own("seldom")
    settings = {"texts": [made[0]["user_metadata"], made[40]["user_metadata"]], "pair": made[30]["pool_id"]}
    pickled = pickle.dumps({"segments": [], "device_traces": [made], "allocator_settings": settings}, 4)
    path = tmp_path / "refers.pickle"
    path.write_bytes(pickled)
    assert snapreport.load(path).recording.settings == plain(pickled).settings


def assert_refused_or_equal(pickled: bytes) -> None:
    """Parsing gives up, or gives the plain way's recording."""
    try:
        recording = diverted(pickled)[0]
    except (trace_stream.Unusual, snapreport.SnapshotError):
        return
    assert_equal(recording, plain(pickled))


@pytest.mark.parametrize("place", range(1, 200, 7))
def test_a_damaged_trace_is_read_as_python_does(place: int) -> None:
    """Every seventh byte of some entries flipped: the plain way's recording, or not the parsed one at all."""
    whole = bytearray(pickle.dumps({"segments": [], "device_traces": [entries(30, user_metadata="N/A")]}, 4))
    at = whole.rindex(b"}\x94(", 0, len(whole) - 300) + place
    for bits in (0x01, 0x80, 0xFF):
        damaged = bytes(whole[:at]) + bytes([whole[at] ^ bits]) + bytes(whole[at + 1 :])
        assert_refused_or_equal(damaged)


def test_a_memo_index_beyond_all_is_not_allocated() -> None:
    """An entry whose frames are ``LONG_BINGET`` of four billion: a table of lists would take 16 GB."""
    made = entries(40)
    made[21]["frames"] = made[20]["frames"]
    pickled = pickle.dumps({"segments": [], "device_traces": [made]}, 4)
    found = re.findall(rb"(h.|j.{4})u}\x94\(", pickled, re.DOTALL)
    assert len(found) == 1
    wrong = pickled.replace(found[0] + b"u}\x94(", b"j\xff\xff\xff\xffu}\x94(")
    shift = len(wrong) - len(pickled)
    framed = wrong[:3] + (int.from_bytes(wrong[3:11], "little") + shift).to_bytes(8, "little") + wrong[11:]
    tracemalloc.start()
    with pytest.raises(trace_stream.Unusual, match="4294967295"):
        diverted(framed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def ref(place: int) -> bytes:
    return b"h" + bytes([place])


def inline(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode() + b"\x94"


NAMES = ["action", "alloc", "addr", "size", "stream", "frames", "filename", "line", "name", "f", "g", "pool_id", "key"]
PLACE = {name: i + 2 for i, name in enumerate(NAMES)}  # of these texts in the memo
F, G, TOO_LARGE, TRACE, FIRST = 15, 16, 17, 20, 21  # of two frames, a pool that is none, the trace, its first entry


def hand_made(entries: list[bytes], before: bytes = b"", after: bytes = b"") -> bytes:
    """A snapshot in protocol 4 as ``pickle.dump`` does not write it, with opcodes before and after its only trace."""
    frames = [
        b"}\x94(" + ref(PLACE["filename"]) + ref(PLACE[name]) + ref(PLACE["line"]) + b"K\1" + ref(PLACE["name"])
        + ref(PLACE[name]) + b"u" for name in "fg"
    ]  # fmt: skip
    pool = b"\x8a\x09" + b"\xff" * 8 + b"\x01K\0\x86\x94"
    values = b"".join([*map(inline, NAMES), *frames, pool])
    body = b"}\x94(X\1\0\0\0x]\x94(" + values + b"eX\x08\0\0\0segments]" + before
    body += inline("device_traces") + b"]\x94]\x94(" + b"".join(entries) + b"ea" + after + b"u."
    return b"\x80\x04\x95" + len(body).to_bytes(8, "little") + body


def an_entry(frames: bytes, more: bytes = b"", addr: int = 0) -> bytes:
    keys = {"action": ref(PLACE["alloc"]), "addr": b"K" + bytes([addr]), "size": b"K\1", "stream": b"K\0"}
    items = b"".join(ref(PLACE[key]) + value for key, value in keys.items())
    return b"}\x94(" + items + more + ref(PLACE["frames"]) + frames + b"u"


OF_F, OF_G = (b"]\x94(" + ref(place) + b"e" for place in (F, G))
ORDINARY = [an_entry(OF_F, addr=i) for i in range(10)]
FIRST_LIST = ref(FIRST + 1)  # its frames
KEY = ref(PLACE["key"])
FLOAT = b"}\x94(" + b"".join([
    ref(PLACE["filename"]), ref(PLACE["f"]), ref(PLACE["line"]), b"K\5", ref(PLACE["name"]), ref(PLACE["f"]), KEY,
    b"G", bytes(8), b"u",
])  # fmt: skip
AFTER_FLOAT = an_entry(ref(FIRST + 21))  # its list
POOL = ref(PLACE["pool_id"])
SWAPPED = ref(PLACE["addr"]) + ref(PLACE["size"]) + b"q\4" + b"0q\5" + b"0"


@pytest.mark.parametrize(
    "pickled",
    [
        hand_made(ORDINARY),
        hand_made(ORDINARY, before=b"X\1\0\0\0yNq\x30"),
        hand_made([*ORDINARY, an_entry(FIRST_LIST, ref(PLACE["frames"]) + OF_G), *ORDINARY]),
        hand_made([*ORDINARY, an_entry(OF_G, ref(PLACE["frames"]) + FIRST_LIST), *ORDINARY]),
        hand_made([an_entry(OF_F, POOL + b"K\0K\1\x86\x94"), *[an_entry(OF_F, POOL + ref(TOO_LARGE))] * 9, *ORDINARY]),
        hand_made([*ORDINARY, an_entry(b"](" + ref(F) + b"e"), an_entry(ref(FIRST + 21)), *ORDINARY]),
        hand_made([*ORDINARY, an_entry(b"]\x94(" + ref(F) + FLOAT + b"e"), AFTER_FLOAT, AFTER_FLOAT, *ORDINARY]),
        hand_made([*ORDINARY, an_entry(b"]\x94(" + ref(F) + b"Ne"), *ORDINARY]),
        hand_made([*ORDINARY, an_entry(FIRST_LIST + ref(G) + b"a"), *ORDINARY]),
        hand_made([*ORDINARY, an_entry(FIRST_LIST + b"\x94"), *ORDINARY, *[an_entry(ref(FIRST + 23))] * 5, *ORDINARY]),
        hand_made([*[an_entry(OF_F, KEY + inline("xyz"))] * 9, an_entry(OF_F, ref(FIRST + 7) + b"K\1"), *ORDINARY]),
        hand_made([*ORDINARY, an_entry(OF_F, ref(TRACE) + b"K\1"), *ORDINARY]),
        hand_made(ORDINARY, after=SWAPPED + inline("host_traces") + b"]\x94]\x94(" + b"".join(ORDINARY) + b"ea"),
    ],
    ids=[
        "ordinary", "a gap in the memo", "two stacks", "two stacks, the first new", "no pool", "a list not in the memo",
        "a frame with a fraction", "None as a frame",
        "a changed list", "a list twice in the memo", "a parsed text as key", "a trace as key", "keys that change",
    ],
)  # fmt: skip
def test_what_no_recorder_writes(pickled: bytes) -> None:
    assert_refused_or_equal(pickled)


def test_two_keys_of_pools() -> None:
    """Wherever the entries are divided into chunks."""
    made = [one | {("segment_pool_id" if i % 7 else "pool_id"): (0, i % 3)} for i, one in enumerate(entries(1500))]
    pickled = pickle.dumps({"segments": [], "device_traces": [made]}, 4)
    assert_equal(diverted(pickled)[0], plain(pickled))
    pools = plain(pickled).devices[0].events["pool"].to_list()
    assert pools == [f"(0, {i % 3})" for i in range(1500)]


def test_an_entry_of_many_blocks_is_read_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_stream, "BLOCK", 256)
    read, whole = [], trace_parser.read_entry
    monkeypatch.setattr(trace_parser, "read_entry", lambda *given: read.append(1) or whole(*given))
    huge = entries(1)[0] | {"frames": [{"filename": "a.py", "line": i, "name": "f"} for i in range(3000)]}
    pickled = pickle.dumps({"segments": [], "device_traces": [[*entries(3), huge, *entries(3)]]}, 4)
    assert_equal(diverted(pickled)[0], plain(pickled))
    assert len(read) < 30 < len(pickled) // 256
