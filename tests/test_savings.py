"""Every saving equals the tests' own replay to the byte, on every available snapshot, with what its query selects."""

from __future__ import annotations

import pickle
from pathlib import Path

import corpus
import numpy as np
import oracle
import pytest
import recorded
import saving_oracle
from hypothesis import given
from hypothesis import strategies as st
from scripted import MIB, Script

import snapreport
from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.findings.saving import bytes_over_time, share_of_lives, share_with_cost
from snapreport.findings.selection import LONGEST, select
from snapreport.number_format import arrow_text
from snapreport.snapshot import Snapshot

MIN_SHARE = 0.02


def of_setting(finding: Finding) -> str:
    """What the title of a replayed setting claims; tests/test_advice_recorded.py compares it with real runs."""
    evidence = finding.evidence
    return f": peak reserved {arrow_text(evidence['reserved_bytes'], evidence['replayed_bytes'])} (replayed)"


def check(snapshot: Snapshot, replayed: dict[int, oracle.Device]) -> int:
    """How many savings were compared."""
    given = [f for f in findings(snapshot) if f.kind == "advice"]
    count = 0
    failed = any(saving_oracle.failures(one) for one in replayed.values())
    replayed = {number: saving_oracle.with_failures(one) for number, one in replayed.items()}
    for device in replayed:
        here = [f for f in given if f.device == device]
        peak = replayed[device].peak_bytes
        changes = {}
        for finding in here:
            saving = finding.evidence["saving"]
            if saving is None:
                assert finding.evidence["at_peak_bytes"] is None
                assert "→" not in finding.title or of_setting(finding) in finding.title
                continue
            change = saving_oracle.bytes_out(snapshot, device, replayed[device], saving)
            changes[finding.evidence["rule"]] = change
            assert change, f"{finding.title}: its query selects nothing"
            most, event = saving_oracle.peak_without(replayed[device], change)
            assert (saving["peak_bytes"], saving["peak_event"]) == (most, event), finding.title
            assert saving["saves_bytes"] == peak - most == finding.bytes
            assert saving["is_lower_bound"] is failed
            assert not failed or ": peak " not in finding.title, "of a program that died no peak is promised"
            assert saving["saves_bytes"] >= MIN_SHARE * peak, f"{finding.title}: too little to say"
            assert finding.evidence["at_peak_bytes"] == saving_oracle.at_peak(replayed[device], change)
            count += 1
        ranks = [(f.evidence["priority"], -f.bytes) for f in here if not f.evidence.get("avoids_failure")]
        assert ranks == sorted(ranks), "what a person does first, then the greatest saving"
        for finding in here:
            if both := finding.evidence["together"]:
                every = saving_oracle.largest(changes[rule] for rule in both["rules"])
                most, event = saving_oracle.peak_without(replayed[device], every)
                assert (both["peak_bytes"], both["peak_event"]) == (most, event), finding.detail
                assert both["saves_bytes"] == peak - most
                best = [f for f in here if f.evidence["saving"]][:2]
                assert both["rules"] == [f.evidence["rule"] for f in best] and finding is best[0]
                count += 1
    return count


def test_every_saving_is_replayed(snapshot_path: Path) -> None:
    check(corpus.loaded(snapshot_path), corpus.replayed(snapshot_path))


@pytest.mark.parametrize("name", recorded.cases())
def test_every_saving_on_recordings_of_real_pytorch(name: str) -> None:
    path = recorded.ROOT / f"{name}.pickle"
    # Pinned memory gets no saving; newer recorders write it in a form that the oracle does not support.
    raw = {key: value for key, value in corpus.raw(path).items() if not key.startswith("host_")}
    check(recorded.load(name), oracle.replay(raw))


def test_savings_are_compared() -> None:
    """The files that are always present have some, also of two together."""
    path = corpus.path_of("training")
    assert check(corpus.loaded(path), corpus.replayed(path)) >= 4


