"""The steps of a template: stages, loops, branches, and stages that run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from vinelm.errors import TemplateError

END: Literal["__end__"] = "__end__"
"""The end of the workflow as the last step of a branch, like LangGraph's ``END``."""
SKIP = "skip"
"""The choice that leaves an optional stage out: no call, no dollars, and an unchanged state. No model may have this name."""
MOST_INVOCATIONS = 10_000
"""The longest path of one request that a template may allow."""
Order = Literal["seen", "ignored"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A configurable LLM node of the graph.

    Args:
        name: The name of its node in the graph.
        models: Names of the models that the stage may run; None allows every model of the catalog.
        answerable: Whether there is an answer once this stage and the tools after it have run. A request may end after such a
            stage if the graph also has an exit there: a ``vine.route``, or an edge to END that no other stage follows.
        default: The model that runs without a plan; None takes the first allowed model.
        optional: Whether the stage may be skipped; then :data:`SKIP` is the last of its models.
        verdict: For a stage that judges the answer instead of writing one: the key of the state under which it stores its
            verdict (a label such as ``"yes"``).
        per_node: Whether all model calls of one execution of its node are one invocation, with one choice of model: calls in a
            row, at the same time, and in graphs or agents that the node runs. Only for a node of the outermost graph.

    Raises:
        TemplateError: The name is empty, no model is allowed, a model is repeated, or the default is not allowed.
    """

    name: str
    models: tuple[str, ...] | None = None
    answerable: bool = True
    default: str | None = None
    optional: bool = False
    verdict: str | None = None
    per_node: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise TemplateError("a stage has no name: give it the name of its node in the graph")
        if SKIP in (*(self.models or ()), self.default) and not self.optional:
            raise TemplateError(f"stage {self.name!r} may be skipped only if it is optional: say optional=True")
        if self.models is not None:
            if not self.models:
                raise TemplateError(f"stage {self.name!r} allows no model: name at least one, or leave `models` out for all")
            if len(set(self.models)) != len(self.models):
                raise TemplateError(f"stage {self.name!r} names a model twice: {', '.join(self.models)}")
            if self.default is not None and self.default not in (*self.models, *([SKIP] if self.optional else [])):
                raise TemplateError(f"stage {self.name!r}: default {self.default!r} is not among its models")

    @property
    def keeps_answer(self) -> bool:
        """Whether an earlier answer may still be the answer after this stage, because the stage may be skipped or only
        judges answers.
        """
        return self.optional or self.verdict is not None

    @property
    def default_model(self) -> str:
        """The declared default, otherwise the first allowed model.

        Raises :class:`TemplateError` if neither is declared.
        """
        if self.default is not None:
            return self.default
        if self.models is None:
            raise TemplateError(f"stage {self.name!r} is not bound to a catalog yet: call Template.bind first")
        return self.models[0]


@dataclass(frozen=True, slots=True)
class Loop:
    """Steps that are run up to ``times`` times (>= 1).

    Args:
        stages: The steps of one turn.
        times: The maximum number of turns.
        memory: Treat sequences of calls as the same if their last ``memory`` (>= 1) choices of a stage and model agree. This
            approximation keeps the trie of a long loop small (docs/estimators.md#merged-histories). None distinguishes all
            sequences.
        order: ``"ignored"`` treats sequences with the same choices in another order as the same; exact if no turn sees the
            answers of earlier turns.
        early_exit: Whether the step after the loop may follow any turn, not only the last turn. Has no effect on a loop that
            ends the template.
    """

    stages: tuple[Step, ...]
    times: int
    memory: int | None = None
    order: Order = "seen"
    early_exit: bool = False

    def __post_init__(self) -> None:
        if self.times < 1 or not self.stages:
            raise TemplateError("a loop needs at least one stage and times >= 1")
        if self.memory is not None and self.memory < 1:
            raise TemplateError(f"a loop's memory is {self.memory}: keep at least the last choice (1), or leave it out")
        if self.order not in get_args(Order):
            raise TemplateError(f"a loop's order is {self.order!r}: use 'seen' or 'ignored'")
        if self.memory is not None and self.order == "ignored":
            raise TemplateError("a loop has memory= and order='ignored': choose one way to merge its histories")

    @property
    def merging(self) -> str:
        """The setting, as a text such as ``memory=2``, that lets several sequences of choices share a node of the trie; ""
        without one.
        """
        return f"memory={self.memory}" if self.memory else "order='ignored'" if self.order == "ignored" else ""

    @property
    def merges(self) -> bool:
        """Whether sequences of different choices in the loop may share a node of the trie."""
        return self.memory is not None or self.order == "ignored"


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Alternative sequences of steps (branches), of which the application chooses one while the request runs.

    Args:
        arms: The steps of each branch, by a name for reports. The step after the ``Branch`` follows each of its branches;
            ``()`` is a branch without steps. A branch that ends with :data:`END`, or is ``END``, ends the workflow.

    Raises:
        TemplateError: There are fewer than two branches, or steps follow an END.

    Examples:
        >>> Branch({"search": (Stage("search"),), "answer": ()}).arms["answer"]
        ()
    """

    arms: Mapping[str, tuple[Step, ...] | Literal["__end__"]]

    def __post_init__(self) -> None:
        if len(self.arms) < 2:
            raise TemplateError("a branch needs at least two arms: name where each of its ways leads")
        for label, steps in self.ways.items():
            if END in steps[:-1]:
                raise TemplateError(f"arm {label!r} goes on after END: END is the last step of an arm")

    @property
    def ways(self) -> dict[str, tuple[Step, ...]]:
        """The steps of each branch, keyed by its name; ``(END,)`` for a branch that only ends the request."""
        return {label: (END,) if steps == END else tuple(steps) for label, steps in self.arms.items()}

    def __eq__(self, other: object) -> bool:
        return self.ways == other.ways if isinstance(other, Branch) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.ways.items()))


