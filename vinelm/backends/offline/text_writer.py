"""Simulated answers for workflows that have labels but no writer of their own."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from vinelm.backends.settings import ProviderSettings
from vinelm.errors import ConfigError, DatasetError
from vinelm.requests.workflow import AnswerWriter, Request

DEFAULT_ANSWER_KEY = "answer"


class TextWriter:
    """Writes the label as the right answer, or a different text as a wrong one. Long rows are harder."""

    kinds: Sequence[str] = ("near_miss", "off_topic")

    def __init__(self, answer_key: str = DEFAULT_ANSWER_KEY) -> None:
        self._key = answer_key

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return the skill ``length``: characters of the row over 1000, at most 1."""
        chars = sum(len(value) for key, value in request.data.items() if isinstance(value, str) and key != self._key)
        return {"length": min(1.0, chars / 1000.0)}

    def right(self, request: Request, rng: random.Random) -> str:
        """Return the label as text; :class:`DatasetError` if the row has none."""
        if self._key not in request.data:
            raise DatasetError(f"request {request.id!r}: the row has no {self._key!r}: name its label in answer_key")
        return str(request.data[self._key])

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return a number near the label, its letters shuffled, or an unrelated answer."""
        label = self.right(request, rng)
        if kind == "near_miss":
            near = _near(label, rng)
            if near.strip().lower() != label.strip().lower():
                return near
        return "I do not know" if label.strip().lower() != "i do not know" else "no answer"


def _near(label: str, rng: random.Random) -> str:
    try:
        return str(int(label) + rng.choice((-10, -1, 1, 2, 10)))
    except ValueError:
        pass
    try:
        return str(round(float(label) * rng.choice((0.5, 0.9, 1.1, 2.0)) + 1.0, 6))
    except ValueError:
        letters = list(label)
        rng.shuffle(letters)
        return "".join(letters)


def writer_for(settings: ProviderSettings) -> AnswerWriter:
    """Return the workflow's own writer, or a :class:`TextWriter` over its label; :class:`ConfigError` if it has neither."""
    workflow = settings.workflow
    if workflow is None:
        raise ConfigError("simulated models answer from a workflow's rows: give create_backends a workflow")
    if workflow.writer is not None:
        if "answer_key" in settings.table:
            raise ConfigError(f"[backend.simulated]: answer_key has no effect: workflow {workflow.name!r} has its own writer")
        return workflow.writer
    columns = workflow.requests[0].data
    only = workflow.labels[0] if len(workflow.labels) == 1 else DEFAULT_ANSWER_KEY
    key = settings.setting("answer_key", str, only)
    if key not in columns:
        raise ConfigError(
            f"workflow {workflow.name!r}: simulated models need the right answer and the rows have no {key!r}: "
            f"set answer_key under [backend.simulated] to one of {', '.join(columns)}, or give the workflow a writer"
        )
    return TextWriter(key)
