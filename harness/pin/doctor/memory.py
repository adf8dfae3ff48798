"""What the doctor remembers of an environment: its last answer, beside everything that the answer depends on.

As long as none of that moves the environment is walked and nothing else, so little is imported here.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.findings import Diagnosis
from harness.pin.aside import replace_text
from harness.pin.doctor.case import Question
from harness.pin.doctor.checks import as_built
from harness.pin.doctor.installed import tree
from harness.pin.doctor.installed.installation import Layout, Stat
from harness.pin.doctor.installed.stat_cache import StatCache
from harness.pin.doctor.linking.ld_cache import CACHE, SYSTEM_FOLDERS
from harness.pin.doctor.mending import journal
from harness.pin.driver import driver_versions
from harness.pin.fingerprint import variable_facts
from harness.places import Places
from harness.records import Value, digest

_ANSWERS = 8
"""How many are kept: a run and a person ask with other variables and from other folders."""


def folder(name: str, prefix: str, where: Places) -> Path:
    """The folder that remembers this environment; one for each, wherever it is."""
    return where.state / "doctor" / f"{name or Path(prefix).name}-{digest(prefix)[:12]}"


def index(name: str, prefix: str, where: Places) -> Path:
    """The stat cache of this environment."""
    return folder(name, prefix, where) / "index"


def recall(question: Question, layout: Layout, found: Mapping[str, Stat], where: Places) -> Diagnosis | None:
    """The last answer, where nothing that it depends on has changed; ``found`` is what was walked just now."""
    try:
        data = json.loads(_answer(question, layout, where).read_text(encoding="utf-8"))
        key, elsewhere, answer = data["key"], data["elsewhere"], Diagnosis.from_json(data["diagnosis"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # none yet, damaged, another version's, or not ours to read: it is made anew
    return answer if key == _key(question, layout, found, elsewhere) else None


def keep(
    diagnosis: Diagnosis,
    question: Question,
    layout: Layout,
    found: Mapping[str, Stat],
    elsewhere: Sequence[str],
    where: Places,
) -> None:
    """Remember ``diagnosis``. ``elsewhere``: what RECORDs claim outside the walked folders, mostly scripts.

    Raises OSError where nothing can be written.
    """
    key = _key(question, layout, found, elsewhere)
    data = {"key": key, "elsewhere": list(elsewhere), "diagnosis": diagnosis.to_json()}
    path = _answer(question, layout, where)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(data))
    for old in sorted(path.parent.glob("answer-*.json"), key=lambda found: -found.stat().st_mtime)[_ANSWERS:]:
        old.unlink(missing_ok=True)


def _answer(question: Question, layout: Layout, where: Places) -> Path:
    """Where the last answer to this question is."""
    asked = digest([str(question.python), question.command, question.cwd, _variables(question)])
    return folder(question.name, layout.prefix, where) / f"answer-{asked[:12]}.json"


def _variables(question: Question) -> dict[str, Value]:
    """Those that a check may read."""
    own = {name: value for name, value in question.variables.items() if name.startswith("PYTHON")}
    return {**variable_facts(question.variables), **own}


def not_written(error: OSError) -> str:
    """For ``unchecked``: a full disk is when a doctor is called, and no reason to have no diagnosis."""
    return f"nothing could be remembered ({error.filename}: {error.strerror}): the next look reads every byte again"


def known_sha256(diagnosis: Diagnosis, where: Places) -> dict[str, str]:
    """path -> SHA-256 in hexadecimal, of the files whose bytes were read for ``diagnosis`` or before it."""
    hashed = StatCache.load(index(diagnosis.env, diagnosis.prefix, where))
    found = ((path, spelled) for (path, algorithm), spelled in hashed.digests.items() if algorithm == "sha256")
    return {path: base64.urlsafe_b64decode(f"{spelled}=").hex() for path, spelled in found}


def _key(question: Question, layout: Layout, found: Mapping[str, Stat], elsewhere: Sequence[str]) -> str:
    """Everything that the answer depends on; whatever may change it changes this."""
    variables = question.variables
    return digest(
        {
            "files": tree.signature(found),
            "elsewhere": tree.signature(tree.stats(elsewhere, {})),
            "pip": sys.executable,  # whose pip the mending commands name
            "python": [str(question.python), layout.version, list(layout.path)],
            "lock": question.lock.digest if question.lock else None,
            "environment": repr(question.environment),
            "command": question.command,
            "variables": _variables(question),
            "importable": [_importable(place) for place in (question.cwd, *_entries(variables, "PYTHONPATH"))],
            "libraries": [_stamp(place) for place in (*_entries(variables, "LD_LIBRARY_PATH"), *SYSTEM_FOLDERS)],
            "preloaded": [_stamp(place) for place in _entries(variables, "LD_PRELOAD")],
            "linker": _stamp(str(CACHE)),
            "driver": driver_versions(),
            "marks": [_stamp(f"{layout.prefix}/{name}") for name in (as_built.FILE, journal.FOLDER)],
            "doctor": [_stamp(str(path)) for path in sorted(Path(__file__).parent.rglob("*.[pt]*")) if path.is_file()],
        }
    )


def _entries(variables: Mapping[str, str], name: str) -> list[str]:
    return [entry for entry in variables.get(name, "").replace(" ", os.pathsep).split(os.pathsep) if entry]


def _importable(place: str) -> list[str]:
    """What Python could import from a folder: a run writes other files there without end."""
    try:
        with os.scandir(place) as entries:
            return [place, *sorted(e.name for e in entries if e.name.endswith((".py", ".so")) or e.is_dir())]
    except OSError:
        return [place]


def _stamp(place: str) -> list[int | str]:
    """What tells that a file, or the list of a folder's names, has changed."""
    try:
        stat = os.stat(place)  # noqa: PTH116 (a string is enough)
    except OSError:
        return [place]
    return [place, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
