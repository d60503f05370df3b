import re
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from kit.stores import made_store

import vinelm
from vinelm.cli.main import main
from vinelm.errors import ConfigError, EvidenceError
from vinelm.reports import render
from vinelm.reports.document import Chart, Section, readable
from vinelm.reports.evaluation_text import evaluation_lines, evaluation_tables, verdict_table
from vinelm.reports.formatting import thousand
from vinelm.reports.store.page import store_page
from vinelm.traces import ObservationStore
from vinelm.vinefile import save_trie

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
    assert page.card.data == found.verdict.to_dict()
    assert {dot.name: dot.role for dot in page.card.picture.dots} == {"large": "in_use", "small": "model", "VineLM": "vinelm"}


@pytest.mark.long
def test_against_the_large_model_in_use_the_small_one_before_it_is_a_saving(made):
    page = store_page(*made, in_use="large")
    found = vinelm.evaluate(*made, in_use="large").verdict
    assert page.headline == found.sentence
    assert page.is_gain
    assert 0.45 <= found.plan.saved_usd / found.cost_usd <= 0.65
    dots = {dot.role: dot for dot in page.card.picture.dots}
    assert (dots["vinelm"].name, dots["in_use"].name) == ("VineLM", "today (large)")
    assert dots["vinelm"].usd == pytest.approx(4.9, rel=0.15), "dollars of 1,000 requests"
    assert dots["vinelm"].accuracy == pytest.approx(0.57 + 0.39 * 0.8, abs=0.06)
    assert dots["in_use"].usd == pytest.approx(12.0, rel=0.15)


def test_figures_of_the_card_are_those_of_the_sentence(page):
    cost, right, _ = page.card.measures
    assert f"It costs {cost.after} instead of {cost.before} per 1,000 requests ({cost.change})" in page.headline
    assert f"with {right.after} right instead of {right.before}" in page.headline
    assert page.card.basis == "large → VineLM, judged on 300 requests that did not choose the plan"
    assert page.headline.startswith(page.card.word)


def test_the_plan_of_the_card_is_that_of_the_slider(page):
    first = page.budgets.stops[page.budgets.start]
    assert first.plan == page.card.plan
    assert "that of the verdict" in first.budget
    cost, right, _ = page.card.measures
    judged = dict(first.figures)["Judged"]
    assert judged == f"{right.after} right for {cost.after}"
    assert sum("that of the verdict" in stop.budget for stop in page.budgets.stops) == 1


def test_no_sentence_besides_the_verdict_weighs_the_plan_against_another(page):
    text = render(replace(page, headline="", card=None, sections=(), findings=()))
    assert not any(words in text for words in ("instead of", "is saved", "is as accurate", "costs less"))


def test_plans_with_the_same_words_are_the_same(page):
    by_words = {}
    for stop in page.budgets.stops:
        by_words.setdefault(stop.plan, set()).add(stop.tree)
    assert len(by_words) > 2
    assert all(len(trees) == 1 for trees in by_words.values())


def test_what_is_copied_is_what_the_command_prints(made, page, tmp_path, capsys):
    path, trie = made
    assert page.card.word == "SWITCH"
    save_trie(tmp_path / "TRIE", replace(trie, verdict=vinelm.evaluate(path, trie).verdict))
    assert main(["plan", str(tmp_path / "TRIE"), "--as-code"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == page.card.code
    assert page.card.command == "vinelm plan TRIE --as-code"


def answers_of(path):
    with ObservationStore.open(path) as store:
        return {(row.request_id, row.prefix): row for row in store.observations()}


def test_examples_are_rows_of_the_store(made, page):
    rows = answers_of(made[0])
    assert len(page.examples.shown) == 10
    for one in page.examples.shown:
        for answer in (one.before, one.after):
            prefix = tuple(answer.models.split(" → "))
            path = [rows[one.request, prefix[:depth]] for depth in range(1, len(prefix) + 1)]
            assert answer.is_right == bool(path[-1].success)
            assert answer.usd == thousand(sum(row.cost_usd + row.tool_cost_usd for row in path))
            assert answer.text == ""
        assert one.before.models != one.after.models
    assert "--show-text" in page.examples.note


def test_answers_are_shown_only_to_who_asks_and_are_no_markup(tmp_path):
    path = made_store(tmp_path / "s.db", {"small": 0.6, "large": 0.8}, PRICES, requests=80, has_answers=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE observations SET answer = '<script>hostile()</script>' WHERE answer IS NOT NULL")
    trie = vinelm.estimate(path, check=False)
    found = vinelm.evaluate(path, trie)
    quiet, told = (render(store_page(path, trie, evaluation=found, show_text=is_shown)) for is_shown in (False, True))
    assert "hostile()" not in quiet
    assert "&lt;script&gt;hostile()&lt;/script&gt;" in told
    assert "<script>hostile()" not in told


def visible_words(page):
    """The words of a page that a reader sees before anything is opened; of pictures the wide drawing."""
    text = re.sub(r"<(script|style|title|noscript)\b.*?</\1>|<svg class=\"narrow\".*?</svg>", " ", page, flags=re.S)
    while (folded := re.sub(r"<details(?:(?!<details).)*?</details>", summary_of, text, flags=re.S)) != text:
        text = folded
    return re.sub(r"<[^>]*>", " ", text).split()


def summary_of(found):
    return re.search(r"<summary>(.*?)</summary>", found[0], re.S)[1]


def test_unfolded_it_has_at_most_800_words(page):
    words = visible_words(render(page))
    assert {"SWITCH", "Provenance", "Examples"} <= set(words), "what is counted is the page"
    assert 100 < len(words) <= 800


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
    (chart,) = (part for one in page.sections for part in one.parts if isinstance(part, Chart) and part.name == "cost")
    for series in chart.series:
        assert list(series.x) == sorted(series.x)
        assert all(low <= y <= high for low, y, high in zip(series.low, series.y, series.high, strict=True))


@pytest.mark.long
def test_one_call_is_left_to_one_model(tmp_path):
    page = page_of(made_store(tmp_path / "s.db", {"small": 0.3, "large": 0.85}, PRICES, requests=300, depth=1))
    assert page.headline.startswith("KEEP large: nothing cheaper or better is left among plans of small.")
    assert not page.is_gain
    assert (page.card.word, page.card.code) == ("KEEP", "")


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
    assert (page.card.word, page.card.plan, page.examples) == ("NOT ENOUGH DATA", "", None)
    assert "<figure" in render(page)


def test_free_models_are_compared_by_accuracy_alone(tmp_path):
    free = {"small": 0.0, "large": 0.0}
    page = page_of(made_store(tmp_path / "s.db", {"small": 0.5, "large": 0.8}, free, requests=120, depth=1))
    assert page.headline.startswith("KEEP large: ")
    assert any("Every observation was free" in line for line in page.findings)
    assert "Where the money goes" not in titles(page)
    assert "If prices change" not in titles(page)
    assert page.card.picture is None, "every policy is at no dollars"
    assert any("There is no chart" in line for one in page.sections for line in one.findings)
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
