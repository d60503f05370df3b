"""The race of single models: the same first requests, losers drop out, dollars end it, and it is replayed exactly."""

import random

import pytest

from vinelm.catalog import Catalog
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.sampling.prices import Prices
from vinelm.profiler.sampling.race import REQUESTS, SHARE, ModelRace
from vinelm.profiler.sampling.single_models import SingleModel, SingleModels, beta_interval, is_apart, without_losers
from vinelm.rows.observation import Observation
from vinelm.template import SKIP, Loop, Stage, Template

PRICES = {"tiny": 0.1, "mid": 1.0, "big": 5.0, "huge": 4000.0}
NAMES = tuple(f"q{i}" for i in range(200))


def catalog(names):
    def price(usd):
        return {"input": usd, "output": 4 * usd, "source": "a test", "as_of": "2026-01-01"}

    return Catalog.from_dict({"model": [
        {"name": name, "provider": "test", "model": name, "price": price(PRICES[name])} for name in names
    ]})  # fmt: skip


def race_of(names=("tiny", "mid", "big"), template=None, today=None, **limits):
    template = (template or Template((Stage("answer"),))).bind(tuple(names)).with_defaults(today or {})
    choices = [next(iter(template.stage(s).models for s in stages)) for stages in template.flow.stages_at]
    return ModelRace(template, catalog(names), NAMES, choices, ProfileLimits(**limits))


def rows_of(paths, rates, usd=None):
    """One call each: answers drawn by request and model, at the dollars of the lists, or of ``usd``."""
    return [
        Observation(
            request_id=path.request_id, prefix=path.path, stage="answer", latency_s=1.0, stopped=True,
            success=random.Random(f"{path.request_id}{path.path}").random() < rates[path.path[0]],
            cost_usd=(usd or PRICES)[path.path[0]] / 1000,
        )
        for path in paths
    ]  # fmt: skip


def run(race, rates, usd=None):
    """The paths of each round, and all rows."""
    rounds, rows = [], []
    while True:
        paths = race.paths(len(rounds), rows)
        if not paths:
            return rounds, rows
        rounds.append(paths)
        rows += rows_of(paths, rates, usd)


def asked(rows):
    found = {}
    for row in rows:
        found.setdefault(row.prefix[0], set()).add(row.request_id)
    return found


def test_all_models_answer_the_same_requests_twice_as_many_each_time():
    rounds, rows = run(race_of(), dict.fromkeys(PRICES, 0.5))
    assert [len({path.request_id for path in paths}) for paths in rounds[:4]] == [2, 1, 1, 2]
    assert {path.path for path in rounds[0]} == {("tiny",)}  # alone: on what scale are the list prices?
    assert all(requests == set(NAMES[: REQUESTS[-1]]) for requests in asked(rows).values())
    assert len(rounds) == 1 + len(REQUESTS)


def test_a_model_that_a_cheaper_one_is_surely_better_than_drops_out():
    _, rows = run(race_of(), {"tiny": 0.95, "mid": 0.05, "big": 0.9})
    found = asked(rows)
    assert len(found["mid"]) < len(found["tiny"]) == len(found["big"]) == REQUESTS[-1]
    table = race_of().table(rows)
    assert [one.name for one in table.models if one.is_out] == ["mid"]


def test_what_runs_today_never_drops_out():
    _, rows = run(race_of(today={"answer": "mid"}), {"tiny": 0.95, "mid": 0.05, "big": 0.9})
    assert len(asked(rows)["mid"]) == REQUESTS[-1]


def test_it_ends_when_the_best_is_apart_from_all_others():
    _, rows = run(race_of(), {"tiny": 0.0, "mid": 1.0, "big": 0.0})
    assert max(len(requests) for requests in asked(rows).values()) < REQUESTS[-1]


