"""Tracebacks as Python itself prints them: chained, grouped, of threads that print into each other, or cut off."""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.explain.failing.tracebacks import Frame, Raised, fatal_stack, find
from harness.logs import lines


def printed(fails: Callable[[], object]) -> list[str]:
    """What Python prints of what this raises."""
    file = io.StringIO()
    try:
        fails()
    except BaseException:
        traceback.print_exc(file=file)
    return file.getvalue().splitlines()


def found(text: list[str] | str) -> list[Raised]:
    return find(lines(text.splitlines() if isinstance(text, str) else text))


ROW: dict[str, int] = {}


def key_error() -> object:
    return ROW["tokens"]


def from_key_error() -> None:
    try:
        key_error()
    except KeyError as error:
        raise RuntimeError("row 12") from error


def while_handling() -> None:
    try:
        key_error()
    except KeyError:
        raise RuntimeError("row 12")  # noqa: B904


def instead_of() -> None:
    try:
        key_error()
    except KeyError:
        raise RuntimeError("row 12") from None


class Problem(Exception):
    """Named without one of the usual endings."""


def test_an_exception_has_its_name_its_message_and_where_it_was_raised() -> None:
    (raised,) = found(printed(key_error))
    assert (raised.type, raised.message, raised.words) == ("KeyError", "'tokens'", "KeyError: 'tokens'")
    assert raised.own is not None
    assert (raised.own.file, raised.own.function) == (__file__, "key_error")
    assert str(raised.own) == f"{__file__}, line {raised.own.line} (key_error)"


@pytest.mark.parametrize("fails", [from_key_error, while_handling])
def test_of_a_chain_the_first_comes_first_and_the_next_follows(fails: Callable[[], None]) -> None:
    first, second = found(printed(fails))
    assert (first.type, first.follows) == ("KeyError", False)
    assert (second.type, second.message, second.follows) == ("RuntimeError", "row 12", True)
    assert second.own is not None
    assert second.own.function == fails.__name__


def test_a_chain_that_was_cut_is_one_exception() -> None:
    (raised,) = found(printed(instead_of))
    assert raised.type == "RuntimeError"


def raising(error: BaseException) -> Callable[[], None]:
    def fails() -> None:
        raise error

    return fails


def deeper(n: int = 0) -> int:
    return deeper(n + 1) + 1


@pytest.mark.parametrize(
    ("fails", "kind", "message"),
    [
        (raising(Problem("odd")), "Problem", "odd"),
        (raising(AssertionError()), "AssertionError", ""),
        (raising(KeyboardInterrupt()), "KeyboardInterrupt", ""),
        (raising(ValueError("first\nsecond: line")), "ValueError", "first"),
        (raising(OSError(28, "No space left on device")), "OSError", "[Errno 28] No space left on device"),
        (lambda: compile("a b", "x.py", "exec"), "SyntaxError", "invalid syntax"),
        (deeper, "RecursionError", "maximum recursion depth exceeded"),
    ],
)
def test_exceptions_of_every_shape(fails: Callable[[], object], kind: str, message: str) -> None:
    (raised,) = found(printed(fails))
    assert raised.type.rpartition(".")[2] == kind
    assert raised.message == message


def test_a_group_stands_for_the_first_that_it_holds() -> None:
    group = ExceptionGroup("two", [ExceptionGroup("inner", [ValueError("x")]), TypeError("y")])
    first, second = found(printed(raising(group)))
    assert first.words == "ValueError: x"
    assert first.own is not None
    assert first.own.function == "fails"
    assert second.words == "TypeError: y"


def test_a_lower_case_name_counts_where_a_traceback_names_its_exception() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nsocket.gaierror: [Errno -2] no\n'
    assert [raised.type for raised in found(text + "queue.size: 12\n")] == ["socket.gaierror"]


