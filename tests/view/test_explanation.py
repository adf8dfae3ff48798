"""An explanation on the terminal: the sentence first, sums that come out, nothing cut off, nothing that drives it."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from harness import figures
from harness.comparison import Change, Contribution, Explanation, Judgement, Profile, Side
from harness.explain.words import said
from harness.records import Interval, Value
from harness.view import words
from harness.view.curves import binned, representative, spans
from harness.view.difference import diff_view
from harness.view.explanation import explanation_view
from harness.view.report import plots, stacks
from harness.view.report.facts import fact_table
from harness.view.report.page import report
from harness.view.sparkline import LEVELS, over_time, sparkline
from harness.view.waterfall import MOST, falls
from tests import explanations
from tests.measurements import FACTS, measured, split, steady_state

WIDTHS = (60, 80, 100, 160)
samples = pytest.mark.parametrize("make", explanations.ALL.values(), ids=list(explanations.ALL))
fact_values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=30))


def drawn(picture: RenderableType, width: int, colour: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=not colour, force_terminal=colour, legacy_windows=False)
    console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def squeezed(text: str) -> str:
    """Without blanks: a narrow terminal folds anywhere."""
    return re.sub(r"\s+", "", text)


def told(e: Explanation) -> list[str]:
    """What a person must be told, however narrow the terminal is."""
    said = [e.sentence, *e.reasons, e.fair_pair, e.bottleneck, *e.notes, e.throughput.words]
    for s in e.suspects:
        said += [s.reason, s.change.fact, words.side_of(s.change, "after"), *s.evidence, s.confirm]
    for run in (*e.before.failed, *e.after.failed):
        assert run.failure
        said += [run.failure.sentence, run.failure.last, *run.failure.lines, run.failure.advice, run.failure.reference]
    return [text for text in said if text]


@samples
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off_at_any_width(make: explanations.Make, width: int) -> None:
    e = make()
    text = drawn(explanation_view(e, width), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for line in text.splitlines():
        assert not re.search("[█▒▓]", line) or len(line.rstrip()) <= width
    whole = squeezed(text)
    if not any("</script>" in said for said in told(e)):  # a long text in a table is folded between others' lines
        assert [said for said in told(e) if squeezed(said) not in whole and len(said) < width - 25] == []
    assert squeezed(e.sentence) in whole


@samples
def test_colour_adds_nothing_but_colour(make: explanations.Make) -> None:
    e = make()
    coloured = drawn(explanation_view(e, 100), 100, colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == drawn(explanation_view(e, 100), 100)


def test_the_order_is_the_sentence_the_work_the_verdict_the_time_and_the_suspects() -> None:
    text = drawn(explanation_view(explanations.dense_fallback(), 100), 100)
    parts = ("5.0 times slower", "COMPARABLE", "throughput  SLOWER", "Where the time went", "Suspects", "Also changed")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert places[0] == 0


def test_the_waterfall_of_the_seeds_pair_ends_on_the_measured_figure() -> None:
    text = drawn(explanation_view(explanations.different_work(), 100), 100)
    rows = text[text.index("Where the time went") :].split("\n\n")[0].splitlines()
    table = {row.split()[0]: row.split() for row in rows[2:] if row.strip()}
    assert (table["before"][1], table["after"][1]) == ("21.5", "12.8")
    assert list(table)[1] == "forward"  # what gave most comes first
    assert table["forward"][1].startswith("-")
    assert "NOT COMPARABLE" in text
    assert "NOT JUDGED" in text
    assert "SLOWER" not in text


def test_no_shares_where_the_interval_contains_one() -> None:
    assert "share" not in drawn(explanation_view(explanations.groups(), 100), 100)
    assert "share" in drawn(explanation_view(explanations.groups(1.3), 100), 100)


def test_a_first_step_that_is_the_same_by_seconds_says_so() -> None:
    """0.325 s against 0.576 s is far from 1 as a ratio, and less than anybody waits."""
    e = explanations.dense_fallback()
    first = replace(
        e.first_step, verdict="SAME", before=0.325, after=0.576, margin=0.25 / 0.325, ratio=Interval(1.77, 1.17, 2.69)
    )
    text = drawn(explanation_view(replace(e, first_step=first), 140), 140)
    assert "SAME  0.325 s → 0.576 s, 1.77 times [1.17, 2.69], the same within 0.25 s" in text
    assert "the same within" not in drawn(explanation_view(e, 140), 140)
    share = replace(first, before=325.0, after=326.0, margin=e.throughput.margin, ratio=Interval(1.0, 0.99, 1.01))
    assert "the same within" not in drawn(explanation_view(replace(e, first_step=share), 140), 140)


def test_a_long_fact_is_shortened_and_what_differs_of_it_is_shown() -> None:
    """A flag among 20,000 characters: a sentence gives the beginning, a comparison the place where the sides differ."""
    before, after = (f"{'x' * 15_000} --threads={n} {'y' * 5_000}" for n in (1, 8))
    change = Change("environment.variable.FLAGS", before, after)
    found = words.arrow(change)
    assert found == f"...{'x' * 9} --threads=1 {'y' * 58}... (20,013 characters) → " + (
        f"...{'x' * 9} --threads=8 {'y' * 58}... (20,013 characters)"
    )
    assert said(change.fact, before) == f"{'x' * 80}... (20,013 characters)"
    longer = replace(change, before=before[:90], after=before[:95])
    assert words.side_of(longer, "after") == f"...{'x' * 80} (95 characters)"
    e = explanations.dense_fallback()
    sides = [
        replace(s, runs=(replace(s.runs[0], facts={change.fact: v}),))
        for s, v in zip((e.before, e.after), (before, after), strict=True)
    ]
    (row,) = [row for row in fact_table(replace(e, before=sides[0], after=sides[1])).rows if row.name == change.fact]
    assert max(len(row.before), len(row.after)) < 120
    assert row.differs
    assert len(drawn(diff_view(sides[0], sides[1], [change], 160), 160)) < 1500


@given(st.text(max_size=300), st.integers(0, 400))
def test_a_shortened_text_is_a_piece_of_it(text: str, start: int) -> None:
    found = figures.shortened(text, start)
    assert len(found) < figures.LONGEST + 30
    piece = re.sub(r"^(\.\.\.)?(.*?)(\.\.\.)? \(\d+ characters\)$", r"\2", found, flags=re.DOTALL)
    assert found == text if len(text) <= figures.LONGEST else text.endswith(piece) or text.find(piece) in (0, start)


def test_a_group_says_how_many_runs_and_which() -> None:
    """Also of one run only: a recipe's name does not tell which of its runs it is."""
    e = explanations.dense_fallback()
    one = replace(e.before, name="toy, 1 of its 10 finished runs")
    text = f"toy, 1 of its 10 finished runs (1 run: {e.before.runs[0].run.id})"
    assert f"before  {text}\nafter   {e.after.runs[0].run.id}\n" in re.sub(
        " +\n", "\n", drawn(explanation_view(replace(e, before=one), 140), 140)
    )
    assert f"<dd>{text}</dd>" in report(replace(e, before=one))
    assert text in drawn(diff_view(one, e.after, [], 160), 160)
    assert words.command(replace(e, before=one)).endswith(f" diff {e.before.runs[0].run.id} {e.after.runs[0].run.id}")


