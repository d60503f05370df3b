"""Interfaces between the parts of VineLM, so that two parts can agree without importing each other."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, SupportsFloat, TypeAlias, runtime_checkable

from vinelm.clock import Clock
from vinelm.errors import FailureKind
from vinelm.rows.observation import Observation, Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

    from vinelm.catalog import Catalog, Model
    from vinelm.requests.workflow import Request


class CallPermit(Protocol):
    """The permission for one call, given by a :class:`CallGuard`.

    Only the first :meth:`settle` or :meth:`close` has an effect; later calls of these methods do nothing.
    """

    def settle(self, usage: Usage) -> None:
        """Replace the call's reserved maximum cost by its real cost, after the call has succeeded or failed."""

    def close(self) -> None:
        """Settle the call at its maximum cost, because its real cost is unknown; do nothing if the call is already
        settled.
        """


class CallGuard(Protocol):
    """Authorizes every call of a model before it is made. Thread-safe.

    A guard that may block also has a coroutine ``aauthorize``, which is awaited for asynchronous calls; see
    :func:`vinelm.money.aauthorized`.
    """

    def authorize(self, upper_usd: float) -> CallPermit:
        """Reserve money for a call that costs at most ``upper_usd`` dollars.

        Raises:
            CallRefused: the call must not be made.
        """


class RatePermit(Protocol):
    """The permission for one attempt of a call, given by a :class:`RateLimiter`."""

    def settle(self, tokens: int) -> None:
        """Replace the reserved tokens by the tokens that the attempt really used."""


class RateLimiter(Protocol):
    """The rate limits of an engine. An attempt waits for admission, and counts as running until its ``with`` block ends."""

    def admit(
        self, tokens: int, sleep: Callable[[float], None], priority: SupportsFloat = 0.0
    ) -> AbstractContextManager[RatePermit]:
        """Return a context manager that waits until the limits admit an attempt.

        Args:
            tokens: the maximum number of tokens that the attempt may use; this number counts until the attempt is
                settled.
            sleep: waits for a number of seconds.
            priority: attempts with a higher priority go first, except before an attempt that has waited long enough. If
                the priority's ``float()`` changes meanwhile, the limiter's ``reorder()`` reads it again. While it is
                -inf, the attempt waits even if the limits would admit the attempt. If the priority has a method
                ``granted()``, this is called when the attempt is admitted, before the next admission.
        """

    def aadmit(
        self, tokens: int, sleep: Callable[[float], Awaitable[None]], priority: SupportsFloat = 0.0
    ) -> AbstractAsyncContextManager[RatePermit]:
        """Wait for admission as :meth:`admit` does, with the same arguments, in a coroutine."""


CallsInText: TypeAlias = Callable[[str], Iterable[tuple[str, Mapping[str, Any]]]]
"""A function that takes the next piece of a text that a model writes, and returns the calls, ``(tool, arguments)``, that are
complete with this piece.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class CallContext:
    """What a backend knows about the invocation (one execution of a stage) for which it makes a chat model. Do not change a
    context after passing it on.

    Args:
        stage: name of the stage.
        prefix: models of the request's invocations so far, including this one.
        clock: time as the request sees it.
        on_usage: receives the :class:`~vinelm.rows.observation.Usage` of each call, exactly once.
        request: the labelled request; None in an ordinary served call. Only offline backends need it.
        guard: authorizes each call; the permit is settled with the call's usage. None means no limit.
        rate_limiter: the rate limits that each attempt waits for; None uses the backend's limits.
        on_exchange: receives the messages of each call, the answer so far (None without one), and the call's options (tools,
            formats, settings) under the names that the model's package uses. ``on_exchange`` is None unless content is
            captured.
        on_prompt: receives the messages and the bound tools of each call, before it is made; None unless the prompts' shapes
            are needed. Must not raise.
        on_gate: called with True when an attempt begins to wait for rate limits, and with False when it is sent; if a replica
            group serves it, the second argument then names the replica's engine. None without a listener. Backends without rate
            limits do not call it.
        on_over: called when an attempt ends, before a waiting call may start in its place. The argument is the fraction of the
            prompt that was cached, in [0, 1]; None if unknown. ``on_over`` is None without a listener. Must not raise.
        priority: the call's priority among calls waiting for rate limits; finite, higher goes first. Its ``float()``
            may change while the call waits. Its attribute ``engine``, if any, names the preferred replica; None means
            no preference.
        on_tool_call: called with a tool call's name and arguments as soon as they are complete in a stream; None without a
            listener. Backends that do not stream do not call it.
        on_text: called when an attempt that streams begins. Returns a function that receives each piece of the text, and must
            not raise; or None if the text is not needed. ``on_text`` itself is None without a listener.
        key: the request's name, unique over all callers and the same for all of its calls; "" if unused.
        conversation: the name of the request's conversation, unique over all callers; "" if it has none.
        own: the application's own chat model, through which it makes the call; None without one. If the called model has the
            same catalog name (``own.entry``), this object is called, with its own API key.
        slot: called when the call is sent; returns the number of the server's slot (llama.cpp) that the call should use, or
            None for any slot. ``slot`` itself is None if slots are not chosen. Must not raise.
        equal: shares answers between equal calls (:class:`vinelm.backends.remote.equal_calls.EqualCalls`). None calls
            the model every time. Backends whose answers do not depend on the prompt alone do not use it.
    """

    stage: str
    prefix: tuple[str, ...]
    clock: Clock
    on_usage: Callable[[Usage], None]
    request: Request | None = None
    guard: CallGuard | None = None
    rate_limiter: RateLimiter | None = None
    on_exchange: Callable[[Sequence[BaseMessage], AIMessage | None, Mapping[str, Any]], None] | None = None
    on_prompt: Callable[[Sequence[BaseMessage], Sequence[Any]], None] | None = None
    on_gate: Callable[..., None] | None = None
    on_over: Callable[[float | None], None] | None = None
    priority: SupportsFloat = 0.0
    on_tool_call: Callable[[str, Mapping[str, Any]], None] | None = None
    on_text: Callable[[], Callable[[str], None] | None] | None = None
    key: str = ""
    conversation: str = ""
    own: Any = None
    slot: Callable[[], int | None] | None = None
    equal: Any = None


@runtime_checkable
class Backend(Protocol):
    """A provider's backend. It makes ordinary LangChain chat models that report one :class:`Usage` for each call."""

    is_simulated: bool
    """True if the answers are not those of real models; every report based on them must say so."""
    is_virtual_time: bool
    """True if latencies are simulated: they advance the request's virtual clock and take no real time."""

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """Return a chat model for one execution of a stage. Its calls raise :class:`~vinelm.errors.CallError`."""


