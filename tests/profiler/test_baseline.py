"""The first rows of a profile: what runs today and the strongest model, on the same requests, before anything stops it."""

import random
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import pytest
from kit.apps.echo import EchoBackend, Typed
from kit.catalogs import make_catalog
from kit.tries import routed
from langgraph.graph import END, START, StateGraph

from vinelm.api.deciding import recommended_plans
from vinelm.api.profiling import bind_workflow, identity_of, run_profile
from vinelm.catalog import Catalog
from vinelm.controller import Planner
from vinelm.evaluation.judging.judgeable import worth_proving
from vinelm.objective import Objective
from vinelm.profiler import ProfileSettings
from vinelm.profiler.sampling.baseline import PAIRED, as_run, baselines, is_run, whole_path
from vinelm.profiler.sampling.priced_sampler import PricedSampler, n_runs
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.traces import ObservationStore

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


def test_where_it_is_not_known_what_runs_today_the_dearest_models_are_a_whole_run_all_the_same():
    assert baselines(bound(LINEAR, plan="mid"), catalog()) == (("big", "big"),)  # one stage says nothing
    assert baselines(bound(LINEAR), None) == ()  # no price is known
    assert PricedSampler(bound(LINEAR), catalog(), ["q"], 0).n_baseline == 0


def test_today_and_the_dearest_models_are_whole_runs():
    found = baselines(bound(LINEAR, plan="tiny", answer="mid"), catalog())
    assert found == (("tiny", "mid"), ("big", "big"))
    assert baselines(bound(LINEAR, plan="big", answer="big"), catalog()) == (("big", "big"),)
    loop = bound(Template((Stage("write"), Loop((Stage("fix"),), times=2))), write="mid", fix="tiny")
    assert baselines(loop, catalog())[0] == ("mid", "tiny", "tiny")


def test_where_several_stages_may_come_each_has_its_model():
    found, _ = baselines(bound(ROUTED, route="tiny", short="mid", long="big"), catalog())
    assert found == ("tiny", {"long": "big", "short": "mid"})


@pytest.mark.parametrize("requests", [7, 200])
def test_both_answer_the_same_requests_first(requests):
    names = [f"q{i}" for i in range(requests)]
    sampler = PricedSampler(bound(LINEAR, plan="mid", answer="mid"), catalog(), names, 3)
    paths = list(sampler.propose(0, ()))
    first = paths[: sampler.n_baseline]
    assert sampler.n_baseline == 2 * min(PAIRED, requests)
    by_request = defaultdict(set)
    for path in first:
        by_request[path.request_id].add(path.path)
    assert len(by_request) == min(PAIRED, requests)
    assert all(of_request == {("mid", "mid"), ("big", "big")} for of_request in by_request.values())


def row(request, *prefix, stage, arm=None, stopped=False, success=True):
    return Observation(
        request_id=request, prefix=prefix, stage=stage, success=success, stopped=stopped, latency_s=1.0, calls=1, arm=arm,
        cost_usd=PRICES[prefix[-1]] / 1000,
    )  # fmt: skip


def test_a_run_is_whole_down_to_its_own_end():
    template = bound(ROUTED, route="tiny", short="mid", long="big")
    path = whole_path(template, {"route": "tiny", "short": "mid", "long": "big"})
    rows = {("q", ("tiny",)): row("q", "tiny", stage="route", arm="long")}
    assert not is_run(rows, template, "q", path)
    rows["q", ("tiny", "mid")] = row("q", "tiny", "mid", stage="long")
    assert not is_run(rows, template, "q", path)  # the long arm runs on another model
    rows["q", ("tiny", "big")] = row("q", "tiny", "big", stage="long", stopped=True)
    assert is_run(rows, template, "q", path)


def test_candidates_and_today_are_bought_together_in_later_rounds():
    asked = []

    def candidates(rows):
        asked.append(len(rows))
        return ("tiny", "big"), ("big", "tiny")

    names = [f"q{i}" for i in range(50)]
    template = bound(LINEAR, plan="mid", answer="mid")
    sampler = PricedSampler(template, catalog(), names, 0, candidates=candidates)
    rows = [row(path.request_id, path.path[0], stage="plan") for path in sampler.propose(0, ())]
    assert asked == []
    later = list(sampler.propose(1, rows))
    assert asked == [len(rows)]
    assert len(later) == len(rows)  # each of them is a run
    deciding = [path for path in later if path.probability is None]
    assert len(deciding) >= 0.75 * len(later) - 1
    assert [path.path for path in deciding[:4]] == [("mid", "mid"), ("tiny", "big")] * 2  # one plan after the other
    assert deciding[0].request_id == deciding[1].request_id


def test_the_second_plan_comes_when_all_requests_have_the_first():
    names = [f"q{i}" for i in range(20)]
    template = bound(LINEAR, plan="mid", answer="mid")
    sampler = PricedSampler(template, catalog(), names, 0, candidates=lambda rows: (("tiny", "big"), ("big", "tiny")))
    rows = [
        row(name, *path[:n], stage=("plan", "answer")[n - 1], stopped=n == 2)
        for name in names for path in (("mid", "mid"), ("tiny", "big")) for n in (1, 2)
    ]  # fmt: skip
    deciding = [path for path in sampler.propose(1, rows) if path.probability is None]
    assert {path.path for path in deciding} == {("big", "tiny")}
    assert len({path.request_id for path in deciding}) == len(deciding)


