"""What a job's report shows without scripts: the map as a picture, and links to ranks."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path

import generator
import numpy as np
import pytest

from snapreport.jobs.build import PageOptions, build_job, job_of
from snapreport.jobs.heat import Heat, HeatAxis
from snapreport.jobs.heat_picture import COLOURS, heat_picture
from snapreport.snapshot import load


def heat_of_cells(cells: np.ndarray) -> Heat:
    columns = np.arange(cells.shape[1])
    axis = HeatAxis("step", "step", "step", "", columns, columns, {"allocated": cells.astype(np.uint16)})
    return Heat(1 << 20, None, [axis])


def chunks(uri: str) -> dict[bytes, bytes]:
    """Of a PNG, by name, with checksums verified."""
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, found = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert zlib.crc32(name + body) == struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0]
        found[name] = body
        at += 12 + length
    return found


def decoded(uri: str) -> np.ndarray:
    """The palette indices of a PNG."""
    found = chunks(uri)
    width, height, *kind = struct.unpack(">IIBBBBB", found[b"IHDR"])
    assert kind == [8, 3, 0, 0, 0], "a palette of 8 bits, deflated, not interlaced"
    rows = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any(), "no row is filtered"
    return rows[:, 1:]


def palette(uri: str) -> list[tuple[int, int, int]]:
    values = chunks(uri)[b"PLTE"]
    return [(values[at], values[at + 1], values[at + 2]) for at in range(0, len(values), 3)]


@pytest.mark.parametrize(
    ("cells", "low", "begin"),
    [
        ([[101, 401, 201], [0, 301, 101], [101, 401, 401]], "0", 1),
        ([[201, 401, 301], [0, 301, 250], [401, 401, 401]], "200 MiB", 201),  # from half of the highest on
        ([[200, 401, 301], [0, 301, 250], [401, 401, 401]], "0", 1),
        ([[401, 401, 0]], "0", 1),  # where all are equal, they are dark
    ],
)
def test_the_picture_has_the_cells(cells: list[list[int]], low: str, begin: int) -> None:
    picture = heat_picture(heat_of_cells(np.array(cells)))
    assert picture is not None and (picture.low, picture.high, picture.note) == (low, "400 MiB", "")
    levels = [
        [1 + round((COLOURS - 1) * (cell - begin) / (401 - begin)) if cell else 0 for cell in row] for row in cells
    ]
    assert decoded(picture.uri).tolist() == levels


def test_dark_means_more() -> None:
    picture = heat_picture(heat_of_cells(np.array([[1, 401]])))
    assert picture is not None
    unknown, *colours = palette(picture.uri)
    assert len(set(unknown)) == 1, "grey where nothing is recorded"
    lightness = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in colours]
    assert lightness == sorted(lightness, reverse=True) and len(set(colours)) == COLOURS
    assert max(np.abs(np.diff(np.array(colours, float), axis=0)).max(axis=1)) < 16, "no step between two colours"
    assert picture.colours == [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in colours[::8]]


@pytest.mark.parametrize(
    ("ranks", "height"), [(2, 48), (3, 48), (4, 64), (30, 480), (31, 480), (32, 480), (33, 198), (80, 480), (99, 480)]
)
def test_a_row_of_the_picture_can_be_seen(ranks: int, height: int) -> None:
    """16 pixels of up to 32 ranks, six of more, in at most 480."""
    picture = heat_picture(heat_of_cells(np.full((ranks, 2), 7)))
    assert picture is not None and (picture.width, picture.height) == (720, height)
    assert "a row for each rank, rank 0 at the top" in picture.title


def test_one_rank_among_thousands_is_seen_and_takes_no_colours() -> None:
    cells = np.full((4096, 64), 91) + np.arange(64)
    cells[2345, 40] = 1020
    picture = heat_picture(heat_of_cells(cells))
    assert picture is not None and "up to 1019 MiB" in picture.note and "16 ranks a row" in picture.title
    levels = decoded(picture.uri)
    assert levels.shape == (256, 64) and len(picture.uri) < 20_000
    assert levels[2345 // 16, 40] == COLOURS and np.ptp(levels[0].astype(int)) >= 20


def test_nothing_recorded_has_no_picture() -> None:
    assert heat_picture(heat_of_cells(np.zeros((2, 3)))) is None


@pytest.mark.parametrize("oom", [None, 1])
def test_ranks_of_the_headline_are_links_to_their_rows(oom: int | None, tmp_path: Path) -> None:
    small = {"hidden": 128, "layers": 1, "steps": 2, "operations": 2, "vocabulary": 500, "memory": 1 << 30}
    paths = generator.write_job(tmp_path, "data", ranks=4, straggler=2, leak=64 << 20, oom=oom, **small)
    text = build_job(job_of([load(path) for path in paths]), PageOptions(detail=())).decode()
    head = text[: text.index("</header>")]
    links = re.findall(r'<a href="(#rank-\d+)">', head)
    assert links[0] == ("#rank-2" if oom is None else "#rank-1")
    assert all(f'id="{link[1:]}"' in text for link in links)
    assert 'src="data:image/png;base64,' in text
