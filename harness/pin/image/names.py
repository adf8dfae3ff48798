"""What an image of this project is called, and the labels by which it says what it is. The Dockerfile writes them."""

from __future__ import annotations

from harness.records import Lock

REPOSITORY = "dflash-harness"

ENVIRONMENT = "dflash.environment"
LOCK = "dflash.lock"
REVISION = "org.opencontainers.image.revision"
CREATED = "org.opencontainers.image.created"
BASE = "org.opencontainers.image.base.name"

STAGE = "dflash.stage"
"""On a stage that buildah or podman build and do not keep, its revision; empty on an image."""

DIRTY = "-dirty"
"""Behind the revision of an image that was built with changes that were not committed."""

IN_EVERY_IMAGE = ("harness", "tools", "data")
"""The environments that every image has beside the one that it is named for."""


def tag(lock: Lock) -> str:
    """The name of the image with the environment of ``lock``: another lock gives another name."""
    return f"{REPOSITORY}:{lock.env}-{lock.digest[:12]}"
