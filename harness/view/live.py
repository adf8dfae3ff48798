"""What a run shows while it goes: a panel in a terminal, a plain line elsewhere. It draws, it does not print."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.bottleneck import busiest
from harness.figures import BASELINES, bound_text, clock, digits, duration, percent
from harness.records import PHASES, Compile, Eval, Event, Finished, Note, Started, Step
from harness.rows import GrowingRows, Row

RECENT = 50
"""Rows behind the rate, the phases and the time left: enough to be calm, few enough to follow a change."""

WARNINGS = 3
"""Warnings that stay in view."""

COLOURS: Mapping[str, str] = {
    "data": "yellow",
    "wait": "red",
    "target": "blue",
    "forward": "cyan",
    "backward": "green",
    "optimizer": "magenta",
    "communication": "bright_red",
    "compile": "bright_yellow",
    "other": "bright_black",
}


class Live:
    """The state of a run, fed with its events in order, and its two pictures."""

    def __init__(self, run_id: str, recipe: str, env: str) -> None:
        self._title = (run_id, recipe or "command", env)
        self._growing: dict[str, GrowingRows] = {}
        self._whole: dict[str, deque[Row]] = {}
        self._counting: str | None = None  # the role that consumes the tokens
        self._total: int | None = None
        self._step = 0
        self._now_doing = "setting up"
        self._metrics: dict[str, float] = {}
        self._compile_s = 0.0
        self._compiles, self._hits, self._misses = 0, 0, 0
        self._accept: dict[str, float] = {}
        self.warnings: list[str] = []

    def feed(self, event: Event) -> None:
        """Take in what happened."""
        if isinstance(event, Step):
            self._take_step(event)
        elif isinstance(event, Started):
            self._total = event.total_steps
            self._now_doing = "getting ready"
        elif isinstance(event, Compile):
            self._compile_s += event.seconds
            self._compiles += 1
            self._hits += event.hits
            self._misses += event.misses
        elif isinstance(event, Eval):
            if "accept_length" in event.metrics:
                self._accept[event.name] = event.metrics["accept_length"]
        elif isinstance(event, Note):
            self._take_note(event)
        elif isinstance(event, Finished):
            self._now_doing = "ending"

    def warn(self, text: str) -> None:
        """Keep a warning in view, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def _take_step(self, event: Step) -> None:
        if self._counting is None and event.tokens:
            self._counting = event.role
        rows = self._growing.setdefault(event.role, GrowingRows()).add(event)
        self._whole.setdefault(event.role, deque(maxlen=RECENT)).extend(rows)
        if event.role == self._counting:
            self._step = max(self._step, event.step)
            self._metrics.update({name: value for name, value in event.metrics.items() if value is not None})
        done = self._total is not None and self._step >= self._total
        self._now_doing = "steps done" if done else "training"

    def _take_note(self, event: Note) -> None:
        if event.level == "warning":
            self.warn(event.text)
        else:
            self._now_doing = event.text

    # --- figures -----------------------------------------------------------------------------------------

    def _recent(self, role: str) -> list[Row]:
        """The last rows of a role; before there is one of all its devices, what there is of it."""
        growing = self._growing.get(role)
        return [*self._whole[role], *growing.full] or growing.open if growing else []

    @property
    def _rows(self) -> list[Row]:
        """The recent rows of the counting role; without those that compiled, as soon as there are others."""
        rows = self._recent(self._counting or "")
        return [row for row in rows if not any(step.phases.get("compile") for step in row.steps)] or rows

    def _tok_s(self) -> float | None:
        """Useful tokens a second over the recent rows, by the rule of the summary."""
        rows = self._rows
        seconds = sum(row.seconds for row in rows)
        return sum(row.tokens for row in rows) / seconds if seconds > 0 else None

    def _left(self) -> float | None:
        """Seconds until the last step, at the pace of the recent ones."""
        rows = self._rows
        if self._total is None or not rows:
            return None
        return max(0, self._total - self._step) * sum(row.seconds for row in rows) / len(rows)

    def _phases(self) -> dict[str, float]:
        """Mean seconds a step of each phase of the counting role, in the order of PHASES."""
        steps = [step for row in self._rows for step in row.steps]
        sums = {name: sum(s.phases.get(name, 0.0) for s in steps) / len(steps) for name in PHASES} if steps else {}
        return {name: value for name, value in sums.items() if value > 0}

    def waits(self) -> str:
        """Who waits for whom of several roles; of one, what its target takes, if it has one."""
        begun = (step.t - step.seconds for row in self._rows for step in row.steps)
        since = min(begun, default=0.0)  # what others waited for a compile was before
        steps = {
            role: [s for row in self._recent(role) for s in row.steps if s.t - s.seconds >= since]
            for role in self._growing
        }
        shares = {role: _share(found, "wait") for role, found in steps.items()}
        if len(shares) > 1:
            devices = {role: len({step.device for step in found}) for role, found in steps.items()}
            return bound_text(shares, busiest(shares), devices)
        for role, share in shares.items():
            if share >= 0.005:
                return f"the {role} waited {percent(share)} of the time"
        target = _share([step for row in self._rows for step in row.steps], "target")
        return f"the target takes {target:.0%} of a step; nobody waits" if target else ""

    # --- pictures ----------------------------------------------------------------------------------------

    def line(self, elapsed: float) -> str:
        """One line of text, for a log."""
        parts = [f"[{clock(elapsed):>5}]", self._progress_text()]
        rate, left = self._tok_s(), self._left()
        parts += [f"loss {self._metrics['loss']:.3f}"] if "loss" in self._metrics else []
        parts += [f"{digits(rate / 1000)} Ktok/s"] if rate is not None else []
        parts += [f"{clock(left)} left"] if left else []
        phases = self._phases()
        total = sum(phases.values())
        top = sorted(phases.items(), key=lambda item: -item[1])[:3]
        parts += [", ".join(f"{name} {value / total:.0%}" for name, value in top)] if total else []
        parts += [self.waits()] if len(self._growing) > 1 else []
        return "  ".join(parts)

    def panel(self, elapsed: float) -> Panel:
        """The panel that a terminal shows."""
        run_id, recipe, env = self._title
        drawn = (self._head(elapsed), self._progress_bar(), self._speed(), self._phase_table(), self._footer())
        parts: list[RenderableType] = [part for part in drawn if part is not None]
        parts += [Text(f"warning: {text}", style="yellow") for text in self.warnings[-WARNINGS:]]
        title = Text.assemble((recipe, "bold"), "  ", (run_id, "dim"))
        body = Group(*parts)
        return Panel(body, title=title, title_align="left", subtitle=env, subtitle_align="right", padding=(0, 1))

    def _progress_text(self) -> str:
        if not self._step or self._now_doing not in ("training", "steps done"):
            return self._now_doing
        return f"step {self._step:,}/{self._total:,}" if self._total else f"step {self._step:,}"

    def _head(self, elapsed: float) -> Table:
        left = self._left()
        right = f"{clock(left)} left · {clock(elapsed)} so far" if left else f"{clock(elapsed)} so far"
        head = Table.grid(expand=True)
        head.add_column(overflow="ellipsis", no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        head.add_row(Text(self._progress_text(), style="bold"), right)
        return head

    def _progress_bar(self) -> Table | None:
        if not self._total:
            return None
        grid = Table.grid(expand=True)  # a bare bar would not end its line
        grid.add_row(ProgressBar(total=self._total, completed=self._step))
        return grid

    def _speed(self) -> Text | None:
        rate = self._tok_s()
        if rate is None:
            return None
        text = Text.assemble((f"{digits(rate / 1000)} Ktok/s", "bold green"))
        for name, value in self._metrics.items():
            text.append(f"   {name} ", style="dim")
            text.append(f"{value:.2e}" if 0 < abs(value) < 1e-2 else digits(value, 4))
        return text

    def _phase_table(self) -> Table | None:
        phases = self._phases()
        total = sum(phases.values())
        if not total:
            return None
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        for name, seconds in phases.items():
            if seconds / total >= 0.005:
                bar = ProgressBar(total=1.0, completed=seconds / total, complete_style=COLOURS[name], style="black")
                table.add_row(name, bar, f"{digits(1000 * seconds)} ms", f"{seconds / total:.0%}")
        return table

    def _footer(self) -> Text | None:
        said = []
        if self.waits():
            said.append(self.waits())
        if self._compiles:
            said.append(
                f"compile {duration(self._compile_s)} in {self._compiles}, {self._hits} hits, {self._misses} misses"
            )
        if self._accept:
            spelled = [f"{BASELINES.get(name, name)} {value:.2f}" for name, value in self._accept.items()]
            said.append("accept length " + ", ".join(spelled))
        return Text("\n".join(said), style="dim") if said else None


def _share(steps: Sequence[Step], phase: str) -> float:
    total = sum(step.seconds for step in steps)
    return sum(step.phases.get(phase, 0.0) for step in steps) / total if total else 0.0
