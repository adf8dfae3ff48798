"""Errors that a person reads.

    HarnessError            exit 1: something went wrong; the message says what, where and how to mend it
    ├── UsageError          exit 2: the request is wrong; nothing was started
    ├── EnvironmentFault    exit 1: an environment could not be built, or is not what its lock says
    ├── WorkerError         exit 1: one of the workers of a training died, or waited too long for another
    └── RecordError         exit 1: a run folder cannot be read
        └── NewerRecord     a later version wrote it: no part of it may be guessed at

Only ``harness.cli`` turns one into a line on the terminal and an exit code.
"""

from __future__ import annotations

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


class HarnessError(Exception):
    """What went wrong, where, and the command that mends it, in one line."""

    exit_code = 1


class UsageError(HarnessError):
    """The request itself is wrong; nothing was started and nothing was lost."""

    exit_code = 2


class EnvironmentFault(HarnessError):
    """An environment could not be built, or is not what its lock says."""


class WorkerError(HarnessError):
    """One of the workers of a training died, or waited too long for another: the message names it."""


class RecordError(HarnessError):
    """A run folder is missing, half-written or from a newer version."""


class NewerRecord(RecordError):
    """A file of a run folder has a schema that only a later version knows."""
