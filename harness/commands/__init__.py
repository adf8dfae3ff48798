"""The commands of ``harness``, by what they are about. ``harness.cli`` loads the file of the one that is asked for."""
