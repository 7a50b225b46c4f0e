"""No sentence that a user reads contains the words that we avoid, over all available snapshots."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import corpus
import pytest
import recorded

import snapreport
from snapreport.contracts.finding import Confidence
from snapreport.report.stats_text import stats_text
from snapreport.report.summary import summarise
from snapreport.report.ticket import ticket_markdown
from snapreport.schemas.documents import DOCUMENTS, schema
from snapreport.sentence import parts_of
from snapreport.snapshot import Snapshot

BANNED = re.compile(
    r"\b(told|tells?|asked|asks|holes?|wholly|given back|kept|held|lay in|lies in|stood|stands|pieces?)\b"
    r"|\d %|the greatest|no frames|without frames|up to its end|adds up theirs|all that is in use|to the byte",
    re.IGNORECASE,
)
ARTICLE = re.compile(r"\ba (8[\d.,]*|1[18](\.\d+)?) ")
"""Before a number that begins with a vowel: "a 8.13 MiB workspace"."""
# A sentence up to this length is easy to follow; a list of names may make it longer.
LONGEST = 45


# In a terminal and in Markdown names are not set apart: backticks, "forward dit.py:83 from train.py:42", a C++ name.
NAMES = re.compile(r"`[^`]+`|[\w<>.]+ [\w.+-]+\.py(?::\d+)?(?: from [\w.+-]+\.py:\d+)?|[A-Za-z_]\w*(?:::~?\w+)+")


def prose(text: str) -> str:
    """``text`` without its code: names of functions and files are the program's own."""
    plain = " ".join(part.text for part in parts_of(text) if not part.is_name)
    plain = NAMES.sub(" ", plain)
    return re.sub(r"\S*[\w/]\.\w+\S*|\S*[:_/]\S*", " ", plain)


def sentences(snapshot: Snapshot) -> Iterator[str]:
    """Everything that the summary of a report says, line by line."""
    summary = summarise([snapshot], snapshot.recording.name)
    yield from summary.headline_text
    for card in summary.findings:
        yield from (card.label, card.title, *card.detail, card.certainty, card.basis)
    for device in summary.cards:
        yield from (*device.peak, *device.doubts, *device.assurances, *(part.title for part in device.parts))
    yield from summary.notes


def check(snapshot: Snapshot) -> None:
    lines = list(sentences(snapshot))
    text = " ".join(stats_text(snapshot).split())
    for line in (*lines, text, *ticket_markdown(snapshot).split("\n")):
        found = BANNED.search(prose(line))
        assert not found, f"{found[0]!r} in {line[max(0, line.find(found[0]) - 90) :][:180]!r}"
        assert not ARTICLE.search(line), line
    for line in lines:
        for sentence in re.split(r"(?<=[.:;]) ", line):
            assert len(prose(sentence).split()) <= LONGEST, sentence


def test_snapshots(telling_path: Path) -> None:
    check(corpus.loaded(telling_path))


@pytest.mark.parametrize("name", recorded.cases())
def test_recordings(name: str) -> None:
    check(recorded.load(name))


def test_certainty_is_one_word() -> None:
    assert sorted(get_args(Confidence)) == ["estimate", "inferred", "measured"]


# Words that no key, value or type of a document contains.
BANNED_NAMES = re.compile(r"\b(told|asked|holes?|wholly|kept|held|pieces?|sure|likely|guess)\b", re.IGNORECASE)


def names_in(schema: object) -> Iterator[str]:
    """Every key and fixed value that a JSON Schema declares, and its types' names."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            yield from (*value,) if key in ("properties", "$defs", "enum") else ()
            yield from names_in(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from names_in(value)


# A function that has no other name says nothing where it is called.
BARE_NAMES = re.compile(
    r"^def (_(?:who|by|when|with|under|around|through|among|more|also|none|nothing|best|both|goes_on|instead|holds"
    r"|leaves|lead|matters|occur))\(",
    re.MULTILINE,
)


def test_names_of_functions() -> None:
    package = Path(snapreport.__file__).parent
    found = {str(path): BARE_NAMES.findall(path.read_text(encoding="utf-8")) for path in package.rglob("*.py")}
    assert len(found) > 300 and {path: names for path, names in found.items() if names} == {}


def test_names_in_documents() -> None:
    """The keys of JSON are read by people, too; so are those of a finding's evidence."""
    names = [str(name) for command in DOCUMENTS for name in names_in(schema(command))]
    assert len(names) > 300 and {"peak_allocated_bytes", "measured", "live_at_end", "retained_bytes"} <= set(names)
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("_", " ") for name in names]
    assert [word for word in words if BANNED_NAMES.search(word)] == []


def test_what_the_words_are_searched_in() -> None:
    """Names of the program are excluded, our words about them are not."""
    assert not BANNED.search(prose("The request was made in ask_what_is_held held.py:12 from kept.py:3."))
    assert not BANNED.search(prose("`held` and torch::holes::kept"))
    assert BANNED.search(prose("12 MiB are held by train.py:3"))
