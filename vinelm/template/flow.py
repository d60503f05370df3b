"""The automaton of a template: which stages may come next after each sequence of stages.

A position may stand for several places in the template's steps (the subset construction). Two branches that begin with the same
stage share a position until their stages differ. Loops count their turns, so the automaton has no cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from vinelm.errors import TemplateError
from vinelm.template.steps import END, MOST_INVOCATIONS, Branch, Loop, Parallel, Stage, Step, walk

MOST_POSITIONS = 100_000
"""The most positions of one template."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position of a request between two invocations, as a state of the automaton.

    Attributes:
        arms: the stages that may come next, in the order of the template, each with the index of the position after it.
        may_end: whether the template lets the workflow end here.
        is_joint: whether the next stage runs at the same time as the previous stage, in one superstep. The previous stage's
            result is then not known yet.
    """

    arms: Mapping[str, int]
    may_end: bool
    is_joint: bool


@dataclass(frozen=True, slots=True)
class _Turns:
    """Up to ``left`` (>= 1) more turns of ``loop``, as one element of the steps that remain for a request (:data:`_Place`)."""

    loop: Loop
    left: int


@dataclass(frozen=True, slots=True)
class _Joint:
    """An element of the remaining steps (:data:`_Place`): those stages of a superstep whose models are not chosen yet."""

    rest: tuple[Stage, ...]


_Place = tuple["Step | _Turns | _Joint", ...]
"""The remaining steps, the next one first."""


class Flow:
    """The automaton of a template. Its positions are numbered from 0 (the start), and each stage leads to a position with a
    higher number.

    Args:
        steps: the template's steps.
        prunes: whether to leave out each stage that gives no answer, if no stage after it can give one either.

    Raises:
        TemplateError: the template has too many positions, or allows requests of more than :data:`MOST_INVOCATIONS`.
    """

    def __init__(self, steps: Sequence[Step], *, prunes: bool = True) -> None:
        self._prunes = prunes
        names = (step.name for step in walk(steps) if isinstance(step, Stage))
        self._order = {name: i for i, name in enumerate(dict.fromkeys(names))}  # in the order of first mention, unlike a set
        self._leads: dict[_Place, bool] = {}
        start: frozenset[_Place] = frozenset([tuple(steps)])
        numbers: dict[tuple[int, frozenset[_Place]], int] = {(0, start): 0}
        waiting = [(0, start)]
        self.depths: list[int] = [0]
        positions: list[Position] = []
        for depth, places in waiting:  # grows while it is read
            arms, may_end = self._follow(places)
            followers: dict[str, int] = {}
            for stage, after in arms.items():
                key = (depth + 1, after)
                if key not in numbers:
                    numbers[key] = len(waiting)
                    waiting.append(key)
                    self.depths.append(depth + 1)
                followers[stage] = numbers[key]
            if len(waiting) > MOST_POSITIONS or depth > MOST_INVOCATIONS:
                raise TemplateError(
                    f"the template has more than {MOST_POSITIONS:,} positions or {MOST_INVOCATIONS:,} invocations: "
                    "allow fewer loop turns"
                )
            positions.append(Position(followers, may_end, any(isinstance(place[0], _Joint) for place in places if place)))
        self.positions = tuple(positions)

    @cached_property
    def depth(self) -> int:
        """The maximum number of invocations of one request."""
        return max(self.depths)

    @cached_property
    def visits(self) -> frozenset[tuple[str, int]]:
        """All pairs (name of a stage, index of a position in the automaton that a request may have right after the stage)."""
        return frozenset(item for position in self.positions for item in position.arms.items())

    @cached_property
    def joined(self) -> frozenset[str]:
        """The stages after which another stage comes in the same superstep (both run at the same time)."""
        return frozenset(stage for stage, after in self.visits if self.positions[after].is_joint)

    @cached_property
    def stages_at(self) -> tuple[Mapping[str, tuple[str, ...]], ...]:
        """For each invocation of a request, counted from 0: a dict whose keys are the stages that may run there.

        The values are the stages that may come next, in template order.
        """
        found: list[dict[str, set[str]]] = [{} for _ in range(self.depth)]
        for position, depth in zip(self.positions, self.depths, strict=True):
            for stage, after in position.arms.items():
                found[depth].setdefault(stage, set()).update(self.positions[after].arms)
        order = self._order.__getitem__
        return tuple({stage: tuple(sorted(level[stage], key=order)) for stage in sorted(level, key=order)} for level in found)

    def at(self, stages: Sequence[str]) -> int:
        """Return a request's position in the automaton after it has run these stages, as an index into :attr:`positions`.

        Raises ``KeyError`` with the name of the first stage that is not allowed in this order.
        """
        number = 0
        for stage in stages:
            number = self.positions[number].arms[stage]
        return number

    @cached_property
    def last_stages(self) -> frozenset[str]:
        """The stages after which, in at least one allowed sequence of stages, no other stage may come."""
        return frozenset(name for name, number in self.visits if not self.positions[number].arms)

    def ahead_of(self, number: int, stage: str) -> tuple[str, ...] | None:
        """Return the stages whose models are chosen before the model of ``stage``, within the superstep that begins at
        position ``number``.

        Return None if ``stage`` does not run in that superstep.
        """
        waiting: list[tuple[int, tuple[str, ...]]] = [(number, ())]
        for at, before in waiting:  # grows while it is read
            arms = self.positions[at].arms
            if stage in arms:
                return before
            waiting += [(after, (*before, name)) for name, after in arms.items() if self.positions[after].is_joint]
        return None

    @cached_property
    def follows(self) -> frozenset[tuple[str, str]]:
        """All pairs of stages in which the second stage may come directly after the first."""
        return frozenset((before, after) for before, number in self.visits for after in self.positions[number].arms)

    def _follow(self, places: frozenset[_Place]) -> tuple[dict[str, frozenset[_Place]], bool]:
        found: dict[str, set[_Place]] = {}
        may_end = False
        for place in places:
            for stage, after in _expanded(place):
                if stage is None:
                    may_end = True
                elif self._leads_to_an_answer(stage, after):
                    found.setdefault(stage.name, set()).add(after)
        return {name: frozenset(found[name]) for name in sorted(found, key=self._order.__getitem__)}, may_end

    def _leads_to_an_answer(self, stage: Stage, after: _Place) -> bool:
        """Return whether this stage, or a stage that may come after it, gives an answer.

        Always True if the flow also keeps stages that lead to no answer. ``after`` has the steps that remain after the stage.
        """
        if stage.answerable or not self._prunes:
            return True
        if after not in self._leads:
            self._leads[after] = any(
                following is not None and self._leads_to_an_answer(following, then) for following, then in _expanded(after)
            )
        return self._leads[after]


def _expanded(place: _Place) -> Iterator[tuple[Stage | None, _Place]]:
    """Yield (stage, steps that remain after it) for each stage that may come next; (None, ()) if a request may end instead.

    ``place`` has the remaining steps, the next one first.
    """
    if not place:
        yield None, ()
        return
    step, rest = place[0], place[1:]
    if isinstance(step, Stage):
        yield step, rest
    elif step == END:
        yield None, ()
    elif isinstance(step, (Parallel, _Joint)):
        first, *others = step.stages if isinstance(step, Parallel) else step.rest
        yield first, ((_Joint(tuple(others)), *rest) if others else rest)
    elif isinstance(step, Branch):
        for arm in step.ways.values():
            yield from _expanded((*arm, *rest))
    elif isinstance(step, Loop):
        yield from _expanded(_turn(step, step.times - 1, rest))
    else:
        assert isinstance(step, _Turns)
        yield from _expanded(_turn(step.loop, step.left - 1, rest))
        if step.loop.early_exit or not rest:
            yield from _expanded(rest)


def _turn(loop: Loop, left: int, rest: _Place) -> _Place:
    """Return the steps that remain when a turn of a loop begins, including this turn.

    ``left`` is the number of turns allowed after this turn, ``rest`` the steps after the loop.
    """
    return (*loop.stages, _Turns(loop, left), *rest) if left else (*loop.stages, *rest)