@runtime_checkable
class PricesCalls(Protocol):
    """A backend that can compute the maximum cost of a call in advance, so that money can be reserved for the call."""

    def upper_bound_usd(self, model: Model, messages: Sequence[BaseMessage], **options: Any) -> float:
        """Return the maximum cost of a call with these messages in dollars, repeated attempts included.

        ``options`` are the keyword arguments that the chat model is called or bound with, such as ``tools``.
        """


@runtime_checkable
class Preloads(Protocol):
    """A backend that can prepare its first call in the process from which runs are forked, so that no run repeats this
    work.
    """

    def preload(self) -> None:
        """Import the modules that calls need, and create clients with their TLS context if possible; any failure shows
        up in the first call.

        Calls no model. Must leave no thread, connection or event loop behind, since none of them survives a fork.
        """


class ChatModelSource(Protocol):
    """Makes the chat models of a catalog; implemented by :class:`vinelm.backends.ModelResolver`."""

    @property
    def catalog(self) -> Catalog:
        """The catalog of the models that the source can make."""

    @property
    def is_virtual_time(self) -> bool:
        """Whether the models' latencies are simulated: they advance the request's virtual clock and take no real time."""

    def new_clock(self) -> Clock:
        """Return the clock of a new run."""

    def chat_model(self, name: str, call: CallContext, limits: Mapping[str, Any] | None = None) -> BaseChatModel:
        """Return a chat model for one execution of a stage; ``limits`` replaces fields of the model's catalog entry, such
        as ``max_tokens``.
        """


class BesideService(Protocol):
    """The interface of the autopilot, which learns which models can replace today's models while a service runs."""

    def around(self, models: Any) -> ChatModelSource:
        """Start the autopilot, and return a source of chat models that wraps ``models`` and is used instead.

        Raises:
            ConfigError: the autopilot has started already, or cannot start.
        """

    def feedback(self, run: str, score: float) -> None:
        """Record feedback, a score in [0, 1], on the answer of the request named ``run``; ignore it for an unknown request."""

    def write(self, call: Mapping[str, Any]) -> None:
        """Record a call that a gateway has forwarded to a model. Never raises."""

    def close(self) -> bool:
        """Stop, and write pending records; return False if some records are lost. Idempotent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One finished invocation of a stage, as recorded by its policy.

    Args:
        stage: name of the stage.
        prefix: models of the request's invocations so far, including this one.
        latency_s: seconds of the whole stage by the policy's clock.
        usages: one usage record per model call inside the stage.
        failure: kind of the failure; None if it succeeded.
        detail: one line about the failure, without any prompt or answer.
    """

    stage: str
    prefix: tuple[str, ...]
    latency_s: float
    usages: tuple[Usage, ...] = field(default=())
    failure: FailureKind | None = None
    detail: str | None = None

    @property
    def cost_usd(self) -> float:
        """The cost of all calls of the invocation, in dollars."""
        usages = self.usages
        return usages[0].cost_usd if len(usages) == 1 else math.fsum([usage.cost_usd for usage in usages])


