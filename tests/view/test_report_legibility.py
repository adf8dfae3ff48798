"""Anybody can read the page: by contrast, by words beside pictures, and without colour."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.view.report import page
from tests import explanations
from tests.explanations import every
from tests.view.pages import paged, rows_of, said

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
