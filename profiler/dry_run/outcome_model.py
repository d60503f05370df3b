"""Draws random outcomes of calls for a forecast: resampled from a store's results, or drawn within the catalog's limits."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vinelm.catalog import Catalog
from vinelm.profiler.execution.ledger import FIRST_PROMPT_TOKENS, PriceBound
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template

_PRIOR = 4.0  # weight, in rows, of the stage's rates over all models, and of the overall rate
_LOWEST_SHARE = 0.02  # without a pilot, a call costs between this share of its upper bound and all of it
_TOKENS_PER_S = (20.0, 200.0)  # without a pilot, the range of speeds at which a model may write
_END = ""
Place = tuple[int, str]
"""(depth, stage)."""
Kind = tuple[int, str, str]
"""(depth, stage, model)."""


class Unit(NamedTuple):
    """The drawn outcome of one simulated job.

    Attributes:
        cost_usd: the job's cost in dollars.
        calls: the number of its model calls.
        requests: the number of HTTP requests, that is, of calls including retries.
        tokens: prompt and completion tokens.
        call_s: seconds of its model calls.
        tool_s: seconds of its tools.
        arm: the next stage; ``_END`` if the request ends.
    """

    cost_usd: float
    calls: int
    requests: int
    tokens: float
    call_s: float
    tool_s: float
    arm: str


class OutcomeModel:
    """Draws the outcome of each simulated call: its cost, tokens and time, and the next stage or the request's end.

    Rates and costs depend on depth (the call's position in its request), stage and model. Whole requests are resampled, because
    the calls of one request are correlated. Without results, one continuation rate is drawn, and each possible next stage is
    equally likely.

    Args:
        rows: the results to resample from; may be empty.
        rng: the random generator; the draws advance it.
    """

    def __init__(self, template: Template, catalog: Catalog, rows: Sequence[Observation], rng: random.Random) -> None:
        self.template = template
        self._rng = rng
        by_request: dict[str, list[Observation]] = {}
        for row in rows:
            if not row.is_continued:  # requests that the workflow itself would have ended do not represent the others
                by_request.setdefault(row.request_id, []).append(row)
        requests = list(by_request)
        drawn = [row for one in rng.choices(requests, k=len(requests)) for row in by_request[one]] if requests else []
        self._of_kind: dict[Kind, list[Observation]] = {}
        self._of_place: dict[Place, list[Observation]] = {}
        self._of_model: dict[str, list[Observation]] = {}
        for row in drawn:
            self._of_kind.setdefault((row.depth, row.stage, row.model), []).append(row)
            self._of_place.setdefault((row.depth, row.stage), []).append(row)
            self._of_model.setdefault(row.model, []).append(row)
        went = sum(not row.ended(template.stop) for row in drawn)
        self._overall = (went + 2.0 * rng.random()) / (len(drawn) + 2.0)
        self._may_end = _may_end(template)
        self._first = {row.request_id: row.stage for row in rows if row.depth == 1}
        self._first_counts = Counter(self._first.values())
        self._bound = PriceBound(catalog)
        self._max_tokens = {name: catalog[name].max_tokens for name in template.models}
        self._guess_usd = {name: math.exp(rng.uniform(math.log(_LOWEST_SHARE), 0.0)) for name in template.models}
        self._guess_pace = {name: rng.uniform(*_TOKENS_PER_S) for name in template.models}
        self._weights: dict[Kind, Mapping[str, float]] = {}

    def stage(self, cell: Cell, possible: Sequence[str]) -> str:
        """Return the stage of the call ``cell`` (request id, models), one of the ``possible`` stages.

        If several stages are possible, one is drawn, and each later call for this request returns the same one.
        """
        if len(possible) == 1:
            return possible[0]
        request_id = cell[0]
        if request_id not in self._first:
            weights = [self._first_counts[name] + _PRIOR / len(possible) for name in possible]
            self._first[request_id] = self._rng.choices(possible, weights)[0]
        return self._first[request_id]

    def unit(self, cell: Cell, stages: Sequence[str]) -> Unit:
        """Draw the outcome of the call ``cell`` (request id, models): its cost, tokens and seconds, and the next stage.

        ``stages`` are the stages that have run, including this one.
        """
        stage = stages[-1]
        kind = len(cell[1]), stage, cell[1][-1]
        if kind not in self._weights:
            self._weights[kind] = self._outcome_weights(*kind)
        # At the same place, requests that came another way may continue to other stages.
        allowed = {arm.name for arm in self.template.arms_after(stages)}
        weights = {name: share for name, share in self._weights[kind].items() if name in allowed or (name == _END and allowed)}
        arm = self._rng.choices(list(weights), list(weights.values()))[0] if weights else _END
        like = self._of_kind.get(kind) or self._of_model.get(kind[-1])
        if not like:
            return self._guessed(stage, kind[-1], arm)
        row = like[int(self._rng.random() * len(like))]
        tokens = (row.tokens_in or 0) + (row.tokens_out or 0)
        cost = row.served_usd
        call_s = row.latency_s if row.is_timed else 0.0  # the forecast of hours is a lower bound
        return Unit(cost, row.calls, row.calls + row.retries, tokens, call_s, row.tool_latency_s, arm)

    def row(self, cell: Cell, unit: Unit, stage: str) -> Observation:
        """Return ``unit``, the drawn outcome of the call ``cell`` (request id, models), as an observation for samplers."""
        request_id, prefix = cell
        has_ended = unit.arm == _END
        return Observation(
            request_id=request_id,
            prefix=prefix,
            stage=stage,
            success=has_ended,
            stopped=has_ended,
            cost_usd=unit.cost_usd,
            latency_s=unit.call_s,
            calls=unit.calls,
            arm=unit.arm or None,
        )

    def _guessed(self, stage: str, model: str, arm: str) -> Unit:
        """Return a simulated job on a model without results, with cost and time from the catalog's limits.

        ``arm`` is the stage that follows; ``_END`` if the request ends.
        """
        share = self._guess_usd[model]
        tokens_out = share * self._max_tokens[model]
        cost = self._bound.usd(stage, model) * share
        call_s = tokens_out / self._guess_pace[model]
        return Unit(cost, 1, 1, FIRST_PROMPT_TOKENS * share + tokens_out, call_s, 0.0, arm)

    def _outcome_weights(self, depth: int, stage: str, model: str) -> Mapping[str, float]:
        """Return, by stage name, the probability that a request continues to this stage; for ``_END``, that it ends.

        Empty if no stage can follow. The probabilities of a model are shrunk towards those of its stage.
        """
        arms = self.template.flow.stages_at[depth - 1][stage]
        if not arms:
            return {}
        on = self._overall if (depth, stage) in self._may_end else 1.0
        even = {**dict.fromkeys(arms, on / len(arms)), _END: 1.0 - on}
        of_stage = self._shrunk(self._of_place.get((depth, stage), []), even, arms)
        return self._shrunk(self._of_kind.get((depth, stage, model), []), of_stage, arms)

    def _shrunk(self, rows: Sequence[Observation], prior: Mapping[str, float], arms: Sequence[str]) -> Mapping[str, float]:
        counts = Counter(_END if row.ended(self.template.stop) else row.next_stage(arms) for row in rows)
        return {name: (counts[name] + _PRIOR * share) / (len(rows) + _PRIOR) for name, share in prior.items()}


def _may_end(template: Template) -> frozenset[Place]:
    """Return the (depth, stage) pairs after which a request may end.

    A request may end there if the template lets the workflow end, or if the stage can give an answer.
    """
    flow = template.flow
    return frozenset(
        (depth + 1, stage)
        for position, depth in zip(flow.positions, flow.depths, strict=True)
        for stage, after in position.arms.items()
        if flow.positions[after].may_end or template.stage(stage).answerable
    )
