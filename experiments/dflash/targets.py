"""Which target a run is for: made or read here, frozen, in fp32, on the CPU."""

from __future__ import annotations

from experiments.dflash.config import DFlashConfig
from experiments.dflash.pretrain import load_tiny
from experiments.dflash.smollm2 import load_smollm2
from experiments.dflash.target import Target
from harness.errors import UsageError
from harness.run.events import Recorder


def load_target(config: DFlashConfig, recorder: Recorder) -> Target:
    """The target that ``config.target.kind`` names, made first where that is needed.

    Raises UsageError for one that only a machine with its weights and GPUs can load.
    """
    if config.target.kind == "tiny":
        return load_tiny(config, recorder)
    if config.target.kind == "smollm2":
        return load_smollm2(config, recorder)
    raise UsageError(f"the target {config.target.kind} can only be planned here: harness run RECIPE --plan")
