"""Files and a fleet of the last commit that had three kinds of trie still open, and give the plans that they gave.

`kinds/` was made by that commit: a store with signals and answers, a trie of each kind and the plans over it, a fleet's
journal, a recorded view, and everything that a fleet of two processes under orders kept in Redis.
"""

import base64
import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from kit.servers import redis_server
from kit.servers.redis_server import fleet_name, redis_url

import vinelm
from vinelm.cli.main import main
from vinelm.controller.fleet.leases.journal import journal_at
from vinelm.controller.fleet.loop.recording import recorded_views
from vinelm.traces import check_store

__all__ = ["fleet_name", "redis_url"]
KINDS = Path(__file__).parent / "kinds"
KNOWN = json.loads((KINDS / "plans.json").read_text())
FLEET = json.loads((KINDS / "fleet.json").read_text())


def planned(trie, item, *, signals):
    """The plan for one of the objectives of the record, which was made when no plans were mixed."""
    objective = vinelm.Objective(**item["objective"])
    alone = dataclasses.replace(objective, mix=False) if objective.mixes else objective
    return figures(vinelm.plan(trie, alone, signals=signals))


def figures(decision):
    promise = decision.promise
    found = (decision.accuracy, decision.path_cost_usd, decision.path_latency_s, promise.accuracy, promise.standard_error)
    return decision.next_model, list(decision.relaxed), found


@pytest.mark.parametrize("kind", sorted(KNOWN["plans"]))
def test_a_trie_of_each_kind_opens_and_gives_the_same_plans(kind):
    trie = vinelm.load_trie(KINDS / f"{kind}.vine")
    for item in KNOWN["plans"][kind]:
        model, relaxed, found = planned(trie, item, signals=kind == "signals")
        first, bounds, *values = item["plan"]
        assert (model, relaxed) == (first.split(" (")[0], bounds.split())
        assert found == pytest.approx(values, rel=1e-9)


def test_a_store_with_signals_opens_whole_and_gives_the_same_plans(tmp_path):
    path = tmp_path / "store.db"
    shutil.copy(KINDS / "store.sqlite-fixture", path)
    assert check_store(path).is_whole
    with vinelm.ObservationStore.open(path) as store:
        assert len(store) == KNOWN["store"]["rows"]
    trie = vinelm.estimate(path, max_error=1.0)
    for item in KNOWN["plans"]["signals"]:
        model, _, found = planned(trie, item, signals=True)
        assert model == item["plan"][0].split(" (")[0]
        assert found == pytest.approx(item["plan"][2:], rel=1e-6)


def test_a_fleets_journal_opens_with_what_was_granted(tmp_path):
    path = tmp_path / "journal.db"
    shutil.copy(KINDS / "journal.sqlite-fixture", path)
    journal = journal_at(path)
    found = journal.restore()
    journal.close()
    assert found.generation == FLEET["generation"][0] + 1
    assert found.grants == [tuple(grant) for grant in FLEET["grants"]]


def test_a_recorded_view_opens():
    (view,) = recorded_views(KINDS / "views.jsonl")
    assert (view.processes, view.engines) == (("p1", "p2"), ("large-1", "large-2"))
    assert sorted(view.session.tolist()) == [1, 2, 3]


def test_what_a_fleet_keeps_in_redis_is_read(redis_url, fleet_name, capsys):
    redis = pytest.importorskip("redis", reason=redis_server.NO_DRIVER)
    with redis.Redis.from_url(redis_url) as client:
        for key, item in FLEET["keys"].items():
            restored(client, key.replace("{shop}", f"{{{fleet_name}}}"), *next(iter(item.items())))
    assert main(["fleet", "top", "--redis", redis_url, "--name", fleet_name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["processes"], found["live"], found["version"]) == (2, 3, 2)
    assert [(one["engine"], one["running"], one["weight"]) for one in found["engines"]] == [
        ("large-1", 3, 0.5), ("large-2", 0, 1.0),
    ]  # fmt: skip


def restored(client, key, kind, value):
    if kind == "hash":
        client.hset(key, mapping={name: base64.b64decode(text) for name, text in value.items()})
    elif kind == "set":
        client.sadd(key, *map(base64.b64decode, value))
    else:
        client.set(key, base64.b64decode(value))
    client.expire(key, 60)
