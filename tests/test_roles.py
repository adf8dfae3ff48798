"""Runs of several roles and devices: the summary, the panels and MLflow's points say the same of them."""

from __future__ import annotations

import dataclasses
import io
import random
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from harness import figures
from harness.mirror import tracking
from harness.mirror.points import Point
from harness.mirror.source import PointSource
from harness.places import Places
from harness.records import BuiltEnvironment, Event, Run, Started, Step, Summary
from harness.run.folder import RunFolder
from harness.run.resolve import resolve
from harness.run.runner import Order, execute
from harness.run.summary import summarise
from harness.view import display
from harness.view.listing import to_json
from harness.view.live import Live
from tests import samples, two_roles
from tests.watcher import Watcher

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow", "ignore:The ``noload`` loader")

ROOT = Path(__file__).resolve().parents[1]


def drawn(picture: RenderableType, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False, legacy_windows=False)
    console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().replace("│", " ").split())


def points(folder: RunFolder, run: Run) -> list[Point]:
    source = PointSource(folder.path)
    source.read()
    source.close(run)
    return source.events


def steps_of(events: Sequence[Event], role: str) -> dict[int, list[Step]]:
    found: dict[int, list[Step]] = defaultdict(list)
    for event in events:
        if isinstance(event, Step) and event.role == role:
            found[event.step].append(event)
    return found


# --- live and at the end ---------------------------------------------------------------------------------


def uneven(count: int, seed: int) -> list[Event]:
    """Three drafters, of which another one is the slowest each time, and two targets; lines in any order of a step."""
    dice = random.Random(seed)
    said: list[Event] = [Started(0.5, 1, count)]
    t = 1.0
    for number in range(1, count + 1):
        t += 1.0
        together: list[Event] = []
        for role, first, devices in (("target", 0, 2), ("drafter", 2, 3)):
            for n in range(first, first + devices):
                seconds = dice.uniform(0.2, 0.9)
                phases = {"wait": 0.3 * seconds, "forward": 0.7 * seconds}
                tokens = dice.randrange(50, 100) if role == "drafter" else 0
                step = Step(t + dice.uniform(0, 0.05), number, role, f"cuda:{n}", seconds, tokens, 0, phases)
                together.append(step)
        dice.shuffle(together)
        said += together
    return said


@pytest.mark.parametrize(("count", "seed"), [(60, 1), (60, 2), (2600, 3)])
def test_the_throughput_of_uneven_devices_is_one_live_and_at_the_end(tmp_path: Path, count: int, seed: int) -> None:
    folder = samples.begin(tmp_path, "20261130-120000-box-0000")
    said = uneven(count, seed)
    samples.append(folder, said)
    summary = summarise(folder.events())
    samples.end(folder, outcome=summary)
    rows = {
        n: (sum(s.tokens for s in row), max(s.seconds for s in row)) for n, row in steps_of(said, "drafter").items()
    }
    told = points(folder, folder.load())
    live = {p.step: p.value for p in told if p.key == "throughput/ktok_s"}
    slowest = {p.step: p.value for p in told if p.key == "phase/slowest_step_ms"}
    assert live.keys() == slowest.keys()
    before = 0
    for number in live:  # a point stands for the rows since the one before
        window = [rows[n] for n in range(before + 1, number + 1)]
        tokens, seconds = (sum(column) for column in zip(*window, strict=True))
        assert live[number] == pytest.approx(tokens / seconds / 1000)
        assert slowest[number] == pytest.approx(1000 * seconds / len(window))
        before = number
    assert before == count
    steady = [rows[n] for n in range(summary.warmup_steps + 1, count + 1)]
    assert summary.throughput_tok_s is not None
    assert summary.throughput_tok_s.value == pytest.approx(sum(r[0] for r in steady) / sum(r[1] for r in steady))


def test_more_devices_are_not_more_metrics(tmp_path: Path) -> None:
    keys = []
    for devices in (2, 8):
        folder = samples.begin(tmp_path, f"20261130-12000{devices}-box-0000")
        said: list[Event] = [
            Step(float(n), n, role, f"cuda:{d}", 0.5, 10 * (role == "drafter"), 0, {"wait": 0.1, "forward": 0.4})
            for n in range(1, 20)
            for role in ("drafter", "target")
            for d in range(devices)
        ]
        samples.append(folder, said)
        samples.end(folder, outcome=summarise(said))
        keys.append({p.key for p in points(folder, folder.load())})
    assert keys[0] == keys[1]
    assert {"wait/drafter", "wait/target", "target/phase_wait_ms", "target/phase_slowest_step_ms"} <= keys[0]


