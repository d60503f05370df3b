"""Finds the places of a graph and their successors. A place is a node, or a stage inside a subgraph or on an edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph.nodes.route import ROUTE_MARK
from vinelm.adapters.langgraph.nodes.signature import code_of, held_attribute, marked
from vinelm.adapters.langgraph.path.path_channel import WITHIN
from vinelm.adapters.langgraph.structure.chat_search import HeldStages

Graph = CompiledStateGraph[Any, Any, Any, Any]
_HOOKS = (".before_agent", ".before_model", ".after_model", ".after_agent")
"""Name pattern of the nodes of an agent's middleware. They call a model only when needed, such as for a long history."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The maximum number of times that a route may lead to a place, as set by the application with ``times=``."""

    place: str
    times: int


Choice = dict[str, frozenset[Bound]]
"""Places of which one comes next, each with the bounds that are declared on the way."""


@dataclass(slots=True)
class Ways:
    """The possible successors of each place of a graph. A place is a node, or a stage inside a subgraph or on an edge.

    Attributes:
        stage_of: the stage of each place that runs a stage, in the order of the graph's nodes. All other places are tools.
        choices: the choices after each place, such as its parallel edges. A request makes all choices of a place, and each
            choice leads to one of its targets.
        unclear: places with an edge whose target is unknown.
    """

    stage_of: dict[str, str] = field(default_factory=dict)
    choices: dict[str, list[Choice]] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)


def root_ways(graph: Graph, stage_of: Mapping[str, str]) -> Ways:
    """Return the possible successors of each node of a graph. A node that contains a subgraph counts as a single node.

    Args:
        graph: the compiled graph.
        stage_of: the stage of each node that runs a stage.
    """
    found = Ways({node: stage_of[node] for node in graph.builder.nodes if node in stage_of})
    for source in (START, *graph.builder.nodes):
        found.choices[source] = _edges(graph, source) + _ends(graph, source)
        if _is_unclear(graph, source) or (not found.choices[source] and _commands(graph, source)):
            found.unclear.add(source)
    return with_skips(found, [node for node in found.stage_of if node.endswith(_HOOKS)])


def all_ways(graph: Graph, stage_of: Mapping[str, str], held: Mapping[str, HeldStages]) -> Ways:
    """Return the possible successors of each node of a graph, of the nodes in its subgraphs, and of the models on its edges.

    A node that is a subgraph, or whose function can only call one subgraph, runs it once. A node with several callers of models
    (agents as tools, several chat models) runs them in any order and any number of times. A node that makes its graph when it
    runs is one stage. A ``Command(graph=Command.PARENT)`` in a subgraph leads to the destinations of the node that contains the
    subgraph. A model that a conditional edge calls runs after the node. If nodes of several graphs share a name (``model`` of
    two agents), their stages are prefixed with the surrounding nodes: ``helper/model``.

    Args:
        graph: the compiled graph.
        stage_of: the stage of each root graph node that runs exactly one stage.
        held: the stages in the nodes; see :func:`~vinelm.adapters.langgraph.structure.chat_search.chat_nodes`.
    """
    whole = _Whole()
    whole.add(graph, stage_of, held)
    return whole.told_apart()


def with_repeats(ways: Ways, places: Iterable[str]) -> Ways:
    """Return a copy of ``ways`` in which each of these places may run its stage several times in a row.

    ``ways`` has the possible successors of each place.
    """
    choices = dict(ways.choices)
    for place in ways.stage_of.keys() & set(places):
        choices[place] = [{place: frozenset(), f"{place}/done": frozenset()}]
        choices[f"{place}/done"] = ways.choices[place]
    return Ways(ways.stage_of, choices, ways.unclear)


def with_skips(ways: Ways, places: Iterable[str]) -> Ways:
    """Return a copy of ``ways`` in which a request may skip the stage of each of these places.

    ``ways`` has the possible successors of each place.
    """
    found = Ways(dict(ways.stage_of), dict(ways.choices), ways.unclear)
    for place in ways.stage_of.keys() & set(places):
        part, skipped, behind = f"{place}/called", f"{place}/skipped", ways.choices[place]
        found.choices |= {place: [{part: frozenset(), skipped: frozenset()}], part: behind, skipped: behind}
        found.stage_of = {part if one == place else one: stage for one, stage in found.stage_of.items()}
    return found


