"""Compares two workflows on the same requests and models, by their stores' results: accuracy, cost, tokens and time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vinelm.api.estimation import fitted
from vinelm.errors import ConfigError, EvidenceError
from vinelm.evaluation.comparison.evidence import StoreEvidence
from vinelm.evaluation.comparison.fit import Fit
from vinelm.evaluation.comparison.side_by_side import FollowedPlan
from vinelm.evaluation.off_policy.buying import BoughtRows
from vinelm.evaluation.off_policy.followed import followed_rows
from vinelm.evaluation.off_policy.intervals import HalfScores, OffPolicyEstimate, estimate_mean, served_scores
from vinelm.rows.observation import Observation

TODAY = "what runs today"
TARGETS = ("accuracy", "cost", "latency")


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The mean resources that calls used per request.

    Attributes:
        calls: The number of model calls.
        tokens_in, tokens_out: The numbers of prompt and completion tokens; None if they are unknown for some call.
        cost_usd: The cost in dollars, including tools.
    """

    calls: float
    tokens_in: float | None
    tokens_out: float | None
    cost_usd: float

    @classmethod
    def of(cls, rows: Sequence[Observation], requests: int) -> Taken:
        """Return the resources of the calls in ``rows``, each summed and divided by the number ``requests``."""

        def tokens(counts: Sequence[int | None]) -> float | None:
            known = [count for count in counts if count is not None]
            return sum(known) / requests if len(known) == len(counts) else None

        return cls(
            calls=sum(row.calls for row in rows) / requests,
            tokens_in=tokens([row.tokens_in for row in rows]),
            tokens_out=tokens([row.tokens_out for row in rows]),
            cost_usd=sum(row.cost_usd + row.tool_cost_usd for row in rows) / requests,
        )


@dataclass(frozen=True, kw_only=True)
class Side:
    """The results of one workflow under a plan, as means over the requests that followed the plan in both workflows.

    Attributes:
        accuracy: The share of right answers.
        latency_s: The duration of a request in seconds.
        whole: The resources of all calls of a request.
        stages: The resources of each stage's calls, in the order of the stages' first calls.
    """

    accuracy: float
    latency_s: float
    whole: Taken
    stages: Mapping[str, Taken]

    @classmethod
    def of(cls, followed: Sequence[FollowedPlan]) -> Side:
        """Return the results of a workflow as means over the requests that followed a plan."""
        rows, n = [row for one in followed for row in one.rows], len(followed)
        names = dict.fromkeys(row.stage for row in rows)
        return cls(
            accuracy=sum(one.success for one in followed) / n,
            latency_s=sum(_seconds(one) for one in followed) / n,
            whole=Taken.of(rows, n),
            stages={name: Taken.of([row for row in rows if row.stage == name], n) for name in names},
        )


@dataclass(frozen=True, kw_only=True)
class UnderPlan:
    """The results of both workflows under one plan.

    Attributes:
        plan: A model that answers every call, or "what runs today".
        requests: The number of requests that have every result of the plan in both stores.
        sides: The results of the first workflow and of the second.
        gain: The gain of the first workflow over the second, keyed by target (accuracy, cost, latency): a mean of paired
            differences with its 95 % interval. Saved dollars and seconds are positive.
    """

    plan: str
    requests: int
    sides: tuple[Side, Side]
    gain: Mapping[str, OffPolicyEstimate]

    @classmethod
    def of(cls, plan: str, pairs: Sequence[tuple[FollowedPlan, FollowedPlan]]) -> UnderPlan:
        """Return the comparison of both workflows under the plan called ``plan``, from each request's pair of results."""
        sides = tuple(zip(*pairs, strict=True))
        scores = [
            served_scores([one.success for one in side], [one.cost_usd for one in side], [_seconds(one) for one in side])
            for side in sides
        ]
        gain = {
            target: estimate_mean([HalfScores(*scores)], target, bound=1.0 if target == "accuracy" else None)
            for target in TARGETS
        }
        return cls(plan=plan, requests=len(pairs), sides=(Side.of(sides[0]), Side.of(sides[1])), gain=gain)


