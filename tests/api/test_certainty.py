"""What an estimate still lacks, and a profile that goes on until it lacks nothing."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

import vinelm
from vinelm.api.certainty import profile_until_certain, shortfall
from vinelm.catalog import Catalog
from vinelm.controller import Planner
from vinelm.errors import EvidenceError
from vinelm.objective import Objective
from vinelm.profiler import Look, ProfileResult, SingleModels
from vinelm.profiler.sampling.single_models import SingleModel
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore, StoreIdentity

PRICE = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2025-06-01"}
MODELS = Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": PRICE} for n in "ab"]})
RETRY = Template((Stage("generate"), Loop((Stage("repair"),), times=1)), "oracle").bind(("a", "b"))
REQUESTS = 300


class Run:
    """A profile that answers a look's share of all requests, and says how often it was asked.

    Where there are ``many`` times as many paths as these, its coverage is so much smaller, and its dollars end a step.
    """

    def __init__(self, path, *, budget: int | None = None, at_most: float = 1.0, many: float = 1.0):
        identity = StoreIdentity(
            workflow="toy", template=RETRY.to_dict(), catalog=MODELS.to_dict(), dataset_digest="d", fingerprint={"code": "1"},
            is_simulated=True,
        )  # fmt: skip
        self.path, self.budget, self.asked, self.random = path, budget, [], random.Random(0)
        self.at_most, self.many = at_most, many
        self.done = 0
        with ObservationStore.create(path, identity) as store:
            store.register_digests({f"q{i}": str(i) for i in range(REQUESTS)})

    def __call__(self, look: Look) -> ProfileResult:
        self.asked.append(look)
        until = min(look.coverage * self.many, look.usd / (0.01 * REQUESTS), 1.0)
        most = round(self.at_most * REQUESTS)
        wanted = min(max(round(until * REQUESTS), look.least_rows), most)
        whole = wanted if self.budget is None else min(wanted, self.budget)
        new = max(whole - self.done, 0)
        with ObservationStore.open_or_create(self.path, ObservationStore.open(self.path).identity) as store:
            for i in range(self.done, self.done + new):
                self.answer(store, f"q{i}")
        self.done += new
        return ProfileResult(
            stopped_by="budget" if whole < wanted else "look" if whole < most else "coverage",
            executed=new, failures={"timeout": new}, counts=(self.done,),
            coverage=self.done / REQUESTS / self.many, spent_usd=0.01 * self.done, exhaustive_usd=3.0, naive_usd=3.0,
            committed_usd=0.0, abandoned=0,
        )  # fmt: skip

    def answer(self, store, request):
        prefix = ()
        for stage in ("generate", "repair"):
            prefix, right = (*prefix, self.random.choice("ab")), self.random.random() < 0.5
            store.add(
                Observation(
                    request_id=request, prefix=prefix, stage=stage, success=right, stopped=right, cost_usd=0.01, latency_s=1.0
                )
            )
            if right:
                return


def test_it_ends_where_estimate_accepts_and_not_before(tmp_path):
    run, notes = Run(tmp_path / "s.db"), []
    result = profile_until_certain(run, run.path, max_error=0.15, on_note=notes.append)
    assert result.stopped_by == "certain"
    assert result.executed == run.done == result.failures["timeout"]
    assert run.asked[0].coverage < run.asked[-1].coverage < 1.0
    assert [one.startswith("judging") for one in notes] == [True, False] * (len(run.asked) - 1) + [True]
    assert "15 are asked for" in notes[-2]
    assert shortfall(run.path) is None
    assert vinelm.estimate(run.path).meta["evidence"]["best_half_width"] <= 0.15


def test_what_is_lacking_is_what_estimate_refuses(tmp_path):
    run = Run(tmp_path / "s.db")
    assert shortfall(run.path).half_width is None  # no row yet
    run(Look(0.05))
    lacks = shortfall(run.path)
    with pytest.raises(EvidenceError, match=rf"\+/- {100 * lacks.half_width:.1f} points .*15 points are allowed"):
        vinelm.estimate(run.path)
    assert lacks.times > 1.0
    assert lacks.more_usd is not None
    assert lacks.more_usd > 0.0
    assert lacks.requests is None
    wanting = shortfall(run.path, 0.001)
    assert wanting.more_usd is None
    assert wanting.requests is not None
    assert wanting.requests > REQUESTS


@pytest.mark.parametrize(("budget", "at_most", "ended"), [(20, 1.0, "budget"), (None, 0.05, "coverage")])
def test_a_budget_and_a_coverage_end_it(tmp_path, budget, at_most, ended):
    run = Run(tmp_path / "s.db", budget=budget, at_most=at_most)
    result = profile_until_certain(run, run.path, max_error=0.01)
    assert result.stopped_by == ended
    assert run.done <= at_most * REQUESTS


def test_dollars_lead_to_looks_where_the_coverage_stays_near_0(tmp_path):
    run, notes = Run(tmp_path / "s.db", many=1e6), []
    result = profile_until_certain(run, run.path, max_error=0.15, first_usd=0.2, on_note=notes.append)
    assert result.stopped_by == "certain"
    assert result.coverage < 0.001
    dollars = [look.usd for look in run.asked]
    assert dollars[0] == 0.2
    assert all(1.0 < after / before <= 4.01 for before, after in pairwise(dollars))
    assert notes[-2].endswith(f" %, or to ${dollars[-1]:.3g}")


def test_a_look_waits_for_rows_where_the_coverage_grows_without_them(tmp_path):
    run = Run(tmp_path / "s.db")
    profile_until_certain(run, run.path, max_error=0.01, first_usd=0.01)
    assert len(run.asked) > 2
    assert all(look.least_rows > 0 for look in run.asked[1:])


def known_today(path, *, today=True):
    """A store of 60 requests that ran today's models, half of them one plan, and few each of the others, which were right."""
    names = tuple("abcdef")
    models = Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": PRICE} for n in names]})
    template = Template((Stage("plan", answerable=False), Stage("solve"))).bind(names)
    template = template.with_defaults({"plan": "b", "solve": "b"}) if today else template
    identity = StoreIdentity(
        workflow="toy", template=template.to_dict(), catalog=models.to_dict(), dataset_digest="d", fingerprint={"code": "1"},
        is_simulated=True,
    )  # fmt: skip
    with ObservationStore.create(path, identity) as store:
        store.register_digests({f"q{i}": str(i) for i in range(60)})
        for i in range(60):
            rare = ("cdef"[i % 4], "cdef"[i // 4 % 4])
            runs = {("b", "b"): i % 5 > 1, **({("a", "b"): i % 5 > 1} if i % 2 else {}), **({rare: True} if i < 4 else {})}
            for run, right in runs.items():
                for depth, stage in ((1, "plan"), (2, "solve")):
                    store.add(
                        Observation(
                            request_id=f"q{i}", prefix=run[:depth], stage=stage, success=right if depth == 2 else None,
                            stopped=depth == 2, cost_usd=0.01, latency_s=1.0,
                        )
                    )  # fmt: skip
    return path


def test_where_only_the_plans_that_ran_are_known_those_are_what_is_planned(tmp_path):
    store = known_today(tmp_path / "s.db")
    found = vinelm.estimate(store)
    assert found.tried is not None
    evidence = found.meta["evidence"]
    assert evidence["best_half_width"] <= 0.15
    assert "15 points are allowed" in evidence["warnings"][-1]
    assert shortfall(store) is None
    planned = Planner(found).plan(Objective(maximize="accuracy"))
    assert planned.path in {("b", "b"), ("a", "b")}
    assert planned.promise.half_width == pytest.approx(evidence["best_half_width"])


def test_nothing_is_left_out_where_it_is_not_known_what_runs_today_or_where_even_that_is_not_known(tmp_path):
    with pytest.raises(EvidenceError, match="15 points are allowed"):
        vinelm.estimate(known_today(tmp_path / "none.db", today=False))
    assert shortfall(tmp_path / "none.db") is not None
    with pytest.raises(EvidenceError, match="2 points are allowed"):
        vinelm.estimate(known_today(tmp_path / "s.db"), max_error=0.02)
    assert vinelm.estimate(tmp_path / "s.db", max_error=0.9).meta["evidence"]["best_half_width"] > 0.15  # of all plans


# -- where nothing can be proven ---------------------------------------------------------------------------------------


class Perfect:
    """A profile of one call on a few requests, which what runs today gets right, and the cheaper model too."""

    def __init__(self, path, requests=30, *, wrong=0, without=6):
        price = {"b": 0.01, "a": 0.001}
        template = Template((Stage("answer"),)).bind(("a", "b")).with_defaults({"answer": "b"})
        identity = StoreIdentity(
            workflow="toy", template=template.to_dict(), catalog=MODELS.to_dict(), dataset_digest="d",
            fingerprint={"code": "1"}, is_simulated=True,
        )  # fmt: skip
        self.path, self.asked, self.names = path, [], [f"q{i}" for i in range(requests)]
        self.alone = SingleModels(
            models=(
                SingleModel(
                    name="b", run=("b",), is_current=True, requests=requests, right=requests - wrong, low=0.9, high=1.0,
                    usd_per_1000=10.0,
                ),
            ),
            spent_usd=0.3,
        )  # fmt: skip
        with ObservationStore.create(path, identity) as store:
            store.register_digests(dict.fromkeys(self.names, "x"))
            for model, names in (("b", self.names), ("a", self.names[: requests - without])):
                for i, name in enumerate(names):
                    store.add(
                        Observation(
                            request_id=name, prefix=(model,), stage="answer", success=i >= wrong, stopped=True,
                            cost_usd=price[model], latency_s=1.0,
                        )
                    )  # fmt: skip

    def __call__(self, look: Look) -> ProfileResult:
        self.asked.append(look)
        return ProfileResult(
            stopped_by="look" if len(self.asked) < 2 else "coverage", executed=0, failures={}, counts=(1,),
            coverage=look.coverage, spent_usd=0.3, exhaustive_usd=0.4,
            naive_usd=0.4, committed_usd=0.3, abandoned=0, single_models=self.alone,
        )  # fmt: skip


def test_buying_stops_where_not_even_a_plan_without_a_lost_answer_could_be_proven(tmp_path):
    run, notes = Perfect(tmp_path / "s.db"), []
    result = profile_until_certain(run, run.path, max_error=0.15, max_loss=0.03, on_note=notes.append)
    assert (result.stopped_by, len(run.asked)) == ("hopeless", 1)
    assert notes == ["judging 1 rows", f"stopped: {result.message}; --keep-going buys all the same"]
    assert "on so few a loss below 9.5 points cannot be excluded" in result.message
    verdict = vinelm.estimate(run.path, max_error=1.0).verdict
    assert verdict.sentence.startswith("UNDECIDED: answer a is the nearest plan")


@pytest.mark.parametrize(
    "fields", [{"keep_going": True}, {"max_loss": 0.05}, {"wrong": 1}, {"requests": 60}], ids=lambda one: next(iter(one))
)
def test_it_goes_on_where_somebody_wants_it_or_a_plan_may_yet_be_proven(tmp_path, fields):
    made = {name: value for name, value in fields.items() if name in ("wrong", "requests")}
    asked = {name: value for name, value in fields.items() if name not in made}
    run = Perfect(tmp_path / "s.db", **made)
    result = profile_until_certain(run, run.path, max_error=0.15, **{"max_loss": 0.03, **asked})
    assert result.stopped_by != "hopeless"
    assert len(run.asked) > 1


class Proven(Perfect):
    """A profile in which the cheaper model has answered some of the requests, as well as what runs today."""

    def __call__(self, look):
        return replace(super().__call__(look), stopped_by="look" if len(self.asked) < 3 else "coverage")


def test_a_look_comes_once_all_requests_have_run_a_plan_that_is_proven_so_far(tmp_path):
    run, notes = Proven(tmp_path / "s.db", 100, without=40), []
    profile_until_certain(run, run.path, max_error=0.15, max_loss=0.055, on_note=notes.append)
    assert run.asked[0].lacking == ()
    assert (run.asked[1].lacking, run.asked[1].rows) == ((("a",),), 1)
    assert "going on until all requests have run it, or to a coverage of " in notes[1]


@pytest.mark.parametrize(("without", "looks"), [(40, 3), (4, 1)])
def test_the_fewer_requests_a_proven_plan_lacks_the_sooner_buying_ends(tmp_path, without, looks):
    """Of 100 requests, none lost: -4.9 points on 60 of them, -3.0 on 96, wider while more may follow."""
    run = Proven(tmp_path / "s.db", 100, without=without)
    profile_until_certain(run, run.path, max_error=0.15, max_loss=0.055 if without == 40 else 0.034)
    assert len(run.asked) == looks