# --- pictures --------------------------------------------------------------------------------------------


def box(target: float = 0.02, first: float = 0.28, second: float = 0.48) -> list[Event]:
    """A target and two drafters that take a second a step, and wait these shares of it."""
    devices = ("target", "cuda:0", target, 0), ("drafter", "cuda:5", first, 100), ("drafter", "cuda:6", second, 100)
    said: list[Event] = [Started(0.5, 1, 30)]
    for n in range(1, 31):
        for role, device, waited, tokens in devices:
            phases = {"wait": waited, "communication": 0.1, "forward": 0.9 - waited}
            said.append(Step(float(n), n, role, device, 1.0, tokens, 0, phases))
    return said


def recorded(folder: Path, said: list[Event]) -> Run:
    run = samples.begin(folder, "20261130-120000-box-0000")
    samples.append(run, said)
    samples.end(run, outcome=summarise(said))
    return run.load()


def test_the_end_panel_names_the_bottleneck_and_each_device(tmp_path: Path) -> None:
    run = recorded(tmp_path, box())
    said = "target-bound: the drafters waited 38 % of the time, the target 2 %"
    table = "role device steps busy wait communication target cuda:0 30 88 % 2 % 10 %"
    for picture in (display.summary_panel(run), display.show(run)):
        assert said in drawn(picture)
        assert f"{table} drafter cuda:5 30 62 % 28 % 10 % drafter cuda:6 30 42 % 48 % 10 %" in drawn(picture)
    console = Console(file=io.StringIO(), width=60)
    console.print(display.show(run))
    assert isinstance(console.file, io.StringIO)
    assert max(map(len, console.file.getvalue().splitlines())) <= 60
    live = Live("id", "box", "cu130")
    for event in box():
        live.feed(event)
    assert said in drawn(live.panel(31.0))
    assert live.line(31.0).endswith(said)


def test_simulated_devices_are_named_beside_what_they_waited() -> None:
    """They take turns on real ones, so that their waiting says nothing of a GPU's."""
    real = summarise(box())
    simulated = replace(real, devices=tuple(replace(d, device=f"cpu:{n}") for n, d in enumerate(real.devices)))
    assert figures.roles_text(simulated) == f"{figures.roles_text(real)} (simulated devices)"
    assert not figures.roles_text(real).endswith("(simulated devices)")


def test_where_roles_wait_alike_none_is_named() -> None:
    summary = summarise(box(0.02, 0.04, 0.08))
    assert summary.bound == ""
    said = "no role holds up the others: the drafters waited 6 % of the time, the target 2 %"
    assert figures.roles_text(summary) == said


def test_one_device_alone_has_neither_table_nor_sentence(tmp_path: Path) -> None:
    said = [e for e in box() if not isinstance(e, Step) or e.device == "cuda:5"]
    run = recorded(tmp_path, said)
    text = drawn(display.summary_panel(run))
    assert "bound" not in text
    assert "busy" not in text
    assert to_json(run)["bound"] is None
    assert to_json(run)["waits"] == {"drafter": pytest.approx(0.28)}
    assert not [p for p in points(RunFolder(Path(run.folder)), run) if p.key.startswith("wait/")]


def test_the_json_has_roles_and_devices(tmp_path: Path) -> None:
    shown = to_json(recorded(tmp_path, box()))
    assert shown["bound"] == "target"
    assert shown["waits"] == pytest.approx({"target": 0.02, "drafter": 0.38})
    assert [(d["role"], d["device"], d["steps"]) for d in shown["devices"]] == [
        ("target", "cuda:0", 30),
        ("drafter", "cuda:5", 30),
        ("drafter", "cuda:6", 30),
    ]
    assert shown["devices"][1]["waiting"] == pytest.approx(0.28)


