"""Writes the answers of simulated models at each stage: the gold program or a mutation of it, which is really executed."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Mapping, Sequence

from vinelm.errors import DatasetError
from vinelm.requests.workflow import Request, StageWriter
from vinelm.workflows.graphqa.dataset import ARMS, edges_in, text_of
from vinelm.workflows.graphqa.source import GraphSource

PROSE = "The graph has to be searched for the nodes that the question names, and for their neighbours."
"""A text that is neither a snippet nor an answer."""
_NEAR = 40


class Task:
    """Writes the simulated answers of a stage: right answers with one function, wrong answers with another.

    Args:
        kinds: The kinds of mistakes.
        ease: How easy the stage is; the larger, the more often a simulated model is right.
        write: Called with the request and a random generator; returns a right answer.
        mistake: Called with the request, a kind of mistake and a random generator; returns an answer with that mistake.
        harder: Factor by which the difficulty of the program is multiplied.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        ease: float,
        write: Callable[[Request, random.Random], str],
        mistake: Callable[[Request, str, random.Random], str],
        harder: float = 1.0,
    ) -> None:
        self.kinds, self.ease, self._harder = kinds, ease, harder
        self._write, self._mistake = write, mistake

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return how difficult the request's gold program (the one that prints its label) is, by skill, each in [0, 1]."""
        return {name: min(1.0, self._harder * share) for name, share in _skills(gold_of(request)).items()}

    def right(self, request: Request, rng: random.Random) -> str:
        """Return a right answer to the request."""
        return self._write(request, rng)

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return an answer with a mistake of the given kind, or of another kind if that one does not apply."""
        return self._mistake(request, kind, rng)


class ProgramWriter(Task):
    """Simulates the answers of every stage, for requests whose row has a ``program``.

    This object itself writes the snippets of the direct branch; :meth:`at` returns the writer of each stage. Nothing here was
    measured on a real model. A correct plan names the types of edges that the program follows. A correct answer of the stage
    ``reason`` refers to what the last snippet printed; so that snippet decides whether the request is answered right.

    Kinds of error in code: ``wrong_edge``, ``wrong_entity``, ``lost_hop``, ``syntax``, ``format`` (no snippet) and ``early``
    (returns the name of the entity).
    """

    def __init__(self, sources: Mapping[str, GraphSource]) -> None:
        super().__init__(
            ("wrong_edge", "wrong_entity", "lost_hop", "syntax", "format", "early"), 0.4, self._code, self._bad_code
        )
        self._sources = sources
        self.writers: dict[str, StageWriter] = {
            "classify": Task(("wrong_arm",), 1.6, _arm, lambda request, kind, rng: _other(_arm(request, rng), ARMS, rng), 0.4),
            "plan": Task(("wrong_edge", "lost_hop", "format"), 0.9, _plan, self._bad_plan, 0.8),
            "reason": Task(("early", "doubt", "format"), 1.2, _finish, _bad_finish, 0.5),
            "act_direct": self,
            "act": Task(self.kinds, 0.7, self._code, self._bad_code, 0.8),
        }

    def at(self, stage: str) -> StageWriter:
        """Return the writer of the answers of the stage named ``stage``."""
        return self.writers[stage]

    def _code(self, request: Request, rng: random.Random) -> str:
        return rng.choice(("```python\n{}\n```", "```python\n{}\n```\n", "```\n{}\n```")).format(gold_of(request))

    def _bad_code(self, request: Request, kind: str, rng: random.Random) -> str:
        gold = gold_of(request)
        if kind == "format":
            return PROSE
        if kind == "syntax":
            return f"```python\n{gold.rstrip()[:-1]}\n```"
        found = self.mutation_of(request, kind, rng)
        return PROSE if found is None else f"```python\n{found}\n```"

    def mutation_of(self, request: Request, kind: str, rng: random.Random) -> str | None:
        """Return the gold program with a mistake of the given kind, or of another kind if that one does not apply.

        None if no kind applies.
        """
        source = self.source_of(request)
        tried = (mutated(gold_of(request), other, source, rng) for other in (kind, "wrong_entity", "wrong_edge"))
        return next((found for found in tried if found is not None), None)

    def _bad_plan(self, request: Request, kind: str, rng: random.Random) -> str:
        edges = list(edges_in(gold_of(request)))
        if kind == "format" or not edges:
            return PROSE
        lost = rng.choice(edges)
        kept = [name for name in edges if name != lost]
        if kind == "wrong_edge" or not kept:
            kept.append(_other(lost, self.source_of(request).edge_types, rng))
        return _planned(request, kept)

    def source_of(self, request: Request) -> GraphSource:
        """Return the graph that a request asks about."""
        return self._sources[request.data.get("graph", "")]


def mutated(program: str, kind: str, source: GraphSource, rng: random.Random) -> str | None:
    """Return the program with one mistake of the given kind; None if the kind does not apply. Changes only ``rng``.

    Args:
        program: The gold program.
        kind: ``wrong_edge``, ``wrong_entity``, ``lost_hop`` or ``early``.
        source: The graph that the program queries, which provides other names and types of edges.
        rng: Chooses the position in the program and the replacement.
    """
    tree = ast.parse(program)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    texts = {name: [call.args[-1] for call in calls if call.args and _named(call) in names] for name, names in _PLACES.items()}
    places = [node for node in texts.get(kind, []) if isinstance(node, ast.Constant) and text_of(node)]
    if kind == "lost_hop":
        hops = [call for call in calls if _named(call) == "NeighbourCheck" and len(call.args) == 2]
        return ast.unparse(_Shortened(rng.choice(hops)).visit(tree)) if hops else None
    if not places:
        return None
    place = rng.choice(places)
    name = text_of(place)
    if kind == "early":
        return f"print({name!r})"
    if kind == "wrong_edge":
        place.value = _other(name, source.edge_types, rng)
    else:
        node = source.retrieve(name)
        others = [other.name for other in source.nodes_of(source.feature(node, "kind"))[:_NEAR] if other.name != name]
        place.value = rng.choice(others or [f"{name} 2"])
    return ast.unparse(tree)


_PLACES = {
    "wrong_edge": ("NodeDegree", "NeighbourCheck"),
    "wrong_entity": ("RetrieveNode",),
    "early": ("RetrieveNode",),
}


class _Shortened(ast.NodeTransformer):
    """Removes the call ``hop``, which follows edges from one or several nodes, from a program.

    The result of the call is replaced by these nodes.
    """

    def __init__(self, hop: ast.Call) -> None:
        self._hop = hop

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if node is not self._hop:
            return self.generic_visit(node)
        start = node.args[0]
        return start if isinstance(start, ast.Call) and _named(start) == "NeighbourCheck" else ast.List([start], ast.Load())


def _named(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def gold_of(request: Request) -> str:
    """Return the gold program of a request; raise :class:`DatasetError` if its row has none."""
    if "program" not in request.data:
        raise DatasetError(f"request {request.id!r}: the row has no 'program': simulated models write their snippets from it")
    return str(request.data["program"])


def _skills(program: str) -> Mapping[str, float]:
    hops = program.count("NeighbourCheck(") + program.count("NodeDegree(")
    return {
        "joins": min(1.0, max(0, hops - 1) / 3.0),
        "aggregation": 0.7 if "max(" in program else 0.2 if "NodeDegree(" in program or "len(" in program else 0.0,
        "filters": 0.4 if " & " in program or " if " in program else 0.0,
        "nesting": 0.5 if "for " in program else 0.0,
    }


def _arm(request: Request, rng: random.Random) -> str:
    return str(request.data.get("arm", ARMS[gold_of(request).count("NeighbourCheck(") > 1]))


def _plan(request: Request, rng: random.Random) -> str:
    return _planned(request, edges_in(gold_of(request)))


def _planned(request: Request, edges: Sequence[str]) -> str:
    return f"Missing: {' '.join(str(request.data['question']).split())}\nEdges: {', '.join(edges)}"


def _finish(request: Request, rng: random.Random) -> str:
    """Return the text of a correct answer of the stage ``reason``: a plan, then ``Finish[#]``.

    ``#`` stands for what the last snippet printed. If that snippet failed or printed nothing, the workflow continues with the
    plan. The plan names the missing facts and the types of edges that lead to them.
    """
    return f"{_plan(request, rng)}\nFinish[#]"


def _bad_finish(request: Request, kind: str, rng: random.Random) -> str:
    if kind == "format":
        return PROSE
    if kind == "doubt":
        return _plan(request, rng)
    calls = [node for node in ast.walk(ast.parse(gold_of(request))) if isinstance(node, ast.Call)]
    named = [text_of(call.args[0]) for call in calls if _named(call) == "RetrieveNode" and call.args]
    return f"Finish[{next(filter(None, named), 'nothing')}]"


def _other(name: str, names: Sequence[str], rng: random.Random) -> str:
    return rng.choice([other for other in names if other != name] or [f"{name}-2"])
