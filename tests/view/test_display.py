"""What people see: right figures, the next command, and lines that fit a narrow terminal without colour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import figures
from harness.records import (
    CacheState,
    Finished,
    Interval,
    Note,
    Started,
    Step,
    Summary,
)
from harness.run.folder import RunFolder
from harness.view import display
from harness.view.live import Live
from tests import samples
from tests.view.drawing import drawn


def flat(text: str) -> str:
    """The words alone: a narrow terminal may fold a line anywhere between them."""
    return " ".join(text.replace("│", " ").split())


def followed(count: int) -> Live:
    live = Live("20261129-172855-tiny-3f2a", "tiny", "cpu")
    for event in samples.events()[:count]:
        live.feed(event)
    return live


@pytest.mark.parametrize(
    ("value", "text"),
    [(21.534, "21.5"), (0.0041234, "0.00412"), (1234.6, "1235"), (0, "0"), (99.96, "100"), (1e-6, "0.000001")],
)
def test_three_digits_that_count(value: float, text: str) -> None:
    assert figures.digits(value) == text


@given(st.floats(1e-3, 1e6))
def test_digits_are_within_half_a_per_cent(value: float) -> None:
    assert float(figures.digits(value)) == pytest.approx(value, rel=0.006)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0421, "0.0421 s"), (12.34, "12.3 s"), (61, "1:01"), (3599.6, "1:00:00"), (11527, "3:12:07")],
)
def test_durations(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0:00"), (7.4, "0:07"), (59.7, "1:00"), (725, "12:05")])
def test_a_clock_ticks(seconds: float, text: str) -> None:
    assert figures.clock(seconds) == text


def test_a_figure_and_its_interval() -> None:
    assert figures.ktok(Interval(21_500, 21_150, 21_849)) == "21.5 Ktok/s [21.1, 21.8]"
    assert figures.held(CacheState(353_000_000, 285)) == "353.0 MB in 285 entries"
    assert figures.held(None) == "unknown"


def test_the_live_panel_says_where_the_run_is() -> None:
    live = followed(5 + 20)
    text = flat(drawn(live.panel(13.2)))
    for words in ("step 20/40", "0:04 left", "0:13 so far", "Ktok/s", "loss 2.839", "lr 3.00e-04", "40%", "12 misses"):
        assert words in text
    assert "before 1.02" in text
    assert "nobody waits" in text


def test_the_plain_line_is_one_line_that_says_the_same() -> None:
    line = followed(5 + 20).line(13.2)
    assert line.startswith("[ 0:13]  step 20/40  loss 2.839  ")
    assert "0:04 left  target 40%, forward 30%, backward 25%" in line
    assert "\n" not in line


def test_the_rate_is_of_the_recent_steps() -> None:
    live = Live("id", "toy", "")
    for n in range(1, 201):
        live.feed(Step(float(n), n, "trainer", "cpu", 1.0 if n <= 100 else 0.1, 1000, 0, {}, {}))
    assert "10.0 Ktok/s" in live.line(1.0)


def test_the_step_that_compiled_does_not_frighten_with_its_time_left() -> None:
    live = Live("id", "tiny", "cpu")
    live.feed(Started(0.0, 1, 100))
    live.feed(Step(40.0, 1, "drafter", "cpu", 40.0, 1000, 0, {"compile": 39.9, "forward": 0.1}))
    for number in range(2, 5):
        live.feed(Step(40.0, number, "drafter", "cpu", 0.1, 1000, 0, {"forward": 0.1}))
    line = live.line(41.0)
    assert "0:10 left" in line
    assert "10.0 Ktok/s" in line


def test_who_waits_for_whom() -> None:
    live = Live("id", "box", "cu130")
    live.feed(Step(1.0, 1, "drafter", "cuda:5", 1.0, 1000, 0, {"wait": 0.31, "forward": 0.69}, {}))
    live.feed(Step(1.0, 1, "target", "cuda:0", 1.0, 0, 0, {"target": 1.0}, {}))
    said = "target-bound: the drafter waited 31 % of the time, the target 0 %"
    assert live.waits() == said
    assert said in flat(drawn(live.panel(1.0)))
    assert live.line(1.0).endswith(said)


def test_what_others_waited_for_a_compile_is_not_what_they_wait_now() -> None:
    live = Live("id", "box", "cu130")
    live.feed(Step(40.0, 1, "target", "cuda:0", 40.0, 0, 0, {"target": 0.5, "wait": 39.5}))
    live.feed(Step(41.0, 1, "drafter", "cuda:5", 41.0, 1000, 0, {"compile": 40.0, "forward": 1.0}))
    live.feed(Step(41.1, 9, "target", "cuda:0", 39.0, 0, 0, {"target": 0.5, "wait": 38.5}))  # its queue was full
    for number in (2, 3, 4):
        live.feed(Step(40.0 + number, number, "target", "cuda:0", 1.0, 0, 0, {"target": 0.5, "wait": 0.5}))
        live.feed(Step(40.0 + number, number, "drafter", "cuda:5", 1.0, 1000, 0, {"forward": 1.0}))
    assert live.waits() == "drafter-bound: the target waited 50 % of the time, the drafter 0 %"


def test_a_role_alone_waits_for_nobody_that_is_recorded() -> None:
    live = Live("id", "toy", "")
    live.feed(Step(1.0, 1, "trainer", "cpu", 1.0, 1000, 0, {"wait": 0.31, "forward": 0.69}, {}))
    assert live.waits() == "the trainer waited 31 % of the time"


def test_the_rate_of_several_devices_is_that_of_the_summary() -> None:
    """300 tokens in the 2 s of the slowest of three; a step that only one of them has told does not count yet."""
    live = Live("id", "box", "cu130")
    for number in range(1, 31):
        for device, seconds in (("cuda:5", 1.0), ("cuda:6", 2.0), ("cuda:7", 1.5))[: 1 if number == 30 else 3]:
            live.feed(Step(2.0 * number, number, "drafter", device, seconds, 100, phases={"forward": seconds}))
    assert "0.150 Ktok/s" in live.line(60.0)


def test_before_the_first_step_the_activity_is_named() -> None:
    live = Live("id", "tiny", "cpu")
    assert "setting up" in live.line(0.0)
    live.feed(Started(1.0, 1, 40))
    live.feed(Note(2.0, "training the target, once"))
    assert "training the target, once" in live.line(3.0)
    assert "left" not in live.line(3.0)
    live.feed(Finished(4.0))
    assert "ending" in live.line(4.0)


def test_a_loss_that_is_not_a_number_does_not_stop_the_panel() -> None:
    live = Live("id", "tiny", "cpu")
    live.feed(Step(1.0, 1, "drafter", "cpu", 0.0, 5, 0, {}, {"loss": None}))  # type: ignore[dict-item]
    live.feed(Step(1.0, 2, "drafter", "cpu", 0.1, 5, 0, {}, {"loss": float("nan")}))
    assert "nan" in drawn(live.panel(1.0))


def test_a_warning_stays_and_is_said_once() -> None:
    live = followed(30)
    live.feed(Note(1.0, "loss is not finite", "warning"))
    live.warn("MLflow was not reached")
    live.warn("MLflow was not reached")
    assert flat(drawn(live.panel(1.0))).count("MLflow was not reached") == 1
    assert "warning: loss is not finite" in flat(drawn(live.panel(1.0)))


def test_the_summary_has_the_figures_and_the_next_commands(tmp_path: Path) -> None:
    run = samples.recorded(tmp_path).load()
    text = flat(drawn(display.summary_panel(run, "http://127.0.0.1:5000"), 100))
    for words in (
        "finished 20261129-172855-tiny-3f2a",
        "20.0 Ktok/s [19.8, 20.2] in steady state, 9.00 Ktok/s over the whole run",
        "after 9.20 s",
        "1.02 → 2.31, lossless",
        "on repeats 1.00 → 6.10",
        "untrained repeat the anchor 3.95, n-gram lookup 4.40",
        "repeat the anchor 1.44, n-gram lookup 1.61",
        "5.756 → 1.677",
        "40 with 160,000 tokens, 2% padding; 3 of warm-up and compiling are not in the steady state",
        "target 40%, forward 30%",
        "6.50 s, cold start, 0 hits, 12 misses",
        "empty → 10.0 MB in 32 entries",
        "http://127.0.0.1:5000",
        "harness show 20261129-172855-tiny-3f2a",
        "harness ui",
        "harness rerun 20261129-172855-tiny-3f2a",
    ):
        assert words in text


def test_a_failed_run_says_why_and_where_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = samples.begin(tmp_path, "20261129-172855-tiny-3f2a")
    samples.end(folder, "failed", reason="the child ended with code 1", outcome=Summary())
    text = flat(drawn(display.summary_panel(folder.load()), 120))
    assert "the child ended with code 1" in text
    assert "less 20261129-172855-tiny-3f2a/stderr.log" in text
    assert "throughput" not in text  # nothing was measured, nothing is claimed


def test_a_run_that_loses_losslessness_says_so_loudly(tmp_path: Path) -> None:
    folder = samples.begin(tmp_path, "20261129-172855-tiny-3f2a")
    samples.end(folder, outcome=Summary(lossless=False, evals=samples.EVALS))
    assert "NOT lossless" in flat(drawn(display.summary_panel(folder.load())))


def test_a_warning_is_read_before_the_figures(tmp_path: Path) -> None:
    folder = samples.begin(tmp_path, "20261129-172855-tiny-3f2a")
    samples.append(folder, samples.events())
    samples.end(folder, outcome=replace(samples.summary(), warnings=("the drafter runs uncompiled",)))
    text = flat(drawn(display.summary_panel(folder.load())))
    assert text.index("warning: the drafter runs uncompiled") < text.index("throughput")


def test_the_list_fits_eighty_columns(tmp_path: Path) -> None:
    for n in range(3):
        samples.recorded(tmp_path, f"20261129-17285{n}-tiny-3f2a")
    runs = [RunFolder(path).load() for path in sorted(tmp_path.iterdir(), reverse=True)]
    narrow, wide = drawn(display.runs_table(runs, 80)), drawn(display.runs_table(runs, 140), 140)
    assert "@1   20261129-172852-tiny-3f2a   finished     20.0     1.02 → 2.31   20.0 s" in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    assert "19.8 to 20.2" in wide
    assert "nox -s train" in drawn(display.runs_table([], 80))


def test_show_has_the_settings_and_the_place(tmp_path: Path) -> None:
    text = flat(drawn(display.show(samples.recorded(tmp_path).load()), 120))
    assert "train.lr 0.0003" in text
    assert "environment.python 3.11.7" in text
    assert "with 1 packages" in text
    assert "environment.package.torch" not in text


def test_a_long_name_leaves_a_plain_terminal_room_for_its_text(tmp_path: Path) -> None:
    run = samples.recorded(tmp_path).load()
    assert run.fingerprint is not None
    facts = {f"state.loaded./a/long/way{'/down' * 20}/libcudart.so.13": "ab" * 32}
    text = drawn(display.show(replace(run, fingerprint=replace(run.fingerprint, facts=facts))), 80)
    assert "ab" * 20 in text  # a digest in two lines, not in twenty
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("width", [80, 60, 120])
def test_no_picture_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    live = followed(60)
    live.warn("a warning that is a good deal longer than a narrow terminal is wide, so that it has to be folded")
    run = samples.recorded(tmp_path).load()
    for picture in (live.panel(100.0), display.summary_panel(run), display.show(run)):
        assert max(map(len, drawn(picture, width).splitlines())) <= width
