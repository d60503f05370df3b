"""Facts of an application that is not run: its stages, the template of its graph, and the keys of its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph import template_of_graph
from vinelm.adapters.langgraph.exits import with_graph_exits
from vinelm.adapters.langgraph.nodes.user_code import user_place
from vinelm.adapters.langgraph.structure.chat_search import HeldStages, chat_nodes, wrapped_stages
from vinelm.api import VineLM
from vinelm.backends import simulated_catalog
from vinelm.errors import InputError
from vinelm.requests.workflow import Request, Workflow
from vinelm.scaffold.model_calls import ModelCall, model_calls
from vinelm.scaffold.target import Target, find_target
from vinelm.template import Branch, Loop, Template
from vinelm.template.steps import Step, walk

_GRAPH_LIMIT = 25
"""Turns of a loop whose graph names no bound: LangGraph's own limit."""
_FEW_TURNS = 3
"""A loop of so many turns needs no memory: all its histories can be told apart."""


@dataclass(frozen=True, kw_only=True)
class AppGraph:
    """A graph, and what was read off it.

    Attributes:
        target: Where the graph is.
        stages: Its LLM nodes, in the order in which they were added.
        nodes: All its nodes.
        template: Its stages, branches and loops; None where the graph does not say enough.
        reason: Why there is no template; None where there is one.
        calls: The places where models are made that VineLM does not choose; empty if it makes them already.
        input_keys: Keys of the state that an input may have.
        output_keys: Keys that the final state may have.
        waiting: Nodes that wait for a person (LangGraph's ``interrupt``).
    """

    target: Target
    stages: tuple[str, ...]
    nodes: tuple[str, ...]
    template: Template | None
    reason: str | None
    calls: tuple[ModelCall, ...]
    input_keys: tuple[str, ...]
    output_keys: tuple[str, ...]
    waiting: tuple[str, ...]

    @property
    def open_loops(self) -> bool:
        """True if a loop of the template has no bound of its own."""
        steps = () if self.template is None else tuple(walk(self.template.steps))
        return any(isinstance(step, Loop) and step.times >= _GRAPH_LIMIT for step in steps)

    def with_loops(self, times: int) -> AppGraph:
        """Return the application with that many turns, at most, of each loop that has no bound of its own."""
        if self.template is None:
            return self
        steps = tuple(_bounded(step, times) for step in self.template.steps)
        return replace(self, template=replace(self.template, steps=steps))

    @property
    def models(self) -> tuple[str, ...]:
        """The models that it uses today, as ``provider:model``, as far as its source says."""
        return tuple(dict.fromkeys(call.model for call in self.calls if call.model is not None))


def read_application(spec: str | None, folder: Path) -> AppGraph:
    """Import the application that ``spec`` names and read its graph. No node runs and no model is called.

    Args:
        spec: See :func:`~vinelm.scaffold.target.find_target`.
        folder: The working folder.

    Raises:
        ConfigError: No graph is named, or several are possible.
        WorkflowError: The graph cannot be imported or built, or no node of it calls a chat model.
    """
    target = find_target(spec, folder)
    vine = VineLM(simulated_catalog("paper-2"))
    graph = target.built(vine)
    held = chat_nodes(graph, is_any=True)
    wrapped = wrapped_stages(graph)
    stages = tuple(node for node in graph.builder.nodes if node in held or node in wrapped or node in vine.adapter.agents)
    template, reason = _template(graph, vine, held)
    calls = () if target.kind in ("model-maker", "vine-maker") else tuple(model_calls(target.module, target.root))
    return AppGraph(
        target=target,
        stages=stages,
        nodes=tuple(graph.builder.nodes),
        template=template,
        reason=reason,
        calls=calls,
        input_keys=_keys(graph, graph.builder.input_schema),
        output_keys=_keys(graph, graph.builder.output_schema),
        waiting=tuple(node for node, spec in graph.builder.nodes.items() if _waits(node, spec.runnable)),
    )


def _template(
    graph: CompiledStateGraph[Any, Any, Any, Any], vine: VineLM, held: Mapping[str, HeldStages]
) -> tuple[Template | None, str | None]:
    """The template that the graph implies, or why it implies none."""
    unread = Workflow(name="app", build=lambda _: graph, requests=(Request("none", {}),), score=lambda *_: False)
    try:
        return with_graph_exits(template_of_graph(unread, graph, vine.adapter.agents, held), graph), None
    except InputError as error:
        return None, str(error).removeprefix("workflow 'app': ")
    except Exception as error:  # what an application may build is not bounded
        place = user_place(error)
        return None, f"{type(error).__name__}: {error}" + (f" at {place}" if place else "")


def _bounded(step: Step, times: int) -> Step:
    if isinstance(step, Branch):
        return Branch({label: tuple(_bounded(inner, times) for inner in steps) for label, steps in step.ways.items()})
    if not isinstance(step, Loop):
        return step
    steps = tuple(_bounded(inner, times) for inner in step.stages)
    if step.times < _GRAPH_LIMIT:
        return replace(step, stages=steps)
    memory = None if times <= _FEW_TURNS else step.memory
    return replace(step, stages=steps, times=times, memory=memory)


def _waits(node: str, runnable: Any) -> bool:
    """True if a node calls ``interrupt``, or is LangChain's middleware that does."""
    functions = (getattr(runnable, name, None) for name in ("func", "afunc"))
    codes = (getattr(function, "__code__", None) for function in functions)
    return node.startswith("HumanInTheLoop") or any("interrupt" in code.co_names for code in codes if code is not None)


def _keys(graph: CompiledStateGraph[Any, Any, Any, Any], schema: Any) -> tuple[str, ...]:
    """The keys of one of the graph's schemas; channels of VineLM and LangGraph, which begin with underscores, are left out."""
    channels = graph.builder.schemas.get(schema, {})
    return tuple(key for key in channels if not key.startswith("_"))
