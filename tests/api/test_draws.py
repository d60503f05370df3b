"""No caller chooses his draw, and no identifier of one caller is a key to what is another's."""

import hashlib
import stat

import numpy as np
import pytest
from kit.canaries import BEST, TRIE, asked, serving
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from vinelm.api.draws import VARIABLE, Draws
from vinelm.errors import ConfigError
from vinelm.vinefile import load_trie, save_trie


@pytest.fixture(autouse=True)
def no_secret_in_the_environment(monkeypatch):
    monkeypatch.delenv(VARIABLE)


# -- the secret ----------------------------------------------------------------------------------------------------


def drawn(vine, names):
    return [vine.session(BEST, run_id=name).assigned.is_plan for name in names]


NAMES = [f"r{i}" for i in range(300)]


def test_who_knows_the_trie_cannot_choose_his_draw():
    digest = TRIE.meta.get("dataset_digest", "")
    chosen = [
        name for name in map(str, range(20_000))
        if int.from_bytes(hashlib.sha256(f"{digest}:{name}".encode()).digest()[:8]) < 0.05 * 2**64
    ]  # fmt: skip
    vine, _ = serving(0.05)
    assert len(chosen) > 500
    assert np.mean(drawn(vine, chosen)) < 0.2


def test_without_a_kept_secret_each_process_has_its_own_and_says_so(caplog):
    (one, _), (other, _) = serving(0.5), serving(0.5)
    assert drawn(one, NAMES) == drawn(one, NAMES) != drawn(other, NAMES)
    assert f"Set {VARIABLE}, or keep evidence=" in caplog.text


@pytest.mark.parametrize("how", ["setting", "environment", "store"])
def test_processes_that_share_a_secret_draw_alike(how, tmp_path, monkeypatch, caplog):
    settings = {"evidence": tmp_path / "served.db"} if how == "store" else {}
    if how == "setting":
        settings = {"draw_secret": "0123456789abcdef"}
    if how == "environment":
        monkeypatch.setenv(VARIABLE, "0123456789abcdef")
    (one, _), (other, _) = serving(0.5, **settings), serving(0.5, **settings)
    assert drawn(one, NAMES) == drawn(other, NAMES)
    assert VARIABLE not in caplog.text
    assert one.close()
    assert other.close()


def test_the_secret_beside_the_store_is_the_owners_alone_and_is_in_no_other_file(tmp_path):
    vine, app = serving(0.5, evidence=tmp_path / "served.db")
    asked(vine, app, "one")
    assert vine.close()
    save_trie(tmp_path / "app.vine", TRIE)
    kept = tmp_path / "served.db.draws"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    secret = kept.read_bytes()
    assert len(secret) >= 32
    others = [path for path in tmp_path.iterdir() if path != kept]
    assert {path.name for path in others} >= {"served.db", "app.vine"}
    assert not any(secret in path.read_bytes() for path in others)
    assert secret.decode() not in str(load_trie(tmp_path / "app.vine").meta)


