"""Derives the template that a compiled graph implies, and finds how a given template differs from the graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vinelm.adapters.langgraph.nodes.route import ROUTE_MARK, UNDECLARED_TIMES
from vinelm.adapters.langgraph.nodes.signature import marked
from vinelm.adapters.langgraph.structure.call_counts import skipping_nodes
from vinelm.adapters.langgraph.structure.stage_graph import NodeGraph
from vinelm.adapters.langgraph.structure.steps import template_of
from vinelm.adapters.langgraph.structure.ways import Graph, Ways, root_ways
from vinelm.errors import WorkflowError
from vinelm.template import END, Branch, Loop, Template
from vinelm.template.steps import Step, mapped


def read_template(ways: Ways, label: str, *, turns: int = UNDECLARED_TIMES) -> Template:
    """Return the template that a graph implies. Every stage allows all models, and a request may end after it.

    Args:
        ways: the successors of each place of the graph (a node, or a stage inside a subgraph or on an edge).
        label: the workflow's name in messages.
        turns: the maximum number of turns of a loop for which the application declares no maximum.

    Raises:
        WorkflowError: the graph does not show where some edge leads, or has no stage.
    """
    if not ways.stage_of:
        raise WorkflowError(f"{label}: the graph has no stage: wrap its LLM nodes with vine.stage, or give the template")
    found = NodeGraph(ways).stage_graph()
    for stage, place in found.unclear.items():
        after = f", after the stage {stage!r}," if stage and stage != place else ""
        raise WorkflowError(
            f"{label}: the edge behind {place!r}{after} does not say where it leads: give add_conditional_edges its path_map, "
            "use vine.route, or annotate its function with -> Literal[...]; or give the template"
        )
    reached = {name for stages in found.after for name in stages}
    for place, stage in ways.stage_of.items():
        if stage not in reached:
            raise WorkflowError(
                f"{label}: no edge leads to the stage {stage!r}: annotate the node that goes there with "
                f"-> Command[Literal[{place!r}]], or give the template"
            )
    template = template_of(found, turns)
    return replace(template, steps=tuple(_without_equal_loops(template.steps)))


def _without_equal_loops(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps, in which equal branches that begin with a loop are replaced by the first of them.

    If a single branch remains, its steps replace the branching step.
    """
    for step in steps:
        if isinstance(step, Loop):
            yield replace(step, stages=tuple(_without_equal_loops(step.stages)))
        elif isinstance(step, Branch):
            arms: dict[str, Any] = {}
            for label, arm in step.arms.items():
                made = arm if arm == END else tuple(_without_equal_loops(arm))
                if not (made and isinstance(made[0], Loop) and made in arms.values()):
                    arms[label] = made
            yield from [Branch(arms)] if len(arms) > 1 else next(iter(arms.values()))
        else:
            yield step


def template_differences(template: Template, graph: Graph, stage_of: Mapping[str, str]) -> list[str]:
    """Return a message for each transition between stages that only the graph or only the template allows.

    ``stage_of`` has the stage of each node that runs a stage. If graph and template have different stages, nothing is compared
    and the list is empty.
    """
    names = {stage.name for stage in template.stages}
    if names != set(stage_of.values()):
        return []
    found = NodeGraph(root_ways(graph, stage_of)).stage_graph().reordered(stage.name for stage in template.stages)
    whole = Template(mapped(template.steps, lambda stage: replace(stage, answerable=True)))
    flow = whole.flow
    allowed = flow.follows | {("", stage.name) for stage in whole.first_stages}
    goes_on = {before for before, _ in flow.follows} | {""}
    lines = []
    for before, after in sorted(found.pairs - allowed):
        if before in goes_on or not _leads_back(found.pairs, before, after):  # else the loop has its last turn there
            lines.append(f"{_goes('the graph goes', before, after)}, and the template does not: {_remedy(before, after)}")
    surplus = allowed - found.pairs
    if surplus and found.start:  # where loops do not nest, the template that the graph implies allows more than the graph, too
        implied = template_of(found)
        surplus -= implied.flow.follows | {("", stage.name) for stage in implied.first_stages}
    passed = {stage_of[node] for node in skipping_nodes(graph, stage_of)}
    over = {(one, then) for one, then in found.pairs if one in passed or then in passed}
    for before, after in sorted(surplus):
        # A node may call its model repeatedly before it is left: in a loop, or in each of several tools. One between the two
        # stages may make no call.
        if before not in found.unclear and before != after and not _leads_to(over, before, after):
            lines.append(
                f"{_goes('the template goes', before, after)}, and no edge of the graph does: remove that arm, or declare "
                "where the edge leads"
            )
    return lines


def teach_routes(graph: Graph, stage_of: Mapping[str, str]) -> None:
    """Store in every ``vine.route`` of the graph, for each place to which it may lead, the stages that may run next.

    A place is left out if an edge between it and these stages has an unknown target.
    """
    nodes = NodeGraph(root_ways(graph, stage_of))
    for branches in graph.builder.branches.values():
        for branch in branches.values():
            edge = marked(branch.path, ROUTE_MARK)
            if edge is not None:
                ends = (branch.ends or {}).items()
                edge.arms = {label: nodes.arms(place) for label, place in ends if nodes.is_clear(place)}


def _goes(who: str, before: str, after: str) -> str:
    return f"{who} from {before!r} to {after!r}" if before else f"{who} from the start to {after!r}"


def _remedy(before: str, after: str) -> str:
    where = f"behind Stage({before!r})" if before else "at the beginning"
    return f"add an arm to the Branch {where}, such as {after!r}: (Stage({after!r}),), or leave the template out"


def _leads_back(pairs: set[tuple[str, str]], before: str, after: str) -> bool:
    """Return whether the stage ``before`` can be reached again from the stage ``after``.

    ``pairs`` has every (stage, stage that may follow it).
    """
    return before == after or _leads_to(pairs, after, before)


def _leads_to(pairs: Collection[tuple[str, str]], before: str, after: str) -> bool:
    """Return whether the stage ``after`` can be reached from the stage ``before``, directly or through others."""
    waiting, reached = [before], set[str]()
    for at in waiting:  # grows while it is read
        new = {then for here, then in pairs if here == at} - reached
        reached |= new
        waiting += new
    return after in reached
