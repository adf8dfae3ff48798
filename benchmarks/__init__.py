"""Benchmarks: ``python -m benchmarks.NAME`` prints figures and no verdict; a loaded machine fails no test."""
