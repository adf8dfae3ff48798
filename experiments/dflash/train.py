"""Train a DFlash drafter on one device, from start to end: ``python -m experiments.dflash.train``.

Target, data, evaluation, training, evaluation, drafter on disk. The settings come from the run that started this
process (``HARNESS_RUN``); without one, from the defaults, and nothing is kept.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from experiments.dflash.clock import PhaseClock, event_factory
from experiments.dflash.compiling import CompileWatch, choose_backend
from experiments.dflash.config import DFlashConfig
from experiments.dflash.data import Dataset, load_data
from experiments.dflash.evaluate import evaluate, evaluate_baselines
from experiments.dflash.model import DFlashDrafter
from experiments.dflash.optim import dump_batch
from experiments.dflash.step import Outcome, Prepared, Trainer, make_trainer, train_step
from experiments.dflash.targets import load_target
from harness.errors import HarnessError, UsageError
from harness.records import Value
from harness.run.events import Recorder, StepTimer

DUMPS = 3  # non-finite batches that are kept
GIVE_UP = 20  # skipped steps in a row after which nothing will come of the run


# --- the run, from start to end --------------------------------------------------------------------------


def main() -> int:
    """The child process. Exit code 0 where the run is good; a reason is in its Finished event otherwise."""
    recorder = Recorder.from_environment()
    try:
        reason = run(recorder.config(DFlashConfig), recorder)
    except HarnessError as error:
        recorder.finished(ok=False, reason=str(error))
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    recorder.finished(ok=not reason, reason=reason)
    return 1 if reason else 0


def run(config: DFlashConfig, recorder: Recorder) -> str:
    """A whole run. Returns why it failed, or "" where it did not."""
    device = choose_device(config.device)
    backend, uncompiled = choose_backend(config.compile, device)
    config = replace(config, compile=backend)
    if uncompiled:
        recorder.note(uncompiled, level="warning")
    set_up_torch(config, device)

    target = load_target(config, recorder)
    target.model.to(device)  # type: ignore[arg-type]  # transformers wraps it in an untyped decorator
    dataset = load_data(config, target, recorder)
    trainer = make_trainer(config, target, device)
    recorder.started(config.train.steps, facts(trainer, dataset))

    recorder.note("decoding with the untrained baselines")
    evaluate_baselines(target, config, recorder)
    recorder.note("decoding with the drafter before training")
    before = evaluate(trainer.drafter, target, config, recorder, "before")
    recorder.note("training: the first step also compiles" if backend != "none" else "training")
    given_up = train(trainer, dataset, recorder)
    if given_up:
        return given_up
    recorder.note("decoding with the trained drafter")
    after = evaluate(trainer.drafter, target, config, recorder, "after")
    save_drafter(trainer.drafter, recorder, config.train.steps)

    broken = [result.name for result in (before, after) if result.broken]
    if broken:
        return f"decoding {' and '.join(broken)} training did not give the target's own text; the notes say where"
    return ""


# --- set-up ----------------------------------------------------------------------------------------------


def choose_device(wanted: str) -> torch.device:
    """The device that ``wanted`` names. Raises UsageError where it is not there."""
    if wanted == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise UsageError(f"device={wanted} is no device: write auto, cpu or cuda:0") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"device={wanted} is not here: torch sees {torch.cuda.device_count()} GPUs; use device=cpu")
    return device


def set_up_torch(config: DFlashConfig, device: torch.device) -> None:
    """Threads, and the same bits from the same seed where the device can."""
    torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(device.type == "cpu")


def facts(trainer: Trainer, dataset: Dataset) -> dict[str, Value]:
    """What only the child knows about what it computes, and how."""
    return {
        "workload.data.digest": dataset.digest,
        "workload.data.sequences": dataset.sequences,
        "workload.target.digest": trainer.target.digest,
        "workload.target.parameters": trainer.target.parameters,
        "workload.model.parameters": sum(p.numel() for p in trainer.drafter.parameters()),
        "execution.attention.used": trainer.attention,
        "execution.compile.used": trainer.config.compile,
        "execution.device.used": str(trainer.device),
    }


# --- the loop --------------------------------------------------------------------------------------------


def train(trainer: Trainer, dataset: Dataset, recorder: Recorder) -> str:
    """All steps. Returns why the training was given up, or "" where it went to its end."""
    skipped = in_a_row = 0
    new_event = event_factory(trainer.device)
    with CompileWatch(recorder) as watch:
        for number in range(1, trainer.config.train.steps + 1):
            with recorder.step(number, "drafter", str(trainer.device)) as timer:
                watch.during(number, timer)
                clock = PhaseClock(timer, lambda: watch.seconds, new_event)
                prepared, outcome = train_step(trainer, dataset, number, clock)
                clock.resolve()
                in_a_row = in_a_row + 1 if outcome.skipped else 0
                skipped += bool(outcome.skipped)
                account(prepared, outcome, timer, skipped)
            if outcome.skipped:
                report_skip(prepared, outcome, recorder, number, skipped)
            if in_a_row == GIVE_UP:
                return f"{GIVE_UP} steps in a row were skipped, the last because {outcome.skipped}"
    return ""


def account(prepared: Prepared, outcome: Outcome, timer: StepTimer, skipped: int) -> None:
    """Count what the step consumed: nothing, where the weights did not move."""
    if not outcome.skipped:
        timer.count(prepared.batch.tokens, prepared.batch.padding)
    blocks = float(prepared.anchors.valid_BN.sum())
    starved = float((~prepared.anchors.valid_BN.any(dim=-1)).sum())  # rows without an anchor
    timer.metrics(blocks=blocks, starved=starved, skipped=skipped, **outcome.metrics)


def report_skip(prepared: Prepared, outcome: Outcome, recorder: Recorder, number: int, skipped: int) -> None:
    """Say that a step was skipped, and keep the first few batches that came out non-finite."""
    kept = ""
    if outcome.metrics and skipped <= DUMPS and recorder.folder is not None:
        path = dump_batch(recorder.folder / "artifacts", number, prepared.tensors())
        kept = f"; its batch is in artifacts/{path.name}"
    recorder.note(f"step {number} was skipped: {outcome.skipped}{kept}", level="warning")


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
