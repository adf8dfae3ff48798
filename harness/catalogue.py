"""What there is to run, drawn for people: environments, recipes, settings, and the plan of a run. It does not print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.records import Listed, RunSpec

GIB = 1024**3

MEMORY: Mapping[str, str] = {
    "weights_bytes": "weights",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer",
    "activations_bytes": "activations",
    "features_bytes": "features",
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


def recipes_table(specs: Sequence[RunSpec]) -> Table:
    """The recipes, one line each."""
    table = _table("recipe", "environment", "what it does")
    for spec in specs:
        table.add_row(Text(spec.recipe, style="bold"), spec.env, spec.summary)
    return table


def settings_table(spec: RunSpec) -> RenderableType:
    """Every setting of a recipe with its value and what kind of fact it is."""
    table = _table("setting", "value", "kind")
    for key, value in spec.config.items():
        table.add_row(Text(key, style="bold"), str(value) if value != "" else '""', Text(spec.kinds[key], style="dim"))
    example = next(f"{key}={value}" for key, value in spec.config.items() if value != "")
    hint = Text(f"change one: harness run {spec.recipe} {example}", style="dim")
    return Group(Text(spec.summary), table, hint)


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
    parts: list[RenderableType] = [settings_table(spec), lines]
    if devices := plan.get("devices"):
        parts.append(_memory_table(devices))
    parts += [Text(f"note: {note}") for note in plan.get("notes", ())]
    return Group(*parts, Text("nothing was started", style="dim"))


def _memory_table(devices: Sequence[Mapping[str, Any]]) -> Table:
    """GiB of each device by what takes them."""
    shown = {key: name for key, name in MEMORY.items() if any(device.get(key) for device in devices)}
    table = _table("device", "role", *shown.values(), "total", "of", "", right=(*shown.values(), "total", "of"))
    for device in devices:
        capacity = device.get("capacity_bytes")
        fits = Text("") if capacity is None else _fits(device["total_bytes"], capacity)
        table.add_row(
            Text(device["device"], style="bold"),
            device["role"],
            *(_gib(device.get(key)) for key in shown),
            Text(_gib(device["total_bytes"]), style="bold"),
            _gib(capacity),
            fits,
        )
    table.caption = "GiB"
    return table


def _fits(total: int, capacity: int) -> Text:
    return Text("fits", style="green") if total <= capacity else Text("too much", style="bold red")


def _gib(value: int | None) -> str:
    return "-" if value is None else f"{value / GIB:.2f}"
