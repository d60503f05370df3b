"""Live calls that are not independent: a conversation is one unit of the autopilot's test, as it is of a replay's."""

import math
from itertools import pairwise

import numpy as np
import pytest
from kit.plays import play
from kit.worlds.piloted import Service, equal
from kit.worlds.replays import models, truth

from vinelm.proof import Candidate
from vinelm.replay.conversations import MOST_PAUSES, Conversations, began
from vinelm.replay.kept import ReplayUnit
from vinelm.replay.replaying import CHOOSING, StepRun

WORLDS, CHATS, LOSS = 240, 120, 0.1
MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / WORLDS)
PAUSE_S = 1800.0
BARE = {
    "step": "s", "title": "s", "call": "c", "model": "m", "weight": 1, "cost_usd": 1.0, "latency_s": 1.0, "tokens_in": 1,
    "tokens_out": 1, "answer": {},
}  # fmt: skip


def stream(sizes, rng, hours=10.0):
    """Calls of chats that go on side by side, in order of arrival: the turns of one are minutes apart."""
    starts = rng.random(len(sizes)) * hours * 3600.0
    turns = [(start + gap, chat) for chat, start in enumerate(starts) for gap in rng.exponential(200.0, sizes[chat]).cumsum()]
    return [
        ReplayUnit(**BARE, unit_id=number, request=str(number), cluster=str(chat), recorded_at=at)
        for number, (at, chat) in enumerate(sorted(turns), 1)
    ]


def divided(units, pause_s, now_s=math.inf):
    found = Conversations(pause_s)
    for unit in units:
        found.add(unit, dict)
    return found.over(now_s)


def proven(units, failed, pause_s):
    """Whether a plan is proven that fails in these chats, and answers all other calls the same."""
    step = StepRun(None, divided(units, pause_s), None, [], candidates=[Candidate("a", 0.5, LOSS)], labels=200, is_stream=True)
    chats = {str(unit.unit_id): int(unit.cluster) for unit in units}
    scores = np.array([-1.0 if failed[chats[unit.request]] else 0.0 for unit in step.units[step.choosing :]])
    race = step.begun(max_loss=LOSS, margins=(), attempt=None)
    return play(race, {"a": (scores == 0.0, scores)})[0].reason == "proven"


@pytest.mark.parametrize("sizes", [pytest.param([5], marks=pytest.mark.long), [1, 5]])
def test_chats_whose_turns_fail_together_prove_nothing_false(sizes):
    """In the mean a call loses just the margin; each call for itself proves what it must not."""
    false = dict.fromkeys((0.0, PAUSE_S), 0)
    for world in range(WORLDS):
        rng = np.random.default_rng([world, 53])
        chats = rng.choice(sizes, CHATS)
        failed = (chats == 5) & (rng.random(CHATS) < LOSS * sum(sizes) / 5)
        units = stream(chats, rng)
        for pause_s in false:
            false[pause_s] += proven(units, failed, pause_s)
    assert false[PAUSE_S] / WORLDS <= MOST
    assert false[0.0] / WORLDS > 1.2 * MOST


def test_a_plan_that_loses_nothing_is_proven_with_chats_too():
    rng = np.random.default_rng(5)
    assert proven(stream([1, 2, 1, 3, 1, 1, 2, 1] * 60, rng), np.zeros(480, bool), PAUSE_S)


def test_what_is_used_once_stays_as_it_is_whenever_one_looks():
    rng = np.random.default_rng(7)
    units = stream(rng.choice([1, 2, 5, 9], 80), rng, hours=3.0)
    talks, before, seen = Conversations(PAUSE_S), [], 0
    for now_s in np.arange(0.0, 40_000.0, 300.0):
        while seen < len(units) and units[seen].recorded_at <= now_s:
            talks.add(units[seen], dict)
            seen += 1
        found = list(talks.over(now_s))
        assert found[: len(before)] == before
        before = found
    assert before == divided(units, PAUSE_S)
    changes = sum(one.cluster != other.cluster for one, other in pairwise(before))
    assert changes == len({one.cluster for one in before}) - 1
    starts = list(dict.fromkeys(map(began, before)))
    assert starts == sorted(starts)


