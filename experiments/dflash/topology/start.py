"""Where a training runs: in this process, or in processes that this one starts."""

from __future__ import annotations

import os
from collections.abc import Callable

from experiments.dflash.config import DFlashConfig
from harness.run.events import Recorder

Run = Callable[[DFlashConfig, Recorder], str]
"""A whole training. Returns why it failed, or "" where it did not."""


def start(run: Run, recorder: Recorder) -> str:
    """``run`` where the config wants it; its answer is returned.

    A process that has a RANK was started by an agent of torch.distributed's, this machine's or another's. It does not
    come back from here: what it came to is for the agent to say.
    """
    if "RANK" in os.environ:
        from experiments.dflash.topology.worker import work

        work(run, recorder)
    config = recorder.config(DFlashConfig)
    if config.topology.kind == "processes":
        from experiments.dflash.topology.agent import run_ranks

        return run_ranks(config.topology, config.train.batch, config.threads, recorder)
    return run(config, recorder)
