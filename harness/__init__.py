"""Pin the environment, run the trainer, explain the difference between two runs."""
