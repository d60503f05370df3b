"""Finds the stages after which a graph lets a request end, from its compiled edges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from langgraph.graph import END
from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph.adapter import GraphAdapter, GraphInterface
from vinelm.adapters.langgraph.build import build_graph, stage_nodes, template_of_graph
from vinelm.adapters.langgraph.nodes.route import ROUTE_MARK
from vinelm.adapters.langgraph.nodes.signature import marked
from vinelm.adapters.langgraph.structure.chat_search import adapters_behind
from vinelm.errors import TemplateError, WorkflowError
from vinelm.requests.workflow import Workflow
from vinelm.template import Template

Graph = CompiledStateGraph[Any, Any, Any, Any]


def resolved(workflow: Workflow, vine: GraphInterface) -> Workflow:
    """Return the workflow with a template: its own or, if it has none, the template read from the graph.

    A template read from the graph includes the stages where requests may end.

    Args:
        workflow: the workflow.
        vine: wraps the stages and routes of the graph. Unused if the workflow has a template.

    Raises:
        WorkflowError: the graph does not show where some edge leads.
    """
    if workflow.has_template:
        return workflow
    graph = build_graph(workflow, vine)
    template = template_of_graph(workflow, graph, vine.adapter.agents).with_optional(vine.adapter.optional)
    return replace(workflow, template=with_graph_exits(template, graph))


def with_graph_exits(template: Template, graph: Any) -> Template:
    """Return the template, in which a stage stays answerable only if the graph lets a request end after the stage.

    A request may end with the answer of an answerable stage. It can end after a stage if a ``vine.route`` before the next stage
    has an ``end=`` from which END is reached without another stage. An edge of the application's own to END counts in four
    cases: the graph has no ``vine.route``, no stage follows, the stage is the template's last one, or the template branches. At
    such an edge only the application can end the request. A stage also counts if only optional stages or judges come between it
    and the end (:meth:`~vinelm.Template.held_before`). If the graph shows no such end, or if some stage has no known
    node, the template is returned unchanged.

    Args:
        template: The workflow's shape.
        graph: The compiled graph, with a node for each stage, or nodes that call its chat model; or a function.

    Raises:
        WorkflowError: No stage that is declared answerable can end a request.
    """
    if not isinstance(graph, CompiledStateGraph):
        return template  # a function ends where it returns
    edges = _Edges(graph)
    known = stage_nodes(graph, [stage.name for stage in template.stages]).by_stage
    nodes = {stage.name: known.get(stage.name, (stage.name,)) for stage in template.stages}
    every = {node for group in nodes.values() for node in group}
    if not every <= set(graph.builder.nodes):
        return template  # a chat model that is made at run time: nothing is known about its node
    own = template.own_ends
    exits = {
        name for name, group in nodes.items() if any(edges.can_end_after(node, every, is_last=name in own) for node in group)
    }
    if not exits:
        return template  # the edges are chosen at run time (Command without annotations): nothing is known about them
    try:
        return template.with_exits(exits | template.held_before(exits))
    except TemplateError as error:
        declared = ", ".join(repr(stage.name) for stage in template.stages if stage.answerable)
        raise WorkflowError(
            f"no request could end with an answer: only {declared} is declared answerable, and the graph's exits stand after "
            f"{', '.join(map(repr, sorted(exits)))}: declare those answerable, or move vine.route"
        ) from error


def as_wrapped(template: Template, adapter: GraphAdapter, app: Any) -> Template:
    """Return the template, completed with two facts that the ``vine`` object knows of the graph.

    These are each stage's default model, and the stages after which the policy may end a request.

    Args:
        template: The workflow's shape.
        adapter: The adapter of the ``vine`` that the graph was built with. If the application returns a graph made with its own
            ``vine``, the adapter is found through the graph.
        app: The result of :func:`~vinelm.adapters.langgraph.build.build_graph`.
    """
    can_end = adapter.can_end
    if not adapter.is_used:
        for behind in adapters_behind(app)[:1]:
            adapter, can_end = behind, bool(behind.agains)  # also if its chat models are made only when a node runs
    refuse_other_options(template, adapter)
    template = template.with_defaults(adapter.declared_defaults(stage.name for stage in template.stages))
    if not can_end:
        return replace(template, exits=())
    exits = adapter.exits_of(template)
    answerable = {stage.name for stage in template.stages if stage.answerable}
    return template if exits is None or answerable <= exits else replace(template, exits=tuple(sorted(exits & answerable)))


def refuse_other_options(template: Template, adapter: GraphAdapter) -> None:
    """Require that template and graph have the same optional stages, and the same keys for the verdicts of judges.

    Raises:
        WorkflowError: Template and graph differ; the message names the stage.
    """
    if not adapter.is_used:
        return
    said = {stage.name: stage.verdict for stage in template.stages if stage.optional}
    for stage in template.stages:
        key = adapter.optional.get(stage.name)
        if (stage.name in adapter.optional) != stage.optional or key != said.get(stage.name):
            settings = f"optional=True{'' if key is None else f', verdict={key!r}'}" if stage.name in adapter.optional else ""
            raise WorkflowError(
                f"stage {stage.name!r} is {'' if settings else 'not '}optional in the graph: "
                f"say Stage({stage.name!r}{', ' if settings else ''}{settings}) in the template, or change its vine.stage(...)"
            )


def route_ends(graph: Graph, holders: Mapping[str, Collection[str]]) -> Callable[[str], frozenset[str]]:
    """Return a function that takes a stage's name, and returns the ``end=`` places of the ``vine.route`` edges after the stage.

    At these places a request may end. Edges after a later stage do not count.

    Args:
        graph: the compiled graph.
        holders: the nodes of each stage. For a stage without known nodes, the places of all edges are returned.
    """
    edges = _Edges(graph)
    every = {node for group in holders.values() for node in group}

    def ends(stage: str) -> frozenset[str]:
        own = holders.get(stage, ())
        region = {node for holder in own for node in (holder, *edges.tools_after(holder, every))} or set(edges.route_ends)
        return frozenset(end for node in region for end in edges.route_ends.get(node, ()))

    return ends


class _Edges:
    """The successors of each node of a graph, including those by conditional edges and by ``end=`` of ``vine.route``."""

    def __init__(self, graph: Graph) -> None:
        builder = graph.builder
        self.own: dict[str, set[str]] = {node: set() for node in builder.nodes}
        self.route_ends: dict[str, set[str]] = {node: set() for node in builder.nodes}
        for source, target in builder._all_edges:
            self.own.setdefault(source, set()).add(target)
        for node, spec in builder.nodes.items():
            self.own[node].update(spec.ends or ())
        for source, branches in builder.branches.items():
            for branch in branches.values():
                self._add_branch(source, branch, set(builder.nodes) | {END})
        self.has_routes = any(self.route_ends.values())

    def can_end_after(self, stage: str, stages: set[str], *, is_last: bool) -> bool:
        region = {stage, *self.tools_after(stage, stages)}
        ways_out = {target for node in region for target in self._targets(node)}
        may_end = END in ways_out
        if not ways_out & stages or is_last or not self.has_routes:
            return may_end
        ends = {end for node in region for end in self.route_ends.get(node, ())}
        return any(end == END or (end not in stages and END in self._reached(end, stages)) for end in ends)

    def _add_branch(self, source: str, branch: Any, everywhere: set[str]) -> None:
        targets: Mapping[str, str] = branch.ends or {name: name for name in everywhere}
        self.own.setdefault(source, set()).update(targets.values())
        edge = marked(branch.path, ROUTE_MARK)
        end = None if edge is None else edge.destinations.end
        if end is not None:
            self.route_ends.setdefault(source, set()).add(targets.get(end, end))

    def _targets(self, node: str) -> set[str]:
        return self.own.get(node) or {END}  # LangGraph ends a branch whose node leads nowhere

    def tools_after(self, node: str, stages: set[str]) -> Iterator[str]:
        """Yield the nodes outside of ``stages`` (usually tools) that can be reached from ``node`` without passing a node in
        ``stages``.
        """
        waiting, seen = [node], {node}
        while waiting:
            for target in self._targets(waiting.pop()) - stages - seen - {END}:
                seen.add(target)
                waiting.append(target)
                yield target

    def _reached(self, node: str, stages: set[str]) -> set[str]:
        return {target for tool in (node, *self.tools_after(node, stages)) for target in self._targets(tool)}
