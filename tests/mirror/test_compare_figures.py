"""MLflow's compare view has explain's figures: what a useful Ktok cost, by phase; also of runs mirrored before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.mirror import ended, tracking
from harness.mirror.content import key_of
from harness.mirror.ended import summary_points
from harness.records import PHASES, Interval, Summary
from tests import samples

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow", "ignore:The ``noload`` loader")

PREFIX = "steady/ms per Ktok: "


def costs_of(summary: Summary) -> dict[str, float]:
    found = {p.key: p.value for p in summary_points(summary, 9.0, 100)}
    return {key.removeprefix(PREFIX): value for key, value in found.items() if key.startswith(PREFIX)}


def test_what_a_ktok_cost_by_phase() -> None:
    """80 Ktok in 4 s, which is 50 ms each; a tenth of what was computed was padding."""
    summary = Summary(
        tokens=90_000,
        padding=10_000,
        throughput_tok_s=Interval(20_000, 19_000, 21_000),
        phases={"forward": 3.0, "other": 1.0},
    )
    assert costs_of(summary) == pytest.approx({"forward": 33.75, "unaccounted": 11.25, "padding": 5.0, "all": 50.0})


@given(
    st.dictionaries(st.sampled_from(PHASES), st.floats(1e-6, 1e5), min_size=1),
    st.floats(1.0, 1e8),
    st.integers(1, 10**12),
    st.integers(0, 10**12),
)
def test_costs_sum_to_one_over_the_throughput(phases: dict[str, float], rate: float, tokens: int, padding: int) -> None:
    found = costs_of(Summary(tokens=tokens, padding=padding, throughput_tok_s=Interval(rate, 0, 0), phases=phases))
    whole = found.pop("all")
    assert sum(found.values()) == pytest.approx(whole) == pytest.approx(1e6 / rate)
    assert ("padding" in found) == bool(padding)


def test_what_is_not_known_has_no_figure() -> None:
    assert costs_of(Summary(tokens=5, phases={"forward": 1.0})) == {}


def test_their_names_are_ones_that_mlflow_takes() -> None:
    summary = replace(samples.summary(), phases=dict.fromkeys(PHASES, 1.0))
    names = [point.key for point in summary_points(summary, 9.0, 100)]
    assert [key_of(name) for name in names] == names


def test_a_run_mirrored_before_they_were_there_gets_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    folder = samples.recorded(tmp_path / "runs")
    with monkeypatch.context() as earlier:
        earlier.setattr(ended, "_costs", lambda _: {})
        earlier.setattr(tracking, "FIGURES", 1)
        assert tracking.mirror(folder.path, uri).status == "mirrored"
    assert tracking.mirror(folder.path, uri).status == "mirrored"
    assert tracking.mirror(folder.path, uri).status == "unchanged"
    client = tracking.open_store(uri)
    run_id = folder.load().mlflow_run_id
    assert run_id
    run = client.get_run(run_id)
    costs = {key: value for key, value in run.data.metrics.items() if key.startswith(PREFIX)}
    assert costs[f"{PREFIX}all"] == pytest.approx(50)  # 20 Ktok/s
    assert costs[f"{PREFIX}forward"] == pytest.approx(50 * 0.3 * 4000 / 4096)
    for key in run.data.metrics:
        seen = [(m.timestamp, m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]
        assert len(seen) == len(set(seen)), key
    assert all(len(client.get_metric_history(run.info.run_id, key)) == 1 for key in costs)
