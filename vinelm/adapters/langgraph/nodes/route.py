"""The conditional edge that leads where the workflow's own check says, or ends where the policy does."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END
from langgraph.runtime import Runtime, get_runtime

from vinelm.adapters.langgraph.nodes.destinations import UNDECLARED_TIMES, Destinations
from vinelm.adapters.langgraph.nodes.signature import InjectedParameters
from vinelm.adapters.langgraph.path.path_channel import channel_of, stage_names
from vinelm.adapters.langgraph.path.state_schema import own_state
from vinelm.adapters.langgraph.runs.graph_run import RunPath
from vinelm.adapters.langgraph.runs.run_finder import RunFinder
from vinelm.errors import TemplateError, VineLMError
from vinelm.template import Template

ROUTE_INJECTED = ("config", "runtime")
"""Parameters that a route's function may have besides the state."""


_LOG = logging.getLogger(__name__)
ROUTE_MARK = "__vinelm_route__"
"""Attribute of a route's path function: its :class:`RouteEdge`."""


def make_route(
    finder: RunFinder, fn: Callable[..., Any], asked: InjectedParameters, destinations: Destinations
) -> Callable[..., Any]:
    """Return a path function for ``add_conditional_edges``; async if ``fn`` is.

    Whatever the policy and its mode, a loop is bounded: by the template's number of invocations, by ``times`` (how often in a
    row the edge leads to a place), and by :data:`~vinelm.adapters.langgraph.nodes.destinations.UNDECLARED_TIMES` where neither
    is known.

    It takes (state, config) and nothing else: with a ``runtime`` parameter, ``update_state(as_node=...)`` would fail.
    """
    own = get_args(asked.returns) if get_origin(asked.returns) is Literal and not destinations.is_branch else ()
    edge = RouteEdge(finder, asked, destinations, frozenset(own))

    def route(state: Any, config: RunnableConfig) -> Any:
        own, arguments = edge.arguments(state, config)
        return edge.decide(fn(own, **arguments), own, config)

    async def aroute(state: Any, config: RunnableConfig) -> Any:
        own, arguments = edge.arguments(state, config)
        return edge.decide(await fn(own, **arguments), own, config)

    wrapped: Callable[..., Any] = aroute if asked.is_async else route
    setattr(wrapped, ROUTE_MARK, edge)
    wrapped.__name__ = wrapped.__qualname__ = getattr(fn, "__name__", "route")
    wrapped.__doc__ = getattr(fn, "__doc__", None)
    places = Literal[tuple(dict.fromkeys((*destinations.places, *own)))]  # type: ignore[valid-type]
    wrapped.__annotations__ = {"config": RunnableConfig, "return": places}
    if asked.state is not None:
        wrapped.__annotations__["state"] = asked.state
    return wrapped


