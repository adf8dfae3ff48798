"""Slower or not, and the exact split of a difference over phases."""
