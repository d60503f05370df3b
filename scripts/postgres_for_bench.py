"""A PostgreSQL for benchmarks: a given one, or one of our own from the installed programs."""

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


@contextmanager
def postgres_at(url: str | None) -> Iterator[str]:
    """The address of a server: the given one, or a new one on loopback that ends with the block.

    Raises:
        SystemExit: none is given and PostgreSQL is not installed.
    """
    if url is not None:
        yield url
        return
    folder = Path(tempfile.mkdtemp(prefix="vinelm-bench-postgres-"))
    server: subprocess.Popen[bytes] | None = None
    try:
        server, address = _started(folder)
        yield address
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)  # at once, with its children
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _started(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A server with its data in ``folder``; PostgreSQL refuses to run as root, where it is the user postgres."""
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        entry = pwd.getpwnam("postgres")
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    programs, data = _programs(), folder / "data"
    initdb = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-locale", "-E", "UTF8"]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [programs / "postgres", "-D", data, "-p", str(port), "-k", "", "-h", "127.0.0.1"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, cwd=folder, **quiet, **user)  # type: ignore[call-overload]
    address = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    until = time.monotonic() + 30
    while True:
        with suppress(psycopg.OperationalError):
            psycopg.connect(address, connect_timeout=3).close()
            return server, address
        if time.monotonic() > until:
            raise SystemExit("PostgreSQL does not answer")
        time.sleep(0.05)


def _programs() -> Path:
    """The folder of ``initdb``, which Debian keeps out of the path."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists():
            return folder
    raise SystemExit("no PostgreSQL: give --postgres, or install it (Debian: apt install postgresql)")


@contextmanager
def empty_schema(url: str) -> Iterator[str]:
    """The address of an empty schema of its own, which is removed afterwards."""
    name = f"bench{uuid.uuid4().hex[:10]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    try:
        yield f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}')}"
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {name} CASCADE")
