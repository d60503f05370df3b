"""The conditional edge that ends where the workflow's own check says so, or where the policy does."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, Protocol, get_args, get_origin

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Send

from vinelm.adapters.langgraph.graph_run import GraphRun
from vinelm.adapters.langgraph.path_channel import channel_of
from vinelm.adapters.langgraph.signature import InjectedParameters
from vinelm.adapters.langgraph.state_schema import own_state
from vinelm.errors import VineLMError, WorkflowError
from vinelm.policies import OnError
from vinelm.template import Template

ROUTE_INJECTED = ("config", "runtime")
"""Parameters that a route's function may have besides the state."""


_LOG = logging.getLogger(__name__)
UNDECLARED_TIMES = 25
"""The most turns of a loop whose bound is declared nowhere."""
ROUTE_MARK = "__vinelm_route_end__"
"""Attribute of a route's path function: the destination at which the loop ends."""


class RouteHost(Protocol):
    """What an edge needs of its adapter."""

    def path_of(self, config: RunnableConfig) -> tuple[GraphRun, tuple[str, ...]] | None:
        """Return the run that an edge belongs to and its path; None where no run is in progress."""

    @property
    def on_error(self) -> OnError:
        """What follows a failure of VineLM itself."""

    @property
    def template(self) -> Template | None:
        """The workflow's shape; None if it is not known."""


def make_route(
    host: RouteHost, fn: Callable[..., Any], asked: InjectedParameters, *, again: str, end: str, times: int | None = None
) -> Callable[..., Any]:
    """Return a path function for ``add_conditional_edges``; async if ``fn`` is.

    Whatever the policy and its mode, a loop is bounded: by the template's number of invocations, by ``times`` (how often in a
    row the edge leads to ``again``), and by :data:`UNDECLARED_TIMES` where neither is known.

    It takes (state, config) and nothing else: with a ``runtime`` parameter, ``update_state(as_node=...)`` would fail.
    """
    declared = get_args(asked.returns) if get_origin(asked.returns) is Literal else ()
    edge = _Edge(host, asked, again=again, end=end, destinations=frozenset((again, end, *declared)), times=times)

    def route(state: Any, config: RunnableConfig) -> Any:
        own, arguments = edge.arguments(state, config)
        return edge.decide(fn(own, **arguments), own, config)

    async def aroute(state: Any, config: RunnableConfig) -> Any:
        own, arguments = edge.arguments(state, config)
        return edge.decide(await fn(own, **arguments), own, config)

    wrapped: Callable[..., Any] = aroute if asked.is_async else route
    setattr(wrapped, ROUTE_MARK, end)
    wrapped.__name__ = wrapped.__qualname__ = getattr(fn, "__name__", "route")
    wrapped.__doc__ = getattr(fn, "__doc__", None)
    destinations = Literal[tuple(dict.fromkeys((again, end, *declared)))]  # type: ignore[valid-type]
    wrapped.__annotations__ = {"config": RunnableConfig, "return": destinations}
    if asked.state is not None:
        wrapped.__annotations__["state"] = asked.state
    return wrapped


class _Edge:
    __slots__ = ("again", "asked", "destinations", "end", "host", "times")

    def __init__(
        self,
        host: RouteHost,
        asked: InjectedParameters,
        *,
        again: str,
        end: str,
        destinations: frozenset[str],
        times: int | None,
    ) -> None:
        self.host, self.asked, self.again, self.end, self.destinations = host, asked, again, end, destinations
        self.times = times

    def arguments(self, state: Any, config: RunnableConfig) -> tuple[Any, dict[str, Any]]:
        try:
            own, _ = own_state(state)
        except Exception:
            if self.host.on_error == "raise":
                raise
            own = state
        found: dict[str, Any] = {}
        for name in self.asked.names:
            found[name] = config if name == "config" else (get_runtime() or Runtime())
        return own, found

    def decide(self, verdict: Any, state: Any, config: RunnableConfig) -> Any:
        """Return the destination. A verdict for a third place is followed as it is: the policy only decides the loop."""
        finished = self._finished(verdict)
        if finished is None:
            return verdict
        onward = verdict if not isinstance(verdict, (bool, str)) else self.again
        own = self.end if finished else onward
        found: tuple[GraphRun, tuple[str, ...]] | None = None
        try:
            found = self.host.path_of(config)
            if found is None:
                return own
            run, path = found
            if run.should_continue(path, finished, state) and self._has_turns_left(run, path):
                return self.again if finished else onward
            run.end_loop(self.again)
            return self.end
        except Exception as error:
            if self.host.on_error == "raise" or isinstance(error, VineLMError):
                raise
            if found is None:
                _LOG.warning(
                    "the edge to %r lost its run (%s): it follows the workflow's own verdict", self.again, type(error).__name__
                )
            else:
                found[0].note_failure(f"the edge to {self.again!r}", error, found[1])
            return onward if not finished and self._is_within_template(config) else self.end

    def _is_within_template(self, config: RunnableConfig) -> bool:
        """Whether the template allows another invocation after the path as the graph's channel has it.

        For an edge whose run cannot be found any more; where the path is not known either, the loop ends.
        """
        with suppress(Exception):
            template, channel = self.host.template, channel_of(config)
            if template is not None and channel is not None and channel.path:
                return bool(template.arms_after([entry["stage"] for entry in channel.path]))
        return False

    def _has_turns_left(self, run: GraphRun, path: tuple[str, ...]) -> bool:
        """Whether the loop's bound allows one more turn, which is then counted."""
        template = run.policy.template or self.host.template
        if template is not None and len(path) >= template.depth:
            return False
        undeclared = UNDECLARED_TIMES if template is None else template.depth
        allowed = undeclared if self.times is None else self.times
        if run.take_turn(self.again, allowed):
            return True
        if self.times is None and template is None:
            warnings.warn(
                f"the loop to {self.again!r} was ended after {allowed} turns: VineLM knows neither its template nor its bound: "
                "pass VineLM(..., template=), or vine.route(..., times=)",
                RuntimeWarning,
                stacklevel=2,
            )
        return False

    def _finished(self, verdict: Any) -> bool | None:
        if isinstance(verdict, bool):
            return verdict
        if verdict == self.end:
            return True
        if verdict == self.again:
            return False
        if isinstance(verdict, (list, tuple)) and verdict and all(self._goes_on(item) for item in verdict):
            return False
        if isinstance(verdict, str) and verdict not in self.destinations:
            raise WorkflowError(
                f"the route went to {verdict!r}, which is neither again={self.again!r} nor end={self.end!r}: "
                "return True or False, one of the two, or declare every place as the function's return type Literal[...]"
            )
        return None

    def _goes_on(self, item: Any) -> bool:
        return item == self.again or (isinstance(item, Send) and item.node == self.again)
