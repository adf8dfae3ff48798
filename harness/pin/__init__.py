"""Pin: locks, environments, fingerprints and compile caches. It imports the records, and nothing of run or explain."""
