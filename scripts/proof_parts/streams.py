"""One step of an application as a stream of requests under an autopilot, drawn from a table of recorded answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from proof_parts.plans import Plans, models_of, plans_of

from vinelm.autopilot.pilot import LABELS_KEPT, MORE_SAVED, MOST_UNITS
from vinelm.autopilot.raising import HOLDOUT, Raising, Took
from vinelm.evaluation import OutcomeTable
from vinelm.proof import Ask, Ended, PlanFacts, Question, Race, choose_candidates
from vinelm.replay.replaying import CHOOSING, LEAST_SAME, LEAST_SAVED, ROUNDS


@dataclass(frozen=True, eq=False)
class Source:
    """A table, and what it becomes when the provider of one cheap model puts a weaker one in its place."""

    table: OutcomeTable
    equal: NDArray[np.int64]

    @cached_property
    def plans(self) -> Plans:
        """Plans before anything has changed."""
        return plans_of(self.table, self.equal)

    def swapped(self, cheap: int) -> Plans:
        """The same plans where this one of the cheap models answers like the weakest of the table, at its own price."""
        today, models = models_of(self.table)
        old = models[cheap]
        right = self.table.success.mean(axis=0)
        right[[old, today]] = 2.0
        weak = int(right.argmin())
        changed = {}
        for name in ("success", "signal", "passed", "answer_class"):
            values = np.array(getattr(self.table, name))
            values[:, old] = values[:, weak]
            changed[name] = values
        equal = np.array(self.equal)
        equal[:, old] = equal[:, weak]
        return plans_of(replace(self.table, **changed), equal, (today, models))


@dataclass
class Flight:
    """What has happened in one stream.

    Attributes:
        usd: By request: dollars of serving and of learning, over today's mean; shape (requests, 2).
        lost: By request: the score that was served, less today's.
        plan: By request: the plan that new requests run, -1 for today.
        share: By request: its share of them.
        proofs: When which plan was proven, with its true score less today's.
        alarms: When which alarm was raised.
        labels: By request: labels so far.
    """

    usd: NDArray[np.float64]
    lost: NDArray[np.float64]
    plan: NDArray[np.int64]
    share: NDArray[np.float64]
    labels: NDArray[np.int64]
    proofs: list[tuple[int, int, float]] = field(default_factory=list)
    alarms: list[tuple[int, str]] = field(default_factory=list)


class Pilot:
    """Observes, shadows, proves and raises as :mod:`vinelm.autopilot` does, with answers that a table has.

    Args:
        source: Where requests are drawn from.
        requests: Of the stream.
        labels: That persons are ready to give.
        max_loss: Fraction of the answers that may be lost.
        seed: Of the stream.
        swap_at: When the first model of the plan that serves is replaced by a weaker one; None for never.
    """

    def __init__(
        self, source: Source, *, requests: int, labels: int, max_loss: float, seed: int, swap_at: int | None = None
    ) -> None:
        rng = np.random.default_rng([seed, 55])
        self.source, self.plans = source, source.plans
        self.rows = rng.integers(0, len(self.plans.same), requests)
        self.drawn, self.compares = rng.random((2, requests))
        self.labels, self.max_loss, self.seed, self.swap_at = labels, max_loss, seed, swap_at
        self.flight = Flight(
            usd=np.zeros((requests, 2)), lost=np.zeros(requests), plan=np.full(requests, -1), share=np.zeros(requests),
            labels=np.zeros(requests, np.int64),
        )  # fmt: skip
        self.attempt = 0
        self.given = 0
        self.serving: Raising | None = None
        self.served = self.below = -1  # the plan on its way, and one that was proven before it
        self.now = 0
        self._begin()

    def fly(self) -> Flight:
        """Serve the stream."""
        for now in range(len(self.rows)):
            self.now = now
            if self.now == self.swap_at and self.served >= 0:
                first = int(self.plans.asks[self.served].mean(axis=0).argmax())
                self.plans = self.source.swapped(first)
            self._request()
        return self.flight

    # -- one request ----------------------------------------------------------------------------------------------------

    def _request(self) -> None:
        row, flight, serving = int(self.rows[self.now]), self.flight, self.serving
        share = serving.share if serving is not None else 0.0
        below = (1.0 - HOLDOUT if self.below >= 0 else 0.0) if serving is None or serving.alarm is None else 0.0
        flight.plan[self.now], flight.share[self.now] = (self.served, share) if share else (-1, 0.0)
        at = self.served if self.drawn[self.now] < share else self.below if self.drawn[self.now] < below else -1
        if at >= 0:
            flight.usd[self.now, 0] = self.plans.usd[row, at]
            flight.lost[self.now] = self.plans.score[row, at]
        else:
            flight.usd[self.now, 0] = self.plans.today_usd[row]
            self._unit(row)
        if serving is not None and serving.alarm is None:
            took = Took(float(flight.usd[self.now, 0]), 0.0)
            if at == self.served:
                serving.served(has_escalated=bool(self.plans.escalates[row, at]), took=took)
            else:
                serving.ran_as_today(took)
                if at < 0 and self.compares[self.now] < HOLDOUT / max(1.0 - share, HOLDOUT):
                    self._ask(self.now, self.served)
                    serving.compared(is_same=bool(self.plans.same[row, self.served]))
            if serving.alarm is not None:
                flight.alarms.append((self.now, serving.alarm))
                self.served = self.below = -1
                self.serving = None
                self._begin()
        flight.labels[self.now] = self.given

    # -- the proof -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin an attempt with the requests that come from now on."""
        self.attempt += 1
        self.units: list[tuple[int, Plans]] = []
        self.asked: set[tuple[int, int]] = set()
        self.dropped: set[int] = set()
        self.race: Race | None = None
        self.columns: Mapping[str, int] = {}
        self.chosen: list[int] = []
        self.paid: set[tuple[int, int]] = set()

    def _unit(self, row: int) -> None:
        """Record a request that has run as today."""
        if len(self.units) >= CHOOSING + MOST_UNITS or self.given >= self.labels:
            return
        self.units.append((self.now, self.plans))
        if len(self.units) in ROUNDS and not self.chosen:
            self._choose()
        if self.race is not None:
            self._run()

    def _ask(self, unit: int, at: int) -> None:
        """Pay for the models that a plan asks about a recorded request, if they were not asked yet."""
        row = int(self.rows[unit])
        for model in np.flatnonzero(self.plans.asks[at][row]):
            self._pay(unit, int(model))

    def _pay(self, unit: int, model: int) -> None:
        if (unit, model) not in self.asked:
            self.asked.add((unit, model))
            self.flight.usd[self.now, 1] += self.plans.model_usd[int(self.rows[unit]), model]

    def _choose(self) -> None:
        rows = [int(self.rows[unit]) for unit, _ in self.units]
        for model in range(len(self.plans.cheap)):
            for unit, _ in self.units if model not in self.dropped else ():
                self._pay(unit, model)
            at = self.plans.names.index(self.plans.cheap[model])
            same, usd = float(self.plans.same[rows, at].mean()), float(self.plans.usd[rows, at].mean())
            is_hopeless = same + 2.0 * np.sqrt(same * (1.0 - same) / len(rows)) + 1.0 / len(rows) < LEAST_SAME
            if len(rows) >= 30 and (is_hopeless or usd > 1.0 - LEAST_SAVED):
                self.dropped.add(model)
        if len(rows) == CHOOSING:
            self.chosen = rows
            self._start(LEAST_SAVED)

    def _facts(self, rows: list[int]) -> list[PlanFacts]:
        """What these requests show of the plans whose models were asked about all of them."""
        facts = []
        for at, name in enumerate(self.plans.names):
            if not any(self.plans.asks[at][rows, model].any() for model in self.dropped):
                saved, differing = 1.0 - float(self.plans.usd[rows, at].mean()), int((~self.plans.same[rows, at]).sum())
                facts.append(PlanFacts(name, min(saved, 0.9999), differing, len(rows)))
        return facts

    def _start(self, least_saved: float) -> None:
        """Race the plans that the first requests choose, on those that come."""
        left = self.labels - self.given
        if self.served >= 0:  # the search for a better plan than the one that serves
            left = int(LABELS_KEPT * left)
        candidates = choose_candidates(self._facts(self.chosen), margin=self.max_loss, labels=left, least_saved=least_saved)
        self.columns = {one.name: self.plans.names.index(one.name) for one in candidates}
        self.race = Race(
            candidates, requests=MOST_UNITS, labels=left, max_loss=self.max_loss, margins=(), attempt=self.attempt,
            seed=self.seed,
        )  # fmt: skip
        self.first = len(self.units)

    def _run(self) -> None:
        """Tell the race all that is known, until it needs what has not come yet."""
        race = self.race
        assert race is not None
        while not isinstance(move := race.next(), Ended):
            if self.first + move.request >= len(self.units):
                return
            unit, plans = self.units[self.first + move.request]
            row, at = int(self.rows[unit]), self.columns[move.candidate]
            if isinstance(move, Ask):
                self._ask(unit, at)
                race.answered(move.candidate, move.request, bool(plans.same[row, at]))
            else:
                assert isinstance(move, Question)
                pair = (unit, int(plans.answer[row, at]))
                self.given += pair not in self.paid
                race.labelled(move.candidate, move.request, float(plans.score[row, at]), counted=pair not in self.paid)
                self.paid.add(pair)
        self.race = None
        if move.candidate is not None:
            self._proven(self.columns[move.candidate], race)

    def _proven(self, at: int, race: Race) -> None:
        self.flight.proofs.append((self.now, at, float(self.plans.diff()[at])))
        standing = next(one for one in race.standings() if one.candidate == self.plans.names[at])
        # What choosing has seen is not a fair sample of the share that differs; the escalations are, near enough.
        rows = [int(self.rows[unit]) for unit, _ in self.units[self.first : self.first + standing.requests]]
        rows += self.chosen
        escalates = self.plans.escalates[rows, at]
        saved = 1.0 - float(self.plans.usd[self.chosen, at].mean())
        self.below = self.served
        self.served = at
        self.serving = Raising(
            self.max_loss, (int(escalates.sum()), len(rows)), (standing.differing, standing.requests), saved,
            Took(float(self.plans.today_usd[rows].mean()), 0.0), has_below=self.below >= 0,
        )  # fmt: skip
        self.attempt += 1
        self._start(saved + MORE_SAVED)


def figures(flight: Flight, plans: Plans, best: float) -> dict[str, Any]:
    """What a stream shows; savings over those of the best plan in hindsight."""
    saved = 1.0 - flight.usd.sum(axis=1)
    found: dict[str, Any] = {}
    requests = len(saved)
    for until in (1000, 5000, 20000):
        if until <= requests:
            at, share = int(flight.plan[until - 1]), float(flight.share[until - 1])
            rate = share * float(plans.saved()[at]) if at >= 0 else 0.0
            found |= {f"rate_{until}": rate / best, f"net_{until}": float(saved[:until].mean()) / best}
            found[f"labels_{until}"] = int(flight.labels[until - 1])
    first = flight.proofs[0][0] if flight.proofs else requests
    return found | {
        "proven": bool(flight.proofs),
        "first_proof": first,
        "fee": float(flight.usd[: first + 1, 1].sum()),
        "learning": float(flight.usd[:, 1].sum()),
        "lost": float(-flight.lost.sum()),
        "worst": min((diff for *_, diff in flight.proofs), default=0.0),
        "alarms": [[at, why] for at, why in flight.alarms],
    }
