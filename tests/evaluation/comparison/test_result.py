"""An evaluation's figures: tables, what the rows do not show, and the policy that is VineLM's."""

from dataclasses import replace

from vinelm.evaluation import Evaluation, JudgedPolicy, OffPolicyEstimate
from vinelm.objective import Objective
from vinelm.reports.evaluation_text import evaluation_lines, evaluation_tables
from vinelm.trie.verdict import Verdict


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
        "verdict": Verdict(why_not="a test"),
    }
    return Evaluation(policies=(own, *others), **known | fields)


def test_under_the_oracle_stop_there_are_figures_and_nothing_is_offered():
    part = evaluation((0.05, 0.03), estimate(0.1, 0.9, is_identified=False, unsupported=0.3), stop="oracle")
    found = replace(part, by_budget=(part, part))
    assert found.to_dict()["stop"] == "oracle"
    assert found.not_identified() == ()
    assert evaluation_lines(found)[0].startswith("Oracle stop:")
    assert all("oracle stop" in table.title for table in evaluation_tables(found))


def test_each_budget_says_what_vinelm_gains_over_fixed_plans():
    unknown = estimate(0.1, 0.9, is_identified=False, unsupported=0.3)
    parts = [((0.05, 0.03), (0.06, 0.03)), (estimate(0.0, is_same=True), (0.06, 0.03)), (unknown, unknown)]
    found = evaluation((0.05, 0.03), (0.06, 0.03), by_budget=tuple(evaluation(*one, level=0.99) for one in parts))
    budgets = evaluation_tables(found)[-1]
    rows = [row.cells for row in budgets.rows]
    assert rows[0] == ("$20.00", "80.0 %", "+5.0 (+2.0 to +8.0)", "+6.0 (+3.0 to +9.0)")
    assert [cells[2] for cells in rows[1:]] == ["same", "not identified"]
    assert "99 %, all hold" in budgets.title
    assert [one["level"] for one in found.to_dict()["by_budget"]] == [0.99] * 3


def test_what_the_rows_do_not_show_is_offered_to_be_served():
    unknown = estimate(0.1, 0.9, is_identified=False, unsupported=0.3)
    assert [one.name for one in evaluation(unknown, unknown).not_identified()] == ["paths"]
    assert evaluation((0.05, 0.03), (0.06, 0.03)).not_identified() == ()
    assert evaluation(unknown, unknown, is_served=True).not_identified() == ()


def test_signals_are_judged_where_the_rows_identify_them():
    found = evaluation((0.05, 0.06), (0.06, 0.01))
    paths = found.policies[0]
    for identified, headline in ((True, "signals"), (False, "paths")):
        accuracy = replace(paths.accuracy, is_identified=identified)
        signals = replace(paths, name="signals", accuracy=accuracy)
        both = replace(found, policies=(signals, *found.policies))
        assert both.headline.name == headline
        assert (signals.optimism is None) is not identified
