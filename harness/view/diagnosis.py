"""What the doctor found, for people: a sentence first, then each finding with its evidence and what mends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from harness import figures
from harness.findings import Diagnosis, Evidence, Finding, Plan, Severity

STYLES: Mapping[Severity, str] = {"broken": "bold red", "dangerous": "red", "drift": "yellow", "note": "dim"}

_SHOWN_PATHS = 3
_SHOWN_LINES = 6  # of a finding's evidence; --json has all of it


def sentence(diagnosis: Diagnosis) -> Text:
    """The verdict in one sentence: what a person must know if they read nothing else."""
    name, worst = diagnosis.env or diagnosis.python, diagnosis.worst
    if worst is None or worst == "note":
        says = "what its lock says" if diagnosis.lock else "what its own records say"
        return Text(f"{name} is {says}: {_verified(diagnosis)}", style="green")
    first = next(f for f in diagnosis.sorted().findings)
    state = {"broken": "broken", "dangerous": "in danger", "drift": "sound, and has drifted"}[worst]
    more = len([f for f in diagnosis.findings if f.severity != "note"]) - 1
    rest = f" (and {more} more)" if more else ""
    return Text(f"{name} is {state}: {first.summary}{rest}", style=STYLES[worst])


def _verified(diagnosis: Diagnosis) -> str:
    verified = f"{diagnosis.files:,} files, {figures.size(diagnosis.bytes)}"
    if diagnosis.files == 0:
        how = "nothing to read"
    elif diagnosis.hashed_bytes == 0:
        how = "nothing has changed since every byte was read"
    elif diagnosis.hashed_bytes < diagnosis.bytes:
        how = f"{figures.size(diagnosis.hashed_bytes)} that had changed read again"
    else:
        how = "every byte read"
    return f"{verified}, {how}, {figures.duration(diagnosis.seconds)}"


def report(diagnosis: Diagnosis, notes: bool = False) -> RenderableType:
    """The sentence, the findings, and what to type next. ``notes``: show the notes too, not only their number."""
    shown = [f for f in diagnosis.sorted().findings if notes or f.severity != "note"]
    parts: list[RenderableType] = [sentence(diagnosis)]
    parts += [_finding(finding, diagnosis.prefix) for finding in shown]
    parts += [Text(f"not checked: {line}", style="yellow") for line in diagnosis.unchecked]
    if diagnosis.loaded:
        parts.append(_loaded(diagnosis))
    hidden = len(diagnosis.findings) - len(shown)
    if hidden:
        parts.append(Text(f"{figures.counted_text(hidden, 'note')}: shown with --notes", style="dim"))
    if commands := _commands(shown):
        parts.append(Text.assemble(("to mend: ", "bold"), commands))
    return Group(*parts)


def _loaded(diagnosis: Diagnosis) -> Text:
    owned = [library for library in diagnosis.loaded if library.owner]
    locked = f", {sum(library.locked is True for library in owned)} as the lock has them" if diagnosis.lock else ""
    text = (
        f"a process that imports torch and its kind loads {len(diagnosis.loaded)} libraries, {len(owned)} of them from"
    )
    return Text(f"{text} installed distributions{locked}; each with its digest: --json", style="dim")


def _finding(finding: Finding, prefix: str) -> RenderableType:
    title = Text.assemble((f"{finding.severity:<9} ", STYLES[finding.severity]), finding.summary)
    if finding.severity == "note":
        return title
    lines = [f"{name}: {line}" for name, value in finding.evidence.items() for line in _lines(value, prefix)]
    body = Text("\n".join(f"  {line}" for line in lines[:_SHOWN_LINES]), style="dim", no_wrap=True, overflow="ellipsis")
    mend = [Text(f"  mend: {finding.fix}", style="bold")] if finding.fix else []
    return Group(title, *([body] if lines else []), *mend)


def _lines(value: Evidence, prefix: str) -> Sequence[str]:
    if isinstance(value, Mapping):
        lines = [f"{key}: {text}" for key, text in value.items()]
    elif isinstance(value, tuple):
        lines = list(value)
    else:
        lines = ["-" if value is None else str(value)]
    more = len(lines) - _SHOWN_PATHS
    shown = [line.replace(f"{prefix.rstrip('/')}/", "") if prefix else line for line in lines[:_SHOWN_PATHS]]
    return shown if more <= 0 else [*shown, f"and {more} more"]


def _commands(findings: Sequence[Finding]) -> str:
    """Every mending command once, those of the worst findings first."""
    return "\n         ".join(dict.fromkeys(finding.fix for finding in findings if finding.fix))


def plan(steps: Plan, name: str) -> RenderableType:
    """What mending would do, in order, and what it leaves alone."""
    if steps.nothing:
        parts: list[RenderableType] = [Text(f"{name}: nothing that mending from the lock would change", style="green")]
    else:
        parts = [Text(f"to mend {name}, in this order:", style="bold")]
    for number, step in enumerate(steps.steps, 1):
        what = f"{step.action} {step.name} {step.version}".rstrip()
        parts.append(Text.assemble(f"  {number}. ", (what, "bold"), f": {step.why}"))
    for left in steps.untouched:
        parts.append(Text(f"  left as it is: {left.why}" + (f" ({left.command})" if left.command else ""), style="dim"))
    return Group(*parts)


def _others(findings: Sequence[Finding]) -> str:
    count = len({finding.subject for finding in findings})
    return f"{count} other" + "s" * (count > 1)


def losses(name: str, findings: Sequence[Finding]) -> RenderableType:
    """What an uninstall of ``name`` would take from others."""
    bad = [finding for finding in findings if finding.severity != "note"]
    if not bad:
        first = Text(f"an uninstall of {name} takes only what is its own", style="green")
    else:
        first = Text(f"an uninstall of {name} breaks {_others(bad)}", style="bold red")
    return Group(first, *(_finding(finding, "") for finding in findings))
