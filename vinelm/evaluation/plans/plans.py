"""Plans for one objective over one trie: VineLM's plan, the best static plan (one model per stage) and the best model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from vinelm.controller import Decision, Planner
from vinelm.controller.planning.mixture import Hull
from vinelm.errors import InfeasibleError
from vinelm.evaluation.off_policy.planned_steps import Locate
from vinelm.evaluation.off_policy.steps import StepPolicy
from vinelm.objective import Objective
from vinelm.plans.expected import Expected
from vinelm.policies import StaticPolicy
from vinelm.trie.annotated_trie import AnnotatedTrie


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the lower and upper end of its confidence interval."""

    value: float
    low: float
    high: float


Role = Literal["vinelm", "paths", "full", "static", "single", "vote", "two_agree", "model", "in_use"]
"""The policy that a series or table row shows: VineLM; VineLM over paths, if the first one plans over signals, or without
kinds, if the first one tells kinds apart (``paths``); VineLM on a fully profiled trie (``full``); the best static plan; the
best single model (``single``); a vote; asking until two agree; any one model (``model``); or the current setup (``in_use``)."""


NAMES: dict[Role, str] = {"vinelm": "VineLM", "static": "best static plan", "single": "best single model"}
"""Display name of each policy that is planned, by role."""
PATHS = "VineLM over paths"
"""Display name of VineLM's plans over paths, next to those over signals."""


