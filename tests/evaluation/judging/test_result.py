"""The verdict of an evaluation, its sentence, and the price of settling an open question."""

from dataclasses import replace

import pytest

from vinelm.evaluation import Evaluation, JudgedPolicy, OffPolicyEstimate
from vinelm.objective import Objective
from vinelm.reports.evaluation_text import evaluation_lines, evaluation_sentence, evaluation_tables


def estimate(value, half=0.0, **fields):
    known = {"effective": 100.0, "unsupported": 0.0, "is_identified": True, **fields}
    return OffPolicyEstimate(value=value, standard_error=half / 1.96, low=value - half, high=value + half, **known)


def evaluation(static, single, *, cost=0.01, **fields):
    """VineLM with these gains over the static plan and the single model, each (value, half-width) or an estimate."""
    gains = [gain if isinstance(gain, OffPolicyEstimate) else estimate(*gain) for gain in (static, single)]
    shared = {"plans": ("a",), "latency_s": estimate(1.0, 0.1), "promised_accuracy": 0.85}
    own = JudgedPolicy(
        name="paths", accuracy=estimate(0.8, 0.02), cost_usd=estimate(cost, 0.001),
        against=dict(zip(("static", "single"), gains, strict=True)), **shared,
    )  # fmt: skip
    others = [
        JudgedPolicy(name=name, accuracy=estimate(0.8 - gain.value, 0.02), cost_usd=estimate(0.01, 0.001), **shared)
        for name, gain in zip(("static", "single"), gains, strict=True)
    ]
    known = {
        "objectives": (Objective(maximize="accuracy", max_cost_usd=0.02),),
        "requests": 400,
        "rows": 1000,
        "spent_usd": 5.0,
    }
    return Evaluation(policies=(own, *others), **known | fields)


@pytest.mark.parametrize(
    ("static", "single", "verdict", "begins"),
    [
        ((0.05, 0.03), (0.06, 0.03), "gain", "Use VineLM over paths: 80.0 % right against 75.0 % right"),
        ((0.05, 0.06), (0.06, 0.03), "open", "Open: VineLM over paths may or may not be better than the best static plan"),
        ((0.00, 0.015), (0.06, 0.03), "no gain", "Do not bother: the best static plan (a) alone is enough"),
        ((-0.05, 0.03), (0.06, 0.03), "no gain", "Do not bother"),
        (estimate(0.0, is_same=True), (0.06, 0.03), "no gain", "Do not bother: VineLM over paths does what"),
        ((0.05, 0.03), estimate(0.1, 0.9, is_identified=False, unsupported=0.3), "not identified", "The rows cannot say"),
        ((0.05, 0.03), estimate(0.1, 0.9, is_identified=False, effective=3.0), "not identified", "The rows cannot say"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_both_intervals(static, single, verdict, begins):
    found = evaluation(static, single)
    assert found.verdict == verdict
    assert evaluation_sentence(found).startswith(begins)


@pytest.mark.parametrize(
    ("static", "single", "known"),
    [
        ((0.05, 0.03), (0.06, 0.03), "VineLM over paths reaches 80.0 % right against 75.0 % right"),
        ((-0.05, 0.03), (0.06, 0.03), "VineLM over paths reaches 80.0 % right against 85.0 % right"),
        ((0.05, 0.03), estimate(0.1, 0.9, is_identified=False, unsupported=0.3), "the rows cannot say what VineLM over paths"),
    ],
)
def test_under_the_oracle_stop_there_are_figures_and_no_advice(static, single, known):
    part = evaluation(static, single, stop="oracle")
    found = replace(part, by_budget=(part, part))
    assert found.verdict == found.to_dict()["verdict"] == "no advice"
    assert found.to_dict()["stop"] == "oracle"
    said = evaluation_sentence(found)
    assert said.startswith(
        "No advice under the oracle stop, which ends a request when its answer is right, as no service can: "
    )
    assert known in said
    assert "worth it" not in said
    assert found.price is None
    assert found.offers() == ()
    assert evaluation_lines(found)[0].startswith("Oracle stop:")
    assert all("oracle stop" in table.title for table in evaluation_tables(found))


def test_each_budget_says_where_vinelm_is_worth_it_and_where_it_is_not():
    unknown = estimate(0.1, 0.9, is_identified=False, unsupported=0.3)
    parts = [((0.05, 0.03), (0.06, 0.03)), ((0.0, 0.015), (0.06, 0.03)), ((0.05, 0.06), (0.06, 0.03)), (unknown, unknown)]
    found = evaluation((0.05, 0.03), (0.06, 0.03), by_budget=tuple(evaluation(*one, level=0.99) for one in parts))
    budgets = evaluation_tables(found)[-1]
    rows = [row.cells for row in budgets.rows]
    assert [cells[-1] for cells in rows] == ["yes", "no", "open", "unknown"]
    assert rows[0] == ("$20.00", "80.0 %", "+5.0 (+2.0 to +8.0)", "+6.0 (+3.0 to +9.0)", "yes")
    assert "99 % intervals" in budgets.title


def test_a_plan_that_overspends_gains_nothing():
    found = evaluation((0.05, 0.03), (0.06, 0.03), cost=0.03)
    assert found.breaks_bounds
    assert found.verdict == "no gain"
    assert "misses its bound" in evaluation_sentence(found)


def test_an_open_question_has_a_price_that_grows_with_the_square_of_the_interval():
    one, two = (evaluation((0.05, half), (0.06, 0.01)).price for half in (0.06, 0.12))
    assert one.difference == two.difference == 0.05
    assert (two.rows_usd + 5.0) / (one.rows_usd + 5.0) == pytest.approx(4.0)
    assert one.rows_usd + 5.0 == pytest.approx(5.0 * ((1.96 + 0.8416) * (0.06 / 1.96) / 0.05) ** 2)
    assert one.serve_usd == pytest.approx(one.serve_requests * 0.02)


def test_no_more_rows_are_priced_than_there_can_be():
    assert evaluation((0.05, 0.06), (0.06, 0.01), everything_usd=6.0).price.rows_usd is None
    found = evaluation((0.05, 0.06), (0.06, 0.01), everything_usd=60.0)
    assert found.price.rows_usd < 55.0
    assert "more of rows" in evaluation_lines(found)[-1]


def test_served_differences_price_further_requests_by_their_own_spread():
    found = evaluation((0.05, 0.06), (0.06, 0.01), is_served=True)
    assert found.price.rows_usd is None
    assert found.price.serve_requests == pytest.approx(400 * ((1.96 + 0.8416) * (0.06 / 1.96) / 0.05) ** 2, abs=1)


def test_signals_are_judged_where_the_rows_identify_them():
    found = evaluation((0.05, 0.06), (0.06, 0.01))
    paths = found.policies[0]
    for identified, headline in ((True, "signals"), (False, "paths")):
        accuracy = replace(paths.accuracy, is_identified=identified)
        signals = replace(paths, name="signals", accuracy=accuracy)
        both = replace(found, policies=(signals, *found.policies))
        assert both.headline.name == headline
        assert (signals.optimism is None) is not identified


def test_saved_dollars_are_judged_like_gained_accuracy():
    objective = (Objective(minimize="cost", min_accuracy=0.7),)
    found = evaluation((0.002, 0.001), (0.003, 0.001), objectives=objective)
    assert found.verdict == "gain"
    assert "saved per 1,000 requests" in evaluation_sentence(found)
    assert evaluation((0.00001, 0.0001), (0.003, 0.001), objectives=objective).verdict == "no gain"
    assert replace(found, objectives=(Objective(minimize="cost", min_accuracy=0.9),)).breaks_bounds
