"""Where packages come from: pip's own settings, read with the standard library and told to uv.

uv reads none of pip's settings, and the bootstrap may have no pip to ask.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PYPI = "https://pypi.org/simple"


@dataclass(frozen=True)
class IndexSettings:
    """pip's settings for finding packages."""

    index: str = PYPI
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None


def _config_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """pip's configuration files, later ones overriding earlier ones."""
    own = environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return
    home = Path(environ.get("HOME") or Path.home())
    for folder in reversed(environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(sys.base_prefix) / "pip.conf"
    if own:
        yield Path(own)


def pip_settings(environ: Mapping[str, str] = os.environ) -> IndexSettings:
    """What pip would use to find packages: its files, then its variables, as pip ranks them."""
    values = dict[str, str]()
    for path in _config_files(environ):
        parser = configparser.RawConfigParser()
        parser.read(path, encoding="utf-8")
        for section in ("global", "install"):
            if parser.has_section(section):
                values.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    for key, value in environ.items():
        if key.startswith("PIP_") and value:
            values[key.removeprefix("PIP_").replace("_", "-").lower()] = value
    return IndexSettings(
        index=values.get("index-url", PYPI).strip().rstrip("/"),
        extra=tuple(values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        cert=values.get("cert"),
    )


def uv_variables(
    settings: IndexSettings, also: tuple[str, ...] = (), environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables that tell uv the same; one that the user has set stays. The indexes ``also`` are asked in any case.

    Like pip, uv is to ask every index and let the lock's hashes decide. Its own rule, the first index that knows the
    name, would stop at a mirror that holds one platform's file.
    """
    extra = tuple(environ["UV_INDEX"].split()) if "UV_INDEX" in environ else settings.extra
    told = {
        "UV_DEFAULT_INDEX": settings.index,
        "UV_FIND_LINKS": ",".join(settings.find_links),
        "UV_INSECURE_HOST": " ".join(settings.trusted_hosts),
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": settings.cert or "",
    }
    kept = {key: value for key, value in told.items() if value and key not in environ}
    return {**kept, "UV_INDEX": " ".join((*extra, *also))} if extra or also else kept
