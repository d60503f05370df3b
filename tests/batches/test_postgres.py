"""A batch whose store is in PostgreSQL: the same answers, one process at a time, whatever dies."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from kit.batch_files import answers
from kit.servers.postgres_server import connected
from sqlalchemy import text

import vinelm
from vinelm.batches.run import DatasetRun
from vinelm.errors import StoreError
from vinelm.objective import Objective
from vinelm.profiler.execution.job import UnitBudget
from vinelm.traces import ObservationStore
from vinelm.traces.databases import postgres
from vinelm.traces.served.answers import Answers

BEST = Objective(maximize="accuracy")
APP = "my_app:workflow"


def run(**changes):
    fields = {"output": "a.jsonl", "budget_usd": 1.0, "workers": 4}
    return vinelm.batch(APP, "t.vine", BEST, **(fields | changes))


def test_the_answers_are_those_of_a_file(app, postgres_url):
    run(output="file.jsonl")
    found = run(store=postgres_url)
    assert found.is_complete
    assert answers("a.jsonl") == answers("file.jsonl")
    spent = found.spent_usd
    assert run(store=postgres_url).spent_usd == pytest.approx(spent)  # nothing is bought again


def test_two_at_once_are_one_clear_line(app, postgres_url):
    def other(done, total):
        with pytest.raises(StoreError, match="another run") as caught:
            run(output="b.jsonl", store=postgres_url)
        assert "\n" not in str(caught.value)
        asked.append(done)

    asked = []
    assert run(store=postgres_url, on_done=other).is_complete
    assert asked


KILLED = """
import os, signal, sys
import vinelm
from vinelm.batches.run import DatasetRun

done, most = [0], int(sys.argv[2])
ended = DatasetRun._serve

def serve(run, *begun):
    ended(run, *begun)
    done[0] += 1
    if done[0] >= most:
        os.kill(os.getpid(), signal.SIGKILL)

DatasetRun._serve = serve
vinelm.batch("my_app:workflow", "t.vine", vinelm.Objective(maximize="accuracy"), output="a.jsonl", budget_usd=1.0, workers=4,
    store=sys.argv[1])
"""


@pytest.mark.parametrize("kills", [(25,), pytest.param((1, 7, 20, 11), marks=pytest.mark.long)])
def test_kill_9_and_the_same_line_again_ends_as_undisturbed(app, postgres_url, kills):
    run(output="whole.jsonl")
    for most in kills:
        ended = subprocess.run(
            [sys.executable, "-c", KILLED, postgres_url, str(most)], check=False, capture_output=True, text=True
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert not os.path.exists("a.jsonl")
    assert run(store=postgres_url).is_complete
    assert answers("a.jsonl") == answers("whole.jsonl")
    with ObservationStore.open(postgres_url) as store:
        keys = [answer.key for answer in Answers(store).brief()]
    assert len(keys) == len(set(keys)) == 60


@pytest.mark.parametrize("how", ["ended by the server", "reset by a pooler"])
def test_a_run_that_has_lost_its_hold_buys_nothing_more_and_another_one_ends_the_batch(app, postgres_url, monkeypatch, how):
    """Each purchase is refused from then on, also one for which enough is reserved already; the other run is not disturbed."""
    run(output="whole.jsonl")
    authorize, begun, lost, after = UnitBudget.authorize, DatasetRun._serve, threading.Event(), []
    lock = threading.Lock()

    def authorized(budget, upper_usd):
        was_lost = lost.is_set()  # a permit that was granted just before is none too many
        permit = authorize(budget, upper_usd)
        if was_lost:
            after.append(upper_usd)
        return permit

    def serve(batch, *request):
        begun(batch, *request)
        with lock:
            if len(batch._found.order) - len(batch._left) >= 20 and not lost.is_set():
                database = batch._ledger._store.database
                if how == "reset by a pooler":
                    with database.transaction() as connection:
                        connection.execute(text("SELECT pg_advisory_unlock_all()"))
                        connection.execute(text("RESET ALL"))
                else:
                    with database.transaction() as connection:
                        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar()
                    with connected(postgres_url) as other:
                        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
                lost.set()

    with monkeypatch.context() as patch:
        patch.setattr(postgres, "SURE_S", 0.0)
        patch.setattr(UnitBudget, "authorize", authorized)
        patch.setattr(DatasetRun, "_serve", serve)
        with pytest.raises(StoreError, match="run the same line again") as caught:
            run(store=postgres_url)
    assert "\n" not in str(caught.value)
    assert lost.is_set()
    assert after == []
    assert run(store=postgres_url).is_complete
    assert answers("a.jsonl") == answers("whole.jsonl")


def test_a_server_that_goes_away_loses_no_answer_that_it_had(app, postgres_server, monkeypatch):
    ended, done = DatasetRun._serve, []

    def serve(run, *begun):
        ended(run, *begun)
        done.append(begun)
        if len(done) == 20:
            postgres_server.stop()

    monkeypatch.setattr(DatasetRun, "_serve", serve)
    with pytest.raises(StoreError) as caught:
        run(store=postgres_server.url)
    assert "\n" not in str(caught.value)
    postgres_server.start()
    with ObservationStore.open(postgres_server.url) as store:
        kept = {answer.key for answer in Answers(store).brief()}
    assert 20 <= len(kept) < 60
    assert run(store=postgres_server.url).is_complete
    assert len(answers("a.jsonl")) == 60
