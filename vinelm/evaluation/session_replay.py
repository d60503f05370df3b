"""Sessions without a graph: what serving a chain or a loop gives, from answers that are known or quickly computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vinelm.clock import VirtualClock
from vinelm.controller import Planner, Session
from vinelm.errors import ConfigError, FailureKind
from vinelm.evaluation.policy_run import PolicyRun
from vinelm.objective import Objective
from vinelm.observation import Usage
from vinelm.protocols import Invocation
from vinelm.signals import Outcome, ShownAnswer, Signals
from vinelm.workflow import Request

AnswerSource = Callable[[Request, tuple[str, ...]], ShownAnswer]
"""Returns what the last invocation of a prefix gives for a request. The same arguments give the same answer."""


@dataclass(frozen=True, eq=False)
class SessionReplay:
    """Replays requests under plans over what they show.

    It runs the very session that serves a request; the graph around it is replaced by its template. So its results are those of
    serving an application whose calls take virtual time, whose loop has a ``vine.route`` and whose end is ``vine.finish``.

    Args:
        planner: Plans over a trie of what requests show.
        signals: What the workflow declares.
        answers: Where the answers come from.

    Raises:
        ConfigError: The planner's trie does not know what requests show.
    """

    planner: Planner
    signals: Signals
    answers: AnswerSource

    def __post_init__(self) -> None:
        if self.planner.annotated.outcomes is None:
            raise ConfigError("a session is replayed over what requests show: give the planner the trie's `signals`")

    def run(self, requests: Sequence[Request], objective: Objective, policy: str, plan: str = "") -> PolicyRun:
        """Replay every request under an objective.

        Args:
            requests: The labelled requests.
            objective: Target and bounds of each.
            policy: Name of the policy in the result.
            plan: Its plan in words.
        """
        expected = self.planner.plan(objective, elapsed_s=float(self.planner.annotated.latency_s[0]))
        found = [self._one(request, objective) for request in requests]
        success, cost_usd, latency_s = zip(*found, strict=True)
        return PolicyRun(
            policy=policy,
            plan=plan,
            success=np.array(success, np.bool_),
            cost_usd=np.array(cost_usd),
            latency_s=np.array(latency_s),
            expected_accuracy=expected.accuracy,
        )

    def _one(self, request: Request, objective: Objective) -> tuple[bool, float, float]:
        """Whether the returned answer is right, and the request's dollars and seconds."""
        clock = VirtualClock()
        session = Session(self.planner, objective, clock=clock, request=request, template=self.planner.annotated.template)
        prefix: tuple[str, ...] = ()
        firsts: list[ShownAnswer] = []
        known: list[Any] = []
        for stage in self.planner.annotated.template.invocations:
            model = session.next_model(stage.name, prefix)
            prefix = (*prefix, model)
            shown = self.answers(request, prefix)
            clock.sleep(shown.latency_s)
            session.record(_invocation(stage.name, prefix, shown))
            if shown.has_failed:
                return False, session.spent_usd, clock.now()
            kind = self.signals.class_of(shown.answer, known)
            if kind == len(known):
                firsts.append(shown)
                known.append(shown.answer)
            session.observed(prefix, Outcome(shown.signal, kind))
            if not session.should_continue(prefix, shown.passed, None):
                break
        returned = session.returned(prefix)
        success = shown.success if returned is None or returned >= len(firsts) else firsts[returned].success
        return success, session.spent_usd, clock.now()


def _invocation(stage: str, prefix: tuple[str, ...], shown: ShownAnswer) -> Invocation:
    failure: FailureKind | None = "unknown" if shown.has_failed else None
    usage = Usage(model=prefix[-1], cost_usd=shown.cost_usd, latency_s=shown.latency_s, failure=failure)
    return Invocation(stage=stage, prefix=prefix, latency_s=shown.latency_s, usages=(usage,), failure=failure)