class RouteEdge:
    """The decision of one conditional edge.

    Attributes:
        destinations: where it leads.
        arms: by place, the stages that it leads to; filled in where the compiled graph is read.
    """

    __slots__ = ("_asked", "_finder", "_own_places", "arms", "destinations")

    def __init__(
        self, finder: RunFinder, asked: InjectedParameters, destinations: Destinations, own_places: frozenset[str]
    ) -> None:
        self._finder, self._asked, self.destinations, self._own_places = finder, asked, destinations, own_places
        self.arms: Mapping[str, frozenset[str]] = {}

    def arguments(self, state: Any, config: RunnableConfig) -> tuple[Any, dict[str, Any]]:
        """Return the state as the application knows it, and what its function asks for besides."""
        try:
            own, _ = own_state(state)
        except Exception:
            if self._finder.settings.on_error == "raise":
                raise
            own = state
        found: dict[str, Any] = {}
        for name in self._asked.names:
            found[name] = config if name == "config" else (get_runtime() or Runtime())
        return own, found

    def decide(self, verdict: Any, state: Any, config: RunnableConfig) -> Any:
        """Return the destination. A verdict for a place of the application's own is followed as it is."""
        onward, places = self.destinations.read(verdict, self._own_places)
        end = self.destinations.end
        if not places or end is None:
            return onward
        finished = places == (end,)
        found: RunPath | None = None
        try:
            found = self._finder.path_of(config)
            if found is None:
                return onward
            if found.run.outcomes is not None:
                passed = (
                    finished
                    if _is_answerable(found.run.policy.template or self._finder.settings.template, found.stages)
                    else None
                )
                found.run.outcomes.tell_at(config, found.path, fresh=True, own=state, passed=passed)
            goes_on = self._goes_on(found, places, finished, state)
            if goes_on is not None:
                return goes_on if finished else onward
            for place in self.destinations.places:
                found.run.end_loop(place)
            return end
        except Exception as error:
            if self._finder.settings.on_error == "raise" or isinstance(error, VineLMError):
                raise
            what = self.destinations.name
            if found is None:
                _LOG.warning("the edge %s lost its run (%s): it follows the workflow's own verdict", what, type(error).__name__)
            else:
                found.run.note_failure(f"the edge {what}", error, found.path)
            return onward if not finished and self._is_within_template(config) else end

    def _goes_on(self, at: RunPath, places: tuple[str, ...], finished: bool, state: Any) -> str | None:
        """The place that a finished request goes on with, "" for what the verdict says; None where it ends."""
        template = at.run.policy.template or self._finder.settings.template
        end, onward = self.destinations.end, self.destinations.other_than_end if finished else ""
        next_places = tuple(place for place in places if place != end) if onward == "" else (onward,) if onward else ()
        arms = self._arms(next_places, template, at.stages)
        if self._may_end(template, at.stages):
            tells = self.destinations.is_branch or not (template is None or template.is_linear)
            if not at.run.should_continue(at.path, finished, state, arms=arms, tells_arms=tells):
                return None
        elif finished:
            return None
        return onward if next_places and self._has_turns_left(at, next_places, arms) else None

    def _may_end(self, template: Template | None, stages: tuple[str, ...]) -> bool:
        """Whether the policy is asked: the edge's end is one of the request, and there is an answer to end with."""
        end, is_branch = self.destinations.end, self.destinations.is_branch
        if not is_branch and (template is None or template.is_linear):
            return True
        if end is not None and end != END and self._arms_of(end, template):
            return False
        return _is_answerable(template, stages)

    def _arms(self, places: tuple[str, ...], template: Template | None, stages: tuple[str, ...]) -> frozenset[str] | None:
        """The stages that may come next, as the template has them here where it has one of them; None if not known."""
        found: set[str] = set()
        for place in places:
            arms = self._arms_of(place, template)
            if arms is None:
                return None
            found |= arms
        allowed = _allowed(template, stages)
        return frozenset(found & allowed) if allowed and found & allowed else frozenset(found)

    def _arms_of(self, place: str, template: Template | None) -> frozenset[str] | None:
        known = self.arms.get(place)
        if known is not None:
            return known
        if place == END:
            return frozenset()
        is_stage = place in self._finder.settings.declared or (
            template is not None and any(one.name == place for one in template.stages)
        )
        return frozenset((place,)) if is_stage else None

    def _is_within_template(self, config: RunnableConfig) -> bool:
        """Whether the template allows another invocation after the path as the graph's channel has it.

        For an edge whose run cannot be found any more; where the path is not known either, the loop ends.
        """
        with suppress(Exception):
            template, channel = self._finder.settings.template, channel_of(config)
            if template is not None and channel is not None and channel.path:
                if template.is_linear:
                    return template.stage_after(len(channel.path)) is not None
                return bool(_allowed(template, stage_names(channel.get())))
        return False

    def _has_turns_left(self, at: RunPath, places: tuple[str, ...], arms: frozenset[str] | None) -> bool:
        """Whether the bounds of the loop allow one more turn, which is then counted."""
        template = at.run.policy.template or self._finder.settings.template
        if template is not None and not _leaves_room(template, at, arms):
            return False
        for place in places:
            times = self.destinations.times.get(place)
            undeclared = UNDECLARED_TIMES if template is None else template.depth
            allowed = undeclared if times is None else times
            if at.run.take_turn(place, allowed):
                continue
            if times is None and template is None:
                warnings.warn(
                    f"the loop to {place!r} was ended after {allowed} turns: VineLM knows neither its template nor its bound: "
                    "pass VineLM(..., template=), or vine.route(..., times=)",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return False
        return True


def _is_answerable(template: Template | None, stages: tuple[str, ...]) -> bool:
    """Whether there is an answer behind these stages, as far as the template says."""
    if template is None or not stages:
        return True
    return all(stage.answerable for stage in template.stages if stage.name == stages[-1])


def _leaves_room(template: Template, at: RunPath, arms: frozenset[str] | None) -> bool:
    """Whether the template allows a stage behind the path; an arm that it has nowhere is no matter of its bound."""
    if template.is_linear:
        return template.stage_after(len(at.path)) is not None
    allowed = _allowed(template, at.stages)
    if allowed is None or arms == frozenset():
        return True
    if not allowed or arms is None or arms & allowed:
        return bool(allowed)
    return not any((at.stages[-1], arm) in template.flow.follows for arm in arms)


def _allowed(template: Template | None, stages: tuple[str, ...]) -> frozenset[str] | None:
    """The stages that a branching template allows next; None where it does not say, as behind an arm that it lacks."""
    if template is None or template.is_linear:
        return None
    try:
        return frozenset(stage.name for stage in template.arms_after(stages))
    except TemplateError:
        return None
