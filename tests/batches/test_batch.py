"""A data set through an application: each request once, in its order, within the budget, whatever happens."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit.batch_files import answers, committed_usd
from kit.crossed import crossed

import vinelm
from vinelm.batches.batch import _Prepared
from vinelm.errors import ConfigError, DatasetError, InfeasibleError, StageBroken, StoreError, WorkflowError
from vinelm.objective import Objective
from vinelm.running.request_ledger import RequestLedger
from vinelm.traces import ObservationStore, check_store
from vinelm.traces.served.answers import Answers

BEST = Objective(maximize="accuracy")
APP = "my_app:workflow"


def run(**changes):
    fields = {"output": "a.jsonl", "budget_usd": 1.0, "workers": 4}
    return vinelm.batch(APP, "t.vine", BEST, **(fields | changes))


def questions(n=60):
    return [json.loads(line) for line in Path("questions.jsonl").read_text().splitlines()][:n]


def write(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def interrupted_at(count):
    """Ctrl-C once so many requests have ended."""
    told = []

    def on_done(done, total):
        if done >= count and not told:
            told.append(done)
            raise KeyboardInterrupt

    return on_done


def busy_s(path="a.db"):
    with ObservationStore.open(path) as store:
        return sum(answer.latency_s for answer in Answers(store).brief())


# -- what comes out --------------------------------------------------------------------------------------------


def test_every_request_is_answered_in_the_order_of_the_data_set(app):
    found = run()
    lines = list(found.lines())
    assert [line["id"] for line in lines] == [str(row["id"]) for row in questions()]
    assert found.is_complete
    assert {line["status"] for line in lines} == {"ok"}
    assert found.by_status == {"ok": 60, "failed": 0, "unanswered": 0}
    assert found.spent_usd == pytest.approx(sum(line["cost_usd"] for line in lines)) == pytest.approx(committed_usd())
    assert found.calls_by_model == Counter(model for line in lines for model in line["models"])
    assert found.is_simulated
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["requests"] == 60
    assert check_store("a.db").is_whole


def test_any_number_of_workers_gives_the_same_answers(app):
    run(workers=1)
    one = answers()
    run(workers=16, output="b.jsonl")
    assert answers("b.jsonl") == one


def test_the_same_line_again_buys_nothing(app):
    first = run()
    text = Path("a.jsonl").read_bytes()
    Path("a.jsonl").unlink()
    again = run()
    assert Path("a.jsonl").read_bytes() == text
    assert again.spent_usd == pytest.approx(first.spent_usd)
    assert again.by_status == first.by_status


def test_equal_requests_are_answered_once_and_written_for_each(app):
    rows = questions(6)
    twice = write("d.jsonl", [{**row, "id": f"{n}-{row['id']}"} for n in range(2) for row in rows])
    found = run(dataset=twice)
    lines = list(found.lines())
    assert (found.requests, found.equal) == (12, 6)
    assert [line["answer"] for line in lines[:6]] == [line["answer"] for line in lines[6:]]
    assert [line["cost_usd"] for line in lines[6:]] == [0.0] * 6
    with ObservationStore.open("a.db") as store:
        assert len(list(Answers(store).brief())) == 6


def test_rows_need_no_label_and_no_id(app):
    rows = [{key: value for key, value in row.items() if key not in {"id", "label", "answer"}} for row in questions(3)]
    found = run(dataset=write("d.jsonl", rows), dry_run=True)
    assert (found.requests, found.equal, found.spent_usd) == (3, 0, 0.0)
    assert not Path("a.db").exists()


def test_a_dry_run_calls_nothing_and_forecasts(app):
    found = run(dry_run=True)
    assert found.forecast is not None
    assert found.forecast.requests == 60
    assert 0 < found.forecast.usd <= 1.0
    assert not Path("a.jsonl").exists()


def broken(asked, error=RuntimeError("a prompt may be in this text")):  # noqa: B008
    """The workflow, whose own code raises on these questions, or does what it is given in place of an error."""
    workflow = vinelm.load_workflow(APP)

    def build(vine):
        graph = workflow.build(vine)
        check = graph.nodes["check"].runnable.func

        def checked(state):
            if asked is None or state["question"] in asked:
                if not isinstance(error, BaseException):
                    error()
                    return check(state)
                raise error
            return check(state)

        graph.nodes["check"].runnable.func = checked
        return graph

    return replace(workflow, build=build)


def test_failures_are_data_and_not_tried_again(app):
    chosen = [questions()[5], questions()[10]]
    workflow = broken([row["question"] for row in chosen])
    found = vinelm.batch(workflow, "t.vine", BEST, output="a.jsonl", budget_usd=1.0)
    assert found.by_status == {"ok": 58, "failed": 2, "unanswered": 0}
    assert found.is_complete
    failed = [line for line in found.lines() if line["status"] == "failed"]
    assert [line["id"] for line in failed] == [row["id"] for row in chosen]
    assert {line["reason"] for line in failed} == {"tool: RuntimeError"}
    assert run().by_status == found.by_status


@pytest.mark.parametrize(
    ("error", "place"), crossed([SystemExit(0), KeyboardInterrupt(), GeneratorExit(), WorkflowError("it waits")], [0, 5])
)
def test_one_row_that_ends_its_thread_is_a_failed_row(app, error, place):
    """``sys.exit(0)`` in a node: every other row has its answer, and the next run does not stop there either."""
    row = questions()[place]
    found = vinelm.batch(broken([row["question"]], error), "t.vine", BEST, output="a.jsonl", budget_usd=1.0)
    assert found.by_status == {"ok": 59, "failed": 1, "unanswered": 0}
    (failed,) = [line for line in found.lines() if line["status"] == "failed"]
    assert failed["id"] == row["id"]
    assert failed["reason"] == f"tool: {'it waits' if isinstance(error, WorkflowError) else type(error).__name__}"


def test_a_stage_that_exits_before_its_first_call_is_a_failed_row(app, monkeypatch):
    """Also while first prompts are read, which is done on the main thread."""
    workflow, asked = vinelm.load_workflow(APP), questions()[0]["question"]
    my_app = sys.modules["my_app"]
    solve = my_app.solve

    def leaving(state, model):
        if state["question"] == asked:
            sys.exit(0)
        return solve(state, model)

    leaving.__annotations__ = {"state": my_app.State}
    monkeypatch.setattr(my_app, "solve", leaving)
    found = vinelm.batch(workflow, "t.vine", BEST, output="a.jsonl", budget_usd=1.0)
    assert found.by_status == {"ok": 59, "failed": 1, "unanswered": 0}


def test_at_the_deadline_and_a_grace_the_answers_are_written_whatever_a_node_does(app, monkeypatch):
    """One node hangs for ever: its request has no answer, makes no call any more, and the others have theirs."""
    asked, goes_on, now, after = questions()[7]["question"], threading.Event(), [0.0], []

    def hang():
        goes_on.wait()
        after.append(True)

    def on_done(done, total):
        if done == total - 1:
            now[0] = 3600.0 + 361.0

    with monkeypatch.context() as patch:
        patch.setattr(_Prepared, "_clock", lambda *_: lambda: now[0])
        found = vinelm.batch(
            broken([asked], hang),
            "t.vine",
            BEST,
            output="a.jsonl",
            budget_usd=1.0,
            deadline_s=3600.0,
            workers=4,
            on_done=on_done,
        )
    assert found.by_status == {"ok": 59, "failed": 0, "unanswered": 1}
    assert found.unanswered_because == "deadline"
    lines = {line["id"]: line for line in found.lines()}
    assert lines[questions()[7]["id"]]["reason"] == "deadline"
    assert found.spent_usd > sum(line.get("cost_usd", 0.0) for line in lines.values())  # what it may have cost counts
    before = committed_usd()
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("vinelm batch "):
            thread.join()
    assert after
    assert committed_usd() == pytest.approx(before)
    assert run(deadline_s=7200.0).is_complete


LEFT_BEHIND = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from vinelm.batches.batch import _Prepared
from vinelm.batches.run import DatasetRun
from vinelm.cli.main import main

import my_app

check, now, ended, question = my_app.check, [0.0], DatasetRun._note_end, sys.argv[1]

def hangs(state):
    if state["question"] == question:  # on a thread that the interpreter waits for at its end
        ThreadPoolExecutor().submit(Event().wait).result()
    return check(state)

def note_end(run, *given):
    ended(run, *given)
    if run.left == 1:
        now[0] = 4000.0

my_app.check, _Prepared._clock, DatasetRun._note_end = hangs, lambda *_: lambda: now[0], note_end
sys.argv[1:] = ["batch", "my_app:workflow", "--trie", "t.vine", "--maximize", "accuracy", "-o", "a.jsonl", "--budget-usd", "1",
    "--deadline", "1h", "--quiet"]
sys.exit(main())
"""


