"""Runs that happened elsewhere: their logs, or what MLflow knows of them, made into run folders."""
