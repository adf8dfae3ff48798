"""Where things live on disk. Standard library only: the child process imports it too."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """The folders that the harness reads and writes.

    root    the checkout: ``envs/``, ``harness/``, ``experiments/``
    state   what can be made again: environments, compile caches, models, the MLflow store
    runs    the run folders: the truth, and the only thing here worth a backup
    image   environments that are built already and stay as they are: an image's
    """

    root: Path
    state: Path
    runs: Path
    image: Path | None = None

    @property
    def envs(self) -> Path:
        """Where environments are built, one folder a (name, lock digest, Python)."""
        return self.state / "envs"

    def environment(self, folder: str) -> Path:
        """Where the environment with this folder's name is, or would be built."""
        ready = self.image / folder if self.image else None
        return ready if ready and ready.is_dir() else self.envs / folder

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


def program() -> str:
    """How a person who stands in the checkout starts the harness: "harness" where their PATH, or an image's, has it."""
    return "harness" if shutil.which("harness") else ".venv/bin/harness"


def places() -> Places:
    """This checkout's places; ``HARNESS_STATE`` and ``HARNESS_RUNS`` move the two that grow.

    ``HARNESS_ENVS`` names a folder of environments that are built already, as an image has them.
    """
    root = Path(__file__).resolve().parents[1]
    state = Path(os.environ.get("HARNESS_STATE") or root / ".harness").absolute()
    runs = Path(os.environ.get("HARNESS_RUNS") or root / "runs").absolute()
    image = os.environ.get("HARNESS_ENVS")
    return Places(root=root, state=state, runs=runs, image=Path(image).absolute() if image else None)
