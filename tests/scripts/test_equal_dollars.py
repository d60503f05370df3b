"""Methods at equal dollars: mixtures spend what is asked, leads are those of the requests, and routers look at the request."""

import numpy as np
import pytest

from vinelm.evaluation import OutcomeTable


def curve(accuracy, cost, promised, budgets, n=1000, seed=0):
    """Plans of these accuracies and dollars on ``n`` requests; promised accuracy and dollars; chosen by their promise."""
    from signals_parts.curves import Curve

    rng = np.random.default_rng(seed)
    chosen = [
        max((i for i, (_, usd) in enumerate(promised) if usd <= b), key=lambda i: promised[i][0], default=0) for b in budgets
    ]
    return Curve(
        success=(rng.random((len(accuracy), n)) < np.array(accuracy)[:, None]).astype(float),
        cost_usd=np.array(cost)[:, None] * np.ones(n),
        promised=np.array(promised),
        spread=np.full((len(accuracy), 2), np.nan),
        chosen=np.array(chosen),
        budgets=np.array(budgets),
    )


def test_plans_are_mixed_to_promise_the_bound():
    found = curve([0.4, 0.5, 0.8], [1.0, 2.0, 5.0], [(0.4, 1.0), (0.41, 2.0), (0.8, 5.0)], [0.5, 1.0, 3.0, 9.0])
    assert list(found.chosen) == [0, 0, 1, 2]
    mixed = found.by_promise
    np.testing.assert_allclose(mixed.promised[:, 1], [1.0, 1.0, 3.0, 5.0])  # the plan in the middle is below the hull
    np.testing.assert_allclose(mixed.promised[:, 0], [0.4, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(mixed.success[2], (found.success[0] + found.success[2]) / 2)


def test_a_rival_spends_our_dollars_and_hindsight_is_no_worse():
    found = curve([0.5, 0.7, 0.6], [1.0, 2.0, 4.0], [(0.5, 1.0), (0.55, 2.0), (0.7, 4.0)], [1.0, 2.0, 4.0])
    for usd in (1.0, 1.5, 3.1, 4.0):
        own, best = (found.spending(usd, hindsight=hindsight) for hindsight in (False, True))
        assert own.cost_usd.mean() == pytest.approx(usd)
        assert best.success.mean() >= own.success.mean() - 1e-12
    assert found.spending(9.0, hindsight=False).cost_usd.mean() == pytest.approx(4.0)  # no plan spends more
    assert found.spending(9.0, hindsight=False).slope == 0.0
    assert found.spending(9.0, hindsight=True).cost_usd.mean() == pytest.approx(2.0)  # the dearest one is worse


def table_of(n, groups=None):
    shape = (n, 2)
    return OutcomeTable(
        request_ids=tuple(f"r{i}" for i in range(n)),
        systems=("small", "large"),
        success=np.zeros(shape, bool),
        signal=np.full(shape, -1),
        labels=(),
        passed=np.ones(shape, bool),
        answer_class=np.full(shape, -1),
        cost_usd=np.ones(shape),
        groups=groups or tuple(f"r{i}" for i in range(n)),
    )


def held_of(splits, ours, rival):
    from signals_parts.curves import Held

    rows = tuple(range(ours[0].success.shape[1]))
    single = [np.stack((one.success[0], one.cost_usd[0])) for one in rival]
    curves = [{"mixed": ours[s], "unmixed": ours[s], "static": rival[s]} for s in range(splits)]
    return [Held(rows, curves[s], {"single": single[s]}) for s in range(splits)]


def test_the_lead_is_at_equal_dollars_and_its_interval_draws_requests_and_profiles():
    from signals_parts.equal_dollars import figures
    from signals_parts.figures import Comparison

    promised, budgets = [(0.5, 1.0), (0.9, 3.0)], [1.0, 2.0, 3.0]
    rival = [curve([0.5, 0.9], [1.0, 3.0], promised, budgets, seed=s) for s in range(4)]
    ours = [curve([0.6, 0.9], [1.0, 2.0], [(0.6, 1.0), (0.9, 2.0)], budgets, seed=s + 10) for s in range(4)]
    held = held_of(4, ours, rival)
    found = figures(held, Comparison.of_rows(table_of(1000), [one.held_out for one in held]), 3)
    lead = found["over"]["mixed"]["static"]
    assert lead["value"] == pytest.approx((0.1 + 0.2 + 0.2) / 3, abs=0.02)  # at $1, $2 and $2, not at the bounds
    assert lead["low"] < lead["value"] < lead["high"]
    assert lead["dollars"] == pytest.approx(1.0)
    assert found["best_rival"] == "static"
    saved = found["saved"]["single"]
    assert saved["static"]["value"] == pytest.approx(0.0)
    assert saved["mixed"]["value"] == pytest.approx(0.0)  # the cheapest plan is no cheaper
    apart = [curve([0.6, 0.9 if s % 2 else 0.5], [1.0, 2.0], [(0.6, 1.0), (0.9, 2.0)], budgets, seed=s + 10) for s in range(4)]
    wide = figures(held_of(4, apart, rival), Comparison.of_rows(table_of(1000), [one.held_out for one in held]), 3)
    other = wide["over"]["mixed"]["static"]
    assert other["high"] - other["low"] > 2 * (lead["high"] - lead["low"])  # profiles differ


def test_dollars_at_equal_accuracy_are_where_the_curve_reaches_it():
    from signals_parts.equal_dollars import reached

    accuracy, cost = np.array([[0.5, 0.6, 0.8]]), np.array([[1.0, 2.0, 4.0]])
    for goal, usd in ((0.4, 1.0), (0.6, 2.0), (0.7, 3.0), (0.8, 4.0), (0.9, np.inf)):
        assert reached(accuracy, cost, np.array([goal]))[0] == pytest.approx(usd)


def test_requests_of_one_group_count_as_few():
    from signals_parts.curves import effective

    success = np.repeat(np.random.default_rng(0).random(50) < 0.5, 10).astype(float)
    together = table_of(500, tuple(f"g{i // 10}" for i in range(500)))
    assert effective(table_of(500), success) == 500
    assert effective(together, success) == pytest.approx(50, rel=0.05)


def test_routers_know_what_is_best_for_a_kind_and_for_a_text():
    from signals_parts.buying import catalog_of, scored, template_of
    from signals_parts.record import Asked
    from signals_parts.routers import KindTable, KnnRouter

    from vinelm.evaluation.rivals import Evidence

    n = 120
    table = table_of(n)
    kinds = {f"r{i}": "sums" if i % 2 else "poems" for i in range(n)}
    texts = {
        name: f"add the number {name} to seven" if kind == "sums" else f"a verse of the sea, {name}"
        for name, kind in kinds.items()
    }
    sums = np.arange(n) % 2 == 1
    table.success[:, 0], table.success[:, 1] = sums, ~sums
    table.cost_usd[:, 1] = 3.0
    template = template_of(1).bind(table.systems)
    rows = scored(table, template, 60, seed=1)
    assert len(rows) == 120

    class Estimate:
        catalog = catalog_of(table)

    evidence, asked = Evidence(rows, Estimate(), 1), Asked(kinds, texts)
    for router in (KindTable(asked), KnnRouter(asked)):
        chooser = router.fit(evidence)
        dear, cheap = chooser.choose(10.0).policy.run(table), chooser.choose(1.0).policy.run(table)
        assert dear.success.mean() == 1.0
        assert dear.cost_usd.mean() == pytest.approx(2.0)
        assert cheap.success.mean() == 0.5
        assert cheap.cost_usd.mean() == pytest.approx(1.0)


def test_mixed_traffic_is_read_with_its_kinds_and_texts(tmp_path):
    import gzip
    import json

    from signals_parts.systems import load_tables

    (tmp_path / "mixed").mkdir()

    def write(name, lines):
        with gzip.open(tmp_path / "mixed" / name, "wt", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    write("llmrouter.csv.gz", ["question_id,task,gemma-2-9b-it,nemotron-51b", "q1,math,0.0,1.0", "q2,trivia,0.7,0.2"])
    write("llmrouter_questions.jsonl.gz", [json.dumps({"question_id": "q1", "task": "math", "prompt": "x" * 800})])
    head = "question_id,task,model,answer,check_ok,correct,cost_usd"
    write("routerbench.csv.gz", [head, "a,code,m,,0,0.0,0.001", "a,code,n,d1,1,1.0,0.01", "b,code,n,d1,1,1.0,0.01"])
    found = load_tables(tmp_path, None)
    one, other = found["llmrouter"], found["routerbench"]
    assert (one.most_calls, one.asked.kinds["q1"], len(one.asked.texts["q1"])) == (1, "math", 800)
    assert one.table.success.tolist() == [[False, True], [True, False]]
    assert one.table.cost_usd[0].tolist() == pytest.approx([400 * 0.1e-6, 400 * 0.9e-6])  # a quarter of 800, and 200 more
    assert other.table.request_ids == ("a",)  # the question that all were asked
    assert other.table.passed.tolist() == [[False, True]]
    assert other.table.answer_class.tolist() == [[-1, 0]]
    assert other.asked.kinds["a"] == "code"
