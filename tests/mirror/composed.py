"""compose.yaml read and started without a container engine: its database from Debian's PostgreSQL, its server as it is.

What differs from the file is where a process listens and which folder it works in; command and variables are its own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.mirror.ui import free_port
from harness.pin import venvs

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "compose.yaml"
_VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?::(?P<how>[-?+])(?P<word>[^}]*))?\})")


class RefusedError(Exception):
    """What compose says instead of starting anything."""


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """``value`` with its variables filled in by compose's rules. Raises RefusedError for one that must be set."""
    if isinstance(value, dict):
        return {key: interpolated(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, variables) for item in value]
    return _VARIABLE.sub(lambda found: _filled(found, variables), value) if isinstance(value, str) else value


def _filled(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found[0] == "$$":
        return "$"
    given, word = variables.get(found["name"], ""), found["word"] or ""
    if found["how"] == "+":
        return word if given else ""
    if found["how"] == "?" and not given:
        raise RefusedError(f"{found['name']}: {word}")
    return given or (word if found["how"] == "-" else "")


def services(variables: Mapping[str, str]) -> dict[str, Any]:
    """The services of compose.yaml as they start with ``variables``."""
    found: dict[str, Any] = interpolated(yaml.safe_load(FILE.read_text(encoding="utf-8")), variables)["services"]
    return found


def postgres_programs() -> Path | None:
    """The folder with initdb and postgres: Debian keeps them out of PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    found_here = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return found_here[-1] if found_here else None


@dataclass
class Database:
    """A PostgreSQL of its own in a temporary folder, on a free port, with a password."""

    programs: Path
    folder: Path
    environment: Mapping[str, str]  # of the service in compose.yaml
    port: int = field(default_factory=lambda: free_port(0))

    def create(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.environment["POSTGRES_PASSWORD"])
        account = _unprivileged()
        for path in (self.folder, secret):
            if account:
                os.chown(path, account.pw_uid, account.pw_gid)
        user, data = self.environment["POSTGRES_USER"], self.folder / "data"
        self._run("initdb", "-D", data, "--auth=scram-sha-256", f"--username={user}", f"--pwfile={secret}")
        self.start()
        self._run("createdb", "--maintenance-db=postgres", self.environment["POSTGRES_DB"])

    def start(self) -> None:
        listen = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder}"
        self._run(
            "pg_ctl", "-D", self.folder / "data", "-l", self.folder / "log", "-w", "-t", "60", "-o", listen, "start"
        )

    def lose_power(self) -> None:
        """No shutdown: what was not committed is gone, and the next start recovers from the log."""
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")

    @property
    def variables(self) -> dict[str, str]:
        """How libpq finds it, in place of the service's name in compose's network."""
        return {"PGHOST": "127.0.0.1", "PGPORT": str(self.port)}

    def _run(self, program: str, *arguments: str | Path) -> None:
        account = _unprivileged()
        identity: dict[str, Any] = (
            {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
        )
        own = {"PGUSER": self.environment["POSTGRES_USER"], "PGPASSWORD": self.environment["POSTGRES_PASSWORD"]}
        with (self.folder / f"{program}.out").open("ab") as out:  # not a pipe: the server that it starts keeps it open
            code = subprocess.call(
                [self.programs / program, *arguments],
                cwd=self.folder,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", **own, **self.variables},
                stdout=out,
                stderr=out,
                **identity,
            )
        assert code == 0, (self.folder / f"{program}.out").read_text()


def _unprivileged() -> pwd.struct_passwd | None:
    """Who PostgreSQL is to run as: it refuses root. None where this process is somebody else already."""
    if os.geteuid():
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


@contextmanager
def database(environment: Mapping[str, str], programs: Path) -> Iterator[Database]:
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # pytest's own folders are closed to other users
        made = Database(programs, Path(folder), environment)
        try:
            made.create()
            yield made
        finally:
            if (made.folder / "data" / "postmaster.pid").exists():
                made.lose_power()


@dataclass
class Server:
    """The MLflow server of compose.yaml, in the locked environment that its image has too."""

    folder: Path  # in place of the volume
    database: Database
    variables: Mapping[str, str]  # of compose
    port: int = field(default_factory=lambda: free_port(0))
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def start(self) -> None:
        service = services(self.variables)["server"]
        programs = venvs.ensure("server").folder / "bin"
        place = {**self.database.variables, "MLFLOW_HOST": "127.0.0.1", "MLFLOW_PORT": str(self.port)}
        self.folder.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*service["entrypoint"], *service["command"]],
                cwd=self.folder,
                env={"PATH": f"{programs}:{os.defpath}", **service["environment"], **place},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def started(self) -> None:
        self.start()
        deadline = time.monotonic() + 180
        while self.get("/health") != 200:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    def get(self, path: str, **headers: str) -> int:
        """The status of an answer; 0 where nobody answers."""
        try:
            request = urllib.request.Request(f"{self.url}{path}", headers=headers)
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def healthy(self) -> bool:
        """What the health check of compose.yaml says."""
        python = venvs.ensure("server").python
        kind, program, *arguments = services(self.variables)["server"]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python3")
        here = [argument.replace("127.0.0.1:5000", f"127.0.0.1:{self.port}") for argument in arguments]
        return subprocess.run([python, *here], capture_output=True, check=False).returncode == 0

    def kill(self) -> None:
        """SIGKILL, and its workers with it: no request is finished, nothing is said."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
