import pytest
from kit.stores import made_store

import vinelm
from vinelm.reports.formatting import thousand
from vinelm.reports.store.page import store_page

PRICES = {"small": 0.001, "large": 0.01}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("budgets") / "s.db"
    made_store(path, {"small": 0.6, "large": 0.8}, PRICES, requests=300)
    return path, vinelm.estimate(path, check=False)


@pytest.fixture(scope="module")
def page(made):
    return store_page(*made)


@pytest.fixture(scope="module")
def against(made):
    return store_page(*made, in_use="large")


def test_budgets_rise_and_every_other_one_is_judged(page):
    stops = page.budgets.stops
    stops = [stop for stop in stops if stop != page.budgets.stops[page.budgets.start]]  # the plan of the verdict
    judged = [dict(stop.figures)["Judged"] for stop in stops]
    assert len(stops) % 2
    assert all(text == "not at this budget" for text in judged[1::2])
    assert not any(text == "not at this budget" for text in judged[::2])
    right = [float(dict(stop.figures)["Right answers"].split(" %")[0]) for stop in stops]
    assert right == sorted(right)
    assert len({stop.plan for stop in stops}) > 1


def test_what_is_drawn_adds_up_to_the_figures(page):
    for stop in page.budgets.stops:
        spent = sum(amount for _, plans in stop.bars["dollars"].stages for _, amount in dict(plans)["VineLM"])
        assert thousand(spent) == dict(stop.figures)["Dollars of 1,000 requests"]
        assert {name for stage in stop.graph.calls.values() for name, _ in stage} <= set(page.budgets.models)
        assert sum(root.share for root in stop.tree.roots) == pytest.approx(1.0)
        longest = max(sum(a for _, a in parts) for _, plans in stop.bars["dollars"].stages for _, parts in plans)
        assert longest <= stop.bars["dollars"].most + 1e-12
    assert {name for _, plans in page.budgets.stops[0].bars["seconds"].stages for name, _ in plans} == {
        "VineLM",
        "single model",
    }


def test_the_plan_in_use_is_drawn_beside_each(against):
    stops = against.budgets.stops
    assert {name for _, plans in stops[0].bars["dollars"].stages for name, _ in plans} == {"VineLM", "today"}
    assert against.budgets.beside.startswith("Today, ")


def test_one_plan_at_every_budget_is_nothing_to_slide(tmp_path):
    path = made_store(tmp_path / "s.db", {"small": 0.9, "large": 0.1}, PRICES, requests=80, depth=1)
    budgets = store_page(path, vinelm.estimate(path, check=False)).budgets
    assert len(budgets.stops) == 1
    assert "nothing to slide" in budgets.intro


def test_a_store_that_cannot_be_judged_has_its_plans(tmp_path):
    path = made_store(tmp_path / "s.db", {"small": 0.5, "large": 0.8}, PRICES, requests=8, depth=1)
    page = store_page(path, vinelm.estimate(path, check=False))
    assert page.headline.startswith("NOT ENOUGH DATA: 8 requests have a scored answer")
    assert page.budgets is not None
    assert all("Judged" not in dict(stop.figures) for stop in page.budgets.stops)
