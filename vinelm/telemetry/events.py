"""Events while a request runs (a policy's decisions, invocations of stages), and the observers that receive these events."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from vinelm.catalog import Model
from vinelm.foreign_code import answered
from vinelm.requests.protocols import Invocation
from vinelm.tools.call import ToolEvent

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, BaseMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionEvent:
    """A policy's decision about the next model, or about leaving a loop. Contains neither prompts nor API keys.

    Attributes:
        kind: "model" if a model was chosen: ``model`` runs next, after the models in ``prefix``. "end" if the decision was
            about leaving a loop; ``model`` is then None.
        goes_on: whether the request continues after the decision.
        seconds: wall-clock seconds that the policy took to answer.
        explanation: the policy's :meth:`~vinelm.policies.Policy.last_step`; empty for policies without explanations.
    """

    kind: Literal["model", "end"]
    stage: str | None
    prefix: tuple[str, ...]
    model: str | None
    goes_on: bool
    seconds: float
    explanation: Mapping[str, Any]


class Observer(Protocol):
    """The interface of an object that is notified of every decision and call, from many threads. Its exceptions are ignored."""

    def decided(self, decided: DecisionEvent) -> None:
        """Receive the decision that a policy has just made."""

    def began(self, stage: str, prefix: tuple[str, ...], model: Model) -> Any:
        """Note that an invocation of ``stage`` begins, and return a token, which :meth:`ended` gets later.

        ``prefix`` has the models of the request's invocations, the last one for this invocation.
        """

    def ended(self, token: Any, invocation: Invocation | None) -> None:
        """Note that an invocation has ended. ``token`` is what :meth:`began` returned for the invocation.

        ``invocation`` is None if the execution was interrupted and will be repeated.
        """


class Listener(Observer, Protocol):
    """An observer that also receives prompts and answers while ``captures_content`` is true. Other observers never do."""

    captures_content: bool

    def exchanged(self, token: Any, messages: Sequence[BaseMessage], answer: AIMessage | None) -> None:
        """Receive the prompt and the answer of a model call, made in the invocation that has this ``token``.

        ``answer`` is None without an answer.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftEvent:
    """A detected change (drift) of one quantity at one node of the trie, such as the cost of the node's invocation.

    Attributes:
        stage: the stage of the node's invocation.
        model: the model of the node's invocation.
        quantity: what has changed: "stop" (how often requests end at the node), "dollars", "seconds" or "signal LABEL" (how
            often LABEL occurs).
        direction: "up" or "down".
        path: the node's models from the first invocation on.
        annotated: the value of the quantity in the trie.
        seen: the mean that was observed since the change.
    """

    stage: str
    model: str
    quantity: str
    direction: str
    path: tuple[str, ...]
    annotated: float
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryEvent:
    """The decision on a canary, a plan that serves a part of the requests: whether it should serve more of them or none.

    Attributes:
        advice: "keep" if the plan is worse and the current setup serves all requests again, otherwise "switch".
        quantity: for "keep", the figure by which the plan is worse: "accuracy", "failures", "late", "dollars" or "seconds". For
            "switch", what the plan is: "more accurate" or "as accurate and cheaper".
        reason: the decision with both observed figures, as text.
    """

    advice: Literal["switch", "keep"]
    quantity: str
    reason: str


class ObservedRequest:
    """One run of a graph, with the tokens that its observers returned when the run began.

    Args:
        observers: the observers to notify. If an observer has a method ``request_began``, it is called now and may return a
            token. After the run has ended, the observer's method ``request_ended`` gets this token.
    """

    __slots__ = ("_tokens",)

    def __init__(self, observers: tuple[Observer, ...]) -> None:
        began = [(one, _safely(one, "request_began")) for one in observers]
        self._tokens = {id(one): (one, token) for one, token in began if token is not None}

    def token_of(self, observer: Observer) -> Any:
        """Return the token that the observer returned for this request; None if it returned none."""
        found = self._tokens.get(id(observer))
        return None if found is None else found[1]

    def ended(self) -> None:
        """Notify the observers that the run is over."""
        with suppress(Exception):  # called when a run is collected, where no error can be handled
            for observer, token in self._tokens.values():
                _safely(observer, "request_ended", token)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside the ``with`` block, let :func:`current_request` return each observer's token for this request."""
        before = _REQUEST.set(self)
        try:
            yield
        finally:
            _REQUEST.reset(before)


_REQUEST: ContextVar[ObservedRequest | None] = ContextVar("vinelm observed request", default=None)


def current_request(observer: Observer) -> Any:
    """Return the token that an observer returned for the current request; None if there is none."""
    request = _REQUEST.get()
    return None if request is None else request.token_of(observer)


class ObserverGroup:
    """Notifies several observers. If one observer fails, all others are still notified.

    Attributes:
        observers: the observers to notify. If it is empty, callers do not even create events.
    """

    __slots__ = ("observers",)

    def __init__(self) -> None:
        self.observers: tuple[Observer, ...] = ()

    def add(self, observer: Observer) -> None:
        """Add an observer, which is notified from now on."""
        self.observers = (*self.observers, observer)

    def decided(self, decided: DecisionEvent) -> None:
        """Notify all observers of a decision."""
        for observer in self.observers:
            _safely(observer, "decided", decided)

    def began(self, stage: str, prefix: tuple[str, ...], model: Model) -> list[tuple[Observer, Any]]:
        """Notify all observers that an invocation begins; pass the returned value to :meth:`ended`."""
        return [(one, _safely(one, "began", stage, prefix, model)) for one in self.observers]

    @property
    def hears(self) -> bool:
        """Whether at least one observer captures prompts and answers."""
        return any(_listens(observer) for observer in self.observers)

    def exchanged(self, tokens: list[tuple[Observer, Any]], messages: Sequence[BaseMessage], answer: AIMessage | None) -> None:
        """Pass a model's prompt and answer to those observers that capture content."""
        for observer, token in tokens:
            if _listens(observer):
                _safely(observer, "exchanged", token, messages, answer)

    def drifted(self, moved: DriftEvent) -> None:
        """Notify the observers that have a method ``drifted``."""
        for observer in self.observers:
            _safely(observer, "drifted", moved)

    def canary_decided(self, shown: CanaryEvent) -> None:
        """Notify the observers that have a method ``canary_decided``."""
        for observer in self.observers:
            _safely(observer, "canary_decided", shown)

    def tool_ended(self, event: ToolEvent, ago_s: float) -> None:
        """Notify the observers that have a method ``tool_ended`` that a tool's call ended ``ago_s`` seconds ago.

        A prefetched call is reported when the application uses it, or when it is certain to stay unused.
        """
        for observer in self.observers:
            _safely(observer, "tool_ended", event, ago_s)

    def ended(self, tokens: list[tuple[Observer, Any]], invocation: Invocation | None) -> None:
        """Notify the observers that an invocation has ended, if they were notified of its beginning."""
        for observer, token in tokens:
            _safely(observer, "ended", token, invocation)


def _listens(observer: Observer) -> bool:
    return answered(lambda: getattr(observer, "captures_content", False) is True, otherwise=False)


def _safely(observer: Observer, method: str, *what: Any) -> Any:
    """Call the observer's method with the arguments ``what`` and return its result; None if the method is missing or fails."""
    try:
        return getattr(observer, method)(*what)
    except (KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError):
        raise
    except BaseException:
        return None