def test_a_crash_is_told_before_any_speed() -> None:
    text = drawn(explanation_view(explanations.crashed(), 100), 100)
    assert text.index("Detected that you are using FX") < text.index("throughput")
    assert "step 84" in text
    assert "harness run dflash topology=processes" in text


def test_a_pair_without_a_suspect_says_so() -> None:
    assert "None: no change that was recorded can have done it" in drawn(
        explanation_view(explanations.groups(1.3), 80), 80
    )
    assert "None: no difference is shown" in drawn(explanation_view(explanations.groups(), 80), 80)


def test_a_fact_cannot_drive_the_terminal() -> None:
    bad = "\x1b[2J\x1b]0;owned\x07\x9b31mred\r"
    change = Change(f"execution.{bad}", bad, bad + "2")
    e = replace(explanations.dense_fallback(), sentence=bad, also_changed=(change,), notes=(bad,), reasons=(bad,))
    for picture in (explanation_view(e, 80), diff_view(e.before, e.after, [change], 80)):
        text = drawn(picture, 80)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_markup_in_a_text_stays_text() -> None:
    assert "[bold]" in drawn(explanation_view(explanations.hostile(), 160), 160)


def test_a_description_of_a_side_is_not_typed_as_its_name() -> None:
    e = explanations.dense_fallback()
    assert words.command(e).endswith("diff @good 20261109-101010-dflash-e5f6")
    e = replace(e, before=replace(e.before, name="baseline of it"))
    assert words.command(e).endswith("diff 20261101-090000-dflash-a1b2 20261109-101010-dflash-e5f6")