@pytest.mark.parametrize("budget", [0.02, 0.2, 2.0])
def test_it_takes_a_quarter_of_the_dollars_at_most(budget):
    _, rows = run(race_of(budget_usd=budget), dict.fromkeys(PRICES, 0.5))
    pilot = 2 * PRICES["tiny"] / 1000
    assert sum(row.cost_usd for row in rows) <= max(SHARE * budget, pilot) * (1 + 1e-9)
    assert sum(row.cost_usd for row in rows) > 0.5 * SHARE * budget or max(map(len, asked(rows).values())) == REQUESTS[-1]


def test_two_hard_requests_do_not_take_all_dollars():
    """A model that costs twenty times the usual on the first requests is asked about one of them, and then no more."""
    hard = {name: usd * (20 if name == "big" else 1) for name, usd in PRICES.items()}
    race, rounds, rows = race_of(budget_usd=0.1), [], []
    while paths := race.paths(len(rounds), rows):
        rounds.append(paths)
        for path in paths:
            rows += rows_of([path], dict.fromkeys(PRICES, 0.5), hard if path.request_id in NAMES[:2] else None)
    assert {row.request_id for row in rows if row.prefix == ("big",)} == {NAMES[0]}


def test_a_model_whose_one_answer_costs_more_than_is_left_waits_and_says_so():
    race = race_of(("tiny", "mid", "huge"), budget_usd=1.0)
    _, rows = run(race, dict.fromkeys(PRICES, 0.5))
    assert "huge" not in asked(rows)
    table = race.table(rows)
    assert [one.name for one in table.without_rows] == ["huge"]
    assert any(line.startswith("huge has no row: one run costs about $") for line in table.lines())
    assert table.models[-1].usd_per_1000 == pytest.approx(1000 * PRICES["huge"] / 1000, rel=0.01)
    assert table.strongest.name != "huge"


def test_list_prices_are_put_on_the_scale_of_the_first_rows():
    """What really costs a hundred times its list price must not be bought on the strength of that."""
    dear = {name: 100 * usd for name, usd in PRICES.items()}
    _, rows = run(race_of(budget_usd=2.0), dict.fromkeys(PRICES, 0.5), dear)
    assert sum(row.cost_usd for row in rows) <= SHARE * 2.0


def test_whatever_is_bought_later_changes_nothing_about_it():
    race, rates = race_of(budget_usd=2.0), {"tiny": 0.5, "mid": 0.1, "big": 0.8}
    rounds, rows = run(race, rates)
    later = rows_of([path._replace(request_id=name) for path in rounds[1][:3] for name in NAMES[50:90]], rates)
    shuffled = [*rows, *later]
    random.Random(0).shuffle(shuffled)
    for number, paths in enumerate(rounds):
        assert race.paths(number, shuffled) == paths
    assert race.paths(len(rounds), shuffled) == []


def test_a_small_coverage_does_not_cut_off_what_runs_today_but_a_budget_does():
    tiny_share = {"coverage": 1e-4}
    _, rows = run(race_of(today={"answer": "mid"}, **tiny_share), dict.fromkeys(PRICES, 0.5))
    assert len(asked(rows)["mid"]) == REQUESTS[-1]
    _, rows = run(race_of(today={"answer": "mid"}, **tiny_share, budget_usd=0.04), dict.fromkeys(PRICES, 0.5))
    assert sum(row.cost_usd for row in rows) <= SHARE * 0.04 + 2 * PRICES["mid"] / 1000


def test_of_several_calls_a_single_model_runs_each_where_the_stage_allows_it():
    two = ("tiny", "mid")
    template = Template(
        (
            Stage("plan", two, answerable=False),
            Stage("note", (SKIP, "mid"), answerable=False, optional=True),
            Stage("answer", two),
        )
    )
    race = race_of(two, template)
    assert [racer.run for racer in race.racers()] == [("tiny", "mid", "tiny"), ("mid", "mid", "mid")]
    loop = race_of(two, Template((Stage("write"), Loop((Stage("fix"),), times=2))), today={"write": "mid", "fix": "tiny"})
    assert [(racer.name, racer.run, racer.is_current) for racer in loop.racers()] == [
        ("mid > tiny", ("mid", "tiny", "tiny"), True),
        ("tiny", ("tiny",) * 3, False),
        ("mid", ("mid",) * 3, False),
    ]