def test_a_store_that_is_made_by_many_at_once_has_one_secret(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda _: Draws.of(None, tmp_path / "a.db").key("", "request", "", "a"), range(16)))
    assert len(set(made)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.db.draws"]


@pytest.mark.parametrize("given", ["", "short"])
def test_a_short_secret_is_refused_in_one_line(given, monkeypatch):
    with pytest.raises(ConfigError, match="at least 16"):
        serving(0.5, draw_secret=given)
    monkeypatch.setenv(VARIABLE, "short")
    with pytest.raises(ConfigError, match=f"{VARIABLE} has 5 characters"):
        serving(0.5)


def test_a_file_that_holds_no_secret_is_refused_in_one_line(tmp_path):
    (tmp_path / "served.db.draws").write_text("x")
    with pytest.raises(ConfigError, match="delete it to have one made"):
        serving(0.5, evidence=tmp_path / "served.db")


# -- identifiers of callers ----------------------------------------------------------------------------------------


def conversation(name, tenant="", **more):
    return {"configurable": {"thread_id": name, **({"tenant": tenant} if tenant else {})}, **more}


@pytest.mark.parametrize("tenants", [("", ""), ("acme", "mallory"), ("acme", "")])
def test_a_request_whose_id_is_anothers_conversation_moves_nobody(tenants):
    """Conversations that began elsewhere bring their draw with them: under the id of another's conversation they moved it."""
    theirs, mine = tenants
    saver = InMemorySaver()
    (vine, app), (before, begun) = serving(0.5, waits=True, saver=saver), serving(0, waits=True, saver=saver)
    victims = [conversation(f"chat-{i}", theirs) for i in range(40)]
    first = [vine.session(BEST, **one).assigned.is_plan for one in victims]
    assert {True, False} == set(first)
    for i, one in enumerate(victims):
        own = conversation(f"mine-{i}", mine)
        asked(before, begun, None, **own)  # by a process that has gone back
        context = vine.context(BEST, request_id=one["configurable"]["thread_id"])
        app.invoke(Command(resume=True), own, context=context)
        vine.feedback(one["configurable"]["thread_id"], False, tenant=mine)
    vine.canary  # noqa: B018 - counts what has ended
    assert [vine.session(BEST, **one).assigned.is_plan for one in victims] == first


def test_a_conversation_keeps_its_draw_whatever_its_requests_are_called():
    vine, _ = serving(0.5)
    for i in range(20):
        turns = [
            vine.session(BEST, run_id=f"turn-{i}-{turn}", **conversation(f"chat-{i}")).assigned.is_plan for turn in range(6)
        ]
        assert len(set(turns)) == 1


def test_tenants_draw_apart_although_they_use_the_same_ids():
    vine, _ = serving(0.5)
    one, other = (
        [vine.session(BEST, **conversation(name, tenant)).assigned.is_plan for name in NAMES] for tenant in ("a", "b")
    )
    assert 0.3 < np.mean([x == y for x, y in zip(one, other, strict=True)]) < 0.7


def test_rows_and_words_of_tenants_who_use_the_same_ids_are_apart(tmp_path):
    from vinelm.traces import ObservationStore

    vine, app = serving(0.5, evidence=tmp_path / "served.db")
    for tenant in ("acme", "mallory", ""):
        asked(vine, app, "order-7", **conversation("t-" + tenant, tenant))
    vine.feedback("order-7", True, tenant="acme")
    vine.feedback("order-7", False, tenant="mallory")
    for forged in ('["acme", "order-7"]', "acme/order-7"):
        vine.feedback(forged, False)
        vine.feedback(forged, False, tenant="mallory")
    assert vine.close()
    with ObservationStore.open(tmp_path / "served.db") as store:
        rows = store.observations()
    said = {}
    for row in rows:
        said.setdefault(row.request_id, []).append(row.success)
    assert {name: values[-1] for name, values in said.items()} == {
        '["acme", "order-7"]': True, '["mallory", "order-7"]': False, "order-7": None,
    }  # fmt: skip
    assert sum(vine.canary.labelled) == 2


def test_who_says_it_first_has_said_it(tmp_path):
    from vinelm.traces import ObservationStore

    vine, app = serving(0.5, evidence=tmp_path / "served.db")
    for name in ("a", "b", "c"):
        asked(vine, app, name)
    vine.feedback("a", True, caller="ann")
    vine.feedback("a", False, caller="mallory")
    vine.feedback("b", False, caller="ann")
    vine.feedback("b", True, caller="ann")
    vine.feedback("c", True)
    assert vine.close()
    other, _ = serving(0.5, evidence=tmp_path / "served.db")  # another process knows it, too
    other.feedback("c", False, caller="mallory")
    assert other.close()
    with ObservationStore.open(tmp_path / "served.db") as store:
        last = {row.request_id: row.success for row in store.observations()}
    assert last == {"a": True, "b": True, "c": True}


def test_the_rows_of_tenants_still_tell_when_requests_came(tmp_path):
    from vinelm.api.served_evidence import calls_per_hour, new_run_id
    from vinelm.requests.names import scoped

    assert calls_per_hour({scoped("20260102T030405-a", "acme"), "20260102T040405-b"}) == pytest.approx(1.0)
    assert new_run_id().startswith("20")


def test_recorded_calls_of_a_request_are_never_those_of_a_conversation():
    from types import SimpleNamespace

    from vinelm.adapters.langgraph.runs.run_reads import _session_of

    vine, _ = serving(0.5)

    def session(**context):
        run = SimpleNamespace(context=SimpleNamespace(**{"request": None, "request_id": None, "configurable": None, **context}))
        return _session_of(run, vine.adapter)

    of_a_request = session(request_id="chat-7")
    of_conversations = [session(configurable=conversation("chat-7", tenant)["configurable"]) for tenant in ("", "acme", "b")]
    assert of_conversations[0] == "chat-7"
    assert len({of_a_request, *of_conversations, session(request_id="chat-7", configurable={"tenant": "b"})}) == 5
    assert session() is None