# --- the waterfall ---------------------------------------------------------------------------------------

costs = st.dictionaries(st.sampled_from("abcdefghijklmnopqrst"), st.floats(0.01, 1e3), min_size=1)


def pair(before: dict[str, float], after: dict[str, float], pad: float) -> tuple[Judgement, tuple[Contribution, ...]]:
    old, new = steady_state(before, 0.0), steady_state(after, pad)
    values = (old.throughput.value, new.throughput.value)
    ratio = Interval(values[1] / values[0], 0, 9)
    figure = Judgement("throughput", "SLOWER", "assumed", ratio, before=values[0], after=values[1])
    return figure, split(old, new)


@given(costs, costs, st.sampled_from([0.0, 0.01, 0.4]))
def test_the_steps_go_from_the_one_figure_to_the_other(
    before: dict[str, float], after: dict[str, float], pad: float
) -> None:
    figure, parts = pair(before, after, pad)
    assert figure.before
    assert figure.after
    steps = falls(figure, parts, "tokens")
    assert steps[0].start == figure.before
    assert steps[-1].end == figure.after
    assert all(a.end == b.start for a, b in pairwise(steps))
    assert len(steps) <= MOST + 1
    for side, rate in (("cost_before", figure.before), ("cost_after", figure.after)):
        assert math.fsum(getattr(step, side) for step in steps) == pytest.approx(1e6 / rate)


@given(costs, costs)
def test_equal_shares_are_equally_long(before: dict[str, float], after: dict[str, float]) -> None:
    figure, parts = pair(before, after, 0.0)
    assert figure.before
    assert figure.after
    whole = figure.after - figure.before
    if abs(whole) < 1e-3 * figure.before:
        return
    for step in falls(figure, parts, "tokens"):
        assert step.share is not None
        assert step.change == pytest.approx(step.share * whole, rel=1e-6, abs=1e-9 * figure.before)


def test_what_no_phase_covers_has_its_row_and_what_is_left_out_is_said() -> None:
    figure, parts = pair(
        {"forward": 40.0, "unaccounted": 0.01, **{f"x{n}": 0.1 for n in range(20)}}, {"forward": 60.0}, 0
    )
    names = [step.name for step in falls(figure, parts, "tokens")]
    assert "unaccounted" in names
    assert any(re.fullmatch(r"\d+ others", name) for name in names)
    assert "not in the split" not in names
    assert falls(figure, parts[:2], "tokens")[-1].name == "not in the split"


def test_a_time_goes_up_where_it_gets_slower() -> None:
    e = explanations.slower_start()
    (first, *_) = falls(e.first_step, e.first_step_contributions, e.unit)
    assert first.name == "compile"
    assert (first.start, first.end) == pytest.approx((96, 550))
    assert (first.cost_before, first.cost_after) == (9.0, 463.0)


# --- sparklines ------------------------------------------------------------------------------------------


def test_a_sparkline_has_a_bar_for_each_value_and_a_gap_for_none() -> None:
    assert sparkline([0, 10, None, 5, 99, -3], 0, 10) == "▁█ ▅█▁"


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=50))
def test_higher_is_never_drawn_lower(values: list[float | None]) -> None:
    line = sparkline(values, -10.0, 10.0)
    assert len(line) == len(values)
    known = sorted((v, LEVELS.index(c)) for v, c in zip(values, line, strict=True) if v is not None)
    assert [level for _, level in known] == sorted(level for _, level in known)


@given(st.lists(st.floats(0.1, 5.0), min_size=2, max_size=60), st.integers(1, 80))
def test_binning_keeps_the_units(seconds: list[float], count: int) -> None:
    """In one bin it is all units over all seconds; in many it lies between the slowest and the fastest block."""
    ends, rates = [], []
    for n in range(len(seconds)):
        ends.append(sum(seconds[: n + 1]) + 2.0 * n)  # a gap of 2 s between any two
        rates.append(1.0 + n)
    profile = Profile(tuple(ends), tuple(rates), {"forward": tuple(seconds)}, (True,) * len(ends))
    whole = sum(r * s for r, s in zip(rates, seconds, strict=True)) / sum(seconds)
    assert binned(profile, ends[-1], 1) == [pytest.approx(whole)]
    for value in binned(profile, ends[-1], count):
        assert value is None or min(rates) - 1e-6 <= value <= max(rates) + 1e-6
    assert [end - begin for begin, end in spans(profile)] == pytest.approx(seconds, abs=1e-6)