def test_other_models_go_on_from_where_today_has_brought_a_request():
    """What today's first step has cost is paid: a path that goes on from there pays for what follows alone."""
    names = [f"q{i}" for i in range(60)]
    template = bound(LINEAR, plan="big", answer="mid")
    rows = list(rows_of(names[:40], (("big", "mid"), lambda n: True, lambda n: True)))
    rows += [row(name, "tiny", stage="plan") for name in names[:40]]
    later = list(PricedSampler(template, catalog(), names, 0, candidates=lambda rows: ()).propose(1, rows))
    swapped = [path for path in later if path.path[0] == "big" and path.request_id in names[:40]]
    assert 0.1 * len(later) <= len(swapped) <= 0.2 * len(later)
    assert {path.path[1] for path in swapped} == {"tiny", "big"}  # today's own answer is there
    assert len({path.request_id for path in swapped}) == len(swapped)
    other_first = [path for path in later if path.path[0] != "big" and path.path[1] == "mid" and path.request_id in names[40:]]
    assert len(other_first) >= len(swapped) // 4
    no_candidates = PricedSampler(template, catalog(), names, 0).propose(1, rows)
    assert not [path for path in no_candidates if path.path[0] == "big" and path.request_id in names[:40]]


def test_every_path_of_a_round_has_a_cell_of_its_own_in_a_loop_too():
    """Rows of every kind of progress: where other models go on from today's, what is bought already is not bought again."""
    template = bound(Template((Stage("write"), Loop((Stage("fix"),), times=3))), write="big", fix="big")
    names = [f"q{i}" for i in range(60)]
    sampler = PricedSampler(template, catalog(), names, 0, candidates=lambda rows: (("mid",) * 4,))
    for seed in range(5):
        draw, rows = random.Random(seed), {}
        for name in names:
            for _ in range(draw.randrange(6)):
                run = ["big" if draw.random() < 0.6 else draw.choice(list(PRICES)) for _ in range(draw.randrange(1, 5))]
                for n in range(1, len(run) + 1):
                    if n > 1 and rows[name, tuple(run[: n - 1])].stopped:
                        break
                    stage, ends = "write" if n == 1 else "fix", random.Random(f"{name}{run[:n]}").random() < 0.3
                    rows[name, tuple(run[:n])] = row(name, *run[:n], stage=stage, success=ends, stopped=ends)
        drawn = [path for path in sampler.propose(1, list(rows.values())) if path.path != ("mid",) * 4]
        first_new = [
            next((path.request_id, path.path[:n]) for n in range(1, 5) if (path.request_id, path.path[:n]) not in rows)
            for path in drawn if path.path != ("big",) * 4
        ]  # fmt: skip
        assert len(first_new) > 20
        assert len(set(first_new)) == len(first_new)


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


def test_runs_are_counted_by_where_they_end():
    rows = [row("q", "mid", stage="plan"), row("q", "mid", "big", stage="answer")]
    rows += [row("q", "mid", "tiny", stage="answer"), row("p", "mid", stage="plan")]
    assert n_runs(rows) == 3


# -- through a profile ---------------------------------------------------------------------------------------------


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
        run_profile(found, models, backends, store, ProfileSettings(**limits))
        return store.observations()


def test_a_coverage_stops_no_profile_before_both_are_compared(tmp_path):
    rows = profiled(tmp_path / "a.db", "m1", coverage=0.001)
    whole = {name: {row.request_id for row in rows if row.prefix == (name, name)} for name in ("m1", "m2")}
    assert len(whole["m1"]) == PAIRED
    assert whole["m1"] == whole["m2"]
    assert len(rows) == 4 * PAIRED


def test_without_a_default_the_coverage_alone_decides(tmp_path):
    rows = profiled(tmp_path / "b.db", None, coverage=0.001)
    assert len(rows) < 10


def test_without_a_default_half_of_the_paths_after_round_0_are_the_dearest_models_on_a_tenth_of_the_requests():
    requests = [f"q{i}" for i in range(50)]
    sampler = PricedSampler(bound(LINEAR), catalog(), requests, 0)
    first = list(sampler.propose(0, ()))
    assert all(path.probability for path in first)  # none of them is given
    rows = [row(one.request_id, *one.path[:n], stage=("plan", "answer")[n - 1]) for one in first for n in (1, 2)]
    runs = [path for path in sampler.propose(1, rows) if path.probability is None]
    assert {path.path for path in runs} == {("big", "big")}
    known = {row.request_id for row in rows if row.prefix == ("big", "big")}
    assert 3 <= len(runs) <= 5
    assert len({path.request_id for path in runs}) == len(runs)
    assert not {path.request_id for path in runs} & known


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


class Plans(NamedTuple):
    """Those within 70 % of today's dollars, and within all of them."""

    cheaper: Found
    all_dollars: Found

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
