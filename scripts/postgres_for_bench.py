"""A PostgreSQL for benchmarks and tests: a given one, or one of our own from the installed programs."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg


def programs() -> Path | None:
    """The folder of ``initdb``, which Debian keeps out of the path; None if PostgreSQL is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class PostgresServer:
    """A server of our own, which can be killed and started again. It does not run as root: there it is the user postgres."""

    def __init__(self, folder: Path, programs: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.folder, self._programs = folder, programs
        self.process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._as: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL}
        if os.geteuid() == 0:
            entry = pwd.getpwnam("postgres")
            self._as |= {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        initdb = [
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "postgres",
            "-A",
            "trust",
            "-N",
            "--no-locale",
            "-E",
            "UTF8",
        ]
        subprocess.run(initdb, check=True, **self._as)

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [self._programs / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-k", "", "-h", "127.0.0.1"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **self._as)
        until = time.monotonic() + 30
        while True:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=3).close()
                return
            if time.monotonic() > until or self.process.poll() is not None:
                raise SystemExit("PostgreSQL does not answer")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it at once, with its children: open connections are cut."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()


@contextmanager
def own_postgres() -> Iterator[PostgresServer]:
    """A running server on loopback, which ends with the block.

    Raises:
        SystemExit: PostgreSQL is not installed.
    """
    if (found := programs()) is None:
        raise SystemExit("no PostgreSQL: give --postgres, or install it (Debian: apt install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="vinelm-postgres-"))  # which its user can reach
    server = PostgresServer(folder, found)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres_at(url: str | None) -> Iterator[str]:
    """The address of a server: the given one, or a new one on loopback that ends with the block."""
    if url is not None:
        yield url
        return
    with own_postgres() as server:
        yield server.url


@contextmanager
def empty_schema(url: str) -> Iterator[str]:
    """The address of an empty schema, which is removed afterwards."""
    name = f"vinelm{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    try:
        yield f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}')}"
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {name} CASCADE")
