"""Workflow templates: the configurable stages in order, bounded loops, and the models that each stage may use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, get_args

from vinelm.errors import TemplateError

StopRule = Literal["oracle", "workflow"]
"""When a request leaves the workflow: ``oracle`` exactly when its answer is correct (labelled replay only), ``workflow`` when
the application's own check ends it. See docs/architecture.md#mathematics."""

MOST_INVOCATIONS = 10_000
"""The longest path of one request that a template may allow."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A configurable LLM node of the graph.

    Args:
        name: The name of its node in the graph.
        models: The catalog names of the models allowed here; None allows every model of the catalog.
        answerable: The workflow holds an answer once this stage and the tools after it have run. A request may end here if the
            graph also has an exit here: a ``vine.route``, or an edge to END with no other stage behind it.
        default: The model that runs without a plan; None takes the first allowed one.

    Raises:
        TemplateError: The name is empty, no model is allowed, a model is repeated, or the default is not allowed.
    """

    name: str
    models: tuple[str, ...] | None = None
    answerable: bool = True
    default: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise TemplateError("a stage has no name: give it the name of its node in the graph")
        if self.models is not None:
            if not self.models:
                raise TemplateError(f"stage {self.name!r} allows no model: name at least one, or leave `models` out for all")
            if len(set(self.models)) != len(self.models):
                raise TemplateError(f"stage {self.name!r} names a model twice: {', '.join(self.models)}")
            if self.default is not None and self.default not in self.models:
                raise TemplateError(f"stage {self.name!r}: default {self.default!r} is not among its models")

    @property
    def default_model(self) -> str:
        """The declared default, or the first allowed model; :class:`TemplateError` if ``models`` is None."""
        if self.default is not None:
            return self.default
        if self.models is None:
            raise TemplateError(f"stage {self.name!r} is not bound to a catalog yet: call Template.bind first")
        return self.models[0]


@dataclass(frozen=True, slots=True)
class Loop:
    """A sequence of stages that is visited up to ``times`` times (>= 1)."""

    stages: tuple[Stage, ...]
    times: int

    def __post_init__(self) -> None:
        if self.times < 1 or not self.stages:
            raise TemplateError("a loop needs at least one stage and times >= 1")