LINE = ("/app/train.py", "work")


@st.composite
def programs(draw: st.DrawFn) -> Script:
    """Some allocations, of which some are freed, in any order."""
    script, live = Script(), list[int]()
    for choice in draw(st.lists(st.integers(-6, 12), min_size=4, max_size=30)):
        if choice > 0:
            live.append(script.alloc("some", choice * MIB, LINE))
        elif live:
            script.free(live.pop(choice % len(live)), LINE)
    script.alloc("last", MIB, LINE)
    return script


@given(programs(), st.data())
def test_a_share_leaves_as_much_as_the_change_it_stands_for(
    tmp_path_factory: pytest.TempPathFactory, script: Script, data: st.DataObject
) -> None:
    """Counted place by place: a cost, a fraction, and lives that end earlier."""
    path = tmp_path_factory.mktemp("share") / "some.pickle"
    path.write_bytes(pickle.dumps(script.raw(), 4))
    timeline = snapreport.load(path).timeline(0)
    table, never = timeline.allocations, len(timeline.events)
    rows = np.array(data.draw(st.lists(st.integers(0, len(table) - 1), min_size=1, unique=True)))
    fraction = data.draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    places = range(len(timeline.allocated))
    cost = np.array([data.draw(st.integers(-3, 6)) * MIB for _ in places])
    size = table["size"].to_list()
    lives = {
        row: (born + 1, (never if freed < 0 else freed) + 1)
        for row, born, freed in table.select("id", "alloc_event", "free_event").rows()
    }

    def alive(place: int, ends: dict[int, int]) -> int:
        return sum(size[row] for row in rows if lives[row][0] <= place < ends.get(row, lives[row][1]))

    def greatest(left: list[int]) -> float:
        here = [place for place in places if alive(place, {})]
        most = max([0, *(left[place] for place in here)])
        shares = [(int(timeline.allocated[place]) - most) / alive(place, {}) for place in here]
        return min(1.0, max(0.0, *shares, 0.0))

    assert bytes_over_time(timeline, rows).tolist() == [alive(place, {}) for place in places]
    left = [int(timeline.allocated[place]) - int(alive(place, {}) * fraction) + int(cost[place]) for place in places]
    assert share_with_cost(timeline, rows, fraction, cost) == pytest.approx(greatest(left))
    starts = np.array([data.draw(st.integers(max(0, lives[row][0] - 1), never)) for row in rows])
    ends = {int(row): int(start) + 1 for row, start in zip(rows, starts, strict=True) if start + 1 < lives[row][1]}
    without = [int(timeline.allocated[place]) - alive(place, {}) + alive(place, ends) for place in places]
    share, highest, event = share_of_lives(timeline, rows, starts)
    assert share == pytest.approx(greatest(without))
    assert (highest, event) == (max(without), without.index(max(without)) - 1)


def test_what_needs_a_term_each_leaves_a_query_first(tmp_path: Path) -> None:
    """A recurrent network's backward pass makes tensors, together more than its activations, half of which are of no
    other size, line or life than the others.
    """
    script, engine = Script(), ("/env/torch/autograd/graph.py", "_engine_run_backward")
    for layer in range(3):
        script.alloc("activation", (40 + layer) * MIB, ("/app/model.py", f"layer{layer}"))
    for _ in range(600):
        script.alloc("of a time step", MIB, engine)
        script.alloc("gradient", MIB, engine)
    (tmp_path / "steps.pickle").write_bytes(pickle.dumps(script.raw()))
    timeline = snapreport.load(tmp_path / "steps.pickle").timeline(0)
    table = timeline.allocations
    mask = np.array([script.tags[address] != "gradient" for address in table["addr"]])
    query, chosen = select(timeline, mask)
    assert len(query) <= LONGEST
    assert int(table["size"].filter(chosen).sum()) == (40 + 41 + 42) * MIB
