"""A workflow's scorer that uses the answers of the current setup as references for requests without labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from vinelm.errors import WorkflowError
from vinelm.signals.declaration import canonical

if TYPE_CHECKING:
    from vinelm.requests.workflow import Request

Score = Callable[["Request", Mapping[str, Any]], bool | float]


class ComparesAnswers(Protocol):
    """The interface of a function that compares a recorded answer of the current setup with another answer to the same
    request. Each answer has a text ``content``, and ``tool_calls``.
    """

    def __call__(self, recorded: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Return whether the two answers are the same."""

    def audit(self, recorded: Sequence[Mapping[str, Any]]) -> float:
        """Return which fraction, in [0, 1], of the answers that count as equal to the recorded ones people should check, too.

        It is above 0 if answers that count as equal may have different scores. ``recorded`` are the current setup's answers.
        """


@dataclass(frozen=True, kw_only=True)
class AsToday:
    """A workflow's scorer that compares answers to requests without labels with the current setup's answers.

    ``vinelm.as_today`` makes it.

    Attributes:
        answer: ``answer(state)`` returns the answer in a final state of the graph. None means that the answer consists of
            the values under the state keys that the workflow declares as ``answer``.
        same: Returns whether two answers are the same.
        score: Scores answers to requests with a label; None if no request has a label.
        labels: The keys of a request's row whose values form the label. A request that lacks one of these keys has no label.
    """

    answer: Callable[[Mapping[str, Any]], Any] | None
    same: ComparesAnswers
    score: Score | None = None
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.score is None) != (not self.labels):
            raise WorkflowError("as_today: score= and labels= go together: which keys of a row score(request, state) reads")

    def __call__(self, request: Request, state: Mapping[str, Any]) -> bool | float:
        """Return the score of the answer in ``state`` to a request with a label.

        Raises:
            WorkflowError: The request has no label. Only a profile can compare its answer with the current setup.
        """
        if self.score is None or not self.is_labelled(request):
            raise WorkflowError(f"request {request.id!r} has no label: only a profile compares it with what runs today")
        return self.score(request, state)

    def is_labelled(self, request: Request) -> bool:
        """Return whether the request has a label, which means a value for each key in ``labels``."""
        return bool(self.labels) and request.has(self.labels)

    def text(self, state: Mapping[str, Any]) -> str | None:
        """Return the answer in a state as canonical JSON text.

        The result is None if ``answer`` is None; the caller then reads the state keys that the workflow declares as answer.
        """
        return None if self.answer is None else canonical(self.answer(state))
