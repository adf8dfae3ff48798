"""The rules of ``known.toml``, read and checked: a rule that cannot be right is refused by its name and key."""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from harness.errors import HarnessError
from harness.findings import SEVERITIES, Severity

FixForm = Literal["install", "reinstall", "uninstall", "separate", "run"]

_REPORT = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+")


@dataclass(frozen=True)
class When:
    """All that must hold for a rule to speak; ``known.toml`` says what each key means."""

    installed: Mapping[str, SpecifierSet] = field(default_factory=dict)
    not_locked: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    unneeded_by_torch: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    torch_cuda: SpecifierSet | None = None
    variable: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    text: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    no_text: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    library_path: tuple[str, ...] = ()
    system_library: tuple[str, ...] = ()

    def placeholders(self) -> set[str]:
        """What a rule's sentence and fix may name, given these conditions."""
        found = {"subject", "version", *self.installed}
        found |= {"cuda"} if self.torch_cuda is not None else set()
        found |= {"file"} if self.text or self.no_text else set()
        found |= {"folder"} if self.library_path or self.system_library else set()
        return found | ({"folders"} if self.apart else set()) | ({"value"} if self.variable else set())


@dataclass(frozen=True)
class Rule:
    """One known bad state."""

    id: str
    title: str
    severity: Severity
    subject: str  # a pattern of ``when.installed``, or "python"
    sentence: str
    report: str  # where it was reported in public
    when: When
    see: tuple[str, ...] = ()  # further reports
    fix_form: FixForm | None = None  # None for a note
    fix: tuple[str, ...] = ()


def load(text: str) -> tuple[Rule, ...]:
    """The rules in ``text``, in its order. Raises HarnessError naming the rule and the key that is wrong."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise HarnessError(f"known.toml is not TOML: {error}; mend the file") from None
    rules: dict[str, Rule] = {}
    for number, data in enumerate(table.get("rule", ()), 1):
        rule = _rule(data, str(data.get("id", f"number {number}")))
        if rule.id in rules:
            raise _wrong(rule.id, "id", "is there twice")
        rules[rule.id] = rule
    return tuple(rules.values())


def _wrong(rule: str, key: str, why: str) -> HarnessError:
    return HarnessError(f"known.toml, rule {rule}, key {key}: {why}; mend the rule")


def _rule(data: Mapping[str, Any], name: str) -> Rule:
    required = ("id", "title", "severity", "subject", "sentence", "report", "when")
    for key in required:
        if key not in data:
            raise _wrong(name, key, "is missing")
    for key in data:
        if key not in (*required, "see", "fix"):
            raise _wrong(name, key, "is not a key of a rule")
    for key in ("id", "title", "severity", "subject", "sentence", "report"):
        if not isinstance(data[key], str) or not data[key].strip():
            raise _wrong(name, key, "is not a text")
    if data["severity"] not in SEVERITIES:
        raise _wrong(name, "severity", f"is none of {', '.join(SEVERITIES)}")
    see = _names(data.get("see", []), name, "see")
    for key, url in (("report", data["report"]), *(("see", url) for url in see)):
        if not _REPORT.fullmatch(url):
            raise _wrong(name, key, f"{url} is not the address of an issue or pull request")
    when = _when(data["when"], name)
    if data["subject"] != "python" and data["subject"] not in when.installed:
        raise _wrong(name, "subject", "is neither in when.installed nor python")
    form, fix = _fix(data, name)
    for key, text in (("sentence", data["sentence"]), *(("fix", part) for part in fix)):
        _check_placeholders(text, when, name, key)
    own = {key: data[key] for key in required if key != "when"}
    return Rule(**own, when=when, see=see, fix_form=form, fix=fix)


def _fix(data: Mapping[str, Any], name: str) -> tuple[FixForm | None, tuple[str, ...]]:
    given = data.get("fix")
    if data["severity"] == "note":
        if given is not None:
            raise _wrong(name, "fix", "a note has nothing to mend")
        return None, ()
    if not isinstance(given, dict) or len(given) != 1 or (form := next(iter(given))) not in get_args(FixForm):
        raise _wrong(name, "fix", f"is not one of {', '.join(get_args(FixForm))} with what it takes")
    parts = _names(given[form], name, f"fix.{form}")
    if not parts:
        raise _wrong(name, f"fix.{form}", "is empty")
    return form, parts


def _when(data: Any, name: str) -> When:
    if not isinstance(data, dict) or not data:
        raise _wrong(name, "when", "has no condition")
    known = {f.name for f in fields(When)}
    read: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            raise _wrong(name, f"when.{key}", "is not a condition")
        read[key] = _condition(key, value, name)
    return When(**read)


def _condition(key: str, value: Any, name: str) -> Any:
    if key == "torch_cuda":
        return _specifier(value, name, "when.torch_cuda")
    if key in ("installed", "variable", "text", "no_text"):
        if not isinstance(value, dict) or not value:
            raise _wrong(name, f"when.{key}", "is not a table")
        parse = _specifier if key == "installed" else _pattern
        return {str(k): parse(v, name, f"when.{key}.{k}") for k, v in value.items()}
    names = _names(value, name, f"when.{key}")
    if not names:
        raise _wrong(name, f"when.{key}", "is empty")
    return names


def _names(value: Any, name: str, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise _wrong(name, key, "is not a list of texts")
    return tuple(value)


def _specifier(value: Any, name: str, key: str) -> SpecifierSet:
    try:
        return SpecifierSet(value, prereleases=True)
    except (InvalidSpecifier, AttributeError, TypeError):
        raise _wrong(name, key, f"{value!r} is not a version specifier") from None


def _pattern(value: Any, name: str, key: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except (re.error, TypeError) as error:
        raise _wrong(name, key, f"is not a regular expression ({error})") from None


def _check_placeholders(text: str, when: When, name: str, key: str) -> None:
    try:
        used = {part for _, part, _, _ in string.Formatter().parse(text) if part is not None}
    except ValueError as error:
        raise _wrong(name, key, str(error)) from None
    for placeholder in sorted(used - when.placeholders()):
        raise _wrong(name, key, f"no condition gives {{{placeholder}}}")
