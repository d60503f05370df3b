"""What a request shows while it runs, without ground truth: a signal after each invocation, and which answers agree."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from vinelm.errors import ConfigError, WorkflowError

Signal: TypeAlias = Callable[[Mapping[str, Any]], object] | Literal["status"]
Agree: TypeAlias = Callable[[Any, Any], bool]

MOST_SIGNALS = 8
"""The most labels that a signal may have."""
STATUS = ("error", "failed", "passed")
"""The labels of ``signal="status"``: the call failed; the workflow's own check failed the answer; it passed the answer."""


class Outcome(NamedTuple):
    """What one invocation showed.

    Args:
        signal: Its label; None if no signal is declared.
        answer_class: The class of its answer within the request, from 0; None without an answer.
    """

    signal: str | None
    answer_class: int | None


class Label(NamedTuple):
    """What is seen of an answer beside its class.

    Args:
        passed: The workflow's own check has passed it.
        signal: The signal; None without one.
    """

    passed: bool
    signal: str | None

    def __str__(self) -> str:
        verdict = STATUS[1 + self.passed]
        return verdict if self.signal in (None, verdict) else f"{verdict}, {self.signal}"


@dataclass(frozen=True, slots=True)
class Signals:
    """How a workflow shows what happened.

    Args:
        signal: ``signal(state)`` returns a label, a bool, a number to be put into bins, or None; at most 8 labels in all.
            ``"status"``: the workflow's own check. None: no signal.
        edges: Edges of the bins, increasing. A number x is in bin ``k`` if ``k`` edges are <= x.
        agree: ``agree(a, b)`` returns whether two answers are equal. It must be symmetric. An answer is the value of the one
            key of ``answer``, or a dict where there are several. None: answers are equal if their JSON is.
        answer: Keys of the state that make an answer. An answer whose values are all None is no answer.

    Raises:
        ConfigError: The edges do not increase or are too many, or ``agree`` is given without ``answer``.
    """

    signal: Signal | None = None
    edges: tuple[float, ...] = ()
    agree: Agree | None = None
    answer: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.signal, str) and self.signal != "status":
            raise ConfigError(f'signal={self.signal!r}: give a function of the state, or "status"')
        if self.edges and (self.signal is None or isinstance(self.signal, str)):
            raise ConfigError("signal_edges has no effect: it puts the numbers of a signal function into bins")
        if any(b <= a for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise ConfigError(f"signal_edges {self.edges}: they must increase")
        if len(self.edges) >= MOST_SIGNALS:
            raise ConfigError(
                f"{len(self.edges)} signal_edges make {len(self.edges) + 1} labels: at most {MOST_SIGNALS} are possible"
            )
        if self.agree is not None and not self.answer:
            raise ConfigError('agree needs to know what an answer is: name its keys of the state, as in answer=("sql", "rows")')

    @classmethod
    def of(cls, signal: Signal | None, edges: Sequence[float], agree: Agree | None, answer: Sequence[str]) -> Self | None:
        """Return what is declared; None if nothing is."""
        if isinstance(answer, str):
            raise ConfigError(f'answer={answer!r}: give a tuple of keys, as in answer=("{answer}",)')
        found = cls(signal, tuple(edges), agree, tuple(answer))
        return None if found == cls() else found

    def label(self, state: Mapping[str, Any], *, passed: bool | None) -> str | None:
        """Return the signal of a state as text; ``passed`` is the verdict of the workflow's own check, None if it has none.

        Raises:
            WorkflowError: The signal function raised, or returned what is no label.
        """
        if self.signal is None:
            return None
        if isinstance(self.signal, str):
            return None if passed is None else STATUS[1 + passed]
        try:
            value = self.signal(state)
        except Exception as error:
            raise WorkflowError(
                f"signal(state) raised {type(error).__name__}: it must return a label for every state"
            ) from error
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.edges and isinstance(value, int | float):
            return self._bin(float(value))
        if isinstance(value, int):
            return str(value)
        raise WorkflowError(
            f"signal(state) returned a {type(value).__name__}: return text, a bool or an int, or give signal_edges for numbers"
        )

    def answer_of(self, state: Mapping[str, Any]) -> Any:
        """Return the answer in a state: the value of the one key, or a dict of several; None if there is none.

        Raises:
            WorkflowError: The state lacks a key.
        """
        lacking = [key for key in self.answer if key not in state]
        if len(lacking) == len(self.answer):
            return None
        if lacking:
            raise WorkflowError(f"answer: the state has no key {lacking[0]!r}: it has {', '.join(sorted(map(str, state)))}")
        values = {key: state[key] for key in self.answer}
        if all(value is None for value in values.values()):
            return None
        return values[self.answer[0]] if len(self.answer) == 1 else values

    def equal(self, one: Any, other: Any) -> bool:
        """Return whether two answers are equal.

        Raises:
            WorkflowError: ``agree`` raised.
        """
        if self.agree is None:
            return canonical(one) == canonical(other)
        try:
            return bool(self.agree(one, other))
        except Exception as error:
            raise WorkflowError(f"agree(a, b) raised {type(error).__name__}: it must compare any two answers") from error

    def class_of(self, answer: Any, firsts: Sequence[Any]) -> int | None:
        """Return the class of an answer given the first answer of each earlier class; ``len(firsts)`` if it is a new class."""
        if answer is None:
            return None
        return next((j for j, first in enumerate(firsts) if self.equal(first, answer)), len(firsts))

    def _bin(self, value: float) -> str:
        k, edges = bisect_right(self.edges, value), self.edges
        if k == 0:
            return f"< {edges[0]:g}"
        return f">= {edges[-1]:g}" if k == len(edges) else f"{edges[k - 1]:g} to {edges[k]:g}"


def canonical(answer: Any) -> str:
    """Return an answer as canonical JSON text; what JSON does not know is written by ``str``."""
    return json.dumps(answer, ensure_ascii=False, sort_keys=True, default=str, separators=(",", ":"))


def digest(answer: Any) -> str:
    """Return the hash of an answer's canonical JSON."""
    return hashlib.sha256(canonical(answer).encode()).hexdigest()
