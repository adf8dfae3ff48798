"""The table of known bad states: which of its rules speak of this environment."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path

from packaging.specifiers import SpecifierSet

from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks.known_rules import Rule, When, load
from harness.pin.doctor.cuda.check import Torch, separate, torch_of
from harness.pin.doctor.cuda.folders import library_path
from harness.pin.doctor.cuda.torch_needs import parse, torch_needs
from harness.pin.doctor.installed.installation import Distribution
from harness.pin.doctor.linking.ld_cache import SYSTEM_FOLDERS


@cache
def rules() -> tuple[Rule, ...]:
    """The rules of ``known.toml``. Raises HarnessError where one of them cannot be right."""
    return load((files("harness.pin.doctor.checks") / "known.toml").read_text("utf-8"))


def check(case: Case) -> Iterator[Finding]:
    """Findings of the kinds ``known.*``, one for each rule that speaks."""
    yield from judge(case, rules())


def judge(case: Case, rules: Sequence[Rule]) -> Iterator[Finding]:
    """The findings of ``rules``."""
    scene = _Scene(case)
    for rule in rules:
        matched = scene.matched(rule.when)
        if matched is not None:
            yield _finding(case, rule, matched)


_Matched = Mapping[str, str]  # what a condition found, under the name that a sentence has for it


def _finding(case: Case, rule: Rule, matched: _Matched) -> Finding:
    subject = matched.get(_name_key(rule.subject), rule.subject)
    filled = {**matched, "subject": subject, "version": matched.get(rule.subject, "")}
    shown = {name: case.installation.shown(value) for name, value in filled.items()}
    matches = {name: value for name, value in filled.items() if not name.startswith("name of ")}
    return Finding(
        f"known.{rule.id}",
        rule.severity,
        subject,
        rule.sentence.format_map(shown),
        {"title": rule.title, "report": rule.report, "see": rule.see, "matched": matches},
        _fix(case, rule, {name: shlex.quote(value) for name, value in filled.items()}),
    )


def _fix(case: Case, rule: Rule, quoted: _Matched) -> str:
    parts = [part.format_map(quoted) for part in rule.fix]
    if rule.fix_form == "install":
        return case.install(*parts)
    if rule.fix_form == "reinstall":
        return case.reinstall(*parts)
    if rule.fix_form == "uninstall":
        return case.uninstall(*parts)
    if rule.fix_form == "separate":
        return separate(case, parts)
    return " && ".join(parts)  # "run"; "" for a note


def _name_key(pattern: str) -> str:
    return f"name of {pattern}"


class _Scene:
    """What rules ask of a case. Files are read once, and only when a rule has come so far as to ask."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._texts: dict[str, str] = {}

    @cached_property
    def _torch(self) -> Torch | None:
        return torch_of(self.case)

    @cached_property
    def _needed(self) -> frozenset[str]:
        return frozenset(need.name for need in torch_needs(self.case.installation))

    def matched(self, when: When) -> _Matched | None:
        """What the conditions of ``when`` found; None unless all of them hold. The cheap ones are asked first."""
        found: dict[str, str] = {}
        conditions: tuple[Callable[[When, dict[str, str]], bool], ...] = (
            self._installed,
            self._variables,
            self._of_torch,
            self._libraries,
            self._files,
        )
        return found if all(condition(when, found) for condition in conditions) else None

    def _find(self, pattern: str, specifier: SpecifierSet) -> Distribution | None:
        by_name = self.case.installation.by_name
        if not set(pattern) & set("*?["):
            candidates = [by_name[pattern]] if pattern in by_name else []
        else:
            candidates = [by_name[name] for name in sorted(by_name) if fnmatchcase(name, pattern)]
        return next((d for d in candidates if _has(d.version, specifier)), None)

    def _installed(self, when: When, found: dict[str, str]) -> bool:
        chosen: dict[str, Distribution] = {}
        for pattern, specifier in when.installed.items():
            distribution = self._find(pattern, specifier)
            if distribution is None:
                return False
            chosen[pattern] = distribution
            found[pattern], found[_name_key(pattern)] = distribution.version, distribution.name
        if when.not_locked and not self.case.pins:
            return False
        if any(chosen[pattern].name in self.case.pins for pattern in when.not_locked):
            return False
        if any("+" in chosen[pattern].version for pattern in when.plain):
            return False
        sites = dict.fromkeys(chosen[pattern].site for pattern in when.apart)
        found["folders"] = " and ".join(self.case.installation.shown(site) for site in sites)
        return not when.apart or len(sites) > 1

    def _variables(self, when: When, found: dict[str, str]) -> bool:
        for name, pattern in when.variable.items():
            found["value"] = self.case.variables.get(name, "")
            if not pattern.search(found["value"]):
                return False
        return not any(self.case.variables.get(name) for name in when.unset)

    def _of_torch(self, when: When, found: dict[str, str]) -> bool:
        if when.torch_cuda is None and not when.unneeded_by_torch:
            return True
        if self._torch is None or not self._torch.cuda:
            return False
        found["cuda"] = self._torch.cuda
        if when.torch_cuda is not None and not _has(self._torch.cuda, when.torch_cuda):
            return False
        # Where torch asks for one of them, it is there, and the other is a matter of two owners.
        return not any(
            fnmatchcase(name, pattern)
            for pattern in when.unneeded_by_torch
            for name in self._needed & self.case.installation.by_name.keys()
        )

    def _libraries(self, when: When, found: dict[str, str]) -> bool:
        entries = [entry for entry in library_path(self.case) if not self._ours(entry)]
        for patterns, folders in ((when.library_path, entries), (when.system_library, [*entries, *SYSTEM_FOLDERS])):
            for pattern in patterns:
                folder = next((folder for folder in folders if any(Path(folder).glob(pattern))), None)
                if folder is None:
                    return False
                found["folder"] = folder
        return True

    def _ours(self, folder: str) -> bool:
        real = str(Path(folder).resolve())
        return any(real.startswith(f"{site}/") for site in self.case.installation.layout.sites)

    def _files(self, when: When, found: dict[str, str]) -> bool:
        for pattern, wanted in when.text.items():
            path = next((path for path in self._paths(pattern) if wanted.search(self._text(path))), None)
            if path is None:
                return False
            found["file"] = path
        for pattern, unwanted in when.no_text.items():
            paths = self._paths(pattern)
            if not paths or any(unwanted.search(self._text(path)) for path in paths):
                return False
            found["file"] = paths[0]
        return True

    def _paths(self, pattern: str) -> list[str]:
        """The environment's files that ``pattern`` names under a site folder; a star does not cross a slash."""
        there = (str(path) for site in self.case.installation.layout.sites for path in Path(site).glob(pattern))
        return sorted(path for path in there if path in self.case.installation.files)

    def _text(self, path: str) -> str:
        """What ``path`` says; "" where it cannot be read, which ``files`` tells of."""
        if path not in self._texts:
            try:
                self._texts[path] = Path(path).read_text("utf-8", errors="replace")
            except OSError:
                self._texts[path] = ""
        return self._texts[path]


def _has(version: str, specifier: SpecifierSet) -> bool:
    """``version`` is in ``specifier``; one that cannot be read is only in the empty one."""
    parsed = parse(version)
    return not str(specifier) if parsed is None else specifier.contains(parsed, prereleases=True)