class OpenBatch(NamedTuple):
    """A stored batch of calls that has no answers yet.

    Attributes:
        batch_id: the batch's number in the store.
        key: VineLM's name of the batch, by which the batch and its calls are found at the provider.
        model: the catalog name of the model that all calls go to.
        provider_id: the provider's id; None if the batch may not have been submitted yet.
        calls: the number of calls.
        recorded_s: when the batch was stored, in Unix time.
    """

    batch_id: int
    key: str
    model: str
    provider_id: str | None
    calls: int
    recorded_s: float


Choice: TypeAlias = "str | Mapping[str, str]"
"""The model of an invocation; or, if several stages may come, the model of each of them by name."""


class RequestPath(NamedTuple):
    """One request and the models of its invocations, to be executed by the profiler.

    Execution ends when the stop rule fires or the path ends. Only invocations without a stored result are executed and paid
    for. If the template has branches, the request decides which stage comes next, and the path has a model for each stage.
    Execution also ends at a stage for which the path has no model, or no allowed model.

    ``goes_on``: execute the path to its end even if the workflow's own check passes an earlier answer; no effect under the stop
    rule ``"oracle"``. ``probability``: the probability with which the sampler chose to execute the path's last invocation; None
    if the sampler does not know it. All results bought along the path get this value.
    """

    request_id: str
    path: tuple[Choice, ...]
    goes_on: bool = False
    probability: float | None = None


class Sampler(Protocol):
    """Proposes request paths in rounds.

    A sampler is a pure function of its settings and observations, so a restarted run executes the same paths with any
    number of workers.
    """

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterable[RequestPath]:
        """Return the request paths of a round, in the order of their admission.

        Args:
            round_: the number of the round, from 0.
            observations: the results along the paths of all earlier rounds, each once, in order.

        Returns:
            The paths, possibly endless. An empty round ends the profile.
        """


@dataclass(frozen=True, slots=True)
class EngineDelay:
    """How many seconds longer a call on an engine takes under the current load (``extra_s``).

    ``is_stale`` means that the figure is old, because no newer one could be read.
    """

    extra_s: float
    is_stale: bool = False


class LoadMonitor(Protocol):
    """The current load of the engines. Methods never block; they use the latest known figures."""

    def delays(self) -> Mapping[str, EngineDelay]:
        """Return the current delay of each engine, keyed by the engine's name; unknown and removed engines are left out."""

    def dispatched(self, engine: str) -> None:
        """Record that a call was sent to the engine."""

    def finished(self, engine: str, excess_s: float | None) -> None:
        """Record that a call ended and took ``excess_s`` seconds longer than at zero load; ``excess_s`` is None if the call
        failed or the time is unknown.
        """


class Vine(Protocol):
    """The argument of a workflow's ``build(vine)``, which wraps the stages and routes of the graph."""

    def stage(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        state: type | None = None,
        default: str | None = None,
        eager: Callable[[Any], CallsInText] | None = None,
    ) -> Callable[..., Any]:
        """Return a graph node that runs ``fn(state, model[, config, runtime, ...])`` with the model that the policy chooses.

        See :meth:`vinelm.VineLM.stage` for the arguments.
        """

    def route(
        self,
        fn: Callable[..., Any],
        *,
        again: str | None = None,
        end: str | None = None,
        to: Sequence[str] | Mapping[Any, str] | None = None,
        times: int | Mapping[str, int] | None = None,
    ) -> Callable[..., Any]:
        """Return a function for a conditional edge. It returns ``fn``'s choice, or ``end`` if the policy or a loop limit ends
        the request.

        See :meth:`vinelm.VineLM.route` for the arguments.
        """

    def tool(
        self,
        fn: Any = None,
        *,
        read_only: bool = False,
        writes: Literal["session", "all"] | None = None,
        cost_usd: float = 0.0,
        ttl_s: float | None = None,
    ) -> Any:
        """Return ``fn`` as a LangChain tool whose effects the other arguments declare. While profiling, its calls are not
        prefetched.

        See :meth:`vinelm.VineLM.tool` for the arguments.
        """

    @property
    def finish(self) -> Callable[..., Any]:
        """The graph node for the end of a request. If the policy trusts an earlier answer more than the last one, the node
        restores the earlier answer.
        """

    def chat_model(self, stage: str | None = None, **settings: Any) -> Any:
        """Return a chat model whose calls count as executions of ``stage``; None takes the graph node that calls it."""
