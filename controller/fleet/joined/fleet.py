"""One process's part in a fleet: its membership, its leases, and what it knows of other processes and their settings."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import blake2b

from vinelm.backends.limits.rate_limits import EngineRateLimiter
from vinelm.backends.limits.replica_gate import ReplicaGate
from vinelm.controller.fleet.config import FleetConfig
from vinelm.controller.fleet.joined.session_rows import SessionRows
from vinelm.controller.fleet.joined.shared_corrections import SharedCorrections
from vinelm.controller.fleet.leases.dollar_lease import DollarLease
from vinelm.controller.fleet.leases.journal import journal_at
from vinelm.controller.fleet.leases.rate_lease import RateLease
from vinelm.controller.fleet.live_invocations import LiveInvocations, session_number
from vinelm.controller.fleet.loop.standing_orders import StandingOrders
from vinelm.controller.fleet.member import Chore, FleetMember
from vinelm.controller.fleet.neighbours import FleetReader
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.controller.planner import Planner
from vinelm.errors import ConfigError, FleetUnreachable
from vinelm.money.spend_control import SpendControl
from vinelm.money.spend_guard import SpendGuard

KEPT_S = 86_400.0
ROUNDS = 200
"""After this many rounds this process publishes its settings again, since Redis may have forgotten them."""

ADVICE = "each goes by its own; give all processes of a fleet the same catalog, limits and caps"

Facts = Mapping[str, Mapping[str, object]]
"""A process's settings: names (of a model, of an engine's limits) to their fields. No addresses and no keys."""


class CatalogComparison(Chore):
    """Compares this process's settings with those of the fleet's other processes, in a background thread.

    Processes with different settings continue to serve, because settings differ while a new catalog is rolled out. The first
    time that other settings are seen, one warning names the first difference.

    Args:
        facts: this process's settings, as plain JSON types.
    """

    def __init__(self, member: FleetMember, facts: Facts) -> None:
        self._member = member
        self._text = json.dumps(facts, sort_keys=True, separators=(",", ":"), default=str)
        self._facts: Facts = json.loads(self._text)
        self.digest = blake2b(self._text.encode(), digest_size=8).hexdigest()
        self._known, self._rounds = {self.digest}, 0
        member.catalog = self.digest

    def do(self, link: RedisLink) -> None:
        """Publish this process's settings through ``link``, and warn if another process has published different settings.

        There is one warning for each different set of settings.
        """
        if self._rounds % ROUNDS == 0:
            link.set(f"catalog:{self.digest}", self._text.encode(), KEPT_S)
        self._rounds += 1
        for process, digest in self._member.catalogs().items():
            if digest and digest not in self._known:
                theirs = link.get(f"catalog:{digest}")
                if theirs is not None:
                    self._known.add(digest)
                    what = difference(self._facts, json.loads(theirs))
                    warnings.warn(f"this process and {process} of the fleet differ: {what}: {ADVICE}", stacklevel=2)

    def go_alone(self, link: RedisLink) -> None:
        """Arrange that this process's settings are published again in the next round in which Redis answers.

        ``link`` is not used.
        """
        self._rounds = 0


def difference(mine: Facts, theirs: Facts) -> str:
    """Return one line that describes the first difference between this process's settings and another process's."""
    for name in sorted({*mine, *theirs}):
        if name not in theirs:
            return f"{name} is only here"
        if name not in mine:
            return f"{name} is only there"
        for key in sorted({*mine[name], *theirs[name]}):
            here, there = mine[name].get(key), theirs[name].get(key)
            if here != there:
                return f"{name}: {key} is {_shown(here)} here and {_shown(there)} there"
    return "nothing that can be shown"


def _shown(value: object) -> str:
    return "not given" if value is None else str(value)


LEAST_PART = 0.001
"""The smallest part of a cap that orders can give a process when dollars are sliced."""


class Fleet:
    """This process's membership in a fleet. Thread-safe. It starts a daemon thread, which alone talks to Redis.

    After a fork, the child process joins the fleet as a separate process with its first request.

    Raises:
        ConfigError: the URL, the name or the journal is invalid; Redis may evict leases; or Redis is required and cannot be
            reached.
    """

    def __init__(self, config: FleetConfig) -> None:
        self.config = config
        self._limiters: dict[str, EngineRateLimiter] = {}
        self._gates: list[ReplicaGate] = []
        self._groups: dict[str, str] = {}
        self._facts: Facts = {}
        self._corrections = SharedCorrections()
        self._lock = threading.Lock()
        self._join()
        if self._member.is_alone:
            if config.required:
                self.stop()
                raise ConfigError(f"{self._member.problem}; or do not require it (required=False)")
            warnings.warn(f"{self._member.problem}; until then this process goes on alone", stacklevel=4)
        else:
            self._require_lasting_keys()

    @classmethod
    def of(cls, fleet: str | FleetConfig) -> Fleet:
        """Join a fleet and return it. ``fleet`` is the URL of its Redis, or the complete settings."""
        return cls(FleetConfig(url=fleet) if isinstance(fleet, str) else fleet)

    @property
    def process(self) -> str:
        """The name of this process in the fleet, made of the host, the process id and a random number."""
        return self._live.process

    @property
    def is_alone(self) -> bool:
        """True if Redis does not answer, so that this process serves without the fleet."""
        return self._member.is_alone

    @property
    def processes(self) -> int:
        """The number of live processes, including this one."""
        return self._member.processes

    @property
    def orders_version(self) -> int:
        """The version number of the fleet's orders (a policy's weights, priorities and pins) that this process follows; 0
        without orders.
        """
        return self._orders.version

    def others(self) -> Mapping[str, int]:
        """Return the number of live calls of the other processes on each engine, by the engine's name, as of the last round."""
        return self._member.others

    def reader(self) -> FleetReader:
        """Return an object that reads the live calls of all processes of the fleet, over a separate connection to Redis."""
        return FleetReader(RedisLink(self.config.url, self.config.name))

    def rows(self, planner: Planner, *, conversation: str, tenant: str, deadline_s: float | None) -> SessionRows:
        """Return the object through which a request reports its calls to the fleet.

        Args:
            planner: makes the request's plans.
            conversation: the id of the request's conversation; only a hash of this id leaves the process.
            tenant: the request's tenant; "" without one. Other processes see it.
            deadline_s: the maximum latency of the request in seconds; None without a bound.
        """
        self._rejoin_after_fork()
        return SessionRows(
            self._live,
            planner,
            session=session_number(conversation or secrets.token_hex(8), tenant),
            tenant=tenant,
            deadline_s=deadline_s,
            note=self._note,
            orders=self._orders,
        )

    def account(self, tenant: str) -> SpendGuard | None:
        """Return the guard that authorizes a tenant's calls; None if ``daily_usd`` does not cap this tenant."""
        self._rejoin_after_fork()
        return None if self._dollars is None else self._dollars.account(tenant)

    def share_limits(self, limiters: Mapping[str, EngineRateLimiter]) -> None:
        """Share these rate limits with the other processes from now on.

        Args:
            limiters: rate limiters by a name that is the same in all processes. Limiters without a per-minute limit are not
                shared.
        """
        with self._lock:
            new = {engine: limiter for engine, limiter in limiters.items() if engine not in self._limiters}
            self._limiters.update(new)
            self._lease(new.items())
        self._member.wake()

    def steer(self, gates: Iterable[ReplicaGate], groups: Mapping[str, str], facts: Facts) -> None:
        """Connect the queues and the settings of an application to the fleet. Idempotent.

        From now on, replicas are chosen by the fleet's orders, queues count the calls of other processes, and settings are
        compared.

        Args:
            gates: the queues in which calls of replica groups wait.
            groups: the replica group of each engine of the catalog; the engine's name if it has no group. Other processes see
                it.
            facts: this process's settings, which should be the same in all processes. Other processes see them.
        """
        with self._lock:
            self._groups.update(groups)
            self._gates.extend(gate for gate in gates if gate not in self._gates)
            self._facts = {**facts, "daily_usd": dict(self.config.daily_usd)}
            self._steer()

    def share_correction(self, control: SpendControl) -> None:
        """Share the budget correction of ``control`` with the other processes that serve the same objective.

        A budget correction multiplies the limit on the mean cost by a factor that follows real spending.
        """
        self._rejoin_after_fork()
        self._corrections.add(control)

    def stop(self) -> None:
        """Leave the fleet: give back leases and end the thread. Idempotent. The object must not be used afterwards."""
        if self._pid == os.getpid():
            self._at_end()

    def _require_lasting_keys(self) -> None:
        """Raise :class:`ConfigError` if this Redis may delete the fleet's leases when its memory is full."""
        link = RedisLink(self.config.url, self.config.name)
        try:
            policy = link.evicts_anything()
        except FleetUnreachable:
            return  # it answered a moment ago; a process that loses it continues alone
        finally:
            link.close()
        if policy:
            self.stop()
            raise ConfigError(
                f"the fleet's Redis at {link.where} deletes any key when its memory is full (maxmemory-policy {policy}): "
                "set maxmemory-policy noeviction, or a volatile one"
            )

    def _note(self) -> str:
        return self._member.note

    def _join(self) -> None:
        """Join the fleet under a new process name, without any leases."""
        self._pid = os.getpid()
        config = self.config
        self._live = LiveInvocations(f"{socket.gethostname()}:{self._pid}:{secrets.token_hex(4)}")
        self._member = FleetMember(RedisLink(config.url, config.name), self._live)
        self._orders = StandingOrders(self._live.process, partial(_reorder, self._gates, self._limiters))
        self._dollars: DollarLease | None = None
        if config.journal is not None:
            member, orders = self._member, self._orders
            self._dollars = DollarLease(
                journal_at(config.journal, config.name),
                self._live.process,
                config.daily_usd,
                processes=lambda: member.processes if (part := orders.current.share) is None else 1.0 / max(part, LEAST_PART),
                is_alone=lambda: member.is_alone,
                wake=member.wake,
            )
            self._member.chores.append(self._dollars)
        self._member.chores += [self._corrections, self._orders]
        self._member.survived_round()  # the first one at once, so that a wrong address is detected
        self._lease(self._limiters.items())
        self._steer()
        self._member.start()
        # A method of the member: one of this object would keep the object alive as long as the process.
        self._at_end = weakref.finalize(self, self._member.stop)

    def _lease(self, limiters: Iterable[tuple[str, EngineRateLimiter]]) -> None:
        orders = self._orders
        for engine, limiter in limiters:
            share = limiter.share(self._member.wake)
            if share is not None:
                share.renew(self._member.wake)
                self._member.chores.append(RateLease(engine, share, self._live.process, part=lambda: orders.current.share))

    def _steer(self) -> None:
        """Let each queue of model calls choose replicas by the fleet's orders, and count the calls of the fleet's other
        processes.

        After a fork, when the child process has joined the fleet as a new member, this is done again with the new membership.
        """
        self._live.groups = dict(self._groups)
        if self._facts and not self._member.catalog:
            self._member.chores.append(CatalogComparison(self._member, self._facts))
        member, orders = self._member, self._orders  # not this object, which the fleet's thread would keep alive
        for gate in self._gates:
            gate.weights = lambda: orders.current.weights
            gate.others, gate.rank = lambda: member.others, lambda: member.rank
            gate.first = int(self._live.process.rpartition(":")[2], 16)  # processes choose differently among equals

    def _rejoin_after_fork(self) -> None:
        if self._pid != os.getpid():
            with self._lock:
                # Checked again under the lock: another thread of the child may have joined meanwhile.
                if self._pid != os.getpid():
                    self._join()


def _reorder(gates: Iterable[ReplicaGate], limiters: Mapping[str, EngineRateLimiter]) -> None:
    """Apply new orders of the fleet to the calls that wait in these queues and rate limiters.

    A waiting call may move forward or backward in its queue, or to another replica.
    """
    for gate in gates:
        gate.reorder()
    for limiter in list(limiters.values()):
        limiter.reorder()
