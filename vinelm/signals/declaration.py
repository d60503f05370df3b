"""Declares a workflow's signals: what is known without ground truth, namely a label after each call and which answers agree."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, TypeAlias, cast

from vinelm.errors import ConfigError, WorkflowError, is_of_code
from vinelm.template.steps import SKIP

Signal: TypeAlias = Callable[[Mapping[str, Any]], object] | Literal["status"]
Agree: TypeAlias = Callable[[Any, Any], bool]

MOST_SIGNALS = 8
"""The most labels that a signal may have."""
UNCLEAR = "unclear"
"""The label of a judge whose reply could not be read."""
STATUS = ("error", "failed", "passed")
"""The labels of ``signal="status"``: the call failed; the workflow's own check failed the answer; it passed the answer."""


class Outcome(NamedTuple):
    """What a call has shown without the ground truth: its signal and the class of its answer.

    Args:
        signal: The label that the declared signal gave the call; None if no signal is declared.
        answer_class: The number of the class of equal answers that the call's answer belongs to, from 0 in each request;
            None without an answer.
    """

    signal: str | None
    answer_class: int | None


class Label(NamedTuple):
    """What is known about an answer at run time, besides the class of equal answers that it belongs to.

    Args:
        passed: Whether the workflow's own check has passed the answer.
        signal: The signal; None without one.
        arm: The stage to which the application continues; None if only one stage can follow, or the request ends.
    """

    passed: bool
    signal: str | None
    arm: str | None = None

    @classmethod
    def of(cls, passed: bool, signal: str | None) -> Self:
        """Return the label of an answer; a ``signal`` that only repeats the check's result (``passed``) becomes None."""
        return cls(passed, None if signal == STATUS[1 + passed] else signal)

    def __str__(self) -> str:
        verdict = STATUS[1 + self.passed]
        return verdict if self.signal is None else f"{verdict}, {self.signal}"


@dataclass(frozen=True, slots=True)
class Signals:
    """A workflow's declaration of its signals. It is false in a boolean context if no signal is declared.

    Args:
        signal: ``signal(state)`` returns a label, a bool, a number to be put into bins, or None or "" if there is nothing to
            report; at most 8 labels in all. ``"status"``: the workflow's own check. None: no signal.
        edges: Edges of the bins, increasing. A number x is in bin ``k`` if ``k`` edges are <= x.
        agree: ``agree(a, b)`` returns whether two answers are equal; symmetric. An answer is the value of the single key of
            ``answer``, or a dict of several, always as JSON returns it (lists instead of tuples). A value that does not agree
            with itself is not an answer; ``agree`` can mark errors in this way. None: answers are equal if their JSON texts are
            equal.
        answer: Keys of the state that make an answer. If all their values are None, there is no answer yet.

    Raises:
        ConfigError: The edges do not increase or are too many, or ``agree`` is given without ``answer``.
    """

    signal: Signal | None = None
    edges: tuple[float, ...] = ()
    agree: Agree | None = None
    answer: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(cast("object", self.answer), str):
            raise ConfigError(f'answer={self.answer!r}: give a tuple of keys, as in answer=("{self.answer}",)')
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
    def of(cls, signal: Signal | None, edges: Sequence[float], agree: Agree | None, answer: Sequence[str]) -> Self:
        """Return the signals that a workflow declares by its arguments of the same names."""
        keys: Any = answer if isinstance(answer, str) else tuple(answer)  # a text is refused, not read as its letters
        return cls(signal, tuple(edges), agree, keys)

    def __bool__(self) -> bool:
        return self.signal is not None or bool(self.answer)

    def label(
        self, state: Mapping[str, Any], *, passed: bool | None, verdict: str | None = None, model: str | None = None
    ) -> str | None:
        """Return the signal of a state as text; None if no signal is declared, the stage was skipped, or there is nothing to
        report.

        Args:
            state: The state's own keys and their values.
            passed: The result of the workflow's own check; None without a check.
            verdict: For a stage that judges answers: the key of the state under which it has just written its label
                (``Stage.verdict``). That label is then the signal. None for other stages.
            model: The model that ran, or :data:`SKIP` for a skipped stage, which has no signal.

        Raises:
            WorkflowError: The signal function raised, or did not return a label.
        """
        if model == SKIP or not self:
            return None
        if verdict is not None:
            said = state.get(verdict)
            return _storable(said) if isinstance(said, str) and said else UNCLEAR
        if self.signal is None:
            return None
        if isinstance(self.signal, str):
            return None if passed is None else STATUS[1 + passed]
        try:
            value = self.signal(state)
        except BaseException as error:
            if not is_of_code(error):
                raise
            raise WorkflowError(
                f"signal(state) raised {type(error).__name__}: it must return a label for every state"
            ) from error
        if value is None or isinstance(value, str):
            return _storable(value) if value else None
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.edges and isinstance(value, int | float):
            if value != value:  # noqa: PLR0124 - NaN is in no bin, and would be put into the last
                raise WorkflowError("signal(state) returned NaN: return a number, or None where there is none")
            return self._bin(float(value))
        if isinstance(value, int):
            return str(value)
        raise WorkflowError(
            f"signal(state) returned a {type(value).__name__}: return text, a bool or an int, or give signal_edges for numbers"
        )

    def answer_of(self, state: Mapping[str, Any], *, is_partial: bool = False) -> Any:
        """Return the answer in a state: the value of the only answer key, or a dict with the values of several; None without
        one.

        A state that lacks all of the keys holds no answer yet. The values are the same as when a stored answer is read back.

        Args:
            state: The state's own keys and their values.
            is_partial: Whether the state may lack some of the keys; it then holds no answer yet.

        Raises:
            WorkflowError: The state lacks some of the keys and is not partial, or JSON cannot hold a value.
        """
        text = self.answer_text(state, is_partial=is_partial)
        return None if text is None else json.loads(text)

    def answer_text(self, state: Mapping[str, Any], *, is_partial: bool = False) -> str | None:
        """Return the answer in a state as canonical JSON text; see :meth:`answer_of`."""
        lacking = [key for key in self.answer if key not in state]
        if len(lacking) == len(self.answer) or (lacking and is_partial):
            return None
        if lacking:
            raise WorkflowError(f"answer: the state has no key {lacking[0]!r}: it has {', '.join(sorted(map(str, state)))}")
        values = {key: state[key] for key in self.answer}
        if all(value is None for value in values.values()):
            return None
        return canonical(values[self.answer[0]] if len(self.answer) == 1 else values)

    def equal(self, one: Any, other: Any) -> bool:
        """Return whether two answers are equal.

        Raises:
            WorkflowError: ``agree`` raised.
        """
        if self.agree is None:
            return canonical(one) == canonical(other)
        try:
            return bool(self.agree(one, other))
        except BaseException as error:
            if not is_of_code(error):
                raise
            raise WorkflowError(f"agree(a, b) raised {type(error).__name__}: it must compare any two answers") from error

    def class_of(self, answer: Any, firsts: Sequence[Any]) -> int | None:
        """Return the number of the class of equal answers that an answer belongs to; ``len(firsts)`` for a new class.

        ``firsts`` has the first answer of each class so far.

        The result is None if the value is not an answer: it is None, or does not agree with itself.
        """
        if answer is None or (self.agree is not None and not self.equal(answer, answer)):
            return None
        return next((j for j, first in enumerate(firsts) if self.equal(first, answer)), len(firsts))

    def _bin(self, value: float) -> str:
        k, edges = bisect_right(self.edges, value), self.edges
        if k == 0:
            return f"< {edges[0]:g}"
        return f">= {edges[-1]:g}" if k == len(edges) else f"{edges[k - 1]:g} to {edges[k]:g}"


