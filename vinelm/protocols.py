"""What the parts promise one another. Light on purpose: two parts agree here without importing each other."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from vinelm.clock import Clock
from vinelm.errors import FailureKind
from vinelm.observation import Observation, Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

    from vinelm.catalog import Model
    from vinelm.template import Template
    from vinelm.workflow import Request


class CallGuard(Protocol):
    """Stands before every call of a model. Both methods may be called from several threads."""

    def before(self, upper_bound_usd: float) -> None:
        """A call that cannot cost more is about to be made. :class:`~vinelm.errors.CallRefused` if it must not be."""

    def paid(self, usage: Usage) -> None:
        """A call that was let through is over, well or badly."""


class RatePermit(Protocol):
    """One attempt that a rate limit has let through."""

    def settle(self, tokens: int) -> None:
        """What it really used."""


class RateLimiter(Protocol):
    """The rate limits of an engine. An attempt waits in front of it, and holds its place while the block runs."""

    def admit(self, tokens: int, sleep: Callable[[float], None]) -> AbstractContextManager[RatePermit]:
        """``tokens`` is what the attempt may use at most, until it settles."""

    def aadmit(self, tokens: int, sleep: Callable[[float], Awaitable[None]]) -> AbstractAsyncContextManager[RatePermit]:
        """The same for a coroutine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What a backend may know about the invocation that a chat model is made for.

    ``prefix`` ends with the model of this invocation. ``request`` is None in an ordinary served call: only offline backends
    (simulated, recorded), which answer from the request's own row, need it. Each call's :class:`Usage` goes to ``on_usage``.
    A backend asks ``guard`` before each call and tells it after; a remote one waits at ``gate`` for each attempt: None for the
    backend's own.

    ``on_exchange`` is None unless somebody asked to see what is said: then each call hands it the messages that were sent, and
    the answer as far as there is one.
    """

    stage: str
    prefix: tuple[str, ...]
    clock: Clock
    on_usage: Callable[[Usage], None]
    request: Request | None = None
    guard: CallGuard | None = None
    gate: RateLimiter | None = None
    on_exchange: Callable[[Sequence[BaseMessage], AIMessage | None], None] | None = None


@runtime_checkable
class Backend(Protocol):
    """One provider. Its chat models are ordinary LangChain chat models that report a :class:`Usage` per call."""

    is_simulated: bool
    """The answers are not those of real models: every report that used it must say so."""
    is_virtual_time: bool
    """Its latencies pass on the request's clock and not on the wall."""

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """A chat model for one stage invocation. Calls raise :class:`~vinelm.errors.CallError`."""


@runtime_checkable
class PricesCalls(Protocol):
    """A backend that can bound the price of a call before it is made, so that money can be set aside for it."""

    def upper_bound_usd(self, model: Model, messages: Sequence[BaseMessage], **options: Any) -> float:
        """Dollars that a chat model's call with these messages cannot exceed, attempts that are repeated included.

        ``options`` are what the chat model would be called or bound with, tools above all.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What a stage wrapper tells its policy after an invocation. ``prefix`` ends with this invocation's model.

    ``latency_s`` is the whole stage by the policy's clock, ``usages`` one record per model call inside it.
    """

    stage: str
    prefix: tuple[str, ...]
    latency_s: float
    usages: tuple[Usage, ...] = field(default=())
    failure: FailureKind | None = None
    detail: str | None = None

    @property
    def cost_usd(self) -> float:
        """Dollars of all calls of the invocation."""
        return math.fsum(usage.cost_usd for usage in self.usages)


@runtime_checkable
class Policy(Protocol):
    """Whom a stage wrapper asks. The controller's session is one, the profiler's forced path another.

    The prefix always comes from the wrapper, which reads it from the workflow's own state: LangGraph may retry, replay or
    resume a stage, so a policy must not count calls. All methods may be called from several threads.
    """

    clock: Clock
    request: Request | None
    template: Template | None

    def next(self, stage: str, prefix: tuple[str, ...]) -> str:
        """The model for the invocation of ``stage`` that follows ``prefix``."""

    def record(self, invocation: Invocation) -> None:
        """The invocation ended, well or badly."""

    def again(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """Whether the loop goes on after ``prefix``; ``finished`` is the verdict of the workflow's own check on ``state``."""


class RequestPath(NamedTuple):
    """One request and the models of its invocations. The profiler executes it cell by cell until the stop rule fires or the
    path ends, and pays only for cells without a row.
    """

    request_id: str
    path: tuple[str, ...]


class Sampler(Protocol):
    """Proposes request paths in rounds. A pure function of its settings and the observations it is given, so that a run that
    is killed and started again executes the same paths, whatever the number of workers.
    """

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterable[RequestPath]:
        """Return the request paths of a round, in the order in which they are to be admitted.

        Args:
            round_: the number of the round, from 0.
            observations: the cells along the paths of all earlier rounds, each once, in order.

        Returns:
            The paths, possibly endless. An empty round ends the profile.
        """


@dataclass(frozen=True, slots=True)
class EngineDelay:
    """What one invocation on an engine takes now beyond its zero-load time. ``is_stale``: the report behind it is old."""

    extra_s: float
    is_stale: bool = False


class LoadMonitor(Protocol):
    """How loaded the engines are. Every method answers at once, from what is known; none waits for an engine."""

    def delays(self) -> Mapping[str, EngineDelay]:
        """By engine; one that is not known, or no longer there, is left out."""

    def dispatched(self, engine: str) -> None:
        """An invocation of ours is sent to the engine."""

    def finished(self, engine: str, excess_s: float | None) -> None:
        """It came back, after ``excess_s`` more than its zero-load time (None: failed, or not known)."""


class Vine(Protocol):
    """What a workflow's ``build(vine)`` may use (DESIGN §7)."""

    def stage(
        self, name: str, fn: Callable[..., Any], *, state: type | None = None, default: str | None = None
    ) -> Callable[..., Any]:
        """A graph node that runs ``fn(state, model[, config, runtime, ...])`` with the policy's choice of model."""

    def route(self, fn: Callable[..., Any], *, again: str, end: str) -> Callable[..., Any]:
        """A conditional edge that ends where ``fn`` says so, or where the policy does."""
