"""Who computes what: every row of every step once, targets in turn, ranks as torchrun hands them out."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.dflash.layout import Kind, Layout, TopologyConfig, layout_of


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    targets, drafters = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    kind: Kind = draw(st.sampled_from(("threads", "processes")))
    nodes = draw(st.integers(1, 3)) if kind == "processes" else 1
    return layout_of(topology(targets, drafters, kind, nodes), drafters * nodes * draw(st.integers(1, 4)), "auto")


def topology(targets: int, drafters: int, kind: Kind = "processes", nodes: int = 1) -> TopologyConfig:
    names = [f"cpu:{number}" for number in range(targets + drafters)]
    first, rest = ",".join(names[:targets]), ",".join(names[targets:])
    return TopologyConfig(kind, first, rest, nodes=nodes, rendezvous="a:1" if nodes > 1 else "")


@given(layouts(), st.integers(1, 10_000))
def test_each_row_of_a_step_is_in_one_share_and_all_shares_are_of_one_size(layout: Layout, step: int) -> None:
    shares = [layout.share(step, drafter) for drafter in range(len(layout.drafters))]
    assert sorted(row for share in shares for row in share.rows) == list(range(layout.batch))
    assert len({len(share.rows) for share in shares}) == 1


@given(layouts(), st.integers(1, 1000))
def test_each_share_is_made_by_the_one_target_that_it_names(layout: Layout, step: int) -> None:
    wanted = [layout.share(step, drafter) for drafter in range(len(layout.drafters))]
    made = [share for seat in layout.targets for share in layout.shares_of_target(seat.index, step)]
    assert sorted(made, key=lambda share: share.drafter) == wanted
    assert all(0 <= share.target < len(layout.targets) for share in wanted)


@given(layouts(), st.integers(1, 20))
def test_targets_take_turns_over_all_steps(layout: Layout, steps: int) -> None:
    turns = [
        layout.share(step, drafter).target for step in range(1, steps + 1) for drafter in range(len(layout.drafters))
    ]
    assert turns == [turn % len(layout.targets) for turn in range(len(turns))]
    counts = Counter(turns)
    assert max(counts.values()) - min(counts[index] for index in range(len(layout.targets))) <= 1


@given(layouts())
def test_ranks_count_every_seat_once_machine_after_machine(layout: Layout) -> None:
    seats = sorted((*layout.targets, *layout.drafters), key=lambda seat: seat.rank)
    assert [seat.rank for seat in seats] == list(range(len(seats)))
    devices = [seat.device for seat in seats]
    machine = devices[: len(set(devices))]
    assert devices == machine * (len(seats) // len(machine))  # the same seats on each machine
    for role in (layout.targets, layout.drafters):
        assert [seat.index for seat in role] == list(range(len(role)))
        assert sorted(role, key=lambda seat: seat.rank) == list(role)


def test_a_share_by_hand() -> None:
    """5 targets and 3 drafters: step 2 is shares 3, 4 and 5, which are for targets 3, 4 and 0."""
    layout = layout_of(topology(5, 3), 6, "auto")
    shares = [layout.share(2, drafter) for drafter in range(3)]
    assert [(share.target, share.rows) for share in shares] == [(3, range(2)), (4, range(2, 4)), (0, range(4, 6))]
    assert [seat.device for seat in layout.drafters] == ["cpu:5", "cpu:6", "cpu:7"]


def test_inline_has_both_roles_on_its_device() -> None:
    layout = layout_of(TopologyConfig(), 4, "cpu")
    assert [(seat.role, seat.device) for seat in (*layout.targets, *layout.drafters)] == [
        ("target", "cpu"),
        ("drafter", "cpu"),
    ]
    assert layout.share(3, 0).rows == range(4)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"targets": "", "drafters": "cpu:0"}, "targets must name at least one device"),
        ({"targets": "cpu:0", "drafters": ""}, "drafters must name at least one device"),
        ({"targets": "cpu:0,cpu:1", "drafters": "cpu:1"}, "name cpu:1 twice"),
        ({"targets": "cpu:0,cpu:0", "drafters": "cpu:1"}, "name cpu:0 twice"),
        ({"targets": "cuda:0", "drafters": "cpu:1"}, "must all be CUDA devices, or all be simulated"),
        ({"targets": "gpu0", "drafters": "cpu:1"}, "not 'gpu0'"),
        ({"targets": "cpu:0", "drafters": "cpu:1", "queue": 0}, "queue must be at least 1, not 0"),
        ({"targets": "cpu:0", "drafters": "cpu:1", "patience": 0}, "patience must be at least 1, not 0"),
        ({"targets": "cpu:0", "drafters": "cpu:1", "nodes": 2}, "nodes=2 needs kind=processes"),
    ],
)
def test_what_cannot_be_is_refused_in_words(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        TopologyConfig(kind="threads", **settings)  # type: ignore[arg-type]
