"""The messages between a run and the hosts of its units. Everything is pickled; nothing holds a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from vinelm.profiler.execution.job import Job, UnitOutcome, UnitSetup
from vinelm.profiler.isolation.child_process import error_of
from vinelm.rows.observation import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSetup:
    """The settings with which a host executes units.

    Attributes:
        version: VineLM's version in the run's process; a host with another one refuses.
        units: how its processes execute units; or a maker that, given the rate limits by model, makes the server of whole
            requests.
        limited: the models whose calls wait for the run's rate limits.
        folder: the working directory of the run; None if Ray sets the host's.
        path: ``sys.path`` of the run, for modules that the host does not find otherwise.
    """

    version: str
    units: UnitSetup | Callable[[Mapping[str, Any]], Any]
    limited: tuple[str, ...]
    folder: str | None
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """An exception on its way to another process."""

    kind: str
    text: str
    code: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Return the problem for an exception."""
        return cls(type(error).__name__, str(error), getattr(error, "code", None))

    def error(self, where: str = "") -> Exception:
        """Return the exception: an :class:`~vinelm.errors.InputError` as it was, any other as a ``RuntimeError``.

        Args:
            where: text to put before the exception's.
        """
        text = f"{where}{self.text}"
        return (
            RuntimeError(text)
            if self.kind == "RuntimeError"
            else error_of({"error": self.kind, "text": text, "code": self.code})
        )


@dataclass(frozen=True, slots=True)
class RequestJob:
    """A whole request instead of a unit; nothing is reserved before its host asks.

    Attributes:
        request_id: the request, which the host reads itself.
        plan: the plan under which it is served; its type depends on the host's worker.
    """

    request_id: str
    plan: Any
    upper_usd: float = 0.0

    @property
    def cell(self) -> Cell:
        """The name of the job's cell, which has no models, since the plan chooses them."""
        return self.request_id, ()


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """A worker's result for a request, and the dollars to settle: calls of unknown price count at their bound."""

    answer: Any
    settled_usd: float


# -- from the run to a host --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunUnit:
    """Execute a unit, or serve a request; its number is unique in the run."""

    unit: int
    job: Job | RequestJob


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer to :class:`Asked`."""

    unit: int
    is_granted: bool


@dataclass(frozen=True, slots=True)
class Admitted:
    """The rate limits let an attempt pass; ``replica`` is the place of the replica that serves it, 0 without a group."""

    attempt: int
    replica: int


# -- from a host to the run --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A unit asks for a total reservation of this many dollars, and waits."""

    unit: int
    upper_usd: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """An attempt at a call of a model waits for its rate limit; ``tokens`` is the most it may use."""

    attempt: int
    model: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Left:
    """An attempt is over, or has given up waiting; ``used`` tokens, None if unknown."""

    attempt: int
    used: int | None


@dataclass(frozen=True, slots=True)
class UnitEnded:
    """Reports that a unit is over, with an outcome or with a problem."""

    unit: int
    outcome: UnitOutcome | RequestOutcome | None
    problem: NodeProblem | None = None


FromHost = Asked | Waiting | Left | UnitEnded
ToHost = RunUnit | Granted | Admitted


# -- about hosts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """The cluster has answered; the first event, unless it is :class:`HostRefused`.

    Attributes:
        nodes: the cluster's nodes with a CPU; it is not known yet how many CPUs are free.
    """

    nodes: int = 0


@dataclass(frozen=True, slots=True)
class HostStarted:
    """A node has given a host its CPU, and the host is loading the workflow."""

    host: int
    node: str


@dataclass(frozen=True, slots=True)
class HostReady:
    """A host waits for units."""

    host: int


@dataclass(frozen=True, slots=True)
class HostRefused:
    """A node cannot execute units of this run; it is not asked again. Without a node: the cluster cannot be used."""

    node: str | None
    problem: NodeProblem


@dataclass(frozen=True, slots=True)
class HostLost:
    """A host or its node died; unsent results are lost."""

    host: int


@dataclass(frozen=True, slots=True)
class HostSaid:
    """Messages of a host, in their order."""

    host: int
    messages: tuple[FromHost, ...]


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to the cluster is lost; the last event."""

    detail: str


HostEvent = Connected | HostStarted | HostReady | HostRefused | HostLost | HostSaid | Disconnected
