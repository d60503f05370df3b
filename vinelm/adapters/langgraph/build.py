"""Builds a workflow's graph, checks it against the template and compiles it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from langgraph.constants import START
from langgraph.graph.state import CompiledStateGraph, StateGraph
from langgraph.pregel import Pregel

from vinelm.adapters.langgraph.adapter import GraphInterface
from vinelm.adapters.langgraph.inner_app import FunctionApp
from vinelm.adapters.langgraph.nodes.finish import FINISH_MARK
from vinelm.adapters.langgraph.nodes.route import UNDECLARED_TIMES
from vinelm.adapters.langgraph.nodes.signature import marked
from vinelm.adapters.langgraph.path.copied import copied, held_graph
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.adapters.langgraph.path.within_node import with_path_channel
from vinelm.adapters.langgraph.structure.chat_search import HeldStages, chat_nodes, single_stages, wrapped_stages
from vinelm.adapters.langgraph.structure.reading import read_template, teach_routes
from vinelm.adapters.langgraph.structure.stage_graph import NodeGraph
from vinelm.adapters.langgraph.structure.ways import all_ways, with_repeats, with_skips
from vinelm.errors import WorkflowError
from vinelm.requests.workflow import Workflow
from vinelm.template import Parallel, Template
from vinelm.template.steps import mapped, walk


def build_graph(workflow: Workflow, vine: GraphInterface, checkpointer: Any = None) -> Any:
    """Return the compiled graph of ``workflow.build(vine)``, checked against the template. Runs no node and spends nothing.

    Breakpoints of a graph (``interrupt_before=``) are removed, since a profiled request is never resumed. An entrypoint of
    LangGraph's functional API is returned unchanged, and a plain function as a :class:`FunctionApp`: both are invoked like a
    graph.

    Args:
        workflow: the workflow.
        vine: wraps the stages and routes.
        checkpointer: replaces the checkpointer of a graph that the application compiled itself; None keeps it.

    Raises:
        WorkflowError: the graph has a part that cannot be profiled or served.
    """
    built = built_by(workflow, vine)
    if isinstance(built, StateGraph):
        graph = built.compile(checkpointer=checkpointer)
    elif isinstance(built, CompiledStateGraph):
        graph = held_graph(built)
        graph = graph if checkpointer is None else copied(graph, checkpointer=checkpointer)
    elif isinstance(built, Pregel) or callable(built):
        return _no_graph(workflow, built, vine, checkpointer)
    else:
        raise WorkflowError(
            f"workflow {workflow.name!r}: build(vine) returned {type(built).__name__}: return the StateGraph, compiled or not, "
            "or a function of the inputs"
        )
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        graph = copied(graph, interrupt_before_nodes=[], interrupt_after_nodes=[])
    chats = chat_nodes(graph)
    if not workflow.has_template:
        workflow = replace(workflow, template=template_of_graph(workflow, graph, vine.adapter.agents, chats))
    _check_stages(workflow, graph, vine.adapter.agents, chats)
    names = [stage.name for stage in workflow.template.stages]
    refuse_unsupported(graph, names, vine.adapter.agents, chats, joint_stages(workflow.template))
    teach_routes(graph, nodes_of_stages(graph, vine.adapter.agents, chats))
    return with_path_channel(graph) if chats else graph


def built_by(workflow: Workflow, vine: GraphInterface) -> Any:
    """Return the result of ``workflow.build(vine)``.

    Raises:
        WorkflowError: ``build`` calls ``sys.exit``, which would end the whole command.
    """
    try:
        return workflow.build(vine)
    except SystemExit as error:
        raise WorkflowError(
            f"workflow {workflow.name!r}: build(vine) calls sys.exit({error.code!r}): return the graph"
        ) from error


def _no_graph(workflow: Workflow, built: Any, vine: GraphInterface, checkpointer: Any) -> Any:
    if workflow.template is None:
        raise WorkflowError(f"workflow {workflow.name!r} has no graph to read its template from: give Workflow(template=...)")
    if not isinstance(built, Pregel):
        return FunctionApp(built, vine)
    return built if checkpointer is None else copied(built, checkpointer=checkpointer)


def template_of_graph(
    workflow: Workflow,
    graph: CompiledStateGraph[Any, Any, Any, Any],
    agents: Iterable[str],
    chats: Mapping[str, HeldStages] | None = None,
    *,
    turns: int = UNDECLARED_TIMES,
    repeating: Mapping[str, bool] = MappingProxyType({}),
    skipping: Collection[str] = (),
) -> Template:
    """Return the template that the graph implies: a request may end after any stage, and every model is allowed.

    Args:
        workflow: names the workflow in messages.
        graph: its compiled graph.
        agents: the stages that a middleware runs.
        chats: the nodes' chat models, if known.
        turns: the maximum number of turns of a loop for which the application declares no maximum.
        repeating: nodes that may call their model several times in one execution, each with whether it does so in a loop, an
            unknown number of times.
        skipping: nodes that may end without a call.

    Raises:
        WorkflowError: the graph does not determine the template.
    """
    label = f"workflow {workflow.name!r}"
    held = chat_nodes(graph) if chats is None else chats
    ways = all_ways(graph, nodes_of_stages(graph, agents, held), held)
    # A node whose number of calls only shows when it runs is one stage, with one choice for all of them.
    looping = {node for node, is_looped in repeating.items() if is_looped and ways.stage_of.get(node) == node}
    whole = {node for node, found in held.items() if found.is_one_stage(node)} - wrapped_stages(graph).keys() | looping
    repeated = repeating.keys() - whole
    if repeated:  # stages that start together are one superstep of the template, in which no loop can stand
        together = NodeGraph(ways).side_by_side
        repeated -= {place for place, stage in ways.stage_of.items() if stage in together}
    found = read_template(with_skips(with_repeats(ways, repeated), skipping), label, turns=turns)
    return replace(found, steps=mapped(found.steps, lambda stage: replace(stage, per_node=stage.name in whole)))


def joint_stages(template: Template) -> list[frozenset[str]]:
    """Return the names of the stages in each :class:`~vinelm.template.Parallel` step of the template."""
    return [frozenset(stage.name for stage in step.stages) for step in walk(template.steps) if isinstance(step, Parallel)]


def nodes_of_stages(
    graph: CompiledStateGraph[Any, Any, Any, Any], agents: Iterable[str], chats: Mapping[str, HeldStages] | None = None
) -> dict[str, str]:
    """Return the stage of each node of the root graph that runs exactly one stage.

    ``agents`` are the stages that a middleware runs, ``chats`` the nodes' chat models, which are searched for if None.
    """
    held = chat_nodes(graph) if chats is None else chats
    return single_stages(graph, held) | _routed_agents(graph, agents)


def begins_with_stages(app: Any, agents: Iterable[str], *, but: Collection[str] = ()) -> bool:
    """Return whether each node that the graph starts with runs one stage, so that no tool runs before the first call.

    Args:
        app: the result of :func:`build_graph`; False is returned if it has no graph.
        agents: the stages that a middleware runs.
        but: nodes that do not count as stages.
    """
    if not isinstance(app, CompiledStateGraph) or START in app.builder.branches:
        return False
    stages = nodes_of_stages(app, agents).keys() - set(but)
    return {end for start, end in app.builder.edges if start == START} <= stages


def nodes_beside_stages(app: Any) -> list[str] | None:
    """Return the nodes that do not run exactly one stage and are not ``vine.finish``; None without a graph.

    Agents are among these nodes.
    """
    if not isinstance(app, CompiledStateGraph):
        return None
    stages = nodes_of_stages(app, ())
    return [name for name, spec in app.builder.nodes.items() if name not in stages and not marked(spec.runnable, FINISH_MARK)]


def keys_of_state(app: Any) -> frozenset[str] | None:
    """Return the keys of an application's state; None if the application has no graph."""
    return frozenset(app.channels) if isinstance(app, CompiledStateGraph) else None


