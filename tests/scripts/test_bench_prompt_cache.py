"""What is promised where a provider has a prompt cache, against what a simulated service pays at few and at many calls."""

from dataclasses import replace

import numpy as np
import pytest

from scripts.bench_prompt_cache import Bench, promised_usd
from vinelm import estimate, evaluate
from vinelm.api.estimation import repriced_trie
from vinelm.api.served_evidence import calls_per_hour, new_run_id, served_identity
from vinelm.catalog import Catalog
from vinelm.cli.main import main
from vinelm.traces import ObservationStore, ServedStore
from vinelm.vinefile import load_trie

KEEPS, SWITCHES = ("large", "large", "large"), ("small", "large", "large")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    store = tmp_path_factory.mktemp("caches") / "bench.db"
    return Bench.profiled(store, is_writing_charged=True, requests=50, coverage=0.7)


@pytest.mark.long
@pytest.mark.parametrize("rate", [6.0, 600.0])
def test_a_service_pays_what_is_promised_at_its_rate(bench, rate):
    charged, trie = bench.as_charged(), estimate(bench.store, check=False, calls_per_hour=rate)
    for plan in (KEEPS, SWITCHES):
        served = np.mean([bench.served_usd(plan, rate, seed) for seed in range(8 if rate == 6.0 else 1)])  # arrivals are random
        assert promised_usd(trie, plan) == pytest.approx(served, rel=0.05), plan
        if rate == 6.0:  # the defect: a profile makes calls by the second, and finds the caches warm
            assert served > 1.6 * promised_usd(charged, plan)


def test_cold_is_the_default_and_more_calls_never_cost_more(bench):
    cold, few, many = (
        estimate(bench.store, check=False, **rate) for rate in ({}, {"calls_per_hour": 6}, {"calls_per_hour": 600})
    )
    assert (cold.calls_per_hour, few.calls_per_hour, many.calls_per_hour) == (0.0, 6.0, 600.0)
    for plan in (KEEPS, SWITCHES):
        assert promised_usd(cold, plan) > promised_usd(few, plan) > promised_usd(many, plan)
    assert (cold.success == many.success).all()
    assert cold.meta["spent_usd"] == many.meta["spent_usd"]
    with ObservationStore.open(bench.store) as store:  # what was paid stays what was paid
        assert cold.meta["spent_usd"] == sum(row.cost_usd for row in store.observations())


def test_every_reader_of_the_file_has_its_dollars(bench, tmp_path, capsys):
    path = tmp_path / "six.vine"
    assert main(["estimate", str(bench.store), "-o", str(path), "--no-check", "--calls-per-hour", "6"]) == 0
    assert "Prompt caches: between requests as warm as 6 calls per hour keep them." in capsys.readouterr().out
    trie = load_trie(path)
    assert trie.calls_per_hour == 6.0
    assert main(["plan", str(path), "--maximize", "accuracy", "--accept-optimism"]) == 0
    assert "as warm as 6 calls per hour" in " ".join(capsys.readouterr().out.split())
    by_rows = evaluate(bench.store, trie)
    by_cold_rows = evaluate(bench.store)
    assert by_rows.spent_usd == by_cold_rows.spent_usd == pytest.approx(trie.meta["spent_usd"])


def test_other_prices_keep_the_rate(bench):
    prices = bench.catalog.to_dict()
    for entry in prices["model"]:
        entry["price"] = {**entry["price"], "output": 0.0}
    found = repriced_trie(estimate(bench.store, check=False, calls_per_hour=6), bench.store, Catalog.from_dict(prices))
    assert found.calls_per_hour == 6.0
    assert 0.0 < found.path_cost_usd[1] < estimate(bench.store, check=False, calls_per_hour=6).path_cost_usd[1]


def test_a_rate_that_is_none_is_one_line(bench, capsys):
    for wrong in ("-1", "nan"):
        assert main(["estimate", str(bench.store), "--calls-per-hour", wrong]) == 2
        told = capsys.readouterr().err
        assert "--calls-per-hour" in told
        assert "Traceback" not in told


def test_a_served_trace_says_the_rate(tmp_path):
    """By the names that a service gives its requests; names of the application's own say nothing."""
    hourly = {f"20260101T{hour:02d}0000-{hour:012x}" for hour in range(4)}
    assert calls_per_hour(hourly) == 1.0
    assert calls_per_hour({*hourly, "20260101T033000-0a"}) == pytest.approx(4 / 3.5)
    assert [calls_per_hour(ids) for ids in ((), {new_run_id()}, {*hourly, "ticket-7"})] == [None, None, None]


def test_a_served_trace_is_the_default(bench, tmp_path, capsys):
    served, trie = tmp_path / "served.db", tmp_path / "x.vine"
    cold = estimate(bench.store, check=False)
    with ServedStore(served, served_identity(cold)) as store, ObservationStore.open(bench.store) as bought:
        row = next(row for row in bought.observations() if row.prefix == ("large",))
        store.add([replace(row, request_id=f"20260101T0000{second:02d}-{second:012x}") for second in (0, 12, 36)])
    line = ["estimate", str(bench.store), "-o", str(trie), "--no-check", "--quiet", "--update", str(served)]
    assert main(line) == 0
    assert load_trie(trie).calls_per_hour == pytest.approx(200.0)
    assert main([*line, "--calls-per-hour", "0"]) == 0
    assert load_trie(trie).calls_per_hour == 0.0
    assert main(["estimate", str(trie), "--update", str(served), "--calls-per-hour", "6"]) == 2
    assert "calls_per_hour and max_loss have no effect" in capsys.readouterr().err
