"""What the two roles do in a step: the target's side makes features of a share, the drafter's side trains on them.

Shapes: B rows of the share, S positions, N block slots, K block positions, J = K - 1, F features, H hidden,
V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.dflash.anchors import Anchors, Supervision, sample_anchors, supervise
from experiments.dflash.attention import Attention, choose_attention
from experiments.dflash.clock import PhaseClock
from experiments.dflash.compiling import Forward
from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Batch, Dataset
from experiments.dflash.forward import BlockForward, as_cuda_graphs, refuse_cuda_graphs
from experiments.dflash.layout import Share
from experiments.dflash.loss import Loss, Weighting, block_loss, labels
from experiments.dflash.model import DFlashDrafter, drafter_shape
from experiments.dflash.optim import Gradients, guarded_step, learning_rate, make_optimizer
from experiments.dflash.target import Borrowed, Target

Reduce = Callable[[Tensor], None]
"""Makes a tensor the sum of it over all drafters, in place, the same bits on each."""

# --- what a step works with ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Features:
    """What the target's side makes of a share, of one fixed shape: all that travels from role to role.

    features_BSF  hidden states of the captured layers, with the config's noise on them
    label_BS      what should stand at each position
    """

    features_BSF: Tensor
    label_BS: Tensor


@dataclass(frozen=True, eq=False)
class TargetSide:
    """A frozen target on its device."""

    config: DFlashConfig
    target: Target

    def look(self, batch: Batch, share: Share) -> Features:
        """The features of ``batch``, which is ``share``'s."""
        device, train = self.target.device, self.config.train
        ids_BS, document_BS = (t.to(device, non_blocking=True) for t in (batch.ids_BS, batch.document_BS))
        with autocast(self.config, device), torch.no_grad():
            features_BSF, logits_BSV = self.target.features(ids_BS, document_BS)
            if train.feature_noise:
                size = features_BSF.shape[1:]
                draws = [_noise(train.feature_noise, size, train.seed, share.step, row, device) for row in share.rows]
                features_BSF = features_BSF + torch.stack(draws).to(features_BSF.dtype)
            return Features(features_BSF, labels(train.labels, ids_BS, logits_BSV))


@dataclass(frozen=True, eq=False)
class DrafterSide:
    """A drafter in training on its device."""

    config: DFlashConfig
    drafter: DFlashDrafter
    block: BlockForward
    forward: Forward  # the block's, or the same as CUDA graphs
    borrowed: Borrowed
    optimizer: torch.optim.AdamW
    gradients: Gradients
    attention: Attention
    device: torch.device


@dataclass(frozen=True, eq=False)
class Prepared:
    """A share with its anchors drawn. The index work was done on the host; ``*_device`` tensors are on the device."""

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
    """What a step came to, on the host; the same for all drafters."""

    skipped: str = ""  # why the weights did not move
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        """Whether arithmetic went wrong, and not the batch."""
        return bool(self.skipped and self.metrics)


def fresh_drafter(config: DFlashConfig, target: Target, device: torch.device) -> DFlashDrafter:
    """The untrained drafter for ``target``, the same weights wherever it is made."""
    drafter = DFlashDrafter(drafter_shape(config, target.config))
    drafter.initialise(config.model.init, config.model.seed)
    drafter.to(device)
    return drafter


def drafter_side(config: DFlashConfig, target: Target, borrowed: Borrowed, device: torch.device) -> DrafterSide:
    """A fresh drafter for ``target`` on ``device``, where ``borrowed`` is, and what trains it."""
    refuse_cuda_graphs(config, device)
    attention = choose_attention(config.attention, config.compile, device, config.attention_fallback)
    drafter = fresh_drafter(config, target, device)
    block = BlockForward(drafter, config.compile, attention)
    return DrafterSide(
        config=config,
        drafter=drafter,
        block=block,
        forward=block,
        borrowed=borrowed,
        optimizer=make_optimizer(drafter.parameters(), config.train),
        gradients=Gradients(drafter.parameters()),
        attention=attention,
        device=device,
    )


def captured(side: DrafterSide, rows: int, positions: int) -> DrafterSide:
    """``side`` with its forward and backward as CUDA graphs, where the config asks for them; see ``as_cuda_graphs``.

    rows       of each share
    positions  of a row
    """
    config, shape = side.config, side.drafter.shape
    if not config.cuda_graphs:
        return side
    slots, width = config.train.anchors, shape.block_size
    example = (
        torch.zeros(rows, positions, shape.features, dtype=feature_type(config), device=side.device),
        torch.zeros(rows, positions, dtype=torch.long, device=side.device),
        torch.zeros(rows, slots, dtype=torch.long, device=side.device),
        embedded(side.borrowed, torch.zeros(rows, slots, dtype=torch.long, device=side.device), width),
    )
    return replace(side, forward=as_cuda_graphs(side.block, example, autocast(config, side.device, cache=False)))


