"""The conditional edge that ``vine.route`` makes: follows the workflow's own check, unless the policy ends the request."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Send

from vinelm.adapters.langgraph.nodes.signature import InjectedParameters
from vinelm.adapters.langgraph.path.path_channel import channel_of, stage_names
from vinelm.adapters.langgraph.path.state_schema import own_state
from vinelm.adapters.langgraph.runs.graph_run import RunPath
from vinelm.adapters.langgraph.runs.run_finder import RunFinder
from vinelm.errors import VineLMError, WorkflowError
from vinelm.template import Template

ROUTE_INJECTED = ("config", "runtime")
"""Parameters that a route's function may have in addition to the state."""
_LOG = logging.getLogger(__name__)
ROUTE_MARK = "__vinelm_route__"
"""Attribute of a route's path function: its :class:`RouteEdge`."""


UNDECLARED_TIMES = 25
"""How many turns a loop may take if no bound is declared."""
To = Sequence[str] | Mapping[Any, str]
"""The places of a route, or the place of each verdict."""


class Destinations:
    """The nodes (or END) to which one ``vine.route`` edge may lead. The arguments are those of :meth:`vinelm.VineLM.route`.

    Attributes:
        places: names of all these nodes, in order.
        end: the place where the policy may end the request; None if nowhere.
        again: the places other than ``end``; if ``end`` is the only place, a tuple with it.
        other_than_end: the only place in ``again``; None if there are several.
        times: for each place with a maximum, how often the route may lead to it.
        is_branch: whether the places were given as ``to``, rather than as ``again`` and ``end``.
        name: the route's name in messages.

    Raises:
        WorkflowError: the arguments do not fit together.
    """

    __slots__ = ("_by_verdict", "again", "end", "is_branch", "name", "other_than_end", "places", "times")

    def __init__(self, again: str | None, end: str | None, to: To | None, times: int | Mapping[str, int] | None) -> None:
        self.is_branch = to is not None
        if to is None:
            if again is None or end is None:
                raise WorkflowError("a route needs again= and end=, or its destinations: vine.route(fn, to=[...])")
            self.places: tuple[str, ...] = tuple(dict.fromkeys((again, end)))
            self._by_verdict: dict[Hashable, str] = {}
            self.end: str | None = end
            self.name = f"to {again!r}"
            label = f"route to {again!r} or {end!r}"
        else:
            if again is not None:
                raise WorkflowError(f"route to {again!r}: again= and to= exclude each other: name every destination in to=")
            named = list(to.values()) if isinstance(to, Mapping) else [to] if isinstance(to, str) else list(to)
            self.places = tuple(dict.fromkeys((*named, *([] if end is None else [end]))))
            self._by_verdict = dict(to) if isinstance(to, Mapping) else {}
            self.end = end or (END if END in self.places else None)
            self.name = f"to {', '.join(map(repr, self.places))}"
            label = f"route {self.name}"
            if not all(isinstance(place, str) and place for place in self.places) or len(self.places) < 2:
                raise WorkflowError(f"{label}: to= names at least two nodes: pass their names, or {{verdict: name}}")
        self.again = tuple(place for place in self.places if place != self.end) or self.places
        self.other_than_end = self.again[0] if len(self.again) == 1 else None
        self.times = self._bounds(times, label)

    def _bounds(self, times: int | Mapping[str, int] | None, label: str) -> dict[str, int]:
        bounds = dict(times) if isinstance(times, Mapping) else {} if times is None else dict.fromkeys(self.again, times)
        for place, most in bounds.items():
            if most < 1:
                raise WorkflowError(f"{label}: times is {most}: it must be at least 1")
            if place not in self.again:
                raise WorkflowError(f"{label}: times bounds {place!r}: use one of {', '.join(map(repr, self.again))}")
        if bounds and self.end is None:
            raise WorkflowError(f"{label}: times needs a place to go to when it is reached: pass end=")
        return bounds

    def read(self, verdict: Any, own_places: frozenset[str]) -> tuple[Any, tuple[str, ...]]:
        """Return where the edge leads, in a form that LangGraph accepts, and the names of the route's destinations in it.

        Args:
            verdict: the result of the application's function.
            own_places: the destinations (nodes or END) that the function's return type declares.

        Returns:
            The destination, and the names. The names are empty if LangGraph has to interpret ``verdict``, or if ``verdict`` is
                one of ``own_places``.

        Raises:
            WorkflowError: ``verdict`` names a destination that neither the route nor ``own_places`` has.
        """
        if not self.is_branch and isinstance(verdict, bool):
            place = self.end if verdict else self.again[0]
            assert place is not None
            return place, (place,)
        if self.is_branch:
            is_list = isinstance(verdict, (list, tuple)) and not (_is_hashable(verdict) and verdict in self._by_verdict)
            onward = [self._item(item) for item in verdict] if is_list else self._item(verdict)
            return onward, tuple(dict.fromkeys(map(_place, onward if is_list else [onward])))
        if isinstance(verdict, (list, tuple)):
            goes_on = bool(verdict) and all(_place(item) == self.again[0] for item in verdict)
            return verdict, self.again[:1] if goes_on else ()
        if isinstance(verdict, str) and verdict in self.places:
            return verdict, (verdict,)
        if isinstance(verdict, str) and verdict not in own_places:
            raise WorkflowError(
                f"the route went to {verdict!r}, which is neither again={self.again[0]!r} nor end={self.end!r}: "
                "return True or False, one of the two, or declare every place as the function's return type Literal[...]"
            )
        return verdict, ()

    def _item(self, item: Any) -> Any:
        """Return the destination that one element of the function's result stands for: a node's name, END or a ``Send``.

        Raises:
            WorkflowError: the element is none of the route's destinations.
        """
        if _is_hashable(item) and item in self._by_verdict:
            return self._by_verdict[item]
        if _place(item) in self.places:
            return item
        known = ", ".join(map(repr, self._by_verdict or self.places))
        raise WorkflowError(f"the route returned {item!r}, which is none of its destinations ({known}): name it in to=")


