"""``Autopilot``, which moves a running service to cheaper models: its settings, its threads and its records."""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from vinelm.api.draws import Draws
from vinelm.autopilot.pilot import Pilot, today_utc
from vinelm.autopilot.settings import PilotSettings
from vinelm.autopilot.state import Part, StepState
from vinelm.autopilot.watched_models import WatchedModels
from vinelm.backends.remote.batches import BatchTimes
from vinelm.backends.resolver import ModelResolver
from vinelm.errors import ConfigError, StoreError, VineLMError
from vinelm.foreign_code import answered
from vinelm.profiler.execution.batch_api import having_batches
from vinelm.replay.bill import dollars_of
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.own import MARK, calls_of
from vinelm.replay.kept import number_of, row_of
from vinelm.replay.same import Message, named_function
from vinelm.replay.steps import step_of
from vinelm.template import Stage, Template
from vinelm.threads import Repeated
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.databases import opening
from vinelm.traces.databases.address import address_of
from vinelm.traces.served import piloted
from vinelm.traces.served.piloted import ServedRows
from vinelm.traces.served.replayed import ReplayRows

WORKFLOW = "autopilot"
POINTS = 1.0
ALPHA = 0.05
PAUSE_S = 1800.0
LABELS = 100
EVERY_S = 1.0
"""Seconds between two looks at the store: new records are written, and changes are read."""
PAUSE = 9.0
"""Length of a pause of the pilot, in multiples of the preceding round."""
COMPARED_A_DAY = 2000
"""How many calls of a step a process records per day while its plan serves and no better plan is sought."""
SAID_EVERY_S = 60.0
"""Seconds between two log lines saying that the store cannot be used."""
STALE_S, STALE_LOOKS = 120.0, 20.0
"""After this many seconds and looks without a pilot, requests run today's model, since no alarm would be noticed."""
MOST_WAITING = 10_000
"""How many calls may wait to be written; beyond that the oldest are dropped."""
SETTLED_S = 20
"""A request is complete once it has made no call of a step for this number of looks: then one of its calls is drawn to count.
"""
REMEMBERED = 10_000
"""How many requests are remembered for feedback."""
_LOG = logging.getLogger("vinelm")


@dataclass
class Counted:
    """The outcomes of a step's calls that are not yet written to the store.

    Attributes:
        outcomes: a text of one letter for each call and each feedback. A call's letter states who answered the call, a
            feedback's letter whether the answer was right. The letters are defined in :mod:`vinelm.traces.served.piloted`.
        figures: for each letter, (the call's cost in dollars, its seconds). None for a feedback, and for a call whose cost and
            seconds are not compared between plans.
        usd: the total cost in dollars of the calls that ran a plan.
        calls: the number of calls that ran a plan.
    """

    outcomes: str = ""
    figures: list[tuple[float, float] | None] = field(default_factory=list)
    usd: float = 0.0
    calls: int = 0

    def add(self, outcome: str, took: tuple[float, float] | None = None) -> None:
        """Count a call.

        Args:
            outcome: how the call went, as a letter of :mod:`vinelm.traces.served.piloted`.
            took: (the call's cost in dollars, its seconds); None if they are not compared between plans.
        """
        self.outcomes += outcome
        self.figures.append(took)

    def followed_by(self, later: Counted) -> Counted:
        """Return the counts and call outcomes of both objects together, with those of ``later`` at the end."""
        return Counted(
            self.outcomes + later.outcomes, self.figures + later.figures, self.usd + later.usd, self.calls + later.calls
        )


