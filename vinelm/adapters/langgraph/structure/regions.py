"""The order in a part of a stage graph: what loops, what follows it, and where the arms of a branch meet again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from vinelm.adapters.langgraph.structure.stage_graph import ENDED, Together

Part = frozenset[Together]
"""Supersteps that can reach each other, or a single one."""
Successors = Mapping[Together, Sequence[Together]]


class Region:
    """A part of a stage graph, as loops (strongly connected parts) and the paths between them.

    Args:
        successors: what may follow each superstep; those that are no key have no successor.
    """

    def __init__(self, successors: Successors) -> None:
        self.successors = successors
        self._part: dict[Together, Part] = {}
        for part in _strong_parts(successors):
            self._part |= dict.fromkeys(part, part)
        self._always: dict[Part, frozenset[Part]] = {}

    def part(self, at: Together) -> Part:
        """The part that a superstep belongs to."""
        return self._part.get(at, frozenset((at,)))

    def loops(self, part: Part) -> bool:
        """True if its supersteps may come again."""
        return len(part) > 1 or any(at in self.successors.get(at, ()) for at in part)

    def outside(self, part: Part) -> list[Together]:
        """The places after a part, in order, the end included."""
        return list(dict.fromkeys(then for at in part for then in self.successors.get(at, ()) if then not in part))

    def reached(self, at: Together) -> set[Part]:
        """The parts that come at or behind a superstep."""
        waiting = [self.part(at)]
        for part in waiting:  # grows while it is read
            waiting += [p for p in map(self.part, self._onward(part)) if p not in waiting]
        return set(waiting)

    def join(self, targets: Collection[Together]) -> Part | None:
        """The first part that every one of the targets comes to unless the request ends before; None if there is none."""
        common = frozenset.intersection(*(self.always(self.part(target)) for target in targets))
        return max(common, key=lambda part: len(self.always(part)), default=None)

    def always(self, part: Part) -> frozenset[Part]:
        """The parts that every request comes to that goes through ``part`` and does not end before them, itself included."""
        known = self._always.get(part)
        if known is None:
            behind = [self.always(self.part(then)) for then in self._onward(part)]
            known = self._always[part] = frozenset((part,)) | (frozenset.intersection(*behind) if behind else frozenset())
        return known

    def _onward(self, part: Part) -> Iterable[Together]:
        return (then for then in self.outside(part) if then != ENDED)


def _strong_parts(successors: Successors) -> list[Part]:
    """The strongly connected parts (by reachability: graphs of stages are small)."""
    behind: dict[Together, set[Together]] = {}
    for at in successors:
        waiting = list(successors[at])
        for then in waiting:  # grows while it is read
            waiting += [n for n in successors.get(then, ()) if n not in waiting]
        behind[at] = set(waiting)
    return [frozenset((at, *(other for other in behind[at] if at in behind.get(other, ())))) for at in successors]
