"""One optimizer step of a drafter on one device.

Shapes: B rows, S positions, N block slots, K block positions, J = K - 1, F features, H hidden, V vocabulary.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.dflash.anchors import Anchors, Supervision, sample_anchors, supervise
from experiments.dflash.attention import Attention, build_mask, choose_attention
from experiments.dflash.clock import PhaseClock
from experiments.dflash.compiling import Forward, compile_forward
from experiments.dflash.config import DFlashConfig
from experiments.dflash.loss import Loss, Weighting, block_loss, labels
from experiments.dflash.model import DFlashDrafter, drafter_shape
from experiments.dflash.optim import guarded_step, learning_rate, make_optimizer
from experiments.dflash.target import Target, document_positions

if TYPE_CHECKING:
    from experiments.dflash.data import Batch, Dataset

# --- what a step works with ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trainer:
    """The parts of a training on one device."""

    config: DFlashConfig
    target: Target
    drafter: DFlashDrafter
    forward: Forward  # the drafter's, compiled or not
    optimizer: torch.optim.AdamW
    attention: Attention
    device: torch.device


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch with its anchors drawn. The index work was done on the host; ``*_device`` tensors are on the device."""

    batch: Batch
    anchors: Anchors
    supervision: Supervision
    ids_device: Tensor
    document_device: Tensor
    anchor_device: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """Everything that, with the weights and the target, decides what the step computes."""
        batch, anchors = self.batch, self.anchors
        return {
            "ids": batch.ids_BS,
            "loss_mask": batch.loss_mask_BS,
            "document": batch.document_BS,
            "anchor": anchors.anchor_BN,
            "valid": anchors.valid_BN,
        }


@dataclass(frozen=True)
class Outcome:
    """What a step came to, on the host."""

    skipped: str = ""  # why the weights did not move
    metrics: dict[str, float] = field(default_factory=dict)


def make_trainer(config: DFlashConfig, target: Target, device: torch.device) -> Trainer:
    """A fresh drafter for ``target``, which is on ``device`` already, and what trains it."""
    attention = choose_attention(config.attention, config.compile, device)
    drafter = DFlashDrafter(drafter_shape(config, target.config))
    drafter.initialise(config.model.init, config.model.seed)
    drafter.to(device)
    forward = compile_forward(drafter, config.compile)
    optimizer = make_optimizer(drafter.parameters(), config.train)
    return Trainer(config, target, drafter, forward, optimizer, attention, device)


# --- one step --------------------------------------------------------------------------------------------


def train_step(trainer: Trainer, dataset: Dataset, number: int, clock: PhaseClock) -> tuple[Prepared, Outcome]:
    """Optimizer step ``number``, from 1. The device is waited for once, at the end, for the figures to record."""
    with clock.phase("data"):
        prepared = prepare(trainer, dataset.batch(number - 1), number)
    if not bool(prepared.supervision.live_BNJ.any()):
        return prepared, Outcome(skipped="no valid anchor in the batch")
    with clock.phase("target"), autocast(trainer), torch.no_grad():
        features_BSF, label_BS = look_at_target(trainer, prepared, number)
        block_BNKH = embed_blocks(trainer, prepared)
    with clock.phase("forward"), autocast(trainer):
        loss = drafter_loss(trainer, prepared, features_BSF, label_BS, block_BNKH)
    with clock.phase("backward"):
        torch.autograd.backward(loss.value)
    lr = learning_rate(number, trainer.config.train)
    with clock.phase("optimizer"):
        norm, skipped = guarded_step(trainer.optimizer, loss.value, lr, trainer.config.train.clip)
        figures = torch.stack([loss.value.detach(), norm, loss.matched, skipped.float()])
    value, gradient_norm, matched, bad = figures.tolist()
    metrics = {"loss": value, "lr": lr, "grad_norm": gradient_norm, "matched": matched}
    return prepared, Outcome("the loss or a gradient is not finite" if bad else "", metrics)


def prepare(trainer: Trainer, batch: Batch, number: int) -> Prepared:
    """Draw the step's anchors, from the seed and the step's number alone, and send what the device needs."""
    train, device = trainer.config.train, trainer.device
    generator = step_generator(train.seed, number, torch.device("cpu"))
    anchors = sample_anchors(batch.loss_mask_BS, batch.document_BS, train.anchors, generator)
    supervision = supervise(anchors, batch.loss_mask_BS, batch.document_BS, trainer.config.model.block_size)
    sent = (batch.ids_BS, batch.document_BS, anchors.anchor_BN)
    return Prepared(batch, anchors, supervision, *(tensor.to(device, non_blocking=True) for tensor in sent))


def look_at_target(trainer: Trainer, prepared: Prepared, number: int) -> tuple[Tensor, Tensor]:
    """``features_BSF`` of the target, with the config's noise on them, and ``label_BS``."""
    train = trainer.config.train
    features_BSF, logits_BSV = trainer.target.features(prepared.ids_device, prepared.document_device)
    if train.feature_noise:
        generator = step_generator(train.seed, number, trainer.device)
        noise_BSF = torch.empty_like(features_BSF).normal_(0.0, train.feature_noise, generator=generator)
        features_BSF = features_BSF + noise_BSF
    return features_BSF, labels(train.labels, prepared.ids_device, logits_BSV)


def embed_blocks(trainer: Trainer, prepared: Prepared) -> Tensor:
    """``block_BNKH``: the target's embeddings of [anchor token, MASK, ...] for each slot."""
    target, width = trainer.target, trainer.config.model.block_size
    anchor_token_BN = prepared.ids_device.gather(1, prepared.anchor_device)
    block_BNK = F.pad(anchor_token_BN[:, :, None], (0, width - 1), value=target.mask_token_id)
    return target.embed(block_BNK)


def drafter_loss(
    trainer: Trainer, prepared: Prepared, features_BSF: Tensor, label_BS: Tensor, block_BNKH: Tensor
) -> Loss:
    """Draft every block and weigh what came out."""
    config, document_BS, anchor_BN = trainer.config, prepared.document_device, prepared.anchor_device
    anchor_document_BN = document_BS.gather(1, anchor_BN)
    mask = build_mask(trainer.attention, anchor_BN, anchor_document_BN, document_BS, config.model.block_size)
    position_BS = document_positions(document_BS)
    hidden_BNKH = trainer.forward(features_BSF, position_BS, block_BNKH, position_BS.gather(1, anchor_BN), mask)
    weighting = Weighting(config.train.loss, config.gamma, config.train.alpha)
    head, chunk = trainer.target.lm_head, config.train.chunk_blocks
    return block_loss(hidden_BNKH, label_BS, prepared.supervision, head, weighting, chunk)


def autocast(trainer: Trainer) -> AbstractContextManager[None]:
    """bf16 arithmetic over fp32 weights where the config asks for it."""
    return torch.autocast(trainer.device.type, torch.bfloat16, enabled=trainer.config.precision == "bf16")


def step_generator(seed: int, number: int, device: torch.device) -> torch.Generator:
    """Randomness of one step, whatever came before it.

    Seed and number are hashed together, because torch's CPU generator takes only the low 32 bits of what it is given.
    """
    mixed = hashlib.sha256(f"{seed} {number}".encode()).digest()[:4]
    return torch.Generator(device).manual_seed(int.from_bytes(mixed))
