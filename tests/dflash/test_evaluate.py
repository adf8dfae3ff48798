"""What is counted, what is a run, and what excuses a divergence."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from experiments.dflash import evaluate as module
from experiments.dflash import prompts
from experiments.dflash.config import DFlashConfig, EvalConfig, ModelConfig
from experiments.dflash.corpus import Corpus
from experiments.dflash.decode import Context, Decoded
from experiments.dflash.evaluate import (
    PromptSet,
    accept_length,
    accuracies,
    drafter_proposer,
    evaluate,
    evaluate_baselines,
    evaluate_proposer,
    first_divergence,
    longest_stretch,
)
from experiments.dflash.model import DFlashDrafter, drafter_shape
from experiments.dflash.target import Target
from harness.run.events import Recorder
from tests.dflash.tiny_target import plain_greedy, random_target

TARGET = random_target()
CONFIG = DFlashConfig(model=ModelConfig(block_size=4, target_layer_ids="0"), eval=EvalConfig(prompts=2, new_tokens=14))
PROMPTS = [[3, 1, 4], [1, 5, 9]]


class Heard(Recorder):
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(None, 0.0)
        self.evals: list[tuple[str, dict[str, float], bool | None]] = []
        self.notes: list[tuple[str, str]] = []

    def eval(
        self,
        name: str,
        metrics: Mapping[str, float],
        lossless: bool | None = None,
        step: int = 0,  # noqa: ARG002
        seconds: float = 0.0,  # noqa: ARG002
    ) -> None:
        self.evals.append((name, dict(metrics), lossless))

    def note(self, text: str, level: str = "info") -> None:
        self.notes.append((text, level))


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    references = [plain_greedy(TARGET, prompt, 14) for prompt in PROMPTS]
    sets = {"non_run": PromptSet(PROMPTS, references), "run": PromptSet([], [])}
    monkeypatch.setattr(module, "prompt_sets", lambda *_: sets)
    return Heard()


@pytest.mark.parametrize(
    ("text", "longest"),
    [("", 0), ("a", 1), ("abcabc", 1), ("aabbb", 3), ("x" + " " * 8 + "y", 8), ("self.________", 8), ("aaaa", 4)],
)
def test_longest_stretch(text: str, longest: int) -> None:
    assert longest_stretch(text.encode()) == longest


def test_accept_length_is_a_mean_over_rounds_not_over_prompts() -> None:
    assert accept_length([Decoded([1] * 9, accepted=[7]), Decoded([1] * 4, accepted=[0, 1, 0])]) == (8 + 1 + 2 + 1) / 4


def test_accuracy_counts_each_slot_on_its_own_and_not_past_the_end() -> None:
    row = Decoded([10, 11, 12, 13], accepted=[1, 0], drafts=[[11, 99, 13], [13, 50, 50]], starts=[1, 3])
    # slot 1: 11 and 13 right; slot 2: 99 wrong, past the end; slot 3: 13 right, past the end
    assert list(accuracies([row], 4)) == [1.0, 0.0, 1.0]


def test_baselines_are_lossless_and_counted(heard: Heard) -> None:
    results = evaluate_baselines(TARGET, CONFIG, heard)
    assert [name for name, _, _ in heard.evals] == ["repeat_anchor", "ngram"]
    for name, metrics, lossless in heard.evals:
        assert lossless
        assert metrics == results[name].metrics
        assert metrics["tokens"] == 28
        assert metrics["mismatches"] == metrics["near_ties"] == 0
        assert metrics["accept_length"] >= 1
        slots = {"accuracy_1", "accuracy_2", "accuracy_3"}
        assert set(metrics) == {"accept_length", *slots, "tokens", "near_ties", "mismatches"}


def test_a_drafter_of_noise_is_lossless_and_drafts_no_reserved_token(heard: Heard) -> None:
    torch.manual_seed(1)
    drafter = DFlashDrafter(drafter_shape(CONFIG, TARGET.config))
    drafter.initialise(0.5, seed=3)
    drafter.train()
    result = evaluate(drafter, TARGET, CONFIG, heard, "before")
    assert result.lossless
    assert not result.broken
    assert drafter.training  # as it was
    context = Context(torch.randint(1, 20, (64, 9)), torch.full((64,), 6), torch.randn(64, 9, 16), 4)
    assert not set(drafter_proposer(drafter, TARGET)(context).flatten().tolist()) & set(TARGET.reserved_ids)


def test_a_decoder_that_changes_text_is_caught_and_breaks_an_fp32_run(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(target: Target, prompts: list[list[int]], new_tokens: int, *_: object) -> list[Decoded]:
        texts = [plain_greedy(target, prompt, new_tokens) for prompt in prompts]
        texts[1][5] = (texts[1][5] + 1) % 20
        return [Decoded(text, [0], [[0, 0, 0]], [1]) for text in texts]

    monkeypatch.setattr(module, "speculate", wrong)
    result = evaluate_proposer(lambda c: c.ids_RT[:, :3], TARGET, CONFIG, heard, "after")
    assert not result.lossless
    assert result.broken
    assert result.metrics["mismatches"] == 1
    assert [(d.prompt, d.position) for d in result.divergences] == [(1, 5)]
    assert heard.evals[0][2] is False
    assert heard.notes[0][1] == "warning"
    assert "NOT the target's own text" in heard.notes[0][0]


def with_gap(gap: float) -> Target:
    """A target whose two likeliest tokens, 5 and 7, always lie ``gap`` apart."""
    target = random_target()
    head = target.model.get_output_embeddings()  # type: ignore[no-untyped-call]

    def constant(_: object, __: object, output: Tensor) -> Tensor:
        logits = torch.zeros_like(output)
        logits[..., 5] = 4.0
        logits[..., 7] = 4.0 - gap
        return logits

    head.register_forward_hook(constant)
    return target


@pytest.mark.parametrize(("gap", "near_tie"), [(5e-4, True), (9e-4, True), (2e-3, False), (1.0, False)])
def test_only_a_gap_under_the_limit_is_a_near_tie(gap: float, near_tie: bool) -> None:
    divergence = first_divergence(with_gap(gap), 3, [1, 2], [5, 5, 5, 5], [5, 5, 7, 7], limit=1e-3)
    assert divergence is not None
    assert (divergence.prompt, divergence.position, divergence.expected, divergence.written) == (3, 2, 5, 7)
    assert divergence.gap == pytest.approx(gap, rel=1e-3)
    assert divergence.near_tie is near_tie


def test_equal_texts_do_not_diverge_and_a_shorter_one_diverges_at_its_end() -> None:
    target = with_gap(1.0)
    assert first_divergence(target, 0, [1], [5, 5], [5, 5], 1e-3) is None
    short = first_divergence(target, 0, [1], [5, 5], [5], 1e-3)
    assert short is not None
    assert (short.position, short.expected, short.written) == (1, 5, -1)


def test_near_ties_are_counted_and_excused(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    target = with_gap(5e-4)
    sets = {"non_run": PromptSet([[1, 2]], [[5] * 6]), "run": PromptSet([], [])}
    monkeypatch.setattr(module, "prompt_sets", lambda *_: sets)
    monkeypatch.setattr(module, "speculate", lambda *_: [Decoded([5, 5, 7, 5, 5, 5], [0], [[0, 0, 0]], [1])])
    result = evaluate_proposer(lambda c: c.ids_RT[:, :3], target, CONFIG, heard, "after")
    assert result.lossless
    assert not result.broken
    assert (result.metrics["near_ties"], result.metrics["mismatches"]) == (1, 0)
    assert heard.notes == [(f"after: near tie: {result.divergences[0]}", "info")]


def test_runs_and_other_prompts_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of drawn prompts whose continuations are known: more than a block of equal tokens in a row is a run."""
    texts = [[1, 2, 3, 4, 5, 6], [9] * 6, [7, 9, 9, 9, 9, 8], [7, 9, 9, 9, 9, 9], [2], [4, 5, 4, 5, 4, 5]]
    target = random_target()
    monkeypatch.setattr(prompts, "source", lambda _: Corpus((), ()))
    monkeypatch.setattr(prompts, "draw", lambda *_: [[i] for i in range(len(texts))])
    monkeypatch.setattr(module, "greedy", lambda *_: texts)
    sets = module.prompt_sets(target, CONFIG)
    assert sets["non_run"].prompts == [[0], [2]]  # the two first of three; a continuation of one token is left out
    assert sets["run"].prompts == [[1], [3]]
    assert sets["run"].references == [texts[1], texts[3]]
