"""The pinned image: the same locks, built into a container image; what it is called, and the proof that it works."""
