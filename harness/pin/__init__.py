"""Pin: locks, environments, fingerprints and compile caches. Imports ``harness.records`` and nothing of run or explain."""
