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


def decoded(uri: str) -> np.ndarray:
    """The palette indices of a PNG: chunk by chunk, with checksums verified."""
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, found = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert zlib.crc32(name + body) == struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0]
        found[name] = body
        at += 12 + length
    width, height, bits, kind = struct.unpack(">IIBB", found[b"IHDR"][:10])
    assert (bits, kind, len(found[b"PLTE"])) == (8, 3, 3 * (COLOURS + 1))
    return np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(height, width + 1)[:, 1:]


def test_the_picture_has_the_cells() -> None:
    cells = np.array([[101, 401, 201], [0, 301, 101], [101, 401, 401]])
    picture = heat_picture(heat_of_cells(cells))
    assert picture is not None and (picture.low, picture.high, picture.note) == ("0", "400 MiB", "")
    levels = decoded(picture.uri)
    assert levels.shape == (3, 3) and levels[1, 0] == 0, "not recorded"
    assert (levels[cells == 401] == COLOURS).all()
    order = np.argsort(cells.ravel(), kind="stable")
    assert (np.diff(levels.ravel()[order].astype(int)) >= 0).all()


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
