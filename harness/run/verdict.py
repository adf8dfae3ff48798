"""How a run ended, in a status and in one line for a person."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import logs
from harness.records import Finished, Status

_LAUNCHER = "ChildFailedError"
"""What torchrun raises when a worker of its has failed."""
_SIGNAL = re.compile(r"traceback\s*: Signal \d+ \((?P<name>SIG\w+)\)")
_ENDED_BY = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SENT_BECAUSE = {
    signal.SIGINT: "stopped by Ctrl-C",
    signal.SIGTERM: "stopped by a SIGTERM to the harness",
    signal.SIGHUP: "stopped because its terminal was closed",
}


@dataclass(frozen=True)
class Verdict:
    """``exit_code`` is as a shell has it: 128 and more for a signal. ``signal`` is the one that the harness sent or
    passed on first, or else the one that the child died of."""

    status: Status
    exit_code: int
    signal: int | None
    reason: str


def outcome(told: Iterable[Finished]) -> Finished | None:
    """What the processes of one run said of its end: the first failure, or else the last word; None where none spoke.

    A worker says that it failed, then its launcher that a worker did: the first one knows why.
    """
    every = list(told)
    return next((each for each in every if not each.ok), every[-1] if every else None)


def judge(
    code: int, sent: Sequence[int], finished: Finished | None, ours: bool, stderr: Path, memory_ran_out: bool
) -> Verdict:
    """The verdict on a child that ended with ``code`` (minus a signal's number), having been ``sent`` signals by us.

    A child of ours must say that it finished. ``memory_ran_out``: the kernel killed something for memory meanwhile.
    """
    number = -code if code < 0 else None
    exit_code = 128 - code if code < 0 else code
    done = code == 0 and (finished.ok if finished else not ours)
    if done and not (sent and finished is None):
        return Verdict("finished", 0, None, "")
    if sent:  # a launcher may answer a signal by an exit code
        return Verdict("killed", exit_code, sent[0], _why_sent(sent))
    told = finished is not None and not finished.ok  # before a signal came: a launcher may end its whole group with one
    if number in _ENDED_BY and not told:
        return Verdict("killed", exit_code, number, _from_outside(signal.Signals(number), memory_ran_out))
    return Verdict("failed", exit_code, number, _why_failed(code, finished, stderr))


def _why_sent(sent: Sequence[int]) -> str:
    why = _SENT_BECAUSE.get(signal.Signals(sent[0]), f"stopped by {signal.Signals(sent[0]).name}")
    return f"{why}, and killed because it did not end" if signal.SIGKILL in sent[1:] else why


def _from_outside(number: signal.Signals, memory_ran_out: bool) -> str:
    if number == signal.SIGKILL and memory_ran_out:
        return "killed by SIGKILL from outside, while the kernel's out-of-memory killer was at work: memory ran out"
    return f"killed by {number.name} from outside"


def _why_failed(code: int, finished: Finished | None, stderr: Path) -> str:
    if finished is not None and not finished.ok and finished.reason:
        return finished.reason
    said = last_words(stderr)
    if code < 0:
        return f"crashed with {_signal_name(-code)}" + (f"; its last words: {said}" if said else "")
    if code == 0:
        return "it exited with 0 and never said that it had finished"
    return said or f"exit code {code}, and nothing on standard error"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def last_words(stderr: Path, most: int = 300) -> str:
    """The line of standard error that says what went wrong: the last exception's, or else the last one.

    Where torchrun says which worker failed first, that worker's: the others fail because it did, and torchrun last.
    """
    if not stderr.exists():
        return ""
    with stderr.open("rb") as file:
        file.seek(max(0, stderr.stat().st_size - 65536))
        text = file.read().decode(errors="replace")
    lines = [line._replace(text=line.text.strip()) for line in logs.lines([text])]
    exceptions = [line for line in lines if logs.says_exception(line.text)]
    workers = [line for line in exceptions if _LAUNCHER not in line.text]
    rank = logs.first_rank(lines)
    first = [line for line in workers if rank is not None and line.rank == rank]
    signals = [found["name"] for line in logs.root_cause(lines) if (found := _SIGNAL.search(line.text))]
    if signals and not first:
        return f"rank {rank} was ended by {signals[0]}"
    return "".join(line.text for line in (first or workers or exceptions or lines)[-1:])[:most]


def kills_for_memory() -> int:
    """How many processes the kernel has killed for want of memory since it started; 0 where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
