"""One diagnosis: read the environment, hash what changed, ask every check; or remember the answer."""

from __future__ import annotations

import time
from dataclasses import replace

from harness.findings import Diagnosis
from harness.pin.doctor import memory
from harness.pin.doctor.case import Question
from harness.pin.doctor.installed import tree
from harness.pin.doctor.installed.digests import Progress
from harness.pin.doctor.installed.layout import ask
from harness.pin.doctor.installed.stat_cache import moment, settled
from harness.places import Places


def diagnose(
    question: Question, where: Places, progress: Progress | None = None, limit: int | None = None
) -> Diagnosis:
    """Everything that is wrong with the environment; from memory where nothing has changed since.

    ``limit``: hash at most so many bytes; what is left over is named in ``unchecked``.
    Raises EnvironmentFault where the Python does not start.
    """
    begun, at = time.perf_counter(), moment()
    layout = ask(question.python)
    walked = tree.walk(layout)
    if remembered := memory.recall(question, layout, walked.files, where):
        return replace(remembered, hashed_bytes=0, seconds=time.perf_counter() - begun)
    from harness.pin.doctor.examine import examine  # every check: a quarter of a second to load
    from harness.pin.doctor.installed.read import read

    installation = read(layout, walked)
    diagnosis = examine(question, where, progress, installation, limit).diagnosis
    diagnosis = replace(diagnosis, seconds=time.perf_counter() - begun)
    if not diagnosis.unchecked and all(settled(stat, at) for stat in installation.files.values()):
        elsewhere = sorted(installation.files.keys() - walked.files.keys())
        try:
            memory.keep(diagnosis, question, layout, walked.files, elsewhere, where)
        except OSError as error:
            return replace(diagnosis, unchecked=(memory.not_written(error),))
    return diagnosis
