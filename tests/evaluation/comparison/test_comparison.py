"""What plans are compared with, what that finds in rows whose truth is known, and how often its rule is wrong."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from kit.catalogs import make_catalog
from kit.stores import made_store

import vinelm
from vinelm.cli.main import main
from vinelm.evaluation.comparison.comparison import Comparison, best_of, ends, standing_for
from vinelm.evaluation.off_policy.intervals import HalfScores, moments
from vinelm.evaluation.off_policy.scores import Scores
from vinelm.evaluation.plans.plans_over import plan_of_verdict
from vinelm.reports.store.page import store_page
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore
from vinelm.trie.verdict import ComparedPlan, Verdict, short_words

NAMES = [f"q{i:03d}" for i in range(60)]


def rows(model, right, cost_usd, names=NAMES):
    return [
        Observation(
            request_id=name, prefix=(model,), stage="write", success=float(number % 100 < right), stopped=True,
            cost_usd=cost_usd, latency_s=1.0, calls=1,
        ) for number, name in enumerate(names)
    ]  # fmt: skip


def judged(template, found, catalog, names=NAMES, **settings):
    return Comparison(requests=names, rows=found, template=template, catalog=catalog).verdict(**settings)


def test_what_runs_today_is_not_kept_while_a_cheaper_model_that_seems_as_good_is_hardly_seen():
    catalog = make_catalog(3)
    template = Template((Stage("write"),)).bind(tuple(catalog)).with_defaults({"write": "m2"})
    known = [*rows("m2", 95, 0.01), *rows("m0", 30, 0.0001)]
    few = [row for number, row in enumerate(rows("m1", 95, 0.0002)) if number % 15 == 0]
    found = judged(template, [*known, *few], catalog)
    assert found.advice == "not enough data"
    assert found.sentence.startswith("NOT ENOUGH DATA: m1 may do as well for less")
    assert judged(template, known, catalog).advice == "keep"


# -- rows whose truth is known -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def four_models(tmp_path_factory):
    """Recorded answers of four models: a cascade of cheap ones is as right as the strongest one, for a tenth of its price."""
    path = tmp_path_factory.mktemp("four") / "s.db"
    right = {"deepseek": 0.55, "gpt-3.5": 0.5, "mid": 0.6, "gpt-4": 0.7}
    usd = {"deepseek": 0.0005, "gpt-3.5": 0.0008, "mid": 0.004, "gpt-4": 0.024}
    made_store(path, right, usd, requests=240, walks=8, depth=2)
    return path, vinelm.estimate(path)


def test_a_fixed_plan_that_is_as_right_for_a_fraction_is_an_answer_and_no_reason_to_keep(four_models, capsys, tmp_path):
    _, annotated = four_models
    found = annotated.verdict
    assert (found.opponent, found.is_today) == ("gpt-4", False)  # the strongest by the rows
    assert (found.advice, found.is_fixed) == ("switch", True)
    assert found.plan.saved_usd > 0.85 * found.cost_usd
    assert found.sentence.startswith("SWITCH, A FIXED PLAN IS ENOUGH: answer deepseek, retry ")
    assert "against gpt-4, the strongest single model" in found.sentence
    vinelm.save_trie(tmp_path / "a.vine", annotated)
    assert main(["plan", str(tmp_path / "a.vine"), "--as-code"]) == 0
    said = capsys.readouterr().out
    scope: dict = {}
    exec(said, scope)  # the lines are to be pasted
    assert scope["MODELS"] == {stage: "test:test" for stage, _ in found.plan.code}  # as the catalog calls them all


def test_lines_of_code_need_a_plan_to_switch_to_or_an_objective(four_models, tmp_path, capsys):
    _, annotated = four_models
    kept = replace(annotated, verdict=replace(annotated.verdict, plans=(), why_not="nothing was compared"))
    vinelm.save_trie(tmp_path / "k.vine", kept)
    assert main(["plan", str(tmp_path / "k.vine"), "--as-code"]) == 2
    assert "there is no plan to switch to" in capsys.readouterr().err
    assert main(["plan", str(tmp_path / "k.vine"), "--as-code", "--maximize", "accuracy"]) == 0
    assert "MODELS = {" in capsys.readouterr().out


@pytest.fixture(scope="module")
def small_one_is_enough(tmp_path_factory):
    """Today runs big; mini is as right for a tenth, and asked again says the same; tiny is mostly wrong."""
    path = tmp_path_factory.mktemp("enough") / "s.db"
    made_store(path, {"tiny": 0.3, "mini": 0.9, "big": 0.9}, {"tiny": 0.001, "mini": 0.002, "big": 0.02}, today="big")
    return vinelm.estimate(path, max_error=1.0)


def test_a_model_alone_that_saves_enough_is_a_rung_unless_a_plan_for_less_promises_as_much(small_one_is_enough):
    rungs = {plan.words: plan.is_rung for plan in small_one_is_enough.verdict.plans}
    assert rungs["mini, up to 2 invocations"]
    assert not rungs["tiny, up to 2 invocations"]  # tiny asked once is as right, for less: it could only stop the ladder
    dearest_first = [plan.cost_usd for plan in small_one_is_enough.verdict.rungs]
    assert dearest_first == sorted(dearest_first, reverse=True)


def test_a_plan_that_ends_before_the_application_would_is_no_code(small_one_is_enough, tmp_path, capsys):
    code = {plan.words: plan.code for plan in small_one_is_enough.verdict.plans}
    assert code["answer mini, retry tiny"] == (("answer", "mini"), ("retry", "tiny"))
    assert code["answer tiny"] == ()
    loose = small_one_is_enough.verdict.at(0.75)
    assert (loose.advice, loose.plan.words, loose.is_fixed) == ("switch", "answer tiny", False)
    assert loose.sentence.startswith("SWITCH: answer tiny.")
    file = str(tmp_path / "a.vine")
    vinelm.save_trie(file, replace(small_one_is_enough, verdict=loose))
    assert main(["plan", file, "--as-code"]) == 0
    said = capsys.readouterr().out
    assert "The plan ends before the application would: VineLM serves the plan" in said
    assert "mix=False" in said
    assert main(["plan", file, "--as-code", "--maximize", "accuracy", "--max-cost-usd", "0.0011"]) == 2
    assert "answer tiny, ends before your application does" in capsys.readouterr().err


def test_what_was_judged_is_what_is_shown_and_served(small_one_is_enough, tmp_path, capsys):
    found = small_one_is_enough
    seen = set()
    for max_loss in (0.03, 0.1, 0.2, 0.75):
        verdict = found.verdict.at(max_loss)
        assert short_words(plan_of_verdict(found, verdict).words) == verdict.plan.words
        seen.add(verdict.plan.words)
        vinelm.save_trie(tmp_path / "a.vine", replace(found, verdict=verdict))
        assert main(["plan", str(tmp_path / "a.vine"), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["objective"]["mix"] is False
    assert len(seen) > 1


def test_rows_of_today_alone_say_nothing_while_a_cheaper_model_was_not_asked():
    catalog = make_catalog(2)
    for template in (Template((Stage("write"),)), Template((Stage("write"), Loop((Stage("fix"),), times=1)))):
        bound = template.bind(tuple(catalog)).with_defaults({stage.name: "m1" for stage in template.stages})
        found = judged(bound, rows("m1", 90, 0.01), catalog)
        assert found.cheaper == ("m0",)
        assert (found.advice, found.ends_buying) == ("not enough data", False)
        assert "too few requests have run m0 to the end" in found.sentence


def test_keep_is_said_of_what_was_compared():
    catalog = make_catalog(2)
    bound = Template((Stage("write"),)).bind(tuple(catalog)).with_defaults({"write": "m1"})
    found = judged(bound, [*rows("m1", 100, 0.01), *rows("m0", 20, 0.001)], catalog)
    assert (found.advice, found.compared, found.ends_buying) == ("keep", ("m0",), True)
    assert "among plans of m0" in found.sentence


def test_where_no_answer_differs_the_rule_of_three_is_what_is_proven():
    catalog = make_catalog(2)
    bound = Template((Stage("write"),)).bind(tuple(catalog)).with_defaults({"write": "m1"})
    for n, advice, share in ((60, "switch", 0.61), (120, "switch", 1.0)):
        names = [f"q{i:03d}" for i in range(n)]
        found = judged(bound, [*rows("m1", 50, 0.01, names), *rows("m0", 50, 0.001, names)], catalog, names)
        assert (found.advice, found.share) == (advice, share)
        assert (found.plan.answers, found.plan.lost) == (n, 0)
        assert found.plan.gain_low == pytest.approx(-(1 - 0.05 ** (1 / n)))
    assert "0 of 120 answers lost; at most 2.5 points could be lost" in found.sentence
    assert found.sentence.startswith("SWITCH, A FIXED PLAN IS ENOUGH: write m0.")


def test_a_plan_that_agrees_with_today_on_all_requests_that_ran_both_is_not_judged_by_others():
    catalog = make_catalog(2)
    bound = Template((Stage("write"),)).bind(tuple(catalog)).with_defaults({"write": "m1"})
    names = [f"q{i:03d}" for i in range(120)]
    today = rows("m1", 60, 0.01, names[:100])  # the last 40 are the wrong ones
    found = judged(bound, [*today, *(replace(row, prefix=("m0",), cost_usd=0.001) for row in today[:45])], catalog, names)
    shown = next(plan for plan in found.plans if plan.models == ("m0",))
    assert (shown.answers, shown.lost, round(shown.gain, 9)) == (45, 0, 0.0)
    assert shown.gain_low == pytest.approx(-(1 - 0.05 ** (1 / 45)), abs=0.005)
    assert (found.at(0.05).advice, found.at(0.05).share) == ("switch", 0.77)
    assert "0 of 45 answers lost; at most 6.4 points could be lost" in found.at(0.07).sentence


def test_fewer_than_fifty_rows_are_not_enough():
    catalog = make_catalog(2)
    bound = Template((Stage("write"),)).bind(tuple(catalog)).with_defaults({"write": "m1"})
    names = NAMES[:24]
    found = judged(bound, [*rows("m1", 50, 0.01, names), *rows("m0", 50, 0.001, names)], catalog, names)
    assert found.advice == "not enough data"
    assert "48 rows in all" in found.sentence


def test_under_the_oracle_stop_there_is_no_advice(tmp_path):
    path = made_store(tmp_path / "s.db", {"small": 0.6, "large": 0.8}, {"small": 0.001, "large": 0.01}, requests=60)
    found = vinelm.estimate(path, stop="oracle", max_error=1.0).verdict
    assert found.advice == "not enough data"
    assert "as no service can" in found.sentence


def test_the_opponent_is_what_runs_today_where_the_application_says_it(tmp_path):
    settings = {"accuracy": {"small": 0.6, "large": 0.8}, "cost_usd": {"small": 0.001, "large": 0.01}, "requests": 120}
    today = vinelm.evaluate(made_store(tmp_path / "a.db", **settings, today="small")).verdict
    assert (today.opponent, today.is_today, today.models) == ("what runs today", True, {"answer": "small", "retry": "small"})
    path = made_store(tmp_path / "b.db", **settings)
    assert vinelm.evaluate(path).verdict.opponent == "large"
    named = vinelm.evaluate(path, in_use="small").verdict
    assert (named.opponent, named.is_today) == ("small", True)
    assert named.cost_usd < 0.0021


def test_the_allowed_loss_is_kept_by_the_file_and_asked_anew_from_the_same_intervals(tmp_path):
    settings = {"accuracy": {"small": 0.7, "large": 0.8}, "cost_usd": {"small": 0.001, "large": 0.01}, "requests": 80}
    path = made_store(tmp_path / "a.db", **settings, depth=1, today="large")
    strict, loose = (vinelm.estimate(path, max_error=1.0, max_loss=loss) for loss in (0.0, 0.5))
    assert strict.verdict.advice != "switch"
    assert loose.verdict.advice == "switch"
    assert strict.verdict.at(0.5) == loose.verdict
    vinelm.save_trie(tmp_path / "a.vine", loose)
    assert vinelm.load_trie(tmp_path / "a.vine").verdict == loose.verdict
    assert vinelm.evaluate(path, loose, max_loss=0.0).verdict == strict.verdict
    assert main(["evaluate", str(path), "--max-loss", "50", "--json", "-q"]) == 0


# -- the error rate of the rule ----------------------------------------------------------------------------------------


def drawn(rng, n, losses, gains, share=0.6):
    """Scores of the opponent and of nested plans on n requests: plan j loses and gains these shares of the answers."""
    right = rng.random(n) < share
    draw, flip = rng.random(n), rng.random(n)  # plans that save more lose the same answers and others besides
    found = []
    for lost, gained in zip(losses, gains, strict=True):
        own = np.where(right, draw >= lost / share, flip < gained / (1.0 - share))
        found.append(own.astype(float))
    return right.astype(float), found


def scores(right, usd):
    n = len(right)
    return Scores(right, np.full(n, usd), np.zeros(n), np.ones(n), np.zeros(n))


def verdict_of(right, plans, seed):
    """The verdict over nested plans of falling dollars, as the comparison makes it."""
    pairs = [[HalfScores(scores(own, 1.0 - 0.2 * (j + 1)), scores(right, 1.0))] for j, own in enumerate(plans)]
    found = [moments(pair, "accuracy", 1.0) for pair in pairs]
    factor = best_of(found, seed)
    compared = []
    for j, one in enumerate(found):
        (low, high), (best_low, best_high) = ends(one), ends(one, factor)
        saved = 0.2 * (j + 1)
        compared.append(
            ComparedPlan(
                policy="fixed", cost_usd=1.0 - saved, gain=one.value, gain_low=low, gain_high=high, best_low=best_low,
                best_high=best_high, saved_usd=saved, saved_low=saved, saved_high=saved, is_same=False, is_identified=True,
            )
        )  # fmt: skip
    return Verdict(accuracy=right.mean(), cost_usd=1.0, requests=len(right), rows=9, plans=tuple(compared))


@pytest.mark.parametrize(
    ("n", "losses", "gains"),
    [
        (120, (0.031, 0.05, 0.1, 0.2), (0.0, 0.0, 0.0, 0.0)),  # pure losses, the skewed case
        (120, (0.10, 0.12, 0.14, 0.2), (0.07, 0.07, 0.07, 0.07)),  # each as likely above as below
        (300, (0.01, 0.04, 0.08, 0.1), (0.0, 0.009, 0.0, 0.0)),  # the first is fine, the second just is not
        (120, (0.15, 0.05, 0.06, 0.07), (0.02, 0.02, 0.02, 0.02)),  # the first ends the ladder, shares of others are left
    ],
)
def test_a_switch_to_what_loses_more_than_is_allowed_is_rare(n, losses, gains):
    """At most 5 % of all worlds, whatever the plans are: the truth is at the edge, where the rule is tried hardest."""
    rng, worlds, wrong, missed = np.random.default_rng([n, len(losses)]), 400, 0, 0
    for seed in range(worlds):
        right, plans = drawn(rng, n, losses, gains)
        found = verdict_of(right, plans, seed)
        truth = [gained - lost for lost, gained in zip(losses, gains, strict=True)]
        at = {id(plan): value for plan, value in zip(found.plans, truth, strict=True)}
        if found.advice == "switch":
            wrong += found.share * at[id(found.plan)] < -found.max_loss
            missed += at[id(found.plan)] < found.plan.best_low
    assert wrong / worlds <= 0.07  # 5 %, and two standard errors of 400 worlds
    assert missed / worlds <= 0.07


def test_the_ends_for_the_best_of_all_hold_together_and_cost_little_for_plans_that_are_alike():
    rng, worlds, held, factors = np.random.default_rng(7), 300, 0, []
    losses, gains = (0.05, 0.06, 0.07, 0.08, 0.09), (0.05, 0.05, 0.05, 0.05, 0.05)
    truth = np.array(gains) - np.array(losses)
    for seed in range(worlds):
        right, plans = drawn(rng, 200, losses, gains)
        found = verdict_of(right, plans, seed)
        held += all(plan.best_low <= value for plan, value in zip(found.plans, truth, strict=True))
        factors.append((found.plans[0].gain - found.plans[0].best_low) / (found.plans[0].gain - found.plans[0].gain_low))
    assert held / worlds >= 0.93
    assert 1.0 < np.mean(factors) < 1.45  # Bonferroni for five would be 1.41


def test_power_where_a_plan_is_as_good():
    rng, switched = np.random.default_rng(3), 0
    for seed in range(100):
        right, plans = drawn(rng, 300, (0.02, 0.2), (0.03, 0.0))
        switched += verdict_of(right, plans, seed).advice == "switch"
    assert switched >= 70


# -- one verdict everywhere --------------------------------------------------------------------------------------------


def test_every_command_says_the_same(four_models, tmp_path, capsys):
    path, annotated = four_models
    trie = tmp_path / "a.vine"
    vinelm.save_trie(trie, annotated)
    sentence = annotated.verdict.sentence
    for line in (["estimate", path, "-o", tmp_path / "b.vine"], ["evaluate", path, trie, "-q"]):
        assert main([str(word) for word in line]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert sentence in said
    for line in (["estimate", path, "-o", tmp_path / "b.vine"], ["evaluate", path, "-q"]):
        assert main([*(str(word) for word in line), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["verdict"]
        assert {name: found[name] for name in annotated.verdict.held()} == json.loads(json.dumps(annotated.verdict.held()))
    assert store_page(path, annotated).headline == sentence
    with ObservationStore.open(path) as store:
        assert len(store) == annotated.verdict.rows


def test_a_strongest_model_that_too_few_requests_have_run_is_no_opponent_and_no_weaker_one_stands_for_it():
    catalog = make_catalog(2)
    bound = Template((Stage("write"),)).bind(tuple(catalog))
    found = judged(bound, [*rows("m1", 100, 0.01)[:5], *rows("m0", 30, 0.001)], catalog)
    assert found.advice == "not enough data"
    assert "too few requests have run m1 to the end, which is the strongest single model" in found.sentence
    assert not found.is_today


def test_under_an_objective_the_best_single_model_within_it_is_the_opponent(four_models):
    path, _ = four_models
    found = vinelm.evaluate(path, objective=vinelm.Objective(maximize="accuracy", max_cost_usd=0.003)).verdict
    assert found.opponent == "the best single model"
    assert found.cost_usd < 0.0035
    assert "the strongest single model" not in found.sentence


def test_a_plan_with_few_rows_never_stands_for_one_that_promises_hardly_more():
    def made(name, promised, followed):
        return SimpleNamespace(name=name, promised_accuracy=promised, followed=followed)

    assert standing_for([made("signals", 0.90, 80.0), made("fixed", 0.897, 70.0)]).name == "fixed"
    assert standing_for([made("signals", 0.90, 80.0), made("fixed", 0.897, 12.0)]).name == "signals"
    assert standing_for([made("signals", 0.90, 12.0), made("fixed", 0.80, 80.0)]).name == "signals"  # is not as good
    today = made("fixed", 0.80, np.inf)  # the opponent itself, which all requests tell of
    assert standing_for([made("signals", 0.90, 80.0), made("paths", 0.899, 70.0), today]).name == "paths"
