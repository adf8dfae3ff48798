"""The tiny target: a small Qwen3-architecture model over bytes, pre-trained once on real code and cached by digest.

It is small enough for about a minute on two cores and good enough to be worth foreseeing: about 2.5 bits a byte on code
that it has not seen, where 8 is chance.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

from experiments.dflash.config import DFlashConfig, TargetConfig
from experiments.dflash.corpus import Corpus, Document, code
from experiments.dflash.store import made_once
from experiments.dflash.target import Target
from harness.places import places
from harness.records import digest
from harness.run.events import Recorder

RECIPE_VERSION = 1  # count up when the code below makes other weights from the same settings

WEIGHTS = "model.safetensors"
VOCAB = 256
PAD = 0x00  # never in source text
MASK = 0xFF  # never in UTF-8
RESERVED = (PAD, *range(0xF8, 0x100))  # none of them occurs in UTF-8 text


def load_tiny(config: DFlashConfig, recorder: Recorder) -> Target:
    """The pre-trained tiny target, from the cache where it is there."""
    corpus = code()
    identity = digest([RECIPE_VERSION, asdict(config.target), corpus.digest])
    folder = places().models / f"tiny-{digest([identity, torch.__version__])[:16]}"
    if not folder.is_dir():
        say(recorder, f"pre-training the tiny target, once: {config.target.steps} steps on Python's own sources")
    made_once(folder, lambda empty: _pretrain_into(empty, config.target, corpus, recorder))
    with torch.random.fork_rng(devices=[]):
        model = Qwen3ForCausalLM(architecture(config.target))
    model.load_state_dict(load_file(folder / WEIGHTS))
    return Target(
        model=model,
        layer_ids=config.model.layer_ids(config.target.layers),
        mask_token_id=MASK,
        reserved_ids=RESERVED,
        name="tiny",
        digest=identity,
    )


def say(recorder: Recorder, text: str) -> None:
    """A note in the record, and a line for whoever watches."""
    recorder.note(text)
    print(text, file=sys.stderr, flush=True)


def architecture(config: TargetConfig) -> Qwen3Config:
    """Untied, and with a wide initial spread: tied weights at 0.02 learn far slower at this size."""
    return Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=config.hidden,
        intermediate_size=config.ffn,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=4096,
        initializer_range=config.init,
        tie_word_embeddings=False,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=None,
    )


def byte_tensor(documents: tuple[Document, ...]) -> Tensor:
    """The documents end to end, as UTF-8 bytes, a NUL after each."""
    return torch.frombuffer(bytearray(b"".join(d.text.encode() + b"\0" for d in documents)), dtype=torch.uint8)


def pretrain(config: TargetConfig, corpus: Corpus, report: Callable[[int, float], None]) -> Qwen3ForCausalLM:
    """A model after ``config.steps`` steps of AdamW on random windows of ``corpus.train``.

    ``report(step, loss)`` hears of each step; the loss is in nats a byte. The caller's random state stays as it was.
    """
    text = byte_tensor(corpus.train)
    windows = torch.Generator().manual_seed(config.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = Qwen3ForCausalLM(architecture(config))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, config.steps))
    offsets = torch.arange(config.sequence + 1)
    for step in range(1, config.steps + 1):
        starts = torch.randint(len(text) - config.sequence, (config.batch, 1), generator=windows)
        ids = text[starts + offsets].long()
        loss = cross_entropy(model, ids)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        report(step, loss.item())
    model.train(False)
    return model


def cross_entropy(model: Qwen3ForCausalLM, ids_BS: Tensor) -> Tensor:
    """Mean nats a byte of each next byte of ``ids_BS``."""
    logits = model(input_ids=ids_BS[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), ids_BS[:, 1:].flatten())


def _rate(step: int, steps: int) -> float:
    """Share of the learning rate: a short linear rise, then a cosine down to 2 %."""
    warmup = max(1, round(0.05 * steps))
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


@torch.no_grad()
def bits_per_byte(model: Qwen3ForCausalLM, documents: tuple[Document, ...], sequence: int, windows: int = 64) -> float:
    """Mean bits a byte over evenly spread windows of ``documents``: 8 is chance."""
    text = byte_tensor(documents)
    starts = torch.linspace(0, len(text) - sequence - 1, windows).long()[:, None]
    return cross_entropy(model, text[starts + torch.arange(sequence + 1)].long()).item() / math.log(2)


def _pretrain_into(folder: Path, config: TargetConfig, corpus: Corpus, recorder: Recorder) -> None:
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        if step % max(1, config.steps // 6) == 0 and step < config.steps:
            left = (time.monotonic() - started) * (config.steps / step - 1)
            progress = f"pre-training, step {step} of {config.steps}: {loss / math.log(2):.2f} bits a byte"
            say(recorder, f"{progress}, {left:.0f} s left")

    model = pretrain(config, corpus, report)
    held_out = bits_per_byte(model, corpus.held_out, config.sequence)
    save_file(model.state_dict(), folder / WEIGHTS)
    seconds = time.monotonic() - started
    say(recorder, f"pre-trained in {seconds:.0f} s: {held_out:.2f} bits a byte on code that it has not seen")
