"""Records for each thread which stages were invoked inside subgraphs, so that a run resumed in this process continues its path.

No channel of the root graph carries these invocations. A resumed LangGraph task has the same id as before. By this id a resumed
run is recognized, and a node that runs again from its start is not counted twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any
from weakref import ref

from langchain_core.runnables import RunnableConfig

from vinelm.adapters.langgraph.path.path_channel import Entry, PathValue, models_of
from vinelm.adapters.langgraph.path.places import Where, where_of
from vinelm.requests.protocols import Invocation

_CHECKPOINTER = "__pregel_checkpointer"  # LangGraph's, in a task's config
MOST_THREADS = 4096
"""How many threads of graphs are kept."""


class InnerTrail:
    """The part of one run's path that the graph's channels do not store: invocations inside subgraphs. Thread-safe.

    Attributes:
        tasks: ids of the root graph's tasks in which these invocations were made.
    """

    def __init__(self) -> None:
        self.tasks: set[str] = set()
        self._lock = Lock()
        self._begun: dict[tuple[str, ...], tuple[tuple[str, ...], set[str]]] = {}
        self._entries: list[Entry] = []
        self._nodes: list[set[str]] = []

    def begun(self, path: tuple[str, ...], stages: tuple[str, ...], where: Where) -> None:
        """Record that an invocation has begun in the node ``where``.

        ``path`` and ``stages`` are the models and stages of the request's path, ending with this invocation.
        """
        with self._lock:
            self.tasks.add(where.task)
            self._begun.setdefault(path, (stages, set()))[1].add(where.node)
            self._behind(path, stages)

    def moved(self, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        """Record that another model continues an invocation, so that the path ending with it changes from ``before`` to
        ``after``.
        """
        with self._lock:
            if before in self._begun:
                self._begun[after] = self._begun.pop(before)

    def ended(self, invocation: Invocation) -> None:
        """Add an ended invocation to this record of the path, unless it failed or its beginning was not recorded here."""
        with self._lock:
            path = invocation.prefix
            found = self._begun.get(path)
            if found is None or invocation.failure is not None:
                return
            stages, nodes = found
            k = self._behind(path, stages)
            self._entries = [*self._entries[:k], Entry(k=k, stage=stages[k], model=path[k], usd=invocation.cost_usd)]
            self._nodes = [*self._nodes[:k], nodes]

    def _behind(self, path: tuple[str, ...], stages: tuple[str, ...]) -> int:
        """Check this record against ``path``, mend it if needed, and return the index of the last invocation of ``path``.

        The record must have the same models as ``path`` before this invocation. If it does not, it is replaced by the models
        and stages of ``path``, without costs.
        """
        k = len(path) - 1
        if [entry["model"] for entry in self._entries[:k]] != list(path[:k]):
            self._entries = [Entry(k=i, stage=stages[i], model=path[i]) for i in range(k)]
        self._nodes += [set() for _ in range(k - len(self._nodes))]
        return k

    def before(self, node: str) -> PathValue:
        """Return the path up to, but not including, the first invocation that ``node`` made in this run.

        If the node made none, return the whole path. Used when the node runs again from its start.
        """
        with self._lock:
            k = next((i for i, nodes in enumerate(self._nodes) if node in nodes), len(self._entries))
            return {"path": list(self._entries[:k]), "closed": False}


class InnerTrails:
    """Keeps the :class:`InnerTrail` of the last run of each thread, separately for each checkpointer. Thread-safe.

    A thread's name does not identify it: two graphs, or two tenants with separate checkpointers, may use the same name.
    Beyond :data:`MOST_THREADS` threads, the least recently used one is dropped.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, Any], tuple[Callable[[], Any], InnerTrail]] = OrderedDict()
        self._lock = Lock()

    def begin(self, config: RunnableConfig | None) -> tuple[InnerTrail, PathValue | None] | None:
        """Begin a record of a run whose first model call is inside a subgraph, and return (record, path of the resumed run).

        The record stores the run's invocations inside subgraphs. The path is None if the run does not resume an earlier run of
        this process. The result is None if the run has no thread or no checkpointer, because such a run cannot be resumed
        later.
        """
        given: dict[str, Any] = {} if config is None else config.get("configurable", {})
        thread, saver, where = given.get("thread_id"), given.get(_CHECKPOINTER), where_of(config)
        if thread is None or saver is None:
            return None
        with self._lock:
            key = id(saver), thread
            last = _of(saver, self._kept.pop(key, None))
            is_resumed = last is not None and where.task in last.tasks
            trail = InnerTrail()
            self._kept[key] = (ref(saver), trail)
            while len(self._kept) > MOST_THREADS:
                self._kept.popitem(last=False)
        return trail, last.before(where.node) if last is not None and is_resumed else None

    def extended(self, config: RunnableConfig, value: PathValue | None) -> PathValue | None:
        """Return the stored path plus the subgraph invocations of the thread's last run.

        None if there are no such invocations, or if they do not continue the stored path.
        """
        given = config.get("configurable", {})
        saver = given.get(_CHECKPOINTER)
        with self._lock:
            last = _of(saver, self._kept.get((id(saver), given.get("thread_id"))))
        if last is None or value is None:
            return None
        models, found = models_of(value), last.before(where_of(config).node)
        if models_of(found)[: len(models)] != models or len(found["path"]) == len(models):
            return None
        return {"path": [*value["path"], *found["path"][len(models) :]], "closed": value["closed"]}


def _of(saver: Any, kept: tuple[Callable[[], Any], InnerTrail] | None) -> InnerTrail | None:
    """Return the trail stored for a thread if it belongs to the checkpointer ``saver``, otherwise None.

    ``kept`` is (a function that returns the trail's checkpointer, the trail); None if no trail is stored. The checkpointers are
    compared as objects, because the id of a deleted object may be used again.
    """
    return kept[1] if kept is not None and kept[0]() is saver else None
