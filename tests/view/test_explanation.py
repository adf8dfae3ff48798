"""An explanation on the terminal: the sentence first, nothing cut off at any width, nothing that drives it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import figures
from harness.comparison import Change, Explanation
from harness.explain.words import said
from harness.records import Interval
from harness.view import words
from harness.view.difference import diff_view
from harness.view.explanation import explanation_view
from harness.view.report.facts import fact_table
from harness.view.report.page import report
from tests import explanations
from tests.explanations import every
from tests.view.drawing import drawn, squeezed

WIDTHS = (60, 80, 100, 160)


def told(e: Explanation) -> list[str]:
    """What a person must be told, however narrow the terminal is."""
    said = [e.sentence, *e.reasons, e.fair_pair, e.bottleneck, *e.notes, e.throughput.words, *words.interrupted(e)]
    for s in e.suspects:
        said += [s.reason, s.change.fact, words.side_of(s.change, "after"), *s.evidence, s.confirm]
    for run in (*e.before.failed, *e.after.failed):
        assert run.failure
        said += [run.failure.sentence, run.failure.last, *run.failure.lines, run.failure.advice, run.failure.reference]
    return [text for text in said if text]


@every
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


@every
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
