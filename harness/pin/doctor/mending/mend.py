"""Mend an environment from its lock: what is broken is installed again, and what nobody asked about stays.

The new files are fetched and verified beside the environment, then exchanged for the old ones by renaming
(``journal``): a failure before that touches nothing, and one during it is rolled back.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from harness.errors import EnvironmentFault, UsageError
from harness.findings import Finding, Plan, Step, Untouched
from harness.pin.aside import Say
from harness.pin.doctor.case import Case
from harness.pin.doctor.installed.read import read
from harness.pin.doctor.mending import journal
from harness.pin.doctor.mending.exchange import put_in, refuse_changed, taken_out
from harness.pin.doctor.mending.in_use import users_of
from harness.pin.doctor.mending.stage import faults, stage
from harness.pin.locks import normalise

FOLDER = journal.FOLDER

_OF_ITS_OWN = frozenset(
    {
        *("lock.missing", "lock.version", "lock.build", "lock.file", "file.missing", "file.changed", "file.outside"),
        *("file.unreadable", "owner.lost", "python.dist-info", "python.duplicate"),
    }
)
"""Kinds of findings that end when the distribution is installed again."""


def check(case: Case) -> Iterator[Finding]:
    """mend.interrupted."""
    prefix = case.installation.layout.prefix
    if journal.interrupted(Path(prefix)):
        summary = "mending this environment was interrupted while its files were exchanged: some are old and some new"
        evidence = {"folder": f"{prefix}/{FOLDER}"}
        yield Finding("mend.interrupted", "broken", "python", summary, evidence, f"{case.command} --fix")


def plan(case: Case, findings: Sequence[Finding], remove: Sequence[str] = ()) -> Plan:
    """What may be done about ``findings``: ``remove`` is taken away, and the lock's own put right.

    An interrupted mend is rolled back and nothing else: the environment has to be examined again after it. Without a
    lock nothing can be done here. Raises UsageError for a name in ``remove`` that cannot be removed.
    """
    if interrupted := [finding for finding in findings if finding.kind == "mend.interrupted"]:
        return Plan((Step("roll back", "", "", interrupted[0].summary),), ())
    going = {name: case.installation.by_name[name] for name in (_removable(case, name) for name in remove)}
    if case.lock is None:
        asked = [Untouched(name, "without a lock, what it took from others stays lost", "") for name in going]
        return Plan((), (*asked, *_left(case, findings, ())))
    reasons = _reasons(case, findings)
    removals = [Step("remove", name, found.version, "asked for") for name, found in sorted(going.items())]
    reinstalls = [Step("reinstall", name, case.pins[name].version, reasons[name]) for name in sorted(reasons)]
    steps = (*removals, *reinstalls)
    return Plan(steps, tuple(_left(case, findings, steps)))


def _removable(case: Case, asked: str) -> str:
    """The name as the environment has it."""
    known, name, prefix = case.installation.by_name, normalise(asked), case.installation.layout.prefix
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise UsageError(f"{name} is not installed in {prefix}" + (f"; did you mean {near[0]}?" if near else ""))
    if case.is_husk(known[name]):
        raise UsageError(f"of {name} there is only an empty folder: {case.uninstall(name)}")
    if name in case.pins:
        raise UsageError(f"{name} is in the lock and is not removed; to put it right: {case.command} --fix")
    if not known[name].site.startswith(f"{prefix}/"):
        raise UsageError(f"{name} is not in {prefix} but in {known[name].site}, which is not this environment's")
    return name


def _reasons(case: Case, findings: Iterable[Finding]) -> dict[str, str]:
    """Which locked distributions to install again, and what for."""
    reasons: dict[str, str] = {}
    overwritten = []
    other = set()  # at another version or from another file than the lock's
    for finding in findings:
        if finding.severity == "note":
            continue
        if finding.kind == "owner.overwritten":
            overwritten.append(finding)
        elif finding.kind in _OF_ITS_OWN:
            named = [name for name in _named(finding) if name in case.pins and not _is_aside(case, finding)]
            reasons |= {name: finding.summary for name in named if name not in reasons}
            other |= set(named) if finding.kind.startswith("lock.") else set()
    for finding in overwritten:
        winner = finding.evidence.get("winner")
        # Two that the lock has both would take the path from each other for ever.
        if finding.subject in case.pins and (winner not in case.pins or winner in other):
            reasons.setdefault(finding.subject, finding.summary)
    return reasons


def _is_aside(case: Case, finding: Finding) -> bool:
    """Whether it is of an empty dist-info beside a sound one, which is none of the lock's business."""
    return finding.kind == "python.dist-info" and not finding.fix.endswith(f"{case.command} --fix")


