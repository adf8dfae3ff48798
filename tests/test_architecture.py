"""The direction of the arrows between rooms, read from the code's own imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted([*(ROOT / "harness").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")])

BASE = (
    "harness.errors",
    "harness.records",
    "harness.findings",
    "harness.frozen",
    "harness.places",
    "harness.config",
)

# What each room may import of this project, the longest matching name first.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "harness.errors": (),
    "harness.records": (),
    "harness.places": (),
    "harness.logs": (),
    "harness.config": ("harness.errors", "harness.records"),
    "harness.findings": ("harness.records",),
    "harness.frozen": ("harness.records",),
    "harness.comparison": ("harness.records",),
    "harness.evidence": ("harness.records",),
    "harness.rows": ("harness.records",),
    "harness.steady": ("harness.records", "harness.evidence", "harness.rows"),
    "harness.bottleneck": (),
    "harness.devices": ("harness.records", "harness.evidence", "harness.steady"),
    "harness.figures": ("harness.records",),
    "harness.pin": (*BASE, "harness.pin"),
    "harness.run": (
        *BASE,
        "harness.logs",
        "harness.bottleneck",
        "harness.devices",
        "harness.evidence",
        "harness.steady",
        "harness.pin",
        "harness.run",
    ),
    "harness.run.events": ("harness.errors", "harness.records", "harness.config"),
    "harness.explain": (
        "harness.errors",
        "harness.records",
        "harness.evidence",
        "harness.rows",
        "harness.steady",
        "harness.bottleneck",
        "harness.devices",
        "harness.comparison",
        "harness.figures",
        "harness.logs",
        "harness.explain",
    ),
    "harness.mirror": (*BASE, "harness.figures", "harness.rows", "harness.run", "harness.mirror"),
    "harness.view": (
        *BASE,
        "harness.bottleneck",
        "harness.comparison",
        "harness.figures",
        "harness.rows",
        "harness.run",
        "harness.view",
    ),
    "harness.launch": ("harness",),
    "harness.explained": ("harness",),
    "harness.commands": ("harness",),
    "harness.cli": ("harness.errors",),
    "experiments": (*BASE, "harness.run.events", "harness.run.compile_guard", "experiments"),
    "experiments.race": ("experiments.tries", "harness.run.compile_guard"),
}

STANDARD_LIBRARY_ONLY = (
    "harness.errors",
    "harness.records",
    "harness.findings",
    "harness.bottleneck",
    "harness.rows",
    "harness.comparison",
    "harness.logs",
    "harness.places",
    "harness.config",
    "harness.run.events",
    "harness.run.gate",
    "harness.run.halls",
    "harness.pin.bootstrap",
    "harness.pin.image.inside",
    "experiments.recipes",
    "experiments.toy",
    "experiments.tries",
    "experiments.dflash.config",
)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path) for path in SOURCES}


def imports(path: Path) -> Iterator[str]:
    """Every module that ``path`` imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrows"
            assert node.module is not None
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


def inside(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def rule_for(module: str) -> tuple[str, ...]:
    matches = [room for room in MAY_IMPORT if inside(module, (room,))]
    assert matches, f"{module} stands in no room; add its rule to MAY_IMPORT"
    return MAY_IMPORT[max(matches, key=len)]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_arrows_point_one_way(path: Path) -> None:
    module = name_of(path)
    if path.name == "__init__.py":
        assert not [m for m in imports(path) if m != "__future__"], "a package's own file stays empty of imports"
        return
    allowed = rule_for(module)
    ours = {m for m in imports(path) if inside(m, ("harness", "experiments"))}
    forbidden = sorted(m for m in ours if m != module and not inside(m, allowed))
    assert not forbidden, f"{module} must not import {', '.join(forbidden)}"


TORCH_AND_STANDARD_LIBRARY_ONLY = ("harness.run.compile_guard", "harness.run.compile_hooks", "harness.run.guarded")


@pytest.mark.parametrize("module", [*STANDARD_LIBRARY_ONLY, *TORCH_AND_STANDARD_LIBRARY_ONLY])
def test_what_a_foreign_environment_imports_needs_the_standard_library_alone(module: str) -> None:
    others = {"torch"} if module in TORCH_AND_STANDARD_LIBRARY_ONLY else set()
    path = ROOT / (module.replace(".", "/") + ".py")
    seen: set[str] = set()
    todo = [path]
    while todo:  # also through what it imports of ours
        current = todo.pop()
        for imported in imports(current):
            if inside(imported, ("harness", "experiments")) and imported not in seen:
                seen.add(imported)
                base = ROOT / imported.replace(".", "/")
                todo.append(base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py")
            elif not inside(imported, ("harness", "experiments")):
                assert imported.split(".")[0] in sys.stdlib_module_names | others, f"{current}: {imported}"


def test_mlflow_is_imported_in_one_file() -> None:
    users = {name_of(path) for path in SOURCES if any(inside(module, ("mlflow",)) for module in imports(path))}
    assert users == {"harness.mirror.tracking"}


def test_torch_is_imported_only_under_experiments_and_by_its_guard() -> None:
    rooms = {name_of(p) for p in SOURCES if any(inside(m, ("torch", "transformers")) for m in imports(p))}
    assert rooms
    guard = ("harness.run.compile_guard", "harness.run.compile_hooks")
    assert all(inside(room, ("experiments.dflash", "experiments.race", *guard)) for room in rooms)


def test_only_the_command_line_prints_and_exits() -> None:
    talkers = {
        name_of(path)
        for path in SOURCES
        if inside(name_of(path), ("harness",)) and not inside(name_of(path), ("harness.commands",))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("print", "sys.exit", "exit", "quit", "click.echo", "console.print")
    }
    # terminal and launch are the command line's own hands; the others are the mains of processes of their own.
    hands = {"harness.cli", "harness.view.terminal", "harness.launch"}
    mains = {"harness.pin.bootstrap", "harness.pin.lock_command", "harness.pin.image.inside"}
    mains |= {"harness.mirror.tracking", "harness.mirror.reading", "harness.mirror.race", "harness.run.compile_guard"}
    assert talkers <= hands | mains