@pytest.mark.usefixtures("warm_python")
def test_a_command_whose_request_hangs_ends_with_its_exit_code(app):
    ended = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND, questions()[7]["question"]],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 3, ended.stderr
    assert "1 of 60 requests are unanswered (deadline)" in ended.stderr
    assert "Wrote a.jsonl" in ended.stdout
    assert [line[1] for line in answers()].count("ok") == 59


def test_a_batch_whose_first_requests_all_fail_is_stopped(app):
    with pytest.raises(StageBroken, match="first 20 requests all failed"):
        vinelm.batch(broken(None), "t.vine", BEST, output="a.jsonl", budget_usd=1.0)
    with ObservationStore.open("a.db") as store:
        before = len(list(Answers(store).brief()))
    assert before < 40
    with pytest.raises(StageBroken, match="first 20 requests all failed"):  # the same line does not go on paying
        vinelm.batch(broken(None), "t.vine", BEST, output="a.jsonl", budget_usd=1.0)
    with ObservationStore.open("a.db") as store:
        assert len(list(Answers(store).brief())) < before + 20


def test_progress_that_cannot_be_told_ends_the_batch_with_every_answer_kept(app, monkeypatch):
    add, release = Answers.add, RequestLedger._release
    under_way = []

    def add_slowly(*given):  # some requests end after the batch was told to stop
        time.sleep(0.05)
        add(*given)

    def broken_pipe(done, total):
        if done >= 4:
            raise BrokenPipeError

    def released(ledger):
        under_way.append(ledger._under_way)
        return release(ledger)

    monkeypatch.setattr(Answers, "add", add_slowly)
    monkeypatch.setattr(RequestLedger, "_release", released)
    with pytest.raises(BrokenPipeError):
        run(on_done=broken_pipe)
    assert under_way[-1] == 0  # what is reserved ahead is given back when the last of them has ended
    with ObservationStore.open("a.db") as store:
        kept = list(Answers(store).brief())
        assert store.committed_usd() == pytest.approx(sum(answer.cost_usd for answer in kept))
    assert 4 <= len(kept) < 60
    assert run().is_complete