def test_threads_that_print_into_each_other_are_two_with_their_frames() -> None:
    text = """\
Exception in thread drafter-0:
Traceback (most recent call last):
  File "/usr/lib/python3.12/threading.py", line 1012, in run
Exception in thread drafter-1 (work):
  File "/me/train.py", line 8, in work
Traceback (most recent call last):
    call()
  File "/me/train.py", line 8, in work
RuntimeError: no
RuntimeError: no
ready
KeyError: 'later'
"""
    first, second, third = found(text)
    assert [first.thread, second.thread] == ["drafter-0", "drafter-1"]
    assert first.uncaught
    assert second.uncaught
    assert first.own == second.own == Frame("/me/train.py", 8, "work")
    assert (first.start, third.uncaught, third.thread, third.frames) == (0, False, "", ())


def test_ranks_do_not_mix() -> None:
    text = """\
[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank0]:   File "/me/a.py", line 1, in zero
[rank1]:   File "/me/b.py", line 2, in one
[rank1]: KeyError: 1
[rank0]: ValueError: 0
"""
    one, zero = found(text)
    assert (one.rank, one.type, str(one.own)) == (1, "KeyError", "/me/b.py, line 2 (one)")
    assert (zero.rank, zero.type, str(zero.own)) == (0, "ValueError", "/me/a.py, line 1 (zero)")
    assert zero.uncaught  # torch's hook marks only what nothing caught


def test_rich_boxes_are_read() -> None:
    text = """\
╭─────────── Traceback (most recent call last) ───────────╮
│ /me/train.py:12 in main                                 │
│ ❱ 12 │   step()                                         │
│ /me/venv/lib/python3.12/site-packages/torch/x.py:9 in f │
╰─────────────────────────────────────────────────────────╯
ValueError: bad shape
"""
    (raised,) = found(text)
    assert (raised.words, str(raised.own)) == ("ValueError: bad shape", "/me/train.py, line 12 (main)")


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/me/train.py", True),
        ("<stdin>", True),
        ("<string>", True),
        ("<frozen runpy>", False),
        ("/usr/lib/python3.12/threading.py", False),
        ("/me/venv/lib64/python3.11/site-packages/torch/__init__.py", False),
        ("/usr/local/lib/python3.10/dist-packages/torch/x.py", False),
        ("/src/pytorch/torch/_dynamo/eval_frame.py", False),
        ("/tmp/torchinductor_me/ab/cab.py", False),
        ("experiments/dflash/train.py", True),
    ],
)
def test_own_code_is_neither_a_package_nor_pythons(file: str, own: bool) -> None:
    assert Frame(file, 1, "f").own is own


def test_without_code_of_ones_own_the_last_frame_stands() -> None:
    (raised,) = found(
        'Traceback (most recent call last):\n  File "/usr/lib/python3.11/a.py", line 3, in f\nKeyError: 1'
    )
    assert str(raised.own) == "/usr/lib/python3.11/a.py, line 3 (f)"


def test_what_a_log_lost_in_front_is_still_an_exception() -> None:
    full = printed(key_error)
    assert [raised.words for raised in found(full[2:])] == ["KeyError: 'tokens'"]
    assert found(full[:-1]) == []


@pytest.mark.parametrize(
    "line", ["loss: 2.31", "Error rate: 0.1", "DeprecationWarning: old", "Epoch: 3", "  KeyError: x"]
)
def test_what_is_no_exception_is_none(line: str) -> None:
    assert found(line) == []


def test_the_stack_of_a_crash_is_the_thread_that_crashed() -> None:
    text = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/me/venv/lib/python3.12/site-packages/torch/x.py", line 5 in f
  File "/me/train.py", line 66 in gather

Thread 0x00008f (most recent call first):
  File "/me/other.py", line 1 in g
"""
    assert [frame.file for frame in fatal_stack(lines(text.splitlines()))][-1] == "/me/train.py"
    assert fatal_stack(lines(["all is well"])) == ()


ALL_KINDS = [*printed(from_key_error), *printed(deeper)[:8], *printed(raising(ExceptionGroup("g", [KeyError(1)])))]


@given(st.lists(st.sampled_from(ALL_KINDS), max_size=40))
def test_any_cut_of_any_lines_can_be_read(some: list[str]) -> None:
    for raised in found(some):
        assert 0 <= raised.start <= raised.at < len(some)
