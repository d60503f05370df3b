"""Events of decisions and invocations while a request runs, and the observers that receive them."""

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
    """One answer of a policy. Holds no prompt and no key.

    Attributes:
        kind: "model" (``model`` runs after ``prefix``) or "end" (of a loop; ``model`` is None).
        goes_on: whether the request continues.
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
    """Is notified of every decision and every invocation, from many threads. Exceptions that it raises are ignored."""

    def decided(self, decided: DecisionEvent) -> None:
        """Called when a policy has just answered."""

    def began(self, stage: str, prefix: tuple[str, ...], model: Model) -> Any:
        """Called when an invocation of ``stage`` begins; ``prefix`` ends with its model. Returns a token for :meth:`ended`."""

    def ended(self, token: Any, invocation: Invocation | None) -> None:
        """Called when the invocation has ended; ``invocation`` is None if it was interrupted and will run again."""


class Listener(Observer, Protocol):
    """An observer that also receives prompts and answers while ``captures_content`` is true. Other observers never do."""

    captures_content: bool

    def exchanged(self, token: Any, messages: Sequence[BaseMessage], answer: AIMessage | None) -> None:
        """Called when a model was called in the invocation of ``token``; ``answer`` is None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftEvent:
    """Drift of one annotated quantity at one node.

    Attributes:
        stage, model, quantity, direction: the stage and model of the node's invocation; "stop", "dollars", "seconds" or
            "signal LABEL"; "up" or "down".
        path: the node's models from the first invocation on.
        annotated, seen: the trie's value, and the mean since the change.
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
    """What served requests show about a canary's plan.

    Attributes:
        advice: "keep" if the plan is worse and all requests run as today again, otherwise "switch".
        quantity: the figure that decided: "accuracy", "failures", "late", "dollars" or "seconds"; "more accurate" or "as
            accurate and cheaper".
        reason: the decision with both observed figures, as text.
    """

    advice: Literal["switch", "keep"]
    quantity: str
    reason: str


class ObservedRequest:
    """One run of a graph, for observers with a method ``request_began``, with each observer's token for it.

    Args:
        observers: the observers to notify. Their ``request_ended`` gets the token once the run is over and released.
    """

    __slots__ = ("_tokens",)

    def __init__(self, observers: tuple[Observer, ...]) -> None:
        began = [(one, _safely(one, "request_began")) for one in observers]
        self._tokens = {id(one): (one, token) for one, token in began if token is not None}

    def token_of(self, observer: Observer) -> Any:
        """Return the observer's token; None if it has none."""
        found = self._tokens.get(id(observer))
        return None if found is None else found[1]

    def ended(self) -> None:
        """Notify the observers that the run is over."""
        with suppress(Exception):  # called when a run is collected, where no error can be handled
            for observer, token in self._tokens.values():
                _safely(observer, "request_ended", token)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make :func:`current_request` return this request's token inside the block, which notifies observers."""
        before = _REQUEST.set(self)
        try:
            yield
        finally:
            _REQUEST.reset(before)


_REQUEST: ContextVar[ObservedRequest | None] = ContextVar("vinelm observed request", default=None)


def current_request(observer: Observer) -> Any:
    """Return the observer's token for the request of the current notification; None if unknown."""
    request = _REQUEST.get()
    return None if request is None else request.token_of(observer)


class ObserverGroup:
    """Notifies several observers. If an observer fails, only it misses the event.

    Attributes:
        observers: the observers to notify. Callers first check whether there are any, so unobserved events cost nothing.
    """

    __slots__ = ("observers",)

    def __init__(self) -> None:
        self.observers: tuple[Observer, ...] = ()

    def add(self, observer: Observer) -> None:
        """Notify this observer, too, from now on."""
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
        """True if some observer captures prompts and answers."""
        return any(_listens(observer) for observer in self.observers)

    def exchanged(self, tokens: list[tuple[Observer, Any]], messages: Sequence[BaseMessage], answer: AIMessage | None) -> None:
        """Notify the observers that capture content."""
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
        """Notify the observers that were notified of the beginning."""
        for observer, token in tokens:
            _safely(observer, "ended", token, invocation)


def _listens(observer: Observer) -> bool:
    return answered(lambda: getattr(observer, "captures_content", False) is True, otherwise=False)


def _safely(observer: Observer, method: str, *what: Any) -> Any:
    """Call the observer's method; ignore a missing method, and exceptions that do not end the program."""
    try:
        return getattr(observer, method)(*what)
    except (KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError):
        raise
    except BaseException:
        return None
