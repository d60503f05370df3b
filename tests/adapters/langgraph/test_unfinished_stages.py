"""A cap per request holds although stages pay and do not finish: here, in another process, from an older checkpoint."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.apps.paying import CAP, OBJECTIVE, THREAD, PayingApp
from kit.apps.savers import FileSaver, LoopSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, RetryPolicy

from vinelm.money.spend_guard import SpendGuard

TESTS = Path(__file__).parents[2]
RUNS = """
import runpy, warnings
warnings.simplefilter("error")
runpy.run_module("kit.apps.paying", run_name="__main__", alter_sys=True)  # of vinelm
"""
RESUME = Command(resume="yes")
KINDS = [(kind, is_async) for kind in ("stage", "chat") for is_async in (False, True)]


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]} {'async' if kind[1] else 'sync'}")
def app(request, tmp_path):
    kind, is_async = request.param
    return PayingApp(tmp_path, kind=kind, is_async=is_async)


def again(app):
    """The same application in a process that has just begun: it shares the files, nothing in memory."""
    return PayingApp(app.paid.parent, kind=app.kind, is_async=app.is_async, retry=app.retry)


def elsewhere(app, *runs, code=0):
    """What the runs return in a real process of their own."""
    job = {"folder": str(app.paid.parent), "kind": app.kind, "is_async": app.is_async, "runs": runs}
    child = subprocess.run(
        [sys.executable, "-c", RUNS],
        input=json.dumps(job), env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert child.returncode == code, child.stderr
    return json.loads(child.stdout) if not code else None


def test_a_stage_that_asks_after_each_call_keeps_its_cap(app):
    """It pays again whenever it is resumed, as LangGraph runs a stage from its beginning."""
    found = [app.run({"request": "q"}, ["call", "call", "ask"])]
    found += [app.run(RESUME, ["call", "call", "ask", "ask", "ask", "ask", "ask"]) for _ in range(4)]
    assert found == ["asks", "asks", "asks", "asks", "refused"]
    assert app.paid_usd() == 0.8 <= CAP


def test_the_same_in_another_process_each_time(app):
    found = [app.run({"request": "q"}, ["call", "call", "ask"])]
    for _ in range(4):
        app = again(app)
        found.append(app.run(RESUME, ["call", "call", "ask", "ask", "ask", "ask", "ask"]))
    assert found == ["asks", "asks", "asks", "asks", "refused"]
    assert app.paid_usd() == 0.8


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(("kind", "is_async"), [KINDS[0], *(pytest.param(*kind, marks=pytest.mark.long) for kind in KINDS[1:])])
def test_the_same_in_real_processes(tmp_path, kind, is_async):
    app = PayingApp(tmp_path, kind=kind, is_async=is_async)
    asks = ["call", "call", "call", "ask", "ask", "ask"]
    assert elsewhere(app, [{"request": "q"}, [asks]]) == ["asks"]
    assert elsewhere(app, ["resume", [asks]], ["resume", [asks]]) == ["asks", "refused"]
    assert app.paid_usd() == 0.8


def test_an_application_with_a_human_in_the_loop_is_not_disturbed(app):
    """Three questions and five calls: what is written down is what was paid, not what could have been."""
    assert app.run({"request": "q"}, ["call", "ask"]) == "asks"
    app = again(app)
    assert app.run(RESUME, ["call", "ask"], ["ask", "call", "call"]) == "asks"
    app = again(app)
    assert app.run(RESUME, ["ask", "call"], ["call", "ask"]) == "asks"
    app = again(app)
    assert app.run(RESUME, ["ask", "call"]) == "done"
    assert app.paid_usd() == 0.5
    assert app.run({"request": "r"}, *[["call"] * 2] * 3) == "done"  # the next turn has a cap of its own
    assert app.paid_usd("r") == 0.6


def test_a_stage_that_fails_and_is_run_again_keeps_its_cap(app):
    found = [app.run({"request": "q"}, ["call", "call", "call", "raise"])]
    found += [again(app).run(None, ["call", "call", "call", "raise"]) for _ in range(3)]
    if app.kind == "stage":  # LangGraph takes a failed task that has written something for finished: a chat model has
        assert found == ["failed", "failed", "refused", "refused"]
        assert app.paid_usd() == 0.8
    assert app.paid_usd() <= CAP


@pytest.mark.parametrize("is_async", [False, True])
def test_attempts_of_a_retry_policy_count_in_the_next_run(tmp_path, is_async):
    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=RuntimeError)
    app = PayingApp(tmp_path, is_async=is_async, retry=policy)
    assert app.run({"request": "q"}, *[["call", "call", "raise"]] * 3) == "failed"
    assert app.paid_usd() == 0.6
    assert again(app).run(None, *[["call", "call", "raise"]] * 3) == "refused"
    assert app.paid_usd() == 0.8


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    ("kind", "is_async"), [KINDS[0], KINDS[3], *(pytest.param(*kind, marks=pytest.mark.long) for kind in KINDS[1:3])]
)
def test_a_process_that_dies_after_paying_counts_at_its_upper_bound(tmp_path, kind, is_async):
    app = PayingApp(tmp_path, kind=kind, is_async=is_async)
    elsewhere(app, [{"request": "q"}, [["call", "call", "die"]]], code=9)
    assert app.paid_usd() == pytest.approx(0.3)
    assert again(app).run(None, ["call"] * 9) == "refused"  # 0.1, 0.1 and up to 0.3 of the last one
    assert app.paid_usd() == pytest.approx(0.6)


@pytest.mark.parametrize("kind", ["stage", "chat"])
@pytest.mark.parametrize("how", ["cancelled", "abandoned"])
def test_a_run_that_is_cancelled_keeps_its_cap(tmp_path, kind, how):
    app = PayingApp(tmp_path, kind=kind, is_async=True)

    async def cancelled(value):
        app.plans = [["call", "call", "call", "wait"]]
        context = app.vine.context(OBJECTIVE)
        if how == "cancelled":
            task = asyncio.create_task(app.graph.ainvoke(value, THREAD, context=context))
        else:

            async def first():
                async for _ in app.graph.astream(value, THREAD, context=context, stream_mode="values"):
                    pass

            task = asyncio.create_task(first())
        before = app.paid_usd()
        while app.paid_usd() < before + 0.3 and not task.done():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for value in ({"request": "q"}, None, None, None):
        asyncio.run(cancelled(value))
        app = again(app)
    assert app.paid_usd() <= CAP


def test_older_checkpoints_go_on_with_what_is_left(app):
    """Each replay pays again: the branches of a request share its cap."""
    assert app.run({"request": "q"}) == "done"
    assert app.paid_usd() == pytest.approx(0.3)
    states = list(app.graph.get_state_history(THREAD))
    found = []
    for state in [one for one in states if one.next] * 2:
        app = again(app)
        found.append(app.run(None, config=state.config))
    assert "refused" in found
    assert app.paid_usd() == 0.8


def test_a_state_that_is_edited_goes_on_with_what_is_left(app):
    app.run({"request": "q"}, ["call"] * 5 + ["ask"])
    for _ in range(3):
        app = again(app)
        app.graph.update_state(THREAD, {"answer": "edited"}, as_node="look")
        app.run(None, ["call"] * 5 + ["ask"])
    assert app.paid_usd() == 0.8


def test_an_input_that_is_left_alone_costs_the_next_one_nothing(app):
    """The first stage of each request asks and is never answered."""
    for request in "abcd":
        assert app.run({"request": request}, ["call"] * 6 + ["ask"]) == "asks"
        app = again(app)
    assert [app.paid_usd(request) for request in "abcd"] == [pytest.approx(0.6)] * 4
    oldest = [state for state in app.graph.get_state_history(THREAD) if state.values.get("request") == "a"]
    for state in oldest:  # and an old one still has what was left of its own
        app.run(None, ["call"] * 6 + ["ask"], config=state.config)
        app = again(app)
    assert app.paid_usd("a") == 0.8


def test_one_request_id_is_one_cap_even_for_a_new_input(app):
    for _ in range(3):
        app.run({"request": "q"}, ["call"] * 4 + ["raise"], context=app.vine.context(OBJECTIVE, request_id="r1"))
        app = again(app)
    assert app.paid_usd() == 0.8
    app.run({"request": "q2"}, ["call"] * 4 + ["raise"], context=app.vine.context(OBJECTIVE, request_id="r2"))
    assert app.paid_usd("q2") == pytest.approx(0.4)


def test_a_resumed_run_that_does_not_give_the_request_id_goes_on_with_it(app):
    app.run({"request": "q"}, ["call"] * 6 + ["ask"], context=app.vine.context(OBJECTIVE, request_id="r1"))
    assert again(app).run(RESUME, ["call"] * 6) == "refused"
    assert app.paid_usd() == 0.8


@pytest.mark.parametrize(("kind", "is_async"), KINDS)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_it_does_not_matter_when_checkpoints_are_saved(tmp_path, kind, is_async, durability):
    app = PayingApp(tmp_path, kind=kind, is_async=is_async)
    app.run({"request": "q"}, ["call", "call", "ask"], durability=durability)
    for _ in range(4):
        app = again(app)
        app.run(RESUME, ["call", "call", "ask", "ask", "ask", "ask", "ask"], durability=durability)
    assert app.paid_usd() == 0.8
    app.run({"request": "r"}, ["call"] * 5, durability=durability, context=app.vine.context(OBJECTIVE, request_id="r"))
    assert app.paid_usd("r") >= 0.5


@pytest.mark.parametrize(("kind", "is_async"), KINDS)
def test_in_memory_as_well(tmp_path, kind, is_async):
    app = PayingApp(tmp_path, kind=kind, is_async=is_async, saver=InMemorySaver())
    app.run({"request": "q"}, ["call", "call", "call", "ask"])
    app.run(RESUME, ["call", "call", "call", "ask", "ask"])
    assert app.run(RESUME, ["call", "call", "call", "ask", "ask"]) == "refused"
    assert app.paid_usd() == 0.8


def test_a_saver_of_an_event_loop_works_in_asynchronous_stages(tmp_path):
    app = PayingApp(tmp_path, is_async=True, saver=LoopSaver(tmp_path / "saver"))
    app.run({"request": "q"}, ["blocking call", "call", "blocking call", "ask"])
    app = again(app)
    assert app.run(RESUME, ["call"] * 6) == "refused"
    assert app.paid_usd() == 0.8


def test_a_call_that_cannot_be_written_down_is_not_made(tmp_path):
    class Broken(FileSaver):
        def put_writes(self, config, writes, task_id, task_path=""):
            if config["configurable"]["checkpoint_ns"]:
                raise OSError("the prompt and the key sk-canary")
            super().put_writes(config, writes, task_id, task_path)

    app = PayingApp(tmp_path, saver=Broken(tmp_path / "saver"))
    assert app.run({"request": "q"}) == "refused"
    assert app.paid_usd() == 0.0


@pytest.mark.parametrize("on_error", ["default", "raise"])
def test_whatever_follows_a_failure_of_ours(tmp_path, on_error):
    for value in ({"request": "q"}, RESUME, RESUME):
        app = PayingApp(tmp_path, on_error=on_error)
        app.run(value, ["call", "call", "call", "ask", "ask", "ask"])
    assert app.paid_usd() == 0.8


@pytest.mark.parametrize("is_async", [False, True])
def test_an_account_that_requests_share_is_asked_as_well(tmp_path, is_async):
    app = PayingApp(tmp_path, is_async=is_async)
    shared = SpendGuard(1.05)
    app.vine.adapter.account_of = lambda context: shared
    assert app.run({"request": "q"}, ["call"] * 9) == "refused"  # by its own cap
    assert shared.spent_usd == pytest.approx(app.paid_usd("q")) == pytest.approx(0.8)
    assert app.run({"request": "r"}, ["call"] * 9) == "refused"  # by the account: 0.25 are left
    assert app.paid_usd("r") == 0.0
    assert shared.reserved_usd == 0.0


def test_requests_without_a_cap_write_nothing_beside_the_checkpoints(tmp_path):
    app = PayingApp(tmp_path, saver=InMemorySaver())
    app.run({"request": "q"}, context=app.vine.context({"maximize": "accuracy"}))
    assert list(app.saver.storage["t"]) == [""]


def test_no_prompt_is_written_beside_the_checkpoints(tmp_path):
    app = PayingApp(tmp_path, saver=InMemorySaver())
    app.run({"request": "canary"}, ["call", "ask"], context=app.vine.context(OBJECTIVE, request_id="canary-id"))
    assert set(app.saver.storage["t"]) == {"", "vinelm_paid", "vinelm_request"}
    assert "canary" not in str([value for place, value in app.saver.writes.items() if place[1]])
    assert len(list(app.graph.get_state_history(THREAD))) == 3  # the thread's own history is as it was
