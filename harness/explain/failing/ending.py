"""How a run ended, beside what its logs say: the last thing that happened, by which signal, whether memory was left."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from harness import figures
from harness.evidence import Evidence
from harness.logs import Line, root_cause

_COMPILES = re.compile(
    r"torch/_dynamo/(?!eval_frame)|torch/_inductor/(?!cudagraph|runtime)|_functorch/(?:_?aot_autograd|partitioners)"
    r"|triton/(?:compiler|backends)/|torch::dynamo|dynamo__custom_eval_frame"
)
_CRASH = re.compile(r"Fatal Python error|^\s*Current thread 0x|[Bb]acktrace|SIGSEGV|Segmentation fault")
_MEMORY = re.compile(r"[Oo]ut of memory: Killed process|oom[-_]kill|OOM ?Killed", re.IGNORECASE)
_SIGNALS = re.compile(
    r"exitcode\s*: -(?P<number>\d+)|died with <Signals\.(?P<name>SIG\w+)|terminated with signal (?P<word>SIG\w+)"
    r"|DataLoader worker .*killed by signal: (?P<said>[A-Z][\w ]*)"
)
_SAID = {"Killed": "SIGKILL", "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Illegal instruction": "SIGILL"}
_LOW_MEMORY = 0.02


def last_happening(evidence: Evidence, compiling: str = "") -> str:
    """``step 812 of 5,000, 3.00 s before it ended``; ``compiling flex_attention, before the first step``.

    compiling  what was being compiled when it ended; "" where nothing was, as far as is known
    """
    if compiling:
        return f"compiling {compiling}, {_after(evidence)}"
    step = _last_step(evidence)
    happened = _last_event(evidence)
    if step is None:
        return _before_steps(evidence, happened)
    t, number = step
    if happened is not None and happened[0] > t:
        return f"{happened[1]}, after step {_of_total(evidence, number)}, {_ago(evidence, happened[0])}"
    return f"step {_of_total(evidence, number)}, {_ago(evidence, t)}"


def own_signal(evidence: Evidence) -> str:
    """The signal that ended the run itself: "SIGSEGV"; "" for none. A shell in between says it as an exit code."""
    number, code = evidence.run.result.signal, evidence.run.result.exit_code or 0
    if number is None and 128 < code < 160:
        number = code - 128
    return _name(number) if number is not None else ""


def told_signals(lines: Sequence[Line]) -> tuple[str, ...]:
    """The signals that ended processes of the run, as the log tells; only of the first one where torchrun says it."""
    found = []
    for line in root_cause(lines) or lines:
        if match := _SIGNALS.search(line.text):
            number, name = match["number"], match["name"] or match["word"] or _SAID.get(match["said"] or "", "")
            found.append(_name(int(number)) if number else name)
    return tuple(name for name in found if name)


def was_compiling(evidence: Evidence, lines: Sequence[Line], error: Sequence[Line] = ()) -> str:
    """What was being compiled at the end, "a function" where its name is not known; "" where nothing was.

    error  the lines of the error that ended it; without one, what stands after a crash
    """
    crash = next((n for n, line in enumerate(lines) if _CRASH.search(line.text)), len(lines))
    stack = [line.text for line in error or lines[crash:]]
    if any(_COMPILES.search(text) for text in stack):
        return what_of(stack)
    step = _last_step(evidence)
    since = [event.t for event in evidence.compiles if step is None or event.t > step[0]]
    notes = [note for note in evidence.notes if step is None or note.t > step[0]]
    said = bool(notes) and re.search(r"\bcompil(?:es|ing)\b", notes[-1].text) is not None
    return what_of([line.text for line in lines[-40:]]) if since or said else ""


def memory_ran_out(evidence: Evidence, lines: Sequence[Line]) -> bool:
    """Whether the kernel said so, or the last sample showed next to nothing left."""
    if "memory ran out" in evidence.run.result.reason or any(_MEMORY.search(line.text) for line in lines):
        return True
    left, total = evidence.telemetry.get("memory.available_bytes"), evidence.facts.get("environment.memory.bytes")
    if left is None or len(left.values) == 0 or not isinstance(total, int):
        return False
    return float(left.values[-1]) < _LOW_MEMORY * total


def what_of(texts: Sequence[str]) -> str:
    """What these lines, of a stack, compile or call."""
    return "flex_attention" if any("flex_attention" in text for text in texts) else "a function"


def _last_step(evidence: Evidence) -> tuple[float, int] | None:
    ends = [(float(steps.t[-1]), int(steps.step[-1])) for steps in evidence.steps.values() if len(steps)]
    return max(ends, default=None)


def _last_event(evidence: Evidence) -> tuple[float, str] | None:
    """The last thing but a step, and its words."""
    said: list[tuple[float, str]] = [(c.t, f"compiled {c.name}") for c in evidence.compiles]
    said += [(e.t, f'the evaluation "{e.name}"') for e in evidence.evals]
    said += [(c.t, f"a checkpoint at step {c.step:,}") for c in evidence.checkpoints]
    said += [(n.t, n.text) for n in evidence.notes if n.level == "info"]
    if evidence.started_t is not None:
        said.append((evidence.started_t, "the trainer had started"))
    return max(said, key=lambda happened: happened[0], default=None)


def _before_steps(evidence: Evidence, happened: tuple[float, str] | None) -> str:
    if happened is None:
        own = bool(evidence.run.spec.recipe)  # another's command says nothing of itself
        return "it ended before it said that it had started" if own else "no step was seen"
    return f"{happened[1]}, {_ago(evidence, happened[0])}; no step was reached"


def _after(evidence: Evidence) -> str:
    step = _last_step(evidence)
    return "before the first step" if step is None else f"after step {_of_total(evidence, step[1])}"


def _of_total(evidence: Evidence, number: int) -> str:
    total = next((v for n, v in evidence.facts.items() if re.fullmatch(r"workload\.(?:train\.)?steps", n)), None)
    return f"{number:,} of {total:,}" if isinstance(total, int) else f"{number:,}"


def _ago(evidence: Evidence, t: float) -> str:
    ago = evidence.end - t
    return f"{figures.duration(ago)} before it ended" if ago >= 1 else "just before it ended"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
