"""What a log says once, of all its steps together."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.run.imported.figures import Figures
from harness.run.imported.rows import steps_of, timed
from harness.run.imported.whole import read_whole, spread, with_tokens

TRAINING = "***** Running training *****\n  Num examples = 10,000\n  Total optimization steps = 312\n"
END = "{'train_runtime': 400.1, 'train_samples_per_second': 25.0, 'train_steps_per_second': 0.78, 'train_loss': 1.2}\n"


def test_the_seconds_of_a_step_are_the_mean_of_all_and_no_more() -> None:
    rows = [Figures(n, loss=3.0 / n) for n in range(1, 32)]  # every tenth
    assert not timed(rows)
    steps = steps_of(spread(read_whole(TRAINING + END), rows)).steps
    assert len(steps) == 312
    assert {step.seconds for step in steps} == {400.1 / 312}
    assert steps[-1].t == pytest.approx(400.1)
    assert [step.step for step in steps if step.metrics] == list(range(10, 311, 10))
    assert [step.metrics["loss"] for step in steps if step.metrics] == [row.loss for row in rows]


@pytest.mark.parametrize(
    ("text", "seconds", "steps"),
    [
        (TRAINING + END, 400.1, 312),
        (END, 400.1, 312),  # 400.1 s at 0.78 steps a second
        (END.replace("0.78", "'0.78'").replace("400.1", "'400.1'"), 400.1, 312),
        (TRAINING + '{"train_runtime": 1e3}\n', 1000.0, 312),
        (END + "***** train metrics *****\n  train_runtime            =     0:06:40.10\n", 400.1, 312),
        (END + END, 400.1, 312),  # printed, and logged too
        (END.replace("400.1", "0.0"), None, None),
        ("{'train_runtime': 400.1}\n", None, None),
        (TRAINING, None, None),
    ],
)
def test_time_and_number_are_read_from_what_the_trainer_prints(
    text: str, seconds: float | None, steps: int | None
) -> None:
    found = read_whole(text)
    assert (found.seconds, found.steps, found.timed) == (seconds, steps, seconds is not None)


def test_two_trainings_in_one_log_are_refused_with_the_line() -> None:
    twice = read_whole(TRAINING + END + TRAINING + END.replace("400.1", "390.0"))
    with pytest.raises(UsageError, match=r"line 8: a training ends .* one ended in line 4"):
        spread(twice, [])


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("tokens per iteration will be: 491,520\n", 491_520.0),  # nanoGPT
        ("Tokens per step: 4_096", 4096.0),
        ("tokens per optimizer step = 8192", 8192.0),
        ("'tokens per batch': 8192", 8192.0),
        (TRAINING + END.replace("}", ", 'num_input_tokens_seen': 3120000}"), 10_000.0),
        ("tokens per second: 491,520\n", None),
        ("tokens per iteration will be many\n", None),
    ],
)
def test_the_tokens_of_a_step_are_read_where_they_are_said_once(text: str, tokens: float | None) -> None:
    assert read_whole(text).tokens == tokens


def test_tokens_that_are_given_time_a_rate() -> None:
    (first, *_) = steps_of(with_tokens([Figures(n, step=n, rate=2048.0) for n in range(1, 13)], 4096, "given")).steps
    assert (first.tokens, first.seconds) == (4096, 2.0)
