"""The page is one small file that needs nothing and starts nothing, whatever texts and however many runs it shows."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.comparison import Change, Explanation, Failure, Lane, Side
from harness.records import Value
from harness.view import words
from harness.view.report import facts, page
from tests import explanations
from tests.explanations import every
from tests.measurements import FACTS, GOOD, measured
from tests.view.pages import Page, paged, said

MOST_BYTES = 500_000


@every
def test_it_is_whole_and_small(make: explanations.Make) -> None:
    text = page.report(make())
    found = Page(text)
    assert found.wrong == []
    assert len(text.encode()) < MOST_BYTES
    ids = [tag.attributes["id"] for tag in found.tags if "id" in tag.attributes]
    assert len(ids) == len(set(ids))
    assert text == page.report(make())  # the same every time


@every
def test_it_asks_for_nothing_and_runs_only_its_own_script(make: explanations.Make) -> None:
    found = paged(make())
    (script,) = found.all("script")
    assert script.attributes == {}
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    (policy,) = [tag.attributes["content"] for tag in found.all("meta") if "http-equiv" in tag.attributes]
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    for tag in found.tags:
        assert tag.name not in ("img", "iframe", "object", "embed", "link", "base", "form", "image", "use"), tag
        assert not [name for name in tag.attributes if name.startswith("on") or name in ("src", "srcdoc", "action")]
        assert tag.attributes.get("href", "#").startswith(("#", "https://"))
    (style,) = found.all("style")
    assert not re.search(r"url\(|@import|https?:", style.text)
    assert not re.search(r"localStorage|sessionStorage|indexedDB|cookie|fetch\(|XMLHttp|eval|innerHTML", script.text)


def test_text_is_text_wherever_it_stands() -> None:
    found = paged(explanations.hostile())
    assert "</script><script>document.title='pwned'</script>" in said(found.all("h1")[0])
    assert not [tag for tag in found.all("a") if "javascript" in tag.attributes["href"]]
    assert "{{7*7}}" in said(found.all("h1")[0])
    assert "pwned" not in found.all("script")[0].text


texts = st.text(max_size=60) | st.sampled_from(
    ["</script>", "<!--", "]]>", "<svg/onload=x>", '" onclick="x', "&lt;", "\0"]
)


BASE = explanations.crashed()
FEW = {"environment.python": "3.12.3"}


def with_text(text: str) -> Explanation:
    """A text in every place that a run, or a person, may have filled."""
    run = BASE.after.runs[0]
    change = Change(f"workload.{text}", text, text)
    run = replace(
        run,
        run=replace(run.run, id=text),
        facts={**FEW, f"execution.{text}": text},
        lanes=(Lane(text, (1.0, 2.0), (1.0, 2.0)),),
        failure=Failure(text, text, text, (text,), text, text),
        profile=replace(run.profile, marks=((1.0, text, text),), phases={text: run.profile.phases["forward"]}),
    )
    before = replace(BASE.before.runs[0], facts=FEW, lanes=(), profile=run.profile)
    suspect = replace(BASE.suspects[0], change=change, reason=text, evidence=(text,), confirm=text, also=(change,))
    return replace(
        BASE,
        sentence=text,
        reasons=(text,),
        notes=(text,),
        normalised=((text, 1.0, 2.0),),
        suspects=(suspect,),
        also_changed=(change,),
        before=Side(text, (before,)),
        after=Side(text, (run,)),
    )


SKELETON = Counter(tag.name for tag in paged(with_text("x")).tags)


@given(texts)
@settings(max_examples=50)
def test_no_text_changes_what_the_page_is_made_of(text: str) -> None:
    found = paged(with_text(text))
    assert found.wrong == []
    if words.plain(text):  # an empty text leaves its place out
        assert Counter(tag.name for tag in found.tags) == SKELETON


def test_thousands_of_facts_leave_the_page_small() -> None:
    e = explanations.dense_fallback()
    many: dict[str, Value] = {f"environment.file.library-{n}": f"{n:064x}" for n in range(5000)}
    run = e.after.runs[0]
    before = replace(e.before.runs[0], facts={**FACTS, **many})
    after = replace(run, facts={**run.facts, **many, "environment.file.library-7": "other"})
    e = replace(e, before=Side("a", (before,)), after=Side("b", (after,)))
    table = facts.fact_table(e)
    assert "environment.file.library-7" in {f.name for f in table.rows if f.differs}
    assert len(table.rows) + table.left_out == len({*before.facts, *after.facts, *after.observed})
    text = page.report(e)
    assert len(text.encode()) < MOST_BYTES
    assert f"{table.left_out} more facts are the same" in text


def test_a_box_of_many_runs_and_devices_stays_small() -> None:
    runs = tuple(measured(f"r{n}", GOOD, seed=n) for n in range(12))
    e = replace(explanations.groups(), before=Side("a", runs), after=Side("b", runs))
    assert len(page.report(e).encode()) < MOST_BYTES
