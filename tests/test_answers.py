"""Whatever is said of a recording in the repository was read by somebody: a change of a rule shows here as the
sentences and numbers that it changes (tests/answers.py).
"""

from __future__ import annotations

from pathlib import Path

import answers
import checksums
import corpus
import pytest


def name_of(path: Path) -> str:
    """That by which tests of one snapshot stay together (spread.py)."""
    return path.name if path.parent == corpus.WITNESSES else f"{path.parent.name}/{path.name.partition('.')[0]}"


@pytest.mark.parametrize("path", answers.paths(), ids=name_of)
def test_said_as_it_was_read(path: Path) -> None:
    text, sums = answers.answer(path)
    assert text.splitlines() == answers.accepted(path).splitlines(), "read it, then: tests/answers.py"
    assert sums.split() == checksums.accepted()[answers.name_of(path)].split(), "other numbers: see tests/checksums.py"


@pytest.mark.parametrize("name", checksums.comparisons())
def test_documents_of_several_have_the_same_numbers(name: str) -> None:
    parts = checksums.of_parts(checksums.comparisons()[name]().items())
    assert parts.split() == checksums.accepted()[name].split(), "other numbers: see tests/checksums.py"


@pytest.mark.parametrize("name", answers.accepted_of_less())
def test_said_of_less_as_it_was_read(name: str) -> None:
    said = answers.of_less(name).splitlines()
    assert said == answers.accepted_of_less()[name].splitlines(), "read it, then: tests/answers.py"


def test_no_answer_without_a_recording() -> None:
    told = [
        line for file in sorted(answers.ANSWERS.iterdir()) for line in file.read_text(encoding="utf-8").splitlines()
    ]
    names = [line.removeprefix(answers.HEAD) for line in told if line.startswith(answers.HEAD)]
    assert sorted(names) == sorted(path.name for path in answers.paths())


def test_what_has_no_stack_trace_begins_with_a_capital() -> None:
    told = [line for path in answers.paths() for line in answers.accepted(path).splitlines()]
    assert not [line for line in told if line.strip().startswith("allocations without a stack trace")]