def test_a_summary_is_read_as_it_was_written_and_an_earlier_one_too() -> None:
    summary = summarise(box())
    data = dataclasses.asdict(summary)
    later = {**data, "devices": [{**device, "of a later version": 1} for device in data["devices"]]}
    assert Summary.from_json(data) == Summary.from_json(later) == summary
    earlier = Summary.from_json({k: v for k, v in data.items() if k not in ("waits", "bound", "devices")})
    assert (earlier.waits, earlier.bound, earlier.devices) == ({}, "", ())


# --- a real run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_a_real_run_of_two_targets_and_three_drafters(tmp_path: Path, kind: str) -> None:
    where = Places(root=ROOT, state=tmp_path / "state", runs=tmp_path / "runs")
    here = BuiltEnvironment("", Path(sys.executable), Path(sysconfig.get_path("purelib")))
    spec = dataclasses.replace(resolve("toy", ()), argv=("python", two_roles.__file__, kind))
    run = execute(Order(spec, here, ROOT), where, Watcher())
    assert (run.result.status, run.result.reason) == ("finished", "")
    folder = RunFolder(Path(run.folder))
    said = list(folder.events())
    summary = run.result.summary
    assert (summary.steps, summary.tokens, summary.padding) == (40, 40 * (100 + 101 + 102), 40 * (0 + 1 + 2))

    rows = steps_of(said, "drafter")
    assert sorted(rows) == list(range(1, 41))
    steady = {n: rows[n] for n in range(summary.warmup_steps + 1, 41)}
    seconds = sum(max(s.seconds for s in row) for row in steady.values())
    assert summary.throughput_tok_s is not None
    assert summary.throughput_tok_s.value == pytest.approx(303 * len(steady) / seconds)
    told = points(folder, run)
    live = {p.step: p.value for p in told if p.key == "throughput/ktok_s"}
    assert live == pytest.approx({n: 0.303 / max(s.seconds for s in row) for n, row in rows.items()})

    waits = {"drafter": drafters_waited(list(steady.values())), "target": targets_waited(said, list(steady.values()))}
    assert summary.waits == pytest.approx(waits, abs=1e-6)
    assert summary.bound == "target"
    assert {p.key: p.value for p in told if p.key.startswith("wait/")} == {
        f"wait/{role}": share for role, share in summary.waits.items()
    }
    assert {(d.role, d.device, d.steps) for d in summary.devices} == {
        *(("target", f"cpu:{n}", 60) for n in (0, 1)),
        *(("drafter", f"cpu:{n}", 40) for n in (2, 3, 4)),
    }
    text = drawn(display.show(run))
    assert figures.roles_text(summary) in text
    assert "target-bound: the drafters waited" in text
    assert all(f"cpu:{n}" in text for n in range(5))


def drafters_waited(rows: Sequence[Sequence[Step]]) -> float:
    shares = []
    for device in {step.device for row in rows for step in row}:
        mine = [step for row in rows for step in row if step.device == device]
        shares.append(sum(s.phases["wait"] for s in mine) / sum(s.seconds for s in mine))
    return sum(shares) / len(shares)


def targets_waited(said: Sequence[Event], rows: Sequence[Sequence[Step]]) -> float:
    """What of the rows' time the steps of the targets do not fill with work, by the overlap of each with each."""
    stretches = [(max(s.t for s in row) - max(s.seconds for s in row), max(s.t for s in row)) for row in rows]
    steps = [step for row in steps_of(said, "target").values() for step in row]
    worked = 0.0
    for step in steps:
        share = (step.seconds - step.phases["wait"]) / step.seconds
        both = (min(step.t, end) - max(step.t - step.seconds, begin) for begin, end in stretches)
        worked += share * sum(max(0.0, each) for each in both)
    devices = len({step.device for step in steps})
    return 1 - worked / devices / sum(end - begin for begin, end in stretches)


def test_mlflow_has_the_waits_and_the_bottleneck(tmp_path: Path) -> None:
    run = recorded(tmp_path / "runs", box())
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert tracking.mirror(Path(run.folder), uri).status == "mirrored"
    run_id = RunFolder(Path(run.folder)).load().mlflow_run_id
    assert run_id
    seen = tracking.open_store(uri).get_run(run_id)
    assert seen.data.tags["harness.bound"] == "target"
    assert "target-bound: the drafters waited 38 %" in seen.data.tags["mlflow.note.content"]
    assert seen.data.metrics["wait/drafter"] == pytest.approx(0.38)
    assert seen.data.metrics["wait/target"] == pytest.approx(0.02)
