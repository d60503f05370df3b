"""The path that a run keeps in memory: for invocations inside subgraphs, and in code without a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

from vinelm.requests.protocols import Invocation
from vinelm.template.flow import Flow


class Where(NamedTuple):
    """Where in a run a stage is invoked: the superstep, the task and the node.

    Attributes:
        step: id of the superstep of the root graph; empty outside of a graph.
        task: id of the root graph's task that contains the call; empty outside of a graph.
        node: id of the innermost graph's task that contains the call.
    """

    step: str = ""
    task: str = ""
    node: str = ""


class PlaceKey(NamedTuple):
    """The key of all invocations that share one position in the path, as the branches of a fan-out do.

    Attributes:
        step: the superstep of the root graph.
        stage: the stage.
        ordinal: the number of invocations of the stage that had already succeeded in the same task of the root graph.
    """

    step: str
    stage: str
    ordinal: int


@dataclass(slots=True)
class _Place:
    path: tuple[str, ...]
    stages: tuple[str, ...]
    begun: int = 0
    failed: int = 0


class RunPlaces:
    """The positions of one run's path, in the order in which their invocations began. Thread-safe.

    Several tasks of one superstep may invoke the same stage, as the branches of a fan-out do. Their first invocations then
    share a position and a model, and so do their second ones, and so on. Parallel calls in one task also share a position. If
    all invocations at a position have failed, the position is used again.

    Attributes:
        last_step: superstep of the position that was begun last; empty before the first invocation.

    Args:
        choose: returns the model for a stage, given the models of the path before it.
        locate: used instead of ``choose`` if the policy replays a recorded run. Given the key of an invocation's position, it
            returns the models of the path that ends there.
        answers_at: if a recorded run is replayed, returns how many calls a position takes, given the superstep of the call and
            the number of the position, from 0. 0 if that depends on which calls have ended, as in a run that is not replayed.
        flow: which stages may follow which; None if the template has no stages side by side.
    """

    def __init__(
        self,
        choose: Callable[[str, tuple[str, ...]], str],
        locate: Callable[[PlaceKey], tuple[str, ...]] | None = None,
        answers_at: Callable[[str, int], int] | None = None,
        *,
        flow: Flow | None = None,
    ) -> None:
        self._choose, self._locate, self._answers_at, self._flow = choose, locate, answers_at, flow
        self._lock = RLock()
        self.last_step = ""
        self._before: tuple[str, ...] = ()  # the stages of the path before the superstep ``last_step``
        self._places: dict[PlaceKey, _Place] = {}
        self._ended: dict[tuple[str, str], int] = {}  # by task and stage
        self._open: dict[tuple[str, ...], tuple[PlaceKey, _Place, set[str]]] = {}

    def enter(
        self, where: Where, stage: str, path: tuple[str, ...], stages: tuple[str, ...], *, is_per_node: bool = False
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Begin an invocation, and return the models and the stages of the path that ends with it.

        The models of stages that the template runs in parallel are chosen in the template's order, whichever stage begins
        first.

        Args:
            where: the position of the invocation.
            stage: its stage.
            path: models of the run's path so far.
            stages: stages of the run's path so far.
            is_per_node: whether all calls of the stage in the same superstep share one position.
        """
        with self._lock:
            if where.step != self.last_step or not where.step:
                self._before = stages
            key = PlaceKey(where.step, stage, 0 if is_per_node else self._ordinal(where, stage))
            place = self._places.get(key)
            if place is None:
                for name in self._ahead_of(stage):
                    sibling = PlaceKey(where.step, name, 0)
                    first = self._places.get(sibling) or self._placed(sibling, path, stages)
                    path, stages = first.path, first.stages
                place = self._placed(key, path, stages)
            elif 0 < place.begun == place.failed:
                place = self._placed(key, place.path[:-1], place.stages[:-1])
            self.last_step = where.step
            place.begun += 1
            self._open[place.path][2].add(where.task)
            return place.path, place.stages

    def _ordinal(self, where: Where, stage: str) -> int:
        ended = self._ended.get((where.task, stage), 0)
        if self._answers_at is None:
            return ended
        # Recorded answers come at once. So a call that was made with another may now begin after that one has ended, or a call
        # that came later may begin before it. So a position takes as many calls as were answered there.
        ordinal = 0
        while (place := self._places.get(PlaceKey(where.step, stage, ordinal))) is not None:
            answered = self._answers_at(where.step, len(place.path) - 1)
            if (place.begun - place.failed < answered) if answered else ordinal >= ended:
                break
            ordinal += 1
        return ordinal

    def _ahead_of(self, stage: str) -> tuple[str, ...]:
        """Return the stages of the current superstep that come before ``stage`` in the template."""
        if self._flow is None or self._locate is not None:
            return ()
        try:
            return self._flow.ahead_of(self._flow.at(self._before), stage) or ()
        except KeyError:  # behind a branch that the template lacks
            return ()

    def _placed(self, key: PlaceKey, prefix: tuple[str, ...], before: tuple[str, ...]) -> _Place:
        """Choose the model of an invocation that follows the path ``prefix``; store and return the invocation's position."""
        found = self._locate(key) if self._locate is not None else (*prefix, self._choose(key.stage, prefix))
        place = self._places[key] = _Place(found, (*before[: len(found) - 1], key.stage))
        self._open[found] = key, place, set()
        return place

    def ended(self, invocation: Invocation) -> bool:
        """Record that an attempt has ended; return whether all attempts at its position have failed, so that the position is
        free again.
        """
        with self._lock:
            found = self._open.get(invocation.prefix)
            if found is None or found[0].stage != invocation.stage:
                return False
            key, place, tasks = found
            if invocation.failure is None:
                for task in tasks:
                    counted = (task, key.stage)
                    self._ended[counted] = max(self._ended.get(counted, 0), key.ordinal + 1)
                return False
            place.failed += 1
            return place.begun == place.failed

    def moved(self, before: tuple[str, ...], after: tuple[str, ...]) -> bool:
        """Record that another model continues an attempt, so that the path ``before`` becomes ``after``.

        Returns whether the attempt is known.
        """
        with self._lock:
            found = self._open.pop(before, None)
            if found is not None:
                found[1].path = after
                found[1].begun, found[1].failed = 1, 0
                self._open[after] = found
            return found is not None


def where_of(config: RunnableConfig | None) -> Where:
    """Return the position of a node in the run: its superstep and tasks. ``config`` is LangGraph's config of the node."""
    given: dict[str, Any] = {} if config is None else config.get("configurable", {})
    parents = given.get("checkpoint_map")
    step = parents.get("", "") if isinstance(parents, dict) else ""
    node = str(given.get("checkpoint_ns") or "")
    return Where(str(step), node.partition("|")[0], node)
