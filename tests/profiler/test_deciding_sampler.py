"""The default sampler: the race of single models first, then whole runs of the plans that decide, by dollars."""

import random
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from kit.apps.echo import EchoBackend, Typed
from kit.catalogs import make_catalog
from kit.toys.profiling import new_store, toy
from kit.tries import routed
from langgraph.graph import END, START, StateGraph

from vinelm.api.deciding import recommended_plans
from vinelm.api.profiling import Inputs, bind_workflow, identity_of, run_profile
from vinelm.catalog import Catalog
from vinelm.controller import Planner
from vinelm.evaluation.comparison.comparable import worth_proving
from vinelm.objective import Objective
from vinelm.profiler import Look, ProfileSettings
from vinelm.profiler.sampling.deciding_sampler import DecidingSampler
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.sampling.priced_sampler import shuffled
from vinelm.profiler.sampling.race import REQUESTS
from vinelm.profiler.sampling.runs import as_run, run_of, whole_path
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.traces import ObservationStore
from vinelm.traces.store.run_state import RunRecords

PRICES = {"tiny": 0.1, "mid": 1.0, "big": 5.0}


def catalog():
    def price(usd):
        return {"input": usd, "output": 4 * usd, "source": "a test", "as_of": "2026-01-01"}

    models = [{"name": name, "provider": "test", "model": name, "price": price(usd)} for name, usd in PRICES.items()]
    return Catalog.from_dict({"model": models})


def bound(template, **today):
    return template.bind(tuple(PRICES)).with_defaults(today)


LINEAR = Template((Stage("plan", answerable=False), Stage("answer")))
ROUTED = Template((Stage("route", answerable=False), Branch({"easy": (Stage("short"),), "hard": (Stage("long"),)})))


def test_where_several_stages_may_come_each_has_its_model():
    template = bound(ROUTED, route="tiny", short="mid", long="big")
    assert whole_path(template, template.today) == ("tiny", {"long": "big", "short": "mid"})


def row(request, *prefix, stage, arm=None, stopped=False, success=True):
    return Observation(
        request_id=request, prefix=prefix, stage=stage, success=success, stopped=stopped, latency_s=1.0, calls=1, arm=arm,
        cost_usd=PRICES[prefix[-1]] / 1000,
    )  # fmt: skip


def test_a_run_is_whole_down_to_its_own_end():
    template = bound(ROUTED, route="tiny", short="mid", long="big")
    path = whole_path(template, {"route": "tiny", "short": "mid", "long": "big"})
    rows = {("q", ("tiny",)): row("q", "tiny", stage="route", arm="long")}
    assert not run_of(rows, template, "q", path)[1]
    rows["q", ("tiny", "mid")] = row("q", "tiny", "mid", stage="long")
    assert not run_of(rows, template, "q", path)[1]  # the long arm runs on another model
    rows["q", ("tiny", "big")] = row("q", "tiny", "big", stage="long", stopped=True)
    assert run_of(rows, template, "q", path)[1]


def test_a_run_ends_where_its_path_has_no_model_for_the_stage_that_comes():
    template = bound(ROUTED)
    rows = {("q", ("tiny",)): row("q", "tiny", stage="route", arm="long")}
    assert run_of(rows, template, "q", ("tiny", {"short": "mid"})) == ([rows["q", ("tiny",)]], True)


def raced(template, names, right=lambda name, models: True, **settings):
    """The sampler after its race, with the rows of that."""
    sampler = DecidingSampler(template, catalog(), names, 0, **settings)
    rows = {}
    for round_ in range(20):
        if not sampler.is_racing(round_, list(rows.values())):
            return sampler, list(rows.values()), round_
        for path in sampler.propose(round_, list(rows.values())):
            for n in range(1, len(path.path) + 1):
                stage = ("plan", "answer")[n - 1]
                success = right(path.request_id, path.path) if n == 2 else None
                one = row(path.request_id, *path.path[:n], stage=stage, success=success, stopped=n == 2)
                rows[one.request_id, one.prefix] = one
    raise AssertionError("the race has no end")


def usd_of(paths):
    return sum(PRICES[model] for path in paths for model in path.path) / 1000


