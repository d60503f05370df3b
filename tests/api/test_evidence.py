"""Rows of served requests: what they say, when they are written, and what they may not cost."""

import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import weakref

import pytest
from kit.tables import random_table
from kit.waiting import wait_for
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from vinelm import VineLM
from vinelm.api import EvidenceConfig, drift
from vinelm.errors import CallError, ConfigError, StoreError, TrieFileError
from vinelm.objective import Objective
from vinelm.rows.observation import Usage
from vinelm.signals import Signals
from vinelm.traces import ObservationStore, check_store
from vinelm.vinefile import load_trie, save_trie

TABLE = random_table(3, n_requests=60, n_models=3, depth=3)
TRIE = TABLE.annotate()
OBJECTIVE = Objective(maximize="accuracy")
HERE = os.path.dirname(__file__)
PATHS = [os.path.dirname(HERE), HERE, os.path.join(HERE, "..", "..", "scripts")]
"""Where a process of its own finds what this module imports."""
SECRET = "the launch is on tuesday"


class State(TypedDict, total=False):
    question: str
    turns: int


class FixedBackend:
    """Each call costs a cent; the first ``failing`` calls fail."""

    is_simulated, is_virtual_time = True, False

    def __init__(self, failing=0):
        self.failing = failing

    def chat_model(self, model, call):
        backend = self

        class Chat:
            def invoke(self, prompt):
                failed = backend.failing > 0
                backend.failing -= 1
                call.on_usage(Usage(model=model.name, cost_usd=0.01, latency_s=0.0, tokens_in=7, tokens_out=2))
                if failed:
                    raise CallError("rate limited", kind="rate_limit")

        return Chat()


def serving(trie=TRIE, *, failing=0, turns=2, **settings):
    vine = VineLM(TRIE.catalog, {"test": FixedBackend(failing)}, trie=trie, fallback=False, **settings)

    def answer(state: State, model):
        model.invoke(state["question"])
        return {"turns": state.get("turns", 0) + 1}

    graph = StateGraph(State)
    for node in ("generate", "repair"):
        graph.add_node(node, vine.stage(node, answer))
        graph.add_conditional_edges(node, vine.route(lambda state: state["turns"] >= turns, again="repair", end=END))
    graph.add_edge(START, "generate")
    return vine, graph.compile()


def rows_of(path):
    with ObservationStore.open(path) as store:
        return store.observations()


def ask(vine, app, count=1, **context):
    for _ in range(count):
        app.invoke({"question": SECRET}, context=vine.context(OBJECTIVE, **context))


def test_a_served_request_leaves_the_rows_of_a_profile_and_no_prompt(tmp_path):
    path = tmp_path / "served.db"
    with serving(evidence=path)[0] as vine:
        pass
    vine, app = serving(evidence=path)
    ask(vine, app, request_id="one")
    assert vine.close()
    rows = rows_of(path)
    first = rows[0]
    assert (first.request_id, first.stage, first.success, first.cost_usd, first.tokens_in) == ("one", "generate", None, 0.01, 7)
    assert [row.stopped for row in rows] == [False] * (len(rows) - 1) + [rows[-1].depth >= 2]
    assert [row.depth for row in rows] == list(range(1, len(rows) + 1))
    assert b"tuesday" not in path.read_bytes()
    assert check_store(path).is_whole


def test_rows_of_many_requests_can_be_compared_with_the_trie(tmp_path):
    path = tmp_path / "served.db"
    seen = []
    vine, app = serving(evidence=EvidenceConfig(path, on_drift=seen.append))
    ask(vine, app, 150)
    assert vine.close()
    found = drift(TRIE, path)
    assert found.rows == len(rows_of(path))
    assert "dollars" in {one.quantity for one in found.moved}  # a cent each, where the trie has other prices
    assert {(one.path, one.quantity) for one in seen} == {(one.path, one.quantity) for one in found.moved}


def test_feedback_is_written_to_the_last_answer_also_later_and_by_another_process(tmp_path, caplog):
    path = tmp_path / "served.db"
    vine, app = serving(evidence=path)
    ask(vine, app, request_id="one")
    vine.feedback("one", True)
    ask(vine, app, request_id="two")
    vine.close()
    other, _ = serving(evidence=path)
    other.feedback("two", 0.25)
    with caplog.at_level(logging.WARNING):
        other.feedback("nobody", True)
        other.close()
    assert "feedback on the run 'nobody': no row of it" in caplog.text
    rows = rows_of(path)
    assert [row.success for row in rows if row.request_id == "one"][-1] is True
    assert [row.success for row in rows if row.request_id == "two"][-1] == 0.25
    assert all(row.success is None for row in rows if row.depth == 1 and len(rows) > 2)
    with pytest.raises(ConfigError, match="success is 2"):
        vine.feedback("one", 2)


