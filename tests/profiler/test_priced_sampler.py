"""The default sampler: weights from prices, nested first answers, and going on below passed checks."""

import datetime
from collections import Counter
from dataclasses import replace

import pytest
from kit.catalogs import make_catalog
from kit.tables import random_table
from kit.templates import make_template

from vinelm.catalog import Catalog, Price
from vinelm.errors import ConfigError
from vinelm.profiler import PricedSampler, make_sampler
from vinelm.profiler.sampling.priced_sampler import PILOT, price_weights, prices_usd
from vinelm.requests.protocols import RequestPath
from vinelm.rows.observation import Observation
from vinelm.template import Stage, Template

IDS = tuple(f"q{i:02}" for i in range(40))
PRICES = {"m0": 0.01, "m1": 0.04, "m2": 0.16}


def priced_table(stop="workflow", n_requests=40, depth=3):
    """Random outcomes; a call costs what PRICES says."""
    table = random_table(5, n_requests=n_requests, n_models=3, depth=depth, stop=stop)
    cost = table.cost_usd.copy()
    for model, usd in PRICES.items():
        cost[:, table.trie.model == table.trie.models.index(model)] = usd
    return replace(table, cost_usd=cost)


def run(table, sampler, rounds):
    """The paths of each round, and the rows in the order in which a profile would show them."""
    rows, paths = {}, []
    number = {name: i for i, name in enumerate(table.request_ids)}
    for round_ in range(rounds):
        proposed = list(sampler.propose(round_, tuple(rows.values())))
        paths.append(proposed)
        if not proposed:
            break
        for path in proposed:
            has_passed = False
            for length in range(1, len(path.path) + 1):
                cell = (path.request_id, path.path[:length])
                row = table.observation(number[path.request_id], table.trie.node(path.path[:length]))
                rows.setdefault(cell, replace(row, is_continued=has_passed))
                has_passed = has_passed or (path.goes_on and bool(row.stopped))
                if row.ended(table.template.stop) and not path.goes_on:
                    break
    return paths, rows


def sampler_of(table, **settings):
    return PricedSampler(table.template, None, table.request_ids, 3, **settings)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_a_weight_is_a_power_of_the_price_but_at_least_of_a_hundredth_of_the_median(alpha):
    weights = price_weights({"a": 1.0, "b": 4.0, "c": 16.0, "free": 0.0}, alpha)
    assert weights["a"] / weights["b"] == pytest.approx(4.0**alpha)
    assert weights["b"] / weights["c"] == pytest.approx(4.0**alpha)
    assert weights["free"] / weights["b"] == pytest.approx(100.0**alpha)


def test_free_models_are_asked_alike():
    assert price_weights({"a": 0.0, "b": 0.0}, 1.0) == {"a": 1.0, "b": 1.0}


def test_prices_are_mean_dollars_and_list_prices_on_their_scale_where_there_are_none():
    template, catalog = make_template(3, 2), make_catalog(3)
    listed = prices_usd(template, catalog, ())
    assert listed["m1"] == pytest.approx(2 * listed["m0"])
    assert listed["m2"] == pytest.approx(3 * listed["m0"])
    table = priced_table()
    rows = [table.observation(0, table.trie.node(("m0",))), table.observation(1, table.trie.node(("m0",)))]
    rows = [replace(row, cost_usd=usd, tool_cost_usd=0.5) for row, usd in zip(rows, (0.5, 2.5), strict=True)]
    found = prices_usd(template, catalog, rows)
    assert found["m0"] == 2.0
    assert found["m2"] == pytest.approx(6.0)
    assert prices_usd(template, None, rows) == {"m0": 2.0, "m1": 0.0, "m2": 0.0}


def test_prices_are_those_without_a_prompt_cache():
    """Else a profile with cache points would buy other rows than one without."""
    plain = make_catalog(2)
    price = Price(input=3.0, output=15.0, cached=0.3, cache_write=3.75, source="a test", as_of=datetime.date(2026, 1, 1))
    kept = Catalog([model.model_copy(update={"price": price, "cache_points": "auto"}) for model in plain.models])
    off = Catalog([model.model_copy(update={"price": price}) for model in plain.models])
    template = Template((Stage("s"),)).bind(tuple(plain))
    told = {"request_id": "r", "stage": "s", "success": True, "stopped": True, "latency_s": 1.0, "tokens_in": 2000}
    told |= {"tokens_out": 100, "calls": 1}

    def rows(*paid):
        return [Observation(**told, prefix=(f"m{i}",), cost_usd=usd, tokens_cached=read) for i, (usd, read) in enumerate(paid)]

    fresh, read, written = price.cost_usd(2000, 100), price.cost_usd(2000, 100, 1500), price.cost_usd(2000, 100, 0, 1500)
    without = prices_usd(template, off, rows((fresh, 0), (fresh, 0)))
    assert prices_usd(template, kept, rows((read, 1500), (written, 0))) == without == {"m0": fresh, "m1": fresh}
    assert prices_usd(template, off, rows((read, 1500), (fresh, 0))) == without  # a cache that keeps prompts by itself