def make_route(
    finder: RunFinder, fn: Callable[..., Any], asked: InjectedParameters, destinations: Destinations
) -> Callable[..., Any]:
    """Return a path function for ``add_conditional_edges``; it is a coroutine function if ``fn`` is one.

    Whatever the policy, a loop ends: after the template's number of invocations, after ``times`` turns in a row to the same
    place, or after :data:`~vinelm.adapters.langgraph.nodes.route.UNDECLARED_TIMES` turns if neither limit is known.

    The path function takes only (state, config): with a ``runtime`` parameter, ``update_state(as_node=...)`` would fail.
    ``asked`` describes the parameters that ``fn`` takes; ``destinations`` has the places to which the edge may lead.
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
    """Decides where one conditional edge leads.

    Attributes:
        destinations: the places to which the edge may lead.
        arms: for each place, the stages that may come next; filled in when the compiled graph is read.

    Args:
        finder: finds the request's run and its path so far.
        asked: the parameters of the application's function.
        destinations: see the attributes.
        own_places: the places that the return type of the application's function declares.
    """

    __slots__ = ("_asked", "_finder", "_own_places", "arms", "destinations")

    def __init__(
        self, finder: RunFinder, asked: InjectedParameters, destinations: Destinations, own_places: frozenset[str]
    ) -> None:
        self._finder, self._asked, self.destinations, self._own_places = finder, asked, destinations, own_places
        self.arms: Mapping[str, frozenset[str]] = {}

    def arguments(self, state: Any, config: RunnableConfig) -> tuple[Any, dict[str, Any]]:
        """Return the arguments for the application's function: the state without VineLM's channel, and the keywords."""
        own, _ = own_state(state, self._finder.settings.on_error)
        found: dict[str, Any] = {}
        for name in self._asked.names:
            found[name] = config if name == "config" else (get_runtime() or Runtime())
        return own, found

    def decide(self, verdict: Any, state: Any, config: RunnableConfig) -> Any:
        """Return the place where the edge leads, given ``verdict``, the result of the application's function.

        The function's return type may declare places outside of the route. A result that names such a place is followed
        unchanged.
        """
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
            template = found.run.policy.template or self._finder.settings.template
            is_answer = _is_answerable(template, found.stages)
            found.run.outcomes.tell_at(config, found.path, fresh=True, own=state, passed=finished if is_answer else None)
            # Report first, then ask: the plan uses what this call has shown.
            goes_on = self._goes_on(found, places, finished, state, template, is_answer=is_answer)
            if goes_on is not None:
                return goes_on if finished else onward
            for place in self.destinations.places:
                found.run.end_loop(place)
            return end
        except Exception as error:  # the boundary of an edge
            if self._finder.settings.on_error == "raise" or isinstance(error, VineLMError):
                raise
            what = self.destinations.name
            if found is None:
                _LOG.warning("the edge %s lost its run (%s): it follows the workflow's own verdict", what, type(error).__name__)
            else:
                found.run.note_failure(f"the edge {what}", error, found.path)
            return onward if not finished and self._is_within_template(config) else end

    def _goes_on(
        self, at: RunPath, places: tuple[str, ...], finished: bool, state: Any, template: Template | None, *, is_answer: bool
    ) -> str | None:
        """Return the place where the request continues; "" to follow the application's function; None if the request ends.

        Args:
            at: the run and the request's path.
            places: the places that the function's result names.
            finished: whether the function's result is the edge's ``end``.
            state: the state that the edge sees.
            template: the workflow's shape, if known.
            is_answer: whether the request has an answer here, so that the policy may end it.
        """
        end, onward = self.destinations.end, self.destinations.other_than_end if finished else ""
        next_places = tuple(place for place in places if place != end) if onward == "" else (onward,) if onward else ()
        if not self.destinations.is_branch and (template is None or template.certain_stages):
            arms, is_asked = None, True  # only the template tells what comes next
        else:
            arms = self._arms(next_places, template, at.stages)
            is_asked = (end is None or end == END or not self._arms_of(end, template)) and is_answer
        goes_on = at.run.should_continue(at.path, finished, state, arms) if is_asked else not finished
        if not goes_on:
            return None
        return onward if next_places and self._has_turns_left(at, template, next_places, arms) else None

    def _arms(self, places: tuple[str, ...], template: Template | None, stages: tuple[str, ...]) -> frozenset[str] | None:
        """Return the stages that may come next at ``places``; None if unknown.

        ``stages`` are the stages of the request so far. Stages that the template does not allow next are left out, unless it
        allows none of the stages that may come at ``places``.
        """
        found: set[str] = set()
        for place in places:
            arms = self._arms_of(place, template)
            if arms is None:
                return None
            found |= arms
        allowed = None if template is None else template.choices_after(stages)
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
        """Return whether the template allows another invocation after the path in the graph's channel.

        Used for an edge whose run cannot be found. If the path is unknown, returns False, so that a loop ends.
        """
        with suppress(Exception):  # LangGraph's internals
            template, channel = self._finder.settings.template, channel_of(config)
            if template is not None and channel is not None and channel.path:
                return bool(template.stages_at(len(channel.path) + 1, stage_names(channel.get())))
        return False

    def _has_turns_left(
        self, at: RunPath, template: Template | None, places: tuple[str, ...], arms: frozenset[str] | None
    ) -> bool:
        """Count one more turn of the loop to each of ``places``; return whether all limits allow this turn.

        The limits are the template and the maximum numbers of turns. ``arms`` are the stages that may come next at these
        places; None if unknown.
        """
        if template is not None and not template.leaves_room(len(at.path), at.stages, arms):
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
    """Return whether the request has an answer after these stages, according to the template."""
    if template is None or not stages:
        return True
    return all(stage.answerable for stage in template.stages if stage.name == stages[-1])


def _place(item: Any) -> Any:
    return item.node if isinstance(item, Send) else item


def _is_hashable(item: Any) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True
