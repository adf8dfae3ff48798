"""Run: a child process in a locked environment, its run folder, and the mirror of it in MLflow."""
