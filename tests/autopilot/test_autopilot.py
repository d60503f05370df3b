"""A service under an autopilot: from its first calls to a proven plan, and back."""

import os
import shutil
import stat

import pytest
from kit.worlds.judges import JudgeChat, good, mixed, today, with_judge
from kit.worlds.piloted import Service, equal
from kit.worlds.replays import answered, differs, models, truth, wrong
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from vinelm import VineLM
from vinelm.autopilot import Autopilot
from vinelm.autopilot import autopilot as threads
from vinelm.autopilot import pilot as piloting
from vinelm.autopilot.cascade import PlanCall
from vinelm.errors import ConfigError, StoreError
from vinelm.replay.plans import AnswerPlan


@pytest.fixture
def serve(tmp_path):
    made = []

    def begin(catalog, **options):
        made.append(Service(tmp_path / "pilot.db", catalog, **options))
        return made[-1]

    yield begin
    for one in made:
        one.vine.close()


@pytest.fixture
def proven(proven_store, serve, tmp_path):
    """Begins a service that goes on with such a store."""

    def begin(catalog=None, **options):
        for path in proven_store.parent.iterdir():
            shutil.copy(path, tmp_path)
        service = serve(models(nano=equal, big=truth) if catalog is None else catalog, **options)
        service.look()
        return service

    return begin


@pytest.mark.usefixtures("quick_levels")
def test_a_model_that_answers_the_same_is_proven_and_raised_without_a_label(history, proven):
    before, found, *raised = history.states
    assert history.answers == [truth(number) for number in range(200)]
    assert before.plan is None
    assert found.plan == {"kind": "alone", "models": ["nano"]}
    assert (found.share, found.proven) == (0.05, 0.03)
    assert found.saved == pytest.approx(0.5)
    assert [state.share for state in raised] == [0.05, 0.25, 0.95, 0.95]
    service = proven(catalog := models(nano=equal, big=truth))
    served = service.ask(range(5000, 5200))
    plans = sum(said == equal(number) for said, number in zip(served, range(5000, 5200), strict=True))
    assert 170 < plans < 200
    assert len(catalog.live["nano"].asked) >= plans
    assert stat.S_IMODE(os.stat(history.path).st_mode) == 0o600


def test_nothing_is_served_that_loses_and_persons_say_so(serve, tmp_path):
    def worse(number):
        return wrong(number) if differs(number, 0.15) else truth(number)

    service = serve(models(nano=worse, big=truth))
    for start in range(0, 3000, 100):
        service.ask(range(start, start + 100))
        service.look()
        while answered(tmp_path / "pilot.db"):
            service.look()
        if (state := service.look()).ended:
            break
    assert state.plan is None
    assert state.ended


def test_a_plan_that_changes_goes_back(proven):
    service = proven(models(nano=wrong, big=truth))
    assert service.look().plan is not None
    for start in range(10_000, 14_000, 100):
        service.ask(range(start, start + 100))
        state = service.look()
        if state.plan is None:
            break
    assert state.plan is None
    assert state.alarms[-1][1] == "its answers differ more or less often"
    assert service.ask(range(20_000, 20_050)) == [truth(number) for number in range(20_000, 20_050)]


def test_the_dollars_of_a_day_hold(serve):
    catalog = models(nano=equal, big=truth)
    service = serve(catalog, shadow_usd_per_day=0.05)
    for start in range(0, 300, 50):
        service.ask(range(start, start + 50))
        service.look()
    assert service.look().plan is None
    pilot = service.pilot._pilot
    assert pilot._asking().spent_usd <= 0.05
    pilot._day = lambda: threads.today_utc() + 1
    service.ask(range(300, 310))
    service.look()
    assert 0.05 < pilot._asking().spent_usd <= 0.1


@pytest.mark.usefixtures("quick_levels")
def test_another_process_goes_on_where_the_first_has_ended(serve):
    catalog = models(nano=equal, big=truth)
    service = serve(catalog)
    service.ask(range(420))
    service.look()
    service.look()
    service.ask(range(1000, 1100))
    assert service.look().share == 0.25
    service.vine.close()
    other = serve(models(nano=equal, big=truth))
    assert other.look().share == 0.25
    other.ask(range(2000, 2100))
    assert other.look().share == 0.95


def test_two_processes_have_one_pilot(serve):
    catalog = models(nano=equal, big=truth)
    one, other = serve(catalog), serve(models(nano=equal, big=truth))
    one.ask(range(210))
    one.look()
    other.ask(range(210, 420))
    other.look()
    one.look()
    state = other.look()
    assert state.plan is not None
    other.look()
    assert other.pilot.state_of("name:grade").share == state.share
    assert [one.pilot._pilot is not None, other.pilot._pilot is not None].count(True) == 1


