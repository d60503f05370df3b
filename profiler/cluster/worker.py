"""The run's side of a cluster: sends jobs to hosts, answers the hosts' messages, and repeats jobs of lost hosts."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

from vinelm.catalog.secrets import redacted
from vinelm.errors import ConfigError, InputError, WorkerDied
from vinelm.profiler.cluster.bridge import RayLink
from vinelm.profiler.cluster.messages import (
    Admitted,
    Asked,
    Connected,
    Disconnected,
    FromHost,
    Granted,
    HostEvent,
    HostLost,
    HostReady,
    HostRefused,
    HostSaid,
    HostStarted,
    Left,
    RequestJob,
    RequestOutcome,
    RunUnit,
    UnitEnded,
    Waiting,
)
from vinelm.profiler.execution.job import Job, TopUp, UnitOutcome
from vinelm.profiler.isolation.rate_limit_proxy import AdmitsAttempts
from vinelm.threads import started

LOSSES = 4
"""A job that is lost this many times ends the run, since the job itself may be what kills its hosts."""
CONNECT_S = 180.0
"""How long the run waits for the cluster to answer, or to be started."""
FIRST_S = 60.0
"""How long the run waits for a node to give a host its CPU; also after all hosts were lost."""
ANSWERS_S = 5.0
"""How long the run waits for the nodes' first answers once one host is ready; a node that is full of other jobs does not
answer."""
OTHERS_S = 30.0
"""How long the run waits for the other hosts once one host is ready."""
_GRACE_S = 2.0


@dataclass(slots=True, eq=False)
class PlacedUnit:
    """A job of the run, and the host that executes it.

    Attributes:
        number: the job's number, unique in the run.
        upper_usd: the dollars reserved for it.
        host: the number of its host; -1 before it has one.
        inbox: receives the host's messages about the job, and None once the host is lost.
    """

    number: int
    upper_usd: float
    host: int = -1
    inbox: queue.SimpleQueue[Asked | UnitEnded | None] = field(default_factory=queue.SimpleQueue)


@dataclass(slots=True, eq=False)
class KnownHost:
    """A host that has not been lost.

    Attributes:
        node: the name of its node.
        is_ready: whether it has loaded the workflow and can execute jobs.
        units: its running jobs, keyed by their number.
    """

    node: str
    is_ready: bool = False
    units: dict[int, PlacedUnit] = field(default_factory=dict)


class ClusterWorker:
    """A :class:`~vinelm.profiler.execution.job.Worker` that executes its jobs on the nodes of a cluster.

    The constructor waits until one host is ready, then a limited time for the other hosts; :meth:`close` ends all hosts.

    Args:
        link: the connection to the hosts; closed with the worker.
        rate_limiters: the rate limits by model, applied here to the calls of all hosts.
        on_note: called with one line, from any thread, when a host is lost, or when a node that joined later cannot be used.
        unit: the word for the worker's jobs in these lines.

    Raises:
        InputError: a node cannot execute the jobs; the message names the node.
        ConfigError: the cluster does not answer, or no node has a free CPU (``no-node``).
        WorkerDied: the connection to the cluster was lost.
    """

    def __init__(
        self,
        link: RayLink,
        rate_limiters: Mapping[str, AdmitsAttempts],
        on_note: Callable[[str], None] | None = None,
        *,
        unit: str = "unit",
    ) -> None:
        self._link, self._on_note, self._unit = link, on_note or (lambda _: None), unit
        self._admissions = Admissions(link, rate_limiters)
        self._changed = threading.Condition()
        self._hosts: dict[int, KnownHost] = {}
        self._nodes = self._started = 0  # nodes that may give a host its CPU, and number of hosts started so far
        self._numbers = count()
        self._refused: InputError | None = None
        self._is_connected = self._has_begun = self._is_closed = False
        self._ended: str | None = None  # why there is no connection any more
        self._listener = started(self._listen, "vinelm hosts")
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_connected or self._refused or self._ended, CONNECT_S)
            if not (self._is_connected or self._refused or self._ended):
                raise ConfigError(f"Ray does not answer, after {CONNECT_S:g} s", code="ray-address")
            self._await_host("no Ray node has a free CPU")
            self._changed.wait_for(lambda: self._refused or self._ended or self._started >= self._nodes, ANSWERS_S)
            self._changed.wait_for(lambda: self._refused or self._ended or self._are_all_ready(), OTHERS_S)
            if self._refused is not None:
                raise self._refused
            self._has_begun = True

    def _await_host(self, lack: str) -> None:
        """Wait until a host is ready to execute jobs. Call with the lock held.

        Args:
            lack: why no host is ready, such as that no node has a free CPU; for the error message.

        Raises:
            InputError: a node could not be used, before the run began.
            ConfigError: no host was ready in time, before the run began.
            WorkerDied: no host was ready in time after the run had begun, or the connection to the cluster was lost.
        """
        until = time.monotonic() + FIRST_S
        while True:
            if self._refused is not None and not self._has_begun:
                raise self._refused
            if self._ended is not None:
                raise WorkerDied(f"{self._ended}: run the same again to continue", code="cluster-lost")
            if any(host.is_ready for host in self._hosts.values()):
                return
            if self._hosts:  # a host loads the workflow, which may take long
                until = time.monotonic() + FIRST_S
            elif time.monotonic() > until:
                if self._has_begun:
                    raise WorkerDied(f"{lack}: run the same again to continue", code="cluster-lost")
                raise ConfigError(f"{lack}, after {FIRST_S:g} s: add a node, or wait for other jobs", code="no-node")
            self._changed.wait(0.2)

    def _are_all_ready(self) -> bool:
        return all(host.is_ready for host in self._hosts.values())

    # -- units ---------------------------------------------------------------------------------------------------------

    def run(self, job: Job, top_up: TopUp) -> UnitOutcome:
        """Execute a job on a host and return its outcome; see :meth:`execute`.

        The outcome's cost includes what was booked for executions on hosts that were lost. The outcome has no observation if
        the budget did not allow another execution.
        """
        outcome, lost_usd = self.execute(job, top_up)
        if not isinstance(outcome, UnitOutcome):
            return UnitOutcome(None, paid_usd=lost_usd)
        return replace(outcome, paid_usd=lost_usd + outcome.settled_usd) if lost_usd else outcome

    def execute(self, job: Job | RequestJob, top_up: TopUp) -> tuple[UnitOutcome | RequestOutcome | None, float]:
        """Execute a job on a host, and on another host if the first is lost.

        If a host is lost, the cost of its jobs is unknown, so their whole reservations are booked. Money for each job is then
        reserved again.

        Returns:
            The job's outcome (None if it was lost and the budget does not allow a repetition), and the cost booked for lost
            executions, in dollars.

        Raises:
            WorkerDied: no host is left, or the job was lost too often.
        """
        lost_usd = 0.0
        for _ in range(LOSSES):
            unit = self._placed(job)
            outcome = self._served(unit, lost_usd, top_up)
            if outcome is not None:
                return outcome, lost_usd
            lost_usd += unit.upper_usd
            if self._is_closed or not top_up(lost_usd + job.upper_usd):
                return None, lost_usd
        request_id, prefix = job.cell
        raise WorkerDied(
            f"request {request_id}{', models ' if prefix else ''}{' > '.join(prefix)}: its node was lost {LOSSES} times while "
            "it ran: see Ray's logs, and run the same again to continue",
            code="unit-lost",
        )

    def _placed(self, job: Job | RequestJob) -> PlacedUnit:
        """Send the job to the ready host that has the fewest jobs, and return its placement."""
        with self._changed:
            self._await_host("no Ray node is left")
            number, host = min(
                ((number, host) for number, host in self._hosts.items() if host.is_ready), key=lambda one: len(one[1].units)
            )
            unit = PlacedUnit(next(self._numbers), job.upper_usd, number)
            # Before sending, since the host may be lost at once and then notifies the units that it knows.
            host.units[unit.number] = unit
        self._link.send(number, RunUnit(unit.number, _without_objects(job) if isinstance(job, Job) else job))
        return unit

    def _served(self, unit: PlacedUnit, lost_usd: float, top_up: TopUp) -> UnitOutcome | RequestOutcome | None:
        """Answer a host's requests to raise the reservation of a job, until the job ends or the host is lost.

        Return the job's outcome; None if the host was lost.

        ``lost_usd`` are the dollars already booked for executions of the job on lost hosts. They are added to each reservation
        that the host requests.
        """
        while (message := unit.inbox.get()) is not None:
            if isinstance(message, Asked):
                is_granted = top_up(lost_usd + message.upper_usd)
                if is_granted:
                    unit.upper_usd = max(unit.upper_usd, message.upper_usd)
                self._link.send(unit.host, Granted(unit.number, is_granted))
            elif message.problem is not None and message.problem.kind == WorkerDied.__name__:
                self._link.drop(unit.host)  # the process that forks its units has died, and they with it
            elif message.problem is not None:
                raise message.problem.error(self._where(unit.host))
            else:
                return message.outcome
        return None

    def _where(self, host: int) -> str:
        known = self._hosts.get(host)
        return "" if known is None else f"Ray node {known.node}: "

    # -- hosts ---------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Handle the events that the cluster reports until the connection ends, then treat all hosts as lost."""
        while not isinstance(event := self._link.receive(), Disconnected):
            note = self._take(event)
            if note is not None and not self._is_closed:
                self._on_note(note)
        with self._changed:
            self._ended = f"the connection to Ray was lost{': ' if event.detail else ''}{redacted(event.detail)}"
            for host in list(self._hosts):
                self._lose(host)
            self._changed.notify_all()

    def _take(self, event: HostEvent) -> str | None:
        """Handle an event that the cluster reports; return a line about it for the user, or None if there is nothing to say."""
        if isinstance(event, HostSaid):
            for message in event.messages:
                self._deliver(event.host, message)
            return None
        with self._changed:
            note = None
            match event:
                case Connected(nodes):
                    self._is_connected, self._nodes = True, nodes
                case HostStarted(host, node):
                    self._hosts[host] = KnownHost(node)
                    self._started += 1
                case HostReady(host) if host in self._hosts:
                    self._hosts[host].is_ready = True
                case HostRefused(node, problem):
                    note = self._refuse(node, problem.error("" if node is None else f"Ray node {node}: "))
                case HostLost(host):
                    note = self._lose(host)
            self._changed.notify_all()
            return note

    def _refuse(self, node: str | None, error: Exception) -> str | None:
        """Handle the report that a node cannot be used.

        Before the run has begun, keep the first such error, which :meth:`_await_host` raises, and return None. Later, return a
        line for the user.
        """
        if self._has_begun:
            return f"{error}: this node executes no {self._unit}"
        found = error if isinstance(error, InputError) else ConfigError(str(error), code="node-fails")
        self._refused = self._refused or found
        return None

    def _lose(self, number: int) -> str | None:
        host = self._hosts.pop(number, None)
        if host is None:
            return None
        self._admissions.lose(number)
        for unit in host.units.values():
            unit.inbox.put(None)
        if not host.is_ready:
            return None
        units = len(host.units)
        what = (
            ""
            if not units
            else f", and {units} {self._unit}{'s' if units > 1 else ''} with it: counted at their bound, executed again"
        )
        return f"Ray node {host.node} was lost{what}"

    def _deliver(self, number: int, message: FromHost) -> None:
        match message:
            case Waiting():
                self._admissions.begin(number, message)
            case Left():
                self._admissions.end(number, message)
            case _:
                with self._changed:
                    host = self._hosts.get(number)
                    unit = None if host is None else host.units.get(message.unit)
                    if host is not None and isinstance(message, UnitEnded) and not _is_broken(message):
                        host.units.pop(message.unit, None)
                if unit is not None:
                    unit.inbox.put(message)

    def close(self) -> None:
        """Close every host and abandon its jobs."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(OSError):
            self._link.close()
        self._listener.join(_GRACE_S)


def _is_broken(message: UnitEnded) -> bool:
    return message.problem is not None and message.problem.kind == WorkerDied.__name__


def _without_objects(job: Job) -> Job:
    """Return the job in a form that can be pickled: of the request's data, only texts are kept.

    The request's id stays the same, and the job gets the digest of the whole request. The host needs the texts to hide them in
    error messages.
    """
    texts = {key: value for key, value in job.request.data.items() if isinstance(value, str)}
    return replace(job, request=replace(job.request, data=texts), digest=job.request.digest())


# -- calls of all hosts at the run's rate limits: one thread for each attempt that waits or is running ----------------


class Admissions:
    """Applies the rate limits to the hosts' attempts. An attempt holds its slot until it ends or its host is lost."""

    def __init__(self, link: RayLink, rate_limiters: Mapping[str, AdmitsAttempts]) -> None:
        self._link, self._rate_limiters = link, rate_limiters
        self._lock = threading.Lock()
        self._under_way: dict[tuple[int, int], HostAttempt] = {}

    def begin(self, host: int, attempt: Waiting) -> None:
        """Start a thread in which a host's attempt at a call waits for the model's rate limit; return at once."""
        held = HostAttempt(host, attempt, self._rate_limiters[attempt.model], self._link)
        with self._lock:
            # Before it waits: if its host is lost meanwhile, the place has to be found.
            self._under_way[host, attempt.attempt] = held
        started(held.pass_through, "vinelm attempt")

    def end(self, host: int, left: Left) -> None:
        """Free the slot that a host's attempt holds at the rate limit.

        ``left`` has the attempt's number and its tokens.
        """
        with self._lock:
            # None if the host was already considered lost, which freed its places.
            held = self._under_way.pop((host, left.attempt), None)
        if held is not None:
            held.leave(left.used)

    def lose(self, host: int) -> None:
        """Free the slots that the attempts of a lost host hold at the rate limits.

        The tokens that they used are unknown, so each attempt counts with the maximum that it could use.
        """
        with self._lock:
            lost = [self._under_way.pop(key) for key in list(self._under_way) if key[0] == host]
        for held in lost:
            held.leave(None)


class HostAttempt:
    """One attempt of a host at a model call, from its wait for the rate limit to its end."""

    def __init__(self, host: int, attempt: Waiting, rate_limiter: AdmitsAttempts, link: RayLink) -> None:
        self._host, self._attempt, self._rate_limiter, self._link = host, attempt, rate_limiter, link
        self._is_over = threading.Event()
        self._used: int | None = None

    def pass_through(self) -> None:
        """Wait until the rate limit admits the attempt, tell the host so, and hold the slot until the attempt is over."""
        with suppress(ConnectionError), self._rate_limiter.admit(self._attempt.tokens, self._sleep) as permit:
            self._link.send(self._host, Admitted(self._attempt.attempt, getattr(permit, "replica", 0)))
            self._is_over.wait()
            if self._used is not None:
                permit.settle(self._used)

    def leave(self, used: int | None) -> None:
        """End the attempt, and record the number of tokens that it used."""
        self._used = used
        self._is_over.set()

    def _sleep(self, seconds: float) -> None:
        """Sleep; raise ``ConnectionError`` as soon as the attempt is over."""
        if self._is_over.wait(seconds):
            raise ConnectionError("the attempt was given up")
