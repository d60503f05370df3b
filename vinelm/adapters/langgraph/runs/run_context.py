"""The settings of one run, passed as LangGraph's ``context=``, in a field of the user's context, or by a with-block."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass, replace
from threading import Lock, current_thread, main_thread
from typing import Any, Protocol
from weakref import WeakSet

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import get_runtime
from pydantic import BaseModel

from vinelm.errors import CallRefused, ConfigError
from vinelm.objective import Objective
from vinelm.policies.policy import Policy
from vinelm.requests.workflow import Request
from vinelm.tools.speculation import Speculation

_READERS = ("StreamMessagesHandler", "_AstreamEventsCallbackHandler")
"""Classes of the callbacks behind ``stream_mode="messages"`` and ``astream_events``, by name: their modules are internal."""


def streams_tokens(config: RunnableConfig) -> bool:
    """Return whether the caller streams the tokens of the models in a node's run."""
    callbacks: Any = config.get("callbacks") or ()
    handlers = getattr(callbacks, "handlers", callbacks)
    return any(base.__name__ in _READERS for handler in handlers for base in type(handler).__mro__)


FIELD = "vinelm"
"""The attribute or key under which a user's context carries a :class:`RunContext`, or plain JSON."""

AMBIENT: ContextVar[RunContext | None] = ContextVar("vinelm_run_context", default=None)
"""Set by ``with vine.request(...)``; a context given to invoke wins over it."""

_IS_CARRIED: ContextVar[bool] = ContextVar("vinelm_is_carried", default=False)
"""True if the context variables are the main thread's or copied from them: a request would then be visible in them."""
CARRY_IT = (
    "run it as contextvars.copy_context().run(function, ...), or give the node's config to the call (LangChain's "
    "ContextThreadPoolExecutor copies the context itself)"
)
"""How a thread of the application learns its request; a part of messages that refuse a call."""


def mark_main_context() -> None:
    """Mark the main thread's context variables, so that :func:`is_carried` recognizes contexts copied from them.

    Does nothing on another thread, since a thread of a pool would keep the mark.
    """
    if current_thread() is main_thread():
        _IS_CARRIED.set(True)


def is_carried() -> bool:
    """Return whether this code can see the request that it runs for: True except in a thread without a copied context.

    ``Thread``, ``ThreadPoolExecutor`` and ``run_in_executor`` copy no context, unlike tasks, ``asyncio.to_thread`` and
    LangGraph.
    """
    # In a fork, the copied thread is the main thread, whatever it was before.
    return _IS_CARRIED.get() or (current_thread() is main_thread() and os.getpid() == _PID)


_PID = os.getpid()
_FORKED: ContextVar[tuple[Any, ...]] = ContextVar("vinelm_forked", default=())
"""Keys of the requests that were in progress, in the code that runs here, when this process was forked."""


def _note_fork() -> None:
    """Record in a forked process which requests were in progress at the fork.

    This process has copies of these requests' accounts, which miss later payments of the parent process.
    """
    found: list[Any] = [AMBIENT.get()]
    with suppress(RuntimeError, KeyError):
        found.append(get_runtime().control)
    _FORKED.set((*_FORKED.get(), *(one for one in found if one is not None)))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def is_in_fork_of(control: Any) -> bool:
    """Return whether this process was forked while a given request was in progress.

    ``control`` is LangGraph's object for the request's run, or the context of a ``with vine.request(...)``.
    """
    return any(one is control for one in _FORKED.get())


class ChatHost(Protocol):
    """An object of the profiler that may stop a run before each call of a chat model."""

    @property
    def halted(self) -> BaseException | None:
        """The exception with which :meth:`admit` ended the run, if any."""

    def admit(self, stage: str, prefix: tuple[str, ...], *, node: str, is_repeated: bool) -> None:
        """Admit an invocation of a chat model in a node; raise an exception to stop it.

        Args:
            stage: name of the stage.
            prefix: models of the earlier invocations.
            node: the node of the root graph.
            is_repeated: whether this execution of the node has made an invocation already.
        """

    def admit_inner(self, stage: str, *, node: str) -> None:
        """Admit an invocation inside a subgraph of ``node``, or outside of a graph; raise an exception to stop it."""

    async def calls_end(self) -> None:
        """Wait until the calls that the run makes in other coroutines have ended."""


MOST_PRIORITY = 100
"""The highest priority of a request, and of a call; the lowest is its negative."""


def require_priority(priority: Any) -> None:
    """Raise :class:`ConfigError` unless ``priority`` is a number between plus and minus :data:`MOST_PRIORITY`."""
    if not (isinstance(priority, int | float) and abs(priority) <= MOST_PRIORITY):
        raise ConfigError(
            f"priority is {priority!r}: give a number from -{MOST_PRIORITY} to {MOST_PRIORITY}; higher goes first"
        )