def test_one_model_alone_does_not_race():
    assert race_of(("tiny",)).paths(0, []) == []


def test_free_models_race_by_the_number_of_their_calls():
    template = Template((Stage("answer"),)).bind(("a", "b"))
    race = ModelRace(template, None, NAMES, [("a", "b")], ProfileLimits(coverage=0.1))
    rounds, rows = [], []
    while paths := race.paths(len(rounds), rows):
        rounds.append(paths)
        rows += rows_of(paths, {"a": 0.5, "b": 0.5}, {"a": 0.0, "b": 0.0})
    assert len(rows) == SHARE * 0.1 * 2 * len(NAMES)
    assert race.table(rows).models[0].usd_per_1000 == 0.0


# -- the table -----------------------------------------------------------------------------------------------------


def model(name, right, requests, usd, **more):
    low, high = beta_interval(right, requests)
    return SingleModel(
        name=name, run=(name,), requests=requests, right=right, low=low, high=high, usd_per_1000=usd, is_current=False, **more
    )


def test_few_rows_are_never_taken_for_nearly_as_good():
    table = SingleModels(
        models=(model("sparse", 3, 3, 1.0), model("good", 27, 30, 2.0), model("best", 28, 30, 9.0)), spent_usd=1.0
    )
    assert table.strongest.name == "best"
    assert table.cheapest_good.name != "sparse"


def test_the_strongest_is_named_by_its_rows_and_not_by_its_price():
    table = SingleModels(models=(model("a", 15, 30, 1.0), model("b", 26, 30, 2.0), model("c", 20, 30, 9.0)), spent_usd=1.0)
    assert table.strongest.name == table.cheapest_good.name == "b"
    assert SingleModels(models=(model("a", 0, 0, 1.0),), spent_usd=0.0).strongest is None


def test_the_text_has_a_line_for_each_model_and_what_it_says():
    table = SingleModels(models=(model("a", 29, 30, 1.0), model("b", 29, 30, 20.0), model("c", 0, 0, 900.0)), spent_usd=1.0)
    rows = table.table()
    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert "96.7" in rows[0][2]
    assert any("c has no row" in line for line in table.lines())


def test_an_interval_holds_as_often_as_it_says():
    rng, held = random.Random(0), 0
    for _ in range(2000):
        rate = rng.random()
        low, high = beta_interval(sum(rng.random() < rate for _ in range(20)), 20)
        held += low <= rate <= high
    assert 0.87 <= held / 2000 <= 0.93
    assert beta_interval(0, 0) == (0.0, 1.0)


def test_only_a_cheaper_model_puts_another_out():
    cheap, dear = model("cheap", 2, 30, 1.0), model("dear", 29, 30, 9.0)
    assert without_losers([cheap, dear]) == [cheap, dear]
    assert without_losers([model("cheap", 29, 30, 1.0), model("dear", 2, 30, 9.0)])[0].name == "cheap"
    assert is_apart([cheap, dear])
    assert not is_apart([model("a", 20, 30, 1.0), model("b", 21, 30, 2.0)])


def test_prices_of_a_run_count_what_is_reached():
    prices = Prices({"a": 1.0, "b": 10.0}, {"a": 0.5, "b": 0.1}, is_free=False)
    assert prices.of_run(("a", "b", "a")) == pytest.approx(1.0 + 0.5 * 10.0 + 0.05 * 1.0)
    assert prices.of_run(("a", "b", "a"), 1) == pytest.approx(10.0 + 0.1 * 1.0)
    assert prices.of_run(("a", "b"), goes_on=True) == 11.0
    assert prices.everything([("a", "b"), ("a", "b")], 10) == pytest.approx(10 * (11.0 + 0.6 * 11.0))
