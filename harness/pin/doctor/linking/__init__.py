"""Libraries: what each needs, what the loader would find, and what a process has really loaded."""