class ContextOwner:
    """A reference to the adapter that made a context. Copies of a context share one reference.

    ``adapter`` is None if the context was made in another process.
    """

    __slots__ = ("adapter",)

    def __init__(self, adapter: Any = None) -> None:
        self.adapter = adapter

    def __deepcopy__(self, memo: Any) -> ContextOwner:
        return self

    def __reduce__(self) -> Any:
        return ContextOwner, ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The settings of one run. Immutable, so concurrent runs may share it.

    Args:
        objective, policy, request, started_at, request_id, priority, kind, speculate: see :meth:`vinelm.VineLM.context`.
        owner: the adapter that made the context and serves the run's chat models, even if another ``VineLM`` made them.
        chat_host: controls each chat model call of a profiled run.
        returns_earlier: whether the run can return an earlier answer than the last, no matter where the policy ends the
            request. Filled in when the run begins, for the code that makes its policy.
        configurable: LangGraph's ``config["configurable"]`` of the run. Filled in when the run begins, if the adapter
            ``tells_config``.
        inputs: returns the state with which the run begins. Filled in when the run begins, if the application declares request
            types.
    """

    objective: Objective | None = None
    policy: Policy | None = None
    request: Request | None = None
    started_at: float | None = None
    request_id: str | None = None
    priority: float = 0.0
    owner: ContextOwner = field(default_factory=ContextOwner, compare=False, repr=False)
    chat_host: ChatHost | None = field(default=None, compare=False, repr=False)
    returns_earlier: bool = field(default=False, compare=False, repr=False)
    configurable: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    kind: str | None = None
    inputs: Callable[[], Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)
    speculate: Speculation | None = None


def attach(run: RunContext, user: Any) -> Any:
    """Return a copy of the user's context that carries ``run``.

    The copy has the same fields, and compares and serializes like the original. If ``user`` is None, ``run`` itself is
    returned.

    Raises:
        ConfigError: the context's class does not allow another attribute.
    """
    if user is None:
        return run
    if isinstance(user, Mapping):
        return {**user, FIELD: run}
    if isinstance(user, BaseModel) and FIELD in type(user).model_fields:
        return user.model_copy(update={FIELD: run})
    if is_dataclass(user) and not isinstance(user, type) and any(f.name == FIELD for f in fields(user)):
        return replace(user, **{FIELD: run})
    carrier = copy.copy(user)
    try:
        object.__setattr__(carrier, FIELD, run)
    except (AttributeError, TypeError):
        raise ConfigError(
            f"the context {type(user).__name__} cannot carry an objective (slots?): "
            f"give it a field `{FIELD}: Any = None`, or use `with vine.request(...)`"
        ) from None
    return carrier


def carried_by(context: Any) -> RunContext:
    """Return VineLM's settings in ``context``, a run's context; else those of the surrounding ``with vine.request(...)``; else
    default values.
    """
    if isinstance(context, RunContext):
        return context
    found = context.get(FIELD) if isinstance(context, Mapping) else getattr(context, FIELD, None)
    if found is None:
        return AMBIENT.get() or _NOTHING
    if isinstance(found, RunContext):
        return found
    if isinstance(found, Objective):
        return RunContext(objective=found)
    if isinstance(found, Mapping):
        return _from_json(found)
    raise ConfigError(f"the context's field {FIELD!r} is a {type(found).__name__}: give it vine.context(...), or a JSON object")


def _from_json(plain: Mapping[str, Any]) -> RunContext:
    asked = dict(plain)
    request_id = asked.pop("request_id", None)
    if request_id is not None and not isinstance(request_id, str):
        raise ConfigError(f"the context's request_id is {request_id!r}: give it a string")
    return RunContext(objective=Objective.from_dict(asked) if asked else None, request_id=request_id)


_NOTHING = RunContext()


class KnowsCaps(Protocol):
    """The attributes of an adapter that show whether requests may have a cap. They are read for calls whose request is unknown.

    Attributes:
        has_contexts: whether the adapter has made the context of any request.
        has_caps: whether a call of the adapter's models may belong to a request with a cap. Another adapter may have made that
            request's context.
    """

    has_contexts: bool
    has_caps: bool


_ADAPTERS: WeakSet[KnowsCaps] = WeakSet()
_ADAPTERS_LOCK = Lock()


def note_adapter(adapter: KnowsCaps) -> None:
    """Register a new adapter: :func:`note_cap` will report cost caps to it. On the main thread, also mark the context
    variables (:func:`mark_main_context`).
    """
    mark_main_context()
    with _ADAPTERS_LOCK:
        _ADAPTERS.add(adapter)


def note_cap(context: RunContext, adapter: KnowsCaps, *, enforces: bool) -> None:
    """Record that ``adapter`` made ``context`` and, if ``context`` has a cost cap, that there are requests with a cap.

    The context has a cap if its policy has a guard. A cost budget per request in its objective is a cap only if ``enforces`` is
    True. The cap is recorded in ``adapter``; adapters that have made no context so far record it, too.
    """
    adapter.has_contexts = True
    objective, policy = context.objective, context.policy
    is_capped = enforces and objective is not None and objective.cost_budget == "per_request"
    if is_capped or (policy is not None and policy.guard is not None):
        with _ADAPTERS_LOCK:
            adapter.has_caps = True
            for other in _ADAPTERS:
                other.has_caps = other.has_caps or not other.has_contexts


def may_be_capped(context: RunContext, adapter: KnowsCaps) -> bool:
    """Return whether this code may belong to a request with a cost cap although it cannot see the request's context.

    This happens in a thread that was started without a copy of the context variables.
    """
    return adapter.has_caps and context is _NOTHING and not is_carried()


def require_request(context: RunContext, adapter: KnowsCaps, what: str) -> None:
    """Refuse the call ``what`` if it may belong to a request whose cost cap is unknown here (:func:`may_be_capped`).

    Raises:
        CallRefused: the code runs in a thread without a request's context, and requests have caps.
    """
    if may_be_capped(context, adapter):
        raise CallRefused(
            f"{what} is refused: this thread was not told its request, and requests have a cost cap: {CARRY_IT} "
            "(docs/langgraph.md, Threads of your own)"
        )
