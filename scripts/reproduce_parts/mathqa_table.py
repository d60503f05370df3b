"""The complete outcome table of MathQA with simulated models, computed with the graph's stage functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from science.recorded_table import RecordedTable

from vinelm.backends import create_backends
from vinelm.catalog import Catalog
from vinelm.clock import VirtualClock
from vinelm.errors import CallError
from vinelm.requests.protocols import Backend, CallContext
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Usage
from vinelm.trie import Trie
from vinelm.workflows.mathqa import mathqa
from vinelm.workflows.mathqa.graph import MathState, check, solve


@dataclass(frozen=True)
class _Direct:
    """A chat model without LangChain's callbacks and tracing, which take longer than the rest of a cell."""

    chat: Any

    def invoke(self, messages: Sequence[Any]) -> Any:
        return self.chat._generate(messages).generations[0].message


def mathqa_table(catalog: Catalog, requests: Sequence[Request]) -> RecordedTable:
    """Every request at every prefix that the oracle stop lets it reach, up to six answers.

    Below an answer that is right, and below a failed call, nothing is executed: cells there are neither right nor paid.
    """
    workflow = mathqa()
    template = workflow.template.with_stop("oracle").bind(tuple(catalog))
    trie = Trie.from_template(template)
    backends = create_backends(catalog, workflow=workflow)
    shape = (len(requests), len(trie))
    success, failed = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    cost_usd, latency_s = np.zeros(shape), np.zeros(shape)
    prefixes = [trie.prefix(node) for node in range(len(trie))]
    for row, request in enumerate(requests):
        states: dict[int, MathState] = {0: cast("MathState", workflow.graph_input(request))}
        node = 1
        while node < len(trie):
            before = states[int(trie.parent[node])]
            state, cost_usd[row, node], latency_s[row, node] = _invoke(request, prefixes[node], before, catalog, backends)
            failed[row, node] = state is None
            success[row, node] = state is not None and _is_right(workflow, request, state)
            if state is not None:
                states[node] = state
            has_ended = bool(success[row, node] or failed[row, node])
            node = int(trie.end[node]) if has_ended else node + 1
    ids = tuple(request.id for request in requests)
    return RecordedTable(
        template, catalog, trie, ids, success, success.copy(), cost_usd, latency_s, failed if failed.any() else None
    )


def _invoke(
    request: Request, prefix: tuple[str, ...], before: MathState, catalog: Catalog, backends: dict[str, Backend]
) -> tuple[MathState | None, float, float]:
    """The state after one answer and its check, its dollars and its seconds; no state where the call failed."""
    clock, usages = VirtualClock(), list[Usage]()
    model = catalog[prefix[-1]]
    call = CallContext(stage="solve", prefix=prefix, clock=clock, on_usage=usages.append, request=request)
    after: MathState | None = None
    try:
        solved = cast("MathState", {**before, **solve(before, _Direct(backends[model.provider].chat_model(model, call)))})
        after = cast("MathState", {**solved, **check(solved)})
    except CallError:
        pass
    return after, sum(usage.cost_usd for usage in usages), clock.now()


def _is_right(workflow: Workflow, request: Request, state: MathState) -> bool:
    return bool(workflow.score(request, cast("dict[str, Any]", state)))
