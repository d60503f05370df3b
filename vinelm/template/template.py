"""A workflow's template: the steps that its requests take, the models of each stage, and the stop rule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar, get_args

from vinelm.errors import TemplateError, VineLMError
from vinelm.meant import did_you_mean
from vinelm.template.flow import Flow
from vinelm.template.steps import (
    END,
    MOST_INVOCATIONS,
    SKIP,
    Branch,
    Loop,
    Parallel,
    Stage,
    Step,
    from_plain,
    mapped,
    stages_of,
    to_plain,
    walk,
    words_of,
)
from vinelm.template.stop_rules import STOP_RULES, StopRule, WorkflowStop

OTHER = "other"
"""The kind that stands for requests whose own kind is not learnt."""


_Known = TypeVar("_Known", str, str | None)
_Row = TypeVar("_Row")
_Slots = TypeVar("_Slots")


@dataclass(frozen=True)
class Template:
    """The steps of a workflow. They determine which stages may come next after each sequence of stages and models.

    A template of stages, parallel stages and bounded loops is *linear*: each stage has only one possible next stage. With a
    branch, or a loop that may be left early for a step behind it, the application chooses which of several stages comes
    next.

    Args:
        steps: Stages, loops, branches and parallel stages in the order of their first visit. At least one stage must be
            answerable.
        stop: What ends a request: ``"workflow"``, the app's own check, or ``"oracle"``, the first correct answer (needs
            labels, so for replay only).
        exits: The stages after which a plan can end a request, according to the graph's edges; None: wherever there is an
            answer. Empty if only the app ends requests.
        kinds: The request types by which ``steps`` first branches (:func:`vinelm.template.kinds.of_kinds`).

    Raises:
        TemplateError: A stage is declared twice outside of branches, or with different settings; none is
            answerable; ``stop`` is unknown; or the template is too large.

    Examples:
        >>> t = Template((Stage("generate", ("a", "b")), Loop((Stage("repair", ("a", "b")),), times=2)))
        >>> [stage.name for stage in t.invocations]
        ['generate', 'repair', 'repair']
        >>> router = Template((Stage("router"), Branch({"search": (Stage("search"),), "answer": ()}), Stage("write")))
        >>> [stage.name for stage in router.arms_after(["router"])]
        ['search', 'write']
    """

    steps: tuple[Step, ...]
    stop: StopRule = "workflow"
    exits: tuple[str, ...] | None = None
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.stop not in get_args(StopRule):
            raise TemplateError(f"stop is {self.stop!r}: use 'oracle' or 'workflow'")
        if not self.steps:
            raise TemplateError("a template needs at least one stage")
        if longest(self.steps) > MOST_INVOCATIONS:
            raise TemplateError(f"the template has more than {MOST_INVOCATIONS:,} invocations: allow fewer loop turns")
        has_branch = any(isinstance(step, Branch) for step in walk(self.steps))
        seen: dict[str, Stage] = {}
        for stage in stages_of(self.steps):
            known = seen.setdefault(stage.name, stage)
            if known is not stage and not has_branch:
                raise TemplateError(f"stage {stage.name!r} is declared twice: put repeated visits into one Loop")
            if known != stage:
                raise TemplateError(
                    f"stage {stage.name!r} is declared twice with different settings: give it the same models, default and "
                    "answerable in every arm"
                )
        if not any(stage.answerable for stage in seen.values()):
            raise TemplateError("no stage is answerable: the workflow could never end with an answer")
        if any(step == END for step in self.steps):
            raise TemplateError("END stands outside of a branch: it is the last step of an arm")

    @cached_property
    def base(self) -> Template:
        """The application's own template, without request types; the template itself if it has none."""
        if not self.kinds:
            return self
        own, names = self.steps[0], self.base_stages
        assert isinstance(own, Branch)
        steps = mapped(own.ways[self.kinds[0]], lambda stage: replace(stage, name=names[stage.name]))
        return Template(steps, self.stop, self.exits and tuple(dict.fromkeys(names[name] for name in self.exits)))

    @cached_property
    def base_stages(self) -> Mapping[str, str]:
        """The name of the application's stage, keyed by the template's stage name. The two differ if the template
        distinguishes request types.
        """
        pairs = zip(self.stages, self.kinds_of_stages, strict=True)
        return {stage.name: stage.name.removesuffix(stage_title("", kind)) for stage, kind in pairs}

    def counts_as(self, kind: str | None) -> str:
        """Return the request type under which the template handles a request whose own type is ``kind``; ``""`` if types
        are not distinguished.
        """
        return learnt_kind(kind, self.kinds)

    @property
    def kind_names(self) -> tuple[str, ...]:
        """The request types of the template; only ``""`` if types are not distinguished."""
        return self.kinds or ("",)

    @property
    def rule(self) -> WorkflowStop:
        """The template's stop rule as an object. Its methods say, for example, whether a service can follow the rule."""
        return STOP_RULES[self.stop]

    @cached_property
    def kinds_of_stages(self) -> tuple[str, ...]:
        """For each of :attr:`stages`, the request type that the stage is for; ``""`` if types are not distinguished."""
        return tuple(kind for kind in self.kind_names for _ in range(len(self.stages) // len(self.kind_names)))

    @cached_property
    def base_numbers(self) -> tuple[int, ...]:
        """For each of :attr:`stages`, the index of the same stage in the application's own template (:attr:`base`)."""
        return tuple(range(len(self.base.stages))) * len(self.kind_names)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All stages without duplicates, in the order of first visits."""
        return tuple({stage.name: stage for stage in stages_of(self.steps)}.values())

    @cached_property
    def per_node(self) -> frozenset[str]:
        """The names of the stages that choose one model for each execution of their node, however many calls it makes."""
        return frozenset(stage.name for stage in self.stages if stage.per_node)

    @cached_property
    def is_linear(self) -> bool:
        """Whether at most one stage can come next at any time: there are no branches, and no loops that may be left early
        for a later step.
        """
        has_branch = any(isinstance(step, Branch) for step in walk(self.steps))
        return not has_branch and all(len(position.arms) <= 1 for position in self.flow.positions)

    @cached_property
    def form(self) -> Branching:
        """The object that computes those properties that depend on whether the template branches.

        It is a :class:`Chain` if the template is linear (one possible next stage at any time), otherwise a
        :class:`Branching`.
        """
        return (Chain if self.is_linear else Branching)(self)

    @cached_property
    def places(self) -> Flow | None:
        """The automaton that finds a request's position from its stages.

        None for a linear template without stages that run at the same time, because the number of stages then determines
        the position.
        """
        return self.form.places

    @cached_property
    def merges(self) -> bool:
        """Whether several sequences of models may share a node of the trie, because of a loop's ``memory=`` or
        ``order="ignored"``.
        """
        return any(isinstance(step, Loop) and step.merges for step in walk(self.steps))

    @cached_property
    def flow(self) -> Flow:
        """The automaton of the template, which has the stages that may come next at each position."""
        is_chain = not any(isinstance(s, Branch) or (isinstance(s, Loop) and s.early_exit) for s in walk(self.steps))
        return Flow(tuple(self._unrolled()) if is_chain else self.steps, prunes=not is_chain)

    @cached_property
    def invocations(self) -> tuple[Stage, ...]:
        """The stages of a linear template with loops unrolled: item k is the stage of invocation k, counted from 0.

        If the template ends with a loop, the last turn ends at its last answerable stage. Later stages would only lead to
        another turn. Raises :class:`TemplateError` if the template is not linear.
        """
        if not self.certain_stages:
            raise TemplateError("the template branches: its requests do not run the same stages")
        return self.certain_stages

    @cached_property
    def certain_stages(self) -> tuple[Stage, ...]:
        """The stage of each invocation, if the template is linear; empty if the application chooses the next stages."""
        return self.form.certain_stages

    @property
    def listed(self) -> tuple[Stage, ...]:
        """The stages of a linear template, one for each invocation; empty if the template branches or :attr:`merges`."""
        return () if self.merges else self.certain_stages

    def settings_of(self, models: Mapping[str, str], length: int | None = None) -> dict[str, Any]:
        """Return the settings with which a :class:`~vinelm.policies.StaticPolicy` runs one model at each stage.

        Args:
            models: The model of each stage, by the stage's name.
            length: The maximum number of invocations; None for all.
        """
        if not self.listed:
            return {"models": dict(models), "length": length}
        return {"path": tuple(models[stage.name] for stage in self.listed[:length])}

    @property
    def words(self) -> str:
        """The template on one line, such as ``router > (search > grade | end) > write`` for a template with branches.

        With request types, the text shows the application's own template and the number of types.
        """
        own = self.base
        of_kinds = f", for each of {len(self.kinds)} kinds" if self.kinds else ""
        return (" > ".join(stage.name for stage in own.listed) or words_of(own.steps)) + of_kinds

    def _unrolled(self) -> list[Stage | Parallel]:
        unrolled = list(_unrolled(self.steps))
        last = self.steps[-1]
        if isinstance(last, Loop) and any(stage.answerable for stage in stages_of([last])):
            while not any(stage.answerable for stage in stages_of([unrolled[-1]])):
                unrolled.pop()
        return unrolled

    @cached_property
    def depth(self) -> int:
        """The maximum number of invocations of one request."""
        return self.flow.depth

    def stage(self, name: str) -> Stage:
        """Return the stage with this name; raise :class:`TemplateError` if there is none."""
        found = self._by_name.get(name)
        if found is None:
            raise TemplateError(
                f"the workflow has no stage {name!r}{did_you_mean(name, self._by_name)}: "
                f"it has {', '.join(s.name for s in self.stages)}"
            )
        return found

    @cached_property
    def _by_name(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self.stages}

    def stage_after(self, length: int) -> Stage | None:
        """Return the stage that comes next after ``length`` invocations; None after the last invocation.

        Also None if the template branches, because the application then chooses the next stage. The results of a request
        record its choice (:meth:`following`, :meth:`noted`).
        """
        return self.certain_stages[length] if length < len(self.certain_stages) else None

    def following(self, length: int, arm: str | None) -> Stage | None:
        """Return the stage that follows ``length`` invocations; None if a request ends there.

        Args:
            length: Number of invocations so far.
            arm: The name of the next stage, as stored with the result of the last invocation (``Observation.arm``); None if
                none is stored.
        """
        return self.stage_after(length) if arm is None else self.stage(arm)

    def noted(self, stage: str | None) -> str | None:
        """Return the value that a result stores as its next stage (``arm``).

        It is ``stage``, the stage that came next. It is None if the template allows only one next stage, which need not be
        stored.
        """
        return self.form.noted(stage)

    def has_stopped(self, has_ended: bool, verdict: bool | None) -> bool:
        """Return the value of a result's field ``stopped``: whether the workflow's own check passed.

        If there is no check, or if the application chooses the next stage, the value is ``has_ended``.

        Args:
            has_ended: Whether the request has ended.
            verdict: The result of the workflow's own check; None without a check.
        """
        return self.form.has_stopped(has_ended, verdict)

    def stages_along(self, length: int, known: Sequence[_Known]) -> tuple[_Known, ...]:
        """Return the stages of a request's first ``length`` invocations.

        A linear template determines their names. Otherwise, ``known`` is returned: the stages as the caller has observed them.
        """
        return tuple(stage.name for stage in self.certain_stages[:length]) or tuple(known)

    @property
    def goes_on_past_ends(self) -> bool:
        """Whether a profile can continue requests that the workflow's own check has ended.

        False if the application chooses the next stage: after the end, no edge of the graph runs that could choose one.
        """
        return self.base.form.goes_on_past_ends

    def arms_after(self, stages: Sequence[str]) -> tuple[Stage, ...]:
        """Return the stages that may come next after ``stages``, in template order; empty after the last invocation.

        Raises:
            TemplateError: the template does not allow these stages in this order.
        """
        # Followed here instead of by Flow.at, because profiles and stores ask this for every row.
        positions = self.flow.positions
        at = positions[0]
        try:
            for name in stages:
                at = positions[at.arms[name]]
        except KeyError:
            raise TemplateError(f"the template does not allow the stages {', '.join(stages)} in this order") from None
        return tuple(self._by_name[name] for name in at.arms)

    def choices_after(self, stages: Sequence[str]) -> frozenset[str] | None:
        """Return the names of the stages that may come next after ``stages``; None if the template does not allow
        ``stages`` in this order.
        """
        try:
            return frozenset(stage.name for stage in self.arms_after(stages))
        except TemplateError:
            return None

    def leaves_room(self, length: int, stages: Sequence[str], arms: Collection[str] | None) -> bool:
        """Return False if the template's loop bounds prevent another invocation of the request, otherwise True.

        Also True if another invocation is impossible for a different reason: the template lacks a branch, or does not allow
        ``stages``.

        Args:
            length: number of invocations so far.
            stages: the stages of the invocations. Not needed if the template is linear.
            arms: the stages that may come next, of which the application takes one; None if unknown.
        """
        return self.form.leaves_room(length, stages, arms)

    def stages_at(self, length: int, stages: Sequence[str] = ()) -> tuple[Stage, ...]:
        """Return the stages that may run as invocation number ``length``, counted from 1; empty after the last invocation.

        Args:
            length: the number of the invocation.
            stages: the stages of the invocations so far, including this invocation's if known. Not needed if the template
                is linear.

        Raises:
            TemplateError: the template does not allow these stages in this order.
        """
        known = tuple(stage.name for stage in self.certain_stages[:length]) or stages
        return (self.stage(known[length - 1]),) if len(known) >= length else self.arms_after(known)

    @property
    def first_stages(self) -> tuple[Stage, ...]:
        """The stages that may come first."""
        return self.arms_after(())

    @property
    def n_sequences(self) -> int:
        """The number of model sequences that the template allows, of all lengths; the template must name the models of all
        stages (:meth:`bind`).
        """
        positions = self.flow.positions
        below = [0] * len(positions)
        for number in range(len(positions) - 1, -1, -1):  # a branch leads to a higher number
            arms = positions[number].arms.items()
            below[number] = sum(len(self.stage(stage).models or ()) * (1 + below[after]) for stage, after in arms)
        return below[0]

    @property
    def models(self) -> tuple[str, ...]:
        """All models that some stage allows, in order of first mention.

        Raises :class:`TemplateError` if a stage does not name its models (:meth:`bind`).
        """
        names: dict[str, None] = {}
        for stage in self.stages:
            if stage.models is None:
                raise TemplateError(f"stage {stage.name!r} is not bound to a catalog yet: call Template.bind first")
            names.update(dict.fromkeys(stage.models))
        return tuple(names)

    def bind(self, catalog: Sequence[str]) -> Template:
        """Return a copy in which every stage whose ``models`` is None allows all models of ``catalog``.

        Args:
            catalog: Names of the available models.

        Raises:
            TemplateError: A stage allows a model, or has a default, that the catalog lacks.
        """

        def bound(stage: Stage) -> Stage:
            models = tuple(catalog) if stage.models is None else stage.models
            for name in (*models, *([stage.default] if stage.default else [])):
                if name not in catalog and name != SKIP:
                    raise TemplateError(
                        f"stage {stage.name!r} allows the model {name!r}, which the catalog lacks"
                        f"{did_you_mean(name, catalog)}: it has {', '.join(catalog)}"
                    )
            return replace(stage, models=(*models, SKIP) if stage.optional and SKIP not in models else models)

        return self._mapped(bound)

    def with_exits(self, exits: Container[str]) -> Template:
        """Return a copy in which only stages in ``exits`` are answerable, so that requests can end only there.

        Raises:
            TemplateError: No answerable stage is left.
        """

        def ended(stage: Stage) -> Stage:
            return replace(stage, answerable=stage.answerable and stage.name in exits)

        return self._mapped(ended)

    def stages_before(self, names: Collection[str]) -> frozenset[str]:
        """Return the stages that may come directly before one of the stages in ``names``.

        In a loop, the last stage of a turn may come directly before the first stage of the next turn.
        """
        return frozenset(before for before, name in self.form.pairs if name in names)

    def held_before(self, exits: Collection[str]) -> frozenset[str]:
        """Return the stages whose answer may still be the final answer of a request that ends after a later stage in ``exits``.

        This is so if the later stage is skipped (it is optional) or only judges answers. A request may be unable to end
        directly after a returned stage.
        """
        found: set[str] = set()
        waiting = {stage.name for stage in self.stages if stage.name in exits and stage.keeps_answer}
        while waiting:
            before = self.stages_before(waiting) - found
            found |= before
            waiting = {name for name in before if self.stage(name).keeps_answer or not self.stage(name).answerable}
        return frozenset(found)

    def exits_by(self, names: Collection[str]) -> frozenset[str]:
        """Return the stages after which a request can end, given the stages ``names`` to which conditional edges lead back.

        These are the stages that come directly before one of ``names``. The template's last stages are added, unless a linear
        template ends with a loop that contains one of ``names``.
        """
        return self.stages_before(names) | self.form.last_exits(names)

    @cached_property
    def own_ends(self) -> frozenset[str]:
        """The stages after which the application's graph may end a request by itself: the last stage or, with branches, any
        stage.
        """
        return frozenset(stage.name for stage in self.form.own_ends)

    @property
    def today(self) -> dict[str, str] | None:
        """The current setup: each stage's declared default, which runs without VineLM. None if some stage has no default."""
        found = {stage.name: stage.default for stage in self.base.stages if stage.default is not None}
        return found if len(found) == len(self.base.stages) else None

    def with_defaults(self, defaults: Mapping[str, str | None]) -> Template:
        """Return a copy with the default models in ``defaults``, keyed by stage.

        A stage keeps its default if the value is None or a model that the stage does not allow.
        """

        def declared(stage: Stage) -> Stage:
            model = defaults.get(stage.name)
            is_allowed = model is not None and (stage.models is None or model in stage.models)
            is_allowed = stage.optional if model == SKIP else is_allowed
            return replace(stage, default=model) if is_allowed else stage

        return self._mapped(declared)

    def with_optional(self, optional: Mapping[str, str | None]) -> Template:
        """Return a copy in which the stages that are keys of ``optional`` are optional (may be skipped).

        The value for a stage that judges answers is the key of the state under which the stage stores its verdict. For other
        stages it is None.
        """
        return self._mapped(lambda s: replace(s, optional=True, verdict=optional[s.name]) if s.name in optional else s)

    def with_stop(self, stop: StopRule) -> Template:
        """Return a copy of this template with the stop rule ``stop``."""
        return replace(self, stop=stop)

    def _mapped(self, change: Callable[[Stage], Stage]) -> Template:
        return replace(self, steps=mapped(self.steps, change))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types that :meth:`from_dict` reads."""
        more = {} if self.exits is None else {"exits": list(self.exits)}
        if self.kinds:
            more["kinds"] = list(self.kinds)
        return {"stop": self.stop, "steps": [to_plain(step) for step in self.steps], **more}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Template:
        """Return the template that ``plain`` describes, a dict that :meth:`to_dict` returned."""
        exits = plain.get("exits")
        steps = tuple(map(from_plain, plain["steps"]))
        return cls(steps, plain["stop"], None if exits is None else tuple(exits), tuple(plain.get("kinds", ())))


class Branching:
    """Computes properties of a template that branches: the application chooses which of several stages comes next."""

    def __init__(self, template: Template) -> None:
        self._template = template

    @property
    def places(self) -> Flow | None:
        """The automaton that finds a request's position from its stages."""
        return self._template.flow

    @property
    def certain_stages(self) -> tuple[Stage, ...]:
        """An empty tuple, because the application chooses the next stages."""
        return ()

    @property
    def own_ends(self) -> tuple[Stage, ...]:
        """The stages after which the application's graph may end a request by itself: all stages."""
        return self._template.stages

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """All pairs of stages of which the second may follow the first directly."""
        return self._template.flow.follows

    def last_exits(self, names: Collection[str]) -> frozenset[str]:
        """Return the stages that may be the last of a request.

        ``names``, the stages to which conditional edges lead back, has no effect in a template that branches.
        """
        return self._template.flow.last_stages

    def noted(self, stage: str | None) -> str | None:
        """Return ``stage``, because a result has to record which stage came next; see :meth:`Template.noted`."""
        return stage

    def has_stopped(self, has_ended: bool, verdict: bool | None) -> bool:
        """Return ``has_ended``: if the application chooses the next stage, only the request's end counts as a stop."""
        return has_ended

    @property
    def goes_on_past_ends(self) -> bool:
        """Whether a profile can continue requests that the workflow's own check has ended: False.

        In a template that branches, an edge of the graph chooses the next stage, but no edge runs after the end.
        """
        return False

    @property
    def answers_first(self) -> bool:
        """Whether policies may compare a request's answers from its first call on; False for a template that branches."""
        return False

    def require_known_ends(self, error: VineLMError) -> None:
        """Raise ``error`` if the stop rule continues requests past the graph's own end, where the next stage is unknown."""
        self._template.rule.require_served(error)

    def chosen(self, stages: Sequence[Stage]) -> Sequence[Stage]:
        """Return ``stages`` unchanged: in a template that branches, the application chooses which of them a request runs."""
        return stages

    def answered(self, rows: Sequence[_Row]) -> Sequence[_Row]:
        """Return only the last of a request's rows, because only this row must have an answer."""
        return rows[-1:]

    def slots(self, depth: _Slots, slot: _Slots) -> _Slots:
        """Return ``slot``: in a template that branches, a fixed plan has one model (a slot) for each stage.

        Both arguments, and the result, are arrays with an item for each group of edges: all edges of the trie from one node to
        one stage. ``slot`` has the stage's index in the application's template, ``depth`` the number of invocations before it.
        """
        return slot

    def leaves_room(self, length: int, stages: Sequence[str], arms: Collection[str] | None) -> bool:
        """Return False if loop bounds prevent each of the stages ``arms`` from coming next, otherwise True; see
        :meth:`Template.leaves_room`.
        """
        allowed = self._template.choices_after(stages)
        if allowed is None or (arms is not None and not arms):
            return True
        if not allowed or arms is None or not allowed.isdisjoint(arms):
            return bool(allowed)
        return not any((stages[-1], arm) in self._template.flow.follows for arm in arms)


class Chain(Branching):
    """Computes properties of a linear template, in which each stage has only one possible next stage."""

    @property
    def places(self) -> Flow | None:
        """The automaton that finds a request's position from its stages; None if no two stages run at the same time, so
        that it is not needed.
        """
        flow = self._template.flow
        return flow if any(position.is_joint for position in flow.positions) else None

    @property
    def certain_stages(self) -> tuple[Stage, ...]:
        """The stage of every invocation in order, because the template alone determines them."""
        return tuple(self._template.stage(name) for position in self._template.flow.positions for name in position.arms)

    @property
    def own_ends(self) -> tuple[Stage, ...]:
        """The stages after which the application's graph may end a request by itself: the last stage."""
        return self._template.stages[-1:]

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """All pairs of stages of which the second may follow the first directly. The last and first stage of each loop are
        such a pair.
        """
        order = pairwise(stage.name for stage in self._template.stages)
        loops = (list(stages_of(step.stages)) for step in walk(self._template.steps) if isinstance(step, Loop))
        return frozenset((*order, *((stages[-1].name, stages[0].name) for stages in loops)))

    def last_exits(self, names: Collection[str]) -> frozenset[str]:
        """Return the template's last stage in a set; return an empty set if only a conditional edge can end the last loop.

        The set is empty if the template ends with a loop that contains a stage in ``names``. These are the stages to which
        conditional edges lead back.
        """
        last = self._template.steps[-1]
        is_left_by_edge = isinstance(last, Loop) and any(stage.name in names for stage in stages_of([last]))
        return frozenset(() if is_left_by_edge else (self._template.stages[-1].name,))

    def noted(self, stage: str | None) -> None:
        """Return None, because without branches a result need not record the next stage; see :meth:`Template.noted`."""

    def has_stopped(self, has_ended: bool, verdict: bool | None) -> bool:
        """Return the result of the workflow's own check (``verdict``) or, without a check, whether the request ended."""
        return has_ended if verdict is None else verdict

    @property
    def goes_on_past_ends(self) -> bool:
        """Whether a profile can continue requests that the workflow's own check has ended.

        False if requests end when their answer is right (the stop rule "oracle").
        """
        return self._template.stop == "workflow"

    @property
    def answers_first(self) -> bool:
        """Whether every stage writes an answer, so that a request's answers can be compared from its first call on."""
        return all(stage.answerable for stage in self._template.stages)

    def require_known_ends(self, error: VineLMError) -> None:
        """Do nothing: in a linear template, the stage that would follow the graph's own end is always known."""

    def chosen(self, stages: Sequence[Stage]) -> Sequence[Stage]:
        """Return an empty sequence: in a linear template, the application never chooses a stage."""
        return ()

    def answered(self, rows: Sequence[_Row]) -> Sequence[_Row]:
        """Return all rows, because each may show an answer."""
        return rows

    def slots(self, depth: _Slots, slot: _Slots) -> _Slots:
        """Return ``depth``, the number of earlier invocations: in a linear template, a fixed plan has one model per invocation.

        See :meth:`Branching.slots`.
        """
        return depth

    def leaves_room(self, length: int, stages: Sequence[str], arms: Collection[str] | None) -> bool:
        """Return whether the template allows more than ``length`` invocations; the other arguments have no effect."""
        return length < self._template.depth


def learnt_kind(kind: str | None, kinds: tuple[str, ...]) -> str:
    """Return a request's type if ``kinds`` contains it, otherwise :data:`OTHER`; ``""`` if ``kinds`` is empty."""
    return kind if kind is not None and kind in kinds else OTHER * bool(kinds)


def stage_title(stage: str, kind: str) -> str:
    """Return the name of a stage in a template with request types, such as ``write [sql]``; the stage's own name if
    ``kind`` is ``""``.
    """
    return f"{stage} [{kind}]" if kind else stage


def longest(steps: Sequence[Step]) -> int:
    """Return the maximum number of invocations that the steps allow."""
    total = 0
    for step in steps:
        if isinstance(step, Loop):
            total += step.times * longest(step.stages)
        elif isinstance(step, Branch):
            total += max(map(longest, step.ways.values()))
        elif isinstance(step, Parallel):
            total += len(step.stages)
        else:
            total += isinstance(step, Stage)
    return total


def _unrolled(steps: Sequence[Step]) -> Iterator[Stage | Parallel]:
    """Yield the stages of steps without branches; the stages of a loop are repeated for each turn."""
    for step in steps:
        if isinstance(step, Loop):
            for _ in range(step.times):
                yield from _unrolled(step.stages)
        elif isinstance(step, (Stage, Parallel)):
            yield step
