"""Facts of a run that happened elsewhere: those that a person gives, and those that a tracker's params are.

A fact that nobody gave is absent: unknown, never equal.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from harness.errors import UsageError
from harness.records import KINDS, CacheState, RunSpec, Value

_NAME = re.compile(r"[A-Za-z0-9_][\w.\-/]*")
_EXAMPLE = "--set workload.data.samples=902000"


def given(assignments: Sequence[str]) -> dict[str, Value]:
    """``{"workload.data.samples": 902000}`` of ``kind.name=value``; the last of two for one fact counts.

    Raises UsageError, in one line, for what is no assignment, has no kind that there is, or no value that can be.
    """
    return dict(map(_given, assignments))


def _given(assignment: str) -> tuple[str, Value]:
    fact, sign, text = (part.strip() for part in assignment.partition("="))
    if not sign:
        raise UsageError(f"--set {assignment}: write fact=value, for example {_EXAMPLE}")
    kind, _, name = fact.partition(".")
    if kind == "observed":
        raise UsageError(
            f"--set {assignment}: what is observed is read from the log itself; say what ran instead, for example "
            "--set execution.attention.used=dense"
        )
    if kind not in KINDS:
        raise UsageError(f"--set {assignment}: a fact begins with its kind, one of {', '.join(KINDS)}: {_EXAMPLE}")
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise UsageError(f"--set {assignment}: {fact!r} is not a fact's name, for example {_EXAMPLE}")
    if text in ("", "null"):
        raise UsageError(f"--set {assignment}: leave it out instead: a fact that nobody gave is unknown")
    return fact, value_of(text)


def value_of(text: str) -> Value:
    """A number, true or false as JSON spells them (or Python), and any other text as it stands."""
    if text in ("True", "False"):
        return text == "True"
    try:
        value = json.loads(text, parse_constant=str)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def asked_for(facts: Mapping[str, Value]) -> RunSpec:
    """What was asked, as far as it is known: the workload and execution facts are its settings."""
    split = {fact: tuple(fact.split(".", 1)) for fact in facts if fact.startswith(("workload.", "execution."))}
    return RunSpec(
        recipe="",
        env="",
        argv=(),
        config={name: facts[fact] for fact, (_, name) in split.items()},
        kinds={name: "workload" if kind == "workload" else "execution" for kind, name in split.values()},
        summary="A run that happened elsewhere.",
    )


def cache_of(facts: Mapping[str, Value]) -> CacheState | None:
    """What its compile cache held when it began, where the facts say it."""
    held, entries = facts.get("state.cache.bytes"), facts.get("state.cache.entries")
    if not isinstance(held, int | float) or not isinstance(entries, int | float):
        return None
    return CacheState(int(held), int(entries))


# --- a tracker's params ----------------------------------------------------------------------------------


def of_params(params: Mapping[str, str], known: Mapping[str, Value]) -> dict[str, Value]:
    """A tracker's params as facts: under the kind that they are written with or known to have, or else as context.

    One that ``known`` has already, under any kind, is left out: a person has said what it is.
    """
    taken = {fact.split(".", 1)[1] for fact in known}
    facts: dict[str, Value] = {}
    for key, text in params.items():
        name = re.sub(r"[^\w.\-/]", "_", key)
        kind, _, rest = name.partition(".")
        if kind in KINDS and rest:
            fact = name
        else:
            fact = f"{_kinds().get(name.rsplit('/', 1)[-1].rsplit('.', 1)[-1].lower(), 'context.param')}.{name}"
        if name not in taken and fact.split(".", 1)[1] not in taken and text not in ("", "None"):
            facts[fact] = value_of(text)
    return facts


@cache
def _kinds() -> Mapping[str, str]:
    """The kind of each param that is known by its name, from ``params.toml``."""
    data = tomllib.loads(Path(__file__).with_name("params.toml").read_text("utf-8"))
    return {name: kind for kind, names in data.items() for name in names}
