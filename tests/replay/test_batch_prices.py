"""A replay at batch prices: the same verdict for half the dollars, in few waves, and nothing bought twice."""

import datetime
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kit.apps.chat import ScriptedBackend
from kit.servers.batch_provider import BatchProvider
from kit.toys.batched import KEY, QUICK, SECRET, entry
from kit.worlds.replays import differs, recorded, truth, wrong
from langchain_core.messages import AIMessage

from vinelm.backends import create_backends
from vinelm.backends.remote.batches import BatchTimes
from vinelm.catalog import Catalog, Price
from vinelm.errors import ConfigError, VineLMError
from vinelm.replay import replay, replaying
from vinelm.replay.kept import opened
from vinelm.traces import ObservationStore, check_store
from vinelm.traces.store.batches import BatchRecords

CALLS, BUDGET_USD = 150, 5.0
_RUN = """
import signal, sys
from test_batch_prices import replayed  # of vinelm
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a shell
replayed(sys.argv[1], sys.argv[2])
"""
_KILLED = """
import os, sys
from kit.toys.batched import dying  # of vinelm
from openai.resources import batches, files
from test_batch_prices import catalog_of, create_backends, replayed
path, url, *counts = sys.argv[1:]
for backend in create_backends(catalog_of(url)).values():
    backend.preload()  # the forks need not
for count in counts:
    pid = os.fork()
    if not pid:
        try:
            dying(int(count))
            replayed(path, url)
        finally:
            os._exit(0)
    print(os.waitpid(pid, 0)[1])
"""


def answer(model, prompt):
    if prompt.startswith("{"):  # a judge's
        return '{"better": "second"}'
    number = int(prompt.split()[-1])
    return wrong(number) if differs(number, 0.1, len(model)) else truth(number)


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    made = BatchProvider(answer)
    yield made
    made.stop()


def catalog_of(url):
    table = {"stream": False, "backoff_s": 0.001, "batches": True}
    return Catalog([entry(name, "openai", url) for name in ("nano", "small")], {"openai": table})


def replayed(path, url, **changes):
    fields = {"budget_usd": BUDGET_USD, "max_loss": 0.05, "batch_prices": QUICK}
    return replay(recorded(CALLS, system=""), path, catalog_of(url), **(fields | changes))


def committed_usd(path):
    with ObservationStore.open(path) as store:
        return store.committed_usd()


def test_the_verdict_is_that_of_calls_at_once_for_half_the_dollars(provider, tmp_path):
    once = replayed(tmp_path / "once.db", provider.url, batch_prices=False)
    assert provider.at_once
    assert not provider.bought
    provider.at_once.clear()
    found = replayed(tmp_path / "a.db", provider.url)
    assert not provider.at_once
    assert set(provider.bought.values()) == {1}
    assert len(provider.batches) <= 8, "each wave may take a day"
    (step,), (plain,) = found.steps, once.steps
    assert (step.advice, step.plan) == (plain.advice, plain.plan)
    assert step.saved == pytest.approx(plain.saved, abs=0.02), "plans are compared at ordinary prices"
    assert step.latency_s is None, "nobody knows the seconds of a call in a batch"
    usd = sum(provider.bought.values()) * (60 * 1.0 + 10 * 4.0 + 40 * 0.2) / 1e6
    assert found.spent_usd == pytest.approx(usd) == pytest.approx(committed_usd(tmp_path / "a.db"))
    assert check_store(tmp_path / "a.db").is_whole


