"""harness diff: grouped by kind, what is not known is said, and any fact can be shown."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from harness.comparison import Change, Side
from harness.records import Value
from harness.view import words
from harness.view.difference import diff_view
from tests import explanations
from tests.measurements import FACTS, measured
from tests.view.drawing import drawn, squeezed

fact_values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=30))


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


# A tone of skin without an emoji before it, or a tag character, has no width: a terminal shows nothing of it.
seen = st.characters(exclude_categories=("Cs", "Sk")).filter(lambda c: cell_len(c) > 0 or c.isspace())


@given(st.dictionaries(st.text(seen, min_size=1, max_size=40), st.tuples(fact_values, fact_values)))
def test_any_facts_can_be_shown(facts: dict[str, tuple[Value, Value]]) -> None:
    changes = [Change(name, *values) for name, values in facts.items()]
    text = squeezed(drawn(diff_view(Side("x", ()), Side("y", ()), changes, 60), 60))
    for change in changes:
        for line in words.plain(change.fact.partition(".")[2] or change.fact).splitlines():
            assert squeezed(line) in text
    wide = drawn(diff_view(Side("x", ()), Side("y", ()), changes, 160), 160)
    assert all(cell_len(line) <= 160 for line in wide.splitlines())
