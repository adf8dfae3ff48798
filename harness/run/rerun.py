"""A recorded run again, from its folder alone: its lock, its code, its settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config import override, unflatten
from harness.errors import UsageError
from harness.pin import environments
from harness.pin.aside import Say, say_on_stderr
from harness.pin.code import read_code
from harness.pin.locks import read_lock
from harness.pin.restore import restored
from harness.pin.secrets import HIDDEN
from harness.pin.venvs import data_folder
from harness.places import Places
from harness.records import IMPORTED, BuiltEnvironment, Run, RunSpec, Value
from harness.run.orders import built, built_from_lock, found_environment
from harness.run.prepare import check_startable
from harness.run.resolve import SCALE, default_config, recipes
from harness.run.runner import Order


@dataclass(frozen=True)
class Rerun:
    """The order that repeats a run, and what a person should know of it."""

    order: Order
    remarks: tuple[str, ...]


def plan_rerun(
    run: Run, assignments: Sequence[str], where: Places, cold: bool = False, say: Say = say_on_stderr
) -> Rerun:
    """The order that repeats ``run``, with each ``key=value`` applied to its recorded settings.

    Raises UsageError where the record is not enough or an override is wrong; HarnessError and EnvironmentFault where
    the code or the environment cannot be had again.
    """
    if source := _fact(run, IMPORTED):
        raise UsageError(f"run {run.id} was imported from {source}: only its record is here, so it cannot run again")
    spec = changed(run.spec, assignments)
    if HIDDEN in " ".join(spec.argv):
        raise UsageError(
            f"run {run.id} had a secret among its arguments, which is not recorded: run the command yourself"
        )
    check_startable(spec)
    environment, about_environment = _environment(run, where, say)
    code_folder, about_code = _code(run, where)
    data = data_folder(where, say) if spec.data else None
    return Rerun(Order(spec, environment, code_folder, data, cold), (*about_environment, *about_code))


def changed(spec: RunSpec, assignments: Sequence[str]) -> RunSpec:
    """``spec`` with its recorded settings overridden, as its recipe makes it of them.

    Raises UsageError for a command without settings, a recipe that is gone, or settings that the recipe's current
    version does not have.
    """
    if not assignments:
        return spec
    if not spec.recipe:
        raise UsageError(f"{assignments[0]}: a command has no settings to override; it runs again as it was")
    if spec.recipe not in recipes():
        raise UsageError(f"the recipe {spec.recipe} is gone: its run can be repeated as it was, without overrides")
    if scale := next((a for a in assignments if a.partition("=")[0].strip() == SCALE), ""):
        raise UsageError(f"{scale}: a run keeps its settings' scale; for another: harness run {spec.recipe} {scale}")
    recipe = recipes()[spec.recipe]
    return recipe(override(unflatten(type(default_config(recipe)), spec.config), assignments))


def _environment(run: Run, where: Places, say: Say) -> tuple[BuiltEnvironment, list[str]]:
    """The environment of the recorded lock: the current one where that is the same, or else built from the folder."""
    if not run.spec.env:
        return found_environment(run.spec.argv), ["its environment was not locked: it runs with the Python found now"]
    recorded = Path(run.folder) / "lock.txt"
    if not recorded.exists():
        raise UsageError(f"{run.folder} has no lock.txt, so its environment is not known")
    version = ".".join(str(_fact(run, "environment.python")).split(".")[:2])
    table = environments.environment(run.spec.env, where)
    digest = read_lock(recorded, table.name, (version,)).digest
    if version in table.python and environments.lock_for(table, version, where).digest == digest:
        return built(table.name, where, version, say), []
    under = where.state / "locks" / digest[:12]
    environment = built_from_lock(table.name, recorded, version, where, under, say)
    return environment, [f"the lock of {table.name} has changed since: it runs with the recorded one, {digest[:12]}"]


def _code(run: Run, where: Places) -> tuple[Path, list[str]]:
    """The folder to run in: the current code where that is what ran, or else a worktree of the recorded code."""
    recorded = Path(str(_fact(run, "context.cwd"))) if not run.spec.recipe else where.root
    image = recorded_image(run)
    if image is not None and image.is_here:
        return where.root, []  # the code is a part of it
    commit = _fact(run, "code.commit")
    patch_file = Path(run.folder) / "code.patch"
    if not recorded.is_dir():
        raise UsageError(f"{recorded}, where it ran, is gone")
    if commit is None or not patch_file.exists():
        return recorded, ["its code was not in git and is not recorded: it runs with the code that is there now"]
    patch = patch_file.read_bytes()
    now = read_code(recorded, (where.runs, where.state))
    if now is not None and now.commit == commit and now.patch == patch:
        return recorded, []
    repository = now.root if now else recorded
    tree = restored(repository, str(commit), patch, where.state / "worktrees")
    changes = "with its uncommitted changes" if patch else "without changes"
    remarks = [f"the code has changed since: it runs from {tree}, commit {str(commit)[:12]} {changes}"]
    if left_out := _fact(run, "code.patch.left_out"):
        remarks.append(f"files that were not recorded are missing there: {left_out}")
    return tree / recorded.relative_to(repository), remarks


@dataclass(frozen=True)
class RecordedImage:
    """The image that a run was made in."""

    tag: str
    digest: str

    @property
    def is_here(self) -> bool:
        """Whether this process runs in it."""
        return self.digest == os.environ.get("HARNESS_IMAGE_DIGEST")


def recorded_image(run: Run) -> RecordedImage | None:
    """The image that ``run`` was made in, or None."""
    digest = _fact(run, "environment.image.digest")
    if not digest:
        return None
    return RecordedImage(str(_fact(run, "environment.image.tag") or digest), str(digest))


def _fact(run: Run, name: str) -> Value:
    """The recorded fact, or None where it is unknown."""
    return run.fingerprint.facts.get(name) if run.fingerprint else None
