"""How a run failed, and what a good run beside it says."""
