"""Each recipe is complete, torch-free and overridable."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from experiments.dflash.config import DFlashConfig
from experiments.recipes import QWEN3_6_27B_AT_TINY, RECIPES, SCALES, TINY
from harness.config import flatten, override, unflatten
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
    assert spec.env == "cu130"


def test_the_box_at_tiny_s_scale_has_the_same_workers_and_needs_no_gpu() -> None:
    full, small = RECIPES["qwen3_6_27b_8gpu"](), RECIPES["qwen3_6_27b_8gpu"](QWEN3_6_27B_AT_TINY)
    assert [d.replace("cuda", "cpu") for d in full.devices] == list(small.devices)
    assert (small.env, small.needs_gpus, small.needs_gpu_name, small.plan_only) == ("cpu", 0, "", "")
    assert full.plan_only  # nothing reads those weights yet
    same = {"target", "model", "data"}
    tiny = flatten(TINY)
    assert all(small.config[key] == tiny[key] for key in tiny if key.split(".")[0] in same)


@pytest.mark.parametrize(("name", "scale"), [(name, scale) for name, scales in SCALES.items() for scale in scales])
def test_a_scale_is_a_configuration_of_its_recipe_and_comes_back_from_its_record(name: str, scale: str) -> None:
    spec = RECIPES[name](SCALES[name][scale])
    assert spec.recipe == name
    assert RECIPES[name](unflatten(type(SCALES[name][scale]), spec.config)) == spec


THREADS = ["topology.kind=threads", "topology.targets=cuda:0,cuda:1", "topology.drafters=cuda:6"]


@pytest.mark.parametrize(
    ("settings", "env", "devices", "gpus"),
    [
        ([], "cpu", ["target+drafter:cpu"], 0),
        (["device=cpu"], "cpu", ["target+drafter:cpu"], 0),
        (["device=cuda"], "cu130", ["target+drafter:cuda"], 1),
        (["device=cuda:3"], "cu130", ["target+drafter:cuda:3"], 4),  # a GPU that is not there is not enough
        (THREADS, "cu130", ["target:cuda:0", "target:cuda:1", "drafter:cuda:6"], 7),
        (
            [word.replace("cuda", "cpu") for word in THREADS],
            "cpu",
            ["target:cpu:0", "target:cpu:1", "drafter:cpu:6"],
            0,
        ),
        (
            [*THREADS, "topology.kind=processes", "topology.nodes=2", "topology.rendezvous=one:29500"],
            "cu130",
            ["target:cuda:0", "target:cuda:1", "drafter:cuda:6"],  # of each machine
            7,
        ),
    ],
)
def test_devices_gpus_and_environment_follow_from_the_topology(
    settings: list[str], env: str, devices: list[str], gpus: int
) -> None:
    spec = RECIPES["tiny"](override(DFlashConfig(), settings))
    assert (spec.env, list(spec.devices), spec.needs_gpus) == (env, devices, gpus)


def test_flex_attention_is_refused_where_no_device_is_a_gpu_and_taken_where_one_is() -> None:
    with pytest.raises(ValueError, match="attention=flex needs CUDA"):
        RECIPES["tiny"](override(DFlashConfig(), ["attention=flex"]))
    assert RECIPES["tiny"](override(DFlashConfig(), ["attention=flex", "device=cuda:0"])).env == "cu130"
    assert RECIPES["tiny"](override(DFlashConfig(), ["attention=flex", *THREADS])).env == "cu130"
