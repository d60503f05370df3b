"""Where a ``vine.route`` leads: its places, the verdicts that name them, its end, and how often it may lead to each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from langgraph.graph import END
from langgraph.types import Send

from vinelm.errors import WorkflowError

UNDECLARED_TIMES = 25
"""The most turns of a loop whose bound is declared nowhere."""
To = Sequence[str] | Mapping[Any, str]
"""The places of a route, or the place of each verdict."""


class Destinations:
    """The places of one route; see :meth:`vinelm.VineLM.route` for the arguments.

    Attributes:
        places: every place, in order.
        end: where the policy may end the request; None if nowhere.
        again: the places that are not the end.
        other_than_end: the one place that is not the end; None if there are several.
        times: the most times that the route leads to a place; places without a bound are left out.
        is_branch: given as ``to``, rather than as ``again`` and ``end``.
        name: the route in messages.

    Raises:
        WorkflowError: the arguments do not fit together.
    """

    __slots__ = ("_by_verdict", "again", "end", "is_branch", "name", "other_than_end", "places", "times")

    def __init__(self, again: str | None, end: str | None, to: To | None, times: int | Mapping[str, int] | None) -> None:
        self.is_branch = to is not None
        if to is None:
            if again is None or end is None:
                raise WorkflowError("a route needs again= and end=, or its destinations: vine.route(fn, to=[...])")
            self.places: tuple[str, ...] = tuple(dict.fromkeys((again, end)))
            self._by_verdict: dict[Hashable, str] = {}
            self.end: str | None = end
            self.name = f"to {again!r}"
            label = f"route to {again!r} or {end!r}"
        else:
            if again is not None:
                raise WorkflowError(f"route to {again!r}: again= and to= exclude each other: name every destination in to=")
            named = list(to.values()) if isinstance(to, Mapping) else [to] if isinstance(to, str) else list(to)
            self.places = tuple(dict.fromkeys((*named, *([] if end is None else [end]))))
            self._by_verdict = dict(to) if isinstance(to, Mapping) else {}
            self.end = end or (END if END in self.places else None)
            self.name = f"to {', '.join(map(repr, self.places))}"
            label = f"route {self.name}"
            if not all(isinstance(place, str) and place for place in self.places) or len(self.places) < 2:
                raise WorkflowError(f"{label}: to= names at least two nodes: pass their names, or {{verdict: name}}")
        self.again = tuple(place for place in self.places if place != self.end) or self.places
        self.other_than_end = self.again[0] if len(self.again) == 1 else None
        self.times = self._bounds(times, label)

    def _bounds(self, times: int | Mapping[str, int] | None, label: str) -> dict[str, int]:
        bounds = dict(times) if isinstance(times, Mapping) else {} if times is None else dict.fromkeys(self.again, times)
        for place, most in bounds.items():
            if most < 1:
                raise WorkflowError(f"{label}: times is {most}: it must be at least 1")
            if place not in self.again:
                raise WorkflowError(f"{label}: times bounds {place!r}: use one of {', '.join(map(repr, self.again))}")
        if bounds and self.end is None:
            raise WorkflowError(f"{label}: times needs a place to go to when it is reached: pass end=")
        return bounds

    def read(self, verdict: Any, own_places: frozenset[str]) -> tuple[Any, tuple[str, ...]]:
        """Return where a verdict leads as LangGraph takes it, and the places that it names.

        No place is named where the verdict is for LangGraph to judge, or for one of the application's ``own_places``.

        Raises:
            WorkflowError: it names a place that the route does not have.
        """
        if not self.is_branch and isinstance(verdict, bool):
            place = self.end if verdict else self.again[0]
            assert place is not None
            return place, (place,)
        if self.is_branch:
            is_list = isinstance(verdict, (list, tuple)) and not (_is_hashable(verdict) and verdict in self._by_verdict)
            onward = [self._item(item) for item in verdict] if is_list else self._item(verdict)
            return onward, tuple(dict.fromkeys(map(_place, onward if is_list else [onward])))
        if isinstance(verdict, (list, tuple)):
            goes_on = bool(verdict) and all(_place(item) == self.again[0] for item in verdict)
            return verdict, self.again[:1] if goes_on else ()
        if isinstance(verdict, str) and verdict in self.places:
            return verdict, (verdict,)
        if isinstance(verdict, str) and verdict not in own_places:
            raise WorkflowError(
                f"the route went to {verdict!r}, which is neither again={self.again[0]!r} nor end={self.end!r}: "
                "return True or False, one of the two, or declare every place as the function's return type Literal[...]"
            )
        return verdict, ()

    def _item(self, item: Any) -> Any:
        """The place that one verdict of several destinations names, or its Send."""
        if _is_hashable(item) and item in self._by_verdict:
            return self._by_verdict[item]
        if _place(item) in self.places:
            return item
        known = ", ".join(map(repr, self._by_verdict or self.places))
        raise WorkflowError(f"the route returned {item!r}, which is none of its destinations ({known}): name it in to=")


def _place(item: Any) -> Any:
    return item.node if isinstance(item, Send) else item


def _is_hashable(item: Any) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True
