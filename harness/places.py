"""Where things live on disk. Standard library only: the child process imports it too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """The folders that the harness reads and writes.

    root    the checkout: ``envs/``, ``harness/``, ``experiments/``
    state   what can be made again: environments, compile caches, models, the MLflow store
    runs    the run folders: the truth, and the only thing here worth a backup
    """

    root: Path
    state: Path
    runs: Path

    @property
    def envs(self) -> Path:
        """Built environments, one folder a (name, lock digest, Python)."""
        return self.state / "envs"

    @property
    def caches(self) -> Path:
        """Compile caches, one root a (lock digest, device, CUDA). Never deleted by the harness."""
        return self.state / "caches"

    @property
    def models(self) -> Path:
        """Pre-trained small targets and on-policy text, by digest."""
        return self.state / "models"

    @property
    def mlflow(self) -> Path:
        """The embedded MLflow store: ``mlflow.db`` and its artifacts."""
        return self.state / "mlflow"


def places() -> Places:
    """This checkout's places; ``HARNESS_STATE`` and ``HARNESS_RUNS`` move the two that grow."""
    root = Path(__file__).resolve().parents[1]
    state = Path(os.environ.get("HARNESS_STATE") or root / ".harness").absolute()
    runs = Path(os.environ.get("HARNESS_RUNS") or root / "runs").absolute()
    return Places(root=root, state=state, runs=runs)
