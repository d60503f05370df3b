"""Writes a stage graph as the steps of a template: branches, loops and parallel stages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product

from vinelm.adapters.langgraph.nodes.route import UNDECLARED_TIMES
from vinelm.adapters.langgraph.structure.stage_graph import ENDED, StageGraph, Together
from vinelm.adapters.langgraph.structure.ways import Bound
from vinelm.errors import TemplateError
from vinelm.template import END, Branch, Loop, Parallel, Stage, Template
from vinelm.template.steps import Step
from vinelm.template.template import longest

MEMORY = 2
"""How many choices a long loop remembers."""
NESTED_TIMES = 5
"""The turns of nested loops whose bounds are declared nowhere."""
_DEEP = 200
"""How many invocations a request may make through nested loops, at most."""
_SHORT = 6
"""How many invocations a loop may have for all of its histories to be kept apart."""
_BACK = "\0"
"""Prefix that turns the name of a loop's head into the name of the transition back to that head."""
Part = frozenset[Together]
"""Supersteps that can reach each other, or a single one."""
Successors = Mapping[Together, Sequence[Together]]


def template_of(graph: StageGraph, undeclared: int = UNDECLARED_TIMES) -> Template:
    """Return a template that allows the stage graph's sequences of stages, and more only if no steps express them exactly.

    The steps are structured if possible: a loop is left at the end of a turn (``early_exit``), or by branches that end the
    request. If that cannot express the graph exactly, the stages of each loop may follow each other in any order.

    Args:
        graph: the stages and their possible successors.
        undeclared: the maximum number of turns of a loop for which none is declared. If the template would become too long,
            fewer turns are used.
    """
    for turns, ends_in_arms in product((undeclared, min(undeclared, NESTED_TIMES)), (False, True)):
        try:
            template = Template(_Writer(graph, turns, ends_in_arms).steps())
            if _is_exact(template, graph):
                return template
        except (TemplateError, _NotStructuredError):
            continue
    return Template(_Writer(graph, undeclared, is_loose=True).steps())


def _is_exact(template: Template, graph: StageGraph) -> bool:
    """Return whether the template allows exactly the graph's transitions between stages.

    If routes have ``times=`` limits, the template may lack some transitions, such as the way back in a loop with a single turn.
    """
    if longest(template.steps) > _DEEP:
        return False
    found = template.flow.follows | {("", stage.name) for stage in template.first_stages}
    has_bounds = any(bounds for following in graph.after.values() for bounds in following.values())
    return found == graph.pairs or (has_bounds and found < graph.pairs and len(template.stages) == len(graph.order))


class _NotStructuredError(Exception):
    """Raised if the loops of the graph overlap without one containing the other, so that no nested steps express them."""


