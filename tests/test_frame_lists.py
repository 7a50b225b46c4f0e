"""Lists of frames read as arrays: as an unpickler reads them, whatever bytes their references have."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest

from snapreport.reading.frame_lists import FrameLists, read_lists

# Bytes of these indices are opcodes: BINGET (h), LONG_BINGET (j), APPENDS (e), MARK, and what stands for a frame (f).
INDICES = [7, 0x28, 0x65, 0x66, 0x68, 0x6A, 300, 0x168, 0x16A, 0x165, 0x6868, 0x6A68, 0x686A00, 0x65286868, 70_000]


def reference(index: int) -> bytes:
    return b"h" + bytes([index]) if index < 256 else b"j" + index.to_bytes(4, "little")


def listed(indices: list[int], frames: dict[int, bytes] | None = None) -> bytes:
    """As pickle writes a list: in batches of 1,000, and a single item alone. frames: bytes in the place of items."""
    items = [(frames or {}).get(i) or reference(index) for i, index in enumerate(indices)]
    made = b"]\x94"
    for begin in range(0, len(items), 1000):
        part = items[begin : begin + 1000]
        made += b"(" + b"".join(part) + b"e" if len(part) > 1 else part[0] + b"a"
    return made


def items_of(lists: FrameLists, i: int) -> list[int]:
    found: list[int] = lists.items[lists.offsets[i] : lists.offsets[i + 1]].tolist()
    return found


def test_any_references() -> None:
    pick = random.Random(1)
    wanted = [[pick.choice(INDICES) for _ in range(pick.choice([0, 1, 2, 3, 10, 300, 2500]))] for _ in range(200)]
    lists = read_lists([*map(listed, wanted)])
    assert lists.is_read.all() and (lists.fills == 1).all()
    assert [items_of(lists, i) for i in range(len(wanted))] == wanted


def test_a_frame_that_recurs_a_thousand_times() -> None:
    """A recursion: a hundred bytes of each list that look like the beginning of a short reference."""
    wanted = [[300, 0x168, 9, 0x16568, 0x68] * 190, [0x68686868] * 999]
    lists = read_lists([*map(listed, wanted)])
    assert lists.is_read.all() and [items_of(lists, i) for i in range(2)] == wanted


def test_frames_within_lists() -> None:
    """Their keys and values, and the memo places that each list fills before them."""
    text = b"\x8c\x05}\x94(hj\x94"  # no UTF-8, so no text
    name = b"\x8c\x04hjef\x94"
    frame = b"}\x94(h\x01" + name + b"h\x02K\x07h\x03" + name + b"u"
    more = b"}\x94(h\x01h\x09h\x02Nh\x03h\x09h\x04" + name + b"u"
    values = [
        listed([0, 300, 0, 0x168], {0: frame, 2: more}),
        listed([5, 6]),
        listed([0], {0: frame.replace(name, text)}),
    ]
    lists = read_lists(values)
    assert lists.is_read.tolist() == [True, True, False]
    assert items_of(lists, 0) == [-1, 300, -2, 0x168] and items_of(lists, 1) == [5, 6]
    # The list, a dict with two texts, and one with one.
    assert lists.fills[:2].tolist() == [1 + 3 + 2, 1] and lists.frame_places.tolist() == [1, 4]
    assert [column[:2] for column in lists.columns[:2]] == [[b"h\x01", b"h\x01"], ["hjef", b"h\x09"]]
    assert lists.more == [[], [b"h\x04", "hjef"]]


@pytest.mark.parametrize("seed", range(40))
def test_damaged_lists_are_not_read_or_as_python_reads_them(seed: int) -> None:
    pick = random.Random(seed)
    values = [bytearray(listed([pick.choice(INDICES) for _ in range(pick.randrange(12))])) for _ in range(300)]
    for value in values:
        value[pick.randrange(len(value))] = pick.choice(b"hjef(]}\x94u0a\x00")
    lists = read_lists([*map(bytes, values)])
    puts = b"".join(
        b"J" + i.to_bytes(4, "little") + b"r" + i.to_bytes(4, "little") + b"0" for i in INDICES if i < 1 << 20
    )
    for i in np.flatnonzero(lists.is_read).tolist():
        if max(items_of(lists, i), default=0) < 1 << 20:
            try:
                found = pickle.loads(b"\x80\x04" + puts + bytes(values[i]) + b".")
            except pickle.UnpicklingError as error:
                found = str(error)
            assert found == items_of(lists, i) or "Memo value not found" in found
