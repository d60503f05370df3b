"""What a report page shows for each budget: the application's graph, the plan as a tree, and bars by stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vinelm.template import Template

Parts = tuple[tuple[str, float], ...]
"""Models, each with its amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPicture:
    """The application's graph with a plan's models on it.

    Attributes:
        template: The template, which has the stages, loops and branches of the graph.
        calls: For each stage, keyed by its name: pairs (model, expected number of calls per request under the plan).
    """

    template: Template
    calls: Mapping[str, Parts]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """One step of a plan: a stage and its model, or the end of the request (``model`` is None).

    Attributes:
        stage: The workflow's stage; empty if the request ends.
        model: The model that runs.
        when: The condition, in few words, under which this step follows instead of another one; empty if the stage's name
            is enough.
        seen: The possible outcomes of the previous call after which this step follows, each in words; empty if the plan
            does not depend on them.
        share: The share of all requests that reach this step, in [0, 1].
        children: The steps that may follow.
    """

    stage: str
    model: str | None
    when: str
    seen: tuple[str, ...]
    share: float
    children: tuple[PlanNode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTree:
    """A plan as a tree.

    Attributes:
        roots: The first steps of a request.
        left_out: The number of steps that are not shown because they are rare.
    """

    roots: tuple[PlanNode, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBars:
    """The bars of a chart: one for each stage and plan, divided by model.

    Attributes:
        stages: Pairs (stage, bars); the bars are pairs (name of the plan, parts of the bar), and the parts are pairs
            (model, value).
        most: The value of the longest bar over all budgets, so that bars of two budgets can be compared.
        amount: Returns the text of a value, with its unit.
    """

    stages: tuple[tuple[str, tuple[tuple[str, Parts], ...]], ...]
    most: float
    amount: Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStop:
    """The plan within one budget.

    Attributes:
        budget: The budget in words.
        plan: The plan in words, on one line.
        figures: (name, value) pairs of the plan; the names are the same for every budget.
        graph: The application's graph with the plan's models.
        tree: The plan as a tree.
        bars: The chart of bars for each quantity, keyed by ``dollars`` and, if latencies are known, ``seconds``.
    """

    budget: str
    plan: str
    figures: tuple[tuple[str, str], ...]
    graph: GraphPicture
    tree: PlanTree
    bars: Mapping[str, StageBars]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSlider:
    """The plans of a range of budgets, by rising budget. With a single stop, the page has no slider.

    Attributes:
        intro: What the plans are, and the basis of their figures.
        stops: The plan of each budget, by rising budget, at least one.
        start: The index of the stop that is shown first. If the browser runs no script, only this stop is shown.
        beside: A sentence that names the baseline, whose bars are drawn beside the plan's; empty without a baseline.
        models: The models in the order of the page's colours.
    """

    intro: str
    stops: tuple[BudgetStop, ...]
    start: int
    beside: str
    models: tuple[str, ...]

    def colour_of(self, model: str) -> int:
        """Return the index of a model's colour; an unknown model gets the index after all others."""
        return self.models.index(model) if model in self.models else len(self.models)
