"""What a run needs before its child starts: its fingerprint, its code, its compile cache and its variables."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.pin import caches, fingerprint, gpus
from harness.pin.code import Code, read_code
from harness.pin.image.names import DIRTY
from harness.pin.machine import gpu_facts, image_facts, machine_facts
from harness.places import Places
from harness.records import BuiltEnvironment, CacheState, Fingerprint, RunSpec, Value
from harness.run.process import resolved
from harness.run.resolve import SCALE, scales


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the child starts. ``cache.variables`` are those that the child will have."""

    fingerprint: Fingerprint
    code: Code | None
    cache: caches.CacheRoot
    cache_before: CacheState


def prepare(
    spec: RunSpec, environment: BuiltEnvironment, where: Places, code_folder: Path, cold: bool = False
) -> Prepared:
    """Read the place in which the run will be. Raises EnvironmentFault where the environment's Python is broken."""
    with ThreadPoolExecutor(1) as pool:  # git works while the rest is read
        reading = pool.submit(read_code, code_folder, (where.runs, where.state))
        facts = {**fingerprint.spec_facts(spec), **fingerprint.environment_facts(environment), **machine_facts()}
        facts |= {**image_facts(os.environ), **fingerprint.variable_facts(os.environ)}
        with gpus.opened() as cards:
            facts |= gpu_facts(cards)
        root = _cache_root(environment, facts, where, cold, ours=bool(spec.env))
        before = caches.inventory(root.variables)
        code = reading.result()
    facts |= code.facts() if code else _code_of_image(facts)
    facts |= {
        "state.cache.bytes": before.bytes,
        "state.cache.entries": before.entries,
        "context.cache.root": str(root.path),
        "context.cwd": str(code_folder),
        "context.time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return Prepared(Fingerprint(facts), code, root, before)


def _code_of_image(facts: Mapping[str, Value]) -> dict[str, Value]:
    """An image has the code without its history, and a label that says which it is."""
    revision = str(facts.get("environment.image.revision") or "")
    dirty = revision.endswith(DIRTY)
    return {"code.commit": revision.removesuffix(DIRTY), "code.dirty": dirty} if revision else {}


def _cache_root(
    environment: BuiltEnvironment, facts: Mapping[str, Value], where: Places, cold: bool, ours: bool
) -> caches.CacheRoot:
    """The root of this place. Where a command that is not ours has cache variables of its own, those stay."""
    root = fingerprint.cache_root(environment, facts, where.caches, cold)
    kept = {} if ours or cold else {name: os.environ[name] for name in root.variables if os.environ.get(name)}
    return caches.CacheRoot(root.path, {**root.variables, **kept})


def check_devices(spec: RunSpec) -> None:
    """Raises UsageError, naming what is missing, where this machine has not the GPUs that ``spec`` needs."""
    if not spec.needs_gpus:
        return
    with gpus.opened() as cards:
        names = [str(card.constants().get("name", "")) for card in cards.cards]
    fitting = [name for name in names if spec.needs_gpu_name.lower() in name.lower()]
    if len(fitting) < spec.needs_gpus:
        kind = f"{spec.needs_gpu_name} GPUs".strip() if spec.needs_gpus > 1 else f"{spec.needs_gpu_name} GPU".strip()
        here = f"{len(names)} ({', '.join(sorted(set(names)))})" if names else "none"
        raise UsageError(f"{spec.recipe} needs {spec.needs_gpus} {kind} and this machine has {here}; {_instead(spec)}")


def check_startable(spec: RunSpec) -> None:
    """Raises UsageError where this machine lacks the GPUs, or where this version can only plan the recipe."""
    check_devices(spec)
    if spec.plan_only:
        raise UsageError(f"{spec.recipe}: {spec.plan_only}; {_instead(spec)}")


def _instead(spec: RunSpec) -> str:
    """What can be done with the recipe here. The settings are the person's: nobody has to type them for an example."""
    small = "".join(f", {SCALE}={name} in it runs smaller" for name in scales(spec.recipe))
    return f"harness run {spec.recipe} ... --plan shows what it would do{small}"


def command(spec: RunSpec, environment: BuiltEnvironment) -> tuple[str, ...]:
    """The arguments to start, their program found. Raises UsageError where there is no such program."""
    if spec.env and spec.argv[0] == "python":
        return (str(environment.python), *spec.argv[1:])
    path = _path(environment) if spec.env else None
    return resolved(spec.argv, path)


def variables(
    spec: RunSpec, environment: BuiltEnvironment, where: Places, code_folder: Path, data: Path | None = None
) -> dict[str, str]:
    """The child's variables, but for those of one run.

    In an environment of ours the child finds that environment's programs first, and this code. Any other command
    keeps what it has: this code on its path could hide packages of its own.
    """
    child = {**os.environ, "HARNESS_STATE": str(where.state), "PYTHONUNBUFFERED": "1"}
    child.pop("HARNESS_DATA", None)
    if data is not None:
        child["HARNESS_DATA"] = str(data)
    if spec.env:
        child["PATH"] = _path(environment)
        child["VIRTUAL_ENV"] = str(environment.python.parent.parent)
        child.pop("PYTHONHOME", None)
    if spec.recipe:
        child["PYTHONPATH"] = os.pathsep.join([str(code_folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return child


def _path(environment: BuiltEnvironment) -> str:
    return os.pathsep.join([str(environment.python.parent), os.environ.get("PATH", os.defpath)])
