"""The page in a real browser, where MLflow puts it: in a frame that may run scripts and is of no origin."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.view.report.page import report
from tests import explanations
from tests.browsers import chromium

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile"), (1280, 1000)) as chrome:
        yield chrome


def show(browser: Chrome, folder: Path, make: explanations.Make, framed: bool = False) -> None:
    """The page itself, or in a frame that is sandboxed as MLflow's is; the driver looks into it."""
    page = report(make())
    if framed:
        frame = f'<iframe sandbox="allow-scripts" width="1200" height="900" srcdoc="{html.escape(page)}"></iframe>'
        page = f"<!doctype html><title>outer</title>{frame}"
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    browser.switch_to.default_content()
    complaints(browser)  # those of the page before
    browser.get(path.as_uri())
    if framed:
        browser.switch_to.frame(0)


def run(browser: Chrome, script: str) -> Any:
    return browser.execute_script(script)


def complaints(browser: Chrome) -> list[str]:
    return [str(entry["message"]) for entry in browser.get_log("browser")]  # type: ignore[no-untyped-call]


def shown_facts(browser: Chrome) -> list[str]:
    """The names of the facts that can be seen."""
    found = run(
        browser,
        "return [...document.querySelectorAll('.facts tbody tr')].filter(r => r.checkVisibility())"
        ".map(r => r.cells[0].innerText)",
    )
    return [str(name) for name in found]


def ground(browser: Chrome) -> str:
    return str(run(browser, "return getComputedStyle(document.body).backgroundColor"))


def media(browser: Chrome, kind: str = "", scheme: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})


def test_a_sandboxed_frame_shows_all_of_it(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, explanations.dense_fallback, framed=True)
    assert run(browser, "return document.querySelector('h1').innerText").startswith("5.0 times slower")
    assert run(browser, "return self.origin") == "null"
    assert shown_facts(browser) == [
        "environment.package.torch",
        "code.patch.sha256",
        "observed.dense_fallback",
        "context.host",
    ]
    assert complaints(browser) == []


def test_hostile_text_starts_nothing(browser: Chrome, tmp_path: Path) -> None:
    for framed in (False, True):
        show(browser, tmp_path, explanations.hostile, framed)
        assert "pwned" not in browser.title.split(":")[0]
        assert run(browser, "return document.querySelectorAll('img').length") == 0
        assert run(browser, "return document.scripts.length") == 1
        assert complaints(browser) == []
    show(browser, tmp_path, explanations.hostile)
    run(
        browser,
        "const s = document.createElement('script'); s.textContent = 'document.title = 1'; document.body.append(s)",
    )
    assert browser.title != "1"  # even a script that got in does not run
    assert any("Content Security Policy" in line for line in complaints(browser))


def test_the_filters_work_by_keyboard(browser: Chrome, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    show(browser, tmp_path, explanations.dense_fallback, framed=True)
    total = int(run(browser, "return document.querySelectorAll('.facts tbody tr').length"))
    text, differs = browser.find_element(By.ID, "text"), browser.find_element(By.ID, "differs")
    text.send_keys("package torch")
    assert shown_facts(browser) == ["environment.package.torch"]
    text.send_keys(Keys.TAB)
    browser.switch_to.active_element.send_keys(Keys.SPACE)  # the next stop is "only what differs"
    assert not differs.is_selected()
    text.clear()
    text.send_keys("x", Keys.BACKSPACE)
    assert len(shown_facts(browser)) == total
    assert browser.find_element(By.ID, "count").text == f"{total} of {total} facts"
    browser.find_element(By.ID, "kind").send_keys("workload")
    assert {name.split(".")[0] for name in shown_facts(browser)} == {"workload"}


def test_one_moment_runs_through_all_plots(browser: Chrome, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    show(browser, tmp_path, explanations.different_work, framed=True)
    slider = browser.find_element(By.ID, "moment")
    run(browser, "const s = document.getElementById('moment'); s.value = 300; s.dispatchEvent(new Event('input'))")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert slider.get_attribute("value") == "301"
    said = str(slider.get_attribute("aria-valuetext"))
    before, after = (float(part.split()[1]) for part in said.split(", ")[1:])
    assert before == pytest.approx(21.5, rel=0.1)
    assert after == pytest.approx(12.8, rel=0.1)
    cursors = run(browser, "return [...document.querySelectorAll('.cursor')].map(c => c.getAttribute('x1'))")
    assert len(cursors) > 5
    assert set(cursors) == {"3010"}
    layers = run(
        browser,
        "return [...document.querySelectorAll('figure.plot')].map(f => [...f.querySelectorAll("
        "'[data-for]')].map(b => Number(b.innerText)).reduce((a, b) => a + b, 0))",
    )
    assert layers[1] == pytest.approx(46.5, rel=0.1)  # the phases at that moment add up
    assert layers[2] == pytest.approx(78.1, rel=0.1)


def test_it_is_dark_where_the_reader_is(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, explanations.groups)
    media(browser, scheme="dark")
    assert ground(browser) == "rgb(20, 23, 27)"
    media(browser, scheme="light")
    assert ground(browser) == "rgb(255, 255, 255)"
    media(browser)


def test_paper_has_everything(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, explanations.dense_fallback)
    total = int(run(browser, "return document.querySelectorAll('.facts tbody tr').length"))
    hidden = (
        "return [...document.querySelectorAll('details *, .facts tr')].filter(e => !e.closest('summary')"
        " && !e.checkVisibility()).length"
    )
    assert run(browser, hidden) > 0
    media(browser, "print", "dark")
    assert run(browser, hidden) == 0
    assert len(shown_facts(browser)) == total
    assert ground(browser) == "rgb(255, 255, 255)"  # paper is white, whatever the screen is
    media(browser)
    run(
        browser,
        "addEventListener('beforeprint', () => { "
        "window.shut = document.querySelectorAll('details:not([open])').length })",
    )
    paper = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert paper.startswith(b"%PDF")
    assert run(browser, "return window.shut") == 0
    assert run(browser, "return document.querySelectorAll('details[open]').length") == 0


@pytest.mark.parametrize("width", [360, 768, 1600])
@pytest.mark.parametrize("name", ["crashed", "hostile", "different work"])
def test_nothing_is_wider_than_the_screen(browser: Chrome, tmp_path: Path, width: int, name: str) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        show(browser, tmp_path, explanations.ALL[name])
        assert run(browser, "return document.documentElement.scrollWidth") <= width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("width", [420, 1100, 1200])
def test_the_waterfalls_keep_their_names_whole_and_scroll_only_where_they_must(
    browser: Chrome, tmp_path: Path, width: int
) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        show(browser, tmp_path, explanations.dense_fallback)
        rows = "[...document.querySelectorAll('.waterfall tbody tr')].map(row => row.getBoundingClientRect().height)"
        heights = run(browser, f"return {rows}")
        assert heights
        assert max(heights) < 2 * min(heights)  # two lines would be a name that is broken
        boxes = "[...document.querySelectorAll('.scroll:has(.waterfall)')]"
        assert width < 1000 or not run(browser, f"return {boxes}.filter(b => b.scrollWidth > b.clientWidth).length")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_without_scripts_everything_is_there(browser: Chrome, tmp_path: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, tmp_path, explanations.dense_fallback)
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        assert not run(browser, "return document.querySelector('.filters').checkVisibility()")
        assert len(shown_facts(browser)) > 100
        assert run(browser, "return document.querySelector('polyline').getBoundingClientRect().width") > 50
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