# -- money and time --------------------------------------------------------------------------------------------


def test_the_budget_is_kept_and_more_money_answers_the_rest(app):
    whole = run(output="b.jsonl")
    limit = whole.spent_usd / 2
    part = run(budget_usd=limit, finish="good")
    assert part.spent_usd <= limit + 1e-9
    assert part.unanswered_because == "budget"
    assert 0 < part.by_status["unanswered"] < 60
    left = [line for line in part.lines() if line["status"] == "unanswered"]
    assert len(left) == part.by_status["unanswered"]
    assert {line["reason"] for line in left} == {"budget"}
    rest = run(budget_usd=10 * limit)
    assert rest.is_complete
    assert [line["id"] for line in rest.lines()] == [line["id"] for line in whole.lines()]


def test_half_the_money_still_answers_all_with_cheaper_plans(app):
    whole = run(output="b.jsonl")
    part = run(budget_usd=0.7 * whole.spent_usd)
    assert part.is_complete
    assert part.spent_usd <= 0.7 * whole.spent_usd + 1e-9


def test_what_cannot_be_finished_is_refused_before_anything_is_spent(app):
    for changes in ({"budget_usd": 1e-7}, {"budget_usd": 1e-7, "finish": "good"}, {"deadline_s": 1e-3}):
        with pytest.raises(InfeasibleError, match="can be answered within") as caught:
            run(**changes)
        assert "\n" not in str(caught.value)
    assert not Path("a.db").exists()


def test_a_deadline_that_has_passed_is_one_clear_line(app, monkeypatch):
    """Simulated seconds count: some of them are gone, and half of these are asked for."""
    monkeypatch.setattr("vinelm.running.crew.TICK_S", 0.002)  # a Ctrl-C that comes before all are done
    whole = run(output="b.jsonl", finish="good")
    with pytest.raises(KeyboardInterrupt):
        run(on_done=interrupted_at(10))
    passed_s = busy_s() / 4
    assert 0 < passed_s < whole.elapsed_s
    with pytest.raises(ConfigError, match="the deadline has passed"):
        run(deadline_s=passed_s / 2, finish="good")


def test_a_call_waits_for_money_that_others_have_only_reserved(app):
    """Bounds are above prices: with many workers their sum is above a budget that the prices meet."""
    whole = run(output="b.jsonl", workers=1)
    part = run(budget_usd=1.05 * whole.spent_usd, workers=32)
    assert part.spent_usd <= 1.05 * whole.spent_usd
    assert part.by_status["ok"] >= 59


