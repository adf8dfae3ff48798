"""The real MLflow UI, in a real browser, on a store with two mirrored runs: both are in the compare view."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from experiments.toy import Slow, ToyConfig
from harness.config import flatten
from harness.mirror.follower import mirror_once
from harness.mirror.ui import served
from harness.places import Places
from harness.run.folder import RunFolder
from harness.run.summary import summarise
from tests import samples
from tests.browsers import chromium

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
RUNS = ("20261129-172855-toy-3f2a", "20261129-175102-toy-91cc")
PATIENCE = 120  # seconds for a page to come up on a slow, busy machine
SIZE = (1400, 1150)


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Two runs of the toy trainer, the second with a target that slows down half-way, in an embedded store."""
    folder = tmp_path_factory.mktemp("ui")
    places = Places(root=ROOT, state=folder / "state", runs=folder / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        for run_id, slow in zip(RUNS, (0.0, 0.008), strict=True):
            run = record_toy(places.runs, run_id, ToyConfig(steps=160, slow=Slow(target=slow, after=80)))
            assert mirror_once(run.path, places).status == "mirrored"
    return places


def record_toy(runs: Path, run_id: str, config: ToyConfig) -> RunFolder:
    """A run folder with what the real toy trainer says in it."""
    folder = samples.begin(runs, run_id, recipe="toy", config=flatten(config))
    variables = {"HARNESS_RUN": str(folder.path), "HARNESS_T0": str(time.monotonic()), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "experiments.toy"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True)
    samples.end(folder, outcome=summarise(folder.events()))
    return folder


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    with chromium(tmp_path / "profile", SIZE) as chrome:
        yield chrome


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

    for label in ("Close", "Toggle sidebar"):
        browser.find_element(By.CSS_SELECTOR, f"button[aria-label='{label}']").click()
    search = browser.find_element(By.CSS_SELECTOR, "input[placeholder='Search metric charts']")
    search.send_keys("throughput/ktok_s|phase/(target|forward|backward)")
    time.sleep(5)  # the charts draw themselves in
    assert browser.save_screenshot(path)


def test_both_runs_are_in_the_compare_view(where: Places, browser: Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    from selenium.webdriver.common.by import By

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with served(where, port=0) as ui:
        browser.get(ui.page)
        wait_for(browser, "toy")
        browser.get(f"{ui.url}/#/experiments/1/runs")
        wait_for(browser, *RUNS)
        browser.find_element(By.CSS_SELECTOR, "input[aria-label='Select all runs']").click()
        click(browser, "Compare")
        # The metrics are a list that is drawn as it is scrolled: its first names are on the page.
        wait_for(browser, "Comparing 2 Runs", *RUNS, "slow.target", "cache/inductor_mb", "eval/slope_error")

        browser.get(f"{ui.url}/#/experiments/1/runs?compareRunsMode=CHART")
        wait_for(browser, *RUNS, "throughput", "phase", "steady", "System metrics")
        path = os.environ.get("UI_PICTURE")
        if path:
            take_picture(browser, path)
