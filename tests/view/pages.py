"""A page taken apart: its tags, their text, and the cells of its tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from harness.comparison import Explanation
from harness.view.report import page

VOID = {"meta", "input", "br", "img", "link", "hr", "base", "embed"}
EMPTY_SVG = {"rect", "line", "polyline", "polygon"}


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
