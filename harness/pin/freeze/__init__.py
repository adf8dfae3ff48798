"""Freeze: a working Python, as it is, made into an environment of ours. It reads and copies, and changes nothing."""