def test_a_shift_is_marked_where_it_is() -> None:
    e = explanations.groups()
    last = e.after.runs[3]
    one = replace(e, after=Side("@one", (last,)))
    text = drawn(explanation_view(one, 100), 100)
    lines = text[text.index("Throughput over time") :].splitlines()
    bars, marks = lines[2], lines[3]
    at = marks.index("^")
    early, late = (bars[at + shift : at + shift + 5] for shift in (-8, 3))
    assert min(LEVELS.index(c) for c in early) > max(LEVELS.index(c) for c in late)
    assert "GPU 3 began to throttle" in text
    assert "step 1,200" in text


def test_tokens_and_steps_a_second_share_no_scale() -> None:
    e = explanations.dense_fallback()
    assert over_time(e, 100)
    assert plots.throughput(e, plots.Clock(100.0, ()))
    steps = replace(e.after, runs=(replace(e.after.runs[0], unit="steps"),))
    none = replace(e.throughput, before=None, after=None, ratio=None)
    mixed = replace(e, after=steps, unit="", throughput=none)
    assert over_time(mixed, 100) is None
    assert plots.throughput(mixed, plots.Clock(100.0, ())) is None
    assert "Throughput over time" not in drawn(explanation_view(mixed, 100), 100)
    assert stacks.steady_bars(mixed, {}) is None
    assert "ms per <" not in report(mixed)


def test_the_run_of_middle_speed_stands_for_a_side_and_a_failed_one_before_it() -> None:
    runs = [measured(name, {"forward": cost}) for name, cost in (("slow", 60.0), ("fast", 40.0), ("middle", 50.0))]
    picked = representative(Side("", tuple(runs)))
    assert picked is runs[2]
    failed = explanations.crashed().after.runs[0]
    assert representative(Side("", (*runs, failed))) is failed
    assert representative(Side("", ())) is None


# --- harness diff ----------------------------------------------------------------------------------------


def test_a_diff_is_grouped_and_says_what_is_not_known() -> None:
    e = explanations.dense_fallback()
    changes = [*e.also_changed, Change("workload.data.sequences", 902_000, 1_100_000)]
    text = drawn(diff_view(e.before, e.after, changes, 120), 120)
    heads = re.findall(r"^(\w+) \(\d+\)", text, re.MULTILINE)
    assert heads == ["workload", "environment", "context"]
    assert re.search(r"package\.sglang +not recorded +0\.5\.3", text)
    assert re.search(r"data\.sequences +902,000 +1,100,000", text)
    assert f"{len(FACTS) + 2 - len(changes)} facts are the same" in text


def test_all_shows_what_is_the_same_and_a_narrow_terminal_everything() -> None:
    side = Side("x", (measured("x"),))
    changes = [Change("execution.threads", 2, 8), Change("execution.compile", "inductor", "inductor")]
    text = drawn(diff_view(side, side, changes, 60), 60)
    assert "threads\n  2 → 8" in re.sub(" +\n", "\n", text)
    assert re.search(r"the same on both sides \(1\)\s+execution.compile  inductor", text)
    assert "--all" not in text
    assert "No recorded fact differs." in drawn(diff_view(side, side, changes[1:], 60), 60)


# A tone of skin without an emoji before it has no width: a terminal shows nothing of it.
seen = st.characters(exclude_categories=("Cs", "Sk"))


@given(st.dictionaries(st.text(seen, min_size=1, max_size=40), st.tuples(fact_values, fact_values)))
def test_any_facts_can_be_shown(facts: dict[str, tuple[Value, Value]]) -> None:
    changes = [Change(name, *values) for name, values in facts.items()]
    text = squeezed(drawn(diff_view(Side("x", ()), Side("y", ()), changes, 60), 60))
    for change in changes:
        for line in words.plain(change.fact.partition(".")[2] or change.fact).splitlines():
            assert squeezed(line) in text
    wide = drawn(diff_view(Side("x", ()), Side("y", ()), changes, 160), 160)
    assert all(cell_len(line) <= 160 for line in wide.splitlines())
