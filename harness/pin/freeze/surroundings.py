"""What was around the packages when they worked: Python's build, the machine and its driver, the loaded libraries."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.pin import caches, fingerprint, gpus
from harness.pin.doctor.case import Case
from harness.pin.doctor.installed.installation import Installation, Layout
from harness.pin.doctor.linking.loaded import MODULES, describe
from harness.pin.doctor.linking.probe import Failure, probe
from harness.pin.freeze.match import Digests
from harness.pin.interpreter import answer_of
from harness.pin.machine import gpu_facts, machine_facts
from harness.places import Places
from harness.records import BuiltEnvironment, Fingerprint, Lock, Value

_QUESTION = """
import json, os, platform, sys, sysconfig
print(json.dumps({
    "version": sys.version,
    "implementation": platform.python_implementation(),
    "build": platform.python_build(),
    "compiler": platform.python_compiler(),
    "executable": os.path.realpath(sys.executable),
    "platform": sysconfig.get_platform(),
    "soabi": sysconfig.get_config_var("SOABI"),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "configured": sysconfig.get_config_var("CONFIG_ARGS"),
}))
"""


def python_build(python: Path) -> dict[str, Any]:
    """Exactly which Python it is, the SHA-256 of its program among it.

    Raises EnvironmentFault where it does not start, UsageError for one that our environments cannot be built with.
    """
    build = answer_of(python, _QUESTION)
    if build["implementation"] != "CPython" or build["free_threaded"]:
        kind = "a free-threaded Python" if build["free_threaded"] else build["implementation"]
        raise UsageError(f"{python} is {kind}; only CPython with its global lock can be captured")
    with Path(build["executable"]).open("rb") as file:
        return {**build, "executable_sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def facts(layout: Layout) -> Fingerprint:
    """The fingerprint of the environment on this machine, as a run in it would have it."""
    environment = BuiltEnvironment("", layout.python, Path(layout.purelib))
    found = {**fingerprint.environment_facts(environment), **machine_facts(), **fingerprint.variable_facts(os.environ)}
    with gpus.opened() as cards:
        return Fingerprint({**found, **gpu_facts(cards)})


def loaded(installation: Installation, digests: Digests) -> tuple[list[dict[str, Any]], tuple[Failure, ...]]:
    """The libraries that a process has once it has imported torch and its kind, with their owners; what failed."""
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # nothing of the environment is changed
    found = probe(installation.layout.python, MODULES, variables)
    described = describe(Case(installation, digests=digests), found.libraries)
    return [asdict(one) for one in described], found.failures


def cache_root(name: str, lock: Lock, found: Mapping[str, Value], layout: Layout, where: Places) -> caches.CacheRoot:
    """Where the runs of the captured environment will keep what they compile, on this device."""
    environment = BuiltEnvironment(name, layout.python, Path(layout.purelib), lock)
    return fingerprint.cache_root(environment, found, where.caches)


def write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def untracked(installation: Installation) -> tuple[str, ...]:
    """Files that Python or the loader could take and no RECORD claims: a patch, a shim, what an uninstall left."""
    sites = tuple(f"{site}/" for site in installation.layout.sites)
    own = ("_virtualenv.py", "_virtualenv.pth", "distutils-precedence.pth")  # of whoever made the environment
    return tuple(
        path
        for path in sorted(installation.files.keys() - installation.owners.keys())
        if path.startswith(sites)
        and ".dist-info/" not in path
        and Path(path).name not in own
        and (path.endswith((".py", ".so", ".pth", ".pyc")) or ".so." in Path(path).name)
    )