@dataclass(frozen=True, slots=True)
class Parallel:
    """Different stages that run at the same time (in one superstep of LangGraph). Their models are chosen before any of
    them answers.

    Args:
        stages: At least two stages with different names. A request's sequence of models has their models in this order.
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        if len(names) < 2 or len(set(names)) < len(names):
            raise TemplateError("stages that run side by side need different names, at least two: leave Parallel out for one")


Step: TypeAlias = "Stage | Loop | Branch | Parallel | Literal['__end__']"


def walk(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield every step, including nested steps, in the order in which they are written."""
    for step in steps:
        yield step
        for inner in _inner(step):
            yield from walk(inner)


def stages_of(steps: Sequence[Step]) -> Iterator[Stage]:
    """Yield the stages of the steps, including nested ones, in written order; a stage in several branches occurs once for
    each branch.
    """
    return (step for step in walk(steps) if isinstance(step, Stage))


def mapped(steps: Sequence[Step], change: Callable[[Stage], Stage]) -> tuple[Step, ...]:
    """Return a copy of the steps in which every stage, including nested ones, is replaced by ``change(stage)``."""
    changed: list[Step] = []
    for step in steps:
        if isinstance(step, Stage):
            changed.append(change(step))
        elif isinstance(step, Parallel):
            changed.append(Parallel(tuple(map(change, step.stages))))
        elif isinstance(step, Loop):
            changed.append(replace(step, stages=mapped(step.stages, change)))
        elif isinstance(step, Branch):
            changed.append(Branch({label: mapped(arm, change) for label, arm in step.ways.items()}))
        else:
            changed.append(step)
    return tuple(changed)


def longer(steps: Sequence[Step], factor: int) -> tuple[Step, ...]:
    """Return a copy of the steps in which every loop's maximum number of turns is multiplied by ``factor``."""
    changed: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            changed.append(replace(step, stages=longer(step.stages, factor), times=factor * step.times))
        elif isinstance(step, Branch):
            changed.append(Branch({label: longer(arm, factor) for label, arm in step.ways.items()}))
        else:
            changed.append(step)
    return tuple(changed)