def test_a_conversation_that_goes_on_after_a_pause_or_for_ever_is_divided():
    one = {**BARE, "request": "r", "cluster": "one"}
    times = [0.0, 100.0, 100.0 + PAUSE_S, *(10_000.0 + 600.0 * at for at in range(40))]
    units = [ReplayUnit(**one, unit_id=at, recorded_at=time_s) for at, time_s in enumerate(times, 1)]
    sizes = [sum(found.cluster == name for found in divided(units, PAUSE_S)) for name in ("one 1", "one 3", "one 4", "one 16")]
    assert sizes == [2, 1, 12, 12]
    assert sizes[2] == MOST_PAUSES * PAUSE_S / 600.0


def test_one_that_goes_on_holds_up_those_that_began_later():
    units = stream([1] * 20, np.random.default_rng(1), hours=0.1)
    long = ReplayUnit(**BARE, unit_id=0, request="0", cluster="long", recorded_at=units[0].recorded_at)
    later = ReplayUnit(**BARE, unit_id=99, request="99", cluster="long", recorded_at=long.recorded_at + 1700.0)
    found = [long, *units, later]
    found.sort(key=lambda one: one.recorded_at)
    assert divided(found, PAUSE_S, now_s=later.recorded_at + PAUSE_S) == []
    assert len(divided(found, PAUSE_S, now_s=later.recorded_at + 1.2 * PAUSE_S)) == 22


@pytest.fixture
def service(tmp_path):
    made = Service(tmp_path / "pilot.db", models(nano=equal, big=truth), pause_s=PAUSE_S)
    yield made
    made.vine.close()


def after(service, seconds):
    """A look after so many seconds."""
    service.look()
    pilot = service.pilot._pilot
    now_s = pilot._now()
    pilot._now = lambda: now_s + seconds
    return service.look()


def test_a_service_proves_with_whole_threads_and_another_process_finds_the_same(service, tmp_path):
    for turn in range(2):
        for chat in range(210):
            service.ask([1000 * turn + chat], talk=f"t{chat}")
    assert after(service, 0.0).candidates == []
    state = after(service, 1.2 * PAUSE_S)
    assert state.plan == {"kind": "alone", "models": ["nano"]}
    kept = service.pilot._pilot.kept.units
    assert len({unit.cluster for unit in kept.values()}) == 210
    assert state.chosen == began(kept[state.chosen])
    chose = [unit for unit in kept.values() if began(unit) <= state.chosen]
    assert len(chose) == CHOOSING
    _, found = service.pilot._pilot._conversations["name:grade"]
    service.vine.close()
    other = Service(tmp_path / "pilot.db", models(nano=equal, big=truth), pause_s=PAUSE_S)
    after(other, 1.2 * PAUSE_S)
    _, again = other.pilot._pilot._conversations["name:grade"]
    assert again.over(math.inf) == found.over(math.inf)
    other.vine.close()


def test_prompts_that_continue_each_other_are_a_conversation_of_a_service(service):
    chat = service.vine.chat_model("grade", default="big")
    for number in range(3):
        said = [("user", f"Question {number}")]
        for turn in range(3):
            answer = chat.invoke(said)
            said += [("assistant", answer.content), ("user", f"Question {100 * turn + number}")]
    after(service, 0.0)
    _, found = service.pilot._pilot._conversations["name:grade"]
    sizes = {
        name: sum(one.cluster == name for one in found.over(math.inf)) for name in {one.cluster for one in found.over(math.inf)}
    }
    assert sorted(sizes.values()) == [3, 3, 3]


def test_another_pause_ends_the_race(service, tmp_path):
    service.ask(range(200))
    assert after(service, 1.2 * PAUSE_S).candidates
    service.vine.close()
    other = Service(tmp_path / "pilot.db", models(nano=equal, big=truth), pause_s=60.0)
    other.look()
    assert other.pilot._pilot.steps["name:grade"].candidates == []
    other.vine.close()