def test_candidates_and_today_are_bought_together_for_three_quarters_of_the_dollars():
    names = [f"q{i}" for i in range(300)]
    template = bound(LINEAR, plan="mid", answer="mid")
    sampler, rows, round_ = raced(template, names, candidates=lambda rows: (("tiny", "big"), ("big", "tiny")))
    later = list(sampler.propose(round_, rows))
    deciding = [path for path in later if path.probability is None]
    assert usd_of(deciding) == pytest.approx(0.75 * usd_of(later), rel=0.3)
    assert [path.path for path in deciding[:4]] == [("mid", "mid"), ("tiny", "big")] * 2 or deciding[0].path == ("tiny", "big")
    plans = {path.request_id for path in deciding if path.path == ("tiny", "big")}
    assert plans
    assert not [path for path in deciding if path.path == ("big", "tiny")]  # one plan after the other
    today = {path.request_id for path in deciding if path.path == ("mid", "mid")}
    assert plans <= today | {one.request_id for one in rows if one.prefix == ("mid", "mid")}  # on the same requests


def test_a_plan_that_costs_little_is_run_beside_the_first():
    names = [f"q{i}" for i in range(300)]
    plans = (("mid", "big"), ("big", "mid"), ("tiny", "mid"))
    sampler, rows, round_ = raced(bound(LINEAR, plan="big", answer="big"), names, candidates=lambda rows: plans)
    deciding = [path for path in sampler.propose(round_, rows) if path.probability is None]
    bought = {plan: {path.request_id for path in deciding if path.path == plan} for plan in plans}
    assert len(bought["tiny", "mid"]) >= len(bought["mid", "big"]) - 1 > 0
    assert not bought["big", "mid"]


def test_the_second_plan_comes_when_all_requests_have_the_first():
    names = [f"q{i}" for i in range(20)]
    template = bound(LINEAR, plan="mid", answer="mid")
    sampler = DecidingSampler(template, catalog(), names, 0, candidates=lambda rows: (("tiny", "big"), ("big", "tiny")))
    rows = [
        row(name, *path[:n], stage=("plan", "answer")[n - 1], stopped=n == 2)
        for name in names for path in (("mid", "mid"), ("tiny", "big"), ("tiny", "tiny"), ("big", "big")) for n in (1, 2)
    ]  # fmt: skip
    deciding = [path for path in sampler.propose(9, rows) if path.probability is None]
    assert {path.path for path in deciding} == {("big", "tiny")}
    assert len({path.request_id for path in deciding}) == len(deciding)


def test_without_today_half_of_the_dollars_are_whole_runs_of_the_plans_that_are_recommended():
    names = [f"q{i}" for i in range(400)]
    plans = (("tiny", "mid"), ("mid", "big"))
    sampler, rows, round_ = raced(bound(LINEAR), names, candidates=lambda rows: plans)
    later = list(sampler.propose(round_, rows))
    whole = [path for path in later if path.probability is None]
    assert {path.path for path in whole} == set(plans)
    assert len({path.request_id for path in whole}) == len(whole) / 2  # both on the same requests
    assert usd_of(whole) == pytest.approx(0.5 * usd_of(later), rel=0.3)


@pytest.mark.parametrize("shown", [{}, {"signal": "sure"}])
def test_first_answers_that_change_plans_are_bought_where_they_end_every_plan(shown):
    """A check passes them, and rows show nothing else: a model that has lost is not asked, and whole runs show nothing more."""
    names, right = [f"q{i}" for i in range(400)], {"tiny": 24, "mid": 4, "big": 26}
    template = bound(Template((Stage("answer"), Loop((Stage("retry"),), times=2)), "workflow"))
    sampler = DecidingSampler(template, catalog(), names, 0, candidates=lambda rows: (("mid", "mid", "mid"),))
    rows = [
        replace(row(name, model, stage="answer", stopped=True, success=n < right[model]), **shown)
        for n, name in enumerate(shuffled(names, 0)[:40]) for model in PRICES
    ]  # fmt: skip
    asked = {path.path[0] for path in sampler.propose(9, rows) if path.probability is None}
    assert asked == ({"mid"} if shown else {"tiny", "big"})


def test_other_models_go_on_from_where_today_has_brought_a_request():
    """What today's first step has cost is paid: a path that goes on from there pays for what follows alone."""
    names = [f"q{i}" for i in range(200)]
    template = bound(LINEAR, plan="big", answer="mid")
    sampler, rows, round_ = raced(template, names, candidates=lambda rows: ())
    later = list(sampler.propose(round_, rows))
    of_today = {one.request_id for one in rows if one.prefix == ("big", "mid")}
    swapped = [path for path in later if path.path == ("big", "tiny") and path.request_id in of_today]
    assert swapped
    assert len({path.request_id for path in swapped}) == len(swapped)


