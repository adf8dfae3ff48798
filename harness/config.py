"""Settings: a tree of frozen dataclasses, seen flat and dotted, overridden by ``key=value``.

Standard library only: the harness overrides with it, and the child reads its own settings back with it.
Each leaf field declares what kind of fact it is: ``batch: int = workload(8)``, ``compile: str = execution("none")``.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass
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


def _leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Field[Any], Any]]:
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


def unflatten(cls: type[C], flat: Mapping[str, Value]) -> C:
    """The dataclass back from ``flatten``'s dictionary.

    Raises UsageError for a key that is unknown or missing, and for values that the dataclass's own checks refuse.
    """
    known = _types(cls)
    missing, unknown = sorted(set(known) - set(flat)), sorted(set(flat) - set(known))
    if missing or unknown:
        parts = [f"{word} {', '.join(keys)}" for word, keys in (("missing", missing), ("unknown", unknown)) if keys]
        raise UsageError(f"the settings of {cls.__name__} do not fit this version: {'; '.join(parts)}")
    try:
        return _build(cls, flat, "")
    except ValueError as error:
        raise UsageError(str(error)) from None


def _types(cls: type[Any], prefix: str = "") -> dict[str, Any]:
    """``{"train.batch": int, ...}``: the declared type of every leaf."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(cls).items():
        inner = isinstance(hint, type) and is_dataclass(hint)
        found |= _types(hint, f"{prefix}{name}.") if inner else {prefix + name: hint}
    return found


def _build(cls: type[C], flat: Mapping[str, Value], prefix: str) -> C:
    """The dataclass; what its own checks say of a field is said of the field's whole name."""
    hints = get_type_hints(cls)
    values = {
        f.name: _build(hints[f.name], flat, f"{prefix}{f.name}.")
        if is_dataclass(hints[f.name])
        else flat[prefix + f.name]
        for f in fields(cls)  # type: ignore[arg-type]
    }
    try:
        return cls(**values)
    except ValueError as error:
        if prefix and str(error).split(" ", 1)[0] in values:
            raise ValueError(f"{prefix}{error}") from None
        raise


def override(config: C, assignments: Sequence[str]) -> C:
    """``config`` with every ``key=value`` applied; the last of two for one key counts.

    Raises UsageError, in one line that names what would be right, for an unknown key, a wrong type, or values
    that the config's own checks refuse.
    """
    flat = flatten(config)
    known = _types(type(config))
    for assignment in assignments:
        key, sign, text = (part.strip() for part in assignment.partition("="))
        if not sign or not key:
            key, value = next(iter(flat.items()))
            raise UsageError(f"{assignment!r} is not an override; write key=value, for example {key}={value}")
        if key not in known:
            raise UsageError(f"unknown setting {key}: {_nearest(key, list(known))}")
        flat[key] = _parse(text, known[key], key)
    return unflatten(type(config), flat)


def _nearest(key: str, known: list[str]) -> str:
    leaf = key.rsplit(".", 1)[-1]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.85)  # a slip of the fingers
    near = near or [k for k in known if k.rsplit(".", 1)[-1] == leaf]
    near = near or difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"the settings here are {', '.join(known)}"


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
