"""Where packages come from: pip's own settings, read with the standard library and told to uv.

uv reads none of pip's settings, and the bootstrap may have no pip to ask.
"""

from __future__ import annotations

import base64
import configparser
import functools
import os
import ssl
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from http.client import HTTPResponse
from pathlib import Path

from harness.errors import UsageError

PYPI = "https://pypi.org/simple"


@dataclass(frozen=True)
class IndexSettings:
    """pip's settings for finding packages."""

    index: str = PYPI
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    no_index: bool = False  # look in find_links alone

    @property
    def indexes(self) -> tuple[str, ...]:
        """The indexes that may be asked, the main one first; none where pip is told to ask none."""
        return () if self.no_index else (self.index, *self.extra)


def _config_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """pip's configuration files, later ones overriding earlier ones."""
    own = environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return
    home = Path(environ.get("HOME") or Path.home())
    for folder in reversed(environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    if not (own and Path(own).exists()):
        yield home / ".pip" / "pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(sys.base_prefix) / "pip.conf"
    if own:
        yield Path(own)


def pip_settings(environ: Mapping[str, str] = os.environ) -> IndexSettings:
    """What pip would use to find packages: its files, then its variables, as pip ranks them.

    Raises UsageError for a ``no-index`` that is neither yes nor no, as pip itself fails on it.
    """
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
        extra=tuple(url.rstrip("/") for url in values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        cert=values.get("cert"),
        no_index=_is_true(values.get("no-index", ""), "PIP_NO_INDEX or no-index in pip.conf"),
    )


def _is_true(value: str, name: str) -> bool:
    """A yes or no as pip and uv spell it; no for nothing."""
    if value.lower() in ("y", "yes", "t", "true", "on", "1"):
        return True
    if value.lower() in ("", "n", "no", "f", "false", "off", "0"):
        return False
    raise UsageError(f"{name} is {value!r}, which is neither yes nor no: set 1 or 0")


class _Links(HTMLParser):
    """Collects where the links of a page lead."""

    def __init__(self) -> None:
        super().__init__()
        self.found = list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a" and (address := dict(attrs).get("href")):
            self.found.append(address)


def page_links(page: str, url: str) -> list[str]:
    """The addresses of the files that an index's page at ``url`` lists."""
    links = _Links()
    links.feed(page)
    return [urllib.parse.urljoin(url, address) for address in links.found]


@contextmanager
def opened(url: str, settings: IndexSettings, headers: Mapping[str, str] = {}) -> Iterator[HTTPResponse]:
    """What the address answers, by ``settings``' certificates. Raises OSError (HTTPError for a code) where it fails.

    A name and password in the address are sent as a header, which urllib leaves to its caller.
    """
    parts = urllib.parse.urlsplit(url)
    headers = dict(headers)
    if parts.username:
        secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
        url = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    trusted = parts.hostname in settings.trusted_hosts or parts.netloc in settings.trusted_hosts
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=60, context=_context(settings.cert, trusted)) as answer:
        yield answer


@functools.cache
def _context(cert: str | None, trusted: bool) -> ssl.SSLContext:
    """Kept: reading a bundle of certificates takes longer than most answers."""
    context = ssl.create_default_context(cafile=cert)
    if trusted:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def local_path(url: str) -> Path | None:
    """The path that a ``file:`` address or a plain path names; None for an address elsewhere."""
    parts = urllib.parse.urlsplit(url)
    return Path(urllib.parse.unquote(parts.path)) if parts.scheme in ("", "file") else None


def host(url: str) -> str:
    """Whose address it is, without what may be a password."""
    return urllib.parse.urlsplit(url).hostname or url


def _folders_of_local_index(index: str, names: Iterable[str]) -> set[str]:
    """The folders with the files that an index on this machine's disk lists for ``names``."""
    folders = set[str]()
    for name in names:
        page = (local_path(index) or Path()) / name / "index.html"
        if page.exists():
            links = page_links(page.read_text(encoding="utf-8"), f"{index}/{name}/")
            folders |= {str(path.resolve().parent) for link in links if (path := local_path(link))}
    return folders


