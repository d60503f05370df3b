"""A canary: serves a plan to a share of the requests, and the current setup (default models) to the others, until evidence
decides.
"""

from __future__ import annotations

import logging
import weakref
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import log
from threading import Lock
from typing import Any, Literal

import numpy as np

from vinelm.clock import Clock
from vinelm.controller import Planner, Session
from vinelm.controller.session.canary_request import CanaryRequest
from vinelm.errors import ConfigError
from vinelm.estimator import DriftConfig
from vinelm.estimator.drift.e_process import GroupComparison
from vinelm.objective import Objective
from vinelm.plans.assignment import CANARY, Assignment, place_of
from vinelm.telemetry import CanaryEvent, ObserverGroup
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import Advice, Verdict, lead_of

ALPHA = 0.05
"""Upper bound on the chance that a plan that is no worse is ever rolled back, and that a worse one is ever declared no worse.
"""
WINSORIZED = 10.0
"""A request's dollars and seconds are cut off at this multiple of the mean, in both groups; the tests assume no other bound."""
REMEMBERED = 100_000
"""How many draws are remembered; feedback on older draws is not counted."""
IDLE_S = 60.0
"""A request whose session still exists counts as ended after being idle for this many seconds."""
RELATIVE = DriftConfig().relative
"""The plan may cost or take this fraction of today's figure more than predicted."""
CALLERS = 32
"""How many groups callers are hashed into; a finding must hold with any single group left out."""
NOBODY = CALLERS
"""The group of requests whose caller is unknown: they count in all comparisons, each once."""
_WITHOUT_AND_OF = np.concatenate([~np.eye(CALLERS + 1, CALLERS, dtype=bool), np.eye(CALLERS + 1, CALLERS, dtype=bool)], axis=1)
"""For each group of callers (row), the comparisons (columns) in which its requests count: all except the comparison that leaves
this group out, and the comparison of this group alone.
"""
MOST_PROMISES = 1024
"""How many objectives' predicted dollars are kept."""
_LOG = logging.getLogger(__name__)
_SHARES = ("accuracy", "failures", "late")
WORSE = {
    "accuracy": "fewer of its answers are right",
    "failures": "more of its requests fail",
    "late": "more of its requests are late",
    "dollars": "it costs more than it promised",
    "seconds": "it is slower",
}
"""Quantities that can roll a canary back, and how a plan that is worse in them is described."""


@dataclass(frozen=True, kw_only=True)
class CanaryStatus:
    """The status of a canary.

    Attributes:
        share: fraction of new requests that get the plan; 0 once the canary has been rolled back.
        verdict: the trie's verdict when the canary began, which is based on the results that the trie was estimated from.
        advice: the advice by live evidence. ``"keep"``: the canary has been rolled back. ``"switch"``: the plan is proven to be
            more accurate than the current setup, or cheaper and at most ``max_loss`` less accurate. ``"undecided"``: neither is
            proven yet. ``"not enough data"``: the plan's or the current setup's requests have no feedback yet.
        reason: the reason for the advice, in a few words.
        requests: the numbers of compared requests, as (those of the plan, those of the current setup).
        labelled: the numbers of requests with feedback, in the same order.
        means: for each quantity, (its mean under the plan, its mean under the current setup). ``"accuracy"``, ``"failures"``
            and ``"late"`` are fractions; ``"dollars"`` and ``"seconds"`` are per request. A quantity is left out unless both
            have values.
    """

    share: float
    verdict: Verdict
    advice: Advice
    reason: str
    requests: tuple[int, int]
    labelled: tuple[int, int]
    means: Mapping[str, tuple[float, float]]

    @property
    def sentence(self) -> str:
        """The finding of the live evidence, as a sentence that begins with SWITCH, KEEP, UNDECIDED or NOT ENOUGH DATA."""
        return f"{lead_of(self.advice)}: {self.reason}."

    def to_dict(self) -> dict[str, Any]:
        """Return the status as a dict of JSON types."""
        return asdict(replace(self, verdict=Verdict())) | {"sentence": self.sentence, "verdict": self.verdict.to_dict()}


@dataclass(slots=True)
class _Draw:
    """The assignment of a request or conversation to the plan or to the current setup, and what was counted for it.

    A conversation counts once, since its requests are not independent.

    Attributes:
        is_plan: whether it runs the plan, rather than the current setup.
        caller: the number of the caller's group; :data:`NOBODY` if the caller is unknown.
        is_counted: whether the outcome has been counted.
        is_labelled: whether the feedback has been counted.
    """

    is_plan: bool
    caller: int
    is_counted: bool = False
    is_labelled: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class _LiveRequest:
    """A request in progress: its measurements, its assignment to plan or current setup (``draw``), and its objective.

    ``ratio`` is the plan's predicted cost divided by the current setup's.
    """

    request: CanaryRequest
    draw: _Draw
    objective: Objective
    ratio: float


