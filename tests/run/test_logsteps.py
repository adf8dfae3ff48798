"""Steps out of the log lines of a trainer that knows nothing of the harness."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.run.follow import OutputTail
from harness.run.logsteps import LogSteps, compiled


def test_lines_become_steps_with_the_time_between_them() -> None:
    log = LogSteps(compiled(r"step (?P<step>\d+) loss (?P<loss>\S+) tokens (?P<tokens>[\d,]+)"))
    (first,) = log.steps(["loading", "step 1 loss 2.5 tokens 4,096"], 30.0)
    assert (first.step, first.seconds, first.tokens, first.metrics) == (1, 30.0, 4096, {"loss": 2.5})
    assert log.steps(["saving a checkpoint"], 31.0) == []
    (second,) = log.steps(["step 2 loss 2.25 tokens 4,000"], 32.0)
    assert (second.step, second.seconds, second.t, second.tokens) == (2, 2.0, 32.0, 4000)
    assert second.phases == {"other": 2.0}


def test_lines_seen_at_once_share_the_time() -> None:
    log = LogSteps(compiled(r"(?P<tokens>\d+) tokens"))
    log.steps(["100 tokens"], 10.0)
    steps = log.steps(["100 tokens", "200 tokens", "300 tokens", "400 tokens"], 12.0)
    assert [(s.step, s.t, s.seconds, s.tokens) for s in steps] == [
        (2, 10.5, 0.5, 100), (3, 11.0, 0.5, 200), (4, 11.5, 0.5, 300), (5, 12.0, 0.5, 400),
    ]  # fmt: skip


def test_a_line_for_every_tenth_step_counts_ten_steps_of_tokens() -> None:
    log = LogSteps(compiled(r"it (?P<step>\d+) tok (?P<tokens>\d+)"))
    log.steps(["it 10 tok 100"], 1.0)
    (step,) = log.steps(["it 20 tok 100"], 2.0)
    assert step.tokens == 1000


@pytest.mark.parametrize(("group", "text"), [("ktok_s", "21.5"), ("tok_s", "21,500")])
def test_a_rate_becomes_tokens(group: str, text: str) -> None:
    log = LogSteps(compiled(rf"(?P<{group}>[\d.,]+) a second"))
    log.steps([f"{text} a second"], 1.0)
    (step,) = log.steps([f"{text} a second"], 3.0)
    assert step.tokens == 43_000


def test_the_first_group_is_the_tokens_where_none_is_named() -> None:
    (step,) = LogSteps(compiled(r"tokens=(\d+)")).steps(["tokens=7"], 1.0)
    assert step.tokens == 7


def test_a_figure_that_is_no_number_is_no_step_or_no_loss() -> None:
    log = LogSteps(compiled(r"loss (?P<loss>\S+) tokens (?P<tokens>\S+)"))
    assert log.steps(["loss 1.0 tokens none"], 1.0) == []
    (step,) = log.steps(["loss n/a tokens 5"], 2.0)
    assert step.metrics == {}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("tokens (", "not a regular expression"),
        ("tokens", "no group for the tokens"),
        (r"(?P<loss>\d+)", "no group for the tokens"),
        (r"(?P<token>\d+)", "a group 'token'; its groups may be tokens"),
    ],
)
def test_a_bad_expression_is_refused_in_one_line_with_an_example(pattern: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        compiled(pattern)
    assert "\n" not in str(refused.value)


def test_output_is_passed_on_as_it_comes_and_split_where_a_progress_bar_splits(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    tail = OutputTail(path)
    assert tail.poll() == ("", [])
    path.write_bytes("10 %\r20 %\rdöne".encode()[:-2])
    assert tail.poll()[1] == ["10 %", "20 %"]
    path.write_bytes("10 %\r20 %\rdöne\n3".encode())
    assert tail.poll() == ("ne\n3", ["döne"])
