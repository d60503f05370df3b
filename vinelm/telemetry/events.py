"""What an application's decisions and invocations are told to, while a request runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from vinelm.catalog import Model
from vinelm.protocols import Invocation

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, BaseMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionEvent:
    """One answer of a policy. ``kind`` is "model" (``model`` runs after ``prefix``) or "end" (of a loop; ``model`` is None).

    ``goes_on`` is False where the request ends. ``seconds`` is the wall time of the answer. ``explanation`` is the policy's own
    account of it (an item of ``session.trace()``), empty for policies that give none. Holds no prompt and no key.
    """

    kind: Literal["model", "end"]
    stage: str | None
    prefix: tuple[str, ...]
    model: str | None
    goes_on: bool
    seconds: float
    explanation: Mapping[str, Any]


class Observer(Protocol):
    """Is told of every decision and every invocation. Called from many threads; what it raises is swallowed."""

    def decided(self, decided: DecisionEvent) -> None:
        """A policy answered, this very moment."""

    def began(self, stage: str, prefix: tuple[str, ...], model: Model) -> Any:
        """The invocation of ``stage`` begins; ``prefix`` ends with its model. What comes back is handed to :meth:`ended`."""

    def ended(self, token: Any, invocation: Invocation | None) -> None:
        """It ended, well or badly; None where it was interrupted, to be run again."""


class Listener(Observer, Protocol):
    """An observer that also hears what is said, for as long as ``captures_content`` is true. Others never do."""

    captures_content: bool

    def exchanged(self, token: Any, messages: Sequence[BaseMessage], answer: AIMessage | None) -> None:
        """A model was called inside the invocation of ``token``; ``answer`` is what came of it, None where nothing did."""


class ObserverGroup:
    """Hands on to several observers. False where there are none, so that nobody pays for what nobody sees.

    An observer that fails is left out of that one event: it must not cost the request.
    """

    __slots__ = ("_observers",)

    def __init__(self) -> None:
        self._observers: tuple[Observer, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._observers)

    def add(self, observer: Observer) -> None:
        """Tell this one, too, from now on."""
        self._observers = (*self._observers, observer)

    def decided(self, decided: DecisionEvent) -> None:
        """Tell all of a decision."""
        for observer in self._observers:
            _safely(observer.decided, decided)

    def began(self, stage: str, prefix: tuple[str, ...], model: Model) -> list[tuple[Observer, Any]]:
        """Tell all of a beginning."""
        return [(one, _safely(one.began, stage, prefix, model)) for one in self._observers]

    @property
    def hears(self) -> bool:
        """Somebody has asked for what is said."""
        return any(_listens(observer) for observer in self._observers)

    def exchanged(self, tokens: list[tuple[Observer, Any]], messages: Sequence[BaseMessage], answer: AIMessage | None) -> None:
        """Tell those that asked."""
        for observer, token in tokens:
            if _listens(observer):
                _safely(cast("Listener", observer).exchanged, token, messages, answer)

    def ended(self, tokens: list[tuple[Observer, Any]], invocation: Invocation | None) -> None:
        """Tell those that were told of the beginning."""
        for observer, token in tokens:
            _safely(observer.ended, token, invocation)


def _listens(observer: Observer) -> bool:
    return getattr(observer, "captures_content", False) is True


def explanation_of(policy: Any) -> Mapping[str, Any]:
    """The last item of the policy's trace; empty where it keeps none."""
    steps = getattr(policy, "steps", None)  # a session's: one item is cheaper than the whole trace
    if steps and hasattr(steps[-1], "to_dict"):
        found: Mapping[str, Any] = steps[-1].to_dict()
        return found
    trace = getattr(policy, "trace", None)
    items = trace() if callable(trace) else ()
    return items[-1] if items else {}


def _safely(tell: Callable[..., Any], *what: Any) -> Any:
    try:
        return tell(*what)
    except Exception:
        return None
