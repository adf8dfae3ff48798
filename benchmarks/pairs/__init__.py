"""Labelled pairs of runs, for the suspects to be held against: what changed is known, because it was put there."""