def test_a_cheap_model_that_fails_is_no_failure_of_the_request(proven):
    def broken(number):
        raise RuntimeError("down")

    service = proven(models(nano=broken, big=truth))
    assert service.ask(range(3000, 3020)) == [truth(number) for number in range(3000, 3020)]
    state = service.look()
    assert state.plan is None
    assert state.alarms[-1][1] == "its model fails more often"


@pytest.mark.usefixtures("quick_levels")
def test_what_a_stream_costs_is_counted_even_where_its_reader_leaves(proven):
    service = proven()
    chat = service.vine.chat_model("grade", default="big")
    for number in range(3000, 3040):
        next(iter(chat.stream([("user", f"Question {number}")])))
    (counted,) = service.pilot._outcomes.values()
    took = [found for letter, found in zip(counted.outcomes, counted.figures, strict=True) if letter == "p"]
    assert len(took) > 30
    assert sum(usd for usd, _ in took) == pytest.approx(counted.usd) == pytest.approx(0.001 * len(took))


@pytest.mark.usefixtures("quick_levels")
def test_each_of_two_calls_of_a_stage_counts_what_it_cost(proven):
    service = proven()
    service.calls = 2
    service.ask(range(3000, 3040))
    (counted,) = service.pilot._outcomes.values()
    assert counted.calls == counted.outcomes.count("p") > 60
    assert counted.usd == pytest.approx(0.001 * counted.calls)


@pytest.mark.parametrize(
    "options",
    [
        {"max_loss": 0.0},
        {"alpha": 1.0},
        {"shadow_usd_per_day": 0.0},
        {"labels": -1},
        {"workers": 0},
        {"check": "none"},
        {"max_slowdown": 0.0},
    ],
)
def test_impossible_settings_are_refused(tmp_path, options):
    with pytest.raises(ConfigError):
        Autopilot(tmp_path / "pilot.db", **options)


def test_an_autopilot_goes_with_no_trie_and_serves_one_service(tmp_path, serve):
    service = serve(models(nano=equal, big=truth))
    with pytest.raises(ConfigError, match="serves already"):
        VineLM(models(nano=equal, big=truth), autopilot=service.pilot)
    with pytest.raises(ConfigError, match="mode"):
        VineLM(models(nano=equal, big=truth), autopilot=Autopilot(tmp_path / "b.db"), mode="observe")


def test_other_prices_begin_again(proven):
    state = proven(models(0.0015, nano=equal, big=truth)).look()
    assert state.plan is None
    assert "in the catalog has changed" in state.alarms[-1][1]


def test_what_was_proven_for_three_points_does_not_serve_where_one_may_be_lost(proven):
    assert proven(max_loss=1.0).look().plan is None


def test_where_nobody_would_hear_an_alarm_todays_model_runs(proven):
    service = proven()
    numbers = range(3000, 3040)
    assert service.ask(numbers) != [truth(number) for number in numbers]
    service.pilot._piloted_at -= 100 * 36_000.0
    assert service.ask(range(4000, 4040)) == [truth(number) for number in range(4000, 4040)]
    service.pilot._piloted_at += 100 * 36_000.0
    service.pilot._pid += 1  # as in a fork, which has no threads
    assert service.ask(range(5000, 5040)) == [truth(number) for number in range(5000, 5040)]
    service.pilot._pid -= 1


def test_a_clock_that_is_set_back_gives_no_second_budget(serve):
    service = serve(models(nano=equal, big=truth), shadow_usd_per_day=0.05)
    service.ask(range(200))
    service.look()
    pilot = service.pilot._pilot
    day = threads.today_utc()
    for turn in range(4):
        pilot._day = lambda turn=turn: day - turn % 2
        service.ask(range(1000 + 20 * turn, 1020 + 20 * turn))
        service.look()
    assert pilot._asking().spent_usd <= 0.05


def test_feedback_sends_a_plan_back(proven):
    service = proven()
    for number in range(10_000, 10_400):
        (said,) = service.ask([number])
        service.vine.feedback(f"r{number}", said == truth(number))
    state = service.look()
    assert state.plan is None
    assert state.alarms[-1][1] == "fewer of its answers are right"


@pytest.mark.parametrize("broken", ["state_of", "part_of", "recorded", "counted"])
def test_a_fault_of_the_autopilot_is_no_failure_of_the_request(proven, monkeypatch, broken):
    service = proven()

    def fails(*_):
        raise RuntimeError("a fault")

    monkeypatch.setattr(service.pilot, broken, fails)
    assert {said.strip(".").lower() for said in service.ask(range(3000, 3040))} <= {"billing", "refund", "shipping", "other"}


