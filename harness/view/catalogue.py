"""What there is to run, drawn for people: environments, recipes, settings, and the plan of a run. It does not print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.records import Listed, RunSpec

_UNITS: Mapping[str, int] = {"MiB": 1024**2, "GiB": 1024**3}

MEMORY: Mapping[str, str] = {
    "weights_bytes": "weights",
    "gradients_bytes": "grads",
    "optimizer_bytes": "optim",
    "activations_bytes": "activ",
    "features_bytes": "feat",
    "logits_bytes": "logits",
}
"""The parts of a device's memory in a plan, and what their columns are called."""


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def envs_table(rows: Sequence[Listed], width: int) -> Table:
    """The environments: what each is for, what its lock pins, whether it is built here."""
    wide = width >= 100
    table = _table("name", "Python", "torch", "CUDA", "lock", "built", *(["purpose"] if wide else []))
    for row in rows:
        table.add_row(
            Text(row.name, style="bold"),
            " ".join(row.python),
            row.torch or "-",
            row.cuda or "-",
            row.lock_digest[:12],
            Text("yes", style="green") if row.built else Text("no", style="dim"),
            *([row.purpose] if wide else []),
        )
    return table


def recipes_table(recipes: Sequence[tuple[RunSpec, Sequence[str]]]) -> Table:
    """The recipes with the scales that each has beside its own, one line each."""
    table = _table("recipe", "environment", "what it does")
    for spec, scales in recipes:
        other = f" ({', '.join(f'scale={scale}' for scale in scales)})" if scales else ""
        table.add_row(Text(spec.recipe, style="bold"), spec.env, spec.summary + other)
    return table


def recipe_view(spec: RunSpec, scales: Sequence[str] = ()) -> RenderableType:
    """One recipe: what it does, every setting, how to change one, and its other scales."""
    key, value = next((key, value) for key, value in spec.config.items() if isinstance(value, int))
    hints = [f"change one: harness run {spec.recipe} {key}={value}"]
    hints += [f"all of them for scale {scale}: harness run {spec.recipe} scale={scale} --plan" for scale in scales]
    return Group(Text(spec.summary), _settings_table(spec), *(Text(hint, style="dim") for hint in hints))


def _settings_table(spec: RunSpec) -> Table:
    """Every setting with its value and what kind of fact it is."""
    table = _table("setting", "value", "kind")
    for key, value in spec.config.items():
        table.add_row(Text(key, style="bold"), str(value) if value != "" else '""', Text(spec.kinds[key], style="dim"))
    return table


def plan_view(plan: Mapping[str, Any]) -> RenderableType:
    """What would run: settings, environment, devices, and the memory of each. Nothing has been started."""
    spec, environment = RunSpec.from_json(plan["spec"]), Listed(**plan["environment"])
    state = "built" if environment.built else f"not built yet: harness sync {environment.name}"
    torch = f"torch {environment.torch}, " if environment.torch else ""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim")
    lines.add_row("would run", f"{spec.recipe} (spec {spec.id})")
    lines.add_row("command", " ".join(spec.argv))
    lines.add_row("environment", f"{environment.name}: {torch}lock {environment.lock_digest[:12]}, {state}")
    lines.add_row("devices", ", ".join(spec.devices))
    parts: list[RenderableType] = [Text(spec.summary), _settings_table(spec), lines]
    if devices := plan.get("devices"):
        parts.append(_memory_table(devices))
    parts += [Text(f"note: {note}") for note in plan.get("notes", ())]
    return Group(*parts, Text("nothing was started", style="dim"))


def _memory_table(devices: Sequence[Mapping[str, Any]]) -> Table:
    """The memory of each device by what takes it; a total above what the device has is red."""
    shown = {key: name for key, name in MEMORY.items() if any(device.get(key) for device in devices)}
    unit, size = max(_UNITS.items(), key=lambda item: (item[1] <= max(d["total_bytes"] for d in devices), item[1]))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, header_style="bold", title=unit, title_justify="left")
    for name in ("device", "role"):
        table.add_column(name, no_wrap=True)
    for name in (*shown.values(), "total", "of"):
        table.add_column(name, justify="right", no_wrap=True)
    for device in devices:
        total, capacity = device["total_bytes"], device.get("capacity_bytes")
        style = "bold" if capacity is None else "green" if total <= capacity else "bold red"
        parts = [f"{device.get(key, 0) / size:.1f}" for key in shown]
        has = "-" if capacity is None else f"{capacity / size:,.0f}"
        table.add_row(device["device"], device["role"], *parts, Text(f"{total / size:.1f}", style=style), has)
    return table
