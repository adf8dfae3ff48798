"""Mirror: what a run folder holds, kept level in MLflow by a process of its own. One way: from the folder to MLflow."""
