"""The messages between a run and its hosts. They are pickled and contain no API keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from vinelm.profiler.execution.job import Job, UnitOutcome, UnitSetup
from vinelm.profiler.isolation.child_process import error_of
from vinelm.rows.observation import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSetup:
    """The settings with which a host executes jobs.

    Attributes:
        version: VineLM's version in the run's process; a host with a different version refuses the run.
        units: the settings of the processes that execute jobs. If the host serves whole requests instead: a function that takes
            the rate limits by model and returns the server.
        limited: the models that have rate limits, which the run enforces.
        folder: the working directory of the run; None if Ray sets the host's working directory.
        path: the run's ``sys.path``, for modules that the host would not find.
    """

    version: str
    units: UnitSetup | Callable[[Mapping[str, Any]], Any]
    limited: tuple[str, ...]
    folder: str | None
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """An exception in a form that can be sent to another process: its class name (``kind``), its ``text`` and its ``code``.

    ``code`` is None if the exception has none.
    """

    kind: str
    text: str
    code: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Convert an exception to a form that can be sent to another process."""
        return cls(type(error).__name__, str(error), getattr(error, "code", None))

    def error(self, where: str = "") -> Exception:
        """Return the exception to raise in this process.

        If the original exception was an :class:`~vinelm.errors.InputError`, the result has the same class; otherwise it is a
        ``RuntimeError``.

        Args:
            where: prefix for the exception's message.
        """
        text = f"{where}{self.text}"
        return (
            RuntimeError(text)
            if self.kind == "RuntimeError"
            else error_of({"error": self.kind, "text": text, "code": self.code})
        )


@dataclass(frozen=True, slots=True)
class RequestJob:
    """A job that serves a whole request. Money is reserved only when the job's host asks for money.

    Attributes:
        request_id: the id of the request; the host itself reads the request's data.
        plan: the plan under which it is served; its type depends on the host's worker.
        upper_usd: the dollars reserved for the job in advance; 0, because the host asks for money while it serves the request.
    """

    request_id: str
    plan: Any
    upper_usd: float = 0.0

    @property
    def cell(self) -> Cell:
        """The (request id, models) by which the job is named; the models are empty, because the plan chooses them."""
        return self.request_id, ()


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """A worker's result for a whole request.

    Attributes:
        answer: the result.
        settled_usd: the cost to book, in dollars. Calls of unknown cost count at their maximum cost.
    """

    answer: Any
    settled_usd: float


# -- from the run to a host --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunUnit:
    """Tells a host to execute ``job``; ``unit`` is the job's number, unique in the run."""

    unit: int
    job: Job | RequestJob


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer to a host that asked for a higher reservation (:class:`Asked`): whether the reservation of the job ``unit``
    was raised.
    """

    unit: int
    is_granted: bool


@dataclass(frozen=True, slots=True)
class Admitted:
    """Reports to a host that the rate limits admit one of its attempts at a call.

    ``attempt`` is the attempt's number on the host, ``replica`` the index of the replica that serves it (0 without replicas).
    """

    attempt: int
    replica: int


# -- from a host to the run --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """Asks to raise the reservation of the job with the number ``unit`` to ``upper_usd`` dollars in total.

    The job blocks until the answer.
    """

    unit: int
    upper_usd: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """Reports that an attempt at a call of ``model`` waits for the rate limit.

    ``attempt`` is its number on the host, ``tokens`` the maximum number of tokens that it may use.
    """

    attempt: int
    model: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Left:
    """Reports to the run that an attempt at a call has ended or has stopped waiting.

    ``attempt`` is its number on the host, ``used`` the number of tokens that it used; None if unknown.
    """

    attempt: int
    used: int | None


@dataclass(frozen=True, slots=True)
class UnitEnded:
    """Reports that the job with the number ``unit`` has ended, with its ``outcome`` or with its error (``problem``).

    ``problem`` is None if the job ended without an error.
    """

    unit: int
    outcome: UnitOutcome | RequestOutcome | None
    problem: NodeProblem | None = None


FromHost = Asked | Waiting | Left | UnitEnded
ToHost = RunUnit | Granted | Admitted


# -- about hosts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """Reports that the connection to the cluster works.

    It is the first event, unless the whole cluster cannot execute the run's jobs (:class:`HostRefused`).

    Attributes:
        nodes: the number of the cluster's nodes with a CPU; it is not known yet whether these CPUs are free.
    """

    nodes: int = 0


@dataclass(frozen=True, slots=True)
class HostStarted:
    """Reports that Ray has started a host on a node, and that the host is loading the workflow."""

    host: int
    node: str


@dataclass(frozen=True, slots=True)
class HostReady:
    """Reports that a host is ready to execute jobs."""

    host: int


@dataclass(frozen=True, slots=True)
class HostRefused:
    """Reports that a node cannot execute jobs of this run, so that it is not used again.

    If ``node`` is None, the whole cluster cannot execute jobs. ``problem`` is the reason.
    """

    node: str | None
    problem: NodeProblem


@dataclass(frozen=True, slots=True)
class HostLost:
    """Reports that a host or its node died. Results that the host had not sent are lost."""

    host: int


@dataclass(frozen=True, slots=True)
class HostSaid:
    """Reports that the host with the number ``host`` has sent ``messages``, in this order."""

    host: int
    messages: tuple[FromHost, ...]


@dataclass(frozen=True, slots=True)
class Disconnected:
    """Reports that the connection to the cluster is lost, with the reason (``detail``). It is the last event."""

    detail: str


HostEvent = Connected | HostStarted | HostReady | HostRefused | HostLost | HostSaid | Disconnected
