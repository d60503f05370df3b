"""Plans for requests of several kinds: exact against all plans, and one price of a dollar over all kinds."""

import random

import numpy as np
import pytest
from kit.oracles.branching_cases import annotated_at_random
from kit.oracles.contingent_checks import MOST_PLANS, check_prices, number_of_plans
from kit.oracles.random_cases import _model

from vinelm.catalog import Catalog
from vinelm.controller.planner import Planner
from vinelm.controller.session.session import Session
from vinelm.evaluation.plans.arms import by_kind
from vinelm.objective import Objective
from vinelm.plans.static_plans import StaticPlans
from vinelm.reports.store.plan_sections import kinds_table
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.template.kinds import of_kinds
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

MODELS = ("cheap", "dear")
CATALOG = Catalog(_model(name, engine="e") for name in MODELS)
KINDS = ("code", "other")


def kinded(base: Template) -> tuple[Template, Trie]:
    template = of_kinds(base.bind(MODELS), KINDS)
    return template, Trie.from_template(template)


@pytest.mark.parametrize("seed", range(40))
def test_plans_by_kind_are_the_best_of_all_plans(seed: int) -> None:
    rng = random.Random(seed)
    loop = Template((Stage("a"), Loop((Stage("b"),), times=1)))
    base = rng.choice((Template((Stage("a"),)), Template((Stage("a", answerable=False), Stage("b"))), loop))
    template, trie = kinded(base)
    while True:
        annotated = annotated_at_random(rng, trie, template, CATALOG)
        if number_of_plans(annotated, 0, False) <= MOST_PLANS:
            break
    assert check_prices(annotated) == []


def two_kinds() -> AnnotatedTrie:
    """The dear model adds .5 to code, which is half of the requests, and nothing to the rest."""
    template, trie = kinded(Template((Stage("answer"),)))
    is_dear = np.array([model == 1 for model in trie.model])
    is_code = np.array([stage == 0 for stage in trie.stage])
    success = np.where(is_dear & is_code, 0.9, 0.4)
    cost = np.where(is_dear, 0.01, 0.001)
    success[0] = cost[0] = 0.0
    arm = np.where(np.arange(len(trie)) == 0, 1.0, 0.5)
    stop = np.where(np.arange(len(trie)) == 0, 0.0, 1.0)
    zeros = np.zeros(len(trie))
    return AnnotatedTrie(
        trie, template, CATALOG, success=success, stop=stop, stop_success=success, cost_usd=cost, cost_var=zeros,
        latency_s=zeros, latency_var=zeros, arm=arm, arm_success=zeros,
    )  # fmt: skip


def test_a_mean_budget_is_spent_on_the_kind_where_it_buys_most() -> None:
    decision = Planner(two_kinds()).plan(Objective(maximize="accuracy", max_cost_usd=0.006))
    assert decision.accuracy == pytest.approx(0.65)
    assert decision.path_cost_usd == pytest.approx(0.0055)


def test_a_fixed_plan_has_one_model_for_a_stage_whatever_the_kind() -> None:
    assert StaticPlans.of(two_kinds()).models.tolist() == [[0], [1]]


@pytest.mark.parametrize(
    ("kind", "model", "note"),
    [("code", "dear", "kind: code"), ("poem", "cheap", "kind: other (poem is not learnt)"), (None, "cheap", "kind: other")],
)
def test_a_session_follows_the_plan_of_its_kind(kind: str | None, model: str, note: str) -> None:
    session = Session(Planner(two_kinds()), Objective(maximize="accuracy", max_cost_usd=0.006))
    session.begin(kind)
    assert session.next_model("answer", ()) == model
    assert session.trace()[0]["note"] == note
    assert session.template == two_kinds().template.base


def test_a_plan_is_shown_by_kind_and_adds_up() -> None:
    mixed = Planner(two_kinds()).mixed(Objective(maximize="accuracy", max_cost_usd=0.004))
    found = by_kind(mixed)
    assert {one.kind for one in found} == {"code", "other"}
    assert sum(one.share * one.accuracy for one in found) == pytest.approx(mixed.accuracy)
    assert sum(one.share * one.cost_usd for one in found) == pytest.approx(mixed.path_cost_usd)
    code = next(one for one in found if one.kind == "code")
    assert sum(code.first.values()) == pytest.approx(1.0)
    assert set(code.first) == {"cheap", "dear"}
    table = kinds_table(mixed)
    assert table is not None
    assert [row.cells[0] for row in table.rows] == [one.kind for one in found]


def test_without_kinds_there_is_no_table_of_them() -> None:
    rng = random.Random(1)
    template = Template((Branch({"x": (Stage("a"),), "y": (Stage("b"),)}),)).bind(MODELS)
    annotated = annotated_at_random(rng, Trie.from_template(template), template, CATALOG)
    assert kinds_table(Planner(annotated).mixed(Objective(maximize="accuracy"))) is None
