"""The first rows of a profile: what runs today and the strongest model, on the same requests, before anything stops it."""

from collections import defaultdict

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
from vinelm.evaluation.judging.planning_half import part_of
from vinelm.objective import Objective
from vinelm.profiler import ProfileSettings
from vinelm.profiler.sampling.baseline import PAIRED, as_run, baselines, is_run, whole_path
from vinelm.profiler.sampling.priced_sampler import PricedSampler
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
        return lambda request: (("tiny", "big"),) if request < "q3" else (("big", "tiny"),)

    names = [f"q{i}" for i in range(50)]
    template = bound(LINEAR, plan="mid", answer="mid")
    sampler = PricedSampler(template, catalog(), names, 0, candidates=candidates)
    rows = [row(path.request_id, path.path[0], stage="plan") for path in sampler.propose(0, ())]
    assert asked == []
    later = list(sampler.propose(1, rows))
    assert asked == [len(rows)]
    deciding = [path for path in later if path.probability is None]
    assert len(deciding) >= len(later) // 2 - 1
    assert {path.path for path in deciding} == {("mid", "mid"), ("tiny", "big"), ("big", "tiny")}
    assert {path.path for path in deciding if path.request_id < "q3"} == {("mid", "mid"), ("tiny", "big")}


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


def test_each_part_runs_what_the_others_recommend():
    """A model that is right on one part of the requests alone is not recommended there by its own rows."""
    template, names = bound(LINEAR, plan="big", answer="big"), [f"q{i}" for i in range(200)]
    rows = []
    for name in names:
        part = part_of(name, 0, 4)
        right = {"tiny": part == 0, "mid": part == 1 or (part == 2 and name < "q5"), "big": False}
        for model in ("tiny", "mid", "big"):
            rows.append(row(name, model, stage="plan"))
            rows.append(row(name, model, model, stage="answer", success=right[model], stopped=True))
    of = recommended_plans(template, catalog())(rows)
    answers = {part_of(name, 0, 4): {path[-1] for path in of(name)} for name in names}
    assert "mid" in answers[0]
    assert "tiny" not in answers[0]
    assert "tiny" in answers[1]
