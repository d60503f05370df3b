"""Recorded prompts are asked in the providers' batches: no round waits, every process can collect, nothing is bought twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.servers.batch_provider import BatchProvider
from kit.toys.batched import KEY, PRICE, QUICK, SECRET, entry
from kit.waiting import wait_for
from kit.worlds.piloted import Service
from kit.worlds.replays import models, truth

from vinelm import VineLM
from vinelm.autopilot import Autopilot
from vinelm.autopilot import autopilot as threads
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.traces import ObservationStore, check_store
from vinelm.traces.store.batches import BatchRecords

CALL_USD = (60 * 1.0 + 10 * 4.0 + 40 * 0.2) / 1e6
"""What a call costs in a batch: half of the price but for cached tokens, as the provider counts them."""
_KILLED = """
import os, sys, time
from kit.toys.batched import dying
from openai.resources import batches, files
from test_batch_prices import catalog_of, service_on
from vinelm.backends import create_backends
path, url, *counts = sys.argv[1:]
for backend in create_backends(catalog_of(url)).values():
    backend.preload()  # the forks need not
for count in counts:
    pid = os.fork()
    if not pid:
        try:
            dying(int(count))
            service = service_on(path, url)
            until = time.monotonic() + 60.0
            while time.monotonic() < until and not service.look().plan:
                time.sleep(0.05)
        finally:
            os._exit(0)
    print(os.waitpid(pid, 0)[1])
"""


def answer(model, prompt):
    return truth(int(prompt.split()[-1]))


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    made = BatchProvider(answer)
    yield made
    made.stop()


def catalog_of(url):
    table = {"stream": False, "backoff_s": 0.001, "batches": True}
    dear = {name: 10.0 * getattr(PRICE, name) for name in ("input", "output", "cached", "cache_write")}
    big = entry("big", "openai", url, price=PRICE.model_copy(update=dear))
    return Catalog([big, entry("nano", "openai", url)], {"openai": table})


def service_on(path, url, **options):
    return Service(path, catalog_of(url), **{"batch_prices": QUICK, "max_loss": 5.0, **options})


@pytest.fixture
def serve(provider, tmp_path):
    made = []

    def begin(**options):
        made.append(service_on(tmp_path / "pilot.db", provider.url, **options))
        return made[-1]

    yield begin
    for one in made:
        one.vine.close()


def committed_usd(path):
    with ObservationStore.open(path) as store:
        return store.committed_usd()


def shadows(provider):
    assert not any(model.endswith("nano") for model, _ in provider.at_once)
    return provider.bought.total()


def price_usd(provider):
    """What all that was bought costs; today's model, which is asked again, is ten times as dear."""
    shadows(provider)
    return sum(CALL_USD * (10.0 if model.endswith("big") else 1.0) for model, _ in provider.bought.elements())


def is_settled(service):
    pilot = service.pilot._pilot
    return not pilot._asker._handed_in and not BatchRecords(pilot.kept.store).requests()


