"""The callers of the soak test: they send requests to the serving processes as a load balancer does, and keep a record."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any

import httpx

from soak_parts.bookkeeping import Asked, Interval, overlaps, question, token
from soak_parts.processes import Server

PATIENCE_S = 200.0
"""A request without an answer for so long has failed. Calls may have to wait a minute for a limit."""
BARE_EVERY = 6
"""One of so many requests is answered by the bare application, too."""
REFUSED = 429
SETTLES_S = 1.0
"""So long after a kill a caller of the killed process may still find out."""


class Callers:
    """Threads that ask and wait for the answer, one request after the other.

    Args:
        servers: whom to ask: the one with the fewest requests under way.
        bare: the bare application.
        tenants: name to its weight among the requests.
        think_s: mean seconds of a caller between two requests.

    Attributes:
        asked: every request.
        bare_runs: what the bare application did: begin, end, and whether it answered.
    """

    def __init__(
        self, servers: Sequence[Server], bare: Callable[[str], str], tenants: Mapping[str, float], think_s: float, seed: int
    ) -> None:
        self.asked: list[Asked] = []
        self.bare_runs: list[tuple[float, float, bool]] = []
        self._servers, self._bare, self._tenants, self._think_s, self._seed = servers, bare, tenants, think_s, seed
        self._lock, self._stop = Lock(), Event()
        self._threads: list[Thread] = []
        self._number = 0

    def start(self, count: int) -> None:
        """Let so many ask."""
        self._threads = [Thread(target=self._run, args=(self._seed + number,), daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask no more, and wait until what was asked is answered."""
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S + 30.0)

    def _run(self, seed: int) -> None:
        rng = random.Random(seed)
        with httpx.Client(timeout=PATIENCE_S, limits=httpx.Limits(max_keepalive_connections=0)) as client:
            while not self._stop.wait(rng.expovariate(1.0 / self._think_s)):
                tenant = rng.choices(list(self._tenants), list(self._tenants.values()))[0]
                with self._lock:
                    self._number += 1
                    number = self._number
                one = self._ask(client, f"r{number}", tenant)
                if one is None:
                    continue
                with self._lock:
                    self.asked.append(one)
                if one.outcome == "failed" or number % BARE_EVERY == 0:
                    self._ask_bare(one)

    def _ask(self, client: httpx.Client, name: str, tenant: str) -> Asked | None:
        """Ask an open server; None if there is none, or if it was gone before it could be asked."""
        with self._lock:
            server = min((one for one in self._servers if one.is_open), key=lambda one: one.under_way, default=None)
            if server is None:
                return None
            server.take()
        life, began_s = server.life, time.monotonic()
        body = {"id": name, "conversation": name, "data": {"question": question(name, tenant)}}
        try:
            told = client.post(f"{server.url}/ask", json=body, headers={"Authorization": f"Bearer {token(tenant)}"})
        except httpx.ConnectError:
            return None  # nothing was sent: the next attempt goes elsewhere
        except httpx.HTTPError as error:
            time.sleep(SETTLES_S)
            outcome = "died" if life in server.killed else "failed"
            return Asked(name, tenant, life, began_s, time.monotonic(), outcome, type(error).__name__)
        finally:
            server.give_back()
        who = {"id": name, "tenant": tenant, "server": life, "began_s": began_s, "ended_s": time.monotonic()}
        return answered(who, told.status_code, told.json())

    def _ask_bare(self, one: Asked) -> None:
        began_s, done = time.monotonic(), False
        with suppress(Exception):
            done = bool(self._bare(question(one.id, one.tenant, is_bare=True)))
        with self._lock:
            self.bare_runs.append((began_s, time.monotonic(), done))


def answered(who: Mapping[str, Any], status: int, told: Mapping[str, Any]) -> Asked:
    """What an HTTP answer says of a request."""
    if status == 200:
        return Asked(**who, outcome="ok", paths=tuple(tuple(path) for path in told["invocations"]))
    outcome = "refused" if status == REFUSED and who["tenant"] else "failed"
    return Asked(**who, outcome=outcome, detail=f"{status} {told.get('error')}")


def bare_failures(runs: Sequence[tuple[float, float, bool]], outages: Sequence[Interval]) -> int:
    """Bare runs that failed although their engine was there: then the soak test itself is at fault."""
    return sum(not done and not overlaps((began_s, ended_s), outages) for began_s, ended_s, done in runs)
