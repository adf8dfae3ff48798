"""What the Dockerfile promises without being built."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_hadolint_would_say_something(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian:latest\n")
    hadolint = Path(sys.executable).with_name("hadolint")
    assert subprocess.run([hadolint, tmp_path / "Dockerfile"], capture_output=True, check=False).returncode == 1


def test_the_base_is_pinned_by_its_digest() -> None:
    assert re.search(r"^ARG BASE_IMAGE=python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE)
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?", DOCKERFILE, re.MULTILINE)
    known = {name for _, name in stages}
    assert {base for base, _ in stages} - known == {"${BASE_IMAGE}"}  # and nothing else comes from a registry
    assert not re.search(r"^COPY --from=(?!(" + "|".join(known - {""}) + r")\b)", DOCKERFILE, re.MULTILINE)


def test_no_builder_is_made_to_ask_a_registry_for_a_syntax() -> None:
    assert "syntax=" not in DOCKERFILE


def test_nothing_is_installed_but_by_the_projects_own_code() -> None:
    """Which is what requires hashes and takes wheels only: ``harness.pin.venvs``."""
    assert not re.search(r"\b(pip|uv) (install|sync|download)", DOCKERFILE)
    from harness.pin.venvs import _SYNC_OPTIONS

    assert {"--require-hashes", "--no-build"} <= set(_SYNC_OPTIONS)
