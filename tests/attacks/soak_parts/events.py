"""Makes the faults of a schedule happen, and repairs them."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import TYPE_CHECKING

from soak_parts import app
from soak_parts.faults import KINDS, STEPS_S, Fault
from soak_parts.processes import Server
from vinelm.vinefile import save_trie

if TYPE_CHECKING:
    from soak import Soak

RELOADED_S = 15.0
"""A new trie serves everywhere within so many seconds."""
SERVICE_VERSION_S = 0.5
Act = Callable[[], None]


class Events:
    """Runs a schedule.

    Args:
        soak: the processes.
        faults: what happens when.

    Attributes:
        missed: serving processes that did not take a new trie, or did not end in good order.
        happened: how often each kind happened. A server that is not up cannot be killed.
    """

    def __init__(self, soak: Soak, faults: Sequence[Fault]) -> None:
        self.missed: list[str] = []
        self.happened = dict.fromkeys(KINDS, 0)
        self._soak, self._version = soak, 0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Act]] = []
        self._threads: list[Thread] = []
        for fault in faults:
            self._add(fault.at_s, lambda fault=fault: self._break(fault))  # type: ignore[misc]

    def run(self, seconds: float) -> None:
        """Let everything happen at its time; memory is sampled once a second."""
        start, next_sample = time.monotonic(), 0.0
        while (now_s := time.monotonic() - start) < seconds:
            while self._due and self._due[0][0] <= now_s:
                heapq.heappop(self._due)[2]()
            if now_s >= next_sample:
                next_sample += 1.0
                for server in self._soak.servers:
                    server.sample_memory()
            time.sleep(0.05)
        while self._due:  # what is broken is repaired
            heapq.heappop(self._due)[2]()
        for thread in self._threads:
            thread.join()

    def _add(self, at_s: float, act: Act) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), act))

    def _break(self, fault: Fault) -> None:
        if fault.kind.startswith("server") and not self._victim(fault).is_open:
            return
        self.happened[fault.kind] += 1
        repair = getattr(self, "_" + fault.kind.replace("-", "_"))(fault)
        if repair is not None:
            self._add(fault.at_s + fault.lasts_s, repair)

    def _aside(self, act: Act) -> None:
        """Do what takes its time in a thread."""
        thread = Thread(target=act, daemon=True)
        thread.start()
        self._threads.append(thread)

    # -- what breaks; each returns its repair -----------------------------------------------------------------------

    def _server_killed(self, fault: Fault) -> Act:
        """Only servers of even number, so that the others show the memory of a long life."""
        server = self._victim(fault)
        server.kill()
        return lambda: self._aside(lambda: self._start(server))

    def _server_rolled(self, fault: Fault) -> Act | None:
        server = self._victim(fault)
        server.is_open = False

        def roll() -> None:
            if not server.end():
                self.missed.append(f"server {server.number} did not end in good order")
            self._start(server)

        self._aside(roll)
        return None

    def _start(self, server: Server) -> None:
        """Start it; who replaced the trie meanwhile, when it was not up to be told, tells it now."""
        version = self._version
        server.start()
        if version != self._version:
            server.hang_up()

    def _victim(self, fault: Fault) -> Server:
        even = self._soak.servers[::2]
        up = [server for server in even if server.is_open] or even
        return up[fault.which % len(up)]

    def _engine_killed(self, fault: Fault) -> Act:
        engine = self._engine(fault)
        engine.away.begin()
        engine.kill()

        def repair() -> None:
            engine.start()
            engine.away.end()

        return repair

    def _engine_stalled(self, fault: Fault) -> Act:
        engine = self._engine(fault)
        engine.away.begin()
        engine.stall()

        def repair() -> None:
            engine.go_on()
            engine.away.end()

        return repair

    def _engine(self, fault: Fault):  # type: ignore[no-untyped-def]
        engines = list(self._soak.engines.values())
        return engines[fault.which % len(engines)]

    def _redis_empty(self, _fault: Fault) -> Act:
        self._soak.redis.forget()
        return self._redis_lost()

    def _redis_kept(self, _fault: Fault) -> Act:
        self._soak.redis.save()
        return self._redis_lost()

    def _redis_lost(self) -> Act:
        redis = self._soak.redis
        redis.away.begin()
        redis.kill()

        def repair() -> None:
            redis.start()
            redis.away.end()

        return repair

    def _trie(self, _fault: Fault) -> None:
        self._replace_trie()

    def _trie_damaged(self, _fault: Fault) -> Act:
        draft = self._soak.trie.with_suffix(".bad")
        draft.write_bytes(b"not a trie")
        draft.replace(self._soak.trie)
        self._tell_all()
        return self._replace_trie

    def _replace_trie(self) -> None:
        self._version += 1
        version = self._version
        trie = app.annotated(self._soak.catalog, version)
        draft = self._soak.trie.with_suffix(".new.vine")  # a damaged file is not replaced by VineLM: it may be anybody's
        draft.unlink(missing_ok=True)
        save_trie(draft, trie)
        draft.replace(self._soak.trie)
        self._tell_all()
        self._aside(lambda: self._follow(version, app.version_of(trie)))

    def _tell_all(self) -> None:
        for server in self._soak.servers:
            if server.is_open and not server.number % 2:
                server.hang_up()

    def _follow(self, version: int, name: str) -> None:
        """Wait until all open servers serve this version, or a later one is there."""
        until = time.monotonic() + RELOADED_S
        late: list[str] = []
        while time.monotonic() < until and self._version == version:
            told = {server.life: server.health() for server in self._soak.servers if server.is_open}
            late = [life for life, health in told.items() if health is None or health["trie"] != name]
            if not late:
                return
            time.sleep(SERVICE_VERSION_S)
        if self._version == version:
            self.missed += [f"{life} does not serve version {version}" for life in late]

    def _clock(self, fault: Fault) -> None:
        """The clock of one server is set; the others keep theirs."""
        clocks = self._soak.clocks
        clock = clocks[fault.which % len(clocks)]
        steps = [step for step in STEPS_S if step != clock.offset_s]
        clock.step(steps[fault.which // len(clocks) % len(steps)])
