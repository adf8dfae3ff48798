"""A file on a web server, read where it is needed: a wheel's table of contents and its RECORD, not its gigabytes."""

from __future__ import annotations

import io
import re
from http import HTTPStatus
from typing import NamedTuple

from harness.pin.indexes import IndexSettings, host, opened

_STEP = 1 << 16  # bytes asked for at once, at least; the first answer holds most wheels' whole table of contents
WHOLE_LIMIT = 64 << 20  # a file up to this size is fetched whole from a server that knows no ranges


class _Piece(NamedTuple):
    start: int
    data: bytes


class RangeFile(io.RawIOBase):
    """A seekable file at ``url``. Raises OSError where the server fails, or sends no part of a large file alone."""

    def __init__(self, url: str, settings: IndexSettings) -> None:
        super().__init__()
        self._url, self._settings = url, settings
        self._position = 0
        self._pieces = [self._end()]
        self._size = self._pieces[0].start + len(self._pieces[0].data)

    def _end(self) -> _Piece:
        """The last bytes, or the whole file where the server only has that."""
        with opened(self._url, self._settings, {"Range": f"bytes=-{_STEP}", "Accept-Encoding": "identity"}) as answer:
            if answer.status == HTTPStatus.PARTIAL_CONTENT:
                return _Piece(_start_of(answer.headers.get("Content-Range", "")), answer.read())
            size = answer.headers.get("Content-Length", "")
            if not size.isdecimal() or int(size) > WHOLE_LIMIT:
                raise OSError(f"{host(self._url)} sends no part of a file alone")
            return _Piece(0, answer.read())

    def _fetch(self, start: int, size: int) -> _Piece:
        last = min(start + max(size, _STEP), self._size) - 1
        with opened(self._url, self._settings, {"Range": f"bytes={start}-{last}"}) as answer:
            if answer.status != HTTPStatus.PARTIAL_CONTENT or _start_of(answer.headers["Content-Range"]) != start:
                raise OSError(f"{host(self._url)} sent another part of the file than was asked for")
            return _Piece(start, answer.read())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        start, end = self._position, self._position + wanted
        for piece in self._pieces:
            if piece.start <= start and end <= piece.start + len(piece.data):
                break
        else:
            piece = self._fetch(start, wanted)
            self._pieces.append(piece)
        data = piece.data[start - piece.start : end - piece.start]
        self._position += len(data)
        return data


def _start_of(content_range: str) -> int:
    match = re.fullmatch(r"bytes (\d+)-\d+/\d+", content_range)
    if match is None:
        raise OSError(f"a server answered with the range {content_range!r}")
    return int(match[1])
