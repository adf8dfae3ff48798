"""What one line of somebody's training log says: its step, loss, tokens, rates and times, in the shapes that are usual.

    step 10/500 | loss 2.31 | 21.5 Ktok/s               iter 10: loss 2.31, time 135.22ms, mfu 12.3%
    step: 10  loss:  7.54  memory:  9.6GiB  tps: 3,456  {'loss': 2.31, 'learning_rate': 5e-05, 'epoch': 0.1}
    step 1/10 | train loss 5.3 | 1234.5 ms | 9000 tok/s 10%|#   | 10/100 [00:05<00:45,  2.00it/s, loss=2.31]
    {"step": 10, "loss": 2.31, "tokens_per_second": 3456.7}

Each pattern takes what it reads out of the line, so that "loss 2.3 tok/s 3456" is not a rate of 2.3.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass, field

_NUMBER = r"[-+]?(?:\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)?(?:\.\d+|(?<=\d)\.?)(?:[eE][-+]?\d+)?"
_WHOLE = r"(?:\d{1,3}(?:[,_]\d{3})+|\d+)"
_IS = r"[\"']?\s*(?:\([^()\d]*\)\s*)?[:=]\s*"  # the key ended, perhaps a unit in brackets, and a sign
_MAYBE = r"[\"']?\s*[:=]?\s*"
_KEY = r"(?<![\w.])[\"']?"
_FREE = r"(?<![\w.])(?=[-+.\d])"  # where a number may begin
_A_SECOND = r"\s*(?:/|per|_per_|_)\s*s(?:ec(?:ond)?s?)?"
_TIMES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_IN_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "h": 3600.0}


@dataclass(slots=True)
class Figures:
    """What a line says; None where it does not. ``named`` has the words that a figure stood under."""

    line: int = 0
    step: int | None = None
    total: int | None = None
    loss: float | None = None
    tokens: float | None = None
    rate: float | None = None  # tokens a second
    seconds: float | None = None  # of one step
    clock: float | None = None  # seconds since the training began, where it says that
    stamp: float | None = None  # seconds since 1970, or since midnight where it says no day
    bar: str = ""  # which progress bar it is
    evaluated: dict[str, float] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether it says anything of a step but its number."""
        return any(value is not None for value in (self.loss, self.tokens, self.rate, self.seconds, self.clock))


def number(text: str) -> float:
    """The number that ``text`` spells, with or without thousands separators."""
    return float(text.replace(",", "").replace("_", ""))


# --- time stamps -----------------------------------------------------------------------------------------

_TIME = r"(?P<h>\d{2}):(?P<m>\d{2}):(?P<s>\d{2}(?:[.,]\d{1,9})?)(?![\d:])"
_ISO = re.compile(r"(?<!\d)(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})[T _]" + _TIME)
_SLASHED = re.compile(r"(?<!\d)(?P<month>\d{2})/(?P<day>\d{2})/(?P<year>\d{4})[ T]" + _TIME)
_OF_DAY = re.compile(r"^(?:\W{0,2}|[IWEF]\d{4} )" + _TIME)
_AT_MOST = 80  # characters into a line at which a time is still its stamp


def stamp_of(text: str) -> float | None:
    """The line's time stamp, taken for UTC; seconds since midnight where it has no day; None where it has none."""
    head = text[:_AT_MOST]
    found = _ISO.search(head) or _SLASHED.search(head) or _OF_DAY.search(head)
    if found is None:
        return None
    of_day = int(found["h"]) * 3600 + int(found["m"]) * 60 + float(found["s"].replace(",", "."))
    if "year" not in found.re.groupindex:
        return of_day
    return calendar.timegm((int(found["year"]), int(found["month"]), int(found["day"]), 0, 0, 0)) + of_day


# --- figures ---------------------------------------------------------------------------------------------

_BAR = re.compile(
    r"(?P<name>[^|]*?):?\s*\d{1,3}%\|[^|]*\|\s*(?P<n>\d+)/(?P<total>\d+)\s*\[(?P<elapsed>[\d:]+)<[^,\]]*"
    r"(?:,\s*(?P<x>[\d.]+|\?)\s*(?P<unit>[^\s,\]]+))?"
)


def _read_bar(figures: Figures, match: re.Match[str]) -> None:
    """A tqdm bar: its count is the step, its rate is smoothed, its clock has whole seconds."""
    figures.step, figures.total = int(match["n"]), int(match["total"])
    figures.bar = f"{re.sub(r'[0-9]+', '#', match['name']).strip()}/{match['total']}"
    figures.clock = _of_clock(match["elapsed"])
    unit, rate = match["unit"] or "", match["x"] or "?"
    if rate != "?" and float(rate) > 0 and (unit.endswith("/s") or unit.startswith("s/")):
        figures.seconds = 1 / float(rate) if unit.endswith("/s") else float(rate)
        figures.named["seconds"] = unit