def replay_reason(workflow: Workflow, app: Any, agents: Iterable[str] = ()) -> str | None:
    """Return why the profiler must replay requests from their start; None if it can continue them from checkpoints.

    Args:
        workflow: the workflow, with a template.
        app: the result of :func:`build_graph`.
        agents: the stages that a middleware runs.
    """
    if workflow.replay:
        return "Workflow(replay=True) says so"
    if not isinstance(app, CompiledStateGraph):
        return "it is no graph"
    if joint_stages(workflow.template):
        return "stages run side by side"
    if workflow.template.per_node:
        return f"the node {min(workflow.template.per_node)!r} may make several calls"
    chats = chat_nodes(app)
    seen = {name for one in chats.values() for name in one.names}
    seen |= {*wrapped_stages(app).values(), *_routed_agents(app, agents)}
    hidden = {name for found in chats.values() for name in found.hidden | found.paths} | (set(agents) - seen)
    on_edges = {name for found in chats.values() for name in found.on_edges}
    for stage in workflow.template.stages:
        if stage.name in hidden:
            return f"stage {stage.name!r} is inside a subgraph"
        if stage.name in on_edges:
            return f"stage {stage.name!r} is called on an edge"
    return None


def stage_nodes(graph: CompiledStateGraph[Any, Any, Any, Any], stages: Iterable[str], agents: Iterable[str] = ()) -> StageNodes:
    """Return the nodes of the root graph that run each stage, as far as this is known before the graph runs.

    ``agents`` are the stages that a middleware runs.
    """
    wrapped = wrapped_stages(graph) | _routed_agents(graph, agents)
    found: dict[str, tuple[str, ...]] = {}
    chats = chat_nodes(graph)
    for stage in stages:
        holders = tuple(node for node, held in chats.items() if stage in held.names and node not in wrapped)
        if stage in wrapped:
            found[stage] = (stage,)
        elif holders or stage in chats:
            found[stage] = holders or (stage,)
    return StageNodes(found, frozenset(wrapped))