@pytest.mark.usefixtures("warm_python")
def test_what_is_killed_between_two_events_of_a_batch_buys_nothing_twice(provider, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    line = [sys.executable, "-c", _KILLED, str(tmp_path / "a.db"), provider.url, *map(str, (1, 2, 3, 5, 40, 90))]
    ended = subprocess.run(line, env=environment, timeout=300, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert ended.count(str(signal.SIGKILL.value)) >= 5
    found = replayed(tmp_path / "a.db", provider.url)
    assert set(provider.bought.values()) == {1}
    assert not provider.at_once
    usd = sum(provider.bought.values()) * (60 * 1.0 + 10 * 4.0 + 40 * 0.2) / 1e6
    assert found.spent_usd == pytest.approx(usd)
    assert found.steps[0].advice in ("switch", "undecided")


def test_a_batch_that_has_not_ended_is_waited_for_by_the_next_run(provider, tmp_path):
    provider.delay_s = 600.0
    with pytest.raises(VineLMError, match="has not ended") as caught:
        replayed(tmp_path / "a.db", provider.url, batch_prices=BatchTimes(0.5, 20.0, 0.25, 0.05, 0.3))
    assert caught.value.code == "batches-left"
    with pytest.raises(ConfigError, match="run it with batch prices"):
        replayed(tmp_path / "a.db", provider.url, batch_prices=False)
    held = committed_usd(tmp_path / "a.db")
    assert 0.0 < held <= BUDGET_USD, "what is bought counts at its bound"
    provider.delay_s = 0.0
    provider.end()
    found = replayed(tmp_path / "a.db", provider.url)
    assert set(provider.bought.values()) == {1}
    assert found.steps[0].advice in ("switch", "undecided")
    assert check_store(tmp_path / "a.db").is_whole


@pytest.mark.usefixtures("warm_python")
def test_ctrl_c_does_not_wait_for_a_batch(provider, tmp_path):
    provider.delay_s = 600.0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    line = [sys.executable, "-c", _RUN, str(tmp_path / "a.db"), provider.url]
    with subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL) as child:
        while not provider.batches and child.poll() is None:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=120) != 0
    provider.delay_s = 0.0
    provider.end()
    replayed(tmp_path / "a.db", provider.url)
    assert set(provider.bought.values()) == {1}


def test_a_budget_is_kept_by_waves_of_hundreds_of_calls(provider, tmp_path):
    found = replayed(tmp_path / "a.db", provider.url, budget_usd=0.03)
    assert 0.0 < found.spent_usd <= 0.03
    assert committed_usd(tmp_path / "a.db") <= 0.03


def test_a_model_without_batches_is_refused(provider, tmp_path):
    plain = Catalog(catalog_of(provider.url).entries, {})
    with pytest.raises(ConfigError, match="no batch prices"):
        replay(recorded(60), tmp_path / "a.db", plain, budget_usd=1.0, batch_prices=True)


def test_verdicts_of_a_judge_that_a_batch_has_sold_are_fetched_though_nobody_wants_them(provider, tmp_path, monkeypatch):
    dear = Price(input=150.0, output=150.0, cached=15.0, source="a test", as_of=datetime.date.today())
    table = {"stream": False, "backoff_s": 0.001, "batches": True}
    entries = [entry("nano", "openai", provider.url), entry("boss", "openai", provider.url, price=dear)]
    catalog, submitted = Catalog(entries, {"openai": table}), provider.submitted

    def slow_judge(kind, calls, **more):
        provider.delay_s = 600.0 if any(prompt.startswith("{") for *_, prompt in calls) else 0.0
        return submitted(kind, calls, **more)

    def run(times):
        replay(recorded(900, system=""), tmp_path / "a.db", catalog, budget_usd=50, judge="boss", batch_prices=times)

    monkeypatch.setattr(provider, "submitted", slow_judge)
    with pytest.raises(VineLMError, match="has not ended"):
        run(BatchTimes(1.5, 20.0, 0.25, 0.05, 0.3))
    assert any(prompt.startswith("{") for _, prompt in provider.bought)
    provider.end()

    def stops(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(replaying.ReplayRun, "explore", stops)
    with pytest.raises(KeyboardInterrupt):
        run(QUICK)
    with opened(tmp_path / "a.db") as store:
        verdicts = [name for _, name in store.answers if name.startswith("boss on ")]
        assert len(verdicts) == sum(prompt.startswith("{") for _, prompt in provider.bought.elements()) > 0
        assert not BatchRecords(store.store).requests()


def test_calls_of_models_without_batches_are_as_many_at_a_time_as_workers(provider, tmp_path):
    running, most, lock = set(), [0], threading.Lock()

    def at_once(name, messages, options):
        with lock:
            running.add(threading.get_ident())
            most[0] = max(most[0], len(running))
        time.sleep(0.03)
        with lock:
            running.discard(threading.get_ident())
        return AIMessage(truth(int(messages[-1].content.split()[-1])))

    batched = catalog_of(provider.url)
    plain = entry("plain", "test", provider.url, api_key_env=None)
    catalog = Catalog([*batched.models, plain], {"openai": {"stream": False, "backoff_s": 0.001, "batches": True}})
    slow = ScriptedBackend(at_once)
    slow.is_simulated = slow.is_virtual_time = False
    backends = {**create_backends(batched), "test": slow}
    replay(
        recorded(CALLS, system=""), tmp_path / "a.db", catalog, budget_usd=BUDGET_USD, max_loss=0.05, batch_prices=QUICK,
        workers=3, backends=backends,
    )  # fmt: skip
    assert 1 <= most[0] <= 3  # how many meet is up to the machine; without the limit it is all that wait
