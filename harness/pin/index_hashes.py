"""pip-compile with the hashes that the index's Simple pages carry: ``python -m harness.pin.index_hashes ARGS...``.

pip-tools asks PyPI's JSON API for hashes, and where a mirror has none it downloads every file of every platform
to hash it (torch alone: about 20 GB). Every link of a Simple page carries its SHA-256 already. Runs in the
``tools`` environment of the Python that the lock is for; arguments are pip-compile's own, with two more in front:
``--no-deps`` or ``--deps``, and a JSON file of official hashes (``environments.official_hashes``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from pip._internal.req import InstallRequirement
from piptools.exceptions import PipToolsError
from piptools.repositories import PyPIRepository
from piptools.scripts import compile as pip_compile

from harness.pin.locks import normalise


class SimplePageRepository(PyPIRepository):
    """pip-tools' own repository, with hashes from the links that pip has found.

    official      hashes for pins whose files the index here may not list, by "name==version"; they are the whole
                  truth for such a pin, since a local file is no witness of what others will download
    dependencies  False: each package is pinned as named, without what it asks for
    """

    official: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    dependencies: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.options.ignore_dependencies = not self.dependencies

    def _get_req_hashes(self, ireq: InstallRequirement) -> set[str]:
        pin = f"{normalise(ireq.name or '')}{ireq.specifier}"
        if pin in self.official:
            return set(self.official[pin].values())
        links = [candidate.link for candidate in self._get_matching_candidates(ireq)]
        bare = sorted(link.filename for link in links if link.hash_name != "sha256")
        if bare:
            raise PipToolsError(f"{pin}: the index gives no SHA-256 for {', '.join(bare)}; add it to [hashes]")
        return {f"sha256:{link.hash}" for link in links}


def main(dependencies: str, official: str, *arguments: str) -> None:
    """Run pip-compile on ``arguments``; exits as it does."""
    SimplePageRepository.dependencies = dependencies == "--deps"
    SimplePageRepository.official = json.loads(Path(official).read_text(encoding="utf-8"))
    with mock.patch.object(pip_compile, "PyPIRepository", SimplePageRepository):
        pip_compile.cli(list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
