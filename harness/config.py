"""Settings: a tree of frozen dataclasses, seen flat and dotted, overridden by ``key=value``.

Standard library only: the harness overrides with it, and the child reads its own settings back with it.
Each leaf field declares what kind of fact it is: ``batch: int = workload(8)``, ``compile: str = execution("inductor")``.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from harness.errors import UsageError
from harness.records import Kind, Value

C = TypeVar("C")


def workload(default: Any) -> Any:
    """A field that says what is computed: two runs that differ in it did different work."""
    return field(default=default, metadata={"kind": "workload"})


def execution(default: Any) -> Any:
    """A field that says how it is computed: the work stays the same."""
    return field(default=default, metadata={"kind": "execution"})


def context(default: Any) -> Any:
    """A field that names things for people and touches neither work nor speed."""
    return field(default=default, metadata={"kind": "context"})


def _leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{prefix}{f.name}.")
        else:
            yield prefix + f.name, f, value


def flatten(config: Any) -> dict[str, Value]:
    """``{"train.batch": 8, ...}`` of a tree of dataclasses."""
    return {key: value for key, _, value in _leaves(config)}


def kinds(config: Any) -> dict[str, Kind]:
    """What kind of fact each key of ``flatten(config)`` is. A field without a kind is a defect of the config."""
    return {key: f.metadata["kind"] for key, f, _ in _leaves(config)}


def unflatten(cls: type[C], flat: Mapping[str, Value], prefix: str = "") -> C:
    """The dataclass back from ``flatten``'s dictionary. Raises UsageError for an unknown or a missing key."""
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for f in fields(cls):  # type: ignore[arg-type]
        key = prefix + f.name
        if is_dataclass(hints[f.name]):
            values[f.name] = unflatten(hints[f.name], flat, key + ".")  # type: ignore[arg-type]
        elif key in flat:
            values[f.name] = flat[key]
        else:
            raise UsageError(f"setting {key} is missing from the spec")
    if not prefix:
        unknown = sorted(set(flat) - set(flatten(cls(**values))))
        if unknown:
            raise UsageError(f"the spec has settings that {cls.__name__} does not know: {', '.join(unknown)}")
    return cls(**values)


def override(config: C, assignments: Sequence[str]) -> C:
    """``config`` with each ``key=value`` applied, left to right.

    Raises UsageError, in one line that names what would be right, for an unknown key, a wrong type, or a value
    that the config's own checks refuse.
    """
    for assignment in assignments:
        key, sign, text = assignment.partition("=")
        if not sign:
            raise UsageError(f"{assignment!r} is not an override; write key=value, for example {_example(config)}")
        config = _assign(config, key.strip(), text.strip(), key.strip())
    return config


def _example(config: Any) -> str:
    key, _, value = next(iter(_leaves(config)))
    return f"{key}={value}"


def _assign(config: Any, path: str, text: str, full_key: str) -> Any:
    head, _, rest = path.partition(".")
    hints = get_type_hints(type(config))
    here = getattr(config, head, None)
    if head not in hints or is_dataclass(here) != bool(rest):
        raise UsageError(_unknown_key(config, path, full_key))
    value = _assign(here, rest, text, full_key) if rest else _parse(text, hints[head], full_key)
    try:
        return dataclasses.replace(config, **{head: value})
    except ValueError as error:
        raise UsageError(f"{full_key}={text}: {error}") from None


def _unknown_key(config: Any, path: str, full_key: str) -> str:
    outer = full_key[: len(full_key) - len(path)]
    known = [outer + key for key in flatten(config)]
    near = difflib.get_close_matches(full_key, known, n=1, cutoff=0.5)
    if not near:
        last = full_key.rsplit(".", 1)[-1]
        near = [key for key in known if key.rsplit(".", 1)[-1] == last][:1]
    hint = f"did you mean {near[0]}?" if near else f"the settings here are {', '.join(known)}"
    return f"unknown setting {full_key}: {hint}"


def _parse(text: str, hint: Any, key: str) -> Value:
    """``text`` as the type that ``hint`` names."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in options:
        if option is type(None) and text.lower() in ("none", "null"):
            return None
        parsed = _parse_one(text, option)
        if parsed is not None:
            return parsed
    raise UsageError(f"{key}={text}: expected {_spell(hint)}")


def _parse_one(text: str, option: Any) -> Value:
    """The value, or None where ``text`` is not one of ``option``."""
    if get_origin(option) is Literal:
        return next((choice for choice in get_args(option) if str(choice) == text), None)
    if option is bool:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower())
    if option in (int, float):
        try:
            number: float = option(text.replace("_", ""))
        except ValueError:
            return None
        return number if number == number and abs(number) != float("inf") else None
    return text if option is str else None


def _spell(hint: Any) -> str:
    """How a person would name the type: "a whole number", "one of a, b"."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_spell(option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(hint))
    return {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        type(None): "none",
    }.get(hint, str(hint))
