"""The page is one file that needs nothing and starts nothing, says the right figures, and can be read by anybody."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.comparison import Change, Explanation, Failure, Judgement, Lane, Measured, Side
from harness.records import Interval, Value
from harness.view import words
from harness.view.curves import spans
from harness.view.report import facts, lanes, page, plots, stacks
from tests import explanations
from tests.measurements import FACTS, GOOD, measured

MOST_BYTES = 500_000
VOID = {"meta", "input", "br", "img", "link", "hr", "base", "embed"}
EMPTY_SVG = {"rect", "line", "polyline", "polygon"}
every = pytest.mark.parametrize("make", explanations.ALL.values(), ids=list(explanations.ALL))


@dataclass
class Tag:
    name: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """A page taken apart: its tags with their text, and what was closed that was not open."""

    source: str
    tags: list[Tag] = field(default_factory=list)
    open: list[Tag] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()
        self.wrong += [f"{tag.name} is not closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = Tag(tag, {name: value or "" for name, value in attrs})
        self.tags.append(found)
        if tag not in VOID:
            self.open.append(found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(Tag(tag, {name: value or "" for name, value in attrs}))
        if tag not in EMPTY_SVG:
            self.wrong.append(f"{tag} closes itself")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1].name != tag:
            self.wrong.append(f"/{tag} inside {[t.name for t in self.open]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for tag in self.open:
            tag.text += data

    def all(self, name: str, cls: str = "") -> list[Tag]:
        found = [tag for tag in self.tags if tag.name == name]
        return [tag for tag in found if cls in tag.attributes.get("class", "").split()] if cls else found


def paged(e: Explanation) -> Page:
    return Page(page.report(e))


def said(tag: Tag) -> str:
    return " ".join(tag.text.split())


def rows_of(found: Page, cls: str) -> list[list[str]]:
    """The cells of the first table of a class."""
    source = found.source
    table = source[source.index(f'<table class="{cls}"') :].split("</table>")[0] + "</table>"
    part = Page(table)
    rows: list[list[str]] = []
    for tag in part.tags:
        if tag.name == "tr":
            rows.append([])
        elif tag.name in ("th", "td") and rows:
            rows[-1].append(said(tag))
    return rows


# --- one file that needs nothing and starts nothing ------------------------------------------------------


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


# --- it says the right figures ---------------------------------------------------------------------------


def test_the_sentence_and_the_verdict_come_first() -> None:
    found = paged(explanations.dense_fallback())
    e = explanations.dense_fallback()
    heads = [said(tag) for tag in found.tags if tag.name in ("h1", "h2")]
    assert heads[0].replace("\u00a0", " ") == e.sentence
    assert heads[1:5] == ["Throughput", "Time to the first step", "Is it the same work?", "Where the time went"]
    assert said(found.all("title")[0]).startswith("SLOWER: @good →")


def test_the_waterfall_ends_on_the_measured_figure() -> None:
    rows = rows_of(paged(explanations.different_work()), "waterfall")
    assert rows[1][:4] == ["before", "", "", "21.5"]
    assert rows[-1][:4] == ["after", "", "", "12.8"]
    assert [row[0] for row in rows[2:4]] == ["forward", "backward"]
    assert all(row[2] for row in rows[2:-1])
    assert "share" not in rows_of(paged(explanations.groups()), "waterfall")[0]


def test_the_pieces_of_the_waterfall_hang_together() -> None:
    e = explanations.different_work()
    (fall,) = page._waterfalls(e)
    before, *steps, after = fall.steps
    assert (before.width, after.width) == pytest.approx((100, 100 * 12.8 / 21.5), abs=0.1)
    for one, next_ in pairwise((before, *steps)):
        assert next_.start == one.end
    for step in steps:
        assert {step.left, round(step.left + step.width, 2)} == {min(step.start, step.end), max(step.start, step.end)}


def test_the_bars_of_steady_state_are_as_long_as_work_took() -> None:
    e = explanations.different_work()
    bars = stacks.steady_bars(e, stacks.colours(e))
    assert bars
    lengths = {side: sum(s.width for s in segments) for side, segments in bars.bars.items()}
    assert lengths["after"] == pytest.approx(100)
    assert lengths["before"] == pytest.approx(100 * 12.8 / 21.5, rel=0.01)
    *_, total = bars.rows
    assert (total.before, total.after) == ("46.5", "78.1")
    assert stacks.steady_bars(explanations.crashed(), {}) is None


def test_a_crash_has_its_lines_and_its_end_and_the_series_up_to_it() -> None:
    e = explanations.crashed()
    found = paged(e)
    assert "Detected that you are using FX" in said(found.all("pre")[0])
    assert "https://github.com/pytorch/pytorch/issues/126024" in [tag.attributes["href"] for tag in found.all("a")]
    time = plots.clock(e)
    assert time
    plot = plots.throughput(e, time)
    assert plot
    (flag,) = plot.flags
    assert (flag.kind, flag.side) == ("end", "after")
    last = [int(pair.split(",")[0]) for line in plot.lines if line.side == "after" for pair in line.pieces[-1].split()]
    assert last[-1] <= 100 * flag.at
    assert len(found.all("polyline")) > 2


# --- the plots can be read back --------------------------------------------------------------------------


def value_at(pair: str, time: plots.Clock, scale: plots.Scale) -> tuple[float, float]:
    x, y = map(int, pair.split(","))
    return x / plots.WIDE * time.end, scale.high - y / plots.HIGH * (scale.high - scale.low)


def test_throughput_is_drawn_as_it_was_and_broken_where_nothing_was_trained() -> None:
    e = explanations.dense_fallback()
    time = plots.clock(e)
    assert time
    plot = plots.throughput(e, time)
    assert plot
    line = next(line for line in plot.lines if line.side == "before")
    drawn = [value_at(pair, time, plot.scale) for piece in line.pieces for pair in piece.split()]
    profile = e.before.runs[0].profile
    assert len(line.pieces) == 2  # an evaluation half-way
    for (t, value), (begin, end), rate in zip(drawn, spans(profile), profile.rate, strict=True):
        assert value == pytest.approx(rate / 1000, abs=plot.scale.high / plots.HIGH)
        assert t == pytest.approx((begin + end) / 2, abs=time.end / plots.WIDE)


def test_a_long_first_block_is_level_and_no_slant() -> None:
    """Nothing was measured between a first step that compiles and the next block: no line may climb from one to it."""
    e = explanations.dense_fallback()
    run = e.before.runs[0]
    profile = replace(
        run.profile,
        t=(30.0, 31.0, 32.0, 33.0),
        rate=(700.0, 21_000.0, 21_500.0, 21_200.0),
        phases={"forward": (28.0, 1.0, 1.0, 1.0)},
        steady=(False, True, True, True),
    )
    e = replace(e, before=Side("", (replace(run, profile=profile),)), after=Side("", ()))
    time = plots.clock(e)
    assert time
    plot = plots.throughput(e, time)
    assert plot
    (line,) = plot.lines
    first, second = ([value_at(pair, time, plot.scale) for pair in piece.split()] for piece in line.pieces)
    assert [t for t, _ in first] == pytest.approx([2.0, 30.0], abs=time.end / plots.WIDE)
    assert first[0][1] == first[1][1] == pytest.approx(0.7, abs=plot.scale.high / plots.HIGH)
    assert min(value for _, value in second) > 20


def test_the_margin_has_three_digits() -> None:
    e = explanations.dense_fallback()
    e = replace(e, throughput=replace(e.throughput, margin=0.340025))
    assert "shaded: the same within 34 %" in said(paged(e).all("section", "verdicts")[0]).replace("\u00a0", " ")


def test_layers_stack_to_one_over_the_throughput() -> None:
    e = explanations.different_work()
    time = plots.clock(e)
    assert time
    before, after = stacks.stacks(e, time, stacks.colours(e))
    assert before.scale == after.scale
    for stack, rate in ((before, 21.5), (after, 12.8)):
        tops = [value_at(pair, time, stack.scale)[1] for pair in stack.layers[-1].points.split()]
        assert sorted(tops)[len(tops) // 2] == pytest.approx(1000 / rate, rel=0.03)
        for below, above in pairwise(stack.layers):
            lower, upper = ([int(p.split(",")[1]) for p in layer.points.split()] for layer in (below, above))
            assert all(high <= low for low, high in zip(lower, upper, strict=True))


def test_of_a_group_one_run_stands_out_and_shifts_name_their_run() -> None:
    e = explanations.groups(1.3)
    time = plots.clock(e)
    assert time
    plot = plots.throughput(e, time)
    assert plot
    assert [line.faint for line in plot.lines].count(False) == 2
    assert not plot.lines[-1].faint
    (flag,) = plot.flags
    assert flag.text.startswith("after, b3, from")
    assert "GPU 3 began to throttle" in flag.text


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(-1e6, 1e6)), min_size=1, max_size=300), st.integers(1, 100))
def test_thinning_keeps_few_points_between_the_extremes(values: list[tuple[float, float]], most: int) -> None:
    kept = plots.thin(values, most)
    assert 1 <= len(kept) <= most
    assert all(min(v for _, v in values) - 1e-6 <= v <= max(v for _, v in values) + 1e-6 for _, v in kept)
    if len(values) <= most:
        assert kept == values


@given(st.floats(1e-6, 1e9), st.floats(0, 0.9))
def test_a_scale_has_few_round_ticks_inside_it(high: float, part: float) -> None:
    scale = plots.scale_to(high, part * high)
    assert 1 <= len(scale.ticks) <= 5
    assert all(0 <= tick.at <= 100 for tick in scale.ticks)


def test_devices_share_a_lane_and_what_differs_most_comes_first() -> None:
    e = explanations.dense_fallback()
    slow = e.after.runs[0]
    halved = tuple(
        replace(lane, values=tuple(v / 2 for v in lane.values)) if lane.name == "gpu.3.clock_sm_mhz" else lane
        for lane in slow.lanes
    )
    e = replace(e, after=replace(e.after, runs=(replace(slow, lanes=halved),)))
    time = plots.clock(e)
    assert time
    found = lanes.strips(e, time)
    assert (found[0].title, found[0].unit, len(found[0].lines)) == ("GPU clock sm", "MHz", 16)
    assert {strip.unit for strip in found} == {"MHz", "W", "GB", "%", "MB/s"}
    (before, after) = found[0].rows
    assert float(after[2]) < 0.6 * float(before[2])  # the lowest value shows the one card
    assert sum(len(line.pieces[0].split()) for strip in found for line in strip.lines) <= lanes.POINTS


def test_a_ruler_has_no_room_for_what_is_not_a_ratio() -> None:
    def of(low: float, value: float, high: float) -> page.Ruler | None:
        return page.ruler(Judgement("throughput", "UNKNOWN", "none", Interval(value, low, high), margin=0.02))

    assert of(0.0, 0.5, 0.6) is None
    assert of(0.9, 1.0, float("inf")) is None
    found = of(0.5, 0.6, 0.7)
    assert found
    assert 0 < found.low < found.value < found.high < found.margin_low < found.same < found.margin_high < 100


# --- the facts -------------------------------------------------------------------------------------------


def sides(before: dict[str, Value], *after: dict[str, Value]) -> Explanation:
    def run(known: dict[str, Value]) -> Measured:
        return replace(explanations.nothing().before.runs[0], facts=known)

    return replace(explanations.nothing(), before=Side("a", (run(before),)), after=Side("b", tuple(map(run, after))))


def test_the_fact_table_tells_what_differs_what_varies_and_what_is_not_known() -> None:
    table = facts.fact_table(
        sides(
            {"workload.a": 1, "workload.b": True, "execution.c": "x", "state.bytes": 353_000_000, "execution.d": ""},
            {"workload.a": 1, "workload.b": 1, "execution.c": "x", "execution.d": ""},
            {"workload.a": 1, "workload.b": 1, "execution.c": "y", "execution.d": ""},
        )
    )
    assert [(f.name, f.before, f.after) for f in table.rows if f.differs] == [
        ("workload.b", "true", "1"),
        ("execution.c", "x", "x, y"),
        ("state.bytes", "353 MB", ""),
    ]
    assert [(f.name, f.before) for f in table.rows if not f.differs] == [("workload.a", "1"), ("execution.d", '""')]
    assert table.kinds == ("workload", "execution", "state")


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


# --- anybody can read it ---------------------------------------------------------------------------------

STYLE = (Path(page.__file__).parent / "style.css").read_text()
PALETTES = {
    "light": STYLE[: STYLE.index("prefers-color-scheme: dark")],
    "dark": STYLE[STYLE.index("prefers-color-scheme: dark") :].split("@media print")[0],
    "print": STYLE[STYLE.index("@media print") :],
}


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.2 defines it."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_wcag_does() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", PALETTES)
@pytest.mark.parametrize("name", ["text", "muted", "before", "after", "worse", "better", "link"])
def test_every_text_can_be_read(scheme: str, name: str) -> None:
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", PALETTES[scheme]))
    for ground in ("ground", "raised"):
        assert contrast(colours[name], colours[ground]) >= 4.5, (scheme, name, ground)


@every
def test_pictures_have_words_and_tables_heads(make: explanations.Make) -> None:
    found = paged(make())
    for svg in found.all("svg"):
        assert svg.attributes.get("aria-label") or svg.attributes.get("aria-hidden") == "true"
    labels = {said(tag) for tag in found.all("label")}
    assert {"moment", "only what differs"} <= labels or not found.all("section", "clock")
    assert len(found.all("h1")) == len(found.all("main")) == 1
    assert found.all("html")[0].attributes["lang"] == "en"
    for th in found.all("th"):
        assert th.attributes["scope"] in ("row", "col")


def test_no_meaning_is_in_colour_alone() -> None:
    thin, thick = (
        re.search(rule, STYLE) for rule in (r"\.line \{[^}]*width: ([\d.]+)", r"\.line\.after \{ [^}]*: ([\d.]+)")
    )
    assert thin
    assert thick
    assert float(thick[1]) >= 2 * float(thin[1])  # the two sides also differ in how thick they are drawn
    changes = [row[1] for row in rows_of(paged(explanations.different_work()), "waterfall")[2:-1]]
    assert all(change[0] in "+-0" for change in changes)


def test_a_ruler_has_room_for_a_margin_of_more_than_all() -> None:
    """A first step of half a second may come two seconds later and count as the same; margins are factors."""
    ruler = page.ruler(Judgement("first step", "SAME", "assumed", Interval(1.2, 0.8, 1.8), margin=2.2))
    assert ruler is not None
    assert 0 < ruler.margin_low < ruler.low < ruler.same < ruler.value < ruler.high < ruler.margin_high < 100
    assert ruler.margin_low + ruler.margin_high == pytest.approx(2 * ruler.same, abs=0.1)