def _of_clock(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part or 0)
    return seconds


def _read_step(figures: Figures, match: re.Match[str]) -> None:
    figures.step = int(number(match["n"]))
    figures.total = int(number(match["total"])) if match["total"] else None


def _read_loss(figures: Figures, match: re.Match[str]) -> None:
    figures.loss = number(match["x"])


def _read_evaluated(figures: Figures, match: re.Match[str]) -> None:
    figures.evaluated[match["what"].lower()] = number(match["x"])


def _read_rate(figures: Figures, match: re.Match[str]) -> None:
    figures.rate = number(match["x"]) * _times(match)
    figures.named["rate"] = match["key"].strip()


def _read_tokens(figures: Figures, match: re.Match[str]) -> None:
    figures.tokens = number(match["x"]) * _times(match)
    figures.named["tokens"] = match["key"].strip()


def _times(match: re.Match[str]) -> float:
    groups = match.groupdict()
    return _TIMES[(groups.get("k") or groups.get("k2") or "").lower()]


def _read_seconds(figures: Figures, match: re.Match[str]) -> None:
    groups = match.groupdict()
    unit = (groups.get("unit") or groups.get("unit2") or groups.get("unit3") or "").lower()
    figures.seconds = number(match["x"]) * _IN_SECONDS["s" if unit.startswith("sec") else unit]
    figures.named["seconds"] = (groups.get("key") or unit).strip()


def _read_pace(figures: Figures, match: re.Match[str]) -> None:
    pace = number(match["x"])
    if pace > 0:
        figures.seconds = 1 / pace
        figures.named["seconds"] = match["key"].strip()


def _read_clock(figures: Figures, match: re.Match[str]) -> None:
    unit = (match["unit"] or "").lower()
    figures.clock = number(match["x"]) * _IN_SECONDS["s" if unit.startswith("sec") else unit[:2]]


_TOKENS_KEY = (
    r"(?P<key>num_input_tokens_seen|(?:total|consumed|train|num|n)[_ ]?tok(?:en)?s(?:[_ ]seen)?|tok(?:en)?s[_ ]seen|"
    r"tok(?:en)?s(?:[_ /](?:per[_ ])?step)?|tok)"
)
_RATE_KEY = rf"(?P<key>(?:train_|avg_)?(?P<k>[kKmM])?tok(?:en)?s?{_A_SECOND}(?:_per_(?:gpu|device))?|tps|wps)"
_STEP_TIME = (
    r"(?P<key>elapsed time per iteration|(?:step|iter|iteration|batch)[_ ](?:time|seconds|s)|step_avg|"
    r"(?:time|s|sec|seconds)[_ /](?:per[_ ])?(?:step|iter|iteration|it)|dt|time|took)(?P<unit2>_ms)?"
)
_UNIT = r"\s*(?P<unit>ms|us|s|sec(?:onds?)?)?(?![\w:])"

Reader = Callable[[Figures, re.Match[str]], None]
"""Puts a match into the figures. Where there is None, the match is of another kind: its number is nobody else's."""

