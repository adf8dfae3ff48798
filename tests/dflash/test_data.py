"""The sequences: packed whole, seen evenly, the same for the same seed, and made by the target itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.dflash import data as module
from experiments.dflash import prompts
from experiments.dflash.config import DataConfig, DFlashConfig, ModelConfig, TrainConfig
from experiments.dflash.corpus import Corpus, Document
from experiments.dflash.data import Dataset, Passage, load_data, pack, sequences
from harness.run.events import Recorder
from tests.dflash.tiny_target import plain_greedy, random_target

passages = st.lists(
    st.integers(1, 12).flatmap(
        lambda n: st.builds(Passage, st.lists(st.integers(1, 20), min_size=n, max_size=n), st.integers(0, n))
    ),
    min_size=1,
    max_size=12,
)


@given(passages)
def test_packing_keeps_every_document_whole_and_learns_from_its_answer_alone(documents: list[Passage]) -> None:
    ids, learn, number = pack(documents, 12, pad=0)
    unpacked = []
    for row in range(len(ids)):
        for index in range(int(number[row].max()) + 1):
            here = number[row] == index
            span = here.nonzero()[:, 0]
            assert (span.diff() == 1).all()
            unpacked.append((ids[row][here].tolist(), int((~learn[row][here]).sum())))
    assert sorted(unpacked) == sorted((d.ids, d.prompt) for d in documents)
    assert not learn[number < 0].any()
    assert (ids[number < 0] == 0).all()
    assert int((number >= 0).sum()) == sum(len(d.ids) for d in documents)


def test_a_document_that_fits_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="13 tokens does not fit a row of 12"):
        pack([Passage([1] * 13, 0)], 12, 0)


def numbered(rows: int, seed: int = 0, a_step: int = 3) -> Dataset:
    """Rows that carry their own number; every third ends in padding."""
    ids = torch.arange(rows)[:, None].expand(rows, 4).contiguous()
    document = torch.zeros(rows, 4, dtype=torch.long)
    document[::3, 3] = -1
    return Dataset(ids, document >= 0, document, a_step, seed, "digest")


@given(rows=st.integers(1, 11), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_every_pass_sees_every_row_once(rows: int, seed: int, epoch: int) -> None:
    dataset = numbered(rows, seed, a_step=1)
    seen = [int(dataset.batch(epoch * rows + i).ids_BS[0, 0]) for i in range(rows)]
    assert sorted(seen) == list(range(rows))


def test_batches_depend_on_seed_and_step_alone() -> None:
    one, two = numbered(10), numbered(10)
    forward = [one.batch(step).ids_BS.tolist() for step in range(12)]
    backward = [two.batch(step).ids_BS.tolist() for step in reversed(range(12))][::-1]
    assert forward == backward
    assert forward != [numbered(10, seed=1).batch(step).ids_BS.tolist() for step in range(12)]
    assert forward[:3] != forward[3:6]


def test_tokens_and_padding_are_counted() -> None:
    dataset = numbered(6, a_step=6)
    batch = dataset.batch(0)
    assert (batch.tokens, batch.padding) == (22, 2)
    assert dataset.sequences == 6


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Corpus:
    text = bytes(range(1, 21)).decode() * 9
    corpus = Corpus((Document("a", text),), (Document("b", text[::-1]),))
    monkeypatch.setattr(prompts, "source", lambda _: corpus)
    monkeypatch.setenv("HARNESS_STATE", str(tmp_path))
    return corpus


CONFIG = DFlashConfig(
    model=ModelConfig(target_layer_ids="0"),
    data=DataConfig(sequences=6, length=12, prompt=5),
    train=TrainConfig(batch=2),
)


def test_on_policy_text_is_the_target_s_own(source: Corpus) -> None:
    target = random_target()
    made = sequences(CONFIG.data, target)
    assert len(made) == 6
    for passage in made:
        assert bytes(passage.ids[:5]).decode() in source.train[0].text
        assert passage.ids[5:] == plain_greedy(target, passage.ids[:5], 7)
        assert passage.prompt == 5


def test_text_is_the_corpus_s_and_all_of_it_is_learnt_from(source: Corpus) -> None:
    made = sequences(DataConfig(kind="text", sequences=4, length=10), random_target())
    assert all(bytes(p.ids).decode() in source.train[0].text and p.prompt == 0 and len(p.ids) == 10 for p in made)


@pytest.mark.usefixtures("source")
def test_data_is_made_once_and_named_by_what_it_was_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(None, 0.0)
    first = load_data(CONFIG, random_target(), recorder)
    with monkeypatch.context() as patched:
        patched.setattr(module, "sequences", lambda *_: pytest.fail("made again"))
        again = load_data(CONFIG, random_target(), recorder)
    assert torch.equal(first.ids_NS, again.ids_NS)
    assert (first.digest, first.content) == (again.digest, again.content)
    other = load_data(CONFIG, random_target(seed=1), recorder)
    assert first.digest != other.digest
    assert first.content != other.content