@dataclass(frozen=True, kw_only=True)
class WorkflowComparison:
    """The comparison of two workflows on one data set.

    Attributes:
        workflows: The workflows' names, or the names of the stores if both workflows have the same name.
        plans: The results for each plan that both workflows have run; the current setup comes first.
        shared: The number of requests that are in both stores.
        is_same_data: Whether both workflows were profiled on the same requests, row by row. Otherwise requests are paired by
            their ids alone.
        is_simulated: Whether a model of either workflow is simulated.
    """

    workflows: tuple[str, str]
    plans: tuple[UnderPlan, ...]
    shared: int
    is_same_data: bool
    is_simulated: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON types. An interval is None if too few requests have run the plan in both stores."""
        own = asdict(self)
        for plan, shown in zip(self.plans, own["plans"], strict=True):
            shown["gain"] = {target: gain.to_dict() for target, gain in plan.gain.items()}
        return own


def compare_workflows(store: str | Path, against: str | Path) -> WorkflowComparison:
    """Return a comparison of two workflows that were profiled on one data set, under the same models. Calls no model.

    The plans are each model alone, and the current setup if both workflows declare it. A plan is compared on the requests
    for which both stores have all results of the plan. Which results a store has does not depend on their scores, so the
    paired differences are due to the workflows.

    Args:
        store: The store of the first workflow.
        against: The store of the second workflow.

    Raises:
        ConfigError: The stores share no request, or no plan that both workflows have run on a shared request.
        StoreError: A store cannot be read.
    """
    sides = _Followed.of(store), _Followed.of(against)
    one, other = (side.evidence for side in sides)
    shared = [request for request in one.requests if request in set(other.requests)]
    if not shared:
        raise ConfigError(
            f"{store} and {against} share no request: their ids differ. Profile both with the same --dataset, and name its ids"
            " with --column id=COLUMN"
        )
    plans = []
    for name, plan in sides[0].plans.items():
        if name in sides[1].plans:
            ways = [partial(side.results, of) for side, of in zip(sides, (plan, sides[1].plans[name]), strict=True)]
            pairs = [(a, b) for request in shared if (a := ways[0](request)) and (b := ways[1](request))]
            plans += [UnderPlan.of(name, pairs)] if pairs else []
    if not plans:
        raise ConfigError(
            f"{store} and {against} have run no model to the end on the same request: profile both with a model that both may"
            " use, with --coverage 0.9 for instance"
        )
    names = one.identity.workflow, other.identity.workflow
    return WorkflowComparison(
        workflows=names if names[0] != names[1] else (str(store), str(against)),
        plans=tuple(plans),
        shared=len(shared),
        is_same_data=one.identity.dataset_digest == other.identity.dataset_digest,
        is_simulated=one.identity.is_simulated or other.identity.is_simulated,
    )


@dataclass(frozen=True, eq=False)
class _Followed:
    """The fixed plans of a store, and its recorded results, which show the requests that followed each plan.

    Attributes:
        evidence: The contents of the store.
        bought: The store's results, by request.
        plans: The policy that runs each plan, keyed by the plan's name.
    """

    evidence: StoreEvidence
    bought: BoughtRows
    plans: Mapping[str, Any]

    @classmethod
    def of(cls, path: str | Path) -> _Followed:
        evidence = StoreEvidence.of(path, by_kind=False)
        unlabelled = () if evidence.referred is None else evidence.referred.unlabelled
        try:
            fit = Fit(evidence.rows, evidence.template, evidence.catalog, "latent", annotated=fitted(evidence, "latent")[0])
        except EvidenceError as error:
            raise ConfigError(f"{path}: {error}") from error
        bought = BoughtRows.of(evidence.requests, evidence.rows, evidence.template.base, {}, unlabelled)
        found = dict(_fixed(fit))
        return cls(evidence, bought, {name: fit.following(plan).parts[0][1] for name, plan in found.items()})

    def results(self, plan: Any, request: str) -> FollowedPlan | None:
        found = followed_rows(plan, self.bought, request)
        return None if found is None else FollowedPlan(*found)


def _fixed(fit: Fit) -> Iterator[tuple[str, Any]]:
    today = fit.plain.plans.today()
    if today is not None:
        yield TODAY, today
    yield from fit.plain.plans.single_models()


def _seconds(one: FollowedPlan) -> float:
    return sum(row.latency_s + row.tool_latency_s for row in one.rows)