class _Writer:
    """Writes one stage graph as the steps of a template.

    Args:
        turns: the maximum number of turns of a loop for which the application declares no maximum.
        ends_in_arms: whether the steps after a loop are written inside it, in branches that end the request.
        is_loose: whether the stages of a loop may follow each other in any order.
    """

    def __init__(self, graph: StageGraph, turns: int, ends_in_arms: bool = False, *, is_loose: bool = False) -> None:
        self._graph, self._undeclared, self._ends_in_arms, self._is_loose = graph, turns, ends_in_arms, is_loose

    def steps(self) -> tuple[Step, ...]:
        """Return the steps of the template that expresses the whole graph."""
        region = Region({at: self._in_order(then) for at, then in self._graph.after.items()})
        return self._choice(self._in_order(self._graph.start), region, None)

    def _in_order(self, found: Sequence[Together] | dict[Together, frozenset[Bound]]) -> list[Together]:
        return sorted(found, key=lambda stages: [self._graph.order.index(name) for name in self._graph.sorted(stages)])

    def _choice(self, targets: Sequence[Together], region: Region, stop: Part | None) -> tuple[Step, ...]:
        """Return the steps that begin with a choice among the supersteps ``targets``.

        The steps end before ``stop``, a loop or single superstep of ``region``; None means that they go on to the workflow's
        end.
        """
        onward = [target for target in targets if target != ENDED]
        if not onward:
            return () if stop is None else (END,)
        if len(onward) == 1:
            return self._from(onward[0], region, stop)
        lasting = self._lasting(onward, region)
        join = region.join(lasting) if len(lasting) > 1 else None
        if join is None and stop is not None and len(lasting) < len(onward):
            join = stop
        until = stop if join is None else join
        arms = {" + ".join(self._graph.sorted(one)): self._from(one, region, until) for one in onward if not _is_back(one)}
        if any(map(_is_back, onward)):
            arms["again"] = ()
        if ENDED in targets:
            arms["end"] = (END,)
        arms = {label: END if steps == (END,) else steps for label, steps in arms.items()}  # type: ignore[misc]
        if join is None or join == stop:
            return (Branch(arms),)
        behind = self._from(self._head(join, onward, region), region, stop, join & {*onward})
        return behind if len(lasting) == len(arms) and join.issuperset(onward) else (Branch(arms), *behind)

    def _head(self, part: Part, targets: Sequence[Together], region: Region) -> Together:
        """Return the superstep at which requests enter ``part``, a set of supersteps that can reach each other, or a single
        one; the first of several if every turn of a loop may begin at each of them.

        Other loops with several such supersteps raise :class:`_NotStructuredError`; with ``is_loose``, the first is returned.
        """
        from_outside = (then for at, following in region.successors.items() if at not in part for then in following)
        heads = part & {*targets, *from_outside}
        core = self._core(part, region)
        if core is not None and heads == part:
            return core
        if not (self._is_loose or len(heads) == 1 or self._ends_of_turns(part, heads, region)):
            raise _NotStructuredError
        return self._in_order_if_known(list(heads))[0]

    @staticmethod
    def _ends_of_turns(part: Part, heads: Collection[Together], region: Region) -> list[Together]:
        """Return the supersteps of the loop ``part`` after which each of ``heads`` may come next, so that a new turn begins."""
        return [at for at in part if set(heads) <= set(region.successors[at])]

    @staticmethod
    def _core(part: Part, region: Region) -> Together | None:
        """Return the superstep of the loop ``part`` that is the only successor of each other superstep of the loop; else None.

        Every turn of the loop runs this superstep. The other supersteps, such as an agent's hooks, are optional.
        """
        found = [at for at in part if all(list(region.successors[other]) == [at] for other in part - {at})]
        return found[0] if len(part) > 1 and len(found) == 1 and part <= set(region.successors[found[0]]) else None

    @staticmethod
    def _lasting(onward: Sequence[Together], region: Region) -> list[Together]:
        """Return those supersteps of ``onward`` that share a reachable superstep with another one of ``onward``.

        A superstep counts as reachable from itself.
        """
        reached = {one: region.reached(one) for one in onward}
        return [one for one in onward if any(reached[one] & reached[other] for other in onward if other != one)]

    def _from(self, at: Together, region: Region, stop: Part | None, heads: Part = frozenset()) -> tuple[Step, ...]:
        """Return the steps that begin with the superstep ``at``, or with the loop that it belongs to, and end before ``stop``.

        ``heads`` are further supersteps at which requests enter the loop from here.
        """
        part = region.part(at)
        if part == stop:
            return ()
        if not region.loops(part):
            return (self._unit(at), *self._choice(list(region.successors.get(at, ())), region, stop))
        outside = [then for then in self._in_order_if_known(region.outside(part)) if then != ENDED]
        entered = {s for s in part if any(s in n for o, n in region.successors.items() if o not in part)} | {at, *heads}
        core = None if self._is_loose else self._core(part, region)
        if core is not None and part <= entered | self._graph.start.keys():
            names = {one: " + ".join(self._graph.sorted(one)) for one in self._in_order_if_known(list(part))}
            before = Branch({name: () if one == core else (self._unit(one),) for one, name in names.items()})
            times = self._turns(at, part)
            memory = MEMORY if times * len(part) > _SHORT else None
            loop = Loop((before, self._unit(core)), times, memory=memory, early_exit=bool(outside))
            return (loop, *(self._choice(outside, region, stop) if outside else ()))
        structured = None if self._is_loose else self._turn(self._in_order(list(entered)), part, region, outside, stop)
        if structured is None and not self._is_loose:
            raise _NotStructuredError
        if structured is None:
            label = {" + ".join(self._graph.sorted(one)): (self._unit(one),) for one in self._in_order_if_known(list(part))}
            body: tuple[Step, ...] = (Branch(label),) if len(label) > 1 else next(iter(label.values()))
            times = min(self._turns(at, part) * len(part), _DEEP // 2)
            loop = Loop(body, times, memory=MEMORY, early_exit=bool(outside))
            return (loop, *(self._choice(outside, region, stop) if outside else ()))
        body, is_left = structured
        times = self._turns(at, part)
        memory = MEMORY if times * len(part) > _SHORT else None
        loop = Loop(body, times, memory=memory, early_exit=is_left)
        return (loop, *(self._choice(outside, region, stop) if is_left else ()))

    def _in_order_if_known(self, found: Sequence[Together]) -> list[Together]:
        named = [one for one in found if not _is_back(one)]
        return [*self._in_order(named), *filter(_is_back, found)]

    def _turn(
        self, heads: list[Together], part: Part, region: Region, outside: list[Together], stop: Part | None
    ) -> tuple[tuple[Step, ...], bool] | None:
        """Return the steps of one turn of the loop ``part``, and whether the caller has to add the steps after the loop.

        A turn begins at one of the supersteps ``heads``: there are several if the first stage of a turn may be skipped.
        ``outside`` are the supersteps right after the loop. Returns None if no steps express the turn.
        """
        again = frozenset((_BACK + min(heads[0]),))
        ending = self._ends_of_turns(part, heads, region)
        in_arms = bool(outside) and self._ends_in_arms
        leavers = [at for at in part if set(region.successors[at]) & set(outside)]
        if outside and not in_arms and any(set(region.successors[at]) & part - {*heads} for at in leavers):
            return None  # left in the middle of a turn
        if in_arms and stop is not None:
            return None
        kept: dict[Together, Sequence[Together]] = {
            at: list(dict.fromkeys(again if at in ending and then in heads else then for then in following))
            for at, following in region.successors.items()
            if at in part or in_arms
        }
        if outside and not in_arms:
            kept = {at: [then for then in following if then not in outside] for at, following in kept.items()}
        inner = Region(_reachable(kept, heads))
        if any(inner.loops(inner.part(head)) for head in heads):
            return None
        return self._choice(heads, inner, frozenset((again,))), bool(outside) and not in_arms

    def _unit(self, at: Together) -> Stage | Parallel:
        first, *others = (Stage(name) for name in self._graph.sorted(at))
        return Parallel((first, *others)) if others else first

    def _turns(self, head: Together, part: Part) -> int:
        """Return how often a request runs the loop ``part`` at most, computed from the ``times=`` limits of the loop's routes.

        If the loop can repeat without reaching such a limit, the result is the maximum for loops that declare none.
        """
        edges = {(at, then): bounds for at in part for then, bounds in self._graph.after[at].items() if then in part}
        free: dict[Together, list[Together]] = {at: [] for at in part}
        for (at, then), bounds in edges.items():
            if not bounds:
                free[at].append(then)
        unbounded = Region(free)
        if any(unbounded.loops(unbounded.part(at)) for at in part):
            return self._undeclared
        used = {bound for bounds in edges.values() for bound in bounds}
        before = [(self._graph.start.get(head)), *(n.get(head) for at, n in self._graph.after.items() if at not in part)]
        entering = [bounds for bounds in before if bounds is not None]
        is_counted = bool(entering) and all(bounds & used for bounds in entering)
        return sum(bound.times for bound in used) + (0 if is_counted else 1)


def _is_back(at: Together) -> bool:
    return any(name.startswith(_BACK) for name in at)


def _reachable(successors: Successors, start: Iterable[Together]) -> dict[Together, Sequence[Together]]:
    waiting = list(start)
    for at in waiting:  # grows while it is read
        waiting += [then for then in successors.get(at, ()) if then not in waiting]
    return {at: successors[at] for at in waiting if at in successors}


# -- what loops, what follows it, and where branches meet again ----------------------------------------------------


class Region:
    """A region of a stage graph, split into parts: loops (strongly connected components), and the single supersteps between
    them.

    Args:
        successors: the supersteps that may follow each superstep; a superstep without an entry has no successor.
    """

    def __init__(self, successors: Successors) -> None:
        self.successors = successors
        self._part: dict[Together, Part] = {}
        for part in _strong_parts(successors):
            self._part |= dict.fromkeys(part, part)
        self._always: dict[Part, frozenset[Part]] = {}

    def part(self, at: Together) -> Part:
        """Return the part (a loop, or a single superstep) that the superstep ``at`` belongs to."""
        return self._part.get(at, frozenset((at,)))

    def loops(self, part: Part) -> bool:
        """Return whether a part is a loop, so that its supersteps may repeat."""
        return len(part) > 1 or any(at in self.successors.get(at, ()) for at in part)

    def outside(self, part: Part) -> list[Together]:
        """Return the supersteps that may come right after the loop or superstep ``part``, in order; the end is one of them."""
        return list(dict.fromkeys(then for at in part for then in self.successors.get(at, ()) if then not in part))

    def reached(self, at: Together) -> set[Part]:
        """Return the part (loop or single superstep) that contains ``at``, and all parts that can be reached from there."""
        waiting = [self.part(at)]
        for part in waiting:  # grows while it is read
            waiting += [p for p in map(self.part, self._onward(part)) if p not in waiting]
        return set(waiting)

    def join(self, targets: Collection[Together]) -> Part | None:
        """Return the first part that every request reaches from each of the supersteps ``targets``; None if there is none.

        A part is a loop or a single superstep. Requests that end earlier do not count.
        """
        common = frozenset.intersection(*(self.always(self.part(target)) for target in targets))
        return max(common, key=lambda part: len(self.always(part)), default=None)

    def always(self, part: Part) -> frozenset[Part]:
        """Return ``part`` and all parts (loops or single supersteps) that every request reaches after it, unless the request
        ends.
        """
        known = self._always.get(part)
        if known is None:
            behind = [self.always(self.part(then)) for then in self._onward(part)]
            known = self._always[part] = frozenset((part,)) | (frozenset.intersection(*behind) if behind else frozenset())
        return known

    def _onward(self, part: Part) -> Iterable[Together]:
        return (then for then in self.outside(part) if then != ENDED)


def _strong_parts(successors: Successors) -> list[Part]:
    """Return the strongly connected components of a graph, by a simple and slow algorithm, since graphs of stages are small."""
    behind: dict[Together, set[Together]] = {}
    for at in successors:
        waiting = list(successors[at])
        for then in waiting:  # grows while it is read
            waiting += [n for n in successors.get(then, ()) if n not in waiting]
        behind[at] = set(waiting)
    return [frozenset((at, *(other for other in behind[at] if at in behind.get(other, ())))) for at in successors]
