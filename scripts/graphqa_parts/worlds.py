"""The rows of questions to a graph under simulated models, each executed when it is first asked for, without LangGraph.

Stages, prompts, writer, sandbox and score are those of the workflow; only the graph that leads from one to the next is spelled
out here, since LangGraph would take most of the time. `tests/scripts/test_bench_graphqa.py` compares with the profiler's rows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from vinelm.backends import create_backends
from vinelm.catalog import Catalog
from vinelm.clock import VirtualClock
from vinelm.profiler.execution.outcome import with_shown
from vinelm.requests.protocols import CallContext
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation, Usage
from vinelm.signals.classes import answer_classes
from vinelm.workflows.graphqa import GraphSource
from vinelm.workflows.graphqa.graph import GraphStages, finished
from vinelm.workflows.graphqa.workflow import REPAIRS, TURNS

FIRSTS = {"direct": "act_direct", "multi_hop": "plan"}
Seen = tuple[Observation, ...]


class Reached(NamedTuple):
    """A request after some invocations: its row, the graph's state, the stages so far and the one that comes next."""

    row: Observation | None
    state: dict[str, Any]
    stages: tuple[str, ...]
    following: str | None


class World:
    """One workflow under one simulated catalog and seed."""

    def __init__(self, workflow: Workflow, sources: Mapping[str, GraphSource], catalog: Catalog, seed: int) -> None:
        self.workflow, self.catalog, self.template = workflow, catalog, workflow.template.bind(tuple(catalog))
        self.requests = {request.id: request for request in workflow.requests}
        self._stages = GraphStages(sources)
        self._backend = next(iter(create_backends(catalog, workflow=workflow, seed=seed).values()))
        self._known: dict[tuple[str, tuple[str, ...]], Reached] = {}

    def row(self, request_id: str, seen: Seen, model: str) -> Observation:
        """The row of a request after these."""
        row = self.reached(self.requests[request_id], (*(seen[-1].prefix if seen else ()), model)).row
        assert row is not None
        return row

    def bought(self, request_ids: Sequence[str], runs: int, seed: int) -> list[Observation]:
        """The rows of whole runs, requests in turn, with a model drawn uniformly for each invocation."""
        rng, names = random.Random(seed), list(self.catalog)
        found: dict[tuple[str, tuple[str, ...]], Observation] = {}
        for number in range(runs):
            request = self.requests[request_ids[number % len(request_ids)]]
            prefix: tuple[str, ...] = ()
            while self.reached(request, prefix).following is not None:
                prefix = (*prefix, rng.choice(names))
                row = self.reached(request, prefix).row
                assert row is not None
                found[request.id, prefix] = row
        classes = answer_classes(found.values(), self.workflow.signals).of
        return [replace(row, answer_class=classes.get(cell)) for cell, row in found.items()]

    def served(self, policy: Any, request_id: str) -> tuple[bool, float]:
        """Whether a policy answers a request rightly, and its dollars."""
        seen: Seen = ()
        while (step := policy.step(seen)).model is not None:
            seen = self._classed((*seen, self.row(request_id, seen, step.model)))
        return bool(seen[step.returned].success), sum(row.cost_usd for row in seen)

    def _classed(self, seen: Seen) -> Seen:
        classes = answer_classes(seen, self.workflow.signals).of
        return tuple(replace(row, answer_class=classes.get((row.request_id, row.prefix))) for row in seen)

    def reached(self, request: Request, prefix: tuple[str, ...]) -> Reached:
        """Where a request is after these models."""
        cell = request.id, prefix
        if cell not in self._known:
            self._known[cell] = (
                self._run(request, prefix) if prefix else Reached(None, self.workflow.graph_input(request), (), "classify")
            )
        return self._known[cell]

    def _run(self, request: Request, prefix: tuple[str, ...]) -> Reached:
        before = self.reached(request, prefix[:-1])
        name = before.following
        assert name is not None
        usages: list[Usage] = []
        call = CallContext(stage=name, prefix=prefix, clock=VirtualClock(), on_usage=usages.append, request=request)
        model = self._backend.chat_model(self.catalog[prefix[-1]], call)
        state = before.state | getattr(self._stages, name)(before.state, model)
        if name in ("act_direct", "act"):
            state |= self._stages.run(state, self._stages.source(state).retrieve)
        stages = (*before.stages, name)
        following, stage = _next(state, stages), self.template.stage(name)
        row = Observation(
            request_id=request.id,
            prefix=prefix,
            stage=name,
            success=stage.answerable and bool(self.workflow.score(request, state)),
            stopped=following is None,
            cost_usd=sum(usage.cost_usd for usage in usages),
            latency_s=sum(usage.latency_s for usage in usages),
            arm=None if following is None else self.template.noted(following),
        )
        return Reached(with_shown(row, self.workflow.signals, state, stage), state, stages, following)


def _next(state: Mapping[str, Any], stages: tuple[str, ...]) -> str | None:
    """The stage that the graph runs next; None where the request ends."""
    match stages[-1]:
        case "classify":
            return FIRSTS[state["arm"]]
        case "plan":
            return "act"
        case "act":
            return "reason"
    is_over = finished(state) or stages.count(stages[-1]) == (REPAIRS if stages[-1] == "act_direct" else TURNS)
    return None if is_over else "act_direct" if stages[-1] == "act_direct" else "act"
