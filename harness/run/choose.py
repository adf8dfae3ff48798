"""Which recipe a request means that names none."""

from __future__ import annotations

from harness.errors import UsageError
from harness.run.prepare import check_startable
from harness.run.resolve import default_recipe, recipes


def choose_recipe() -> tuple[str, str]:
    """The recipe for a request that names none, and why: one made for this machine's GPUs, or else the small one."""
    refused = []
    for name, recipe in recipes().items():
        spec = recipe()
        if spec.needs_gpus:
            try:
                check_startable(spec)
            except UsageError as error:
                refused.append(str(error).partition(";")[0])
            else:
                return name, f"its {spec.needs_gpus} {spec.needs_gpu_name} GPUs are here"
    return default_recipe(), "; ".join(refused)
