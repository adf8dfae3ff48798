"""The errors that a log tells of, in order: each an exception, or a line that a signature knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from harness.explain import tracebacks
from harness.explain.signatures import Signature, any_fits, groups, table
from harness.explain.tracebacks import Frame, Raised
from harness.logs import Line

_MESSAGE_LINES = 12
"""How many lines after an exception's name can still be its message."""

_ALIVE = 3
"""Steps or movements of a progress bar after an error that show that the run outlived it."""

_STEP = re.compile(r"\b(?:step|iter|iteration|epoch|batch)s?\b\W{0,4}\d", re.IGNORECASE)
_WARNING = re.compile(r"\bwarn(?:ing|ings)?\b|Warning:", re.IGNORECASE)


@dataclass(frozen=True)
class Error:
    """One error: lines ``start`` to ``end`` of a log, what was raised in them, and the signature that fits best."""

    start: int
    end: int  # exclusive
    raised: tuple[Raised, ...] = ()  # a chain, the first one raised first
    signature: Signature | None = None
    groups: dict[str, str] = field(default_factory=dict)
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
    chains = list(_chains(tracebacks.find(lines)))
    spans = _spans(chains, len(lines))
    everything = [line.text for line in (*lines, *beside)]
    texts = [line.text for line in lines]
    hits = {n: fits for n, text in enumerate(texts) if (fits := _fits(text))}
    found = [
        _error(texts, everything, start, end, chain, hits) for (start, end), chain in zip(spans, chains, strict=True)
    ]
    covered = {n for start, end in spans for n in range(start, end)}
    for n in hits.keys() - covered:
        if not _WARNING.search(texts[n]):  # a warning says what may go wrong; an error, what did
            found.append(_error(texts, everything, n, n + 1, (), hits))
    kept = sorted((e for e in found if e.signature or e.raised), key=lambda e: (e.start, e.end))
    return _with_survival([replace(e, rank=lines[e.line].rank) for e in kept], lines)


def _chains(found: Sequence[Raised]) -> Iterator[tuple[Raised, ...]]:
    """Exceptions raised from one another, together; several threads' and ranks' stand in between."""
    chains: list[list[Raised]] = []
    for raised in found:
        open_one = next((c for c in reversed(chains) if c[-1].rank == raised.rank), None) if raised.follows else None
        if open_one is not None:
            open_one.append(raised)
        else:
            chains.append([raised])
    return iter(tuple(chain) for chain in chains)


def _spans(chains: Sequence[tuple[Raised, ...]], total: int) -> list[tuple[int, int]]:
    """From the first line of each to the end of its message, which the next one cuts short."""
    ends = []
    for chain, after in pairwise([*chains, ()]):
        begins = min((each.start if each.start > chain[-1].at else each.at for each in after), default=total)
        ends.append(min(chain[-1].at + 1 + _MESSAGE_LINES, begins, total))
    return [(chain[0].start, max(end, chain[-1].at + 1)) for chain, end in zip(chains, ends, strict=True)]


def _fits(text: str) -> list[tuple[Signature, re.Match[str]]]:
    """The signatures whose text a line has, the most specific first."""
    return [
        (signature, match)
        for signature in table().signatures
        if (match := next((hit for pattern in signature.text if (hit := pattern.search(text))), None))
    ]


def _error(
    texts: Sequence[str],
    everything: Sequence[str],
    start: int,
    end: int,
    chain: tuple[Raised, ...],
    hits: dict[int, list[tuple[Signature, re.Match[str]]]],
) -> Error:
    order = table().signatures
    here = [(order.index(s), n, s, match) for n in range(start, end) for s, match in hits.get(n, ())]
    for _, n, signature, match in sorted(here, key=lambda hit: hit[:2]):
        known = {name: value for name, value in match.groupdict().items() if value}
        known = groups(signature.more, [texts[n], *everything]) | known
        fits = any_fits(signature.within, texts[start:end]) and any_fits(signature.beside, everything)
        if signature.level in ("cause", "consequence") and fits and signature.larger(known):
            return Error(start, end, chain, signature, known, n)
    return Error(start, end, chain, line=chain[0].at if chain else start)


def _with_survival(found: list[Error], lines: Sequence[Line]) -> list[Error]:
    """Mark the errors after which the run went on: somebody caught and printed them."""
    alive = [n for n, line in enumerate(lines) if line.progress or _STEP.search(line.text)]
    return [
        replace(error, survived=not error.uncaught and sum(n >= error.end for n in alive) >= _ALIVE) for error in found
    ]