def test_any_prefix_of_a_round_is_close_to_the_weights_at_each_depth():
    table = priced_table(n_requests=400)
    paths, _ = run(table, sampler_of(table, alpha=0.5), 5)
    weights = price_weights(PRICES, 0.5)
    share = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    for depth in range(3):
        counts = Counter()
        for n, path in enumerate(paths[4], 1):
            counts[path.path[depth]] += 1
            assert all(abs(counts[name] - n * share[name]) <= 3.0 for name in share)
    assert len(paths[4]) > 60


def test_first_answers_are_nested_and_cheap_models_have_more():
    table = priced_table()
    _, rows = run(table, sampler_of(table), 4)
    answered = {model: {request for request, prefix in rows if prefix == (model,)} for model in PRICES}
    assert answered["m2"] < answered["m1"] < answered["m0"]


def test_a_model_that_has_answered_every_request_goes_on_below():
    table = priced_table(n_requests=10)
    paths, rows = run(table, sampler_of(table), 5)
    answered = {request for request, prefix in rows if prefix == ("m0",)}
    assert answered == set(table.request_ids)
    assert sum(len(prefix) == 2 and prefix[0] == "m0" for _, prefix in rows) > 1
    assert any(len({path for request, path, *_ in proposed if request == one}) > 1 for proposed in paths for one in answered)


@pytest.mark.parametrize("stop", ["workflow", "oracle"])
def test_it_ends_when_every_reached_cell_has_a_row_and_proposes_none_twice(stop):
    table = priced_table(stop, n_requests=6)
    paths, rows = run(table, sampler_of(table, alpha=1.0), 60)
    assert paths[-1] == []
    assert len(rows) == table.reached[:, 1:].sum()
    proposed = [(request, path) for round_ in paths for request, path, *_ in round_]
    assert len(proposed) == len(set(proposed))


def test_each_path_has_a_cell_without_a_row():
    table = priced_table(n_requests=8)
    rows = {}
    number = {name: i for i, name in enumerate(table.request_ids)}
    for round_ in range(6):
        seen = dict(rows)
        for path in sampler_of(table).propose(round_, tuple(seen.values())):
            new = 0
            for length in range(1, 4):
                cell = (path.request_id, path.path[:length])
                new += cell not in rows
                row = rows.setdefault(cell, table.observation(number[path.request_id], table.trie.node(cell[1])))
                if row.stopped:
                    break
            assert new >= 1


def test_a_stated_share_of_the_paths_goes_on_below_a_passed_check():
    table = priced_table()
    paths, rows = run(table, sampler_of(table, continued_share=0.25), 5)
    assert not any(path.goes_on for path in paths[0])  # no check has passed yet
    continued = [path for path in paths[4] if path.goes_on]
    assert len(continued) == pytest.approx(0.25 * len(paths[4]), abs=1)
    passed = {cell for cell, row in rows.items() if row.stopped or row.is_continued}
    assert all((path.request_id, path.path[:-1]) in passed for path in continued)
    assert any(len(path.path) == 3 for path in continued)
    assert len({(path.request_id, path.path) for path in continued}) == len(continued)


def test_nothing_goes_on_below_a_passed_check_under_the_oracle_or_unless_asked():
    for stop, share in (("oracle", 0.5), ("workflow", 0.0)):
        table = priced_table(stop)
        paths, _ = run(table, sampler_of(table, continued_share=share), 4)
        assert not any(path.goes_on for round_ in paths for path in round_)


def test_the_probability_is_that_of_the_models():
    template = make_template(2, 2)
    drawn = list(PricedSampler(template, make_catalog(2), IDS, 0).propose(0, ()))
    assert len(drawn) == 2 * PILOT
    chance = {"m0": 2 / 3, "m1": 1 / 3}  # m1 costs twice as much
    first, second = drawn[0].path
    assert drawn[0].probability == pytest.approx(chance[first] * chance[second])
    table = priced_table()
    paths, _ = run(table, sampler_of(table, continued_share=0.2), 5)
    assert all(0.0 < path.probability <= 1.0 for round_ in paths for path in round_)


def test_seeds_differ():
    template = make_template(3, 3)
    assert len({tuple(PricedSampler(template, None, IDS, seed).propose(0, ())) for seed in range(20)}) == 20


def test_it_is_the_default_by_name_and_its_settings_are_checked():
    sampler = make_sampler("priced", make_template(), ["q"], 0, catalog=make_catalog(), continued_share=0.1)
    assert isinstance(sampler, PricedSampler)
    assert sampler.continued_share == 0.1
    assert isinstance(next(sampler.propose(0, ())), RequestPath)
    with pytest.raises(ConfigError, match="alpha is -1"):
        PricedSampler(make_template(), None, IDS, 0, alpha=-1.0)
    with pytest.raises(ConfigError, match="alpha is nan"):
        PricedSampler(make_template(), None, IDS, 0, alpha=float("nan"))
    with pytest.raises(ConfigError, match="continued_share is 1"):
        PricedSampler(make_template(), None, IDS, 0, continued_share=1.0)