@dataclass(frozen=True, slots=True)
class MixedFixed(Expected):
    """A mixture of two fixed plans, one for some of the requests and one for the rest; ``parts`` has pairs (share of
    the requests, plan).
    """

    parts: tuple[tuple[float, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan and its figures as plain JSON types."""
        figures = {name: getattr(self, name) for name in ("is_feasible", "accuracy", "path_cost_usd", "path_latency_s")}
        return figures | {"mixed_plans": [{"share": share, **plan.to_dict()} for share, plan in self.parts]}


Fixed = TypeVar("Fixed", bound=Expected)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PlannedPolicy:
    """One policy's plan.

    Attributes:
        policy: The policy's name.
        role: The policy's role in tables and charts.
        decision: The plan; None if no plan of the policy meets the objective's limits.
        plan: The plan in words.
    """

    policy: str
    role: Role
    decision: Any
    plan: str


class CarriedPlan(NamedTuple):
    """The accuracy and cost that one trie predicts for a plan made on another trie.

    ``standard_error`` is the standard error of the accuracy; None if unknown. ``is_same`` says whether the trie that makes
    the predictions also has this plan as its best plan for the objective.
    """

    accuracy: float
    cost_usd: float
    standard_error: float | None
    is_same: bool


class PlanFrontier(NamedTuple):
    """Some plans of the estimated Pareto frontier of accuracy and cost, cheapest first.

    ``rows`` has one dict of JSON types for each of these plans. ``n_plans`` is the number of all plans of the frontier,
    ``best`` the most accurate of them.
    """

    rows: list[dict[str, Any]]
    n_plans: int
    best: Decision


class FrontierRange(NamedTuple):
    """The ends of two estimated Pareto frontiers of plans.

    On the frontier of accuracy over cost: the cheapest and the most expensive plan in dollars per request, and the
    cheapest plan's accuracy. On the frontier of accuracy over latency: the fastest and the slowest plan in seconds per
    request.
    """

    cheapest_usd: float
    dearest_usd: float
    lowest_accuracy: float
    fastest_s: float
    slowest_s: float


class Plans(ABC, Generic[Fixed]):
    """Makes the plans over one trie: VineLM's plan for an objective, fixed plans and single models.
    :func:`~vinelm.evaluation.plans.plans_over.plans_over` returns such an object for any trie.
    """

    def __init__(self, annotated: AnnotatedTrie) -> None:
        self.annotated = annotated
        self.trie = annotated.trie
        self.planner = Planner(annotated)

    def decision(self, objective: Objective) -> Decision:
        """Return VineLM's plan for an objective, from the start of a request: one plan, or a mixture of two.

        Raises:
            InfeasibleError: No plan meets the limits, and the objective says to raise an error in that case.
        """
        return self.planner.mixed(objective)

    @abstractmethod
    def fixed(self, objective: Objective, role: Role) -> Fixed | None:
        """Return the best static plan for the role ``static``, or the best single model for ``single``.

        None if no such plan meets the objective's limits.
        """

    @abstractmethod
    def fixed_hull(self, objective: Objective, role: Role) -> Hull | None:
        """Return the convex hull of (cost, accuracy) over the static plans (role ``static``) or the single models (role
        ``single``).

        Mixtures of two plans are chosen from this hull. None if no plan meets the limits that hold for every single
        request.
        """

    def mixed_fixed(self, objective: Objective, role: Role) -> Expected | None:
        """Return the best static plan (role ``static``) or the best single model (role ``single``) for an objective.

        If the objective divides requests between plans, the result may be a mixture of two such plans. None if no plan meets
        the objective's limits.
        """
        hull = self.fixed_hull(objective, role) if objective.mixes else None
        mixture = None if hull is None else hull.mixture(objective)
        if mixture is None:
            return self.fixed(objective, role)
        low, high = (self.fixed(one, role) for one in (mixture.low, mixture.high))
        if low is None or high is None:
            return self.fixed(objective, role)
        return MixedFixed(((1.0 - mixture.share, low), (mixture.share, high)))

    @abstractmethod
    def single_models(self) -> Iterator[tuple[str, Fixed]]:
        """Yield (model, plan) for each model that can run every invocation."""

    @abstractmethod
    def settings(self, plan: Fixed) -> dict[str, Any]:
        """Return the arguments, by name, with which a :class:`~vinelm.policies.StaticPolicy` follows a plan.

        The names are ``path``, or ``models`` and ``length`` if the application chooses between stages.
        """

    @abstractmethod
    def having(self, settings: dict[str, Any]) -> Fixed | None:
        """Return the plan whose :meth:`settings` equal ``settings``; None if this trie has no such plan."""

    def today_settings(self) -> dict[str, Any] | None:
        """Return the :meth:`settings` of the current setup; None if unknown."""
        template = self.annotated.template.base
        return None if template.today is None else template.settings_of(template.today)

    def today(self) -> Fixed | None:
        """Return the current setup as a plan; None if it is unknown or not a plan of this trie."""
        settings = self.today_settings()
        return None if settings is None else self.having(settings)

    @staticmethod
    @abstractmethod
    def steps(plan: Any, locate: Locate) -> StepPolicy:
        """Return the policy that makes the calls of a plan or decision on this trie.

        ``locate`` finds a request's position in the trie from the results of its calls.
        """

    @abstractmethod
    def frontier_range(self) -> FrontierRange:
        """Return the ends of the Pareto frontiers of accuracy over cost and of accuracy over latency."""

    @abstractmethod
    def frontier(self, most: int) -> PlanFrontier:
        """Return at most ``most`` plans of the Pareto frontier of accuracy and cost, evenly spaced, including its first
        and last plan.
        """

    @abstractmethod
    def carried(self, old: Decision, now: Decision) -> CarriedPlan | None:
        """Return this trie's predictions for ``old``, a plan made on another trie of the workflow.

        ``now`` is this trie's plan for the same objective, and the result says whether both are the same. None if this
        trie lacks a model that ``old`` runs.
        """

    def policy(self, plan: Fixed, **settings: Any) -> StaticPolicy:
        """Return a policy that follows a plan.

        ``settings`` may contain the arguments ``clock``, ``request`` and ``judge`` of :class:`StaticPolicy`.
        """
        return StaticPolicy(self.annotated.template.base, **self.settings(plan), **settings)

    def of_role(self, objective: Objective, role: Role) -> Expected | None:
        """Return VineLM's plan for the role ``vinelm``, else the result of :meth:`mixed_fixed`; None if no plan meets
        the objective's limits.

        Raises:
            InfeasibleError: VineLM has no plan that meets the limits, and the objective says to raise an error in that
                case.
        """
        found: Expected | None = self.decision(objective) if role == "vinelm" else self.mixed_fixed(objective, role)
        return found if found is not None and found.is_feasible else None

    def compare(self, objective: Objective) -> list[PlannedPolicy]:
        """Return VineLM's plan for an objective, the best static plan and the best single model, in this order.

        Raises:
            InfeasibleError: No plan meets the limits, and the objective says to raise an error in that case.
        """
        best = self.decision(objective)
        found = [PlannedPolicy(NAMES["vinelm"], "vinelm", best, best.words)]
        for role in ("static", "single"):
            plan = self.mixed_fixed(objective, role)
            found.append(PlannedPolicy(NAMES[role], role, plan, "none meets the bounds" if plan is None else plan.words))
        return found

    @property
    def best_single_accuracy(self) -> float:
        """Return the highest estimated accuracy of a single model.

        Raises:
            InfeasibleError: No model can run every stage.
        """
        found = self.fixed(Objective(maximize="accuracy"), "single")
        if found is None:
            raise InfeasibleError("no model can run every stage: give the stages a common model")
        return float(found.accuracy)


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most ``most`` of the items, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / max(most - 1, 1))] for i in range(most)]
