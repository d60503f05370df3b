"""Replayed sessions give what serving the same requests gives, and go by what requests show."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from vinelm.backends import create_backends, simulated_catalog
from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.estimator import estimate_signals, make_estimator
from vinelm.evaluation.policy_plans import Plans
from vinelm.evaluation.serving import HeldOutServing
from vinelm.evaluation.session_replay import SessionReplay
from vinelm.objective import Objective
from vinelm.observation import Observation
from vinelm.workflows.nl2sql import nl2sql
from vinelm.workflows.nl2sql.exact_outcomes import ExactAnswers


@pytest.fixture(scope="module")
def world():
    """The workflow on forty questions, its backends, exact answers, and a trie of all first and second answers."""
    catalog = simulated_catalog("paper-2")
    whole = nl2sql()
    workflow = replace(whole, requests=whole.requests[:40], template=whole.template.bind(tuple(catalog)))
    backends = create_backends(catalog, workflow=workflow, seed=0)
    answers = ExactAnswers(workflow, catalog, backends)
    rows = [row for request in workflow.requests for row in rows_of(workflow, answers, request, tuple(catalog))]
    annotated = make_estimator("latent").fit(rows, workflow.template, catalog).annotated_
    return workflow, backends, answers, replace(annotated, signals=estimate_signals(annotated, rows))


def rows_of(workflow, answers, request, models):
    known = []
    for prefix in [(model,) for model in models] + list(product(models, models)):
        shown = answers(request, prefix)
        kind = workflow.signals.class_of(shown.answer, known)
        if kind == len(known):
            known.append(shown.answer)
        yield Observation(
            request_id=request.id,
            prefix=prefix,
            stage="generate" if len(prefix) == 1 else "repair",
            success=shown.success,
            stopped=shown.passed,
            cost_usd=shown.cost_usd,
            latency_s=shown.latency_s,
            signal=shown.signal,
            answer_class=kind,
            is_continued=len(prefix) == 2 and answers(request, prefix[:1]).passed,
        )


@pytest.mark.parametrize(
    "objective",
    [
        Objective(maximize="accuracy"),
        Objective(maximize="accuracy", max_cost_usd=0.002),
        Objective(maximize="accuracy", max_latency_s=8.0),
        Objective(minimize="cost", min_accuracy=0.5),
    ],
    ids=lambda objective: objective.describe(),
)
def test_a_replayed_request_is_the_served_one(world, objective):
    workflow, backends, answers, annotated = world
    replayed = SessionReplay(Planner(annotated.signals), workflow.signals, answers).run(workflow.requests, objective, "VineLM")
    served = HeldOutServing(workflow, Plans(annotated), backends, workflow.requests, by_signals=True)
    found = served.planned(objective, lambda: None)
    assert np.array_equal(found.success, replayed.success)
    assert found.cost_usd == pytest.approx(replayed.cost_usd, abs=1e-12)
    assert found.latency_s == pytest.approx(replayed.latency_s, abs=1e-9)
    assert found.expected_accuracy == pytest.approx(replayed.expected_accuracy)


def test_what_is_shown_changes_what_is_asked(world):
    workflow, _, answers, annotated = world
    replay = SessionReplay(Planner(annotated.signals), workflow.signals, answers)
    asked = replay.run(workflow.requests, Objective(maximize="accuracy"), "VineLM")
    first = np.array([answers(request, ("sim-sonnet",)).cost_usd for request in workflow.requests])
    assert (asked.cost_usd > first).any()  # a second opinion, where the first answer alone would have passed
    passed = np.array([answers(request, ("sim-sonnet",)).passed for request in workflow.requests])
    assert (asked.cost_usd[passed] > first[passed]).any()


def test_a_trie_that_knows_no_outcomes_is_refused(world):
    workflow, _, answers, annotated = world
    with pytest.raises(ConfigError, match="`signals`"):
        SessionReplay(Planner(replace(annotated, signals=None)), workflow.signals, answers)
