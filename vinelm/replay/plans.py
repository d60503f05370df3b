"""Plans over recorded calls: a cheaper model alone, or cheaper models with a fallback to today's model.

The plan falls back if the models disagree, or if no answer passes the application's check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

from vinelm.proof import PlanFacts
from vinelm.replay.kept import Kept, ReplayUnit
from vinelm.replay.same import Message, Sameness, called

_ALL = 0.9999
"""The largest share of today's dollars that a plan counts as saving, such as plans of models that cost nothing."""
Kind = Literal["alone", "agree", "two of three", "check"]


class PlanStep(NamedTuple):
    """The next step of a plan for a call.

    Attributes:
        what: ``ask``: ask the model; ``take``: use the model's answer; ``today``: use the answer of today's model.
        model: The model to ask or to take the answer of; "" for ``today``.
    """

    what: Literal["ask", "take", "today"]
    model: str = ""


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """The models that answer a call, in order, and when the plan falls back to today's model.

    Attributes:
        kind: ``alone``; ``agree``: the answer on which both models agree, else today's; ``two of three``: the third model is
            asked if the first two disagree, and today's answer is used if no two agree; ``check``: the first answer that passes
            the application's check, else today's.
        models: The cheaper models, in the order in which they are asked.
    """

    kind: Kind
    models: tuple[str, ...]

    @property
    def name(self) -> str:
        """The plan in words, such as ``a where b agrees, else today's model``."""
        first, *others = self.models
        if self.kind == "alone":
            return first
        if self.kind == "agree":
            return f"{first} where {others[0]} agrees, else today's model"
        if self.kind == "two of three":
            return f"what two of {first}, {others[0]} and {others[1]} say, else today's model"
        return f"{', then '.join(self.models)} where the check passes, else today's model"

    def step(
        self, has_answered: Mapping[str, bool], agree: Callable[[str, str], bool], passes: Callable[[str], bool]
    ) -> PlanStep:
        """Return the plan's next step. If a call fails, the next model or today's model answers instead.

        Args:
            has_answered: For each model asked so far: True if it has answered, False if it failed.
            agree: ``agree(one, other)`` returns whether two of these models give the same answer.
            passes: ``passes(model)`` returns whether the application's check accepts the model's answer.
        """
        said: list[str] = []
        for model in self.models:
            if model not in has_answered:
                return PlanStep("ask", model)
            if not has_answered[model]:
                if self.kind in ("alone", "agree"):
                    break
                continue
            if self.kind == "alone" or (self.kind == "check" and passes(model)):
                return PlanStep("take", model)
            if self.kind in ("agree", "two of three"):
                agreeing = next((one for one in said if agree(one, model)), None)
                if agreeing is not None:
                    return PlanStep("take", agreeing)
            said.append(model)
        return PlanStep("today")


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """A plan's answer to a sampled call.

    Attributes:
        model: The model whose answer the plan uses; None for today's.
        cost_usd: The plan's cost for this call in dollars, including today's model if it is called.
        latency_s: Latency in seconds, with one call after the other; None if the latency of today's call is needed and
            unknown.
    """

    model: str | None
    cost_usd: float
    latency_s: float | None


def all_plans(models: Sequence[str], *, with_check: bool) -> Iterator[AnswerPlan]:
    """Yield the plans over these models, which are in order of rising cost and are asked in this order.

    The plans are each model alone, each pair that must agree, and each triple of which two must agree. With ``with_check``
    there are also plans of one or two models whose first answer that passes the application's check is used.
    """
    kinds: list[tuple[Kind, int]] = [("alone", 1), ("agree", 2), ("two of three", 3)]
    if with_check:
        kinds += [("check", 1), ("check", 2)]
    for kind, size in kinds:
        yield from (AnswerPlan(kind, chosen) for chosen in combinations(models, size))