@pytest.mark.usefixtures("quick_levels")
def test_a_plan_of_two_models_asks_today_where_they_differ(serve, tmp_path):
    def salted(salt):
        return lambda number: wrong(number) if differs(number, 0.15, salt) else truth(number)

    between = dict.fromkeys(
        ("a", "b", "c", "d", "e"), truth
    )  # each dearer than the one before, so that both cost less than big
    catalog = models(nano=salted(1), mini=salted(2), **between, big=truth)
    service = serve(catalog, max_loss=10.0, models=("nano", "mini"))
    for start in range(0, 600, 200):
        service.ask(range(start, start + 200))
        service.look()
        while answered(tmp_path / "pilot.db"):
            service.look()
        if (state := service.look()).plan is not None:
            break
    assert state.plan == {"kind": "agree", "models": ["nano", "mini"]}
    for start in (2000, 2050, 2100):
        service.ask(range(start, start + 50))
        state = service.look()
    assert state.share == 0.95
    apart = [number for number in range(3000, 3200) if differs(number, 0.15, 1) != differs(number, 0.15, 2)]
    assert service.ask(apart) == [truth(number) for number in apart]


@pytest.mark.usefixtures("quick_levels")
def test_a_pilot_that_loses_the_store_begins_again_from_what_is_kept(proven, monkeypatch):
    service = proven()
    pilot = service.pilot._pilot

    def lost():
        raise StoreError("another run holds it", code="store-hold-lost")

    monkeypatch.setattr(pilot, "round", lost)
    service.pilot._go_on()
    assert service.pilot._pilot is None
    assert service.look().share == 0.95
    assert service.pilot._pilot is not pilot


def test_a_plan_that_serves_records_no_more_than_it_compares(proven, monkeypatch):
    monkeypatch.setattr(threads, "COMPARED_A_DAY", 3)
    service = proven()
    for state in service.pilot._states.values():
        state.ended = "no better plan"
    before = len(service.pilot._settling)
    service.ask(range(6000, 6200))
    service.pilot._write_waiting()
    assert len(service.pilot._settling) - before == 3


@pytest.mark.parametrize(("kind", "models"), [("agree", ("nano", "mini")), ("check", ("nano",))])
def test_where_answers_cannot_be_compared_todays_model_answers(kind, models):
    def fails(*_):
        raise RuntimeError("the owner's function")

    call = PlanCall(AnswerPlan(kind, models), "big", make=fails, is_same=fails, passes=fails, ended=fails)
    deciding = call.deciding([])
    for model in models:
        assert deciding.next() == ("ask", model)
        deciding.results[model] = ChatResult(generations=[ChatGeneration(message=AIMessage("billing"))])
    assert deciding.next() == ("today", "")


def test_an_attempt_whose_calls_are_used_up_ends(serve, monkeypatch):
    monkeypatch.setattr(piloting, "MOST_UNITS", 20)
    service = serve(models(nano=equal, big=truth))
    service.ask(range(200))
    service.look()
    state = service.look()
    assert (state.plan, state.ended) == (None, "20 calls have proven nothing")


def test_a_judge_compares_within_the_dollars_of_the_day_and_another_one_begins_the_race_again(serve):
    judge, other = JudgeChat(rule=good), JudgeChat(rule=good)
    catalog = with_judge(models(nano=mixed, big=today), judge)
    service = serve(catalog, judge="boss", labels=200, max_loss=5.0)
    for start in range(0, 800, 200):
        service.ask(range(start, start + 200))
        service.look()
    assert service.pilot.state_of("name:grade").candidates
    kept = service.pilot._pilot.kept
    assert answered(service.pilot.settings.store, most=10) == 10
    service.look()
    verdicts = {key: answer for key, answer in kept.answers.items() if key[1].startswith("boss on ")}
    assert len(verdicts) == len(judge.asked) > 0
    assert kept.store.committed_usd() == pytest.approx(sum(answer.cost_usd for answer in kept.answers.values()))
    attempt = service.look().attempt
    service.vine.close()
    again = serve(with_judge(models(nano=mixed, big=today), other), labels=200, max_loss=5.0)
    again.ask(range(800, 1000))
    assert again.look().attempt == attempt + 1
    assert not other.asked


def test_a_judge_that_is_no_entry_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="unknown model 'none'"):
        VineLM(models(nano=equal, big=truth), autopilot=Autopilot(tmp_path / "pilot.db", judge="none"))