class _Whole:
    def __init__(self) -> None:
        self.ways = Ways()
        self._around: dict[str, str] = {"": ""}  # prefix of places to the nodes around them
        self._paths: dict[str, str] = {}  # place of a stage named by its node, to that node's path through the nodes around it

    def told_apart(self) -> Ways:
        """Return the successors of all places added so far.

        If nodes of several graphs share a name, their stages get different names, prefixed with the surrounding nodes.
        """
        named = Counter(path.rpartition(WITHIN)[2] for path in dict.fromkeys(self._paths.values()))
        named.update({stage for place, stage in self.ways.stage_of.items() if place not in self._paths})
        for place, path in self._paths.items():
            if named[self.ways.stage_of[place]] > 1:
                self.ways.stage_of[place] = path
        return self.ways

    def _add_stage(self, place: str, stage: str, path: str, found: HeldStages) -> None:
        self.ways.stage_of[place] = stage
        if (found.is_by_node or found.makes_some) and path.rpartition(WITHIN)[2] == stage:
            self._paths[place] = path

    def add(
        self,
        graph: Graph,
        stage_of: Mapping[str, str],
        held: Mapping[str, HeldStages],
        prefix: str = "",
        leaves: Iterable[str] = (),
    ) -> None:
        """Add the places of a graph, with names that begin with ``prefix``.

        The graph's tools may lead to places outside the graph; these are ``leaves``.
        """
        for source in (START, *graph.builder.nodes):
            found = held.get(source, HeldStages())
            is_graph = source != START and isinstance(graph.builder.nodes[source].runnable, CompiledStateGraph)
            onward = [_renamed(choice, prefix) for choice in _edges(graph, source)]
            ends = [_renamed(choice, prefix) for choice in _ends(graph, source) or ([] if onward else _commands(graph, source))]
            if not (is_graph and found.inner):
                onward += ends
            if prefix and not onward:  # LangGraph ends a graph whose node leads nowhere
                onward = [{prefix + END: frozenset()}]
            if leaves and source != START and source not in stage_of and not found.inner:
                onward = [choice | dict.fromkeys(leaves, frozenset()) for choice in onward]
            place = prefix + source
            if _is_unclear(graph, source):
                self.ways.unclear.add(place)
            own = [stage_of[source]] if source in stage_of else sorted(found.names)
            path = self._around[prefix] + source
            behind = self._edge_stages(place, path, found, onward)
            inside = dict.fromkeys(target for choice in ends for target in choice) if is_graph else {}
            self._add_node(path, place, own, found, behind, inside)

    def _edge_stages(self, place: str, path: str, found: HeldStages, onward: list[Choice]) -> list[Choice]:
        """Return where a node leads: to the models that the code of its edges calls, one after the other, then to ``onward``.

        If that code calls no model, the result is ``onward``, the possible successors along the edges. Adds the models as
        places.
        """
        for number, stage in enumerate(sorted(found.on_edges, reverse=True)):
            edge = f"{place}/edge-{number}"
            self.ways.choices[edge] = onward
            self._add_stage(edge, stage, path, found)
            onward = [{edge: frozenset()}]
        return onward

    def _add_node(  # noqa: PLR0917 - what is known of one node
        self, path: str, place: str, own: list[str], found: HeldStages, behind: list[Choice], inside: Iterable[str]
    ) -> None:
        ways = self.ways
        if WITHIN not in path and found.is_one_stage(path):
            ways.choices[place] = behind
            ways.stage_of[place] = path
            return
        if len(own) == 1 and not found.inner:
            if not (found.is_tools or found.is_in_tools or path.endswith(_HOOKS)):
                ways.choices[place] = behind
                self._add_stage(place, own[0], path, found)
                return
        elif not own and len(found.inner) == 1 and not found.is_tools:
            (one,) = found.inner
            ways.choices[place] = [{f"{place}/{START}": frozenset()}]
            ways.choices[f"{place}/{END}"] = behind
            self._around[f"{place}/"] = path + WITHIN
            self.add(one.graph, one.stage_of, one.held, f"{place}/", tuple(inside))
            return
        elif not own and not found.inner:
            ways.choices[place] = behind
            return
        self._add_any(path, place, own, found, behind)

    def _add_any(self, path: str, place: str, own: list[str], found: HeldStages, behind: list[Choice]) -> None:
        """Add a node that runs its stages ``own`` and the graphs in ``found`` in any order and any number of times.

        A middleware's hook, or a node that calls models only in tools, runs at most one stage or graph. A ``ToolNode`` may run
        none.
        ``behind`` tells where the node leads.
        """
        ways, parts, done = self.ways, list[str](), f"{place}/done"
        for number, stage in enumerate(own):
            parts.append(part := f"{place}/stage-{number}")
            self._add_stage(part, stage, path, found)
            ways.choices[part] = [{f"{place}/more": frozenset()}]
        for number, one in enumerate(found.inner):
            parts.append(f"{place}/{number}/{START}")
            self._around[f"{place}/{number}/"] = path + WITHIN
            self.add(one.graph, one.stage_of, one.held, f"{place}/{number}/")
            ways.choices[f"{place}/{number}/{END}"] = [{f"{place}/more": frozenset()}]
        is_once = path.endswith(_HOOKS) or (found.is_in_tools and not found.is_tools and not found.inner)
        more: Choice = dict.fromkeys((done,) if is_once else (*parts, done), frozenset())
        ways.choices[f"{place}/more"] = [more]
        ways.choices[place] = [dict.fromkeys((*parts, done) if is_once or found.is_tools else parts, frozenset())]
        ways.choices[done] = behind


