"""The calls of all hosts at the run's rate limits: one thread for each attempt that waits or is under way."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

from vinelm.profiler.cluster.messages import Admitted, HostLink, Left, Waiting
from vinelm.profiler.isolation.rate_limit_proxy import AdmitsAttempts


class Admissions:
    """Lets the attempts of hosts pass the rate limits, and holds their places until they are over or their host is lost.

    Args:
        link: to the hosts.
        rate_limiters: the rate limits by model.
    """

    def __init__(self, link: HostLink, rate_limiters: Mapping[str, AdmitsAttempts]) -> None:
        self._link, self._rate_limiters = link, rate_limiters
        self._lock = threading.Lock()
        self._under_way: dict[tuple[int, int], HostAttempt] = {}

    def begin(self, host: int, attempt: Waiting) -> None:
        """Have an attempt wait for its rate limit, without blocking."""
        held = HostAttempt(host, attempt, self._rate_limiters[attempt.model], self._link)
        with self._lock:
            # Before it waits: its host may be lost meanwhile, and the place has to be found then.
            self._under_way[host, attempt.attempt] = held
        threading.Thread(target=held.pass_through, daemon=True, name="vinelm attempt").start()

    def end(self, host: int, left: Left) -> None:
        """Free an attempt's place."""
        with self._lock:
            # None where the host counted as lost before, and its places were freed with it.
            held = self._under_way.pop((host, left.attempt), None)
        if held is not None:
            held.leave(left.used)

    def lose(self, host: int) -> None:
        """Free the places of a lost host; what its attempts used is not known, so that they count at the most."""
        with self._lock:
            lost = [self._under_way.pop(key) for key in list(self._under_way) if key[0] == host]
        for held in lost:
            held.leave(None)


class HostAttempt:
    """One attempt of a host at the rate limit."""

    def __init__(self, host: int, attempt: Waiting, rate_limiter: AdmitsAttempts, link: HostLink) -> None:
        self._host, self._attempt, self._rate_limiter, self._link = host, attempt, rate_limiter, link
        self._is_over = threading.Event()
        self._used: int | None = None

    def pass_through(self) -> None:
        """Wait for the rate limit, tell the host, and keep the place until the attempt is over."""
        with suppress(ConnectionError), self._rate_limiter.admit(self._attempt.tokens, self._sleep) as permit:
            self._link.send(self._host, Admitted(self._attempt.attempt, getattr(permit, "replica", 0)))
            self._is_over.wait()
            if self._used is not None:
                permit.settle(self._used)

    def leave(self, used: int | None) -> None:
        """End the attempt, which used so many tokens."""
        self._used = used
        self._is_over.set()

    def _sleep(self, seconds: float) -> None:
        """Sleep that long; ``ConnectionError`` as soon as the attempt is over."""
        if self._is_over.wait(seconds):
            raise ConnectionError("the attempt was given up")
