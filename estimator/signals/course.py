"""The courses of an application: which stages may follow each other, which write answers, and which models they may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from vinelm.signals import Label
from vinelm.template import SKIP, Template


class Context(NamedTuple):
    """Everything that an answer's probability of being right depends on, except the request.

    Args:
        is_later: Whether an earlier call of the request has given an answer, which this call may have seen.
        is_again: Whether the same model has answered before, at any stage.
        arms: The stages that the application may continue to; empty if there is no choice, or the request ends.
        answers: Whether the stage writes an answer; the signal of a stage that does not, such as a router, is neither right
            nor wrong.
        after: What the last earlier call without an answer has shown: its stage, model, signal and next stage (see
            :meth:`shown`). Empty without such a call.
        keeps: Whether the current answer stays unchanged, because the stage judges it or is skipped.
        begins: How the request began, one of :attr:`Course.starts`; empty if all requests begin in the same way.
    """

    stage: str
    model: str
    is_later: bool
    is_again: bool
    arms: tuple[str, ...] = ()
    answers: bool = True
    after: tuple[str, ...] = ()
    keeps: bool = False
    begins: str = ""

    def shown(self, label: Label) -> tuple[str, ...]:
        """Return what this call shows to later calls, as (stage, model, "signal > next stage").

        The method is for calls of stages that write no answer, such as a router. ``label`` has the signal and the next stage.
        """
        return self.stage, self.model, f"{label.signal or ''} > {label.arm or ''}"


class Visit(NamedTuple):
    """A situation in which a stage runs. The stage's answer depends on it, on the model and on the request.

    Args:
        stage: The stage.
        has_answer: Whether an earlier call gave an answer.
        silent: The last earlier stage that writes no answer, such as a router; None if there is none.
        arms: The stages between which the application chooses after this stage; empty without a choice.
        begins: How the request began, a key of :attr:`Course.starts`.
    """

    stage: str
    has_answer: bool
    silent: str | None
    arms: tuple[str, ...]
    begins: str


class Course:
    """The possible courses of a request, as an automaton: each stage moves the request from one position to a later one.

    Position 0 is the start.

    Attributes:
        branches: Whether the application ever chooses between stages.
        depth: The maximum number of calls of a request.
        stages: The distinct stages.

    Args:
        follow: For each position, the stages that may come next, each with the position that it leads to.
        models: The models of each stage; None if every stage may run on every model.
        silent: The stages that write no answer, such as a router.
        judges: The stages that judge the current answer.
        starts: For each way in which a request may begin, the first stage. The way is known before the first call: it is the
            request's type or the application's choice. By default, all requests begin with the same first stage.
        joint: The positions at which the next stage runs in parallel with the previous stage, so that the previous stage's
            outcome is not known yet.
    """

    def __init__(  # noqa: PLR0917 - all of a template that counts
        self,
        follow: Sequence[Mapping[str, int]],
        models: Mapping[str, Sequence[str]] | None = None,
        silent: frozenset[str] = frozenset(),
        judges: frozenset[str] = frozenset(),
        starts: Mapping[str, str] | None = None,
        joint: frozenset[int] = frozenset(),
    ) -> None:
        self.follow, self.models, self.silent, self.judges = follow, models, silent, judges
        self.starts = starts or {"": next(iter(follow[0]), "")}
        self.joint = joint
        self.stages = tuple(dict.fromkeys(stage for arms in follow for stage in arms))
        self.branches = any(len(arms) > 1 for arms in follow)
        depths = [0] * len(follow)
        for position, arms in enumerate(follow):
            for after in arms.values():
                depths[after] = max(depths[after], depths[position] + 1)
        self.depth = max(depths)

    @classmethod
    def of(cls, template: Template) -> Self:
        """Return the course of a workflow's template: which stages may follow each other, and which models they may use."""
        starts = {stage.name: template.base_stages[stage.name] for stage in template.first_stages}
        template = template.base
        models = {stage.name: stage.models or () for stage in template.stages}
        judges = frozenset(stage.name for stage in template.stages if stage.verdict is not None)
        silent = frozenset(stage.name for stage in template.stages if not stage.answerable) - judges
        positions = template.flow.positions
        joint = frozenset(number for number, position in enumerate(positions) if position.is_joint)
        return cls([one.arms for one in positions], models, silent, judges, starts if len(starts) > 1 else None, joint)

    def keeps(self, stage: str, model: str) -> bool:
        """Return whether the current answer stays unchanged, because the stage judges it or is skipped."""
        return stage in self.judges or (model == SKIP and stage not in self.silent)

    def allows(self, stage: str, model: str) -> bool:
        """Return whether a stage may run on a model.

        If :attr:`models` is None, a stage may run on every model. The name ``"skip"``, which means not to run the stage, is
        then not allowed.
        """
        return model != SKIP if self.models is None else model in self.models[stage]

    @classmethod
    def chain(
        cls,
        stages: Sequence[str],
        models: Mapping[str, Sequence[str]] | None = None,
        silent: frozenset[str] = frozenset(),
    ) -> Self:
        """Return the course in which every request runs exactly these stages, in order."""
        return cls((*({stage: k} for k, stage in enumerate(stages, start=1)), {}), models, silent)

    def arms(self, position: int) -> tuple[str, ...]:
        """Return the stages between which the application chooses at a position; empty if the course has no branches."""
        return tuple(self.follow[position]) if self.branches else ()

    def following(self, position: int, chosen: str | None) -> int:
        """Return the stage that comes next, as an index into ``stages``; -1 if no stage can follow.

        Args:
            position: The request's position.
            chosen: The name of the stage that the application chose; ignored if the course has no branches.
        """
        arms = self.follow[position]
        name = chosen if self.branches else next(iter(arms), None)
        return self.stages.index(name) if name is not None and name in arms else -1

    def after(self, stages: Sequence[str]) -> int | None:
        """Return the position of a request that has run these stages since its start; None if this order is impossible."""
        position = 0
        for stage in stages:
            if stage not in self.follow[position]:
                return None
            position = self.follow[position][stage]
        return position

    def visits(self) -> Iterator[Visit]:
        """Yield each distinct situation (:class:`Visit`) in which a stage may run in this course."""
        waiting: list[tuple[int, bool, str | None, str]] = [(0, False, None, begins) for begins in self.starts]
        known = set(waiting)
        for position, has_answer, silent, begins in waiting:  # grows while it is read
            for stage, after in self.follow[position].items():
                if not position and stage != self.starts[begins]:
                    continue
                yield Visit(stage, has_answer, silent, self.arms(after), begins)
                quiet, answers = stage in self.silent, not (stage in self.silent or stage in self.judges)
                places = {(after, has_answer or answers, stage if quiet else silent, begins)}
                if answers and self.models is not None and SKIP in self.models[stage]:
                    places.add((after, has_answer, silent, begins))
                for reached in sorted(places - known):
                    known.add(reached)
                    waiting.append(reached)
