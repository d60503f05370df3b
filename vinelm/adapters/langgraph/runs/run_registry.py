"""The runs of a graph that are in progress, each with its policy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from vinelm.adapters.langgraph.path.path_channel import ChannelSession
from vinelm.adapters.langgraph.runs.graph_run import GraphRun
from vinelm.adapters.langgraph.runs.run_context import RunContext
from vinelm.adapters.langgraph.runs.settings import AdapterSettings
from vinelm.policies.policy import Policy


class RunRegistry:
    """Finds the run that a node or an edge belongs to. Thread-safe.

    A run lives as long as LangGraph's channels for it. Where those are not known (graphs of chat models alone, with-blocks)
    the newest ``bound`` runs are kept, and an older one loses its policy.

    Args:
        settings: of the adapter.
        new_policy: returns the policy of a new run; called once per run.
        default: returns a stage's default model; None where failures of VineLM itself are raised.
        bound: number of runs to keep, at least 1.
    """

    def __init__(
        self,
        settings: AdapterSettings,
        new_policy: Callable[[RunContext], Policy],
        default: Callable[[str], str] | None = None,
        bound: int = 4096,
    ) -> None:
        self._settings, self._new_policy, self._default, self._bound = settings, new_policy, default, bound
        self._kept: OrderedDict[int, GraphRun] = OrderedDict()
        self._by_control: WeakValueDictionary[int, GraphRun] = (
            WeakValueDictionary()
        )  # each holds its control: the id is its own
        self._lock = Lock()

    def __len__(self) -> int:
        """Number of runs kept here."""
        return len(self._kept)

    def known(self, opening: ChannelSession | None, control: Any) -> GraphRun | None:
        """Return the run of that opening, or of LangGraph's ``control`` where none is known; None if it is new."""
        if opening is None:
            return self._kept.get(id(control))
        run: GraphRun | None = opening.owned.get(self)
        if run is None:
            run = self._by_control.get(id(control))
            if run is None or run.is_rooted:  # of an earlier invoke to which the application gave the same control
                return None
            opening.owned[self] = run  # begun by a stage inside a subgraph
            run.is_rooted = True
        return run

    def of(self, opening: ChannelSession | None, control: Any, context: RunContext) -> GraphRun:
        """Return the same run; if it is new, it is made for ``context`` and gets its policy."""
        with self._lock:
            run = self.known(opening, control)
            if run is None:
                run = self._new(control, context)
                self._by_control[id(control)] = run
                if opening is not None:
                    opening.owned[self] = run
                    run.is_rooted = True
                    return run
                self._kept[id(control)] = run
                while len(self._kept) > self._bound:
                    self._kept.popitem(last=False)
            elif opening is None:
                self._kept.move_to_end(id(control))
            return run

    def inner(self, control: Any, context: RunContext) -> GraphRun:
        """Return the run of a stage inside a subgraph: that of the root graph, unless ``context`` is another request's."""
        run = self._by_control.get(id(control))
        if run is not None and _is_same_request(run.context, context):
            return run
        return self.of(None, control, context)

    def alone(self, context: RunContext) -> GraphRun:
        """Return a run of its own that nobody asks for again."""
        return self._new(None, context)

    def _new(self, control: Any, context: RunContext) -> GraphRun:
        settings = self._settings
        return GraphRun(
            control,
            self._new_policy(context),
            context,
            settings.observers,
            self._default,
            signals=settings.signals,
            account_of=None if settings.account_of is None else partial(settings.account_of, context),
        )

    def forget(self, control: Any) -> None:
        """Drop that run, if it is kept here."""
        with self._lock:
            self._kept.pop(id(control), None)


def _is_same_request(one: RunContext, other: RunContext) -> bool:
    """Contexts may be copies: LangGraph hands them down, and the arrival is filled in."""
    return one.policy is other.policy and one.objective == other.objective and one.request_id == other.request_id
