"""What an optional stage is worth is read off requests that ran it and that left it out."""

from dataclasses import replace

import numpy as np
import pytest
from kit.catalogs import make_catalog

from vinelm.cli.commands.plan import skipped_words
from vinelm.controller import Planner
from vinelm.estimator import make_estimator
from vinelm.estimator.optional_steps import optional_steps
from vinelm.objective import Objective
from vinelm.plans.recommendation import left_out
from vinelm.rows.observation import Observation
from vinelm.template import SKIP, Stage, Template

STEPS = (Stage("solve"), Stage("reflect", ("m1",), optional=True), Stage("judge", ("m1",), optional=True, verdict="v"))
TEMPLATE = Template(STEPS).bind(("m0", "m1"))


def row(request, prefix, stage, success, cost=0.0):
    told = {"success": success, "cost_usd": cost, "latency_s": 1.0, "stopped": False}
    return Observation(request_id=request, prefix=prefix, stage=stage, **told)


def table(changes, cost=0.002):
    """Requests of (right without, right with)."""
    rows = []
    for number, (before, after) in enumerate(changes):
        name = f"q{number}"
        rows += [row(name, ("m0",), "solve", before, 0.001), row(name, ("m0", SKIP), "reflect", before)]
        rows += [row(name, ("m0", "m1"), "reflect", after, cost), row(name, ("m0", "m1", "m1"), "judge", after, cost)]
        rows += [row(name, ("m0", "m1", SKIP), "judge", after)]
    return rows


def test_a_step_that_changes_nothing_is_told_with_its_price():
    worth = optional_steps(table([(True, True)] * 150 + [(False, False)] * 50), TEMPLATE)
    assert set(worth) == {"reflect"}  # a judge changes no answer
    assert worth["reflect"]["cost_usd"] == pytest.approx(0.002)
    assert worth["reflect"]["pairs"] == 200
    assert -0.012 < worth["reflect"]["low"] < 0.0 < worth["reflect"]["high"] < 0.012


def test_the_interval_is_about_the_change_and_narrows_with_pairs():
    changes = [(False, True)] * 3 + [(True, False)] + [(True, True)] * 6
    few, many = (optional_steps(table(changes * times), TEMPLATE)["reflect"] for times in (2, 40))
    for worth in (few, many):
        assert worth["low"] < 0.2 < worth["high"]
    assert many["high"] - many["low"] < (few["high"] - few["low"]) / 3
    assert many["low"] > 0.1


def test_rows_without_their_twin_count_nothing():
    rows = [one for one in table([(True, False)] * 20) if one.prefix != ("m0", SKIP)]
    assert optional_steps(rows, TEMPLATE) == {}
    assert optional_steps(rows, Template((Stage("solve"),)).bind(("m0", "m1"))) == {}


def test_the_interval_covers_the_change_it_was_drawn_from():
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        draws = rng.choice(3, 60, p=[0.1, 0.05, 0.85])
        changes = [((False, True), (True, False), (True, True))[draw] for draw in draws]
        worth = optional_steps(table(changes), TEMPLATE)["reflect"]
        covered += worth["low"] <= 0.05 <= worth["high"]
    assert 185 <= covered <= 200


def test_a_plan_says_what_it_leaves_out_and_nothing_of_what_it_runs():
    rows = table([(True, True)] * 30 + [(False, False)] * 10)
    template = Template((Stage("solve", ("m0",), answerable=False), Stage("reflect", ("m1",), optional=True))).bind(
        ("m0", "m1")
    )
    catalog = make_catalog()
    annotated = make_estimator("latent").fit([one for one in rows if one.stage != "judge"], template, catalog).annotated_
    annotated = replace(annotated, meta={**annotated.meta, "optional_steps": optional_steps(rows, template)})
    cheap = Planner(annotated).plan(Objective(maximize="accuracy", max_cost_usd=0.0015))
    assert cheap.path == ("m0", SKIP)
    (worth,) = left_out(annotated, cheap.reached).values()
    words = skipped_words("reflect", worth)
    assert words.startswith("reflect costs $0.00200 a request and changes the accuracy of its answer by -")
    assert words.endswith("points (40 requests with and without it): the plan skips it.")
    runs = np.zeros(len(annotated.trie))
    runs[annotated.trie.path(annotated.trie.node(("m0", "m1")))] = 1.0
    assert left_out(annotated, runs) == {}
