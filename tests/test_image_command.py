"""``harness run --image`` and ``harness rerun`` as a person meets them, with a stand-in for the engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.cli import main
from harness.places import places
from harness.records import Value
from harness.run.folder import RunFolder
from tests import samples
from tests.run.engines import DIGEST, LABELS, FakeEngine

Capture = pytest.CaptureFixture[str]
RUN = "20261129-100000-toy-aaaa"


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """A podman with an image of this project, one of another environment, and one of something else."""
    engine = FakeEngine.install("podman", tmp_path)
    engine.has({"dflash:cpu": LABELS, "dflash:cu130": {**LABELS, "dflash.environment": "cu130"}, "postgres": None})
    monkeypatch.setenv("PATH", str(engine.bin))
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("HARNESS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/store/mlflow.db")
    return engine


def handed_over(engine: FakeEngine) -> list[str]:
    """What the harness in the image was asked."""
    (line,) = engine.asked("run")
    return line[line.index(DIGEST) + 1 :]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--image", "nosuch"], "podman has no image nosuch; build it: nox -s image -- cpu"),
        (["toy", "--image", "nosuch"], "podman has no image nosuch; build it: nox -s image"),
        (["tiny", "--image", "dflash:cu130"], "tiny needs the environment cpu, and dflash:cu130 has cu130; build"),
        (["tiny", "--image", "postgres"], "postgres is not an image of this project: it has no label "),
        (["tinny", "--image", "dflash:cpu"], "unknown recipe tinny: did you mean tiny?"),
        (["tiny", "trian.steps=1", "--image", "dflash:cpu"], "unknown setting trian.steps"),
        (["qwen3_6_27b_8gpu", "--image", "dflash:cu130"], "qwen3_6_27b_8gpu needs 8 RTX PRO 6000 GPUs"),
        (["--image", "dflash:cpu", "--", "true"], "--image runs a recipe"),
    ],
)
def test_bad_input_is_one_line_and_no_container_is_started(
    engine: FakeEngine, arguments: list[str], message: str, capfd: Capture
) -> None:
    assert main(["run", *arguments]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert engine.asked("run") == []
    assert not places().runs.exists()


def test_the_request_and_its_options_are_handed_over(engine: FakeEngine, capfd: Capture) -> None:
    engine.inside("print('from inside')")
    options = ["--cold", "--no-verify", "--json", "--tag", "good", "--tag", "late"]
    assert main(["run", "tiny", "train.steps=3", "eval.prompts=1", "--image", "dflash:cpu", *options]) == 0
    assert capfd.readouterr().out == "from inside\n"
    assert handed_over(engine) == ["run", "tiny", "train.steps=3", "eval.prompts=1", *options]


def test_without_a_recipe_the_one_that_fits_this_machine_is_handed_over(engine: FakeEngine, capfd: Capture) -> None:
    assert main(["run", "train.steps=3", "--image", "dflash:cpu"]) == 0
    assert handed_over(engine) == ["run", "tiny", "train.steps=3"]
    assert "no recipe named: tiny, because" in capfd.readouterr().err


def test_a_plan_is_made_in_the_image_and_needs_no_gpus(engine: FakeEngine) -> None:
    assert main(["run", "qwen3_6_27b_8gpu", "--plan", "--image", "dflash:cu130"]) == 0
    assert handed_over(engine) == ["run", "qwen3_6_27b_8gpu", "--plan"]


def test_the_folders_of_a_run_are_there_before_the_container(engine: FakeEngine, tmp_path: Path) -> None:
    assert main(["run", "toy", "--image", "dflash:cpu"]) == 0
    mounted = [word for word in engine.asked("run")[0] if word.startswith("--mount")]
    assert f"--mount=type=bind,source={tmp_path}/store,target={tmp_path}/store" in mounted  # MLflow's own
    assert all(Path(word.partition(",source=")[2].partition(",")[0]).is_dir() for word in mounted)


def recorded(runs: Path, facts: Mapping[str, Value]) -> RunFolder:
    """A run that was made in an image."""
    folder = samples.recorded(runs, RUN, recipe="toy", config={})
    told = folder.read_json("fingerprint.json")
    assert told is not None
    folder.write_json("fingerprint.json", {**told, "facts": {**told["facts"], **facts}})
    return folder


IN_IMAGE = {"environment.image.tag": "dflash:then", "environment.image.digest": DIGEST}


def test_a_run_that_was_made_in_an_image_is_repeated_in_the_same_one(engine: FakeEngine, capfd: Capture) -> None:
    recorded(places().runs, IN_IMAGE)
    assert main(["rerun", "@1", "--cold"]) == 0
    assert handed_over(engine) == ["rerun", RUN, "--cold"]
    assert "it was made in the image dflash:then: it runs in the same one, sha256:abab" in capfd.readouterr().err


def test_a_run_from_elsewhere_is_shown_to_the_container(engine: FakeEngine, tmp_path: Path) -> None:
    folder = recorded(tmp_path / "copied", IN_IMAGE)
    assert main(["rerun", str(folder.path)]) == 0
    assert handed_over(engine) == ["rerun", str(folder.path)]
    assert f"--mount=type=bind,source={folder.path},target={folder.path},readonly" in engine.asked("run")[0]


def test_a_run_whose_image_is_gone_is_one_line(engine: FakeEngine, capfd: Capture) -> None:
    recorded(places().runs, {**IN_IMAGE, "environment.image.digest": "sha256:" + "cd" * 32})
    assert main(["rerun", RUN]) == 2
    printed = capfd.readouterr().err
    assert printed == (
        f"error: podman has no image dflash:then (sha256:cdcdcdcdcdcd); run {RUN} was made in it; bring it here, "
        "or run the recipe in another: nox -s image -- cpu, and harness run toy --image TAG\n"
    )
    assert engine.asked("run") == []
