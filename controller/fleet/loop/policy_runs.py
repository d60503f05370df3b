"""Runs a policy, and survives a policy that raises, hangs or returns invalid orders.

Also tests a policy on recorded views: reports its orders, its running time, and which orders would be refused.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vinelm.controller.fleet.orders import FleetPolicy, Orders, check_orders
from vinelm.controller.fleet.view import FleetView
from vinelm.errors import InputError
from vinelm.threads import beside


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """The result of one run of a policy.

    Attributes:
        orders: the orders to install; None if the run failed.
        problem: one line that says why the run failed; empty otherwise.
        seconds: the time that the policy and the check of its orders took; if the policy has not ended, the time waited so far.
    """

    orders: Orders | None
    problem: str
    seconds: float


class PolicyRunner:
    """Runs a policy, one run at a time, each with a time limit. For one thread.

    Args:
        limit_s: seconds that a run may take. The orders of a longer run are discarded, and no other run starts until it
            ends.
    """

    def __init__(self, policy: FleetPolicy, limit_s: float) -> None:
        self._policy, self.limit_s = policy, limit_s
        self._overrun: Future[Orders] | None = None

    @property
    def is_busy(self) -> bool:
        """True if a run that took too long is still running."""
        return self._overrun is not None and not self._overrun.done()

    def run(self, view: FleetView) -> PolicyAnswer:
        """Run the policy on a view; return its orders or the reason why there are none. Never raises."""
        # Never two at a time: a hanging policy would otherwise leave one more thread behind in each round.
        if self.is_busy:
            return PolicyAnswer(None, "the policy has not returned yet: the last good orders stay", 0.0)
        began_s = time.monotonic()
        # In a separate thread, which cannot be ended from outside. SystemExit also counts as an answer of the policy.
        answer = self._overrun = beside(lambda: check_orders(self._policy(view), view), name="vinelm-policy")
        is_done = bool(wait([answer], self.limit_s).done)
        seconds = time.monotonic() - began_s
        if not is_done:
            problem = (
                f"the policy took more than {self.limit_s:g} s: the last good orders stay; make it faster, or the period longer"
            )
            return PolicyAnswer(None, problem, seconds)
        error = answer.exception()
        if isinstance(error, InputError):
            return PolicyAnswer(None, f"{error}; the last good orders stay", seconds)
        if error is not None:
            text = str(error).splitlines()[:1]
            raised = type(error).__name__ + "".join(f": {line}" for line in text)
            return PolicyAnswer(None, f"the policy raised {raised}; the last good orders stay", seconds)
        return PolicyAnswer(answer.result(), "", seconds)


# -- on recorded views -----------------------------------------------------------------------------------------------


KINDS = ("weights", "pins", "sessions", "tenants", "stages", "shares")


@dataclass(slots=True)
class Said:
    """A summary of the orders of one type (such as weights or pins) that a policy gave for several views.

    Attributes:
        most: the maximum number of such orders in one view.
        least, greatest: the range of the orders' values; infinite for orders without values, such as pins.
    """

    most: int = 0
    least: float = math.inf
    greatest: float = -math.inf

    def add(self, count: int, values: np.ndarray[Any, Any]) -> None:
        """Include the orders of one view in this summary: their number, and their values (empty for orders without values)."""
        self.most = max(self.most, count)
        if values.size:
            self.least, self.greatest = min(self.least, float(values.min())), max(self.greatest, float(values.max()))


@dataclass(slots=True)
class PolicyCheck:
    """The result of testing a policy on recorded views.

    Attributes:
        period_s: the time limit of the policy for each view, in seconds.
        views: the number of views.
        most_rows: the number of live calls in the largest view.
        problems: the reason why orders would not be installed, by the number of their view (from 1).
        seconds: the seconds that the policy took for each view.
        said: summary of the orders, by their type, such as ``weights`` or ``pins``.
    """

    period_s: float
    views: int = 0
    most_rows: int = 0
    problems: dict[int, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    said: Mapping[str, Said] = field(default_factory=lambda: {kind: Said() for kind in KINDS})

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON types. Running times are given as median and maximum; NaN without views."""
        return {
            "views": self.views,
            "most_rows": self.most_rows,
            "period_s": self.period_s,
            "median_s": float(np.median(self.seconds)) if self.seconds else math.nan,
            "worst_s": max(self.seconds, default=math.nan),
            "orders": {
                kind: {"most": said.most, "least": said.least, "greatest": said.greatest}
                for kind, said in self.said.items()
                if said.most
            },
            "problems": [{"view": number, "problem": problem} for number, problem in self.problems.items()],
        }


def check_policy(policy: FleetPolicy, views: Iterable[FleetView], period_s: float) -> PolicyCheck:
    """Run a policy twice on each view that has processes, and check that both runs give equal orders; return the results.

    Each run may take ``period_s`` seconds. If the policy does not return within that time, no further views are tried.
    """
    found, runner = PolicyCheck(period_s), PolicyRunner(policy, period_s)
    for number, view in enumerate((view for view in views if view.processes), 1):
        found.views, found.most_rows = number, max(found.most_rows, len(view))
        run = runner.run(view)
        found.seconds.append(run.seconds)
        problem = run.problem
        if run.orders is not None:
            _count(found.said, run.orders)
            again = runner.run(view)
            if again.orders is not None and not _equal(run.orders, again.orders):
                problem = "a second run on the same view gave other orders: a policy is a function of its view alone"
        if problem:
            found.problems[number] = problem.removesuffix("; the last good orders stay")
        if runner.is_busy:
            break
    return found


def _count(said: Mapping[str, Said], orders: Orders) -> None:
    for kind in KINDS:
        given = getattr(orders, kind)
        values = orders.by_session.priority if kind == "sessions" else [] if kind == "pins" else list(given.values())
        said[kind].add(len(given), np.asarray(values, float))


def _equal(one: Orders, other: Orders) -> bool:
    same = all(getattr(one, kind) == getattr(other, kind) for kind in KINDS if kind != "sessions")
    mine, others = one.by_session, other.by_session
    return same and np.array_equal(mine.session, others.session) and np.array_equal(mine.priority, others.priority)