def _edges(graph: Graph, source: str) -> list[Choice]:
    """Return where a node's edges may lead: one choice for each edge whose targets are known.

    A request takes all of these edges, each to one of its targets.

    The targets of a conditional edge are those declared, or those named in the code of its path function.
    """
    plain: list[Choice] = [{target: frozenset()} for start, target in sorted(graph.builder._all_edges) if start == source]
    branches = graph.builder.branches.get(source, {}).values()
    unsaid = (dict.fromkeys(_named(graph, branch.path), frozenset[Bound]()) for branch in branches if not branch.ends)
    return [*plain, *(_of_branch(branch) for branch in branches if branch.ends), *filter(None, unsaid)]


def _ends(graph: Graph, source: str) -> list[Choice]:
    """Return where a node's ``Command(goto=...)`` may lead: a list with a single choice among the declared targets.

    The targets are declared by the node's annotation or ``destinations``. The list is empty if none are declared.
    """
    ends = None if source == START else graph.builder.nodes[source].ends
    return [dict.fromkeys(ends, frozenset())] if ends else []


def _commands(graph: Graph, source: str) -> list[Choice]:
    """Return where a node without an annotation may lead if its code uses ``Command``: a list with a single choice.

    The targets of the choice are the nodes that the code names, or all nodes if it names none. Empty for other nodes.
    """
    runnable = None if source == START else graph.builder.nodes[source].runnable
    code = _code(runnable)
    if code is None or "Command" not in code.co_names:
        return []
    return [dict.fromkeys(_named(graph, runnable) or (*graph.builder.nodes, END), frozenset())]


def _named(graph: Graph, runnable: Any) -> list[str]:
    """Return the nodes that a function's code names, and END if the code names it, too; empty if it names no node."""
    code = _code(runnable)
    said = set() if code is None else set(_said(code))
    named = [node for node in graph.builder.nodes if node in said]
    return [*named, *([END] if named and said & {"END", END} else [])]


def _said(code: CodeType) -> Iterator[Any]:
    """Yield the names and constants (such as texts) in a function's code, including nested functions."""
    yield from code.co_names
    for one in code.co_consts:
        yield from _said(one) if isinstance(one, CodeType) else one if isinstance(one, tuple | frozenset) else (one,)


def _code(runnable: Any) -> CodeType | None:
    functions = (held_attribute(runnable, name) for name in ("func", "afunc"))
    return next((code for one in functions if one and (code := getattr(code_of(one), "__code__", None))), None)


def _is_unclear(graph: Graph, source: str) -> bool:
    """Return whether a node has a conditional edge with unknown targets: neither its map, its annotation nor its code names
    them.
    """
    return any(not branch.ends and not _named(graph, branch.path) for branch in graph.builder.branches.get(source, {}).values())


def _of_branch(branch: Any) -> Choice:
    """Return the places to which a conditional edge may lead, each with the ``times=`` limit that its ``vine.route`` sets."""
    edge = marked(branch.path, ROUTE_MARK)
    times: Mapping[str, int] = {} if edge is None else edge.destinations.times
    return {
        place: frozenset((Bound(place, times[label]),)) if label in times else frozenset()
        for label, place in (branch.ends or {}).items()
    }


def _renamed(choice: Choice, prefix: str) -> Choice:
    return {prefix + place: bounds for place, bounds in choice.items()}