_READERS: tuple[tuple[tuple[str, ...], re.Pattern[str], Reader | None], ...] = tuple(
    (words, re.compile(pattern, re.IGNORECASE), reader)
    for words, pattern, reader in (
        (("runtime",), rf"{_KEY}eval_(?P<what>runtime){_IS}(?P<x>{_NUMBER})", _read_evaluated),
        (
            ("val", "test"),
            rf"{_KEY}(?:eval|val(?:idation)?|test)[_ /](?P<what>loss){_MAYBE}(?P<x>{_NUMBER}|nan|inf)",
            _read_evaluated,
        ),
        (("_per_second",), rf"{_KEY}(?:eval|test)_\w+_per_second{_IS}{_NUMBER}", None),
        (
            ("loss",),
            rf"{_KEY}(?:(?:train(?:ing)?|lm|avg|mean|total)[_ /])?loss{_MAYBE}(?P<x>{_NUMBER}|nan|inf)(?![\w:])",
            _read_loss,
        ),
        (
            ("lr", "rate", "norm", "mfu", "tflops", "epoch", "size"),
            rf"{_KEY}(?:learning[_ ]rate|lr|grad[_ ]?norm|gnorm|norm|mfu|tflops|epoch|batch[_ ]size){_MAYBE}{_NUMBER}",
            None,
        ),
        (
            ("step", "it", "update"),
            rf"{_KEY}(?:(?:global|train(?:ing)?|optim(?:izer)?)[_ /])?(?:step|iteration|iter|num_updates|update|it)"
            rf"[\"']?\s*[:=#\[(]?\s*(?P<n>{_WHOLE})(?:\s*(?:/|of)\s*(?P<total>{_WHOLE}))?(?!\.?\d|\w|\s*(?:it/s|s/it))",
            _read_step,
        ),
        (("tok", "tps", "wps"), rf"{_KEY}{_RATE_KEY}{_IS}(?P<x>{_NUMBER})\s*(?P<k2>[km])?(?!\w)", _read_rate),
        (
            ("tok",),
            rf"{_FREE}(?P<x>{_NUMBER})\s*(?P<key>(?P<k>[km])?\s?tok(?:en)?s?{_A_SECOND})(?![\w])",
            _read_rate,
        ),
        (("tok", "tps", "wps"), rf"{_KEY}{_RATE_KEY}\s+(?P<x>{_NUMBER})\s*(?P<k2>[km])?(?!\w)", _read_rate),
        (("tok",), rf"{_KEY}{_TOKENS_KEY}{_MAYBE}(?P<x>{_NUMBER})\s?(?P<k>[kmb])?(?!\w)", _read_tokens),
        (
            ("tok",),
            rf"{_FREE}(?P<x>{_NUMBER})\s?(?P<k>[kmb])?\s*(?P<key>tok(?:en)?s?)\b(?!\s*[/:=_]|\s*per)",
            _read_tokens,
        ),
        (("/s",), rf"{_FREE}(?P<x>{_NUMBER})\s?(?P<key>(?:it|iters?|steps?)/s(?:ec)?)\b", _read_pace),
        (("it", "steps"), rf"{_KEY}(?P<key>(?:steps|it|iters|iterations){_A_SECOND}){_IS}(?P<x>{_NUMBER})", _read_pace),
        (
            ("/it", "/ it", "/step", "/ step"),
            rf"{_FREE}(?P<x>{_NUMBER})\s?(?P<unit>ms|s|sec)\s?/\s?(?:it|iter|step)\b",
            _read_seconds,
        ),
        (
            ("time", "step", "it", "dt", "took", "batch"),
            rf"{_KEY}{_STEP_TIME}[\"']?\s*(?:\((?P<unit3>ms|s|sec)\))?\s*[:=]?\s*(?P<x>{_NUMBER}){_UNIT}",
            _read_seconds,
        ),
        (
            ("elapsed", "train_time", "wall"),
            rf"{_KEY}(?:elapsed|train_time|wall(?:[_ ]?clock)?(?:[_ ]time)?){_MAYBE}(?P<x>{_NUMBER})"
            r"\s*(?P<unit>ms|s|sec(?:onds)?|m|min|h)?(?![\w:])",
            _read_clock,
        ),
        (("ms",), rf"{_FREE}(?P<x>{_NUMBER})\s?(?P<unit>ms)\b", _read_seconds),
    )
)
"""(words, pattern, reader), the surer ones first. A pattern is tried only where one of its words stands."""

_DIGIT = re.compile(r"\d")
_WORDS = re.compile(r"loss|step|iter|tok|tps|wps|update|%\||it/s|s/it|\bit\b", re.IGNORECASE)
_VALIDATES = re.compile(r"\bvalidat(?:e|ion)\s+step\b", re.IGNORECASE)  # as torchtitan says it, in a step's own words
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text: str) -> str:
    """The line without its colours."""
    return _COLOURS.sub("", text) if "\x1b" in text else text


def figures_of(text: str, line: int = 0) -> Figures | None:
    """What ``text`` says; None where it says nothing of a step, or of all of them together as at the end of a run."""
    if not _WORDS.search(text) or not _DIGIT.search(text) or "train_runtime" in text:
        return None
    validates = _VALIDATES.search(text) is not None
    figures = Figures(line)
    bar = _BAR.search(text) if "%|" in text else None
    if bar is not None:
        _read_bar(figures, bar)
        text = text[bar.end() :]
    else:
        figures.stamp = stamp_of(text)
    lower = text.lower()
    for words, pattern, reader in _READERS:
        if not any(word in lower for word in words) or _taken(figures, reader):
            continue
        match = pattern.search(text)
        if match is not None:
            if reader is not None:
                reader(figures, match)
            text = f"{text[: match.start()]}|{text[match.end() :]}"
            lower = text.lower()
    if validates:
        evaluated = {} if figures.loss is None else {"loss": figures.loss}
        figures = Figures(line, step=figures.step, total=figures.total, stamp=figures.stamp, evaluated=evaluated)
    return figures if figures.counts or figures.step is not None or figures.evaluated else None


def _taken(figures: Figures, reader: Reader | None) -> bool:
    """Whether a surer pattern has already read what this one reads."""
    if reader is _read_rate:
        return figures.rate is not None
    if reader is _read_tokens:
        return figures.tokens is not None
    return reader in (_read_seconds, _read_pace) and figures.seconds is not None