def test_a_round_after_the_race_has_a_fifth_of_the_dollars_before_it():
    names = [f"q{i}" for i in range(400)]
    sampler, rows, round_ = raced(bound(LINEAR), names)
    spent = sum(one.cost_usd for one in rows)
    assert usd_of(sampler.propose(round_, rows)) == pytest.approx(0.2 * spent, rel=0.3)


def test_one_call_is_asked_of_the_model_that_may_be_best_and_not_of_one_that_has_lost():
    template, names = bound(Template((Stage("answer"),))), [f"q{i}" for i in range(400)]
    rates = {"tiny": 0.6, "mid": 0.2, "big": 0.75}
    sampler, rows = DecidingSampler(template, catalog(), names, 0, limits=ProfileLimits(budget_usd=1.0)), {}
    for round_ in range(9):
        for path in sampler.propose(round_, list(rows.values())):
            right = random.Random(f"{path.request_id}{path.path}").random() < rates[path.path[0]]
            rows[path.request_id, path.path] = row(path.request_id, *path.path, stage="answer", success=right, stopped=True)
    asked = {name: sum(prefix == (name,) for _, prefix in rows) for name in PRICES}
    assert asked["mid"] <= 30
    assert asked["big"] > asked["mid"]


def test_it_proposes_everything_in_the_end_and_nothing_twice():
    template, names = bound(LINEAR), [f"q{i}" for i in range(6)]
    sampler, rows = DecidingSampler(template, catalog(), names, 0, candidates=lambda rows: (("tiny", "mid"),)), {}
    for round_ in range(100):
        proposed = list(sampler.propose(round_, list(rows.values())))
        if not proposed:
            break
        for path in proposed:
            for n in (1, 2):
                one = row(path.request_id, *path.path[:n], stage=("plan", "answer")[n - 1], stopped=n == 2)
                rows[one.request_id, one.prefix] = one
    assert proposed == []
    assert len(rows) == len(names) * (3 + 9)


def test_what_runs_today_is_no_plan_to_be_proven():
    """The most accurate plan within its dollars is often that itself; all dollars would go to its own runs."""
    names = [f"q{i}" for i in range(60)]
    template, plans = bound(LINEAR, plan="big", answer="big"), (("big", "big"), ("tiny", "tiny"), ("mid", "mid"))
    rows = [
        row(name, *path[:n], stage=("plan", "answer")[n - 1], success=path == plans[0] if n == 2 else None, stopped=n == 2)
        for name in names for path in plans for n in (1, 2)
    ]  # fmt: skip
    found = recommended_plans(template, catalog())(rows)
    assert ("big", "big") not in found


# -- through a profile ---------------------------------------------------------------------------------------------


def test_a_profile_notes_what_a_verdict_lacks_and_buys_it_first(tmp_path, monkeypatch):
    """In m1 > m0, which the plans that its rows recommend leave until later."""
    lacking, bought = (("m1", "m0"),), []

    def stepwise(run, store, **_):
        first = run(Look(1e-9, usd=0.0, least_rows=120))
        bought.append(sum(first.counts))
        return run(Look(1.0, usd=1.2 * first.spent_usd, lacking=lacking, rows=bought[0]))

    monkeypatch.setattr("vinelm.api.profiling.profile_until_certain", stepwise)
    models, backends = make_catalog(3), {"test": EchoBackend()}
    found = bind_workflow(workflow("m2"), models, backends)
    with ObservationStore.create(tmp_path / "s.db", identity_of(found, models, backends, 0)) as store:
        run_profile(Inputs(workflow=found, catalog=models, backends=backends), store, ProfileSettings(), max_error=0.15)
        rows = store.observations()
        assert RunRecords(store).wanted() == [(bought[0], [*lacking])]
    before, after = rows[: bought[0]], rows[bought[0] :]
    assert sum(one.prefix == lacking[0] for one in after) > sum(one.prefix == lacking[0] for one in before)


def ask(state: Typed, model):
    return {"a": model.invoke("?").text}


def workflow(default):
    def build(vine):
        graph = StateGraph(Typed)
        graph.add_node("plan", vine.stage("plan", ask, default=default))
        graph.add_node("answer", vine.stage("answer", ask, default=default))
        graph.add_edge(START, "plan")
        graph.add_edge("plan", "answer")
        graph.add_edge("answer", END)
        return graph

    requests = tuple(Request(f"q{i}", {"q": str(i)}) for i in range(60))
    return Workflow(name="w", template=LINEAR, build=build, requests=requests, score=lambda request, state: True)


