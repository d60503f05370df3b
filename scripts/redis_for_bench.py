"""A Redis for benchmarks and tests: a given one, or one of our own from the installed program."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class OwnRedis:
    """A server on a free port of this machine that keeps nothing on disk; it can be killed and started again, empty."""

    def __init__(self, folder: str | Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen([*command, "--dir", str(self._folder)], stdout=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextmanager
def own_redis() -> Iterator[OwnRedis]:
    """A running server of our own; it ends with the block."""
    if not shutil.which("redis-server"):
        raise SystemExit("no redis-server: install it (Debian: apt install redis-server), or pass --redis URL")
    with tempfile.TemporaryDirectory() as folder:
        server = OwnRedis(folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def redis_at(url: str | None) -> Iterator[str]:
    """The URL that was given, or that of a server of our own."""
    if url is not None:
        yield url
        return
    with own_redis() as server:
        yield server.url