def test_failed_calls_are_rows(tmp_path):
    path = tmp_path / "served.db"
    vine, app = serving(evidence=path, failing=1)
    with pytest.raises(CallError):
        ask(vine, app)
    vine.close()
    (row,) = rows_of(path)
    assert (row.failure, row.stopped, row.success, row.cost_usd) == ("rate_limit", None, None, 0.01)


def test_a_full_queue_drops_the_oldest_row_counts_and_tells(tmp_path, caplog):
    vine, app = serving(evidence=tmp_path / "served.db")
    writer = vine.evidence.writer
    writer._bound = 5
    writer._thread = object()  # a writer that never comes
    with caplog.at_level(logging.WARNING):
        ask(vine, app, 8)
    assert writer.waiting == 5
    assert writer.dropped > 0
    assert caplog.text.count("rows of served requests are lost") == 1
    writer._thread = None
    kept = [row.request_id for row in writer._waiting]
    ask(vine, app)
    vine.close()
    assert kept[-1] in {row.request_id for row in rows_of(tmp_path / "served.db")}


def test_a_store_that_cannot_be_written_fails_no_request(tmp_path, caplog):
    path = tmp_path / "served.db"
    vine, app = serving(evidence=path)
    path.write_text("no store")
    with caplog.at_level(logging.WARNING):
        ask(vine, app)
        vine.evidence.writer.close(0.2)
    assert vine.evidence.writer.dropped > 0
    assert "not a SQLite file" in caplog.text


@pytest.mark.long
def test_nothing_is_lost_when_the_process_ends(tmp_path):
    """Without a close: the end of the interpreter writes what waits, also from two processes into one file."""
    script = textwrap.dedent(f"""
        import sys
        sys.path[:0] = {PATHS!r}
        from test_evidence import serving, ask
        vine, app = serving(evidence={str(tmp_path / "served.db")!r})
        ask(vine, app, 20)
    """)
    both = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    assert [one.wait(60) for one in both] == [0, 0]
    assert len({row.request_id for row in rows_of(tmp_path / "served.db")}) == 40


def test_a_new_file_serves_from_the_next_request_and_a_broken_one_does_not(tmp_path, caplog):
    path = tmp_path / "app.vine"
    save_trie(path, TRIE)
    vine, app = serving(str(path))
    first = vine.planner
    running = vine.session(OBJECTIVE)
    vine.watch(0.01)
    save_trie(path, random_table(4, n_requests=60, n_models=3, depth=3).annotate())
    wait_for(lambda: vine.planner is not first)
    assert running.planner is first
    second = vine.planner
    with caplog.at_level(logging.WARNING):
        path.write_bytes(path.read_bytes()[:1000])  # a copy that was cut short
        wait_for(lambda: "the old trie goes on serving" in caplog.text)
    vine.close()
    assert vine.planner is second
    ask(vine, app)
    with pytest.raises(TrieFileError):
        vine.reload()
    assert vine.planner is second
    save_trie(path, TRIE)
    vine.adapter.tools.candidates = guesses = object()
    vine.reload()
    assert vine.planner is not second
    assert vine.adapter.tools.candidates is guesses  # patterns of tools are not of the trie