def remembering(steps: Sequence[Step], memory: int, *, instead_of: int | None = None) -> tuple[Step, ...]:
    """Return a copy of the steps in which some loops remember only their last ``memory`` choices of a model.

    These are the loops whose ``memory`` is ``instead_of``, except loops with ``order="ignored"``.
    """
    changed: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            inner = remembering(step.stages, memory, instead_of=instead_of)
            is_meant = step.memory == instead_of and step.order != "ignored"
            changed.append(replace(step, stages=inner, memory=memory if is_meant else step.memory))
        elif isinstance(step, Branch):
            ways = {label: remembering(arm, memory, instead_of=instead_of) for label, arm in step.ways.items()}
            changed.append(Branch(ways))
        else:
            changed.append(step)
    return tuple(changed)


def _inner(step: Step) -> list[Sequence[Step]]:
    if isinstance(step, (Loop, Parallel)):
        return [step.stages]
    return list(step.ways.values()) if isinstance(step, Branch) else []


# -- plain JSON --------------------------------------------------------------------------------------------------


def words_of(steps: Sequence[Step]) -> str:
    """Return the steps as one line of text, such as ``router > write``."""
    return " > ".join(map(_word, steps)) or "go on"


def _word(step: Step) -> str:
    if isinstance(step, Stage):
        return step.name
    if isinstance(step, Loop):
        inner = words_of(step.stages)
        return f"{inner if len(step.stages) == 1 else f'({inner})'} up to {step.times} times"
    if isinstance(step, Parallel):
        return f"({' + '.join(stage.name for stage in step.stages)})"
    if isinstance(step, Branch):
        return f"({' | '.join(words_of(arm) for arm in step.ways.values())})"
    return "end"


def to_plain(step: Step) -> Any:
    """Return the step as plain JSON types. Newer settings are left out while they have their default value, so that older
    versions can read the result.
    """
    if isinstance(step, Stage):
        models = None if step.models is None else list(step.models)
        of_stage = {"name": step.name, "models": models, "answerable": step.answerable, "default": step.default}
        later = {name: True for name in ("optional", "per_node") if getattr(step, name)}
        return of_stage | later | ({} if step.verdict is None else {"verdict": step.verdict})
    if isinstance(step, Loop):
        plain: dict[str, Any] = {"times": step.times, "stages": [to_plain(inner) for inner in step.stages]}
        if step.memory is not None:
            plain["memory"] = step.memory
        if step.order != "seen":
            plain["order"] = step.order
        if step.early_exit:
            plain["early_exit"] = True
        return plain
    if isinstance(step, Branch):
        return {"arms": [[label, [to_plain(inner) for inner in arm]] for label, arm in step.ways.items()]}
    if isinstance(step, Parallel):
        return {"parallel": [to_plain(inner) for inner in step.stages]}
    return END


def from_plain(plain: Any) -> Step:
    """Return the step from the result of :func:`to_plain`."""
    if plain == END:
        return END
    if "arms" in plain:
        return Branch({label: tuple(map(from_plain, arm)) for label, arm in plain["arms"]})
    if "parallel" in plain:
        return Parallel(tuple(_stage(inner) for inner in plain["parallel"]))
    if "times" in plain:
        settings = {name: plain[name] for name in ("memory", "order", "early_exit") if name in plain}
        return Loop(tuple(map(from_plain, plain["stages"])), plain["times"], **settings)
    return _stage(plain)


def _stage(plain: Mapping[str, Any]) -> Stage:
    models = plain["models"]
    settings = {name: plain[name] for name in ("optional", "verdict", "per_node") if name in plain}
    return Stage(plain["name"], None if models is None else tuple(models), plain["answerable"], plain["default"], **settings)