def profiled(path, default, **limits):
    models, backends = make_catalog(3), {"test": EchoBackend()}
    found = bind_workflow(workflow(default), models, backends)
    with ObservationStore.create(path, identity_of(found, models, backends, 0)) as store:
        run_profile(Inputs(workflow=found, catalog=models, backends=backends), store, ProfileSettings(**limits))
        return store.observations()


def test_a_coverage_stops_no_profile_before_today_is_compared(tmp_path):
    told = []
    rows = profiled(tmp_path / "a.db", "m1", coverage=0.001, on_single_models=told.append)
    whole = {name: {row.request_id for row in rows if row.prefix == (name, name)} for name in ("m0", "m1", "m2")}
    assert len(whole["m1"]) == REQUESTS[-1]
    assert whole["m0"] < whole["m1"]
    assert len(whole["m0"]) >= 10
    (table,) = told
    assert [one.name for one in table.models if one.is_current] == ["m1"]
    assert {one.name: one.requests for one in table.models} == {name: len(found) for name, found in whole.items()}


def test_without_a_default_the_coverage_alone_decides(tmp_path):
    rows = profiled(tmp_path / "b.db", None, coverage=0.001)
    assert len(rows) < 10


def test_the_race_of_a_budget_takes_a_quarter_of_it_and_the_result_has_its_table(tmp_path):
    at_the_end = []
    models, backends = make_catalog(3), {"test": EchoBackend()}
    found = bind_workflow(workflow(None), models, backends)
    with ObservationStore.create(tmp_path / "s.db", identity_of(found, models, backends, 0)) as store:
        settings = ProfileSettings(budget_usd=0.2, on_single_models=lambda table: at_the_end.append(store.committed_usd()))
        result = run_profile(Inputs(workflow=found, catalog=models, backends=backends), store, settings)
        spent = store.committed_usd()
    assert at_the_end[0] <= 0.25 * 0.2 * 1.1
    assert spent > 2 * at_the_end[0]
    assert {one.name for one in result.single_models.models} == {"m0", "m1", "m2"}


def test_a_plan_is_run_with_the_model_of_each_stage_and_no_further_than_it_goes():
    annotated = routed()
    plan = Planner(annotated).plan(Objective(maximize="accuracy"))
    assert as_run(plan.reached, annotated.trie, annotated.template) == ("m1", {"billing": "m1", "technical": "m0"}, "m1")
    none = np.zeros(len(annotated.trie))
    assert as_run(none, annotated.trie, annotated.template) == ()


class Found(NamedTuple):
    """A plan that plans would find."""

    words: str
    accuracy: float
    path_cost_usd: float = 1.0
    is_feasible: bool = True
    standard_error: float | None = None


class Plans(NamedTuple):
    """Those within 70 % of today's dollars, and within all of them; and single models."""

    cheaper: Found
    all_dollars: Found
    alone: tuple[Found, ...] = ()

    def single_models(self):
        return ((plan.words, plan) for plan in self.alone)

    def decision(self, objective):
        return self.cheaper if objective.max_cost_usd < 0.9 else self.all_dollars


def wanted(today, best, run):
    return [plan.words for plan in worth_proving(Found("today", today), Plans(*best), Plans(*run))]


def test_a_plan_that_was_run_is_preferred_to_one_that_promises_hardly_more():
    best, run = (Found("new", 0.805), Found("new, dear", 0.82)), (Found("run", 0.8), Found("run, dear", 0.8))
    assert wanted(0.8, best, run) == ["run", "new, dear"]
    assert wanted(0.8, best, (Found("run", 0.0, is_feasible=False), run[1])) == ["new", "new, dear"]
    assert wanted(0.8, (Found("new", 0.0, is_feasible=False), best[1]), run) == ["new, dear"]


def test_the_plan_for_less_comes_first_unless_it_loses_what_the_other_does_not():
    for cheaper, dear, first in ((0.8, 0.81, "for less"), (0.7, 0.81, "more"), (0.7, 0.7, "for less"), (0.85, 0.9, "for less")):
        both = Found("for less", cheaper), Found("more", dear)
        assert wanted(0.8, both, both)[0] == first


