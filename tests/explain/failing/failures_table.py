"""Writes docs/failures.md from the signatures: ``python -m tests.explain.failing.failures_table``, into that file."""

from __future__ import annotations

import re

from harness.explain.failing.failures import recognise
from harness.explain.failing.signatures import Signature, table
from tests.explain.failing.logbook import FIXTURES, read

HEAD = """\
# How runs fail, and what is said of it

`harness explain` recognises a failed run from its logs, its events, its exit code or signal. This table is made
from `harness/explain/failing/failures.toml` and from the logs in `tests/explain/failing/logs/`, each with the words of
the report:

    python -m tests.explain.failing.failures_table > docs/failures.md

- **The first error of a log counts**, and neither what other threads and ranks raise because of it, nor one that the
  run outlived: after a *handled* error steps or progress bars go on.
- **Within one error the signature that stands first in the table wins.** Of two errors a *cause* comes before a
  *consequence*, such as an NCCL time-out; how the process *ended* counts where the log names neither. A segmentation
  fault, and memory that ran out, come before what other ranks then say.
- **Only the last 64 KB of each log are read.** Where a run printed more than that after its first error, the first
  that is left counts.
- **What fits nothing is called unknown**, with the last lines that are not progress bars.
- Against a good run, the changes that a failure is known to come from are its *suspects*: the patterns of facts under
  `facts` in the table. A compile cache that went from warm to cold is named where a warm one *can hide* the failure.

| signature | what it is | said of its fixture | a warm cache can hide it | report |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    said = {path.stem: recognise(read(path)[0]) for path in FIXTURES}
    rows = []
    for signature in table().signatures:
        failure = said[signature.id]
        assert failure is not None
        cells = [
            f"`{signature.id}`", signature.title, failure.sentence, "yes" if signature.cache_hides else "",
            reports(signature),
        ]  # fmt: skip
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return HEAD + "".join(rows)


def reports(signature: Signature) -> str:
    """The public reports as links, the first one first; what only this harness says has none."""
    return ", ".join(f"[{name_of(url)}]({url})" for url in (signature.report, *signature.see) if url) or "this harness"


def name_of(url: str) -> str:
    """``pytorch#126024`` for an issue or a pull request."""
    issue = re.fullmatch(r"https://github\.com/[^/]+/([^/]+)/(?:issues|pull)/(\d+)", url)
    return f"{issue[1]}#{issue[2]}" if issue else "Python's documentation"


if __name__ == "__main__":
    print(page(), end="")
