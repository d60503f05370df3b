"""The middleware that lets a ``create_agent`` agent run each model call on the model that the policy chooses."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NotRequired, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import Command

from vinelm.adapters.langgraph.adapter import GraphAdapter, GraphInterface
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY, PathChannel, PathValue
from vinelm.adapters.langgraph.runs.invocation import InvocationScope
from vinelm.adapters.langgraph.runs.run_context import carried_by
from vinelm.adapters.langgraph.runs.run_finder import InvokeOptions
from vinelm.errors import VineLMError
from vinelm.extras import required_extra
from vinelm.policies.policy import OnError

with required_extra("langchain", "VineMiddleware"):
    from langchain.agents.middleware import AgentMiddleware, AgentState, ExtendedModelResponse, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import PrivateStateAttr

STAGE = "model"
"""The node in which ``create_agent`` calls its model, and so the name of the stage of an agent that is the root graph."""


class RoutedAgentState(AgentState[Any]):
    """An agent's state plus the path of its model calls, which is checkpointed but not part of input or output."""

    # LangGraph reads the channel off the last piece of metadata; anywhere else it would be overwritten, silently
    vinelm_path: NotRequired[Annotated[Any, PrivateStateAttr, PathChannel]]


class VineMiddleware(AgentMiddleware[Any, Any, Any]):
    """A middleware that makes each call of an agent's model an invocation of the stage ``"model"``.

    For VineLM a ReAct agent is the template ``Template((Loop((Stage("model"),), times=n),))``. The policy's model replaces the
    agent's model. The agent binds its tools, tool choice, response format and settings to the chosen model. If a middleware
    inside this one repeats a call, all attempts of the call belong to one invocation. ``default`` is the model that runs
    without a plan. An agent inside another graph needs its own ``stage`` name.
    """

    state_schema = RoutedAgentState

    def __init__(self, vine: GraphInterface, *, stage: str = STAGE, default: str | None = None) -> None:
        super().__init__()
        self._adapter = vine.adapter
        self._stage, self._default = stage, default
        self._adapter.declare(stage, default, is_agent=True)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ExtendedModelResponse[Any]:
        """Call the chosen model through ``handler``. Return the response with an update of the path in the agent's state."""
        adapter, how, failure = self._found(request)
        with adapter.invoke(*self._place(request), **how) as scope:
            if failure is not None:
                scope.note_failure("the agent's call", failure)
            response = handler(_on(scope.model, request))
        return _written(response, scope, adapter.on_error)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ExtendedModelResponse[Any]:
        """Call the chosen model through ``handler``, like :meth:`wrap_model_call`, without blocking the event loop."""
        adapter, how, failure = self._found(request)
        async with await adapter.ainvoke(*self._place(request), **how) as scope:
            if failure is not None:
                scope.note_failure("the agent's call", failure)
            response = await handler(_on(scope.model, request))
        return _written(response, scope, adapter.on_error)

    def _found(self, request: ModelRequest[Any]) -> tuple[GraphAdapter, InvokeOptions, Exception | None]:
        """Return the adapter of this run, the options for the invocation, and an error.

        The error is None unless reading the application's context or state has failed. Then the options have only default
        values, and the adapter may be the one that made this middleware.
        """
        adapter, plain = self._adapter, InvokeOptions(run_is_request=True, default=self._default)
        try:
            adapter = self._serving(request)
            return adapter, self._how(request), None
        except VineLMError:  # what the application has to mend, such as an unknown model
            raise
        except Exception as error:  # the context and the state are the application's
            if adapter.on_error == "raise":
                raise
            return adapter, plain, error

    def _serving(self, request: ModelRequest[Any]) -> GraphAdapter:
        """Return the adapter of the run's ``VineLM``, which need not be the object that made this middleware."""
        adapter = carried_by(request.runtime.context).owner.adapter or self._adapter
        if self._stage not in adapter.stages:
            known = self._default in adapter.catalog
            adapter.declare(self._stage, self._default if known else None, is_agent=True)
        return adapter

    def _place(self, request: ModelRequest[Any]) -> tuple[str, PathValue | None, RunnableConfig, Runtime[Any]]:
        """Return where the call is made: the stage's name, the path stored in the agent's state (None if there is none), and
        LangGraph's config and runtime.
        """
        return self._stage, cast("PathValue | None", request.state.get(PATH_KEY)), get_config(), request.runtime

    def _how(self, request: ModelRequest[Any]) -> InvokeOptions:
        """Return the options for the invocation. The invocation continues the request's path if the last message is a tool's
        answer.
        """
        is_under_way = bool(request.messages) and isinstance(request.messages[-1], ToolMessage)
        return {"continues": is_under_way, "run_is_request": True, "tools": request.tools, "default": self._default}


def _written(response: ModelResponse[Any] | AIMessage, scope: InvocationScope, on_error: OnError) -> ExtendedModelResponse[Any]:
    """Return the response together with the update of the state's path for the invocation ``scope``.

    The update is left out if the run keeps the path in memory. It is also left out if VineLM's own code fails and ``on_error``
    is not "raise".
    """
    if isinstance(response, AIMessage):
        response = ModelResponse(result=[response])
    with scope.noting("the path's entry", may_raise=on_error == "raise"):
        if not scope.is_kept_by_run:
            return ExtendedModelResponse(model_response=response, command=Command(update={PATH_KEY: scope.update()}))
    return ExtendedModelResponse(model_response=response)


def _on(model: BaseChatModel, request: ModelRequest[Any]) -> ModelRequest[Any]:
    """Return a copy of the request with another model, like ``request.override(model=model)``.

    ``override`` is slow: it would take a quarter of the middleware's time. To silence its own warnings, it also replaces the
    warning filters of the whole process, which other threads use.
    """
    routed = copy.copy(request)
    object.__setattr__(routed, "model", model)  # a plain assignment warns
    return routed
