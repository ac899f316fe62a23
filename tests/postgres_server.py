"""A PostgreSQL server of the tests' own: installed programs, a folder that goes away, a free port of 127.0.0.1."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

PASSWORD = "s3cr%t@x"
"""Such that an address has to write it in another way."""
PASSWORD_WRITTEN = "s3cr%25t%40x"
USER = "fjord"


def find_postgres() -> Path | None:
    """Return the folder of the newest server's programs, None if there is none."""
    found = [Path(at).parent for name in ("initdb",) if (at := shutil.which(name))]
    found += [each.parent for each in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(found, key=lambda folder: [part.zfill(4) for part in folder.parts], default=None)


@dataclass
class PostgresServer:
    """A running server, which tests may stop and start again."""

    programs: Path
    folder: Path
    port: int
    databases: int = field(default=0)

    def url(self, database: str = "postgres", *, password: str | None = PASSWORD_WRITTEN) -> str:
        secret = "" if password is None else f":{password}"
        return f"postgresql://{USER}{secret}@127.0.0.1:{self.port}/{database}"

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run statements, each in its own transaction; return the rows of the last."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """Make a database that no other test uses; return its name."""
        self.databases += 1
        name = f"test_{self.databases}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    @property
    def stopped(self) -> bool:
        file = self.folder / "postmaster.pid"
        return not file.exists() or not psutil.pid_exists(int(file.read_text().split()[0]))

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k '' -c fsync=off -c max_connections=20"
        self._run("pg_ctl", "-D", self.folder, "-w", "-t", "60", "-o", options, "-l", self.folder / "log", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.folder, "-w", "-m", "immediate", "stop")

    def kill(self) -> None:
        """End the server and all its processes at once, as a power failure would."""
        leader = psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))
        doomed = [leader, *leader.children(recursive=True)]
        leader.suspend()  # else it would notice that children die, and start others
        for process in [*doomed[1:], leader]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(doomed, timeout=20)

    def _run(self, program: str, *arguments: object) -> None:
        # The server refuses to run as root.
        other = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        subprocess.run(
            [self.programs / program, *map(str, arguments)],
            check=True, timeout=90, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **other,
        )  # fmt: skip


@contextlib.contextmanager
def running_postgres(programs: Path) -> Iterator[PostgresServer]:
    """Run a server; everything of it is gone afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="fjord-postgres-"))
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if os.getuid() == 0:
        for each in (folder, secret):
            shutil.chown(each, "postgres", "postgres")
    server = PostgresServer(programs, folder / "data", port)
    try:
        server._run(
            "initdb", "-D", server.folder, "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8",
            "--no-sync", "--locale=C",
        )  # fmt: skip
        server.start()
        yield server
    finally:
        if not server.stopped:
            server.stop()
        for _ in range(20):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.1)
