"""Restricts a trie to steps that enough requests took, so that plans over these steps can be tested on the results.

A step is one model that runs after a certain sequence of earlier calls. With few results for each of very many plans,
the best estimate changes with every result. A comparison with the current setup needs complete runs of the tested plan.
So if plans over all steps cannot be tested, plans over tried steps are tested instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from vinelm.controller import Planner
from vinelm.errors import InfeasibleError
from vinelm.estimator.validation.checks import ValidationReport
from vinelm.evaluation.off_policy.planned_steps import along_stages
from vinelm.objective import Objective
from vinelm.rows.observation import Observation
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray
from vinelm.trie.verdict import Verdict

LEAST_TRIED = 0.25
"""A step is tried if at least this share of the requests that came there took it. Then a plan of three such steps that other
requests chose was followed by at least an eighth of them, and a plan that was run on purpose by nearly all."""
RowsByRequest = Mapping[str, Mapping[tuple[str, ...], Observation]]


def tried_steps(annotated: AnnotatedTrie, rows: RowsByRequest, n_requests: int, firsts: Sequence[str]) -> BoolArray:
    """Return a mask of the trie's edges that enough requests took. An edge stands for one model that runs after a certain
    sequence of earlier calls. Only the recorded calls matter, not their outcomes.

    An edge is marked if, of the requests that reached the edge's first node, at least the share :data:`LEAST_TRIED` took the
    edge. If no edge of a branch qualifies, all edges of the branch are marked.

    Args:
        annotated: A trie of a template without request types.
        rows: The recorded results, keyed by request id, then by prefix (the models up to the row's call).
        n_requests: Number of requests.
        firsts: The stages that requests begin with, the most common first; empty without rows.

    Returns:
        A mask of shape (edges,).
    """
    trie = annotated.trie
    edges = {pair: edge for edge, pair in enumerate(zip(trie.source.tolist(), trie.target.tolist(), strict=True))}
    planner = Planner(annotated)
    along = {first: along_stages(planner, first) for first in firsts or (None,)}
    began: Counter[str | None] = Counter(
        row.stage for of_request in rows.values() for row in of_request.values() if row.depth == 1
    )
    came: Counter[tuple[int, str | None]] = Counter()
    for first, locate in along.items():
        start, share = locate(()), began[first] / began.total() if len(along) > 1 else 1.0
        came[start.node, start.stage] += math.ceil(n_requests * share)
    took: Counter[tuple[int, str | None, int]] = Counter()
    for of_request in rows.values():
        for prefix in of_request:
            chain = tuple(of_request[prefix[:n]] for n in range(1, len(prefix) + 1) if prefix[:n] in of_request)
            if len(chain) < len(prefix):
                continue
            locate = along.get(chain[0].stage) or along[next(iter(along))]
            try:
                before, after = locate(chain[:-1]), locate(chain)
            except KeyError:
                continue  # rows of a model or a branch that the trie lacks
            took[before.node, before.stage, edges[before.node, after.node]] += 1
            if not after.has_ended and chain[-1].failure is None:
                came[after.node, after.stage] += 1
    least = {edge: n >= LEAST_TRIED * came[node, stage] for (node, stage, edge), n in took.items()}
    tried = np.zeros(trie.n_edges, np.bool_)
    tried[[edge for edge, is_tried in least.items() if is_tried]] = True
    arms = np.zeros(int(trie.edge_arm[-1]) + 1, np.bool_)
    np.logical_or.at(arms, trie.edge_arm, tried)
    return np.asarray(tried | ~arms[trie.edge_arm])


def by_request(rows: Iterable[Observation]) -> RowsByRequest:
    """Return the recorded results keyed by request id, then by prefix (the models up to the row's call)."""
    found: dict[str, dict[tuple[str, ...], Observation]] = {}
    for row in rows:
        found.setdefault(row.request_id, {})[row.prefix] = row
    return found


def only_tried(annotated: AnnotatedTrie, rows: RowsByRequest, n_requests: int, firsts: Sequence[str]) -> AnnotatedTrie:
    """Return the trie restricted to steps that enough requests took; the arguments are those of :func:`tried_steps`."""
    return annotated.within(tried_steps(annotated, rows, n_requests, firsts))


def as_known(
    annotated: AnnotatedTrie, evidence: ValidationReport, rows: Sequence[Observation], n_requests: int, firsts: Sequence[str]
) -> tuple[AnnotatedTrie, ValidationReport] | None:
    """Return the trie restricted to steps that enough requests took (:func:`tried_steps`), and a report on this trie.

    The report is a copy of ``evidence``, except that the figures of the most accurate plan are those of the restricted trie.

    Args:
        annotated: A trie with standard errors.
        evidence: The report for plans over all steps.
        rows: The rows that the trie and the report were estimated from.
        n_requests: Number of requests.
        firsts: See :func:`tried_steps`.

    Returns:
        The restricted trie and its report. None if the template does not state the current setup, the stop rule cannot
        be served, requests have types, the trie has no standard errors, or no plan takes only tried steps.
    """
    template = annotated.template
    if template.today is None or template.rule.why_not_served or template.kinds or annotated.accuracy_se is None:
        return None
    found = replace(annotated, meta={**annotated.meta, "evidence": evidence.to_dict()})
    found = only_tried(found, by_request(rows), n_requests, firsts)
    try:
        promise = Planner(found).plan(Objective(maximize="accuracy")).promise
    except InfeasibleError:
        return None
    return found, replace(
        evidence,
        best_accuracy=promise.estimate,
        best_promised=promise.accuracy,
        best_half_width=promise.half_width,
    )


def with_verdict(
    annotated: AnnotatedTrie, found: Verdict, requests: Sequence[str], rows: Sequence[Observation]
) -> AnnotatedTrie:
    """Return the trie with the verdict ``found`` stored in it. If the verdict compared only plans over tried steps, the
    trie is restricted to these steps.

    Args:
        annotated: The trie that was fitted to ``rows``.
        found: The verdict of a :class:`~vinelm.evaluation.comparison.comparison.Comparison` of the same requests and
            rows.
        requests: The ids of the compared requests.
        rows: The recorded results of these requests.
    """
    annotated = annotated.judged(found)
    return only_tried(annotated, by_request(rows), len(requests), first_stages(rows)) if found.tried_only else annotated


def first_stages(rows: Iterable[Observation]) -> tuple[str, ...]:
    """Return the first stages of requests, the most common first; empty without rows."""
    firsts = {row.request_id: row.stage for row in rows if row.depth == 1}
    return tuple(stage for stage, _ in sorted(Counter(firsts.values()).items(), key=lambda one: (-one[1], one[0])))
