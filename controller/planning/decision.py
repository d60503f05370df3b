"""The planner's result: the next model, the plan that this model belongs to, and the reason for the choice."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

from vinelm.controller.planning.metric import COST_CAP, FLOOR, LATENCY_CAP, UNITS
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.io.frames import html_table
from vinelm.plans.expected import Expected
from vinelm.plans.recommendation import recommended
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray
from vinelm.trie.verdict import Verdict

EFFORT = {FLOOR: "highest accuracy instead", LATENCY_CAP: "least time instead", COST_CAP: "least cost instead"}


def spare(limit: float, used: float) -> float:
    """Return ``limit - used``, the unused part of a bound; 0 if the difference is only a rounding error.

    A rounding error occurs for example if a plan's exact cost is the bound.
    """
    left = limit - used
    return left if abs(left) > 1e-12 * abs(limit) else 0.0


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best plan that begins with ``next_model``, as an alternative to the chosen plan.

    Attributes:
        stage: The stage that comes next; None if the request ends without a choice.
        next_model: The model to run next; None to end the request now.
        plan: The models from the root to the plan's end.
        accuracy: Expected accuracy at the plan's end.
        path_cost_usd: Expected cost from the root, in dollars.
        remaining_s: Expected seconds from the request's node to the plan's end, including the delay by load.
        is_feasible: Whether the plan meets every bound.
        is_chosen: Whether this is the chosen plan.
        why: Why the plan was not chosen; empty for the chosen plan.
    """

    stage: str | None
    next_model: str | None
    plan: tuple[str, ...]
    accuracy: float
    path_cost_usd: float
    remaining_s: float
    is_feasible: bool
    is_chosen: bool
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of this alternative as plain JSON types."""
        return asdict(self) | {"plan": list(self.plan)}


class BoundUse(NamedTuple):
    """How a plan uses one bound of the objective.

    Attributes:
        name: The bound's name.
        used: The dollars or seconds that count towards the bound so far; None for an accuracy floor.
        needed: The dollars or seconds that the plan still needs; for an accuracy floor, the plan's accuracy.

    ``used`` and ``needed`` are both None if the plan may end the request at several nodes.
    """

    name: str
    used: float | None
    needed: float | None


@dataclass  # not frozen: setting the fields of a frozen object takes as long as the rest of a plan
class Decision(Expected):
    """The plan for a request at one moment: run ``next_model`` now, then follow the plan. Do not modify.

    Properties are computed when first read.

    Attributes:
        node: The request's node.
        target: The node at which the request should end; the request's own node if the plan has several ends.
        next_model: The model to run now; None if the request should end at ``node``.
        relaxed: The names of the bounds that were relaxed because no plan meets all bounds, the binding bound first; empty if
            none was relaxed.
        metrics: The planner's path metrics.
        request: The planning request.
    """

    node: int
    target: int
    next_model: str | None
    relaxed: tuple[str, ...]
    metrics: PathMetrics = field(compare=False, repr=False)
    request: PlanRequest = field(compare=False, repr=False)

    noun: ClassVar[str]
    """The name of such a plan in texts for people."""
    latency_words: ClassVar[str]
    """A phrase that says what :attr:`path_latency_s` measures, such as "if every invocation runs"."""
    alternatives_shown: ClassVar[tuple[str, ...]]
    """The fields of an :class:`Alternative` that tables show."""
    alternatives_words: ClassVar[str]
    """A sentence that explains the alternatives' figures in tables."""
    _latency_name: ClassVar[str]

    @property
    def annotated(self) -> AnnotatedTrie:
        """The annotated trie over which the plan was made."""
        return self.metrics.annotated

    @property
    def stop(self) -> bool:
        """True if the request should end at ``node``."""
        return self.next_model is None

    @property
    def is_feasible(self) -> bool:
        """True if the plan meets every bound of the objective."""
        return not self.relaxed

    @abstractmethod
    def goes_on(self, node: int, stage: str) -> bool:
        """Return whether the plan runs a model if the application continues from ``node`` to ``stage``."""

    @abstractmethod
    def next_for(self, stage: str | None) -> str | None:
        """Return the model to run if ``stage`` comes next; None if the request should end.

        ``stage`` may be None if only one stage is possible.
        """

    @property
    @abstractmethod
    def path(self) -> tuple[str, ...]:
        """The models from the root on that have run or will certainly run."""

    @property
    @abstractmethod
    def ends(self) -> list[int]:
        """The nodes at which the plan may end."""

    @property
    @abstractmethod
    def reached(self) -> FloatArray:
        """The probability that a request on this plan makes each node's call, from the root on; shape (nodes,)."""

    @property
    @abstractmethod
    def steps(self) -> list[dict[str, Any]]:
        """The plan as a tree of JSON types; each step has stage, model (None at the end), probability and the next steps."""

    @property
    @abstractmethod
    def remaining_cost_usd(self) -> float:
        """The expected cost of the calls after ``node``, in dollars."""

    @property
    @abstractmethod
    def remaining_latency_s(self) -> float:
        """The expected latency of the calls after ``node``, in seconds."""

    @property
    @abstractmethod
    def mean_rest_s(self) -> float:
        """The expected latency of the calls after ``node`` at zero load, in seconds, without margins; NaN if unknown."""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on serving the plan instead of the current setup; None if the trie has no verdict."""
        return recommended(self.metrics.annotated, self.request.objective, lambda: self.path_cost_usd)

    @property
    @abstractmethod
    def slack(self) -> dict[str, float]:
        """The unused part of each bound, by the bound's name: seconds, dollars or a fraction; negative if violated."""

    @property
    def bounds(self) -> list[BoundUse]:
        """The use of each bound that :attr:`slack` lists, in the order of :attr:`slack`; see :class:`BoundUse`."""
        return [BoundUse(bound, None, None) for bound in self.slack]

    @property
    @abstractmethod
    def binding(self) -> str | None:
        """The name of the bound that decides which plan is chosen; None if no bound does."""

    @property
    @abstractmethod
    def reason(self) -> str:
        """One line of text that gives the plan and its binding bound (see :attr:`binding`)."""

    @property
    def sentences(self) -> str:
        """The reason for the choice as full sentences, with further remarks."""
        return f"{self.reason[0].upper()}{self.reason[1:]}."

    @property
    @abstractmethod
    def ahead(self) -> tuple[float, float, float]:
        """Expected accuracy, cost in dollars and latency in seconds from ``node`` on, for a request that continues."""

    @abstractmethod
    def lines(self, limit: int | None = None) -> list[str]:
        """Return the plan as an indented tree of at most ``limit`` lines (None: all lines)."""

    @abstractmethod
    def alternatives(self) -> list[Alternative]:
        """Return the alternatives: to end now, if allowed, and the best plan that begins with each possible next model."""

    @abstractmethod
    def candidates(self) -> dict[str, Any]:
        """Return a dictionary with the alternatives as JSON types.

        They are under the key ``candidates``. For a traffic split, the key ``plans`` holds a list with the alternatives of each
        plan.
        """

    @abstractmethod
    def explain(self) -> str:
        """Return why the plan was chosen, as text."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the models and stages of the plan as JSON types.

        The plan's expected values and the reason for it are not included.
        """

    @property
    def _now(self) -> dict[str, Any]:
        """The plan's next step as a dictionary of JSON types, under keys such as ``next_model``."""
        return {"next_model": self.next_model}

    def to_dict(self) -> dict[str, Any]:
        """Return the plan, its expected values and its reason as JSON types; seconds are None if the trie has no latencies."""
        return {"node": self.node, **self._now, **self._figures(), **self.facts()}

    @property
    def parts(self) -> tuple[tuple[float, Decision], ...]:
        """The plans that requests follow, as pairs of a share of the requests and a plan.

        Without a traffic split, this is a single pair: 1 and this plan.
        """
        return ((1.0, self),)

    def _repr_html_(self) -> str:
        """Return the plan, its expected metrics and the slack of each bound as a table, for notebooks."""
        rows = [
            ("plan", self.words),
            ("accuracy", f"{self.accuracy:.1%}"),
            ("cost per request", f"${self.path_cost_usd:.4g}"),
            (self._latency_name, f"{self.path_latency_s:.3g} s" if self.metrics.annotated.knows_latency else "-"),
            *((f"slack of {bound}", f"{left:.4g}{UNITS[bound]}") for bound, left in self.slack.items()),
            ("meets the bounds", "yes" if self.is_feasible else f"no: {', '.join(self.relaxed)} relaxed"),
        ]
        return html_table(f"Decision: {self.request.objective}", ("", "value"), rows)

    def _figures(self) -> dict[str, Any]:
        knows_latency = self.metrics.annotated.knows_latency
        return {
            "is_feasible": self.is_feasible,
            "accuracy": self.accuracy,
            "path_cost_usd": self.path_cost_usd,
            "path_latency_s": self.path_latency_s if knows_latency else None,
            "remaining_cost_usd": self.remaining_cost_usd,
            "remaining_latency_s": self.remaining_latency_s if knows_latency else None,
            "binding": self.binding,
            "slack": dict(self.slack),
            "reason": self.reason,
        }


_MOST_LINES = 3
"""How many lines of a plan's tree are shown if its words are the same as another plan's."""


def told_apart(one: Decision, other: Decision) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return descriptions of two different plans, each long enough to show how the plans differ.

    If the one-line descriptions of both plans are equal, each is followed by the lines in which the plans' trees differ.
    """
    if one.shown != other.shown:
        return one.shown, other.shown
    lines = [line.strip() for line in one.lines()], [line.strip() for line in other.lines()]
    return _with_lines(one.shown, lines[0], lines[1]), _with_lines(other.shown, lines[1], lines[0])


def _with_lines(shown: tuple[str, ...], mine: list[str], others: list[str]) -> tuple[str, ...]:
    own = [" ".join(line.split()) for line in mine if line not in others]
    if not own:  # a subset of the other's lines
        return shown
    more = [*own[:_MOST_LINES], *(["..."] if len(own) > _MOST_LINES else [])]
    return (*shown[:-1], f"{shown[-1] if shown else ''} ({'; '.join(more)})".strip())
