"""No test measures speed: on a shared machine such a test fails without a fault. Measures are for ``benchmarks/``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = sorted(Path(__file__).parent.rglob("*.py"))
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}


def reads_clock(node: ast.AST) -> bool:
    """Whether a difference of clock readings is in ``node``: what a test calls how long something took."""
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Sub)
        and isinstance(part.left, ast.Call)
        and isinstance(part.left.func, ast.Attribute)
        and isinstance(part.left.func.value, ast.Name)
        and (part.left.func.value.id, part.left.func.attr in CLOCKS) == ("time", True)
        for part in ast.walk(node)
    )


def upper_bounds(source: str) -> list[int]:
    """Lines that assert that something took less than some time; at least some time, a busy machine cannot break."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            sides = [node.test.left, *node.test.comparators]
            for left, op, right in zip(sides, node.test.ops, sides[1:], strict=False):
                less, more = isinstance(op, ast.Lt | ast.LtE), isinstance(op, ast.Gt | ast.GtE)
                if (less and reads_clock(left)) or (more and reads_clock(right)):
                    found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_nothing_has_to_be_quick(path: Path) -> None:
    lines = upper_bounds(path.read_text(encoding="utf-8"))
    assert not lines, f"{path}: lines {lines} fail on a busy machine; make it a property, or a benchmark"


def test_a_timed_test_is_seen() -> None:
    assert upper_bounds("begun = time.process_time()\nassert time.process_time() - begun < 0.3") == [2]
    assert upper_bounds("assert 5 > (time.monotonic() - start) / 10") == [1]
    assert upper_bounds("assert time.monotonic() - start > 1\nassert time.monotonic() < deadline") == []
