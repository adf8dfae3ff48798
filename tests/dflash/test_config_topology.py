"""Who computes what: every row once, every share from one target in turn; and what no training can be made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.dflash.config import DFlashConfig
from experiments.dflash.layout import TopologyConfig, layout_of, seat_of
from harness.config import override
from harness.errors import UsageError
from harness.pin.fingerprint import spec_facts
from harness.run.resolve import resolve

counts = st.integers(1, 6)


def _topology(targets: int, drafters: int, nodes: int) -> TopologyConfig:
    names = [f"cuda:{number}" for number in range(targets + drafters)]
    where = "first:29500" if nodes > 1 else ""
    listed = ",".join(names[:targets]), ",".join(names[targets:])
    return TopologyConfig("processes", *listed, nodes=nodes, rendezvous=where)


@given(targets=counts, drafters=counts, nodes=st.integers(1, 3), rows=st.integers(1, 4))
def test_every_row_of_a_step_is_one_drafter_s_and_every_share_one_target_s(
    targets: int, drafters: int, nodes: int, rows: int
) -> None:
    layout = layout_of(_topology(targets, drafters, nodes), rows * drafters * nodes, "")
    turns = []
    for step in range(1, 8):
        shares = [layout.share(step, drafter) for drafter in range(drafters * nodes)]
        assert [row for share in shares for row in share.rows] == list(range(layout.batch))
        served = [share for target in layout.targets for share in layout.shares_of_target(target.index, step)]
        assert sorted(served, key=lambda share: share.drafter) == shares
        turns += [share.target for share in shares]
    assert turns == [number % (targets * nodes) for number in range(len(turns))]


@given(targets=counts, drafters=counts, nodes=st.integers(1, 3))
def test_ranks_are_those_of_torchrun_machine_after_machine(targets: int, drafters: int, nodes: int) -> None:
    layout = layout_of(_topology(targets, drafters, nodes), drafters * nodes, "")
    every = [seat_of(layout, rank) for rank in range((targets + drafters) * nodes)]
    one_machine = ["target"] * targets + ["drafter"] * drafters
    assert [seat.role for seat in every] == one_machine * nodes
    assert [seat.device for seat in every] == [f"cuda:{number}" for number in range(targets + drafters)] * nodes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["targets=cpu:0,cpu:0"], "topology.targets and drafters name cpu:0 twice"),
        (["targets=cpu:0", "drafters=cpu:0,cpu:1"], "unless it is the only one and kind=threads"),
        (["kind=processes", "targets=cpu:0", "drafters=cpu:0"], "unless it is the only one and kind=threads"),
        (["targets=cpu:01,cpu:1"], "topology.targets must be devices with a number"),
        (["targets=cpu"], "topology.targets must be devices with a number"),
        (["targets=cpu:0,"], "topology.targets must be devices with a number"),
        (["drafters= "], "topology.drafters must name at least one device"),
        (["queue=0"], "topology.queue must be at least 1"),
        (["nodes=0"], "topology.nodes must be at least 1"),
        (["patience=0"], "topology.patience must be at least 1"),
        (["kind=processes", "nodes=2", "rendezvous=here"], "topology.rendezvous must be HOST:PORT"),
        (["kind=processes", "nodes=3", "rendezvous=here:29500"], "multiple of the 3 drafters"),
        (["kind=inline"], "go with kind=threads or kind=processes"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(settings: list[str], message: str) -> None:
    good = ["kind=threads", "targets=cpu:0,cpu:1", "drafters=cpu:2"]
    with pytest.raises(UsageError) as refused:
        override(DFlashConfig(), [f"topology.{setting}" for setting in [*good, *settings]])
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_the_topology_is_how_and_not_what(kind: str) -> None:
    """Runs of one work under different topologies stay comparable: none of their workload facts differs."""
    settings = [f"topology.kind={kind}", "topology.targets=cpu:0,cpu:1", "topology.drafters=cpu:2"]
    inline, other = spec_facts(resolve("tiny")), spec_facts(resolve("tiny", settings))
    different = {fact for fact in inline.keys() | other.keys() if inline.get(fact) != other.get(fact)}
    assert "execution.topology.kind" in different
    assert all(fact.startswith("execution.") for fact in different)
