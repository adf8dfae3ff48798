"""From a recipe's name to what it asks for. The one place where the harness reaches the experiments, by name."""

from __future__ import annotations

import difflib
import importlib
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.config import override
from harness.errors import HarnessError, UsageError
from harness.records import RunSpec

Recipe = Callable[..., RunSpec]

SCALE = "scale"
"""The key that chooses among a recipe's configurations. It is no setting: a run records the settings it stands for."""


def recipes() -> Mapping[str, Recipe]:
    """The recipes by name. Each takes one parameter, its configuration, whose default is the recipe's own."""
    module = _module()
    found: Mapping[str, Recipe] = module.RECIPES
    return found


def _module() -> Any:
    """The recipes' module. Raises HarnessError, in one line, where the code there does not even import."""
    try:
        return importlib.import_module("experiments.recipes")
    except Exception as error:  # whatever a person's own code may raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = (
            f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else f"{where.filename}:{where.lineno}"
        )
        raise HarnessError(f"the recipes cannot be imported: {type(error).__name__}: {error} ({place})") from error


def resolve(name: str, assignments: Sequence[str] = ()) -> RunSpec:
    """The recipe ``name`` with each ``key=value`` applied; ``scale=NAME`` among them says to which configuration.

    Raises UsageError, in one line that names what would be right, for an unknown recipe, scale or setting, or a wrong
    value.
    """
    known = recipes()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"the recipes are {', '.join(known)}"
        raise UsageError(f"unknown recipe {name}: {hint}")
    start, settings = _start(name, assignments)
    try:
        return known[name](override(start, settings))
    except ValueError as error:
        raise UsageError(str(error)) from None


def default_recipe() -> str:
    """The recipe that every machine can run."""
    name: str = _module().DEFAULT
    return name


def scales(name: str) -> Mapping[str, Any]:
    """The configurations of the recipe ``name``, beside its own, that ``scale=NAME`` starts from."""
    declared: Mapping[str, Mapping[str, Any]] = _module().SCALES
    return declared.get(name, {})


def _start(name: str, assignments: Sequence[str]) -> tuple[Any, list[str]]:
    """The configuration to start from, and the assignments that are its settings. The last of two scales counts."""
    chosen = [a.partition("=")[2].strip() for a in assignments if a.partition("=")[0].strip() == SCALE]
    if not chosen:
        return default_config(recipes()[name]), list(assignments)
    there = scales(name)
    if not there:
        raise UsageError(f"{SCALE}={chosen[-1]}: {name} has one scale only, its own")
    if chosen[-1] not in there:
        raise UsageError(
            f"there is no {SCALE}={chosen[-1]}: {name} has its own and {SCALE}={f', {SCALE}='.join(there)}"
        )
    return there[chosen[-1]], [a for a in assignments if a.partition("=")[0].strip() != SCALE]


def default_config(recipe: Recipe) -> Any:
    """The configuration that a recipe is for unless it is given another."""
    (parameter,) = inspect.signature(recipe).parameters.values()
    return parameter.default
