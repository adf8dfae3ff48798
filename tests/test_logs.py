"""A log as a person sees it: what a terminal would not show is gone, and a progress bar is known for what it is."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.logs import Line, lines, says_exception


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        ("\x1b[1;31mRuntimeError\x1b[0m: x", "RuntimeError: x"),
        ("\x1b]0;a title\x07done\x1b[K", "done"),
        ("\x1b]8;;https://x.test\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("  kept indentation  ", "  kept indentation"),
        ("caf\ufffd \udce9 end", "caf\ufffd  end"),  # decoded with replacement, or with surrogates
        ("a\x00b\x08c\td", "abc\td"),
    ],
)
def test_what_a_terminal_does_not_show_is_gone(printed: str, text: str) -> None:
    assert lines([printed]) == [Line(text)]


@pytest.mark.parametrize(
    "bar",
    [
        " 12%|#2        | 120/1000 [00:12<01:28,  9.98it/s]",
        "Loading checkpoint shards:  50%|█████     | 2/4 [00:01<00:01,  1.5s/it]",
        "Epoch 1:  10%|#         | 1/10",
        "1034/3597 [51:02<2:06:30,  2.96s/it]",
        "model.safetensors: 3.2 MB/s",
        "step 812 of 5000, 1.37it/s",
    ],
)
def test_a_bar_is_progress(bar: str) -> None:
    assert [line.progress for line in lines([bar])] == [True]


def test_what_a_carriage_return_overwrote_is_a_line_of_its_own() -> None:
    printed = " 1%|  | 1/100 [00:01<01:39]\r 2%|  | 2/100 [00:02<01:38]\rValueError: no\r\nnext"
    assert [(line.text[-12:], line.progress) for line in lines([printed])] == [
        ("[00:01<01:39]"[-12:], True), ("[00:02<01:38]"[-12:], True), ("lueError: no"[-12:], False), ("next", False),
    ]  # fmt: skip


def test_what_is_printed_behind_a_bar_is_what_was_said() -> None:
    """As in pytorch/pytorch#118369: the watchdog does not wait for a new line."""
    bar = "Epoch 0:   6%|██       | 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6]"
    assert lines([bar + "[rank3]:[E ProcessGroupNCCL.cpp:458] Watchdog"]) == [
        Line("[E ProcessGroupNCCL.cpp:458] Watchdog", 3)
    ]


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ('[rank19]:   File "a.py", line 3, in f', Line('  File "a.py", line 3, in f', 19)),
        ("[default4]:ValueError: x", Line("ValueError: x", 4)),
        ("10: ValueError: x", Line("ValueError: x", 10)),
        ("2026-08-12 19:05:26   File", Line("  File")),
        ("2026-08-12T19:05:26.123Z [rank1]: Traceback", Line("Traceback", 1)),
        ("12345: not a task's number", Line("12345: not a task's number")),
    ],
)
def test_who_printed_it_and_when_do_not_hide_what_was_printed(printed: str, line: Line) -> None:
    assert lines([printed]) == [line]


def test_an_exception_is_known_by_its_name() -> None:
    assert says_exception("torch.OutOfMemoryError: CUDA")
    assert says_exception("KeyboardInterrupt")
    assert not says_exception("  KeyError: indented")
    assert not says_exception("an Error: in prose")


@given(st.lists(st.text(st.characters(codec=None, exclude_categories=()), max_size=60), max_size=8))
def test_any_text_at_all_can_be_shown(printed: list[str]) -> None:
    for line in lines(printed):
        assert line.text.strip()
        line.text.encode("utf-8")
        assert all(unicodedata.category(c) != "Cc" or c == "\t" for c in line.text)