class Labels:
    """The different labels that a workflow's signal has given so far, at most :data:`MOST_SIGNALS`.

    Args:
        known: The labels that earlier invocations got.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.known = set(known)

    def add(self, label: str | None, request_id: str) -> None:
        """Add the label of a request's invocation; None means no label.

        Raises:
            WorkflowError: There are too many labels; the message names the label and the request.
        """
        if label is None or label in self.known:
            return
        self.known.add(label)
        if len(self.known) > MOST_SIGNALS:
            shown = label if len(label) <= _SHOWN else f"{label[:_SHOWN]}..."
            raise WorkflowError(
                f"request {request_id!r}: signal(state) returned {shown!r}, value {len(self.known)} of the signal, and at most "
                f"{MOST_SIGNALS} are possible: group its values, or put numbers into bins with signal_edges",
                code="too-many-signals",
            )


_SHOWN = 60


def canonical(answer: Any) -> str:
    """Return an answer as canonical JSON text. Sets become sorted lists; dates, other number types and the like become text.

    Raises:
        WorkflowError: The answer contains an object that is not a plain value; the message names the type.
    """
    try:
        text = _text(answer, ensure_ascii=False)
        return text if _is_unicode(text) else _text(answer, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise WorkflowError(
            f"an answer cannot be kept as JSON ({type(error).__name__}): answer= must name keys with plain values"
        ) from error


def digest(answer: Any) -> str:
    """Return a hash of an answer's canonical JSON text, equal for equal answers."""
    return digest_of_text(canonical(answer))


def digest_of_text(text: str) -> str:
    """Return the hash of an answer that is given as its canonical JSON text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _text(answer: Any, *, ensure_ascii: bool) -> str:
    return json.dumps(answer, ensure_ascii=ensure_ascii, sort_keys=True, default=_plain, separators=(",", ":"))


def _storable(text: str) -> str:
    """Return the text in a form that every store accepts: unpaired surrogates and NUL, which models sometimes write, are
    escaped.
    """
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _is_unicode(text: str) -> bool:
    """Return whether a text is valid Unicode; models sometimes write unpaired surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: Any) -> Any:
    """Return plain JSON values for an object that JSON cannot write, such as a set, bytes, a date or a Pydantic model."""
    if isinstance(value, set | frozenset):
        return [json.loads(text) for text in sorted(map(canonical, value))]
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return value.tolist()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    text = str(value)
    if text == object.__repr__(value):  # the text contains an address
        raise WorkflowError(
            f"an answer holds an object of type {type(value).__name__}: answer= must name keys with plain values"
        )
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAnswer:
    """The result of one call for an evaluation: whether its answer is right, its signals, its dollars and its seconds.

    Attributes:
        success: Whether the answer is right by the ground truth; False for a failed call.
        passed: Whether the workflow's own check passes the answer; False for a failed call.
        signal: The label that :meth:`~vinelm.signals.Signals.label` returns.
        answer: The answer that :meth:`~vinelm.signals.Signals.answer_of` returns; None without an answer.
        cost_usd: Cost of the call in dollars, >= 0.
        latency_s: Duration of the call in seconds, >= 0.
        has_failed: Whether the call failed, so that the request failed, too.
    """

    success: bool
    passed: bool
    signal: str | None
    answer: Any
    cost_usd: float
    latency_s: float
    has_failed: bool = False