@dataclass(frozen=True)
class Template:
    """A chain of stages and bounded loops, which determines the LLM stage that follows each prefix of model choices.

    Args:
        steps: Stages and loops in the order of their first visit. At least one stage must be answerable.
        stop: When a request leaves the workflow.

    Raises:
        TemplateError: A stage is declared twice, none is answerable, or ``stop`` is unknown.

    >>> t = Template((Stage("generate", ("a", "b")), Loop((Stage("repair", ("a", "b")),), times=2)))
    >>> [stage.name for stage in t.invocations]
    ['generate', 'repair', 'repair']
    """

    steps: tuple[Stage | Loop, ...]
    stop: StopRule = "workflow"

    def __post_init__(self) -> None:
        if self.stop not in get_args(StopRule):
            raise TemplateError(f"stop is {self.stop!r}: use 'oracle' or 'workflow'")
        if not self.steps:
            raise TemplateError("a template needs at least one stage")
        if sum(len(step.stages) * step.times if isinstance(step, Loop) else 1 for step in self.steps) > MOST_INVOCATIONS:
            raise TemplateError(f"the template has more than {MOST_INVOCATIONS:,} invocations: allow fewer loop turns")
        seen: dict[str, Stage] = {}
        for stage in (s for step in self.steps for s in (step.stages if isinstance(step, Loop) else (step,))):
            if stage.name in seen:
                raise TemplateError(f"stage {stage.name!r} is declared twice: put repeated visits into one Loop")
            seen[stage.name] = stage
        if not any(stage.answerable for stage in seen.values()):
            raise TemplateError("no stage is answerable: the workflow could never end with an answer")

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Each stage once, in the order of first visits."""
        return tuple(stage for step in self.steps for stage in (step.stages if isinstance(step, Loop) else (step,)))

    @cached_property
    def invocations(self) -> tuple[Stage, ...]:
        """The stages with loops unrolled: item k is the stage of invocation k, counted from 0.

        A loop at the end of the template ends its last turn at its last answerable stage: the stages behind that one would
        only lead into one turn more than ``times``.
        """
        unrolled: list[Stage] = []
        for step in self.steps:
            unrolled.extend(step.stages * step.times if isinstance(step, Loop) else (step,))
        last = self.steps[-1]
        if isinstance(last, Loop) and any(stage.answerable for stage in last.stages):
            while not unrolled[-1].answerable:
                unrolled.pop()
        return tuple(unrolled)

    @property
    def depth(self) -> int:
        """The maximum number of invocations of one request."""
        return len(self.invocations)

    def stage(self, name: str) -> Stage:
        """Return the stage of that name; :class:`TemplateError` if there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise TemplateError(f"the workflow has no stage {name!r}: it has {', '.join(s.name for s in self.stages)}")

    def stage_after(self, length: int) -> Stage | None:
        """Return the stage that follows a prefix of that length, or None after the last invocation."""
        return self.invocations[length] if length < self.depth else None

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that some stage allows, in order of first mention; :class:`TemplateError` if it is not bound."""
        names: dict[str, None] = {}
        for stage in self.stages:
            if stage.models is None:
                raise TemplateError(f"stage {stage.name!r} is not bound to a catalog yet: call Template.bind first")
            names.update(dict.fromkeys(stage.models))
        return tuple(names)

    def bind(self, catalog: Sequence[str]) -> Template:
        """Return this template with every model of ``catalog`` in the stages whose ``models`` is None.

        Args:
            catalog: Names of the available models.

        Raises:
            TemplateError: A stage allows a model, or has a default, that the catalog lacks.
        """

        def bound(stage: Stage) -> Stage:
            models = tuple(catalog) if stage.models is None else stage.models
            for name in (*models, *([stage.default] if stage.default else [])):
                if name not in catalog:
                    raise TemplateError(
                        f"stage {stage.name!r} allows the model {name!r}, which the catalog lacks: it has {', '.join(catalog)}"
                    )
            return replace(stage, models=models)

        return self._mapped(bound)

    def with_exits(self, exits: Container[str]) -> Template:
        """Return this template with only those answerable stages that are in ``exits``.

        Raises:
            TemplateError: None is left.
        """

        def ended(stage: Stage) -> Stage:
            return replace(stage, answerable=stage.answerable and stage.name in exits)

        return self._mapped(ended)

    def stages_before(self, names: Collection[str]) -> frozenset[str]:
        """Return the stages that one of ``names`` follows directly: in the chain, or in a loop's next turn."""
        order = [stage.name for stage in self.stages]
        pairs = set(pairwise(order))
        pairs |= {(step.stages[-1].name, step.stages[0].name) for step in self.steps if isinstance(step, Loop)}
        return frozenset(before for before, name in pairs if name in names)

    def with_stop(self, stop: StopRule) -> Template:
        """Return this template under another stop rule."""
        return replace(self, stop=stop)

    def _mapped(self, change: Callable[[Stage], Stage]) -> Template:
        steps = (
            replace(step, stages=tuple(map(change, step.stages))) if isinstance(step, Loop) else change(step)
            for step in self.steps
        )
        return replace(self, steps=tuple(steps))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types that :meth:`from_dict` reads."""

        def plain(stage: Stage) -> dict[str, Any]:
            return {
                "name": stage.name,
                "models": None if stage.models is None else list(stage.models),
                "answerable": stage.answerable,
                "default": stage.default,
            }

        return {
            "stop": self.stop,
            "steps": [
                {"times": step.times, "stages": [plain(s) for s in step.stages]} if isinstance(step, Loop) else plain(step)
                for step in self.steps
            ],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Template:
        """Return the template that :meth:`to_dict` wrote."""

        def stages(items: Iterable[Mapping[str, Any]]) -> tuple[Stage, ...]:
            return tuple(
                Stage(s["name"], None if s["models"] is None else tuple(s["models"]), s["answerable"], s["default"])
                for s in items
            )

        steps: list[Stage | Loop] = []
        for step in plain["steps"]:
            steps.append(Loop(stages(step["stages"]), step["times"]) if "times" in step else stages([step])[0])
        return cls(tuple(steps), plain["stop"])