class Autopilot:
    """Moves a service to cheaper models automatically: it serves only proven plans, and watches them.

    Pass it to :class:`~vinelm.VineLM`, or to the gateway. The current setup keeps running. The calls of each step are recorded
    in ``store``. Cheaper models of the catalog get the recorded prompts, outside of requests and within a daily budget. If
    their answers differ from the current ones, questions are stored for ``vinelm label STORE``. A plan proven to lose less than
    ``max_loss`` serves 5, 25, then 95 % of the requests. A call of the plan escalates if the current model has to answer it.
    The plan is rolled back if it no longer behaves as in its proof: its calls escalate more or less often, or its answers
    differ more or less often on the 5 % that still run the current model. It is also rolled back if feedback is worse, or if it
    saves less than half of its proven savings. Several processes may share a store: one of them calls the models and decides.

    Args:
        store: The file that keeps everything, prompts and answers included (mode 600), or ``postgresql://user@host/database``.
        max_loss: Points of accuracy that a step may lose, above 0: the chance that the service ever serves a plan that loses
            more is at most ``alpha``, as long as requests, models and prompts stay as in the proof.
        alpha: The chance named in ``max_loss``, for all steps and attempts together.
        shadow_usd_per_day: The most dollars that recorded prompts may cost in one UTC day.
        labels: How many questions people are willing to answer, in total.
        models: Entries of the catalog that may be called; empty: all of them.
        same: A function ``same(recorded, other)`` that tells whether two free texts are the same, or its name as
            ``module:function``.
        check: A function ``check(messages, answer)`` that tells whether the application accepts an answer, or its name.
        database: A SQLite file on which SQL in answers is executed: queries that return the same rows count as the same answer.
        ignore: Fields of structured output that are ignored when answers are compared.
        audit: Share of equal answers that people are asked about, as an audit; see :class:`~vinelm.replay.Sameness`.
        workers: How many recorded prompts are sent at a time.
        max_slowdown: The limit on the mean seconds of a plan's calls, in multiples of the current model's: slower plans are not
            tried, and a plan that becomes slower is rolled back. None: no limit.
        judge: An entry of the catalog that compares answers that differ, twice each. It is tested on the labels, reduces their
            number if it is right, and never decides; see :func:`~vinelm.replay.replay`. None: no judge.
        pause_s: Seconds without a call after which a conversation is over, and may be used for a proof as a whole; 0: calls are
            independent. Conversations are defined as for :func:`~vinelm.replay.replay`, or by ``thread_id``.
        batch_prices: Send recorded prompts in the providers' batches, for half the price, if available. Each wave may take a
            day; requests and other models do not wait for it. In Python also how long to wait.
        draw_secret: At least 16 characters known only to you: requests are assigned to plans by a hash of this secret and their
            names. None: the value of ``VINELM_DRAW_SECRET``, else a secret in a file next to the store.
        every_s: Seconds between two readings of the store.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(
        self,
        store: str | Path,
        *,
        max_loss: float = POINTS,
        alpha: float = ALPHA,
        shadow_usd_per_day: float = 2.0,
        labels: int = LABELS,
        models: Sequence[str] = (),
        same: str | Callable[[str, str], bool] | None = None,
        check: str | Callable[[Any, Message], bool] | None = None,
        database: str | Path | None = None,
        ignore: Sequence[str] = (),
        audit: float | None = None,
        workers: int = 4,
        max_slowdown: float | None = None,
        judge: str | None = None,
        pause_s: float = PAUSE_S,
        batch_prices: bool | BatchTimes = False,
        draw_secret: str | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        self.settings = PilotSettings(
            store=address_of(store), max_loss=max_loss / 100.0, alpha=alpha, shadow_usd_per_day=shadow_usd_per_day,
            labels=labels, models=tuple(models), same=same, check=None if check is None else named_function(check, "check"),
            database=database, ignore=tuple(ignore), audit=audit, workers=workers, max_slowdown=max_slowdown,
            judge=judge, pause_s=pause_s,
            batches=BatchTimes() if batch_prices is True else batch_prices or None,
        )  # fmt: skip
        if not every_s > 0.0:
            raise ConfigError(f"every_s is {every_s}: give seconds > 0")
        self._every_s, self._secret = every_s, draw_secret
        self._same = self.settings.sameness()
        self._lock, self._turn = Lock(), Lock()
        self._calls: deque[LoggedCall] = deque(maxlen=MOST_WAITING)
        self._outcomes: dict[tuple[str, int], Counted] = {}
        self._settling: OrderedDict[tuple[str, str], list[Any]] = OrderedDict()
        self._ran: OrderedDict[str, dict[str, bool]] = OrderedDict()
        self._states: Mapping[str, StepState] = {}
        self._draws: Draws | None = None
        self._store: ObservationStore | None = None
        self._looking: Repeated | None = None
        self._piloting: Repeated | None = None
        self._pilot: Pilot | None = None
        self._held = ExitStack()
        self._looks = 0
        self._said_s = -SAID_EVERY_S
        self._next_s = 0.0
        self._recorded_on: Counter[tuple[str, int]] = Counter()
        self._pid = os.getpid()
        self._piloted_at = 0.0

    # -- with a service ----------------------------------------------------------------------------------------------

    def around(self, models: ModelResolver) -> WatchedModels:
        """Start the autopilot, and return a wrapper around ``models`` that the service must use from now on to make its chat
        models.

        Raises:
            ConfigError: The autopilot already serves, a named model is not in the catalog, or the store is not an autopilot's.
            StoreError: The store cannot be used.
        """
        if self._store is not None:
            raise ConfigError("the autopilot serves already: make one for each VineLM; they may share a store")
        named = (*self.settings.models, *([] if self.settings.judge is None else [self.settings.judge]))
        if unknown := [name for name in named if name not in models.catalog]:
            raise ConfigError(f"autopilot: unknown model {unknown[0]!r}: the catalog has {', '.join(models.catalog)}")
        if self.settings.batches is not None and not having_batches(tuple(models.catalog), models.catalog, models.backends):
            raise ConfigError("autopilot: no model has batch prices: leave batch_prices out")
        address = self.settings.store
        if isinstance(address, Path) and not address.exists():
            if not address.parent.is_dir():
                raise ConfigError(f"{address}: its folder does not exist: make it first")
            with suppress(FileExistsError):  # another process was faster
                os.close(os.open(address, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        self._models = models
        self._store = self._opened()
        self._draws = Draws.of(self._secret, address if isinstance(address, Path) else None)
        self._made_tables()
        self._read()
        self._looking = Repeated(self._look, self._every_s, name="vinelm-autopilot-record")
        self._piloting = Repeated(self._pace, self._every_s, name="vinelm-autopilot", is_at_once=True)
        atexit.register(self.close)
        return WatchedModels(models, self)

    def _opened(self) -> ObservationStore:
        """Open the store and return it; create it if it is missing.

        The store's identity contains the catalog at the time of creation. The pilot records the current models and prices in
        the store's notes, since they may change while a service runs.
        """
        address = self.settings.store
        if not opening.exists(address):
            catalog = self._models.catalog
            identity = StoreIdentity(
                workflow=WORKFLOW, template=Template((Stage("call", tuple(catalog)),)).to_dict(), catalog=catalog.to_dict(),
                dataset_digest="", fingerprint={},
                is_simulated=any(backend.is_simulated for backend in self._models.backends.values()),
            )  # fmt: skip
            with suppress(StoreError):  # another process was faster
                return ObservationStore.create(address, identity)
        store = ObservationStore.open(address)
        if store.identity.workflow != WORKFLOW:
            store.close()
            raise ConfigError(f"{address}: is the store of something else: name another file for the autopilot")
        return store

    def _made_tables(self) -> None:
        assert self._store is not None
        if ReplayRows(self._store).is_new:
            with suppress(StoreError), self._store.exclusive():  # else another process makes them
                rows = ReplayRows(self._store)
                if rows.is_new:
                    ServedRows(self._store).create()
                    rows.create([], {"attempt": 0, "steps": {}})

    def close(self) -> bool:
        """Write pending records, and let another process become the pilot (the process that calls models and decides). Return
        False if some records are lost.

        Idempotent; also done when the process ends.
        """
        if self._store is None or os.getpid() != self._pid:
            return True
        for thread in (self._piloting, self._looking):
            if thread is not None:
                thread.stop()
        self._looks += SETTLED_S  # no further calls come
        self._look()
        self._let_go()
        self._store.close()
        self._store = None
        atexit.unregister(self.close)
        return not self._calls

    # -- in the path of a request: nothing here raises or waits for the store ----------------------------------------------

    def state_of(self, step: str) -> StepState | None:
        """Return the step's current state; None for an unknown step."""
        return self._states.get(step)

    def part_of(self, state: StepState, key: str) -> Part:
        """Return which group a request belongs to: "plan" runs the newest proven plan, "below" the plan proven before it,
        "today" the current model.

        The group follows from a hash of ``key``, the request's name. It is the same for all of the request's calls unless the
        plans' shares change.
        """
        if state.plan is None or self._draws is None or self._is_cut_off:
            return "today"
        return state.assignment().of(self._draws.key("autopilot", "request", "", key))

    @property
    def _is_cut_off(self) -> bool:
        """Whether this process must not serve plans, because it could miss an alarm.

        True in a forked process, which has no threads. Also True while no process runs the
        :class:`~vinelm.autopilot.pilot.Pilot`, which would raise the alarm.
        """
        return os.getpid() != self._pid or time.time() - self._piloted_at > max(STALE_S, STALE_LOOKS * self._every_s)

    def recorded(self, call: LoggedCall) -> None:
        """Record a call of the current model."""
        if os.getpid() == self._pid:
            self._calls.append(call)

    def counted(self, step: str, key: str, outcome: str, usd: float, seconds: float | None = None) -> None:
        """Count a call's outcome, its cost in dollars and its seconds, summed over all models called.

        Without ``seconds``, neither the cost nor the seconds are compared between plans.

        Args:
            step: The key of the call's step.
            key: The request's name.
            outcome: A letter that states who answered; the letters are listed in :mod:`vinelm.traces.served.piloted`.
            usd: The cost in dollars.
            seconds: The seconds; None if they are unknown or the call was not assigned to a plan at random.
        """
        state = self._states.get(step)
        if state is None or state.plan is None:
            return
        is_plan = outcome in (piloted.PLAN, piloted.ESCALATED)
        with self._lock:
            counted = self._outcomes.setdefault((step, state.served_attempt), Counted())
            ran = self._ran.setdefault(key, {})
            took = (usd, seconds) if seconds is not None and step not in ran and math.isfinite(usd + seconds) else None
            counted.add(outcome, took)
            if outcome != piloted.TODAY:
                counted.usd, counted.calls = counted.usd + usd, counted.calls + 1
            ran[step] = is_plan
            while len(self._ran) > REMEMBERED:
                self._ran.popitem(last=False)

    def is_same(self, one: Message, other: Message) -> bool:
        """Return whether two answers count as the same, by the owner's settings for comparing answers."""
        return self._same(one, other)

    def passes(self, messages: Any, answer: Message) -> bool:
        """Return whether the owner's ``check`` function accepts an answer to ``messages``; False without such a function."""
        return self.settings.check is not None and bool(self.settings.check(messages, answer))

    def write(self, call: Mapping[str, Any]) -> None:
        """Record a call that the gateway has passed on; ``call`` has the form in which the gateway's recorder stores calls."""
        answered(partial(self._written, call), None)  # a failure to record must not fail a call that was answered

    def _written(self, call: Mapping[str, Any]) -> None:
        for logged in calls_of({MARK: 1, **call}, ""):
            self.recorded(logged)
            usd = dollars_of(logged)
            self.counted(step_of(logged).key, logged.request, piloted.TODAY, usd or 0.0)

    def feedback(self, run: str, score: float) -> None:
        """Count feedback on the answer of a request, a score in [0, 1] of which 0.5 or more means right, once per request.

        Args:
            run: The request's name, unique among all tenants.
            score: The feedback.
        """
        with self._lock:
            for step, is_plan in self._ran.pop(run, {}).items():
                state = self._states.get(step)
                if state is not None and state.plan is not None:
                    right, wrong = (
                        (piloted.PLAN_RIGHT, piloted.PLAN_WRONG) if is_plan else (piloted.TODAY_RIGHT, piloted.TODAY_WRONG)
                    )
                    counted = self._outcomes.setdefault((step, state.served_attempt), Counted())
                    counted.add(right if score >= 0.5 else wrong)

    # -- the threads ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Write new records to the store, and read the current state of each step from there.

        An error is logged, and the next call tries again.
        """
        self._looks += 1
        with self._surviving():
            self._write_waiting()
            self._read()

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Log an exception of the block instead of raising it, so that a failing store or comparison ends no thread."""
        try:
            yield
        except VineLMError as error:
            self._said(error)
        except Exception as error:  # its text may hold a prompt
            self._said(ConfigError(f"unexpected {type(error).__name__}"))

    def _said(self, error: VineLMError) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s > SAID_EVERY_S:
            self._said_s = now_s
            _LOG.warning("autopilot: %s: calls go on, and are counted once it can be used", error)

    def _write_waiting(self) -> None:
        store = self._store
        if store is None:
            return
        while self._calls:
            self._settle(self._calls.popleft())
        places: list[tuple[str, str]] = []
        for place, (looked, _, _) in self._settling.items():
            if self._looks - looked < SETTLED_S and len(self._settling) - len(places) <= MOST_WAITING:
                break
            places.append(place)
        with self._lock:
            outcomes, self._outcomes = self._outcomes, {}
        try:
            with store.together():
                if places:
                    now_s = time.time()  # conversations are told apart by when their calls were written
                    ReplayRows(store).add_units([{**self._settling[place][2], "recorded_at": now_s} for place in places])
                if outcomes:
                    ServedRows(store).add(self._served_row(*one) for one in outcomes.items())
        except StoreError:
            with self._lock:
                for counted, before in outcomes.items():
                    self._outcomes[counted] = before.followed_by(self._outcomes.get(counted, Counted()))
            raise
        for place in places:
            del self._settling[place]

    def _served_row(self, place: tuple[str, int], found: Counted) -> dict[str, Any]:
        step, attempt = place
        state = self._states.get(step)
        usual = 0.0 if state is None else state.today_usd
        return {
            "step": step, "attempt": attempt, "day": today_utc(), "outcomes": found.outcomes,
            "figures": json.dumps(found.figures), "usd": found.usd, "saved_usd": found.calls * usual - found.usd,
        }  # fmt: skip

    def _settle(self, call: LoggedCall) -> None:
        """Keep a call for recording, or drop it. Of the calls that a request makes in one step, only the call with the smallest
        hash is recorded.
        """
        usd = dollars_of(call)
        if not call.answer or call.error is not None or not call.messages or usd is None:
            return
        step = step_of(call)
        state = self._states.get(step.key)
        if state is not None and (not state.wants_units or call.model != state.today):
            return
        if state is not None and state.plan is not None and state.ended:
            on = step.key, today_utc()
            self._recorded_on = Counter({one: count for one, count in self._recorded_on.items() if one[1] == on[1]})
            self._recorded_on[on] += 1
            if self._recorded_on[on] > COMPARED_A_DAY:
                return
        drawn, place = number_of(f"{call.request}\0{call.call}"), (step.key, call.request)
        known = self._settling.pop(place, None)
        if known is None:
            row = {**row_of(call, step, usd), "weight": 1}
        else:
            row = {**row_of(call, step, usd), "weight": known[2]["weight"]} if drawn < known[1] else known[2]
            row["weight"], drawn = row["weight"] + 1, min(drawn, known[1])
        self._settling[place] = [self._looks, drawn, row]

    def _read(self) -> None:
        store = self._store
        if store is None:
            return
        rows = ReplayRows(store)
        if rows.is_new:
            self._made_tables()
            return
        notes = rows.notes()
        self._states = {key: StepState.of(found) for key, found in notes.get("steps", {}).items()}
        self._piloted_at = notes.get("piloted_at", 0.0)

    def _pace(self) -> None:
        """Run a round of the pilot if enough time has passed since the last one.

        Rounds share the processor with requests, so they take at most a tenth of the time.
        """
        begun_s = time.monotonic()
        if begun_s >= self._next_s:
            self._go_on()
            ended_s = time.monotonic()
            self._next_s = ended_s + PAUSE * (ended_s - begun_s)

    def _go_on(self) -> None:
        """Run one round of the :class:`~vinelm.autopilot.pilot.Pilot` in this process, unless another process runs it."""
        with self._surviving():
            try:
                with self._turn:
                    if self._pilot is not None or self._hold():
                        assert self._pilot is not None
                        self._pilot.round()
            except StoreError:  # the lock may be lost, perhaps to another process: start again from the stored state
                self._let_go()
                raise

    def _hold(self) -> bool:
        """Try to make this process the pilot, the only process that calls cheaper models and proves plans.

        Return whether it is the pilot now. False, for example, if another process is the pilot.
        """
        store = self._store
        if store is None:
            return False
        held = ExitStack()
        try:
            held.enter_context(store.exclusive())
            if ReplayRows(store).is_new:
                held.close()
                return False
            # Both threads use the same object: two connections of one process would only wait for each other.
            self._pilot = Pilot(store, self._models.catalog, self._models.backends, self.settings)
        except StoreError:
            held.close()
            return False
        except BaseException:
            held.close()
            raise
        self._held = held
        return True

    def _let_go(self) -> None:
        """Stop being the pilot (the process that calls models and decides), so that another process can take over."""
        pilot, self._pilot = self._pilot, None
        if pilot is not None:
            pilot.close()
        with suppress(StoreError):
            self._held.close()
