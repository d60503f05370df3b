from dataclasses import replace

import pytest
from kit.stores import made_store

import vinelm
from vinelm.errors import ConfigError, EvidenceError
from vinelm.reports import render
from vinelm.reports.document import Section, readable
from vinelm.reports.evaluation_text import evaluation_lines, evaluation_tables, verdict_table
from vinelm.reports.store.page import store_page
from vinelm.traces import ObservationStore

PRICES = {"small": 0.001, "large": 0.01}


def page_of(path):
    return store_page(path, vinelm.estimate(path, check=False))


@pytest.mark.long
def test_an_evaluation_that_is_handed_over_changes_nothing_but_the_time(tmp_path):
    path = made_store(tmp_path / "s.db", {"small": 0.6, "large": 0.8}, PRICES, requests=40, depth=1)
    trie = vinelm.estimate(path, check=False)
    found = vinelm.evaluate(path, trie)
    assert render(store_page(path, trie, evaluation=found)) == render(store_page(path, trie))


def test_an_evaluation_of_something_else_is_refused(tmp_path):
    path = made_store(tmp_path / "s.db", {"small": 0.6, "large": 0.8}, PRICES, requests=60, depth=1)
    trie, found = vinelm.estimate(path, check=False), vinelm.evaluate(path, seed=1)
    with pytest.raises(ConfigError, match="another seed"):
        store_page(path, trie, evaluation=found)
    other = vinelm.evaluate(made_store(tmp_path / "o.db", {"small": 0.6, "large": 0.8}, PRICES, requests=70, depth=1))
    with pytest.raises(ConfigError, match="of other rows"):
        store_page(path, trie, evaluation=other)
    with pytest.raises(ConfigError, match="served its requests"):
        store_page(path, trie, evaluation=replace(found, fit=None))


def titles(page):
    return [section.title for section in page.sections]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store, and its trie, where a small model and a check spare most calls of a large one.

    The check passes 61 % of the small model's answers, so that 1,000 requests cost 1 + 0.39 * 10 dollars; the large one alone,
    asked again where its answer does not pass, costs 12.
    """
    path = tmp_path_factory.mktemp("page") / "s.db"
    made_store(path, {"small": 0.6, "large": 0.8}, PRICES, requests=300)
    return path, vinelm.estimate(path, check=False)


@pytest.fixture(scope="module")
def page(made):
    return store_page(*made)


def test_the_page_says_what_evaluate_says(made, page):
    found = vinelm.evaluate(*made)
    assert page.headline == found.verdict.sentence
    assert page.is_gain is (found.verdict.advice == "switch")
    (section,) = (section for section in page.sections if section.title == "The verdict")
    assert section.findings == tuple(evaluation_lines(found))
    parts = (verdict_table(found.verdict), *evaluation_tables(found))
    assert section.parts == readable(Section(title="", parts=parts)).parts
    assert [mark.label for mark in page.hero.marks] == ["switch to", "strongest single model"]


@pytest.mark.long
def test_against_the_large_model_in_use_the_small_one_before_it_is_a_saving(made):
    page = store_page(*made, in_use="large")
    found = vinelm.evaluate(*made, in_use="large").verdict
    assert page.headline == found.sentence
    assert page.is_gain
    assert 0.45 <= found.plan.saved_usd / found.cost_usd <= 0.65
    own, in_use = page.hero.marks
    assert (own.label, in_use.label) == ("switch to", "in use today")
    assert own.x == pytest.approx(4.9, rel=0.15), "dollars of 1,000 requests"
    assert own.y == pytest.approx(0.57 + 0.39 * 0.8, abs=0.06)
    assert in_use.x == pytest.approx(12.0, rel=0.15)


def test_the_page_has_every_part(page):
    wanted = [
        "The verdict", "Accuracy within a budget", "Cost of an accuracy", "Accuracy within a time",
        "Achieved against promised", "Which models answer",
        "Where the money goes", "If prices change", "The workflow's own check", "What signals are worth", "What was profiled",
    ]  # fmt: skip
    assert [title for title in titles(page) if title in wanted] == wanted
    text = render(page)
    assert len(text) < 1_000_000
    assert all(term in dict(page.terms) for term in ("static plan", "promised", "not identified", "$ per 1,000"))


def test_lines_of_the_chart_go_from_cheap_to_dear(page):
    for series in page.hero.series:
        assert list(series.x) == sorted(series.x)
        assert all(low <= y <= high for low, y, high in zip(series.low, series.y, series.high, strict=True))


@pytest.mark.long
def test_one_call_is_left_to_one_model(tmp_path):
    page = page_of(made_store(tmp_path / "s.db", {"small": 0.3, "large": 0.85}, PRICES, requests=300, depth=1))
    assert page.headline.startswith("KEEP large: nothing cheaper or better is left among plans of small.")
    assert not page.is_gain
    assert [mark.label for mark in page.hero.marks] == ["strongest single model"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"accuracy": {"only": 0.5}, "cost_usd": {"only": 0.01}}, "NOT ENOUGH DATA: the workflow runs on one model"),
        ({"failing": 1.0}, "NOT ENOUGH DATA: every one of the 80 rows failed (timeout 80)"),
        ({"requests": 8}, "NOT ENOUGH DATA: 8 requests have a scored answer"),
    ],
)
def test_what_cannot_be_judged_is_said(tmp_path, settings, says):
    made = {"accuracy": {"small": 0.5, "large": 0.8}, "cost_usd": PRICES, "requests": 40, "depth": 1, **settings}
    page = page_of(made_store(tmp_path / "s.db", **made))
    assert says in page.headline
    assert not page.is_gain
    assert "<figure" in render(page)


def test_free_models_are_compared_by_accuracy_alone(tmp_path):
    free = {"small": 0.0, "large": 0.0}
    page = page_of(made_store(tmp_path / "s.db", {"small": 0.5, "large": 0.8}, free, requests=120, depth=1))
    assert page.headline.startswith("KEEP large: ")
    assert any("Every observation was free" in line for line in page.findings)
    assert "Where the money goes" not in titles(page)
    assert "If prices change" not in titles(page)
    assert page.hero is None, "every policy is at no dollars, and as right as the others"
    assert any("There is no chart" in line for line in page.findings)
    assert [list(stop.bars) for stop in page.budgets.stops] == [["seconds"]]
    render(page)


def test_a_store_without_rows_is_refused(tmp_path):
    path = made_store(tmp_path / "s.db", {"small": 0.5, "large": 0.8}, PRICES, requests=30, depth=1)
    trie = vinelm.estimate(path, check=False)
    with ObservationStore.open(path) as store:
        identity = store.identity
    with ObservationStore.create(tmp_path / "empty.db", identity):
        pass
    with pytest.raises(EvidenceError):
        store_page(tmp_path / "empty.db", trie)
