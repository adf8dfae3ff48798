"""Tables and panels for people. It draws, it does not print: each function returns something that rich can render."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness import figures
from harness.places import program
from harness.records import IMPORTED, DeviceShare, Run, Status, Summary

STYLES: Mapping[Status, str] = {"running": "cyan", "finished": "green", "failed": "red", "killed": "yellow"}

ON_RUNS = "accept_length_run"
"""On prompts that the target continues with a run of one token, where repeating the anchor is already good."""

HIDDEN = ("environment.package.",)
"""Facts that are too many to show one by one; they are counted."""


def status_text(status: Status) -> Text:
    return Text(status, style=STYLES[status])


def runs_table(runs: Sequence[Run], width: int) -> RenderableType:
    """The runs, the latest first; ``harness show`` takes the first column too. Narrow terminals get fewer columns."""
    if not runs:
        return Text("no runs yet; the first one: nox -s train", style="dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("run", overflow="fold")  # gives way where the terminal is narrow
    table.add_column("status", no_wrap=True)
    for name in ("Ktok/s", "accept length", "took"):
        table.add_column(name, justify="right", no_wrap=True)
    wide = width >= 116
    if wide:
        for name in ("95 %", "first step", "loss", "when"):
            table.add_column(name, justify="right", no_wrap=True)
    for number, run in enumerate(runs, 1):
        table.add_row(*_run_row(number, run), *(_wide_row(run) if wide else ()))
    return table


def _run_row(number: int, run: Run) -> tuple[RenderableType, ...]:
    summary = run.result.summary
    speed = summary.throughput_tok_s
    took = figures.took(run)
    return (
        Text(f"@{number}", style="dim"),
        run.id,
        status_text(run.result.status),
        Text(figures.digits(speed.value / 1000) if speed else "-", style="bold" if speed else "dim"),
        figures.accept_text(summary) or Text("-", style="dim"),
        figures.duration(took) if took is not None else Text("-", style="dim"),
    )


def _wide_row(run: Run) -> tuple[str, ...]:
    summary = run.result.summary
    speed = summary.throughput_tok_s
    started = run.result.started_at
    return (
        f"{figures.digits(speed.low / 1000)} to {figures.digits(speed.high / 1000)}" if speed else "-",
        figures.duration(summary.first_step_s) if summary.first_step_s is not None else "-",
        figures.loss_text(summary) or "-",
        ago(time.time() - started) if started else "-",
    )


def summary_panel(run: Run, mirror: str = "") -> RenderableType:
    """How a run ended, its figures, and the next commands to type. ``mirror``: what MLflow has of it, in one line."""
    result = run.result
    title = Text.assemble((result.status, f"bold {STYLES[result.status]}"), "  ", (run.id, "bold"))
    rows = [(name, text) for name, text in summary_rows(run) if text]
    if mirror:
        rows.append(("MLflow", mirror))
    parts: list[RenderableType] = [Text(result.reason, style=STYLES[result.status])] if result.reason else []
    parts += [Text(f"warning: {text}", style="yellow") for text in result.summary.warnings]
    parts.append(_pairs(rows))
    if len(result.summary.devices) > 1:
        parts += [Text(""), devices_table(result.summary.devices)]
    panel = Panel(
        Group(*parts),
        title=title,
        title_align="left",
        subtitle=run.spec.env,
        subtitle_align="right",
        border_style=STYLES[result.status],
        padding=(0, 1),
    )
    return Group(panel, next_commands(run))


def summary_rows(run: Run) -> list[tuple[str, str]]:
    """The figures of a run, each with its name; an empty text where there is none."""
    summary, took = run.result.summary, figures.took(run)
    return [
        ("throughput", _throughput(summary)),
        ("first step", _first_step(summary)),
        ("accept length", ", ".join(t for t in (figures.accept_text(summary), figures.lossless_text(summary)) if t)),
        ("  untrained", figures.baseline_text(summary)),
        ("on repeats", figures.accept_text(summary, ON_RUNS)),
        ("  untrained", figures.baseline_text(summary, ON_RUNS)),
        ("loss", figures.loss_text(summary)),
        ("steps", _steps(summary)),
        ("time", phase_text(summary)),
        ("roles", figures.roles_text(summary)),
        ("compile", figures.compile_text(summary)),
        ("cache", _cache(run)),
        ("took", figures.duration(took) if took is not None else ""),
        ("tags", ", ".join(run.tags)),
        ("folder", _near(run.folder)),
    ]


def devices_table(devices: Sequence[DeviceShare]) -> Table:
    """How each device spent the steady time."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("role", no_wrap=True)
    table.add_column("device", overflow="fold")
    for name in ("steps", "busy", "wait", "communication"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in devices:
        shares = (figures.percent(share) for share in (each.busy, each.waiting, each.communication))
        table.add_row(each.role, each.device, f"{each.steps:,}", *shares)
    return table


def _throughput(summary: Summary) -> str:
    """Steady state and whole run, each with its name: the one never stands for the other."""
    speed = summary.throughput_tok_s
    if summary.whole_run_tok_s is None:
        return f"{figures.ktok(speed)} in steady state" if speed else ""
    whole = f"{figures.digits(summary.whole_run_tok_s / 1000)} Ktok/s over the whole run"
    return f"{figures.ktok(speed)} in steady state, {whole}" if speed else f"{whole}; too few steps for a steady state"


def next_commands(run: Run) -> RenderableType:
    """What a person will want to type now."""
    commands = [
        (f"{program()} show {run.id}", "everything about it"),
        (f"{program()} ui", "see it in MLflow, beside the others"),
        (f"{program()} rerun {run.id}", "the same again"),
    ]
    if run.fingerprint and IMPORTED in run.fingerprint.facts:
        commands = [(f"{program()} explain OTHER {run.id}", "how it differs"), commands[0]]
    if run.result.status == "failed":
        commands.insert(0, (f"less {_near(run.folder)}/stderr.log", "what the child said"))
    return Group(*(Text.assemble((command, "bold"), (f"  # {why}", "dim")) for command, why in commands))


def show(run: Run, mirror: str = "") -> RenderableType:
    """Everything about a run that fits a few screens; the rest is in its folder."""
    asked = [("recipe", run.spec.recipe or "a command"), ("spec", run.spec.id), ("command", " ".join(run.spec.argv))]
    parts: list[RenderableType] = [summary_panel(run, mirror), _section("asked for", asked)]
    if run.spec.config:
        parts.append(_section("settings", [(key, str(value)) for key, value in sorted(run.spec.config.items())]))
    if run.fingerprint:
        facts = run.fingerprint.facts
        shown = [(key, str(value)) for key, value in sorted(facts.items()) if not key.startswith(HIDDEN)]
        packages = sum(key.startswith(HIDDEN) for key in facts)
        parts.append(_section(f"where, {run.fingerprint.digest[:12]}, with {packages} packages", shown))
    return Group(*parts)


def phase_text(summary: Summary) -> str:
    """``target 30 %, forward 30 %, ...``: where the steady state's time went, the greatest first."""
    total = sum(summary.phases.values())
    shares = {name: value / total for name, value in summary.phases.items()} if total else {}
    return ", ".join(f"{name} {s:.0%}" for name, s in sorted(shares.items(), key=lambda item: -item[1]) if s >= 0.005)


def ago(seconds: float) -> str:
    """``3 min ago``, ``5 h ago``, ``12 d ago``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "just now"


def _near(folder: str) -> str:
    """The folder as it would be typed from here: the whole path only where it lies elsewhere."""
    path = Path(folder)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else folder


def _cache(run: Run) -> str:
    """What the compile cache held before and after; nothing where nothing was compiled."""
    if run.cache_after is None or not (run.cache_after.entries or run.result.summary.compile_s):
        return ""
    return f"{figures.held(run.cache_before)} → {figures.held(run.cache_after)}"


def _first_step(summary: Summary) -> str:
    return f"after {figures.duration(summary.first_step_s)}" if summary.first_step_s is not None else ""


def _steps(summary: Summary) -> str:
    if not summary.steps:
        return ""
    left_out = summary.warmup_steps + summary.compile_steps
    padding = f", {summary.padding / (summary.tokens + summary.padding):.0%} padding" if summary.padding else ""
    warm = f"; {left_out} of warm-up and compiling are not in the steady state" if left_out else ""
    tokens = f" with {summary.tokens:,} tokens" if summary.tokens else ", tokens unknown"
    return f"{summary.steps:,}{tokens}{padding}{warm}"


def _section(title: str, rows: Sequence[tuple[str, str]]) -> RenderableType:
    return Group(Text(f"\n{title}", style="bold"), _pairs(rows))


NAME_WIDTH = 34
"""Columns of the longest name beside its text; what is longer is folded. Half of a plain terminal is the text's."""


def _pairs(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", overflow="fold", max_width=NAME_WIDTH)  # a long name must not take the text's place
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, Text(text))
    return table
