"""The demo on recorded answers of real models: profile, estimate, plan, serve held-out requests, evaluate, report."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vinelm.catalog import Catalog
from vinelm.controller import Decision
from vinelm.demo.recorded_page import recorded_page
from vinelm.demo.recorded_result import SUBJECTS, DemoPolicy, RecordedResult, Subject, mean_over_groups
from vinelm.demo.steps import PAGE, STORE, TRIE, profiled_anew
from vinelm.evaluation.plans.plans import Role
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.evaluation.store_sweeps.plan_spending import plan_spending
from vinelm.objective import Objective
from vinelm.policies import Policy, StaticPolicy
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import ComparedPlan, Verdict

if TYPE_CHECKING:
    from vinelm.traces.served.served_requests import ServedRequest


def run_recorded(name: str, folder: Path, *, seed: int, advance: Callable[..., None]) -> RecordedResult:
    """Run the demo on a table of recorded answers. Writes a store, a trie and a report into ``folder``.

    A sample of all requests is profiled. The requests are split into two halves. On each half the application runs the
    plan that was chosen on the other half, and each model alone. Recorded answers cost nothing, so every result is
    measured rather than estimated.

    Args:
        name: A key of :data:`SUBJECTS`.
        folder: Created if it does not exist; files of an earlier demo are replaced.
        seed: Determines the sample and the halves.
        advance: Shows progress: done, total, the title of the step, and a short text.

    Raises:
        ConfigError: The folder cannot be written to.
        KeyboardInterrupt: The profile was interrupted.
    """
    from vinelm.api import estimate
    from vinelm.reports import write_page
    from vinelm.traces import ObservationStore
    from vinelm.vinefile import save_trie

    subject = SUBJECTS[name]
    workflow = subject.workflow()
    catalog = workflow.models
    assert catalog is not None
    profiled = profiled_anew(workflow, catalog, folder, seed=seed, coverage=subject.coverage, advance=advance)
    annotated = estimate(folder / STORE, check=False)
    with ObservationStore.open(folder / STORE) as opened:
        rows, template = opened.observations(), opened.identity.bound_template()
    halves = list(_halves(workflow.requests, subject.group, seed))
    parts: dict[tuple[str, Role], list[ServedRequest]] = {}
    requests: list[Request] = []
    for number, half in enumerate(halves):
        judged = {request.id for request in half}
        planned = _estimated([row for row in rows if row.request_id not in judged], template, catalog)
        application = _Application.of(workflow, catalog, planned)
        for policy in application.policies(subject):
            advance(number * len(half), len(workflow.requests), "serve", f"{policy.name} to {len(half)} {subject.noun}")
            parts.setdefault((policy.name, policy.role), []).extend(application.serve(policy, half))
        requests += half
    served = {key: _served(*key, found) for key, found in parts.items() if len(found) == len(requests)}
    groups = tuple(subject.group(request.id) for request in requests)
    models = [one for one in served.values() if one.role in ("model", "in_use")]
    today, ours = served[subject.today, "in_use"], served[VINELM, "vinelm"]
    equal, fixed = served.get((EQUAL, "paths")), served.get((FIXED, "static"))
    whole = _Application.of(workflow, catalog, annotated)
    decision = whole.plan(subject)
    beside = [one for one in (*models, *([fixed] if fixed else [])) if one is not today]
    found = replace(
        against_today(ours, today, groups, beside=beside, decision=decision, cap_usd=whole.objective(subject).max_cost_usd),
        rows=sum(profiled.counts),
        spent_usd=profiled.spent_usd,
    )
    annotated = annotated.judged(found)
    save_trie(folder / TRIE, annotated)
    result = RecordedResult(
        subject=subject,
        profiled=profiled,
        models=tuple(sorted(models, key=lambda one: (one is not today, -one.usd))),
        fixed=fixed,
        vinelm=ours,
        annotated=annotated,
        decision=decision,
        found=found,
        equal=None if equal is None else against_today(equal, today, groups),
        groups=groups,
        store=folder / STORE,
        trie=folder / TRIE,
        page=folder / PAGE,
    )
    advance(0, 1, "report", "")
    write_page(recorded_page(result), result.page)
    return result


def against_today(
    plan: DemoPolicy,
    today: DemoPolicy,
    groups: Sequence[str],
    *,
    beside: Sequence[DemoPolicy] = (),
    decision: Decision | None = None,
    cap_usd: float | None = None,
) -> Verdict:
    """Return the verdict on whether to replace the current setup, one model on every call, by a plan.

    The results must be from requests that were not used to choose the plan. The verdict follows the same rule as every
    verdict of VineLM.

    Args:
        plan: The plan's results.
        today: The results of the current setup: one model.
        groups: The group of each request; the results of requests of one group depend on each other.
        beside: Other policies that are listed with the plan and the current setup, but not tested.
        decision: The plan chosen on all results for the same objective. The verdict names this plan and its models; if
            None, it names ``plan``.
        cap_usd: The cost limit per request, in dollars, for which the plan was made.
    """
    own = _compared(plan, today, groups)
    if decision is not None:
        models = dict.fromkeys(one.model for one in plan_spending(decision))
        own = replace(
            own, policy=decision.metrics.annotated.policy, words=decision.words, models=tuple(models), cap_usd=cap_usd
        )
    shown = (replace(_compared(one, today, groups), is_rung=False) for one in beside)
    return Verdict(
        opponent=f"{today.name} on every call",
        models={"every call": today.name},
        accuracy=today.accuracy,
        cost_usd=today.usd,
        latency_s=today.seconds or None,
        requests=len(today.served),
        plans=tuple(sorted((own, *shown), key=lambda one: one.cost_usd)),
        is_served=True,
    )


def _compared(plan: DemoPolicy, today: DemoPolicy, groups: Sequence[str]) -> ComparedPlan:
    gain = mean_over_groups(plan.right - today.right, groups)
    saved = mean_over_groups(today.cost_usd - plan.cost_usd, groups)
    is_fixed = plan.role in ("model", "static")
    return ComparedPlan(
        policy="fixed" if is_fixed else "paths", cost_usd=plan.usd, accuracy=plan.accuracy, is_identified=True,
        is_same=bool((plan.right == today.right).all() and (plan.cost_usd == today.cost_usd).all()),
        gain=gain.value, gain_low=gain.low, gain_high=gain.high, best_low=gain.low, best_high=gain.high,
        saved_usd=saved.value, saved_low=saved.low, saved_high=saved.high, latency_s=plan.seconds or None,
        words=plan.name, models=(plan.name,) if plan.role == "model" else (),
    )  # fmt: skip


# -- the two halves ------------------------------------------------------------------------------------------------


def _halves(requests: Sequence[Request], group: Callable[[str], str], seed: int) -> Iterator[list[Request]]:
    """Yield the first and then the second half of the requests. Groups of requests stay whole; a hash of group name and seed
    decides their half.
    """
    names = dict.fromkeys(group(request.id) for request in requests)
    order = sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    first = set(order[::2])
    yield [request for request in requests if group(request.id) in first]
    yield [request for request in requests if group(request.id) not in first]


def _estimated(rows: Sequence[Observation], template: Template, catalog: Catalog) -> AnnotatedTrie:
    """Return the annotated trie estimated from ``rows``, as :func:`vinelm.estimate` does for a store."""
    from vinelm.estimator import estimate_signals, make_estimator

    annotated = make_estimator("latent").fit(rows, template, catalog).annotated_
    return replace(annotated, signals=estimate_signals(annotated, rows))


# -- serving -------------------------------------------------------------------------------------------------------

VINELM, FIXED, EQUAL = "VineLM", "best fixed plan", "VineLM, as accurate"


class _Policy(NamedTuple):
    name: str
    role: Role
    new: Callable[[Request], Policy]
    objective: Objective | None = None


@dataclass(frozen=True, kw_only=True)
class _Application:
    """The workflow's graph, served with an annotated trie.

    Attributes:
        workflow: The workflow.
        annotated: The trie.
        vine: The ``VineLM`` object that makes the plans.
        app: The compiled graph.
    """

    workflow: Workflow
    annotated: AnnotatedTrie
    vine: Any
    app: Any

    @classmethod
    def of(cls, workflow: Workflow, catalog: Catalog, annotated: AnnotatedTrie) -> _Application:
        from vinelm.adapters.langgraph import build_graph
        from vinelm.api import VineLM
        from vinelm.backends import create_backends

        workflow = replace(workflow, template=annotated.template)
        backends = create_backends(catalog, workflow=workflow)
        vine = VineLM(catalog, backends, trie=annotated, fallback=False, labelled=True, signals=workflow.signals)
        return cls(workflow=workflow, annotated=annotated, vine=vine, app=build_graph(workflow, vine))

    def objective(self, subject: Subject) -> Objective:
        """Return the objective: the highest accuracy of a single plan (no mixture) within a fraction of the current setup's
        estimated cost.
        """
        return Objective(maximize="accuracy", max_cost_usd=subject.share * self._today(subject).path_cost_usd, mix=False)

    def plan(self, subject: Subject) -> Any:
        """Return VineLM's plan for the :meth:`objective` of the demo ``subject``."""
        return self.vine.served_planner().plan(self.objective(subject))

    def policies(self, subject: Subject) -> Iterator[_Policy]:
        """Yield the policies to compare: each model alone, the best fixed plan within the cost limit, VineLM's plan and, if the
        subject asks for it, the cheapest plan of equal accuracy.

        A single model is called once per request, because a second call would only repeat its recorded answer.
        """
        for model in self.annotated.trie.models:
            yield _Policy(model, "in_use" if model == subject.today else "model", self._along({"path": (model,)}))
        objective, plans = self.objective(subject), plans_over(self.annotated)
        fixed = plans.fixed(objective, "static")
        if fixed is not None:
            yield _Policy(FIXED, "static", self._along(plans.settings(fixed)))
        yield _Policy(VINELM, "vinelm", self._session(objective), objective)
        if subject.asks_equal:
            equal = Objective(minimize="cost", min_accuracy=self._today(subject).accuracy)
            yield _Policy(EQUAL, "paths", self._session(equal), equal)

    def serve(self, policy: _Policy, requests: Sequence[Request]) -> list[ServedRequest]:
        from vinelm.running.serving import serve

        return [
            serve(self.workflow, self.vine, self.app, request, policy=policy.new(request), objective=policy.objective)
            for request in requests
        ]

    def _today(self, subject: Subject) -> Any:
        found = plans_over(self.annotated).having({"path": (subject.today,)})
        assert found is not None
        return found

    def _along(self, settings: Mapping[str, Any]) -> Callable[[Request], Policy]:
        return lambda request: StaticPolicy(self.annotated.template, **settings, clock=self.vine.new_clock(), request=request)

    def _session(self, objective: Objective) -> Callable[[Request], Policy]:
        return lambda request: self.vine.session(objective, request=request, clock=self.vine.new_clock())


def _served(name: str, role: Role, found: Sequence[ServedRequest]) -> DemoPolicy:
    return DemoPolicy(name=name, role=role, served=tuple(found))
