"""A package index of a test's own: Simple pages, files with ranges or without, and a count of what was sent."""

from __future__ import annotations

import hashlib
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Index:
    """``folder`` holds the files. Each is listed under the name that it starts with."""

    folder: Path
    ranges: bool = True
    hashes: bool = True
    broken: bool = False  # answers 500
    address: str = ""
    sent: int = 0  # bytes of files
    asked: list[str] = field(default_factory=list)

    def page(self, name: str) -> str | None:
        files = [path for path in sorted(self.folder.iterdir()) if re.sub(r"[-_.]+", "-", path.name).startswith(name)]
        lines = []
        for path in files:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            end = f"#sha256={digest}" if self.hashes else ""
            lines.append(f'<a href="/files/{urllib.parse.quote(path.name)}{end}">{path.name}</a>')
        return "\n".join(lines) if lines else None


@contextmanager
def serving(index: Index) -> Iterator[Index]:
    """``index`` at an address, for as long as the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Stay silent."""

        def do_GET(self) -> None:
            index.asked.append(self.path)
            parts = urllib.parse.unquote(self.path).strip("/").split("/")
            file = index.folder / parts[-1]
            page = index.page(parts[-1]) if parts[0] == "simple" else None
            if index.broken:
                self._answer(500, b"")
            elif page is not None:
                self._answer(200, page.encode())
            elif parts[0] == "files" and file.is_file():
                self._file(file.read_bytes())
            else:
                self._answer(404, b"")

        def _file(self, content: bytes) -> None:
            asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if asked is None or not index.ranges:
                index.sent += len(content)
                self._answer(200, content)
                return
            start = int(asked[1]) if asked[1] else max(0, len(content) - int(asked[2]))
            part = content[start : int(asked[2]) + 1 if asked[1] else None]
            index.sent += len(part)
            self._answer(206, part, f"bytes {start}-{start + len(part) - 1}/{len(content)}")

        def _answer(self, code: int, content: bytes, content_range: str = "") -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Type", "text/html" if self.path.startswith("/simple/") else "application/zip")
            if content_range:
                self.send_header("Content-Range", content_range)
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        index.address = f"http://127.0.0.1:{server.server_port}/simple"
        try:
            yield index
        finally:
            server.shutdown()
            thread.join()