class Follower:
    """Computes, from stored answers of models, which answer a plan gives to a sampled call.

    Args:
        kept: The store with the models' answers.
        same: Compares two answers.
        check: ``check(messages, answer)``: whether the application would accept an answer (``content``, ``tool_calls``) to a
            prompt without a person's help; None without a check.
    """

    def __init__(self, kept: Kept, same: Sameness, check: Callable[[Any, Message], bool] | None = None) -> None:
        self._kept, self._same, self._check = kept, same, check
        self._agreed: dict[tuple[int, str, str], bool] = {}
        self._passed: dict[tuple[int, str], bool] = {}

    def follow(self, plan: AnswerPlan, unit: ReplayUnit, failed: Callable[[ReplayUnit, str], bool]) -> PlanAnswer | str:
        """Return a plan's answer to a sampled call. If an answer that the plan needs is not stored, return its model's name.

        A failed call counts as no answer, as in a service: the next model or today's model answers instead.

        Args:
            plan: The plan.
            unit: The sampled call.
            failed: ``failed(unit, model)`` returns whether a model without a stored answer was asked and failed.
        """
        asked: dict[str, bool] = {}
        while True:
            what, model = plan.step(
                asked, lambda one, other: self._agree(unit, one, other), lambda one: self._passes(unit, one)
            )
            if what == "ask":
                asked[model] = self._kept.message(unit, model) is not None
                if not (asked[model] or failed(unit, model)):
                    return model
            else:
                return self._done(unit, model or None, list(asked))

    def _done(self, unit: ReplayUnit, model: str | None, asked: Sequence[str]) -> PlanAnswer:
        served = [self._kept.served(unit, name) for name in asked]
        if model is None:
            served.append((unit.cost_usd, unit.latency_s))
        seconds = [one for _, one in served if one is not None]
        return PlanAnswer(model, sum(usd for usd, _ in served), sum(seconds) if len(seconds) == len(served) else None)

    def is_same(self, unit: ReplayUnit, followed: PlanAnswer) -> bool:
        """Return whether a plan's answer is the same as the recorded answer."""
        if followed.model is None:
            return True
        return self._agree(unit, "", followed.model)

    def _agree(self, unit: ReplayUnit, one: str, other: str) -> bool:
        """Return whether two models give the same answer to a sampled call; ``one`` = "" stands for the recorded answer."""
        key = (unit.unit_id, one, other)
        found = self._agreed.get(key)
        if found is None:
            first = unit.answer if not one else self._kept.message(unit, one)
            second = self._kept.message(unit, other)
            assert first is not None
            assert second is not None
            found = self._agreed[key] = self._same(first, second)
        return found

    def _passes(self, unit: ReplayUnit, model: str) -> bool:
        key = (unit.unit_id, model)
        found = self._passed.get(key)
        if found is None:
            message = self._kept.message(unit, model)
            assert self._check is not None
            assert message is not None
            found = called(self._check, "check", self._kept.prompt(unit)["messages"], message)
            self._passed[key] = bool(found)
        return bool(found)


@dataclass(frozen=True, slots=True)
class PlanComparison:
    """A plan compared with today's model on sampled calls that the plan has answered.

    Attributes:
        saved: Share of the current cost that the plan saves. A sampled call counts once for each call that its step made in the
            request.
        differing: Number of sampled calls on which the plan's answer differs from today's.
        seen: Number of compared sampled calls.
        followed: Number of sampled calls for which the plan falls back to today's model.
        latency_s: Mean seconds of the plan; None if unknown.
        today_s: Mean seconds of today's calls.
    """

    saved: float
    differing: int
    seen: int
    followed: int
    latency_s: float | None
    today_s: float | None

    def is_slower(self, than: float | None) -> bool:
        """Return whether the plan's mean latency is above ``than`` times today's; False if ``than`` is None or a latency is
        unknown.
        """
        return bool(than and self.latency_s and self.today_s and self.latency_s > than * self.today_s)

    def facts(self, name: str) -> PlanFacts:
        """Return the plan's saving and number of differing answers. Plans to be tested are chosen by these figures.

        ``name`` is the plan's name.
        """
        return PlanFacts(name=name, saved=min(self.saved, _ALL), differing=self.differing, seen=self.seen)


def figures(follower: Follower, done: Sequence[tuple[ReplayUnit, PlanAnswer]]) -> PlanComparison:
    """Return the comparison of a plan with today's model on the sampled calls in ``done``, each with the plan's answer."""
    today = sum(unit.weight * unit.cost_usd for unit, _ in done)
    now = sum(unit.weight * one.cost_usd for unit, one in done)
    timed = [(one.latency_s, unit.latency_s) for unit, one in done if one.latency_s is not None and unit.latency_s is not None]
    return PlanComparison(
        saved=1.0 - now / today if today > 0.0 else 0.0,
        differing=sum(not follower.is_same(unit, one) for unit, one in done),
        seen=len(done),
        followed=sum(one.model is None for _, one in done),
        latency_s=sum(own for own, _ in timed) / len(timed) if timed else None,
        today_s=sum(was for _, was in timed) / len(timed) if timed else None,
    )
