"""A replay whose calls are made on the nodes of a cluster. Hosts are threads here."""

import pickle

import pytest
from kit.catalogs import local_entries
from kit.servers.fake_cluster import FakeCluster
from kit.worlds.replays import models, recorded, truth

from scripts.local_openai import local_openai, text_of
from vinelm.errors import ConfigError
from vinelm.profiler.cluster.messages import HostSetup
from vinelm.profiler.cluster.worker import ClusterWorker
from vinelm.replay import replay, replaying
from vinelm.traces import check_store
from vinelm.version import __version__


@pytest.fixture
def cluster(monkeypatch):
    """Hosts in place of a cluster's: what is sent to them is pickled."""
    made = []

    def joined(_, units, models, limiters, on_note, *, verb, unit):
        sent = pickle.loads(pickle.dumps(units))  # noqa: S301  # its own
        setup = HostSetup(version=__version__, units=sent, limited=tuple(limiters), folder=None, path=())
        made.append(FakeCluster(setup, None, ("one", "two")))
        return ClusterWorker(made[-1], limiters, on_note, unit=unit)

    monkeypatch.setattr(replaying, "cluster_worker", joined)
    return made


def replayed(folder, name, **changes):
    said = lambda number: text_of({"model": "mini", "messages": [{"role": "user", "content": f"Question {number}"}]})  # noqa: E731
    fields = {"budget_usd": 5.0, "max_loss": 0.05, "workers": 6}
    return replay(recorded(200, said, system=""), folder / name, folder / "models.toml", **(fields | changes))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_KEY", "no-key")
    with local_openai(0.0) as url:
        (tmp_path / "models.toml").write_text(local_entries(url, "nano", "mini", key_env="LOCAL_KEY"))
        yield tmp_path


def test_the_verdict_of_two_nodes_is_that_of_one_machine(folder, cluster):
    one = replayed(folder, "b.db")
    found = replayed(folder, "a.db", engine="ray://local")
    assert {host for host, _ in cluster[0].sent} == {0, 1}
    assert found.spent_usd == pytest.approx(one.spent_usd)
    timed = {"latency_s": None, "today_s": None, "texts": ()}
    assert [step.to_dict() | timed for step in found.steps] == [step.to_dict() | timed for step in one.steps]
    assert check_store(folder / "a.db").is_whole


def test_a_lost_node_costs_the_bound_of_its_calls_and_no_answer(folder, cluster, monkeypatch):
    one = replayed(folder, "b.db")
    sent = FakeCluster.send

    def send(link, host, message):
        sent(link, host, message)
        if host == 0 and len(link.sent) >= 30:  # the first after so many, whichever host has that one
            link.drop(0)

    monkeypatch.setattr(FakeCluster, "send", send)
    notes = []
    found = replayed(folder, "a.db", engine="ray://local", on_note=notes.append)
    assert [step.sentence for step in found.steps] == [step.sentence for step in one.steps]
    assert one.spent_usd - 1e-9 <= found.spent_usd <= 5.0
    assert len(notes) == 1


def test_a_budget_is_kept_on_nodes(folder, cluster):
    found = replayed(folder, "a.db", engine="ray://local", budget_usd=0.02)
    assert 0.0 < found.spent_usd <= 0.02


def test_what_other_machines_cannot_load_or_need_not_is_refused(tmp_path):
    calls = recorded(60)
    with pytest.raises(ConfigError, match="give the path of a catalog"):
        replay(calls, tmp_path / "a.db", models(nano=truth), budget_usd=1.0, engine="ray://local")
    with pytest.raises(ConfigError, match="leave one of the two out"):
        replay(calls, tmp_path / "a.db", models(nano=truth), budget_usd=1.0, engine="ray://local", batch_prices=True)
