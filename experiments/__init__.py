"""Choices and the thing under test: recipes, and the trainers that they run."""
