"""The node that ends a request: writes the answer that the policy trusts most."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels import AnyValue, BinaryOperatorAggregate, EphemeralValue, LastValue, UntrackedValue
from langgraph.channels.base import BaseChannel
from langgraph.channels.delta import DeltaChannel
from langgraph.channels.last_value import LastValueAfterFinish
from langgraph.types import Overwrite

from vinelm.adapters.langgraph.path.graph_values import channels_of
from vinelm.adapters.langgraph.path.outcomes import RunOutcomes
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY, channel_of
from vinelm.adapters.langgraph.runs.graph_run import GraphRun, RunPath
from vinelm.adapters.langgraph.runs.run_context import streams_tokens
from vinelm.adapters.langgraph.runs.run_finder import RunFinder
from vinelm.errors import VineLMError, WorkflowError

FINISH_MARK = "__vinelm_finish__"
"""Attribute that marks the function of the finish node; its value is True."""
_REPLACED = (LastValue, LastValueAfterFinish, AnyValue, EphemeralValue, UntrackedValue)
_REDUCED = (BinaryOperatorAggregate, DeltaChannel)
_WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_LOG = logging.getLogger(__name__)


def make_finish(finder: RunFinder) -> Callable[..., Any]:
    """Return a LangGraph node for the end of a request.

    The ``answer=`` keys are the keys of the state that hold the answer. If the policy chooses another answer than the last one,
    the node sets these keys to their values in the chosen answer. If tokens are streamed to the caller, the last answer stays.

    The node raises :class:`WorkflowError` if an ``answer=`` key is not in the graph's state or its value cannot be replaced.
    """

    def finish(state: Any, config: RunnableConfig) -> dict[str, Any]:
        found: RunPath | None = None
        try:
            found = finder.path_of(config)
            return {} if found is None else _finished(found.run, found.run.outcomes, found.path, state, config)
        except Exception as error:  # the boundary of the finish node
            if finder.settings.on_error == "raise" or isinstance(error, VineLMError):
                raise
            if found is None:
                _LOG.warning("the finish node lost its run (%s): the last answer is returned", type(error).__name__)
            else:
                found.run.note_failure("the finish node", error, found.path)
            return {}

    finish.__annotations__ = {"config": RunnableConfig}
    setattr(finish, FINISH_MARK, True)
    return finish


def _finished(
    run: GraphRun, outcomes: RunOutcomes, path: tuple[str, ...], state: Any, config: RunnableConfig
) -> dict[str, Any]:
    """Return the finish node's update of the state; empty if nothing has to be written.

    It has the invocation outcomes that are not stored yet. If an earlier answer is returned, it also has this answer's values.
    """
    channels, keys = channels_of(config), outcomes.signals.answer
    if keys and not channels:
        raise RuntimeError("this LangGraph hides its channels")
    _refuse(channels, keys)
    outcomes.tell_at(config, path, fresh=False, own=state)
    stored = channel_of(config)
    notes = outcomes.notes(stored.get()) if stored is not None and stored.path else []
    update: dict[str, Any] = {PATH_KEY: notes} if notes else {}
    wanted, classes = run.returned(path), outcomes.classes(path)
    if wanted is None or wanted == classes[-1]:
        return update
    if wanted not in classes:
        raise WorkflowError(f"the policy returns an answer of class {wanted}, of which the request has none")
    why = f"{_place(classes, wanted)}: {_agreement(classes, wanted)}"
    if streams_tokens(config):
        run.note_returned(path, f"returned the last answer, whose tokens were streamed, instead of {why}")
        return update
    run.note_returned(path, f"returned {why}")
    first = outcomes.firsts(path)[wanted]
    return update | {key: _replacing(channels[key], first[key]) for key in keys}


def _refuse(channels: Mapping[str, BaseChannel[Any, Any, Any]], keys: Sequence[str]) -> None:
    """Raise :class:`WorkflowError` if the graph's state lacks one of ``keys``, or if the value of one cannot be replaced.

    ``keys`` are the keys of the state that hold the answer.
    """
    for key in keys:
        channel = channels.get(key)
        if channel is None:
            raise WorkflowError(f"vine.finish cannot return an earlier answer: the graph's state has no key {key!r} (answer=)")
        if not isinstance(channel, _REPLACED + _REDUCED):
            raise WorkflowError(
                f"vine.finish cannot return an earlier answer: the state keeps {key!r} in a {type(channel).__name__}, "
                "which cannot be replaced: name another key in answer="
            )


def _replacing(channel: BaseChannel[Any, Any, Any], value: Any) -> Any:
    """Return the update that makes ``value`` the channel's value, bypassing the channel's reducer if it has one.

    An empty channel with a reducer takes its first value unchanged.
    """
    return Overwrite(value) if isinstance(channel, _REDUCED) and channel.is_available() else value


def _place(classes: Sequence[int | None], wanted: int) -> str:
    return f"answer {list(classes).index(wanted) + 1}"


def _agreement(classes: Sequence[int | None], wanted: int) -> str:
    """Return how many of the request's answers are equal to the returned one, as a text such as "two of three agree".

    ``classes`` has the number of the answer class (a group of equal answers) of each invocation, None without an answer;
    ``wanted`` is the class that is returned.
    """
    agreeing, all_ = list(classes).count(wanted), sum(one is not None for one in classes)
    if agreeing > 1:
        return f"{_word(agreeing)} of {_word(all_)} agree"
    return "no other answer" if all_ == 1 else f"none of {_word(all_)} agrees with it"


def _word(number: int) -> str:
    return _WORDS[number] if number < len(_WORDS) else str(number)
