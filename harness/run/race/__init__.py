"""Compiling from several threads, tried out in child processes."""
