"""DFlash: a block-diffusion drafter for speculative decoding, trained against a frozen target (arXiv 2602.06036)."""

import os

# torch's CPU threads otherwise spin while they wait for each other: on a machine that is shared, a step of the tiny
# target then cost 0.83 CPU-seconds, and 0.11 with sleeping threads. Read once, when torch loads its OpenMP library.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
