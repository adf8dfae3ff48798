"""Mending from the lock: staged beside, exchanged by renaming, rolled back where anything fails."""