def test_ctrl_c_lets_requests_end_writes_what_there_is_and_goes_on_later(app):
    whole = run(output="b.jsonl")
    with pytest.raises(KeyboardInterrupt):
        run(on_done=interrupted_at(1))
    lines = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    assert len(lines) == 60
    assert {line["reason"] for line in lines if line["status"] == "unanswered"} <= {"interrupted"}
    again = run()
    assert answers() == answers("b.jsonl")
    assert again.spent_usd == pytest.approx(whole.spent_usd)


# -- bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (lambda: [{"id": "a", "answer": "1"}], r"d.jsonl:1: no 'question'"),
        (lambda: [*questions(2), questions(1)[0]], r"d.jsonl:3: the id 'sum-000' repeats"),
        (lambda: [], "empty"),
    ],
)
def test_bad_rows_are_named_before_anything_is_spent(app, rows, said):
    with pytest.raises(DatasetError, match=said) as caught:
        run(dataset=write("d.jsonl", rows()))
    assert "\n" not in str(caught.value)
    assert not Path("a.db").exists()


def test_a_line_that_is_no_json_is_named(app):
    Path("d.jsonl").write_text(json.dumps(questions(1)[0]) + "\nnot json\n")
    with pytest.raises(DatasetError, match=r"d.jsonl:2"):
        run(dataset="d.jsonl")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"deadline_s": 0.0}, "must be a number of seconds > 0"),
        ({"workers": 0}, "at least one request"),
        ({"output": "no/such/a.jsonl", "store": "a.db"}, "cannot be written"),
        ({"output": "questions.jsonl", "dataset": "questions.jsonl"}, "this is the data set"),
        ({"output": "models.toml"}, "no batch is known"),
        ({"output": "a.db"}, "this is the store of the batch"),
        ({"budget_usd": -1.0}, "finite number >= 0"),
    ],
)
def test_bad_settings_are_refused_in_one_line_before_anything_is_spent(app, changes, said):
    with pytest.raises(ConfigError, match=said) as caught:
        run(**changes)
    assert "\n" not in str(caught.value)
    assert not list(Path().glob("*.db"))


def test_a_store_of_another_batch_is_refused(app):
    run()
    with pytest.raises(ConfigError, match=r"record of something else \(seed\)"):
        run(seed=1)
    with pytest.raises(ConfigError, match=r"record of something else \(inputs, dataset\)"):
        run(dataset=write("d.jsonl", questions(3)))


def test_inputs_that_have_changed_make_another_batch(app):
    run()
    workflow = vinelm.load_workflow(APP)
    spaced = replace(workflow, inputs=lambda request: {"question": request.data["question"] + " "})
    with pytest.raises(ConfigError, match=r"record of something else \(inputs\)"):
        vinelm.batch(spaced, "t.vine", BEST, output="a.jsonl", budget_usd=1.0)
    with pytest.raises(ConfigError, match="columns have no effect"):
        vinelm.batch(spaced, "t.vine", BEST, output="a.jsonl", budget_usd=1.0, columns=["id=question"])


def test_what_has_no_json_form_is_equal_to_nothing(app):
    workflow = vinelm.load_workflow(APP)
    rows = [np.arange(5000), np.arange(5000), np.where(np.arange(5000) == 2500, 0, np.arange(5000)), object(), object()]

    def inputs(request):
        return {"question": rows[int(request.id)]}

    requests = [vinelm.Request(str(number), {"question": "a"}) for number in range(5)]
    found = vinelm.batch(replace(workflow, requests=requests, inputs=inputs), "t.vine", BEST, output="a.jsonl", dry_run=True)
    assert (found.requests, found.equal) == (5, 1)


