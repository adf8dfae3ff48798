"""The errors that a log tells of, in order: each an exception, or a line that a signature knows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from harness.explain.failing import tracebacks
from harness.explain.failing.signatures import Signature, any_fits, groups, table
from harness.explain.failing.tracebacks import Frame, Raised
from harness.logs import Line

_MESSAGE_LINES = 12
"""How many lines after an exception's name can still be its message."""

_ALIVE = 3
"""Steps or movements of a progress bar after an error that show that the run outlived it."""

_STEP = re.compile(r"\b(?:step|iter|iteration|epoch|batch)s?\b\W{0,4}\d", re.IGNORECASE)
_WARNING = re.compile(r"\bwarn(?:ing|ings)?\b|Warning:", re.IGNORECASE)


_Hits = Mapping[int, Sequence[tuple[Signature, re.Match[str]]]]
"""By the number of a line: the signatures whose text it has."""


@dataclass(frozen=True)
class Error:
    """One error: lines ``start`` to ``end`` of a log, what was raised in them, and the signature that fits best."""

    start: int
    end: int  # exclusive
    raised: tuple[Raised, ...] = ()  # a chain, the first one raised first
    signature: Signature | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    line: int = 0  # the one that says it
    rank: int | None = None
    survived: bool = False

    @property
    def uncaught(self) -> bool:
        """Whether its log says that nothing caught it: the hook of a thread, a process or a rank printed it."""
        return any(each.uncaught for each in self.raised)

    @property
    def follows_another(self) -> bool:
        """Whether it is what others raise once one has failed, or an interruption."""
        if self.signature is not None:
            return self.signature.level == "consequence"
        return all(each.type.rpartition(".")[2] in table().consequences for each in self.raised)

    @property
    def own(self) -> Frame | None:
        """Where in the user's own code the first of it was raised, as far as its traceback says."""
        return next((each.own for each in self.raised if each.own), None)

    @property
    def kind(self) -> str:
        """What errors that are the same one, in several threads or ranks, have in common."""
        return self.signature.id if self.signature else self.raised[0].type if self.raised else ""


def errors(lines: Sequence[Line], beside: Sequence[Line] = ()) -> list[Error]:
    """The errors of one log, in order. ``beside``: the run's other log, where a signature may need a line of it."""
    everything = [line.text for line in (*lines, *beside)]
    hits = {n: fits for n, line in enumerate(lines) if (fits := _fits(line.text))}
    chains = _chains(tracebacks.find(lines))
    found, covered = [], set[int]()
    for chain, after in pairwise([*chains, ()]):
        own = _lines_of(chain, after, lines, hits)
        covered.update(own)
        found.append(_error(lines, everything, own, chain, hits))
    for n in hits.keys() - covered:
        if not _WARNING.search(lines[n].text):  # a warning says what may go wrong; an error, what did
            found.append(_error(lines, everything, [n], (), hits))
    kept = sorted((error for error in found if error.signature or error.raised), key=lambda e: (e.start, e.end))
    return _with_survival(kept, lines)


def _chains(found: Sequence[Raised]) -> list[tuple[Raised, ...]]:
    """Exceptions raised from one another, together; several threads' and ranks' stand in between."""
    chains: list[list[Raised]] = []
    for raised in found:
        open_one = next((c for c in reversed(chains) if c[-1].rank == raised.rank), None) if raised.follows else None
        if open_one is not None:
            open_one.append(raised)
        else:
            chains.append([raised])
    return [tuple(chain) for chain in chains]


def _lines_of(chain: tuple[Raised, ...], after: tuple[Raised, ...], lines: Sequence[Line], hits: _Hits) -> list[int]:
    """The lines of an error: from its traceback's first to the end of its message, of its own rank alone."""
    rank, at = chain[0].rank, chain[-1].at
    begins = next((each.start if each.start > at else each.at for each in after), len(lines))
    message = []
    for n in range(at + 1, min(at + 1 + _MESSAGE_LINES, begins)):
        said_by_another = any(signature.level == "consequence" for signature, _ in hits.get(n, ()))
        if lines[n].progress or lines[n].rank != rank or said_by_another or _STEP.search(lines[n].text):
            break
        message.append(n)
    return [*(n for n in range(chain[0].start, at + 1) if lines[n].rank == rank), *message]


def _fits(text: str) -> list[tuple[Signature, re.Match[str]]]:
    """The signatures of errors whose text a line has, the most specific first."""
    return [
        (signature, match)
        for signature in table().signatures
        if signature.level in ("cause", "consequence")
        if (match := next((hit for pattern in signature.text if (hit := pattern.search(text))), None))
    ]


def _error(
    lines: Sequence[Line], everything: Sequence[str], own: Sequence[int], chain: tuple[Raised, ...], hits: _Hits
) -> Error:
    """The error of the lines ``own``, with the signature that stands first in the table of those that fit."""
    error = Error(own[0], own[-1] + 1, chain, line=chain[0].at if chain else own[0], rank=lines[own[0]].rank)
    order = table().signatures
    here = [(order.index(signature), n, signature, match) for n in own for signature, match in hits.get(n, ())]
    texts = [lines[n].text for n in own]
    for _, n, signature, match in sorted(here, key=lambda hit: hit[:2]):
        known = groups(signature.more, [lines[n].text, *everything])
        known |= {name: value for name, value in match.groupdict().items() if value}
        fits = any_fits(signature.within, texts) and any_fits(signature.beside, everything)
        if fits and signature.larger(known):
            return replace(error, signature=signature, groups=known, line=n)
    return error


def _with_survival(found: list[Error], lines: Sequence[Line]) -> list[Error]:
    """Mark the errors after which the run went on: somebody caught and printed them."""
    alive = [n for n, line in enumerate(lines) if line.progress or _STEP.search(line.text)]
    return [
        replace(error, survived=not error.uncaught and sum(n >= error.end for n in alive) >= _ALIVE) for error in found
    ]
