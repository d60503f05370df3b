"""Restricts a trie to steps that enough requests took, so that rows show what a plan over them does.

Estimates find the best of very many plans, and the best by few rows changes with every row. A comparison with what runs today
needs whole runs of the plan that it judges. So where plans of any step cannot be judged, those of the tried steps are.
"""

from __future__ import annotations

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
"""A step is tried if this share of the requests that came there took it: a plan of three such steps that others chose has an
eighth of them at least, and one that was run on purpose nearly all."""
RowsByRequest = Mapping[str, Mapping[tuple[str, ...], Observation]]


def tried_steps(annotated: AnnotatedTrie, rows: RowsByRequest, n_requests: int, first: str | None) -> BoolArray:
    """Return which edges of a trie enough requests took. This depends on what was bought, not on the results.

    Where no step after a history was tried, all of them count as tried: few requests come there.

    Args:
        annotated: Of a template without kinds.
        rows: The rows of each request, by prefix.
        n_requests: How many requests begin.
        first: The stage that they begin with, where the template allows several.

    Returns:
        Shape (edges,).
    """
    trie = annotated.trie
    edges = {pair: edge for edge, pair in enumerate(zip(trie.source.tolist(), trie.target.tolist(), strict=True))}
    locate = along_stages(Planner(annotated), first)
    start = locate(())
    came: Counter[tuple[int, str | None]] = Counter({(start.node, start.stage): n_requests})
    took: Counter[tuple[int, str | None, int]] = Counter()
    for of_request in rows.values():
        for prefix in of_request:
            chain = tuple(of_request[prefix[:n]] for n in range(1, len(prefix) + 1) if prefix[:n] in of_request)
            if len(chain) < len(prefix):
                continue
            try:
                before, after = locate(chain[:-1]), locate(chain)
            except KeyError:
                continue  # rows of a model or an arm that the trie does not have
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
    """Return the rows of each request, by prefix."""
    found: dict[str, dict[tuple[str, ...], Observation]] = {}
    for row in rows:
        found.setdefault(row.request_id, {})[row.prefix] = row
    return found


def only_tried(annotated: AnnotatedTrie, rows: RowsByRequest, n_requests: int, first: str | None) -> AnnotatedTrie:
    """Return the trie restricted to tried steps; the arguments are those of :func:`tried_steps`."""
    return annotated.within(tried_steps(annotated, rows, n_requests, first))


def as_known(
    annotated: AnnotatedTrie, evidence: ValidationReport, rows: Sequence[Observation], n_requests: int, first: str | None
) -> tuple[AnnotatedTrie, ValidationReport] | None:
    """Return the trie whose plans take tried steps only, and the report whose best path is the most accurate of theirs.

    Where many paths have a few rows each, the best of them by its estimate is rarely one that is known. What runs today and the
    plans that were run beside it are, and what is asked of an estimate is whether to replace the one by the others.

    Args:
        annotated: With standard errors.
        evidence: Of the plans of any step.
        rows: What both were estimated from.
        n_requests: How many requests begin.
        first: As :func:`tried_steps` takes it.

    Returns:
        None where it is not known what runs today, requests have kinds, or no plan takes tried steps alone.
    """
    template = annotated.template
    if template.today is None or template.stop == "oracle" or template.kinds or annotated.accuracy_se is None:
        return None
    found = replace(annotated, meta={**annotated.meta, "evidence": evidence.to_dict()})
    found = only_tried(found, by_request(rows), n_requests, first)
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
    """Return the trie with its verdict, and only the plans that were compared.

    Args:
        annotated: Fitted to the same rows.
        found: Of :class:`~vinelm.evaluation.judging.judge.Judge`, which was given the same requests and rows.
        requests: As there.
        rows: As there.
    """
    annotated = annotated.judged(found)
    return only_tried(annotated, by_request(rows), len(requests), only_first_stage(rows)) if found.tried_only else annotated


def only_first_stage(rows: Iterable[Observation]) -> str | None:
    """Return the stage that all requests begin with; None if there are several, or none."""
    first = {row.stage for row in rows if row.depth == 1}
    return first.pop() if len(first) == 1 else None