def test_a_disk_that_is_full_at_the_end_loses_nothing(app, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("vinelm.batches.result.atomic_path", full)
        with pytest.raises(ConfigError, match=r"No space left.*buys nothing anew"):
            run()
    spent = committed_usd()
    assert run().spent_usd == pytest.approx(spent)
    assert spent > 0
    assert len(answers()) == 60


def test_two_at_once_on_one_store_are_one_clear_line(app):
    def other(done, total):
        with pytest.raises(StoreError, match="another run") as caught:
            run(output="b.jsonl", store="a.db")
        assert "\n" not in str(caught.value)
        asked.append(done)

    asked = []
    assert run(on_done=other).is_complete
    assert asked


# -- kills -----------------------------------------------------------------------------------------------------

KILLS = """
import json, os, random, signal, sys, time
import vinelm
from vinelm.money.spend_guard import SpendGuard

kills, budget, output = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
settled = SpendGuard._settle

def settle(guard, permit, usage):
    if usage is not None:
        with open("paid.txt", "a") as paid:
            paid.write(f"{usage.cost_usd}\\n")
    settled(guard, permit, usage)

SpendGuard._settle = settle
workflow, trie = vinelm.load_workflow("my_app:workflow"), vinelm.load_trie("t.vine")
rng, made = random.Random(0), 0
for number in range(100 * kills):
    child = os.fork()
    if not child:
        objective = vinelm.Objective(maximize="accuracy")
        found = vinelm.batch(workflow, trie, objective, output=output, budget_usd=budget, workers=4, finish="good")
        os._exit(0)
    if made < kills:
        time.sleep(rng.uniform(0.0, float(sys.argv[4])))
        os.kill(child, signal.SIGKILL)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL:
        made += 1
        continue
    if made >= kills or not os.path.exists(output):
        break
    for name in (output, output.replace("jsonl", "db")):  # it was done before all kills: begin anew
        os.rename(name, f"{made}-{number}-{name}")
print(made)
"""


def killed(kills, budget_usd, output, longest_s):
    """Run, kill and continue; returns the kills."""
    given = [sys.executable, "-c", KILLS, str(kills), str(budget_usd), output, str(longest_s)]
    ran = subprocess.run(given, check=True, capture_output=True, text=True)
    return int(ran.stdout.split()[-1])


def assert_undisturbed(output, whole):
    """Each batch that was killed again and again ended as the undisturbed one, with each request answered once."""
    for lines in [Path(output), *Path().glob(f"*-{output}")]:
        assert answers(lines) == whole
        with ObservationStore.open(lines.with_suffix(".db")) as store:
            keys = [answer.key for answer in Answers(store).brief()]
        assert len(keys) == len(set(keys)) == 60


@pytest.mark.long  # in short: tests/attacks/test_kill_verbs.py
def test_kill_9_at_any_point_and_the_same_line_again_ends_as_undisturbed(app):
    run(output="whole.jsonl")
    assert killed(200, 100.0, "a.jsonl", 0.75) >= 200
    assert_undisturbed("a.jsonl", answers("whole.jsonl"))


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.long)])
def test_no_kill_breaks_the_budget(app, kills):
    """What was really paid is never more than what the store counts, and that never more than the budget."""
    limit = run(output="whole.jsonl").spent_usd / 2
    killed(kills, limit, "a.jsonl", 0.5)
    paid = [float(line) for line in Path("paid.txt").read_text().splitlines()]
    stores = [Path("a.db"), *Path().glob("*-a.db")]
    assert sum(paid) <= sum(map(committed_usd, stores)) + 1e-9
    assert all(committed_usd(one) <= limit + 1e-9 for one in stores)


# -- files that are not the batch's own ------------------------------------------------------------------------


def test_an_existing_file_that_the_batch_has_not_written_is_never_replaced(app):
    run()
    run(output="other.jsonl", finish="good")  # of another batch, for all that this one knows
    Path("link").symlink_to("t.vine")
    os.link("questions.jsonl", "hard")
    kept = Path("a.jsonl").read_bytes()
    for name in ("t.vine", "questions.jsonl", "models.toml", "my_app.py", "other.jsonl", "link", "hard"):
        before = Path(name).read_bytes()
        with pytest.raises(ConfigError, match=r"is not what this batch has written|exists, and no batch") as caught:
            run(output=name, store="a.db", seed=0) if name != "other.jsonl" else run(output=name, store="third.db")
        assert "\n" not in str(caught.value)
        assert Path(name).read_bytes() == before
    Path("a.jsonl").write_bytes(kept + b"mine\n")
    with pytest.raises(ConfigError, match="is not what this batch has written"):  # changed since
        run()
    Path("a.jsonl").write_bytes(kept)
    assert run().is_complete
    assert run(output="new.jsonl", store="a.db").is_complete
    assert run(output="new.jsonl", store="a.db").is_complete


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal", ".lock"])
def test_the_output_is_none_of_the_stores_files(app, ending):
    with pytest.raises(ConfigError, match="this is the store of the batch"):
        run(output=f"a.db{ending}", store="a.db")
    assert not Path("a.db").exists()