def looks_until(service, done, seconds=90.0):
    """Rounds, one after another, until it holds."""
    until = time.monotonic() + seconds
    while not done(state := service.look()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return state


def test_no_round_waits_for_a_batch_and_a_later_one_collects_it(serve, provider, tmp_path):
    provider.delay_s = 600.0
    service = serve()
    service.ask(range(260))
    service.look()
    wait_for(lambda: provider.batches)
    assert service.look().candidates == []
    bound_usd = committed_usd(tmp_path / "pilot.db")
    assert bound_usd > price_usd(provider) > 0.0
    provider.delay_s = 0.0
    provider.end()
    state = looks_until(service, lambda state: state.plan)
    assert state.plan == {"kind": "alone", "models": ["nano"]}
    assert set(provider.bought.values()) == {1}
    looks_until(service, lambda _: is_settled(service))
    assert committed_usd(tmp_path / "pilot.db") == pytest.approx(price_usd(provider))
    assert check_store(tmp_path / "pilot.db").is_whole


def test_another_process_collects_what_the_first_has_handed_in(serve, provider, tmp_path):
    provider.delay_s = 600.0
    one, other = serve(), serve()
    one.ask(range(260))
    one.look()
    wait_for(lambda: provider.batches)
    other.look()
    assert other.pilot._pilot is None
    one.vine.close()
    provider.delay_s = 0.0
    provider.end()
    assert looks_until(other, lambda state: state.plan).plan
    assert set(provider.bought.values()) == {1}
    looks_until(other, lambda _: is_settled(other))
    assert committed_usd(tmp_path / "pilot.db") == pytest.approx(price_usd(provider))


@pytest.mark.usefixtures("warm_python")
def test_what_is_killed_between_two_events_of_a_batch_buys_nothing_twice(serve, provider, tmp_path):
    service = serve()
    service.ask(range(260))
    for _ in range(2):  # records, without a round
        service.pilot._looks += threads.SETTLED_S
        service.pilot._look()
    service.vine.close()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    line = [sys.executable, "-c", _KILLED, str(tmp_path / "pilot.db"), provider.url, *map(str, (3, 9, 15, 60, 160))]
    ended = subprocess.run(line, env=environment, timeout=500, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert ended.count(str(signal.SIGKILL.value)) >= 4
    service = serve()
    assert looks_until(service, lambda state: state.plan).plan
    assert set(provider.bought.values()) == {1}
    looks_until(service, lambda _: is_settled(service))
    assert committed_usd(tmp_path / "pilot.db") == pytest.approx(price_usd(provider))


def test_a_batch_that_is_open_at_midnight_counts_on_both_days(serve, provider, tmp_path):
    provider.delay_s = 600.0
    day_usd = 0.03
    service = serve(shadow_usd_per_day=day_usd)
    service.ask(range(200))
    service.look()
    wait_for(lambda: provider.batches)
    first = shadows(provider)
    assert 0 < first < 150, "the bounds of more would not fit into the day"
    pilot = service.pilot._pilot
    pilot._day = lambda: threads.today_utc() + 1
    service.ask(range(200, 210))
    service.look()
    assert committed_usd(tmp_path / "pilot.db") <= day_usd + 1e-9
    assert pilot.notes["before_usd"] == pytest.approx(0.0)
    provider.delay_s = 0.0
    provider.end()
    looks_until(service, lambda _: is_settled(service))
    service.look()
    assert price_usd(provider) <= day_usd
    assert set(provider.bought.values()) == {1}


def test_a_batch_without_answers_counts_at_its_bound(serve, provider, tmp_path):
    provider.spoil = lambda model, prompt: "lost"
    service = serve()
    service.ask(range(40))
    state = looks_until(service, lambda state: state.ended or state.dropped)
    assert "failed" in state.dropped["nano"]
    bought = shadows(provider)
    service.look()
    assert shadows(provider) == bought
    assert committed_usd(tmp_path / "pilot.db") > 2 * bought * CALL_USD


@pytest.mark.usefixtures("quick_levels")
def test_the_5_percent_that_are_compared_go_in_one_batch(serve, provider):
    service = serve()
    service.ask(range(260))
    looks_until(service, lambda state: state.plan)
    before = len(provider.batches)
    service.ask(range(1000, 1100))
    looks_until(service, lambda state: state.share > 0.05)
    pilot = service.pilot._pilot
    looks_until(service, lambda _: pilot.notes["compared"]["name:grade"] == max(pilot.kept.units))
    assert 1 <= len(provider.batches) - before <= 4


def test_where_no_model_has_batches_it_is_said(tmp_path):
    with pytest.raises(ConfigError, match="no model has batch prices"):
        VineLM(models(nano=truth, big=truth), autopilot=Autopilot(tmp_path / "pilot.db", batch_prices=True))