def feature_type(config: DFlashConfig) -> torch.dtype:
    """What a drafter reads features as. Under bf16 its first product rounds them to bf16 anyway: half the bytes."""
    return torch.bfloat16 if config.precision == "bf16" else torch.float32


# --- the drafter's step ----------------------------------------------------------------------------------


def prepare(side: DrafterSide, dataset: Dataset, share: Share) -> Prepared:
    """Draw the share's anchors, from the seed, the step and the rows alone, and send what the device needs."""
    config, train = side.config, side.config.train
    batch = dataset.batch(share.step - 1, share.rows)
    chance_BS = torch.stack([_chance(batch.ids_BS.shape[1], train.seed, share.step, row) for row in share.rows])
    anchors = sample_anchors(batch.loss_mask_BS, batch.document_BS, train.anchors, chance_BS)
    supervision = supervise(anchors, batch.loss_mask_BS, batch.document_BS, config.model.block_size)
    sent = (batch.ids_BS, batch.document_BS, anchors.anchor_BN)
    return Prepared(batch, anchors, supervision, *(tensor.to(side.device, non_blocking=True) for tensor in sent))


def drafter_step(
    side: DrafterSide, prepared: Prepared, given: Features, step: int, reduce: Reduce | None, clock: PhaseClock
) -> Outcome:
    """Train on a share. The device is waited for once, at the end, for the figures to record.

    A share without a valid anchor adds nothing, but takes part in the sum: the others wait for it there.
    """
    gradients, train = side.gradients, side.config.train
    gradients.clear()
    if bool(prepared.supervision.live_BNJ.any()):
        with clock.phase("forward"), autocast(side.config, side.device):
            loss = drafter_loss(side, prepared, given)
        with clock.phase("backward"):
            torch.autograd.backward(loss.total)
            gradients.note(loss.total, loss.weight, loss.matched, loss.blocks)
    if reduce is not None:
        with clock.phase("communication"):  # with the wait for the slowest drafter: "wait" is for the other role alone
            reduce(gradients.flat)
    lr = learning_rate(step, train)
    with clock.phase("optimizer"):
        norm, skipped = guarded_step(side.optimizer, gradients, lr, train.clip)
        figures = torch.cat([gradients.figures, torch.stack([norm, skipped.float()])])
    total, weight, matched, blocks, gradient_norm, bad = figures.tolist()
    if weight == 0:
        return Outcome("no valid anchor in the batch")
    metrics = {"loss": total / weight, "lr": lr, "grad_norm": gradient_norm, "matched": matched / blocks}
    return Outcome("the loss or a gradient is not finite" if bad else "", metrics)


def drafter_loss(side: DrafterSide, prepared: Prepared, given: Features) -> Loss:
    """Draft every block and weigh what came out."""
    config, anchor_token_BN = side.config, prepared.ids_device.gather(1, prepared.anchor_device)
    block_BNKH = embedded(side.borrowed, anchor_token_BN, config.model.block_size)
    hidden_BNKH = side.forward(given.features_BSF, prepared.document_device, prepared.anchor_device, block_BNKH)
    weighting = Weighting(config.train.loss, config.gamma, config.train.alpha)
    head, chunk = side.borrowed.lm_head, config.train.chunk_blocks
    return block_loss(hidden_BNKH, given.label_BS, prepared.supervision, head, weighting, chunk)


@torch.no_grad()
def embedded(borrowed: Borrowed, anchor_token_BN: Tensor, width: int) -> Tensor:
    """``block_BNKH``: the target's embeddings of [anchor token, MASK, ...] for each slot."""
    return borrowed.embed(F.pad(anchor_token_BN[:, :, None], (0, width - 1), value=borrowed.mask_token_id))


def autocast(config: DFlashConfig, device: torch.device, cache: bool = True) -> AbstractContextManager[None]:
    """bf16 arithmetic over fp32 weights where the config asks for it; ``cache``: each weight is rounded once."""
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16", cache_enabled=cache)


# --- randomness ------------------------------------------------------------------------------------------


def row_generator(seed: int, step: int, row: int, device: torch.device) -> torch.Generator:
    """Randomness of one row of one step, whatever came before it and whoever computes it.

    The three are hashed together, because torch's CPU generator takes only the low 32 bits of what it is given.
    """
    mixed = hashlib.sha256(f"{seed} {step} {row}".encode()).digest()[:4]
    return torch.Generator(device).manual_seed(int.from_bytes(mixed))


def _chance(size: int, seed: int, step: int, row: int) -> Tensor:
    return torch.rand(size, generator=row_generator(seed, step, row, torch.device("cpu")), dtype=torch.float64)


def _noise(std: float, size: torch.Size, seed: int, step: int, row: int, device: torch.device) -> Tensor:
    return torch.empty(size, device=device).normal_(0.0, std, generator=row_generator(seed, step, row, device))
