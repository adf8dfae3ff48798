"""Runs a module with an environment's own Python and, behind its packages, those of another environment:

    python tests/gpu/with_dev.py SITE_PACKAGES MODULE [ARGS]

So pytest, which is pure Python, tests an environment that stays as it was locked. The other's packages stand last:
PYTHONPATH would put its torch before the environment's own. pytest loads no plugin but the one that ends a hang.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path


def main(other: str, module: str) -> None:
    """Run ``module`` as ``python -m`` would, with the arguments that are left."""
    sys.path[0] = str(Path.cwd())  # as python -m has it
    sys.path.append(other)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if module == "pytest":
        sys.argv += ["-p", "pytest_timeout", "--timeout-method=thread"]
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
