"""Evaluation by real speculative decoding on held-out prompts: how much is accepted, and is the output unchanged.

A weak target loops, and on a loop of one token a drafter that repeats its anchor looks good. So the prompts are sorted
by what the target itself continues them with, and each kind is judged on its own:

    run      the continuation holds more than ``block_size`` equal tokens in a row, so that a whole block can be a run
    non-run  it does not

Accept length is the mean over rounds of the accepted draft tokens plus one, the token that the target adds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import torch
from torch import Tensor

from experiments.dflash import baselines, prompts
from experiments.dflash.config import DFlashConfig
from experiments.dflash.decode import Context, Decoded, Proposer, greedy, speculate
from experiments.dflash.model import DFlashDrafter
from experiments.dflash.target import Target
from harness.run.events import Recorder

PROMPT_SEED = 20_260_129
"""Fixed, so that every run of a target is judged on the same prompts whatever its own seed."""

POOL = 8
"""Prompts drawn for each one wanted, to find enough of both kinds."""


@dataclass(frozen=True)
class PromptSet:
    """Prompts of one kind, and the target's own greedy continuation of each."""

    prompts: list[list[int]]
    references: list[list[int]]


@dataclass(frozen=True)
class Divergence:
    """The first place where the written text leaves the target's own greedy text.

    prompt    index into the evaluation's prompts, non-run ones first
    position  index of the token within the continuation
    gap       difference of the top two logits there, recomputed in one uncached pass over the common prefix
    near_tie  the gap is below the limit: either token is right
    """

    prompt: int
    position: int
    expected: int
    written: int
    gap: float
    near_tie: bool

    def __str__(self) -> str:
        return (
            f"prompt {self.prompt}, token {self.position}: {self.written} for {self.expected}, "
            f"top two logits {self.gap:.2e} apart"
        )


@dataclass(frozen=True)
class EvalResult:
    """What an evaluation found. ``broken``: in fp32, text was changed where no near tie excuses it; the run failed."""

    name: str
    metrics: dict[str, float]
    lossless: bool
    divergences: tuple[Divergence, ...]
    broken: bool


def evaluate(drafter: DFlashDrafter, target: Target, config: DFlashConfig, recorder: Recorder, name: str) -> EvalResult:
    """Decode with ``drafter`` and emit the Eval event ``name``, with notes for each divergence."""
    training = drafter.training
    drafter.eval()
    try:
        return evaluate_proposer(drafter_proposer(drafter, target), target, config, recorder, name)
    finally:
        drafter.train(training)


def evaluate_baselines(target: Target, config: DFlashConfig, recorder: Recorder) -> dict[str, EvalResult]:
    """The untrained proposers on the same prompts, an Eval event each."""
    untrained = {"repeat_anchor": baselines.repeat_anchor, "ngram": baselines.ngram_lookup}
    return {name: evaluate_proposer(p, target, config, recorder, name) for name, p in untrained.items()}


def drafter_proposer(drafter: DFlashDrafter, target: Target) -> Proposer:
    """``drafter`` as a proposer: the likeliest token of each slot, reserved ids left out."""
    reserved = torch.tensor(target.reserved_ids, dtype=torch.long, device=target.device)

    def propose(context: Context) -> Tensor:
        seen = int(context.length_R.max()) - 1
        block_RB = context.anchor_R[:, None].repeat(1, context.block_size)
        block_RB[:, 1:] = target.mask_token_id
        hidden_RBH = drafter.draft(context.features_RTF[:, :seen], context.length_R - 1, target.embed(block_RB))
        logits_RDV = target.lm_head(hidden_RBH[:, 1:])
        return logits_RDV.index_fill(-1, reserved, -torch.inf).argmax(-1)

    return propose


