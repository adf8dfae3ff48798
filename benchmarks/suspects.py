"""How often the right suspect comes first: ``python -m benchmarks.suspects [--half HALF | --fresh SEED | --real N]``.

Over labelled pairs (``benchmarks/pairs``) of one or two true changes among ten harmless ones. The goals: a true change
ranks first in 90 % of the pairs, all true ones are among the first three in 97 %, and 95 % of the pairs without a true
change name nobody. The half "held" is set aside: rules are not to be changed by what it shows, and of it only the
figures are printed. ``--fresh SEED`` draws pairs that are in neither half: 320 with a change, 50 without.

All times of these pairs are simulated. Kinds that stand on the 8-GPU box are synthetic altogether: nobody here has
one. ``--real N`` scores N pairs of real runs of ``toy`` (or ``--recipe tiny``) instead.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import click
from scipy.stats import binomtest

from benchmarks.pairs.pair import KINDS, NONE, Pair, fresh_seeds, pair, seeds
from benchmarks.pairs.real import apart, real_pair
from harness.comparison import Explanation
from harness.explained import Group, answer
from harness.places import places
from harness.run.folder import RunFolder

GENERATED = "times are simulated; on the box, facts are synthetic too, and elsewhere those of recorded runs"
REAL = "real runs on this machine, made for this"

GOALS = {"first": 0.90, "three": 0.97, "silent": 0.95}


@dataclass(frozen=True)
class Score:
    """What one pair came to.

    ranks  of each true change, from 1; None where it is not named
    """

    kind: str
    seed: int
    name: str
    base: str
    synthetic: bool
    turned: bool
    runs: int
    size: float
    ranks: tuple[int | None, ...]
    named: tuple[str, ...]
    comparability: str
    verdict: str

    @property
    def first(self) -> bool:
        return 1 in self.ranks

    @property
    def three(self) -> bool:
        return all(rank is not None and rank <= 3 for rank in self.ranks)

    @property
    def silent(self) -> bool:
        return not self.named


@dataclass(frozen=True)
class Rate:
    """A share of pairs, with Wilson's 95 % interval."""

    hits: int
    of: int
    low: float
    high: float


def score(found: Explanation, truth: Pair) -> Score:
    """Hold an answer against the truth: a suspect counts by the fact that it names, not by those it lists beside."""
    named = tuple(suspect.change.fact for suspect in found.suspects)
    ranks = tuple(
        next((n for n, fact in enumerate(named, 1) if any(fnmatchcase(fact, p) for p in patterns)), None)
        for patterns in truth.truth
    )
    return Score(
        truth.kind, truth.seed, truth.name, truth.base, truth.synthetic, truth.turned, len(truth.before),
        round(truth.size, 3), ranks, named, found.comparability, found.verdict,
    )  # fmt: skip


def explained(truth: Pair, runs: Path) -> Explanation:
    """The answer to a pair, the way the command line gives it."""
    sides = ((name, tuple(map(RunFolder, folders))) for name, folders in (("A", truth.before), ("B", truth.after)))
    before, after = (Group(name, folders) for name, folders in sides)
    return answer(before, after, runs)


def generated(drawn: Mapping[str, Sequence[int]], into: Path, keep: bool) -> Iterator[Score]:
    """Write, explain and score the pairs of each kind's seeds; one is on disk at a time unless they are kept."""
    for kind, numbers in drawn.items():
        for seed in numbers:
            folder = into / f"{kind.replace(' ', '_')}-{seed}"
            truth = pair(kind, seed, folder)
            yield score(explained(truth, folder), truth)
            if not keep:
                shutil.rmtree(folder)


def really_run(recipe: str, count: int, into: Path) -> Iterator[Score]:
    for seed in range(count):
        folder = into / f"{recipe}-{seed}"
        truth = real_pair(recipe, seed, apart(places(), folder))
        yield score(explained(truth, folder), truth)


def rate(hits: Sequence[bool]) -> Rate:
    interval = binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
    return Rate(sum(hits), len(hits), round(float(interval.low), 4), round(float(interval.high), 4))


def rates(scores: Sequence[Score]) -> dict[str, Rate]:
    """The three rates that have goals, of those pairs that they are about."""
    changed = [s for s in scores if s.ranks]
    none = [s for s in scores if not s.ranks]
    found = {
        "first": [s.first for s in changed],
        "three": [s.three for s in changed],
        "silent": [s.silent for s in none],
    }
    return {name: rate(hits) for name, hits in found.items() if hits}


