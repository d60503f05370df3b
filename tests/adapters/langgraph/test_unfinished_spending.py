"""A cap per request holds whatever becomes of a stage that has paid: interrupts, failures, cancellation, death, and again."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from adapters.spending_app import CAP_USD, CONTEXT_ENDS, GRAPHS, Application
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

EVENTS = ("interrupt", "fail", "refuse")


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("end", CONTEXT_ENDS)
def test_what_an_unfinished_stage_paid_counts_when_it_is_run_again(graph, end):
    app = Application(graph)
    app.ends = [end] * 6
    app.start()
    for _ in range(6):
        app.resume()
    assert 0.6 <= app.paid_usd <= CAP_USD + 1e-9


@pytest.mark.parametrize("graph", ["stages", "subgraph"])
def test_several_ends_of_one_stage_count_once_each(graph):
    app = Application(graph)
    app.ends = ["fail", "interrupt", "ok"]
    app.calls_per_stage = 1
    app.start()
    app.resume()
    app.resume()
    assert app.paid_usd == pytest.approx(0.9)  # a stage begins again with each resumption, and each time it pays
    assert app.session.guard.used_usd() == pytest.approx(0.9)


def test_a_request_that_finishes_counts_nothing_twice():
    app = Application("stages")
    app.ends = ["interrupt", "ok", "ok"]
    app.calls_per_stage = 1
    app.start()
    app.resume()
    assert app.paid_usd == pytest.approx(0.9)
    assert app.session.guard.used_usd() == pytest.approx(0.9)


def test_another_turn_on_the_thread_is_another_request():
    app = Application("stages")
    app.ends = ["interrupt", "ok", "ok"]
    app.calls_per_stage = 1
    app.start()
    app.ends, app.request_id = ["ok"] * 9, "another"
    app.start()
    assert app.session.guard.used_usd() == pytest.approx(0.6)  # of the second turn alone


def test_another_turn_of_the_same_request_goes_on_counting():
    app = Application("stages", request_id="r1")
    app.ends = ["fail"] * 9
    for _ in range(5):
        app.start()
    assert app.paid_usd <= CAP_USD + 1e-9


def test_a_state_that_was_edited_in_between_forgets_nothing():
    app = Application("stages")
    app.ends = ["interrupt"] * 5
    app.start()
    for _ in range(4):
        app.edit()
        app.resume()
    assert app.paid_usd <= CAP_USD + 1e-9


@pytest.mark.parametrize("graph", [name for name in GRAPHS if name != "functional"])
def test_coroutines_count_alike_also_where_they_are_cancelled(graph):
    async def serve():
        app = Application(graph, is_async=True)
        app.ends = ["cancel", "interrupt", "fail", "interrupt", "interrupt"]
        await app.astart()
        for _ in range(4):
            await app.aresume()
        return app.paid_usd

    assert 0.6 <= asyncio.run(serve()) <= CAP_USD + 1e-9


def test_an_abandoned_stream_counts():
    app = Application("stages")
    app.ends = ["ok"] * 9
    app.abandon()
    app.ends = ["interrupt"] * 9
    for _ in range(4):
        app.resume()
    assert app.paid_usd <= CAP_USD + 1e-9


def test_a_process_that_died_in_the_middle_of_a_call_has_paid_for_it(tmp_path):
    """Killed after the provider was paid and before the stage ended; others resume the thread, again and again."""
    file, child = tmp_path / "thread.json", str(Path(__file__).parents[1] / "spending_app.py")
    paid = tmp_path / "paid"
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, child, str(file), str(paid)], capture_output=True, text=True, check=False,
            env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin"},
        )  # fmt: skip
        assert done.returncode in (0, -9), done.stderr
    spent = sum(map(float, paid.read_text().split()))
    assert 0.6 <= spent <= CAP_USD + 1e-9
    assert json.loads(file.read_text())


class Requests(RuleBasedStateMachine):
    """One request, paid for in any order of ends, resumptions, edits and forks; also by another process's saver."""

    @initialize(graph=st.sampled_from(GRAPHS), request_id=st.sampled_from([None, "r1"]))
    def begin(self, graph, request_id):
        self.app = Application(graph, request_id=request_id)
        self.app.ends = []
        self.is_begun = False

    @rule(ends=st.lists(st.sampled_from((*CONTEXT_ENDS, "ok")), min_size=1, max_size=3), calls=st.integers(1, 2))
    def go_on(self, ends, calls):
        self.app.ends, self.app.calls_per_stage = list(ends), calls
        if self.is_begun:
            self.app.resume()
        else:
            self.app.start()
            self.is_begun = True

    @rule()
    def edit(self):
        if self.is_begun:
            self.app.edit()

    @rule()
    def move_to_another_process(self):
        self.app.reload()

    @invariant()
    def the_cap_holds(self):
        if hasattr(self, "app"):
            assert self.app.paid_usd <= CAP_USD + 1e-9


SEARCH = settings(max_examples=30, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.long
def test_no_order_of_events_pays_more_than_the_cap():
    run_state_machine_as_test(Requests, settings=SEARCH)
