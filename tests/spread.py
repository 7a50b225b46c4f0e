"""The order in which tests run, and which of them share a worker.

Tests of one snapshot run one after another in the same worker, whatever file they are in, so that it is replayed, made
into a report and opened once; the other tests of a file stay together, since they share pages and fixtures. What takes
longest runs first, so that the workers finish at about the same time.
"""

from __future__ import annotations

from typing import Any

import corpus
import pytest
import recorded

SNAPSHOTS = frozenset([*corpus.names(), *corpus.telling_names()])
RECORDINGS = frozenset(recorded.names())
# Files that take minutes and cannot be divided: started last, they would keep one worker busy when the others are done.
LONG = tuple(f"test_{name}.py" for name in ("whatif", "recorder_cuda", "jobs", "hostile_pickles", "recorder_oom"))


def scope_of(nodeid: str) -> str:
    """What a test runs together with: the snapshot or recording that alone names it, or its file."""
    file, _, rest = nodeid.partition("::")
    name = rest.partition("[")[2].removesuffix("]")
    return name if name in SNAPSHOTS or name in RECORDINGS else file


def put_in_order(items: list[pytest.Item]) -> None:
    """The longest files, then snapshots, then the pages' tests, then the rest; each group in its original order.
    Recordings come last: each has a second of tests, so that all workers finish at the same time.

    A snapshot's first test is that it opens: its page is new, and the others reuse it.
    """

    def rank(item: pytest.Item) -> tuple[int, str, bool]:
        scope = scope_of(item.nodeid)
        kinds = (scope.endswith(LONG), scope in SNAPSHOTS, "test_browser" in scope, scope not in RECORDINGS, True)
        return kinds.index(True), scope, "test_opens_offline" not in item.nodeid

    items.sort(key=rank)


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Distributes scopes in the order of the tests; None leaves it to pytest-xdist, whatever other options it has."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Spread(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    config.option.loadscopereorder = False  # by number of tests, which says little about their time
    return Spread(config, log)