def test_the_cheapest_model_that_seems_as_good_is_run_too():
    best = Found("for less", 0.8, 0.6), Found("more", 0.81, 0.9)
    alone = Found("nano", 0.7, 0.05), Found("mini", 0.795, 0.2), Found("small", 0.8, 0.3), Found("big", 0.82, 0.9)
    found = worth_proving(Found("today", 0.8), Plans(*best, alone), Plans(*best))
    assert [plan.words for plan in found] == ["for less", "more", "mini"]
    found = worth_proving(Found("today", 0.8), Plans(*best, (alone[0], alone[3])), Plans(*best))
    assert [plan.words for plan in found] == ["for less", "more"]


def test_the_cheapest_model_that_may_still_be_as_good_is_run_too():
    """Thirty requests of the comparison of single models leave 5 points open."""
    best = Found("for less", 0.8, 0.6), Found("more", 0.81, 0.9)
    nano, mini = Found("nano", 0.7, 0.05, standard_error=0.05), Found("mini", 0.76, 0.2, standard_error=0.05)
    small, big = Found("small", 0.8, 0.3, standard_error=0.05), Found("big", 0.82, 0.9, standard_error=0.05)
    for alone, run in (((nano, mini, small, big), ["small", "mini"]), ((nano, mini, big), ["mini"]), ((nano, big), [])):
        found = worth_proving(Found("today", 0.8), Plans(*best, alone), Plans(*best))
        assert [plan.words for plan in found] == ["for less", "more", *run]


def rows_of(names, *plans):
    """Whole runs of some plans, each with the requests that have it and those that it is right on."""
    for models, has, right in plans:
        for name in names:
            if has(int(name[1:])):
                yield row(name, models[0], stage="plan")
                yield row(name, *models, stage="answer", success=right(int(name[1:])), stopped=True)


def test_a_plan_that_leans_on_a_model_with_few_rows_waits():
    template, names = bound(LINEAR, plan="big", answer="big"), [f"q{i}" for i in range(60)]
    today, tiny = (("big", "big"), lambda n: True, lambda n: n % 2), ("tiny", "tiny")
    rows = list(rows_of(names, today, (tiny, lambda n: n < 4, lambda n: 1)))
    assert not any("tiny" in run for run in recommended_plans(template, catalog())(rows))
    more = list(rows_of(names, today, (tiny, lambda n: n < 40, lambda n: 1)))
    assert tiny in recommended_plans(template, catalog())(more)


def test_runs_that_a_verdict_lacked_come_first_from_the_rows_of_that_verdict_on(tmp_path):
    template, names = bound(LINEAR, plan="big", answer="big"), [f"q{i}" for i in range(60)]
    rows = list(rows_of(names, (("big", "big"), lambda n: True, lambda n: n % 2)))
    runs = [("mid", "mid"), ("tiny", "gone"), ("mid",)]
    with new_store(tmp_path / "s.db", toy()) as store, store.exclusive():
        RunRecords(store).want(len(rows), [("mid", "big"), ({"plan": "mid"}, "tiny")])
        RunRecords(store).want(len(rows) + 1, runs)
        wanted = RunRecords(store).wanted()
    assert wanted == [(120, [("mid", "big"), ({"plan": "mid"}, "tiny")]), (121, runs)]
    before, at, after = (
        list(recommended_plans(template, catalog(), wanted)(one))
        for one in (rows[:-1], rows, [*rows, row("q0", "mid", stage="plan", success=None, stopped=False)])
    )
    assert before == list(recommended_plans(template, catalog())(rows[:-1])), "as if nothing had been lacking"
    assert at[:2] == [("mid", "big"), ({"plan": "mid"}, "tiny")]
    assert after[:1] == [("mid", "mid")], "only the latest, and only what this template can run"
    assert not {("tiny", "gone"), ("mid",)} & {one for one in after if isinstance(one[0], str)}


def test_where_a_round_takes_hours_there_are_few():
    template, names = bound(LINEAR), [f"q{i}" for i in range(400)]
    counts = []
    for few in (False, True):
        sampler, rows, round_ = raced(template, names, few_rounds=few)
        counts.append(round_)
        assert max(sum(one.prefix == (name, name) for one in rows) for name in PRICES) == REQUESTS[-1]
        share = usd_of(sampler.propose(round_, rows)) / sum(one.cost_usd for one in rows)
        assert share == pytest.approx(1.0 if few else 0.2, rel=0.3)
    assert counts == [1 + len(REQUESTS), 3]
