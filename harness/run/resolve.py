"""From a recipe's name to what it asks for. The one place where the harness reaches the experiments, by name."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.config import override
from harness.errors import UsageError
from harness.records import RunSpec
from harness.run.prepare import check_devices

Recipe = Callable[..., RunSpec]


def recipes() -> Mapping[str, Recipe]:
    """The recipes by name. Each takes one parameter, its configuration, whose default is the recipe's own."""
    module = importlib.import_module("experiments.recipes")
    found: Mapping[str, Recipe] = module.RECIPES
    return found


def resolve(name: str, assignments: Sequence[str] = ()) -> RunSpec:
    """The recipe ``name`` with each ``key=value`` applied.

    Raises UsageError, in one line that names what would be right, for an unknown recipe or setting, or a wrong value.
    """
    known = recipes()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"the recipes are {', '.join(known)}"
        raise UsageError(f"unknown recipe {name}: {hint}")
    recipe = known[name]
    return recipe(override(default_config(recipe), assignments))


def choose_recipe() -> tuple[str, str]:
    """The recipe for a request that names none, and why: one made for this machine's GPUs, or else the small one."""
    refused = []
    for name, recipe in recipes().items():
        spec = recipe()
        if spec.needs_gpus:
            try:
                check_devices(spec)
            except UsageError as error:
                refused.append(str(error).partition(";")[0])
            else:
                return name, f"its {spec.needs_gpus} {spec.needs_gpu_name} GPUs are here"
    default: str = importlib.import_module("experiments.recipes").DEFAULT
    return default, "; ".join(refused)


def default_config(recipe: Recipe) -> Any:
    """The configuration that a recipe is for unless it is given another."""
    (parameter,) = inspect.signature(recipe).parameters.values()
    return parameter.default
