"""Train a DFlash drafter, from start to end: ``python -m experiments.dflash.train``.

Target, data, evaluation, training, evaluation, drafter on disk. The settings come from the run that started this
process (``HARNESS_RUN``); without one, from the defaults, and nothing is kept. Which devices take part, and how, is
the crew's business (``topology/``): this is the same for all of them.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from experiments.dflash.attention import DenseWatch, slower_attention
from experiments.dflash.compiling import choose_backend, graphs_expected
from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Dataset, load_data
from experiments.dflash.evaluate import evaluate, evaluate_baselines
from experiments.dflash.model import DFlashDrafter
from experiments.dflash.targets import load_target
from experiments.dflash.topology.crew import Crew, crew
from experiments.dflash.topology.start import start
from harness.errors import HarnessError
from harness.records import Value
from harness.run.events import Recorder

# --- the run, from start to end --------------------------------------------------------------------------


def main() -> int:
    """The child process. Exit code 0 where the run is good; a reason is in its Finished event otherwise."""
    recorder = Recorder.from_environment()
    try:
        reason = start(run, recorder)
    except HarnessError as error:
        recorder.finished(ok=False, reason=str(error))
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    recorder.finished(ok=not reason, reason=reason)
    return 1 if reason else 0


def run(config: DFlashConfig, recorder: Recorder) -> str:
    """A whole run. Returns why it failed, or "" where it did not."""
    config, slower = settled(config)
    team = crew(config, recorder)
    target = team.make(lambda: load_target(config, recorder))
    dataset = team.make(lambda: load_data(config, target, recorder))
    team.board(target, dataset)
    flex = team.facts()["execution.attention.used"] == "flex"
    warn = partial(recorder.note, level="warning")
    with DenseWatch(config.attention_fallback, warn) if flex else nullcontext():
        if not team.leads:
            return team.train()
        if slower:
            recorder.note(slower, level="warning")
        return lead(team, config, dataset, recorder)


def settled(config: DFlashConfig) -> tuple[DFlashConfig, str]:
    """The config with its backend chosen, and why it is not the best one, or "".

    torch is set up for it: the same bits from the same seed on the CPU.
    """
    on_cuda = torch.cuda.is_available() and not config.on_cpu
    device = torch.device("cuda" if on_cuda else "cpu")
    backend, slower = choose_backend(config.compile, device)
    torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(not on_cuda)
    return replace(config, compile=backend), slower or slower_attention(config.attention, backend, device)


def lead(team: Crew, config: DFlashConfig, dataset: Dataset, recorder: Recorder) -> str:
    """What one process of the run does beside the training: say what it is, evaluate before and after, keep."""
    known = {**facts(team, config, dataset), **team.facts()}
    graphs = graphs_expected(config.compile, str(known["execution.attention.used"])) * config.topology.drafter_count
    recorder.started(config.train.steps, {**known, "execution.compile.graphs_expected": graphs})
    recorder.note("decoding with the untrained baselines")
    evaluate_baselines(team.target, config, recorder)
    recorder.note("decoding with the drafter before training")
    before = evaluate(team.drafter, team.target, config, recorder, "before")
    recorder.note("training: the first step also compiles" if config.compile != "none" else "training")
    given_up = team.train()
    if given_up:
        return given_up
    recorder.note("decoding with the trained drafter")
    after = evaluate(team.drafter, team.target, config, recorder, "after")
    save_drafter(team.drafter, recorder, config.train.steps)

    broken = [result.name for result in (before, after) if result.broken]
    if broken:
        return f"decoding {' and '.join(broken)} training did not give the target's own text; the notes say where"
    return ""


def facts(team: Crew, config: DFlashConfig, dataset: Dataset) -> dict[str, Value]:
    """What only the child knows about what it computes."""
    return {
        "workload.data.digest": dataset.digest,
        "workload.data.sequences": dataset.sequences,
        "workload.target.digest": team.target.digest,
        "workload.target.parameters": team.target.parameters,
        "workload.model.parameters": sum(p.numel() for p in team.drafter.parameters()),
        "execution.compile.used": config.compile,
    }


def save_drafter(drafter: DFlashDrafter, recorder: Recorder, step: int) -> None:
    """The drafter's weights under the names that servers load, with its shape in the file's metadata."""
    if recorder.folder is None:
        return
    path = Path("artifacts") / "drafter.safetensors"
    whole = recorder.folder / path
    whole.parent.mkdir(exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in drafter.state_dict().items()}
    save_file(weights, whole, metadata={"shape": json.dumps(asdict(drafter.shape))})
    recorder.checkpoint(path, step)


if __name__ == "__main__":
    sys.exit(main())
