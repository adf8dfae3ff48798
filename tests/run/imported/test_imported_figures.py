"""What a line of a log says, in the shapes that well-known trainers print."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.run.imported.figures import figures_of, stamp_of

NOON = 1_795_953_600.0  # 2026-11-29 12:00:00 UTC

LINES: list[tuple[str, str, dict[str, Any]]] = [
    (
        "the seeds' own",
        "step 10/500 | loss 2.31 | 21.5 Ktok/s",
        {"step": 10, "total": 500, "loss": 2.31, "rate": 21_500.0},
    ),
    ("K apart", "[12:34:56] step 100 | 21.5K tok/s | q=5", {"step": 100, "rate": 21_500.0, "stamp": 45_296.0}),
    (
        "nanoGPT",
        "iter 10: loss 2.3100, time 135.22ms, mfu 12.30%",
        {"step": 10, "loss": 2.31, "seconds": 0.13522},
    ),
    (
        "nanoGPT evaluates",
        "step 250: train loss 2.1034, val loss 2.3001",
        {"step": 250, "loss": 2.1034, "evaluated": {"loss": 2.3001}},
    ),
    (
        "torchtitan",
        "[rank0]:2026-11-29 12:00:00,123 - root - INFO - step: 10  loss:  7.5420  grad_norm:  1.2  "
        "memory:  9.59GiB(20.2%)  tps: 3,456  tflops: 20.1  mfu: 6.3%",
        {"step": 10, "loss": 7.542, "rate": 3456.0, "stamp": NOON + 0.123},
    ),
    (
        "torchtitan evaluates",
        "[rank0]:2026-11-29 12:00:00,123 - root - INFO - validate step: 60  loss:  6.3333  memory:  9.59GiB(20.2%)  "
        "tps: 90,000",
        {"step": 60, "evaluated": {"loss": 6.3333}, "stamp": NOON + 0.123},
    ),
    (
        "llm.c",
        "step   10/5100 | train loss 5.356185 | norm 12.19 | lr 1.00e-04 | (1234.50 ms | 9034 tok/s)",
        {"step": 10, "total": 5100, "loss": 5.356185, "seconds": 1.2345, "rate": 9034.0},
    ),
    (
        "Hugging Face",
        "{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.01}",
        {"loss": 2.31},
    ),
    (
        "Hugging Face evaluates",
        "{'eval_loss': 2.31, 'eval_runtime': 12.1, 'eval_samples_per_second': 10.0, 'eval_steps_per_second': 1.2}",
        {"evaluated": {"runtime": 12.1, "loss": 2.31}},
    ),
    (
        "tqdm",
        "  1%|▏         | 10/1000 [00:05<08:10,  2.00it/s]",
        {"step": 10, "total": 1000, "seconds": 0.5, "clock": 5.0, "bar": "/1000"},
    ),
    (
        "tqdm by the hour",
        "100%|██████████| 1000/1000 [1:08:10<00:00,  4.09s/it]",
        {"step": 1000, "total": 1000, "seconds": 4.09, "clock": 4090.0, "bar": "/1000"},
    ),
    (
        "tqdm's first",
        "  0%|          | 0/1000 [00:00<?, ?it/s]",
        {"step": 0, "total": 1000, "clock": 0.0, "bar": "/1000"},
    ),
    (
        "Lightning",
        "Epoch 3:  10%|█         | 10/100 [00:05<00:45,  2.00it/s, v_num=0, train_loss=2.30]",
        {"step": 10, "total": 100, "seconds": 0.5, "clock": 5.0, "loss": 2.3, "bar": "Epoch #/100"},
    ),
    (
        "Megatron",
        " [2026-11-29 12:00:00] iteration       10/     500 | consumed samples:  640 | elapsed time per iteration "
        "(ms): 1234.5 | learning rate: 1.0E-04 | global batch size:    64 | lm loss: 1.034E+01 | grad norm: 1.2 |",
        {"step": 10, "total": 500, "loss": 10.34, "seconds": 1.2345, "stamp": NOON},
    ),
    (
        "modded-nanoGPT",
        "step:10/5100 train_loss:3.3 train_time:12345ms step_avg:125.0ms",
        {"step": 10, "total": 5100, "loss": 3.3, "seconds": 0.125, "clock": 12.345},
    ),
    (
        "fairseq",
        "2026-11-29 12:00:00 | INFO | train_inner | epoch 001: loss=12.3, ppl=2000, wps=54321, ups=1, num_updates=100",
        {"step": 100, "loss": 12.3, "rate": 54_321.0, "stamp": NOON},
    ),
    (
        "JSON",
        '{"step": 10, "loss": 2.5, "tokens_per_second": 3456.5}',
        {"step": 10, "loss": 2.5, "rate": 3456.5},
    ),
    ("a rate after its name", "loss 2.3 tok/s 3456", {"loss": 2.3, "rate": 3456.0}),
    ("tokens and seconds", "step 7 tokens 1.2M dt 0.35", {"step": 7, "tokens": 1_200_000.0, "seconds": 0.35}),
    ("separators", "step 1,200: 4,096 tokens in step time 0.5 s", {"step": 1200, "tokens": 4096.0, "seconds": 0.5}),
    ("a running total", "it=40 tokens_seen=163840", {"step": 40, "tokens": 163_840.0}),
    ("not a number", "step=12 loss=nan tokens=4,096", {"step": 12, "tokens": 4096.0}),
    ("steps a second", "step 12: 12.5 steps/s", {"step": 12, "seconds": 0.08}),
    (
        "spelled out",
        "global_step 40, train/loss 3.2, tokens per second: 21,500",
        {"step": 40, "loss": 3.2, "rate": 21_500.0},
    ),
    ("only a mention", "Resuming from step 500", {"step": 500}),
]


@pytest.mark.parametrize(("line", "expected"), [case[1:] for case in LINES], ids=[case[0] for case in LINES])
def test_a_line_of_a_known_trainer_is_read(line: str, expected: dict[str, Any]) -> None:
    found = figures_of(line)
    assert found is not None
    said = {name: getattr(found, name) for name in found.__slots__ if name not in ("line", "named")}
    known = {name: value for name, value in said.items() if value not in (None, "", {}) and value == value}
    assert known == pytest.approx(expected) if "evaluated" not in expected else known == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loading Qwen3.6-27B on 5 GPUs",
        "max_steps=1000 per_device_batch=8 learning_rate=1e-4",
        "saved checkpoint to /tmp/step_10/model.pt",
        "{'train_runtime': 123.4, 'train_steps_per_second': 1.2, 'train_loss': 2.2, 'epoch': 1.0}",
        "2026-11-29 12:00:00 INFO epoch 3 begins",
        "Traceback (most recent call last):",
        "loss: none yet",
        "loss function: 2 terms",
    ],
)
def test_other_lines_say_nothing_of_a_step(line: str) -> None:
    assert figures_of(line) is None


def test_the_words_that_a_figure_stood_under_are_kept() -> None:
    found = figures_of("step 1 | 21.5 Ktok/s | dt 0.5")
    assert found is not None
    assert found.named == {"rate": "Ktok/s", "seconds": "dt"}


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2026-11-29 12:00:00,250 x", NOON + 0.25),
        ("2026-11-29T12:00:00.25Z x", NOON + 0.25),
        ("11/29/2026 12:00:00 - INFO", NOON),
        ("[12:00:01] x", 43_201.0),
        ("I1129 12:00:01.500 train.py:7]", 43_201.5),
        ("eta 12:00:01 left", None),
        ("  1%|# | 1/9 [00:05<08:10", None),
        ("took 1:02:03", None),
        ("x" * 90 + " 2026-11-29 12:00:00", None),  # not at the head of the line: somebody else's time
    ],
)
def test_time_stamps(text: str, stamp: float | None) -> None:
    assert stamp_of(text) == stamp


@given(
    st.integers(1, 10**7),
    st.floats(0.0001, 9999, allow_nan=False).map(lambda value: round(value, 4)),
    st.floats(0.1, 999, allow_nan=False).map(lambda value: round(value, 2)),
    st.permutations(["step", "loss", "rate"]),
    st.sampled_from([" | ", ", ", "  ", "\t"]),
)
def test_the_order_and_the_separator_do_not_matter(
    step: int, loss: float, rate: float, order: list[str], separator: str
) -> None:
    parts = {"step": f"step {step}", "loss": f"loss {loss:.4f}", "rate": f"{rate:.2f} Ktok/s"}
    found = figures_of(separator.join(parts[name] for name in order))
    assert found is not None
    assert (found.step, found.loss) == (step, loss)
    assert found.rate == pytest.approx(1000 * rate)
    assert (found.tokens, found.seconds) == (None, None)


@given(st.text(max_size=200))
def test_no_line_is_too_odd_to_be_passed_over(line: str) -> None:
    for text in (line, f"step {line}", f"loss 2.5 {line} tok/s"):
        figures_of(text)
