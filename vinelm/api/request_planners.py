"""Chooses the planner of new requests, from the signals of the loaded trie and the exits of the application's graph."""

from __future__ import annotations

from vinelm.adapters.langgraph import GraphAdapter
from vinelm.catalog import Catalog
from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.trie.annotated_trie import AnnotatedTrie, ending_after, whole_paths


class RequestPlanners:
    """The planners over one trie, from which the planner of each new request is chosen.

    A planner over paths chooses sequences of models; a planner over signals makes plans that depend on what each request shows.
    Plans end only where the graph can end a request. If the application declares signals and the trie has them, there are two
    planners over signals. One is for graphs that can return an earlier answer, one for graphs that return the last answer.

    Attributes:
        over_paths: plans over all of the trie's paths, even those that end where the graph cannot end a request.

    Args:
        adapter: the application's stages, edges and signals. Edges may still be wrapped after the trie is loaded.
        catalog: the models that may serve; plans use no other models of the trie.

    Raises:
        ConfigError: every path needs a model that the catalog lacks, the trie is of another workflow, or its plans may end
            where the graph has no ``vine.route``.
    """

    def __init__(self, annotated: AnnotatedTrie, adapter: GraphAdapter, catalog: Catalog) -> None:
        self._adapter, self._catalog = adapter, catalog
        self._require_same_workflow(annotated)
        # Only stages that every request reaches: the others may end by themselves.
        certain = {stage.name for stage in annotated.template.base.certain_stages}
        wrong = [stage for stage in self._without_exit(annotated) if stage in certain]
        if wrong:
            raise ConfigError(
                f"plans of the trie may end after {', '.join(map(repr, wrong))}, where the graph has no vine.route to end at: "
                "profile this graph, or put a vine.route there"
            )
        self.over_paths = Planner(annotated, available=catalog)
        if not self.over_paths.metrics.endings.any():
            lacking = ", ".join(self.over_paths.metrics.missing)
            raise ConfigError(f"no path of the trie can be served: the catalog lacks {lacking}: add them or profile again")
        self._chosen: dict[tuple[tuple[str, ...], bool], Planner] = {}
        self._told = annotated.tries[-1] if adapter.signals else annotated

    def chosen(self, *, returns_earlier: bool | None = None) -> Planner:
        """Return the planner of a new request, whose plans end only where the graph can end a request.

        It plans over signals if the trie has them, otherwise over paths. It also plans over paths if plans over signals could
        continue after a passed check, but the policy cannot end requests in every loop of the graph.

        Args:
            returns_earlier: whether the run can return an earlier answer than its last. None means True if answers are declared
                and every end of the graph is ``vine.finish``, else False.
        """
        earlier = self._adapter.returns_earlier if returns_earlier is None else returns_earlier
        key = (tuple(self._adapter.agains), earlier)
        if key not in self._chosen:
            self._chosen[key] = self._made(earlier)
        return self._chosen[key]

    def _made(self, earlier: bool) -> Planner:
        """Return the planner for runs that can return an earlier answer than the last (``earlier``), or only the last one."""
        paths, told = self.over_paths.annotated, self._told
        # A plan that continues after a passed check needs a route behind every loop: elsewhere the graph ends by itself.
        if told.outcomes.goes_on and self._within(paths) is not paths:
            told = paths
        within = self._within(told if earlier else told.returning_last())
        return self.over_paths if within is paths else Planner(within, available=self._catalog)

    def _within(self, annotated: AnnotatedTrie) -> AnnotatedTrie:
        """Return the trie, limited to plans that end only where an edge that VineLM wraps can end the request.

        If the policy cannot end a request at any edge, every plan runs to the last invocation.
        """
        if not self._adapter.can_end:
            return whole_paths(annotated)
        if not self._without_exit(annotated):
            return annotated
        exits = self._adapter.exits_of(annotated.template.base) or ()
        return ending_after(annotated, [name for name, base in annotated.template.base_stages.items() if base in exits])

    def _require_same_workflow(self, annotated: AnnotatedTrie) -> None:
        """Raise :class:`ConfigError` if the application has a stage that the trie lacks, or a template with other stages."""
        stages = [stage.name for stage in annotated.template.base.stages]
        known = ", ".join(sorted(stages))
        for stage in self._adapter.stages:
            if stage not in stages:
                raise ConfigError(f"the trie is of another workflow: it has no stage {stage!r}, only {known}")
        template = self._adapter.template
        if template is not None and [stage.name for stage in template.stages] != stages:
            raise ConfigError(f"the trie is of another workflow: its stages are {known}")

    def _without_exit(self, annotated: AnnotatedTrie) -> list[str]:
        """Return the stages that may give the final answer, but after which no edge that VineLM wraps can end the request.

        Empty if the wrapped edges do not show after which stages a request can end.
        """
        template = annotated.template.base
        exits = self._adapter.exits_of(template)
        if exits is None:
            return []
        return [stage.name for stage in template.stages if stage.answerable and stage.name not in exits]
