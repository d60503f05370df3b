"""Serves for minutes while everything around breaks, and counts what was lost.

    python tests/attacks/soak.py --minutes 10

Four serving processes (`deploy/service.py`) with a real Redis answer steady requests over the real client from engines on
loopback. A seed decides what breaks when: Redis restarts, empty or not; an engine dies or stalls; the trie is replaced, or
damaged; clocks step; a serving process is killed or restarted. At the end the rows of served requests, dollars, calls a minute
and failed requests are compared with what the engines and the callers saw. Exits with 1 if anything is lost, counted twice, or
above its limit.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from attack_paths import SCRIPTS, SHARED
from openai import OpenAI
from soak_parts import app, bookkeeping
from soak_parts.callers import Callers, bare_failures
from soak_parts.events import Events
from soak_parts.faults import schedule
from soak_parts.processes import Engine, Redis, Server, require_redis
from soak_parts.stepped_clock import SteppedClock
from studies import Options, named, study

from vinelm.catalog import Catalog
from vinelm.traces import ObservationStore
from vinelm.vinefile import save_trie

ENGINES = ("east", "west-a", "west-b")
AMPLE, TIGHT = "acme", "trial"
CAPS_USD = {AMPLE: 1000.0, TIGHT: 3.0}
TENANTS = {"": 0.6, AMPLE: 0.25, TIGHT: 0.15}
LATENCY_S = 0.05
AFTER_REDIS_S = 5.0
"""So long after Redis is back a tenant with dollars left may be refused: processes ask for it once a second."""
WARM_S, LEAST_S = 60.0, 60.0
"""Memory is judged after so many seconds of a process, over at least so many."""
MIB_PER_MINUTE = 1.0


class Soak:
    """One run.

    Args:
        folder: for everything that the processes write.
        options: of the command line.
    """

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder, self.options = folder, options
        self.clocks = [SteppedClock(folder / f"clock-{number}") for number in range(options.servers)]
        self.engines = {name: Engine(name, folder, LATENCY_S) for name in ENGINES}
        self.redis = Redis(folder)
        self.trie, self.store = folder / "soak.vine", folder / "served.db"
        for engine in self.engines.values():
            engine.start()
        self.models = folder / "models.toml"
        urls = {name: engine.url for name, engine in self.engines.items()}
        self.models.write_text(app.catalog_toml(urls, options.limit), encoding="utf-8")
        self.catalog = Catalog.from_file(self.models)
        save_trie(self.trie, app.annotated(self.catalog, 0))
        self.tokens = folder / "tokens.toml"
        lines = [f'{tenant or bookkeeping.UNCAPPED} = "{bookkeeping.token(tenant)}"' for tenant in TENANTS]
        self.tokens.write_text("\n".join(lines), encoding="utf-8")
        self.servers = [self._server(number) for number in range(options.servers)]

    def _server(self, number: int) -> Server:
        command = [str(SCRIPTS.parent / "deploy" / "service.py"), "soak_parts.app:workflow"]
        command += ["--models", str(self.models), "--trie", str(self.trie), "--evidence", str(self.store)]
        command += ["--fleet", self.redis.url, "--journal", str(self.folder / "fleet.sqlite"), "--max-cost-usd", "1"]
        command += [word for tenant, usd in CAPS_USD.items() for word in ("--daily-usd", f"{tenant}={usd}")]
        command += ["--tokens", str(self.tokens)]
        command += ["--watch-s", "2" if number % 2 else "100000"]  # the others are told by SIGHUP
        environment = {**self.clocks[number].environment, "PYTHONPATH": SHARED, "OPENBLAS_NUM_THREADS": "1"}
        return Server(number, command, environment, self.folder / f"server-{number}.log")

    def run(self) -> dict[str, Any]:
        """Start everything, break it, and return what was found."""
        faults = schedule(60.0 * self.options.minutes, self.options.seed)
        client = OpenAI(base_url=self.engines["east"].url, api_key="none", timeout=30.0)
        callers = Callers(self.servers, app.bare(client), TENANTS, self.options.think_s, self.options.seed)
        events = Events(self, faults)
        try:
            self.redis.start()
            for server in self.servers:
                server.start()
            callers.start(self.options.callers)
            events.run(60.0 * self.options.minutes)
            callers.stop()
            orderly = [server.end() for server in self.servers[::2]]
            self.redis.kill()  # without it the others end in good order, too
            orderly += [server.end() for server in self.servers[1::2]]
        finally:
            for server in self.servers:
                server.kill()
            for engine in self.engines.values():
                engine.kill()
            self.redis.kill()
        return self.found(callers, events) | {"faults": events.happened, "orderly_ends": sum(orderly)}

    def found(self, callers: Callers, events: Events) -> dict[str, Any]:
        """Everything that was counted."""
        asked = callers.asked
        usd = {name: app.cost_usd(name) for name in app.PRICES}
        calls = [call for name, engine in self.engines.items() for call in bookkeeping.read_calls(name, engine.record)]
        killed = {life: at for server in self.servers for life, at in server.killed.items()}
        outages = {name: engine.away.known for name, engine in self.engines.items()}
        with ObservationStore.open(self.store) as store:
            rows = bookkeeping.audit_rows(asked, store.observations(), calls, usd, killed=killed, outages=outages)
        outcomes = {what: sum(one.outcome == what for one in asked) for what in ("ok", "refused", "died", "failed")}
        times = sorted(one.ended_s - one.began_s for one in asked if one.outcome == "ok")
        return {
            "minutes": self.options.minutes,
            "requests": len(asked),
            **{f"requests_{what}": count for what, count in outcomes.items()},
            "seconds": {"median": times[len(times) // 2], "worst": times[-1]} if times else None,
            "calls": sum(not call.is_answer for call in calls if not call.is_bare),
            "bare_requests": len(callers.bare_runs),
            "bare_failures": bare_failures(callers.bare_runs, outages[ENGINES[0]]),
            "unserved": bookkeeping.unserved(asked, outages[ENGINES[0]]),
            "refused_wrongly": bookkeeping.refused_wrongly(asked, AMPLE, self.redis.away.known, AFTER_REDIS_S),
            "refused_by_clock": sum(one.outcome == "refused" and bookkeeping.BY_CLOCK in one.detail for one in asked),
            "rows": rows.rows,
            "rows_expected": rows.expected,
            "rows_lost": rows.lost,
            "rows_double": rows.double,
            "rows_wrong_usd": rows.wrong_usd,
            "rows_unwritten_at_kill": rows.forgiven,
            "spent_usd": bookkeeping.spent_by_tenant(calls, usd),
            "caps_usd": CAPS_USD,
            "most_calls_in_a_minute": bookkeeping.most_in_a_minute(calls),
            "limit": self.options.limit,
            "trie_missed": events.missed,
            "clock": self.clocks[0].how,
            "memory": self._memory(),
        }

    def _memory(self) -> dict[str, dict[str, float | None]]:
        """MiB of each life of a process at its end, and the slope after warming up."""
        return {
            life: {
                "mib": samples[-1][1],
                "mib_per_minute": bookkeeping.slope_mib_per_minute(samples, warm_s=WARM_S, least_s=LEAST_S),
            }
            for server in self.servers
            for life, samples in server.memory.items()
        }


def breaches(found: dict[str, Any]) -> list[str]:
    """One line for each promise that was broken."""
    told = []
    for name in ("unserved", "refused_wrongly", "rows_lost", "rows_double", "rows_wrong_usd", "trie_missed"):
        if found[name]:
            told.append(f"{name}: {len(found[name])}, such as {found[name][0]}")
    if found["refused_by_clock"] and not found["faults"]["clock"]:
        told.append(f"{found['refused_by_clock']} requests were refused by a clock that nobody set")
    if found["bare_failures"]:
        told.append(f"{found['bare_failures']} bare requests failed with their engine there: the machine is too busy")
    for tenant, usd in found["caps_usd"].items():
        if (spent := found["spent_usd"].get(tenant, 0.0)) > usd + 1e-9:
            told.append(f"tenant {tenant} spent ${spent:.4f} of ${usd:.4f}")
    for engine, most in found["most_calls_in_a_minute"].items():
        if most > found["limit"]:
            told.append(f"engine {engine} got {most} calls in a minute, limit {found['limit']}")
    for life, one in found["memory"].items():
        if (slope := one["mib_per_minute"]) is not None and slope > MIB_PER_MINUTE:
            told.append(f"process {life} grows by {slope:.2f} MiB a minute, allowed {MIB_PER_MINUTE}")
    if not found["requests_ok"]:
        told.append("no request was served")
    return told


def main() -> int:
    """Print what was found; 1 if something was lost, counted twice, or above its limit."""
    options = {
        "--minutes": (10.0, ""),
        "--servers": (4, ""),
        "--callers": (16, ""),
        "--think-s": (2.0, "mean seconds of a caller between two requests"),
        "--limit": (400, "calls a minute of each engine"),
        "--seed": (0, ""),
        "--keep": (Path, "folder for logs and stores; by default a temporary one", {"dest": "folder"}),
    }
    return study(__doc__, options, measured, named, fails=lambda found: found["breaches"])


def measured(options: Options) -> dict[str, Any]:
    require_redis()
    warnings.simplefilter("ignore")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        if options.folder:
            options.folder.mkdir(parents=True, exist_ok=True)
        found = Soak(options.folder or Path(temporary), options).run()
    return {**found, "breaches": breaches(found), "took_s": time.monotonic() - began_s}


if __name__ == "__main__":
    sys.exit(main())
