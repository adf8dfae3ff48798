"""What a run shows on the terminal while it goes: a panel, or plain lines where nobody could see a panel move."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from rich import live as rich_live
from rich.console import Console, RenderableType

from harness.records import Event, Fingerprint, Note
from harness.run.folder import RunFolder
from harness.view.live import Live

LINE_S = 10.0
"""Seconds between two plain lines."""

PANEL_HZ = 1.0
"""Drawings of the panel a second: each costs milliseconds of a core that the training may want."""


class Watch:
    """The observer of one run. Progress goes to ``console``; what a command itself writes goes through unchanged."""

    def __init__(self, console: Console, recipe: str, env: str, stdout_to_stderr: bool = False) -> None:
        self._console = console
        self._recipe, self._env = recipe, env
        self._command_stdout = sys.stderr if stdout_to_stderr else sys.stdout
        self._start = time.monotonic()
        self._state: Live | None = None
        self._panel: rich_live.Live | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def started(self, folder: RunFolder, fingerprint: Fingerprint) -> None:
        """Begin to show the run: nothing for a command, which has the terminal to itself."""
        self._start = time.monotonic()
        self._console.print(f"run {folder.id} in {folder.path}", style="dim", soft_wrap=True, highlight=False)
        if not self._recipe:
            return
        self._console.print(headline(self._env, fingerprint), style="dim", soft_wrap=True, highlight=False)
        self._state = Live(folder.id, self._recipe, self._env)
        if self._console.is_terminal:
            self._panel = rich_live.Live(
                get_renderable=self._picture, console=self._console, refresh_per_second=PANEL_HZ, transient=True
            )
            self._panel.start()
        else:
            threading.Thread(target=self._lines, name="progress", daemon=True).start()

    def event(self, event: Event) -> None:
        """Take in what happened; a warning is shown at once where there is no panel to hold it."""
        if self._state is None:
            return
        self._state.feed(event)
        if self._panel is None and isinstance(event, Note):
            prefix = "warning: " if event.level == "warning" else ""
            self._console.print(f"{prefix}{event.text}", soft_wrap=True, highlight=False, markup=False)

    def output(self, stream: str, text: str) -> None:
        """Pass on what the command wrote."""
        out = self._command_stdout if stream == "stdout" else sys.stderr
        out.flush()
        out.buffer.write(text.encode("utf-8", "surrogateescape"))
        out.buffer.flush()

    def stop(self) -> None:
        """Take the panel down. What was said stays."""
        self._ended.set()
        if self._panel is not None:
            self._panel.stop()
            self._panel = None

    def _elapsed(self) -> float:
        return time.monotonic() - self._start

    def _picture(self) -> RenderableType:
        return self._state.panel(self._elapsed()) if self._state else ""

    def _lines(self) -> None:
        while self._state is not None and not self._ended.wait(LINE_S):
            self._console.print(self._state.line(self._elapsed()), soft_wrap=True, highlight=False, markup=False)


def headline(env: str, fingerprint: Fingerprint) -> str:
    """Where a run runs, in a line: environment, torch, device, and what the compile cache holds."""
    facts = fingerprint.facts
    torch = facts.get("environment.package.torch")
    device = facts.get("environment.gpu.0.name") or facts.get("environment.cpu.model") or "an unknown device"
    count = facts.get("environment.gpu.count") or 0
    several = f"{count} x " if isinstance(count, int) and count > 1 else ""
    held = facts.get("state.cache.entries")
    cache = f"compile cache of {held} entries" if held else "compile cache empty"
    return f"in {env}: {f'torch {torch}, ' if torch else ''}{several}{device}; {cache}"