@dataclass(slots=True)
class _Means:
    """The values of one quantity in the two groups of requests, as their number and sum.

    Attributes:
        count: the number of values, as [of the current setup's requests, of the plan's requests].
        total: the sum of the values, in the same form.
    """

    count: list[int] = field(default_factory=lambda: [0, 0])
    total: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def add(self, is_plan: bool, value: float) -> None:
        self.count[is_plan] += 1
        self.total[is_plan] += value

    @property
    def of_plan_and_today(self) -> tuple[float, float]:
        return self.total[1] / self.count[1], self.total[0] / self.count[0]

    @property
    def most(self) -> float:
        """The limit for the next value; larger values are reduced to it.

        It is ten times the larger mean of the two groups; 0 if no value so far is above 0.
        """
        return WINSORIZED * max(total / max(count, 1) for total, count in zip(self.total, self.count, strict=True))


class Canary:
    """Serves the plan to a share of requests, compares them with the others, and rolls back if the plan is worse.

    Thread-safe. The requests of all objectives are compared together, each relative to its plan's prediction. A request's key
    alone decides whether it gets the plan, so that all processes choose the same requests. The evidence is from this process
    only.

    A finding must not depend on a single caller. Callers are divided into :data:`CALLERS` groups; each comparison is made once
    without each group, and the weakest result counts. Any given caller is left out of one of the comparisons. So whatever a
    single caller sends or reports, the chance of a false finding stays at most :data:`ALPHA`. If a caller's own requests show
    that the plan is worse for this caller, the requests of the caller's group run the current setup again.

    Args:
        share: fraction of requests that get the plan, in [0, 1).
        max_loss: the largest accepted loss, as a fraction of requests, in accuracy, failures and lateness; None takes the loss
            of the trie's verdict.
        observers: notified of findings.

    Attributes:
        share: fraction of requests that get the plan; 0 once the canary has been rolled back.
        verdict: the trie's verdict at the start of the canary.
        decided: ``"switch"`` or ``"keep"`` once live evidence has proven it; else None.

    Raises:
        ConfigError: the trie does not contain the current setup.
    """

    def __init__(self, share: float, max_loss: float | None, annotated: AnnotatedTrie, observers: ObserverGroup) -> None:
        found = annotated.verdict
        if found is None or not found.is_today:
            raise ConfigError(
                "canary= compares with what runs today, which the trie does not say: give every stage its default model "
                "(vine.stage(..., default=)) and estimate again, without --no-check"
            )
        self.share = share
        self.verdict = found if max_loss is None else found.at(max_loss)
        margin = self.verdict.max_loss
        self._observers = observers
        self._promised = lru_cache(MOST_PROMISES)(promised_ratio)
        self._lock = Lock()
        self._draws: OrderedDict[str, _Draw] = OrderedDict()
        self._runs: OrderedDict[str, _Draw] = OrderedDict()
        self._back, self._notes = set[int](), list[str]()
        self._live: OrderedDict[_LiveRequest, None] = OrderedDict()
        self._gone: deque[_LiveRequest] = deque()
        self._means = {name: _Means() for name in WORSE}
        self.decided: Advice | None = None
        self._reason, self._shown = "nothing is shown yet", set[str]()
        if share:
            self._worse = {n: GroupComparison(share, margin=margin if n in _SHARES else 0.0) for n in WORSE}
            self._better = {
                "more accurate": GroupComparison(share),
                "as accurate": GroupComparison(share, margin=-margin),
                "cheaper": GroupComparison(1.0 - share),
            }
            _LOG.warning(
                "canary: the plan serves %g %% of the requests. By its store: %s Only failures, dollars and seconds are "
                "watched until vine.feedback says which answers are right",
                100 * share,
                self.verdict.sentence,
            )

    def draw(
        self,
        planner: Planner,
        objective: Objective,
        *,
        key: str,
        run_id: str,
        clock: Clock,
        started_at: float | None,
        caller: str = "",
    ) -> _LiveRequest:
        """Decide whether the plan or the current setup runs a new request. Return this request, to be passed to :meth:`follow`.

        Args:
            planner: makes the request's plan.
            objective: the request's objective.
            key: a key of :class:`~vinelm.api.draws.Draws`, which no caller can choose. It decides what the request runs, and is
                the same for a request or conversation in every process.
            run_id: the request's name for feedback, unique among all tenants.
            clock: the request's clock.
            started_at: the request's arrival in seconds of ``clock``; None takes the current time.
            caller: identifies the tenant that sent the request; "" if unknown. All requests of a caller belong to one group of
                callers.

        Raises:
            InfeasibleError: no plan meets the objective's limits, and the objective has ``on_infeasible="raise"``.
        """
        ratio = self._promised(planner, objective) if self.share else 1.0
        self._count_gone()
        with self._lock:
            place = _place(caller)
            is_back = place in self._back
            known = self._draws.pop(key, None) if self.share and not is_back else None  # a conversation is rolled back, too
            if known is None:
                known = _Draw(
                    Assignment.of_share(self.share, True, False, CANARY).of(key) and not is_back, place, is_back, is_back
                )
            self._draws[key] = known
            self._runs.setdefault(run_id, known)  # a reused name still refers to the first request
            for table in (self._draws, self._runs):
                while len(table) > REMEMBERED:
                    table.popitem(last=False)
            request = CanaryRequest(known.is_plan, clock, clock.now() if started_at is None else started_at)
            served = _LiveRequest(request, known, objective, ratio)
            self._live[served] = None
        return served

    def follow(self, session: Session, served: _LiveRequest) -> None:
        """Count the request ``served``, which :meth:`draw` returned, once its session is garbage-collected."""
        weakref.finalize(session, self.end, served).atexit = False

    def end(self, served: _LiveRequest) -> None:
        """Mark a request as ended; it is counted by the next :meth:`feedback`, :meth:`status` or new request. May be called in
        a finalizer.
        """
        self._gone.append(served)

    def feedback(self, run_id: str, success: bool | float, caller: str = "") -> None:
        """Count feedback on an answer, once for each request or conversation. Feedback on requests that this process does not
        remember is ignored.

        Args:
            run_id: the request's name, as passed to :meth:`draw`.
            success: whether the answer is right, or its score in [0, 1].
            caller: who gives the feedback; used if the request's own caller is unknown.
        """
        self._count_gone()
        with self._lock:
            draw = self._runs.get(run_id)
            if draw is None:
                return
            found = [self._count(one) for one in list(self._live) if one.draw is draw]  # it is answered, so it has ended
            if self.share and not draw.is_labelled:
                draw.is_labelled = True
                who = _place(caller) if draw.caller == NOBODY else draw.caller
                found.append(self._label(draw.is_plan, float(success), who))
        self._tell(found)

    @property
    def status(self) -> CanaryStatus:
        """Return the current status of the canary."""
        self._count_gone()
        with self._lock:
            seen, labels = self._means["failures"].count, self._means["accuracy"].count
            means = {name: one.of_plan_and_today for name, one in self._means.items() if all(one.count)}
            return CanaryStatus(
                share=self.share,
                verdict=self.verdict,
                advice=self.decided or ("undecided" if all(labels) else "not enough data"),
                reason=self._reason,
                requests=(seen[1], seen[0]),
                labelled=(labels[1], labels[0]),
                means=means,
            )

    def _count_gone(self) -> None:
        """Count the requests whose session object no longer exists.

        Of the other requests, check the two whose last check is longest ago. Count a checked request if it has ended and been
        idle for more than :data:`IDLE_S` seconds.
        """
        found: list[CanaryEvent | None] = []
        with self._lock:
            while self._gone:
                found.append(self._count(self._gone.popleft()))
            for one in list(self._live)[:2]:  # only the two oldest: a single request must not pay for all
                self._live.move_to_end(one)
                if one.request.has_ended and one.request.idle_s > IDLE_S:
                    found.append(self._count(one))
        self._tell(found)

    def _tell(self, found: list[CanaryEvent | None]) -> None:
        while self._notes:
            _LOG.warning("canary: %s", self._notes.pop())
        for event in found:
            if event is not None:
                (_LOG.warning if event.advice == "keep" else _LOG.info)("canary: %s: %s", lead_of(event.advice), event.reason)
                self._observers.canary_decided(event)

    # -- with the lock held ------------------------------------------------------------------------------------

    def _count(self, served: _LiveRequest) -> CanaryEvent | None:
        """Count a request that has ended. Return an event if this rolls the canary back or proves that the plan should be
        served; None otherwise.
        """
        request, draw = served.request, served.draw
        self._live.pop(served, None)
        if request.is_plan != draw.is_plan:  # begun under another state of the canary: its chance is unknown
            draw.is_plan, draw.is_counted, draw.is_labelled = request.is_plan, True, True
        if draw.is_counted or not request.has_ended or not self.share:
            return None
        draw.is_counted = True
        values: dict[str, float | None] = {"failures": float(request.has_failed), "dollars": request.usd}
        seconds, latest_s = request.seconds, served.objective.max_latency_s
        if seconds is not None and not request.has_failed:
            values["late"] = None if latest_s is None else float(seconds > latest_s)
            values["seconds"] = seconds if served.objective.minimize == "latency" else None
        found = [
            self._compare(name, draw.is_plan, value, draw.caller, served.ratio if name == "dollars" else 1.0)
            for name, value in values.items()
            if value is not None
        ]
        return next((event for event in found if event is not None), None)

    def _compare(self, name: str, is_plan: bool, value: float, caller: int, ratio: float = 1.0) -> CanaryEvent | None:
        """Update the tests of whether the plan is worse in a quantity and, for dollars, whether it is cheaper.

        Return the event if this rolls the canary back or proves that the plan should be served; None otherwise.

        Args:
            name: The quantity, a key of :data:`WORSE`.
            is_plan: Whether the plan, not the current setup, ran the request.
            value: The quantity's value for the request; for accuracy, 1 minus the score.
            caller: The index of the caller's group.
            ratio: For dollars, the plan's predicted cost divided by the current setup's; 1 for other quantities.
        """
        means, is_share = self._means[name], name in _SHARES
        most = 1.0 if is_share else means.most
        means.add(is_plan, 1.0 - value if name == "accuracy" else value)
        if not most or not self.share:
            return None
        tolerated = 1.0 if is_share else ratio * (1.0 + RELATIVE)
        wealth = self._worse[name].add(is_plan, value, ratio=tolerated, most=most, counts=_WITHOUT_AND_OF[caller])
        if float(wealth[:CALLERS].min()) >= log(2 * len(WORSE) / ALPHA):
            return self._go_back(name)
        is_somebody = caller != NOBODY and caller not in self._back
        if is_somebody and float(wealth[CALLERS + caller]) >= log(2 * CALLERS * len(WORSE) / ALPHA):
            self._back.add(caller)
            self._reason = f"the plan is worse for a caller, whose requests run as today again: {WORSE[name]}"
            self._notes.append(self._reason)
        return self._prove("cheaper", not is_plan, value, caller, most) if name == "dollars" else None

    def _label(self, is_plan: bool, success: float, caller: int) -> CanaryEvent | None:
        """Update the tests of whether the plan's answers are worse, as accurate, or more accurate, with the feedback on one
        answer.

        Return the event if this rolls the canary back or proves that the plan should be served; None otherwise.

        Args:
            is_plan: Whether the plan, not the current setup, ran the request.
            success: The answer's score in [0, 1].
            caller: The index of the caller's group.
        """
        found = self._compare("accuracy", is_plan, 1.0 - success, caller)
        return (
            found
            or self._prove("more accurate", is_plan, success, caller)
            or self._prove("as accurate", is_plan, success, caller)
        )

    def _prove(self, what: str, is_new: bool, value: float, caller: int, most: float = 1.0) -> CanaryEvent | None:
        # Two ways to be no worse share alpha; what is shown once stays shown (Ville's inequality is about "ever").
        wealth = self._better[what].add(is_new, value, most=most, counts=_WITHOUT_AND_OF[caller][:CALLERS])
        if float(wealth.min()) >= log(2 / ALPHA):
            self._shown.add(what)
        if self.decided is not None or not ("more accurate" in self._shown or {"as accurate", "cheaper"} <= self._shown):
            return None
        how = "more accurate" if "more accurate" in self._shown else "as accurate and cheaper"
        return self._decide("switch", how, f"the plan is shown to be {how}: {self._seen('accuracy')}, {self._seen('dollars')}")

    def _go_back(self, name: str) -> CanaryEvent:
        self.share = 0.0
        why = f"the plan is worse, and all requests run as today again: {WORSE[name]} ({self._seen(name)})"
        return self._decide("keep", name, why)

    def _decide(self, advice: Literal["switch", "keep"], quantity: str, reason: str) -> CanaryEvent:
        self.decided, self._reason = advice, reason
        return CanaryEvent(advice=advice, quantity=quantity, reason=reason)

    def _seen(self, name: str) -> str:
        means = self._means[name]
        if not all(means.count):
            return f"{name} not seen in both"
        (plan, today), (of_today, of_plan) = means.of_plan_and_today, means.count
        form = "{:.1%}" if name in _SHARES else "{:.3g}"
        return f"{name} {form.format(plan)} of {of_plan:,} requests, today's {form.format(today)} of {of_today:,}"


def _place(caller: str) -> int:
    return int(place_of(f"caller:{caller}") * CALLERS) if caller else NOBODY


def promised_ratio(planner: Planner, objective: Objective) -> float:
    """Return the plan's predicted cost divided by the current setup's; 1 if the plan costs no more or the ratio is unknown.

    Raises:
        InfeasibleError: no plan meets the objective's limits, and the objective has ``on_infeasible="raise"``.
    """
    found = planner.annotated.verdict
    if found is None or not found.is_today or not found.cost_usd:
        return 1.0
    return max(planner.mixed(objective).path_cost_usd / found.cost_usd, 1.0)