def by_kind(scores: Sequence[Score]) -> dict[str, dict[str, Rate]]:
    kinds = dict.fromkeys(s.kind for s in scores)
    return {kind: rates([s for s in scores if s.kind == kind]) for kind in kinds}


def table(scores: Sequence[Score]) -> Iterator[str]:
    """Lines for a person."""
    yield f"{'kind':12} {'pairs':>5} {'on the box':>10}   {'first':26} {'all among three':26} {'none named':26}"
    for kind in dict.fromkeys(s.kind for s in scores):
        mine = [s for s in scores if s.kind == kind]
        yield _row(kind, mine)
    yield _row("all", scores)
    goals = (f"{name} {100 * goal:.0f} %" for name, goal in GOALS.items())
    yield f"goals: {', '.join(goals)}; in brackets Wilson's 95 % interval"


def _row(kind: str, scores: Sequence[Score]) -> str:
    found = rates(scores)
    cells = (_cell(found[name]) if name in found else "" for name in GOALS)
    return f"{kind:12} {len(scores):5} {sum(s.synthetic for s in scores):10}   " + " ".join(f"{c:26}" for c in cells)


def _cell(found: Rate) -> str:
    share = 100 * found.hits / found.of
    return f"{found.hits}/{found.of} {share:.0f} % [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def misses(scores: Sequence[Score]) -> Iterator[str]:
    """Each pair that was answered wrongly, and how."""
    for s in scores:
        if (s.ranks and s.first and s.three) or (not s.ranks and s.silent):
            continue
        how = f"{s.runs} a side, {s.size:.2f} times{', turned' if s.turned else ''}: {s.comparability}, {s.verdict}"
        what = f"{s.kind} {s.seed} ({s.name or 'nothing'}; {s.base}, {how})"
        yield f"{what}: ranks {s.ranks}, named {', '.join(s.named[:5])}"


@click.command()
@click.option(
    "--half", type=click.Choice(["dev", "held"]), help="Of the pairs that are drawn once and for all. [default: dev]"
)
@click.option("--fresh", type=click.IntRange(1000), metavar="SEED", help="Pairs of neither half, from this seed on.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice([*KINDS, NONE]), help="Only this one; may be repeated."
)
@click.option("--real", type=click.IntRange(1), help="So many pairs of real runs, instead.")
@click.option("--recipe", type=click.Choice(["toy", "tiny"]), default="toy", show_default=True, help="Of real runs.")
@click.option("--pairs", "folder", type=click.Path(file_okay=False, path_type=Path), help="Keep the run folders here.")
@click.option("--json", "json_", is_flag=True, help="One JSON object, for programs.")
def main(
    half: str | None,
    fresh: int | None,
    kinds: tuple[str, ...],
    real: int | None,
    recipe: str,
    folder: Path | None,
    json_: bool,
) -> None:
    """Generate pairs, explain each, and print how often the truth was named."""
    if sum(asked is not None for asked in (half, fresh, real)) > 1:
        raise click.UsageError("--half, --fresh and --real each say which pairs: give one of them")
    half = half or "dev"
    drawn = {kind: seeds(kind, half) if fresh is None else fresh_seeds(kind, fresh) for kind in kinds or (*KINDS, NONE)}
    draw = "real" if real else half if fresh is None else f"fresh, from seed {fresh}"
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        into = folder.absolute() if folder else Path(temporary)
        pairs = really_run(recipe, real, into) if real else generated(drawn, into, bool(folder))
        scores = list(pairs)
    seconds = time.monotonic() - began
    set_aside = draw == "held"
    if json_:
        print(json.dumps(_as_json(scores, draw, seconds, with_pairs=not set_aside)))
        return
    made = REAL if real else GENERATED
    shown = [] if set_aside else misses(scores)
    print("\n".join([*table(scores), made, *shown, f"{len(scores)} pairs in {seconds:.0f} s ({draw})"]))


def _as_json(scores: Sequence[Score], draw: str, seconds: float, with_pairs: bool) -> dict[str, object]:
    return {
        "draw": draw,
        "goals": GOALS,
        "all": {name: asdict(found) for name, found in rates(scores).items()},
        "kinds": {kind: {n: asdict(r) for n, r in found.items()} for kind, found in by_kind(scores).items()},
        "synthetic": {kind: sum(s.synthetic for s in scores if s.kind == kind) for kind in by_kind(scores)},
        "seconds": round(seconds, 1),
        "pairs": [asdict(s) for s in scores] if with_pairs else [],
    }


if __name__ == "__main__":
    main()
