"""What the drafter trains on: the target's own continuations of real prompts, or real text as it is.

Shapes: N rows in all, B rows a batch, S tokens a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from experiments.dflash import prompts
from experiments.dflash.config import DataConfig, DFlashConfig
from experiments.dflash.decode import greedy
from experiments.dflash.store import made_once
from experiments.dflash.target import Target
from harness.places import places
from harness.records import digest
from harness.run.events import Recorder

RECIPE_VERSION = 1  # count up when the code below makes other sequences from the same settings

ROWS_AT_ONCE = 256
"""Prompts that are continued together: bounds the key-value cache."""


@dataclass(frozen=True)
class Batch:
    """A step's worth of sequences, of one fixed shape.

    ids_BS        token ids
    loss_mask_BS  True where a token may be learnt from
    document_BS   index of the document within its row; -1 for padding
    tokens        those that are no padding
    padding       those that are
    """

    ids_BS: Tensor
    loss_mask_BS: Tensor
    document_BS: Tensor
    tokens: int
    padding: int


@dataclass(frozen=True, eq=False)
class Dataset:
    """Packed rows, and the order in which steps see them.

    digest     of what was asked for: corpus, settings, target; the same on every machine
    content    of the ids themselves, which the arithmetic of the machine that made them decides
    sequences  documents in the rows
    """

    ids_NS: Tensor
    loss_mask_NS: Tensor
    document_NS: Tensor
    rows_a_step: int
    seed: int
    digest: str

    @property
    def positions(self) -> int:
        """Of each row."""
        return self.ids_NS.shape[1]

    @property
    def sequences(self) -> int:
        return int((self.document_NS.max(-1).values + 1).sum())

    @property
    def content(self) -> str:
        return hashlib.sha256(self.ids_NS.contiguous().numpy().tobytes()).hexdigest()

    def batch(self, step: int, part: Iterable[int] | None = None) -> Batch:
        """The rows of ``step``, a function of (seed, step) alone: shuffled anew every pass, none left out of a pass.

        ``part`` names those of 0..rows_a_step - 1 that are wanted; None for all.
        """
        rows = len(self.ids_NS)
        wanted = range(self.rows_a_step) if part is None else part
        places = [divmod(step * self.rows_a_step + i, rows) for i in wanted]
        index = torch.tensor([_order(rows, self.seed, epoch)[place] for epoch, place in places])
        document_BS = self.document_NS[index]
        padding = int((document_BS < 0).sum())
        return Batch(self.ids_NS[index], self.loss_mask_NS[index], document_BS, document_BS.numel() - padding, padding)


@lru_cache(maxsize=2)
def _order(rows: int, seed: int, epoch: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order: list[int] = torch.randperm(rows, generator=generator).tolist()
    return order


def load_data(config: DFlashConfig, target: Target, recorder: Recorder) -> Dataset:
    """The sequences that ``config.data`` asks for, from the cache where they are there."""
    corpus = prompts.source(target)
    identity = digest([RECIPE_VERSION, asdict(config.data), corpus.digest, target.digest])
    folder = places().models / f"data-{target.name}-{digest([identity, torch.__version__])[:16]}"
    if not folder.is_dir():
        what = "text that the target writes itself" if config.data.kind == "on_policy" else "text"
        recorder.note(f"making {config.data.sequences} sequences of {what}, once")

    def make(empty: Path) -> None:
        ids, learn, document = pack(sequences(config.data, target), config.data.length, target.reserved_ids[0])
        save_file({"ids": ids, "learn": learn, "document": document}, empty / "rows.safetensors")

    rows = load_file(made_once(folder, make) / "rows.safetensors")
    return Dataset(rows["ids"], rows["learn"], rows["document"], config.train.batch, config.train.seed, identity)


@dataclass(frozen=True)
class Passage:
    """A document: its ids, and how many of them at its start are prompt and not learnt from."""

    ids: list[int]
    prompt: int


def sequences(config: DataConfig, target: Target) -> list[Passage]:
    """The documents themselves, each of at most ``config.length`` tokens."""
    corpus = prompts.source(target)
    if config.kind == "text":
        drawn = prompts.windows(target, corpus.train, config.sequences, config.length, config.seed)
        return [Passage(ids, 0) for ids in drawn]
    drawn = prompts.draw(target, corpus.train, config.sequences, config.prompt, config.seed)
    made = []
    for start in range(0, len(drawn), ROWS_AT_ONCE):
        some = drawn[start : start + ROWS_AT_ONCE]
        written = greedy(target, some, config.length - config.prompt)
        made += [Passage(prompt + answer, len(prompt)) for prompt, answer in zip(some, written, strict=True)]
    return made


def pack(documents: Sequence[Passage], length: int, pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """``ids_NS``, ``loss_mask_NS`` and ``document_NS`` of ``documents`` laid first-fit into rows of ``length`` tokens.

    Raises ValueError for a document that fits no row.
    """
    rows: list[list[Passage]] = []
    room: list[int] = []
    for document in documents:
        if len(document.ids) > length:
            raise ValueError(f"a document of {len(document.ids)} tokens does not fit a row of {length}")
        at = next((i for i, free in enumerate(room) if free >= len(document.ids)), len(rows))
        if at == len(rows):
            rows.append([])
            room.append(length)
        rows[at].append(document)
        room[at] -= len(document.ids)
    ids = torch.full((len(rows), length), pad)
    learn = torch.zeros(len(rows), length, dtype=torch.bool)
    number = torch.full((len(rows), length), -1)
    for row, packed in enumerate(rows):
        start = 0
        for index, document in enumerate(packed):
            end = start + len(document.ids)
            ids[row, start:end] = torch.tensor(document.ids)
            learn[row, start + document.prompt : end] = True
            number[row, start:end] = index
            start = end
    return ids, learn, number
