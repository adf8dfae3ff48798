"""What the target is asked to continue, as token ids: windows of code for bytes, chat questions for a chat model."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from experiments.dflash import corpus
from experiments.dflash.corpus import Corpus, Document
from experiments.dflash.target import Target
from harness.errors import UsageError


def source(target: Target) -> Corpus:
    """The corpus that this target's prompts come from."""
    return corpus.code() if target.tokenizer is None else corpus.prompts()


def encode(target: Target, text: str) -> list[int]:
    """``text`` as token ids: its UTF-8 bytes, or what the target's tokenizer makes of it."""
    return list(text.encode()) if target.tokenizer is None else list(target.tokenizer.encode(text))


def draw(target: Target, documents: Sequence[Document], count: int, tokens: int, seed: int) -> list[list[int]]:
    """``count`` prompts from ``documents``, the same for the same ``seed``.

    For bytes each is a window of exactly ``tokens`` bytes. For a chat model each is a document put through its chat
    template; those longer than ``tokens`` are left out. Raises UsageError where there are not enough.
    """
    if target.tokenizer is None:
        return windows(target, documents, count, tokens, seed)
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(seed)).tolist()
    asked = (chat(target, documents[i].text) for i in order)
    found = [prompt for prompt in asked if len(prompt) <= tokens][:count]
    if len(found) < count:
        raise UsageError(f"{count} prompts of at most {tokens} tokens were asked for, and there are {len(found)}")
    return found


def windows(target: Target, documents: Sequence[Document], count: int, tokens: int, seed: int) -> list[list[int]]:
    """``count`` stretches of ``tokens`` tokens at random places of ``documents`` laid end to end."""
    text = [token for document in documents for token in encode(target, document.text)]
    if len(text) <= tokens:
        raise UsageError(f"windows of {tokens} tokens were asked for, and the text has {len(text)}")
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - tokens, (count,), generator=generator).tolist()
    return [text[start : start + tokens] for start in starts]


def chat(target: Target, question: str) -> list[int]:
    """The target's chat template around one question, up to where its answer starts."""
    messages = [{"role": "user", "content": question}]
    text = target.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(target.tokenizer.encode(text, add_special_tokens=False))