def _named(finding: Finding) -> tuple[str, ...]:
    claimants = finding.evidence.get("claimants")
    return claimants if isinstance(claimants, tuple) else (finding.subject,)


def _left(case: Case, findings: Iterable[Finding], steps: Sequence[Step]) -> Iterator[Untouched]:
    """What ``steps`` do not mend; of a distribution that the lock lacks, whatever was found of it, that it may go."""
    touched = {step.name for step in steps}
    for finding in findings:
        name = finding.subject
        if finding.severity == "note" or name in touched or _is_done(case, finding, steps):
            continue
        extra = case.installation.by_name.get(name) if case.lock is not None and name not in case.pins else None
        if extra is not None and case.is_here(extra) and not case.is_husk(extra):
            touched.add(name)
            yield Untouched(name, f"{name} is not in the lock, and nobody has asked to remove it", case.uninstall(name))
        else:
            # The way out is never the command that is being run.
            yield Untouched(name, finding.summary, finding.fix if finding.fix != f"{case.command} --fix" else "")


def _is_done(case: Case, finding: Finding, steps: Sequence[Step]) -> bool:
    """Whether ``steps`` are what ``finding`` asks for: what is installed again for one reason mends others too."""
    command, *removals = finding.fix.split(" --remove ")
    removed = {step.name for step in steps if step.action == "remove"}
    return bool(steps) and command == f"{case.command} --fix" and removed.issuperset(removals)


def carry_out(plan: Plan, case: Case, uv: Path, say: Say) -> None:
    """Do what ``plan`` says to the environment of ``case``, wholly or not at all.

    Raises EnvironmentFault where it cannot be done: the environment is then as it was, or, where the words say so,
    unusable and marked. What is killed in the middle leaves a mark as well, and the next plan rolls it back.
    """
    prefix = Path(case.installation.layout.prefix)
    with _told(case, say) as checked, journal.alone(prefix, say) as lock_fd:
        if "roll back" in {step.action for step in plan.steps}:
            journal.roll_back(prefix)
            say(f"{prefix} is as it was before the interrupted mend")
            return
        _refuse_users(case)
        names = plan.names("remove") | plan.names("reinstall")
        pins = [pin for name, pin in sorted(case.pins.items()) if name in plan.names("reinstall")]
        with journal.workspace(prefix) as folder:
            say(f"fetching {len(pins)} locked packages beside {prefix}")
            staged = stage(case, pins, folder, uv, lock_fd, say) if pins else None
            _refuse_users(case)
            refuse_changed(case, names)
            old, new = taken_out(case, names), put_in(case, names, staged) if staged else ()
            with journal.exchanged(prefix, old, new):
                for fault in faults(read(case.installation.layout), case.pins, pins):
                    raise EnvironmentFault(f"{fault}, though it was right beside {prefix}; its files are as they were")
                checked.append(prefix)


@contextlib.contextmanager
def _told(case: Case, say: Say) -> Iterator[list[Path]]:
    """Say what state the environment is in, whatever ended the mend. Yields a list for what was exchanged and right."""
    prefix, checked = Path(case.installation.layout.prefix), list[Path]()
    try:
        yield checked
    except KeyboardInterrupt:
        if journal.interrupted(prefix):
            state = f"it has to be rolled back: {case.command} --fix"
        else:
            state = f"it was all but done: {case.command} says how it is" if checked else "it is as it was before"
        say(f"mending {prefix} was interrupted; {state}")
        raise
    except OSError as error:
        state = "it has to be rolled back" if journal.interrupted(prefix) else "its files are as they were"
        raise EnvironmentFault(f"{prefix} could not be mended: {error}; {state}") from error


def _refuse_users(case: Case) -> None:
    prefix = case.installation.layout.prefix
    if users := users_of(prefix):
        named = ", ".join(f"{pid} ({running})" for pid, running in list(users.items())[:5])
        more = f" and {len(users) - 5} more" if len(users) > 5 else ""
        raise EnvironmentFault(
            f"{prefix} is in use by process {named}{more}, whose libraries would change under it; "
            f"end it and try again: {case.command} --fix"
        )
