"""The processes of the soak test: engines, serving processes and Redis, each of which can be killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import httpx
from attack_paths import SCRIPTS
from redis_for_bench import OwnRedis

STARTING_S = 60.0
ENDING_S = 60.0


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Outages:
    """When something was away, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.known: list[tuple[float, float]] = []

    def begin(self) -> None:
        """It goes away now."""
        self.known.append((time.monotonic(), float("inf")))

    def end(self) -> None:
        """It is back."""
        self.known[-1] = (self.known[-1][0], time.monotonic())


class Engine:
    """A server of models on a port of its own, which writes down every call.

    Attributes:
        away: when it was killed or stalled.
    """

    def __init__(self, name: str, folder: Path, latency_s: float) -> None:
        self.name, self.record, self.away = name, folder / f"{name}.jsonl", Outages()
        self.url, self._port = "", free_port()
        self._latency_s = latency_s
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = [sys.executable, str(SCRIPTS / "local_openai.py"), "--latency-s", str(self._latency_s)]
        command += ["--port", str(self._port), "--record", str(self.record)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise SystemExit(f"engine {self.name} did not start")

    def kill(self) -> None:
        """End it as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def stall(self) -> None:
        """It keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)


class Redis(OwnRedis):
    """A Redis that may come back with what it had.

    Attributes:
        away: when it was killed.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.away = Outages()
        self._dump = folder / "dump.rdb"

    def save(self) -> None:
        """Write what it has to its file, which it reads when it starts."""
        import redis

        with suppress(redis.RedisError), redis.Redis.from_url(self.url) as client:
            client.save()

    def forget(self) -> None:
        """Let it start empty."""
        self._dump.unlink(missing_ok=True)


class Server:
    """One serving process at a time on a port: `deploy/service.py`. Thread-safe.

    Attributes:
        number: tells it from the other servers.
        is_open: whether it is to be given requests.
        under_way: requests that it was given.
        killed: each life that ended by a kill, with when.
        memory: samples (seconds, MiB) by life.
    """

    def __init__(self, number: int, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.number, self.port, self.is_open, self.under_way = number, free_port(), False, 0
        self.killed: dict[str, float] = {}
        self.memory: dict[str, list[tuple[float, float]]] = {}
        self._lives = -1
        self._command, self._environment, self._log = command, dict(os.environ) | dict(environment), log
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    @property
    def life(self) -> str:
        """The name of the process that serves now."""
        return f"{self.number}.{self._lives}"

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers; one that ends by itself is started again, as a service manager does."""
        self._lives += 1
        until = time.monotonic() + STARTING_S
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:
                with self._log.open("ab") as log:
                    command = [sys.executable, *self._command, "--port", str(self.port)]
                    self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
            if self.health() is not None:
                self.is_open = True
                return
            time.sleep(0.1)
        raise SystemExit(f"server {self.number} did not start: see {self._log}")

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.is_open = False
        if self._process is not None and self._process.poll() is None:
            self.killed[self.life] = time.monotonic()
            self._process.kill()
            self._process.wait()

    def end(self) -> bool:
        """End it in good order, after it was given no requests for a moment; whether it ended by itself."""
        self.is_open = False
        time.sleep(0.3)
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(ENDING_S) in (0, -signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self.kill()
            return False

    def hang_up(self) -> None:
        """Tell it to read its trie again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def health(self) -> dict[str, Any] | None:
        """What it says of itself; None if it does not answer."""
        try:
            return dict(httpx.get(f"{self.url}/health", timeout=5.0).json())
        except (httpx.HTTPError, ValueError):
            return None

    def sample_memory(self) -> None:
        """Note the resident memory now."""
        process = self._process
        if not self.is_open or process is None:
            return
        with suppress(OSError, StopIteration):
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
            self.memory.setdefault(self.life, []).append((time.monotonic(), kib / 1024))

    def take(self) -> None:
        """One more request is under way."""
        with self._lock:
            self.under_way += 1

    def give_back(self) -> None:
        """One fewer is."""
        with self._lock:
            self.under_way -= 1


def require_redis() -> None:
    """End with one line if there is no Redis to start."""
    if not shutil.which("redis-server"):
        raise SystemExit("no redis-server: install it (Debian: apt install redis-server)")