@dataclass(frozen=True, slots=True)
class StageNodes:
    """The nodes of each stage.

    Attributes:
        by_stage: the nodes that run each stage; stages without a known node are left out.
        wrapped: the nodes of wrapped stages and of agents: each execution of them is an invocation.
    """

    by_stage: Mapping[str, tuple[str, ...]]
    wrapped: frozenset[str]


def refuse_unsupported(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    stages: Iterable[str],
    agents: Iterable[str] = (),
    chats: Mapping[str, HeldStages] | None = None,
    joint: Collection[frozenset[str]] = (),
) -> None:
    """Raise :class:`WorkflowError` for a graph in which a choice of model could silently be lost or repeated.

    Unsupported are cached stages, stages in a subgraph with its own checkpointer, and an explicit ``input_schema=``, which
    hides the request's path from the stage. Two stages that start together after the same node must be ``joint`` in the
    template.

    Args:
        graph: the compiled graph.
        stages: the template's stages.
        agents: the stages that a middleware runs.
        chats: the nodes' chat models; None searches for them.
        joint: the groups of stages that the template runs in parallel.
    """
    held = chat_nodes(graph) if chats is None else chats
    for node, found in held.items():
        for hidden in sorted(found.remembering):
            raise WorkflowError(
                f"stage {hidden!r} is inside a subgraph of the node {node!r} that is compiled with a checkpointer of its own: "
                "its state would outlive the request's, so compile the subgraph without one"
            )
    wrapped = [name for name in stages if name in graph.nodes and (name in wrapped_stages(graph) or name in agents)]
    nodes = {name: name for name in wrapped} | {
        node: min(found.names) for node, found in held.items() if found.names and node not in wrapped
    }
    for node, stage in nodes.items():
        if graph.nodes[node].cache_policy is not None:
            raise WorkflowError(
                f"stage {stage!r} has a cache_policy: it would answer with an earlier choice of model, so remove it"
            )
    for name in wrapped:
        if PATH_KEY not in graph.builder.schemas[graph.builder.nodes[name].input_schema]:
            raise WorkflowError(
                f"stage {name!r} was added with input_schema=, which hides its path: "
                "leave it out of add_node and give the type to vine.stage(..., state=)"
            )
    _refuse_side_by_side(graph, nodes, joint)


def _refuse_side_by_side(
    graph: CompiledStateGraph[Any, Any, Any, Any], nodes: Mapping[str, str], joint: Collection[frozenset[str]]
) -> None:
    for source in dict.fromkeys(start for start, _ in sorted(graph.builder._all_edges)):
        together = list(dict.fromkeys(stage for node, stage in nodes.items() if (source, node) in graph.builder._all_edges))
        if len(together) > 1 and not any(group.issuperset(together) for group in joint):
            first, second = together[:2]
            raise WorkflowError(
                f"stages {first!r} and {second!r} both follow {source!r} in one superstep: put an edge between them, or "
                f"Parallel((Stage({first!r}), Stage({second!r}))) into the template"
            )


def _check_stages(
    workflow: Workflow,
    graph: CompiledStateGraph[Any, Any, Any, Any],
    agents: Iterable[str],
    chats: Mapping[str, HeldStages],
) -> None:
    label = f"workflow {workflow.name!r}"
    wrapped = wrapped_stages(graph) | _routed_agents(graph, agents)
    for node, stage in wrapped.items():
        if node != stage:
            raise WorkflowError(f"{label}: the node {node!r} runs vine.stage({stage!r}, ...): give both one name")
    declared = [stage.name for stage in workflow.template.stages]
    held = {name for found in chats.values() for name in found.names}
    is_open = any(found.makes_some for found in chats.values())
    for name in declared:
        if name in wrapped or name in held or is_open:
            continue
        if name in agents or any(name in found.hidden | found.paths | found.on_edges for found in chats.values()):
            continue  # inside a subgraph, or on an edge
        if name in graph.nodes:
            raise WorkflowError(
                f"{label}: the node {name!r} is not wrapped: add_node({name!r}, vine.stage({name!r}, ...)), "
                f"or let it call vine.chat_model({name!r})"
            )
        nodes = ", ".join(node for node in graph.builder.nodes)
        raise WorkflowError(f"{label}: its template has a stage {name!r}, which the graph lacks: it has the nodes {nodes}")
    for name in wrapped:
        if name not in declared:
            raise WorkflowError(
                f"{label}: the graph wraps a stage {name!r}, which the template lacks: add Stage({name!r}) to it"
            )


def _routed_agents(graph: CompiledStateGraph[Any, Any, Any, Any], agents: Iterable[str]) -> dict[str, str]:
    """Return the stage of each node of ``graph`` that is one of ``agents``, keyed by the node; both have the same name.

    Empty if the graph lacks the channel for a request's path, which a ``VineMiddleware`` gives its agent.
    """
    return {name: name for name in agents if name in graph.nodes and PATH_KEY in graph.channels}
