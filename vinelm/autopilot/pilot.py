"""The pilot of a service: the only process that tries cheaper models, proves plans and raises their shares. Spends money."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from typing import Any

from vinelm.autopilot.raising import HOLDOUT, Raising, Took
from vinelm.autopilot.settings import PilotSettings
from vinelm.autopilot.state import StepState, plain
from vinelm.backends.remote.batches import BatchTimes
from vinelm.catalog import Catalog
from vinelm.plans.assignment import place_of
from vinelm.proof import Ended
from vinelm.replay.asking import Asker
from vinelm.replay.bill import StepBill
from vinelm.replay.conversations import Conversations, began
from vinelm.replay.kept import Kept, ReplayUnit, number_of
from vinelm.replay.plans import Follower, PlanAnswer
from vinelm.replay.replaying import CHOOSING, LEAST_SAVED, ReplayRun, StepRun
from vinelm.replay.same import Sameness
from vinelm.requests.protocols import Backend
from vinelm.traces import ObservationStore
from vinelm.traces.served import piloted
from vinelm.traces.served.piloted import ServedRows
from vinelm.traces.store.batches import BatchRecords

MOST_UNITS = 4000
"""How many recorded calls of an attempt may be used for a proof."""
MORE_SAVED = 0.08
"""While a plan serves, another plan must save this much more to be proven."""
LABELS_KEPT = 0.5
"""The part of the remaining labels that the search for a better plan may use once a plan is proven."""
AGAIN_AFTER = 2000
"""How many calls are recorded after a failed attempt before the next attempt."""
SEED = 0
RETRY_S = 60.0
"""Seconds after which batches are waited for again if that has failed."""
BEAT_S = 20.0
"""Seconds after which the pilot notes in the store that it is alive, even without new records."""
_LOG = logging.getLogger("vinelm")


def today_utc() -> int:
    """Return the number of the current UTC day, counted from 1970."""
    return int(time.time() // 86_400.0)


class Pilot:
    """Tries cheaper models, proves plans and sets their shares. It works in rounds: each round processes the service's new
    records, and stores the state.

    A round calls models within the day's budget. Every call's maximum cost is stored before the call, and all decisions are
    stored when a round ends. So another pilot can continue from there.

    Args:
        store: The store, open and locked by :meth:`~vinelm.traces.ObservationStore.exclusive`.
        catalog: The models.
        backends: The backends, by provider.
        settings: The limits that the owner has set.
    """

    def __init__(
        self,
        store: ObservationStore,
        catalog: Catalog,
        backends: Mapping[str, Backend],
        settings: PilotSettings,
    ) -> None:
        self.kept, self.served = Kept(store), ServedRows(store)
        self.catalog, self.settings, self._backends = catalog, settings, backends
        self._day: Callable[[], int] = today_utc
        self._now: Callable[[], float] = time.time
        self._conversations: dict[str, tuple[int, Conversations]] = {}
        self._is_used_up: dict[str, bool] = {}
        self.same: Sameness = settings.sameness()
        self.follower = Follower(self.kept, self.same, settings.check)
        self.notes: dict[str, Any] = {"attempt": 0, "steps": {}, "day": -1, **self.kept.rows.notes()}
        self.steps = {key: StepState.of(found) for key, found in self.notes["steps"].items()}
        self._raisings: dict[str, Raising] = {}
        serving = [state.served_since for state in self.steps.values() if state.plan is not None]
        self._read_to = min(serving, default=self.served.last_id())
        self._asker: Asker | None = None
        self._asker_day, self._asker_s = -1, 0.0
        self._seen: Any = None
        entries = {entry.name: entry_digest(entry) for entry in catalog.entries}
        for state in self.steps.values():
            self._compare_entries(state, entries)
        self._compare_settings()

    def close(self) -> None:
        """Release the connections to the models."""
        if self._asker is not None:
            self._asker.close()

    def round(self) -> bool:
        """Process new records and newly ended conversations, store the state, and return True; False if nothing is new."""
        before = max(self.kept.units, default=0)
        self.kept.load_units()
        ended = 0 if self._asker is None else self._asker.take_in()
        self._beat()
        seen = (
            max(self.kept.units, default=0), self.served.last_id(), len(self.kept.rows.labels()), self._day(),
            sum(len(found.over(self._now())) for _, found in self._conversations.values()), ended,
        )  # fmt: skip
        if seen == self._seen:
            return False
        self._seen = seen
        for unit in self.kept.units.values():
            if unit.unit_id > before or unit.step not in self.steps:
                new = StepState(unit.title, unit.model, labels=self.settings.labels)
                new.entries = {entry.name: entry_digest(entry) for entry in self.catalog.entries}
                self.steps.setdefault(unit.step, new)
        self._count_served()
        self._search()
        self._note()
        return True

    def _compare_entries(self, state: StepState, entries: Mapping[str, str]) -> None:
        """Begin a new attempt to find a plan for a step if a change of the catalog or the accepted loss may lead to another
        result.

        If a plan serves, a new attempt begins if the catalog entry of a model of the plan, or of the current model, has
        changed. It also begins if the plan's proof allows a larger loss than is accepted now. If no plan serves, a new attempt
        begins if the last one has ended and the catalog has a new model.

        ``entries`` has the current :func:`entry_digest` of each model of the catalog.
        """
        plans = [one for one in (state.plan, state.below) if one is not None]
        served = {state.today, *(model for plan in plans for model in plan["models"])}
        changed = [model for model in served if model in state.entries and entries.get(model) != state.entries[model]]
        if plans and changed:
            self._begin(state, f"the entry of {changed[0]} in the catalog has changed")
        elif plans and (state.proven or 1.0) > self.settings.max_loss:
            self._begin(state, f"it is proven to lose less than {100 * (state.proven or 1.0):g} points only")
        elif not plans and state.ended and entries.keys() - state.entries.keys():
            self._begin(state, "")
        state.entries = dict(entries)

    def _compare_settings(self) -> None:
        """If answers are now compared in another way, let the current model of every step answer all calls again.

        Then a new search for plans begins. If only the judge or the pause between conversations has changed, the proofs in
        progress are abandoned, but plans that serve already continue to serve.
        """
        comparing, judge, pause_s = self.settings.comparing, self.settings.judge or "", self.settings.pause_s
        has_changed = self.notes.get("comparing", comparing) != comparing
        for state in self.steps.values():
            if has_changed:
                self._begin(state, "how answers are compared has changed")
            elif (self.notes.get("judge", ""), self.notes.get("pause_s", pause_s)) != (judge, pause_s):
                state.candidates, state.race_since = [], max(self.kept.units, default=0)
        self.notes |= {"comparing": comparing, "judge": judge, "pause_s": pause_s}

    def _beat(self) -> None:
        """Record in the store that a pilot runs now. Other processes serve plans only if the last such record is recent."""
        if time.time() - self.notes.get("piloted_at", 0.0) > BEAT_S:
            self._note()

    # -- money -------------------------------------------------------------------------------------------------------------

    def _asking(self) -> Asker:
        """Return the object that calls models within the day's budget. Unspent money of earlier days does not carry over."""
        day = max(self._day(), self.notes["day"])  # a clock that is set back must not open a second day
        has_ended = self._asker is not None and self._asker.problem is not None and time.monotonic() > self._asker_s + RETRY_S
        if self._asker is None or self._asker_day != day or has_ended:
            self.close()
            records = BatchRecords(self.kept.store)
            if self.notes["day"] < day:
                # A batch that is open now counts on both days: what its price leaves of its bound makes no room today.
                self.kept.store.abandon_open()
                held_usd = sum(records.abandoned().values())
                self.notes |= {"day": day, "before_usd": self.kept.store.committed_usd() - held_usd}
                self._note()
            times = self.settings.batches
            if times is None and records.requests():  # they were in use: what is bought is fetched
                times = BatchTimes()
            budget = self.notes["before_usd"] + self.settings.shadow_usd_per_day
            self._asker = Asker(
                self.kept, self.catalog, budget_usd=budget, workers=self.settings.workers, backends=self._backends, times=times,
                is_waiting=False,
            )  # fmt: skip
            self._asker_day, self._asker_s = day, time.monotonic()
            self._asker.fetch(self.settings.judge)
        return self._asker

    # -- what is proven ------------------------------------------------------------------------------------------------------

    def _run_of(self, work: ReplayRun, key: str, state: StepState) -> StepRun | None:
        """Return an object that replays a step's recorded calls of the current attempt, in order.

        None if the attempt has ended or has no call yet. Also decides whether more calls should be recorded; if enough calls
        were recorded after an attempt without a plan, a new attempt begins.
        """
        units = [unit for unit in self.kept.of_step(key) if unit.unit_id > state.since and unit.model == state.today]
        if state.ended:
            state.wants_units = state.plan is not None or len(units) < AGAIN_AFTER  # a plan is compared with today's model
            if state.plan is None and len(units) >= AGAIN_AFTER and self._labels_left():
                self._begin(state, "")
            return None
        over, since = self._over(key, state, units), max(state.race_since, state.chosen)
        came = sum(unit.unit_id > since for unit in units) - (0 if state.chosen else CHOOSING)
        state.wants_units = state.plan is not None or came < MOST_UNITS
        proving = [unit for unit in over if began(unit) > since][: MOST_UNITS if state.chosen else None]
        self._is_used_up[key] = len(proving) >= MOST_UNITS or not (state.wants_units or len(over) < len(units))
        units = [unit for unit in over if began(unit) <= state.chosen] + proving
        if not units:
            return None
        bill = StepBill(key, state.title, is_named=key.startswith("name:"))
        bill.models = Counter({state.today: len(units)})
        state.today_usd = sum(unit.cost_usd for unit in units) / len(units)
        timed = [unit.latency_s for unit in units if unit.latency_s is not None]
        state.today_s = sum(timed) / len(timed) if timed else 0.0
        bill.calls, bill.cost_usd = len(units), sum(unit.cost_usd for unit in units)
        run = work.study(bill, None, units, is_stream=True)
        run.dropped = dict(state.dropped)
        run.labels, run.least_saved, run.max_slowdown = state.labels, self._least_saved(state), self.settings.max_slowdown
        if state.candidates:
            work.take_up(run, {"candidates": state.candidates, "dropped": state.dropped, "labels": state.labels})
        return run

    def _over(self, key: str, state: StepState, units: Sequence[ReplayUnit]) -> list[ReplayUnit]:
        """Return a step's recorded calls that belong to finished conversations, ordered by conversation.

        ``units`` are the recorded calls of the step ``key`` since its present search for a plan began.
        """
        since, found = self._conversations.get(key, (-1, None))
        if found is None or since != state.since:
            found = Conversations(self.settings.pause_s)
            self._conversations[key] = state.since, found
        for unit in units:
            if unit.unit_id > found.last:
                self.kept.units[unit.unit_id] = found.add(unit, partial(self.kept.prompt, unit))
        return found.over(self._now())

    def _least_saved(self, state: StepState) -> float:
        return LEAST_SAVED if state.plan is None else min(state.saved + MORE_SAVED, 0.99)

    def _labels_left(self) -> int:
        answered = {label["question_id"] for label in self.kept.rows.labels()}
        return max(self.settings.labels - len(answered), 0)

    def _search(self) -> None:
        """Call models, choose candidate plans and try to prove one of them for each step, as far as the recorded calls and the
        budget allow.
        """
        asker = self._asking()
        work = ReplayRun(
            self.kept, asker, self.catalog, self.same, self.follower, budget_usd=max(asker.spent_usd + asker.left_usd, 1e-9),
            max_loss=self.settings.max_loss, labels=self._labels_left(), seed=SEED, with_check=self.settings.check is not None,
            workers=self.settings.workers, show_text=False, on_line=lambda line: None, is_simulated=False, again=False,
            judge=self.settings.judge, asked=frozenset(self.settings.models or self.catalog), days={}, choosing_share=1.0,
            alpha=self.settings.alpha,
        )  # fmt: skip
        runs = []
        for key, state in self.steps.items():
            run = self._run_of(work, key, state)
            if run is None:
                continue
            runs.append(run)
            if not run.models:
                self._end(state, "no model of the catalog would save a fifth of its dollars")
                continue
            if not state.candidates:
                self._choose(work, run, state)
            if state.candidates:
                self._race(work, run, state)
        work.open_questions(runs)

    def _choose(self, work: ReplayRun, run: StepRun, state: StepState) -> None:
        """Send the new prompts to the models; once there are enough answers, choose the plans to be tested for a proof."""
        if not state.chosen:
            work.explore([run])
            state.dropped = dict(run.dropped)
            asked = [(unit, model) for model in run.live() for unit in run.units[: run.choosing]]
            if run.is_short or not all(work.asker.is_known(unit, model) for unit, model in asked):
                return  # waits for more calls, or for the dollars of another day
            state.chosen = state.race_since = max(map(began, run.units[: run.choosing]))
        labels = self._labels_left()
        labels = labels if state.plan is None else int(LABELS_KEPT * labels)
        work.choose([run], labels)
        if not run.candidates:
            self._end(state, "nothing cheaper can be proven within the labels that are left")
            return
        self.notes["attempt"] += 1
        run.labels = labels
        state.attempt, state.labels = self.notes["attempt"], labels
        state.candidates = [[one.name, one.saved, one.differing] for one in run.candidates]
        self._note()  # before any plan learns a label

    def _race(self, work: ReplayRun, run: StepRun, state: StepState) -> None:
        work.ask_in_turn([work.race(run, state.attempt)])
        assert run.race is not None
        end = run.race.next()
        if not isinstance(end, Ended) or (end.reason == "requests" and not self._is_used_up[run.bill.key]):
            return
        if end.reason != "proven":
            spent = {
                "labels": f"{state.labels} labels have proven nothing",
                "requests": f"{MOST_UNITS:,} calls have proven nothing",
            }
            self._end(state, spent.get(end.reason, "nothing can be proven any more"))
            return
        at = next(one for one in run.race.standings() if one.candidate == end.candidate)
        plan = run.plans[at.candidate]
        done: list[tuple[ReplayUnit, PlanAnswer]] = work.followed(plan, run.units[: run.choosing + at.requests])
        state.below, state.plan, state.saved, state.proven = state.plan, plain(plan), at.saved, at.proven
        state.escalated = [sum(one.model is None for _, one in done), len(done)]
        state.differing = [at.differing, at.requests]
        state.served_attempt, state.served_since = state.attempt, self.served.last_id()
        self._raisings.pop(run.bill.key, None)  # belongs to the previous plan
        state.share = self._raising(run.bill.key, state).share
        # The next attempt is for plans that save more, on calls from now on. Calls that served to choose may serve again.
        state.candidates, state.race_since = [], max(self.kept.units)
        run.open = []
        _LOG.warning("autopilot: step %s: proven: %s, which saves %.0f %%", state.title, at.candidate, 100 * at.saved)

    # -- what serves ----------------------------------------------------------------------------------------------------------

    def _raising(self, key: str, state: StepState) -> Raising:
        """Return the object that decides what share of the requests a step's plan serves.

        It is made once for each plan in this process, from the figures of the plan's proof.
        """
        if key not in self._raisings:
            plan = state.plan_of("plan")
            self._raisings[key] = Raising(
                self.settings.max_loss, (state.escalated[0], state.escalated[1]), (state.differing[0], state.differing[1]),
                state.saved, Took(state.today_usd, state.today_s), max_slowdown=self.settings.max_slowdown,
                is_alone=plan is not None and plan.kind == "alone", has_below=state.below is not None,
            )  # fmt: skip
        return self._raisings[key]

    def _count_served(self) -> None:
        """Count the served calls since the last round, and raise a plan's share or roll the plan back.

        A new pilot counts all calls since the plan's proof.
        """
        for row in self.served.after(self._read_to):
            self._read_to = row["served_id"]
            state = self.steps.get(row["step"])
            if state is None or state.plan is None or row["attempt"] != state.served_attempt:
                continue
            if row["served_id"] <= state.served_since:
                continue
            raising = self._raising(row["step"], state)
            for letter, found in zip_longest(row["outcomes"], json.loads(row["figures"])):
                _COUNTED[letter](raising, None if found is None else Took(*found))
        for key, state in self.steps.items():
            if state.plan is None:
                continue
            raising = self._raising(key, state)
            state.share = raising.share
            if raising.alarm is not None:
                self._begin(state, raising.alarm)
            else:
                self._compare(key, state)

    def _compare(self, key: str, state: StepState) -> None:
        """Run the plan on a sample of prompts that the current model has answered, and count the answers that differ."""
        plan = state.plan_of("plan")
        if plan is None or state.share <= 0.0:
            return
        chance = HOLDOUT / max(1.0 - state.share, HOLDOUT)
        done = self.notes.setdefault("compared", {})
        last = max(done.get(key, 0), state.race_since)
        new = [unit for unit in self.kept.of_step(key) if unit.unit_id > last and unit.model == state.today]
        drawn = [unit for unit in new if place_of(f"compared:{unit.unit_id}") < chance]
        asker, outcomes = self._asking(), ""
        found = {unit.unit_id: self.follower.follow(plan, unit, asker.is_known) for unit in drawn}
        while wanted := [(unit, one) for unit in drawn if isinstance(one := found[unit.unit_id], str)]:
            asker.ask(wanted)
            later = {unit.unit_id: self.follower.follow(plan, unit, asker.is_known) for unit, _ in wanted}
            if all(later[unit.unit_id] == one for unit, one in wanted):
                break  # the day's dollars are spent, or the answers come with a batch
            found |= later
        for unit in new:
            answer = found.get(unit.unit_id)
            if isinstance(answer, str):
                break  # answers count in their order
            if answer is not None:
                outcomes += piloted.SAME if self.follower.is_same(unit, answer) else piloted.DIFFERENT
            done[key] = unit.unit_id
        if outcomes:
            row = {"step": key, "attempt": state.served_attempt, "day": self._day(), "outcomes": outcomes}
            self.served.add([{**row, "figures": "[]", "usd": 0.0, "saved_usd": 0.0}])

    def _end(self, state: StepState, why: str) -> None:
        """End a step's attempt that has proven no plan; ``why`` is the reason. A plan that already serves still serves."""
        state.ended, state.candidates = why, []
        if state.plan is None:
            state.since, state.chosen = max(self.kept.units, default=0), 0

    def _begin(self, state: StepState, why: str) -> None:
        """Stop serving a step's plan, if it has one, and begin a new attempt to find a plan.

        From now on, the current model answers all calls of the step. The new attempt uses only calls that are recorded from now
        on. ``why`` is the reason; if a plan was serving, the reason is logged and stored as an alarm.
        """
        if why and state.plan is not None:
            day = datetime.fromtimestamp(self._day() * 86_400.0, UTC).date().isoformat()
            state.alarms.append([day, why])
            _LOG.warning("autopilot: step %s runs today's model again: %s", state.title, why)
        kept = StepState(state.title, state.today, since=max(self.kept.units, default=0), labels=self.settings.labels)
        kept.alarms, kept.entries = state.alarms[-20:], state.entries
        state.__dict__.update(kept.__dict__)
        key = next(name for name, one in self.steps.items() if one is state)
        self._raisings.pop(key, None)

    def _note(self) -> None:
        self.notes |= {"steps": {key: state.to_dict() for key, state in self.steps.items()}, "piloted_at": time.time()}
        self.kept.rows.note(self.notes)


_COUNTED: Mapping[str, Callable[[Raising, Took | None], None]] = {
    piloted.TODAY: lambda one, took: one.ran_as_today(took),
    piloted.BELOW: lambda one, took: one.ran_as_today(took),
    piloted.PLAN: lambda one, took: one.served(has_escalated=False, took=took),
    piloted.ESCALATED: lambda one, took: one.served(has_escalated=True, took=took),
    piloted.SAME: lambda one, _: one.compared(is_same=True),
    piloted.DIFFERENT: lambda one, _: one.compared(is_same=False),
    piloted.PLAN_RIGHT: lambda one, _: one.feedback(is_plan=True, score=1.0),
    piloted.PLAN_WRONG: lambda one, _: one.feedback(is_plan=True, score=0.0),
    piloted.TODAY_RIGHT: lambda one, _: one.feedback(is_plan=False, score=1.0),
    piloted.TODAY_WRONG: lambda one, _: one.feedback(is_plan=False, score=0.0),
}


def entry_digest(entry: Any) -> str:
    """Return a digest of a catalog entry's model, address and prices, which changes if any of them changes."""
    return f"{number_of(json.dumps(entry.model_dump(mode='json'), sort_keys=True, default=str)):032x}"
