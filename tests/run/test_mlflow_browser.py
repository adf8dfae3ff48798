"""The real MLflow UI, in a real browser, on a store with two mirrored runs: both are in the compare view."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.places import Places
from harness.run.mirror import mirror_once
from harness.run.ui import served
from tests import samples

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
RUNS = ("20261129-172855-tiny-3f2a", "20261129-175102-tiny-91cc")
PATIENCE = 120  # seconds for a page to come up on a slow, busy machine
SIZE = (1500, 1100)


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Two runs, one 1.3 times as fast, mirrored to an embedded store."""
    folder = tmp_path_factory.mktemp("ui")
    places = Places(root=ROOT, state=folder / "state", runs=folder / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        for run_id, speed, batch in zip(RUNS, (1.0, 1.3), (8, 16), strict=True):
            config = {**samples.CONFIG, "train.batch": batch}
            run = samples.recorded(places.runs, run_id, speed=speed, config=config)
            assert mirror_once(run.path, places).status == "mirrored"
    return places


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        message = "no chromium and chromedriver here: apt-get install -y chromium chromium-driver"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(message)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={SIZE[0]},{SIZE[1]}",
    ):
        options.add_argument(flag)
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        yield chrome
    finally:
        chrome.quit()


def wait_for(browser: Chrome, *words: str) -> str:
    """The page's text once it has all of ``words``."""
    deadline = time.monotonic() + PATIENCE
    while True:
        text = str(browser.execute_script("return document.body ? document.body.innerText : ''"))
        missing = [word for word in words if word not in text]
        if not missing:
            return text
        assert time.monotonic() < deadline, f"{missing} did not appear; the page says: {text[:3000]}"
        time.sleep(0.5)


def click(browser: Chrome, words: str) -> None:
    """Press the button or link that says ``words``, once it is there."""
    wait_for(browser, words)
    pressed = browser.execute_script(
        """const all = [...document.querySelectorAll('button, a, [role=tab], [role=radio], label')];
        const found = all.find(e => e.innerText.trim() === arguments[0] && !e.disabled);
        if (found) found.click();
        return Boolean(found)""",
        words,
    )
    assert pressed, f"nothing that can be pressed says {words!r}"


def take_picture(browser: Chrome, path: str) -> None:
    """The README's picture is made by this test: the charts of both runs, without the panels beside them."""
    from selenium.webdriver.common.by import By

    browser.execute_script(
        """let panel = [...document.querySelectorAll('*')].find(e => e.innerText === 'MLflow Assistant');
        while (panel && panel.querySelectorAll('button').length < 3) panel = panel.parentElement;
        if (panel) panel.querySelectorAll('button')[2].click();
        document.querySelector('button[aria-label="Toggle sidebar"]').click()"""
    )
    search = browser.find_element(By.CSS_SELECTOR, "input[placeholder='Search metric charts']")
    search.send_keys("ktok_s$|accept|loss|phase/(target|forward|backward)|inductor_mb|cpu_use")
    time.sleep(5)  # the charts draw themselves in
    assert browser.save_screenshot(path)


def test_both_runs_are_in_the_compare_view(where: Places, browser: Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    from selenium.webdriver.common.by import By

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with served(where, port=0) as ui:
        browser.get(f"{ui.url}/#/experiments/1/runs")
        wait_for(browser, *RUNS)
        browser.find_element(By.CSS_SELECTOR, "input[aria-label='Select all runs']").click()
        click(browser, "Compare")
        # The metrics are a list that is drawn as it is scrolled: its first names are on the page.
        wait_for(
            browser, "Comparing 2 Runs", *RUNS, "train.batch", "accept_length", "baseline/ngram", "cache/inductor_mb"
        )

        browser.get(f"{ui.url}/#/experiments/1/runs?compareRunsMode=CHART")
        wait_for(browser, *RUNS, "throughput", "phase", "System metrics")
        path = os.environ.get("UI_PICTURE")
        if path:
            take_picture(browser, path)
