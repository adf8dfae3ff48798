"""Each recipe is complete, torch-free and overridable."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from experiments.recipes import RECIPES
from harness.records import KINDS

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_complete_spec(name: str) -> None:
    spec = RECIPES[name]()
    assert spec.recipe == name
    assert spec.summary
    assert spec.argv[0] == "python"
    assert spec.devices
    assert spec.kinds.keys() == spec.config.keys()
    assert set(spec.kinds.values()) <= set(KINDS)
    assert "workload" in spec.kinds.values()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_an_environment_that_exists(name: str) -> None:
    tables = tomllib.loads((ROOT / "envs" / "envs.toml").read_text())
    names = tables.get("environments", tables).keys()
    assert RECIPES[name]().env in names


def test_recipes_are_read_without_torch_and_quickly() -> None:
    code = "import sys, experiments.recipes; print('torch' in sys.modules, 'numpy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


def test_the_box_is_five_targets_and_three_drafters() -> None:
    spec = RECIPES["qwen3_6_27b_8gpu"]()
    roles = [device.split(":")[0] for device in spec.devices]
    assert (roles.count("target"), roles.count("drafter")) == (5, 3)
    assert len(set(spec.devices)) == 8 == spec.needs_gpus
