"""How a run failed: each signature on the text of its public report, the rules of precedence, and what is unknown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.explain.failures import recognise
from harness.explain.signatures import table
from tests.explain.logbook import FIXTURES, read


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_report_is_recognised_by_its_own_signature(path: Path) -> None:
    evidence, head = read(path)
    failure = recognise(evidence)
    assert failure is not None
    assert (failure.signature or "unknown") == path.stem
    assert head.get("says", "") in failure.sentence
    assert head.get("not_says", "nothing of the kind") not in failure.sentence
    assert head.get("last", "") in failure.last
    assert head.get("advice", "") in failure.advice
    assert failure.reference == table()[path.stem].report
    assert not re.search(r"[{}\[\]]", failure.sentence.replace("[Errno", ""))
    assert failure.lines
