"""The planner of new requests, given the loaded trie's knowledge and the abilities of the application's graph."""

from __future__ import annotations

from vinelm.adapters.langgraph import GraphAdapter
from vinelm.catalog import Catalog
from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.trie.annotated_trie import AnnotatedTrie, ending_after, whole_paths


class ServedPlanners:
    """The planners over one trie.

    Plans end only where the graph can end a request. Over signals, where the application declares some and the trie knows them,
    there are two planners: plans that may return an earlier answer, for graphs that can, and plans that return the last.

    Attributes:
        over_paths: plans over the trie's paths, wherever they end.

    Args:
        annotated: the trie.
        adapter: the application's stages, edges and signals. Edges may still be wrapped after the trie is loaded.
        catalog: the models that may serve; others of the trie are not planned.

    Raises:
        ConfigError: no path is left, the trie is of another workflow, or its plans may end where no ``vine.route`` stands.
    """

    def __init__(self, annotated: AnnotatedTrie, adapter: GraphAdapter, catalog: Catalog) -> None:
        self._adapter, self._catalog = adapter, catalog
        self._require_same_workflow(annotated)
        wrong = self._without_exit(annotated)
        if wrong and annotated.template.is_linear:  # a branching workflow may end there by itself
            raise ConfigError(
                f"plans of the trie may end after {', '.join(map(repr, wrong))}, where the graph has no vine.route to end at: "
                "profile this graph, or put a vine.route there"
            )
        self.over_paths = Planner(annotated, available=catalog)
        if not self.over_paths.metrics.endings.any():
            lacking = ", ".join(self.over_paths.metrics.missing)
            raise ConfigError(f"no path of the trie can be served: the catalog lacks {lacking}: add them or profile again")
        self._within_exits: tuple[tuple[str, ...], Planner] | None = None
        self._over_signals: dict[bool, Planner] = {}
        if annotated.signals is not None and adapter.signals is not None:
            tries = {True: annotated.signals, False: annotated.signals.returning_last()}
            self._over_signals = {earlier: Planner(trie, available=catalog) for earlier, trie in tries.items()}

    def chosen(self, *, returns_earlier: bool | None = None) -> Planner:
        """Return the planner of a new request: over what it shows, where that is known and the graph can end at every loop.

        Args:
            returns_earlier: the run can return an earlier answer than its last; None: if every end of the graph is
                ``vine.finish``.
        """
        planner = self._of_graph()
        if not self._over_signals or planner is not self.over_paths:
            return planner
        return self._over_signals[self._adapter.returns_earlier if returns_earlier is None else returns_earlier]

    def _of_graph(self) -> Planner:
        """The planner over paths that end only where an edge of the graph, as it is wrapped now, can end the request."""
        edges = tuple(self._adapter.agains)
        if self._within_exits is None or self._within_exits[0] != edges:
            self._within_exits = (edges, self._ending_at_exits())
        return self._within_exits[1]

    def _ending_at_exits(self) -> Planner:
        """See :meth:`_of_graph`. If no edge asks whether to go on, all plans lead to the last invocation."""
        annotated = self.over_paths.annotated
        if not self._adapter.can_end:
            return Planner(whole_paths(annotated), available=self._catalog)
        if not self._without_exit(annotated):
            return self.over_paths
        return Planner(ending_after(annotated, self._adapter.exits_of(annotated.template) or ()), available=self._catalog)

    def _require_same_workflow(self, annotated: AnnotatedTrie) -> None:
        """:class:`ConfigError` if the stages of the trie are not those of the application."""
        stages = [stage.name for stage in annotated.template.stages]
        known = ", ".join(sorted(stages))
        for stage in self._adapter.stages:
            if stage not in stages:
                raise ConfigError(f"the trie is of another workflow: it has no stage {stage!r}, only {known}")
        template = self._adapter.template
        if template is not None and [stage.name for stage in template.stages] != stages:
            raise ConfigError(f"the trie is of another workflow: its stages are {known}")

    def _without_exit(self, annotated: AnnotatedTrie) -> list[str]:
        """The answerable stages of the trie after which no edge can end the request, as far as the edges tell."""
        exits = self._adapter.exits_of(annotated.template)
        if exits is None:
            return []
        return [stage.name for stage in annotated.template.stages if stage.answerable and stage.name not in exits]
