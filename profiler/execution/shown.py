"""What an invocation showed without ground truth: its signal and its answer, from the state that is also scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vinelm.errors import WorkflowError
from vinelm.observation import Observation
from vinelm.signals import Signals
from vinelm.signals.declaration import STATUS, digest_of_text
from vinelm.template import Stage


def with_shown(row: Observation, signals: Signals | None, values: Mapping[str, Any] | None, stage: Stage) -> Observation:
    """Return the row with the label of its state and its answer.

    Args:
        row: of an invocation that succeeded.
        signals: what the workflow declares; None leaves the row as it is.
        values: the state's own keys; None where no state can be seen yet, so that only ``"status"`` says something.
        stage: of the invocation. The workflow's own check passes or fails only what is answerable, and
            after any other stage some keys of the answer may still be to come.

    Raises:
        WorkflowError: the signal function raised or returned what is no label, or the answer's keys are wrong. Names the
            request and the invocation.
    """
    if signals is None:
        return row
    passed = row.stopped if stage.answerable else None
    try:
        if values is None and not isinstance(signals.signal, str):
            return row
        label = signals.label(values or {}, passed=passed)
        text = None if values is None else signals.answer_text(values, is_partial=not stage.answerable)
    except WorkflowError as error:
        where = f"request {row.request_id!r}, invocation {row.depth} ({row.stage!r})"
        raise WorkflowError(f"{where}: {error}", code=error.code) from error
    return replace(row, signal=label, answer=text, answer_digest=None if text is None else digest_of_text(text))


def with_error(row: Observation, signals: Signals | None) -> Observation:
    """Return a failed row with what ``signal="status"`` says of it; any other row as it is."""
    if row.failure is None or signals is None or signals.signal != "status":
        return row
    return replace(row, signal=STATUS[0])


__all__ = ["with_error", "with_shown"]