def local_folders(settings: IndexSettings, names: Iterable[str]) -> list[Path]:
    """The folders on this machine's disk in which the settings look for files of ``names``."""
    indexes = [index for index in settings.indexes if local_path(index)]
    listed = {folder for index in indexes for folder in _folders_of_local_index(index, names)}
    return [*(path for link in settings.find_links if (path := local_path(link))), *map(Path, sorted(listed))]


def uv_variables(
    settings: IndexSettings,
    names: Iterable[str],
    pages: tuple[str, ...] = (),
    environ: Mapping[str, str] = os.environ,
    own: tuple[str, ...] = (),
) -> dict[str, str]:
    """The variables that tell uv where the packages ``names`` come from, with more ``pages`` of links to files.

    ``own`` are indexes that are asked before all others: with hashes on their pages, and wheels that are named like
    other places' and hold other bytes. uv knows no hash of a file in a folder, and would take any of that name.

    To pip all places are one heap of files, of which the lock's hashes choose. uv takes a version's files from one
    index alone, so that a mirror on disk with a single platform's file would hide the others: such a mirror is
    given as folders of files, which uv does add to an index's. What the user has told uv already stays.

    Where pip or uv is told to ask no index, ``own``, which are folders of this machine's, are all that is asked.
    """
    if settings.no_index or _is_true(environ.get("UV_NO_INDEX", ""), "UV_NO_INDEX"):
        return _without_index(settings, environ, own)
    on_disk = [index for index in settings.extra if local_path(index)]
    folders = [folder for index in on_disk for folder in sorted(_folders_of_local_index(index, names))]
    if "UV_FIND_LINKS" in environ:
        links = (environ["UV_FIND_LINKS"], *pages)
    else:
        links = (*settings.find_links, *folders, *pages)
    # The main index first, or one of the extra ones would hide its files; uv asks its default index last.
    indexes = (settings.index, *(index for index in settings.extra if index not in on_disk))
    if "UV_INDEX" in environ or "UV_DEFAULT_INDEX" in environ:
        indexes = tuple(environ.get("UV_INDEX", "").split())
    told = {
        "UV_INDEX": " ".join((*own, *indexes)),
        "UV_DEFAULT_INDEX": settings.index,
        "UV_INSECURE_HOST": " ".join(settings.trusted_hosts),
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": settings.cert or "",
    }
    kept = {key: value for key, value in told.items() if value and (key not in environ or key == "UV_INDEX")}
    return {**kept, "UV_FIND_LINKS": ",".join(dict.fromkeys(filter(None, links)))}


def _without_index(settings: IndexSettings, environ: Mapping[str, str], own: tuple[str, ...]) -> dict[str, str]:
    """``uv_variables`` with find-links and ``own`` alone, whatever else uv was told to ask."""
    links = (environ["UV_FIND_LINKS"],) if "UV_FIND_LINKS" in environ else settings.find_links
    told = {"UV_INSECURE_HOST": " ".join(settings.trusted_hosts), "SSL_CERT_FILE": settings.cert or ""}
    kept = {key: value for key, value in told.items() if value and key not in environ}
    kept["UV_FIND_LINKS"] = ",".join(dict.fromkeys(filter(None, links)))
    # Set even where they say nothing: uv asks an index that a variable names, whatever UV_NO_INDEX says.
    kept |= {"UV_INDEX": " ".join(own), "UV_DEFAULT_INDEX": "", "UV_INDEX_URL": "", "UV_EXTRA_INDEX_URL": ""}
    if not own:
        return {**kept, "UV_NO_INDEX": "1"}
    return {**kept, "UV_DEFAULT_INDEX": own[0], "UV_NO_INDEX": "0", "UV_INDEX_STRATEGY": "unsafe-best-match"}