def test_a_signal_reloads(tmp_path):
    path = tmp_path / "app.vine"
    save_trie(path, TRIE)
    vine, _ = serving(str(path))
    first, before = vine.planner, signal.getsignal(signal.SIGHUP)
    try:
        vine.reload_on(signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        wait_for(lambda: vine.planner is not first)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_settings_without_effect_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no store")
    with pytest.raises(StoreError, match="not a SQLite file"):
        serving(evidence=tmp_path / "notes.txt")
    with pytest.raises(ConfigError, match=r"the folder .* does not exist"):
        serving(evidence=tmp_path / "no" / "served.db")
    vine, _ = serving()
    with pytest.raises(ConfigError, match="feedback needs the rows"):
        vine.feedback("one", True)
    with pytest.raises(ConfigError, match="not loaded from a file"):
        vine.reload()
    save_trie(tmp_path / "a.vine", TRIE)
    vine, _ = serving(str(tmp_path / "a.vine"))
    with pytest.raises(ConfigError, match="every_s is 0"):
        vine.watch(0)


def test_drift_is_a_metric(tmp_path):
    prometheus = pytest.importorskip("prometheus_client")
    from vinelm.telemetry import Prometheus

    registry = prometheus.CollectorRegistry()
    vine, app = serving(evidence=tmp_path / "served.db")
    vine.observe(Prometheus(registry))
    ask(vine, app, 100)
    vine.close()
    (family,) = [one for one in registry.collect() if one.name == "vinelm_drift"]
    assert {sample.labels["quantity"] for sample in family.samples if sample.name.endswith("_total")} >= {"dollars"}


def test_the_file_itself_can_be_mapped_and_replaced(tmp_path):
    path = tmp_path / "app.vine"
    save_trie(path, TRIE)
    mapped = load_trie(path, mmap="file")
    save_trie(path, random_table(4, n_requests=60, n_models=3, depth=3).annotate())
    assert (mapped.cost_usd == TRIE.cost_usd).all()


@pytest.fixture
def no_collector():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "settings",
    [{}, {"signals": Signals(signal="status")}, {"signals": Signals(answer=("turns",))}],
    ids=["plain", "signal", "answer"],
)
def test_the_last_row_of_a_request_does_not_wait_for_the_garbage_collector(tmp_path, no_collector, settings):
    vine, app = serving(evidence=tmp_path / "served.db", **settings)
    sessions = [vine.session(OBJECTIVE) for _ in range(3)]
    for session in sessions:  # somebody holds them, as a cycle of the application would
        app.invoke({"question": SECRET}, context=vine.context(policy=session))
    assert vine.evidence.writer.flush()
    rows = rows_of(tmp_path / "served.db")
    assert sorted((row.request_id, row.prefix) for row in rows) == sorted(
        (session.evidence.run_id, one.prefix) for session in sessions for one in session.invocations
    )
    assert all(row.stopped is not None for row in rows)
    assert vine.close()
    assert len(rows_of(tmp_path / "served.db")) == len(rows)


@pytest.mark.parametrize("settings", [{}, {"signals": Signals(signal="status")}], ids=["plain", "signal"])
def test_a_request_is_gone_when_it_ends(tmp_path, no_collector, settings):
    vine, app = serving(evidence=tmp_path / "served.db", **settings)
    vine.adapter.tells_config = True  # as in a fleet
    session = vine.session(OBJECTIVE)
    gone = weakref.ref(session)
    app.invoke({"question": SECRET}, {"configurable": {"tenant": "acme"}}, context=vine.context(policy=session))
    del session
    assert gone() is None


LIVE = {
    "global": "session = one()",
    "in a cycle": "a = {}; a['a'] = a; a['s'] = one(); del a",
    "in a generator": "def kept():\n    session = one()\n    yield session\ng = kept(); next(g)",
    "in an unfinished task": "import asyncio\nasync def wait():\n    session = one()\n    await asyncio.sleep(3600)\n"
    "async def run():\n    asyncio.get_running_loop().create_task(wait()); await asyncio.sleep(0.1)\nasyncio.run(run())",
    "in a daemon thread": "import threading, time\ndef wait(): session = one(); time.sleep(3600)\n"
    "threading.Thread(target=wait, daemon=True).start()\ntime.sleep(1)",
    "after an exception": "session = one(); raise KeyError",
    "of two applications": "first, second = one(), one()",
}


@pytest.mark.long
@pytest.mark.parametrize("where", LIVE)
def test_a_process_ends_although_a_session_is_alive_and_its_rows_are_written(tmp_path, where):
    """The pattern of docs/your-own-app.md: a session that somebody holds when the interpreter ends."""
    script = textwrap.dedent(f"""
        import sys
        sys.path[:0] = {PATHS!r}
        from test_evidence import serving, OBJECTIVE
        n = 0
        def one():
            global n
            n += 1
            vine, app = serving(evidence={str(tmp_path)!r} + f"/served{{n}}.db")
            session = vine.session(OBJECTIVE, run_id="alive")
            session.next_model("generate", ())  # an invocation that never ends
            app.invoke({{"question": "?"}}, context=vine.context(policy=vine.session(OBJECTIVE)))
            return session
    """)
    done = subprocess.run([sys.executable, "-c", script + LIVE[where]], timeout=90, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr or "KeyError" in done.stderr
    files = sorted(tmp_path.glob("served*.db"))
    assert len(files) == (2 if where == "of two applications" else 1)
    for path in files:
        assert {row.prefix[:1] for row in rows_of(path)}, done.stderr


def test_a_request_of_an_odd_name_costs_no_other_row(tmp_path, caplog):
    vine, app = serving(evidence=tmp_path / "served.db")
    for name in ("r0", "\ud800", "r1"):
        app.invoke({"question": SECRET}, context=vine.context(OBJECTIVE, request_id=name))
    vine.close()
    assert {row.request_id for row in rows_of(tmp_path / "served.db")} == {"r0", "r1"}
    assert vine.evidence.writer.refused == 2
    assert SECRET not in caplog.text
