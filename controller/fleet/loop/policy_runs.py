"""Runs a policy so that nothing it does harms the loop: it may raise, never return, or say what cannot be meant."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from vinelm.controller.fleet.policies.checking import check_orders
from vinelm.controller.fleet.policies.orders import FleetPolicy, Orders
from vinelm.controller.fleet.view import FleetView
from vinelm.errors import InputError


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """The result of one run.

    Attributes:
        orders: those to install; None if there are none.
        problem: one line that says why not; empty if there are.
        seconds: that the policy took, its orders' check included; those waited if it has not ended.
    """

    orders: Orders | None
    problem: str
    seconds: float


@dataclass(slots=True, eq=False)
class _Task:
    """A run in a thread of its own, which cannot be ended from outside."""

    view: FleetView
    done: threading.Event = field(default_factory=threading.Event)
    answer: Any = None
    error: BaseException | None = None


class PolicyRunner:
    """Runs a policy, one run at a time, each for so long at most. For one thread.

    Args:
        policy: the policy.
        limit_s: seconds that a run may take. One that takes longer gives no orders, whenever it ends; until then none begins.
    """

    def __init__(self, policy: FleetPolicy, limit_s: float) -> None:
        self._policy, self.limit_s = policy, limit_s
        self._overrun: _Task | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a run that took too long still goes on."""
        return self._overrun is not None and not self._overrun.done.is_set()

    def run(self, view: FleetView) -> PolicyAnswer:
        """Run the policy on a view. Never raises."""
        if self.is_busy:
            return PolicyAnswer(None, "the policy has not returned yet: the last good orders stay", 0.0)
        task = self._overrun = _Task(view)
        began_s = time.monotonic()
        threading.Thread(target=self._work, args=(task,), name="vinelm-policy", daemon=True).start()
        is_done = task.done.wait(self.limit_s)
        seconds = time.monotonic() - began_s
        if not is_done:
            problem = (
                f"the policy took more than {self.limit_s:g} s: the last good orders stay; make it faster, or the period longer"
            )
            return PolicyAnswer(None, problem, seconds)
        if isinstance(task.error, InputError):
            return PolicyAnswer(None, f"{task.error}; the last good orders stay", seconds)
        if task.error is not None:
            text = str(task.error).splitlines()[:1]
            raised = type(task.error).__name__ + "".join(f": {line}" for line in text)
            return PolicyAnswer(None, f"the policy raised {raised}; the last good orders stay", seconds)
        return PolicyAnswer(task.answer, "", seconds)

    def _work(self, task: _Task) -> None:
        try:
            task.answer = check_orders(self._policy(task.view), task.view)
        except BaseException as error:
            task.error = error
        finally:
            task.done.set()