def evaluate_proposer(
    proposer: Proposer, target: Target, config: DFlashConfig, recorder: Recorder, name: str
) -> EvalResult:
    """Decode every prompt with ``proposer``, compare with the references, emit one Eval event."""
    started = time.monotonic()
    found = prompt_sets(target, config)
    everything = [(kind, *pair) for kind, s in found.items() for pair in zip(s.prompts, s.references, strict=True)]
    decoded = speculate(
        target, [prompt for _, prompt, _ in everything], config.eval.new_tokens, config.model.block_size, proposer
    )
    divergences = tuple(
        divergence
        for i, ((_, prompt, reference), row) in enumerate(zip(everything, decoded, strict=True))
        if (divergence := first_divergence(target, i, prompt, reference, row.tokens, config.eval.near_tie))
    )
    rows = {kind: [d for (k, _, _), d in zip(everything, decoded, strict=True) if k == kind] for kind in found}
    mismatches = sum(not d.near_tie for d in divergences)
    metrics = {
        **{_ACCEPT_LENGTH[kind]: accept_length(of_kind) for kind, of_kind in rows.items() if of_kind},
        **{f"accuracy_{k}": value for k, value in enumerate(accuracies(decoded, config.model.block_size), start=1)},
        "tokens": float(sum(len(row.tokens) for row in decoded)),
        "near_ties": float(len(divergences) - mismatches),
        "mismatches": float(mismatches),
    }
    exact = next(target.model.parameters()).dtype == torch.float32 and config.precision == "fp32"
    result = EvalResult(name, metrics, not mismatches, divergences, broken=exact and mismatches > 0)
    recorder.eval(name, metrics, lossless=result.lossless, seconds=time.monotonic() - started)
    for divergence in divergences:
        kind = "near tie" if divergence.near_tie else "NOT the target's own text"
        recorder.note(f"{name}: {kind}: {divergence}", level="info" if divergence.near_tie else "warning")
    return result


_ACCEPT_LENGTH = {"non_run": "accept_length", "run": "accept_length_run"}


@lru_cache(maxsize=4)
def prompt_sets(target: Target, config: DFlashConfig) -> dict[str, PromptSet]:
    """Up to ``config.eval.prompts`` held-out prompts of each kind, found among ``POOL`` times as many.

    A kind that the target shows too rarely has fewer, or none. Kept for the process: each evaluation uses the same.
    """
    wanted = config.eval.prompts
    documents = prompts.source(target).held_out
    drawn = prompts.draw(target, documents, POOL * wanted, config.eval.prompt_tokens, PROMPT_SEED)
    written = greedy(target, drawn, config.eval.new_tokens)
    pairs = [(p, r) for p, r in zip(drawn, written, strict=True) if len(r) > 1]
    kinds = [longest_stretch(reference) > config.model.block_size for _, reference in pairs]
    found = {}
    for kind, is_run in (("non_run", False), ("run", True)):
        chosen = [pair for pair, run in zip(pairs, kinds, strict=True) if run == is_run][:wanted]
        found[kind] = PromptSet([p for p, _ in chosen], [r for _, r in chosen])
    return found


def longest_stretch(tokens: Sequence[int]) -> int:
    """Length of the longest stretch of equal tokens in a row; 0 for no tokens."""
    return max((sum(1 for _ in stretch) for _, stretch in groupby(tokens)), default=0)


def accept_length(rows: Sequence[Decoded]) -> float:
    """Mean over all rounds of the accepted draft tokens plus one."""
    rounds = [accepted + 1 for row in rows for accepted in row.accepted]
    return sum(rounds) / len(rounds) if rounds else 0.0


def accuracies(rows: Sequence[Decoded], block_size: int) -> Iterator[float]:
    """Share of right drafts at each position 1..B-1 of a block, whether or not the ones before it were right.

    What is right is read from the finished text; positions past its end are not counted.
    """
    for slot in range(block_size - 1):
        right = [
            draft[slot] == row.tokens[start + slot]
            for row in rows
            for start, draft in zip(row.starts, row.drafts, strict=True)
            if start + slot < len(row.tokens)
        ]
        yield sum(right) / len(right) if right else 0.0


def first_divergence(
    target: Target, index: int, prompt: Sequence[int], reference: Sequence[int], written: Sequence[int], limit: float
) -> Divergence | None:
    """Where ``written`` first leaves ``reference``, with the gap of the target's top two logits there; None if nowhere.

    Every later difference follows from the first. A text that ends early differs where it ends (token -1 stands for
    the end).
    """
    for position in range(max(len(reference), len(written))):
        expected = reference[position] if position < len(reference) else -1
        actual = written[position] if position < len(written) else -1
        if expected != actual:
            gap = top_two_gap(target, [*prompt, *reference[:position]])
            return Divergence(index, position, expected, actual, gap, near_tie=gap < limit)
    return None


def top_two_gap(target: Target, ids: Sequence[int]) -> float:
    """Difference of the two greatest logits for the token after ``ids``, in one pass without a cache."""
    ids_1S = torch.tensor([list(ids)], device=target.device)
    _, logits_1SV = target.features(ids_1S, torch.zeros_like(ids_1S))
    top = logits_1SV[0, -1].float().topk(2).values
    return float(top[0] - top[1])
