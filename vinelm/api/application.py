"""The object that an application holds: stages and routes from the LangGraph adapter, decisions from the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vinelm.adapters.langgraph import GraphAdapter, RunContext
from vinelm.annotated_trie import AnnotatedTrie, whole_paths
from vinelm.catalog import Catalog
from vinelm.clock import Clock
from vinelm.controller import (
    BackgroundLoadMonitor,
    InFlightLoadMonitor,
    LoadSource,
    Mode,
    OnError,
    Planner,
    ReportedLoadMonitor,
    Session,
    load_curves,
)
from vinelm.errors import ConfigError, VineLMError
from vinelm.objective import Objective
from vinelm.policies import Judge
from vinelm.protocols import Backend, LoadMonitor, Policy, PricesCalls
from vinelm.template import Template
from vinelm.vinefile import load_trie
from vinelm.workflow import Request

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


class VineLM(GraphAdapter):
    """Wraps the LLM stages of a LangGraph application and chooses their models while a request runs (DESIGN §7).

    ``models`` is a catalog or the path of its file, ready LangChain chat models by name, or ``provider:model`` strings; None
    takes the one that ``trie`` brings. Until a trie is loaded, or for a run without an objective, every stage runs its default
    model. ``mode`` and ``on_error`` are those of a :class:`~vinelm.controller.Session`; ``load`` tells the engines'
    extra seconds before each plan: a function, a monitor, or the file of slowdown curves that ``vinelm calibrate`` wrote, read
    with our own calls under way. By default load is seen from our own calls' latencies, where they take real time. A source
    that is slow or hangs delays no decision.
    """

    def __init__(
        self,
        models: Catalog | str | Path | Mapping[str, BaseChatModel] | Sequence[str] | None = None,
        backends: Mapping[str, Backend] | None = None,
        *,
        template: Template | None = None,
        trie: AnnotatedTrie | str | Path | None = None,
        mode: Mode = "enforce",
        on_error: OnError = "default",
        load: LoadSource | LoadMonitor | str | Path | None = None,
    ) -> None:
        annotated = None if trie is None else _annotated(trie)
        if models is None:
            if annotated is None:
                raise ConfigError("VineLM needs models: pass a catalog, the path of its file, or a trie that brings its own")
            models = annotated.catalog
        catalog = Catalog.of(models)
        super().__init__(catalog, backends, template=template)
        self.mode: Mode = mode
        self.on_error: OnError = on_error
        self.planner: Planner | None = None
        self._whole: tuple[Planner, Planner] | None = None
        self._load_source = self._load_of(load)
        self._least_usd: dict[str, float] = {}
        if annotated is not None:
            self.load(annotated)

    def load(self, trie: AnnotatedTrie | str | Path) -> None:
        """Plan over this trie from now on; runs under way keep theirs.

        Models that the catalog lacks are never planned, nor anything behind them. :class:`ConfigError` where none is left, or
        where a stage that the application wrapped is not the trie's; :class:`~vinelm.errors.TrieFileError` for the file.
        """
        annotated = _annotated(trie)
        known = {stage.name for stage in annotated.template.stages}
        for stage in self.stages:
            if stage not in known:
                raise ConfigError(
                    f"the trie is of another workflow: it has no stage {stage!r}, only {', '.join(sorted(known))}"
                )
        if self.template is not None and [s.name for s in self.template.stages] != [s.name for s in annotated.template.stages]:
            raise ConfigError(f"the trie is of another workflow: its stages are {', '.join(sorted(known))}")
        planner = Planner(annotated, available=self.catalog)
        if not planner.metrics.endings.any():
            lacking = ", ".join(planner.metrics.missing)
            raise ConfigError(f"no path of the trie can be served: the catalog lacks {lacking}: add them or profile again")
        self.planner = planner
        if self.template is None:
            self.template = annotated.template

    def prepare(self, *objectives: Objective) -> None:
        """Build now what plans for objectives of these kinds look up, so that no request waits for it (the bounds' values
        do not matter). Above ten thousand paths this is begun in the background when a kind is first asked for; below, a first
        plan takes milliseconds. :class:`ConfigError` without a trie.
        """
        for objective in objectives:
            self._planning().prepare(objective)

    def session(
        self,
        objective: Objective,
        *,
        request: Request | None = None,
        judge: Judge | None = None,
        clock: Clock | None = None,
        started_at: float | None = None,
    ) -> Session:
        """A policy for one request. ``judge`` tells right answers: needed where the template stops by oracle.

        :class:`ConfigError` without a trie.
        """
        planner = self._planning()
        planner.prepare_in_background(objective)
        return Session(
            planner,
            objective,
            clock=clock or self.new_clock(),
            request=request,
            judge=judge,
            started_at=started_at,
            mode=self.mode,
            on_error=self.on_error,
            load=self._load_seen(),
            least_call_usd=self._least_call_usd,
            default=self._served_default,
        )

    def _served_default(self, stage: str) -> str:
        """The stage's declared default; where the catalog has lost that, the first model of the stage that it still has."""
        declared = self.default_model(stage)
        if declared in self.catalog or self.template is None:
            return declared
        allowed = next((known.models for known in self.template.stages if known.name == stage), None)
        return next((model for model in allowed or () if model in self.catalog), next(iter(self.catalog)))

    def _least_call_usd(self, model: str) -> float:
        """Dollars that are set aside for a call of that model with an empty prompt; 0 where its backend tells no bound."""
        found = self._least_usd.get(model)
        if found is None:
            found, backend = 0.0, self.backend_of(model)
            if isinstance(backend, PricesCalls):
                with suppress(VineLMError):
                    found = backend.upper_bound_usd(self.catalog[model], [])
            self._least_usd[model] = found
        return found

    def _load_of(self, load: LoadSource | LoadMonitor | str | Path | None) -> LoadSource | LoadMonitor | None:
        if not isinstance(load, str | Path):
            return load
        curves = load_curves(load)
        engines = {model.engine for model in self.catalog.models}
        if not engines & set(curves):
            there, wanted = (", ".join(sorted(names)) or "no engine" for names in (curves, engines))
            raise ConfigError(f"{load}: has curves of {there}, the catalog's engines are {wanted}: calibrate one of them")
        return InFlightLoadMonitor(curves)

    def _planning(self) -> Planner:
        """The planner of new requests; :class:`ConfigError` without a trie."""
        if self.planner is None:
            raise ConfigError("no trie is loaded: call vine.load('....vine') before asking for a session")
        return self.planner if self.can_end else self._to_the_end(self.planner)

    def _to_the_end(self, planner: Planner) -> Planner:
        """A planner whose plans all lead to the last invocation: no edge of the application asks whether to go on."""
        if self._whole is None or self._whole[0] is not planner:
            self._whole = (planner, Planner(whole_paths(planner.annotated), available=self.catalog))
        return self._whole[1]

    def _load_seen(self) -> LoadSource | LoadMonitor | None:
        if self._load_source is None and not self.is_virtual_time:
            self._load_source = InFlightLoadMonitor()
        if not (self._load_source is None or isinstance(self._load_source, _NEVER_BLOCK) or self.is_virtual_time):
            self._load_source = BackgroundLoadMonitor(self._load_source)
        return self._load_source

    def policy_for(self, context: RunContext) -> Policy:
        """The context's own policy, a new session for its objective, or the defaults where there is nothing to plan with."""
        if context.policy is not None or context.objective is None or self.planner is None:
            return super().policy_for(context)
        return self.session(context.objective, request=context.request, started_at=context.started_at)


_NEVER_BLOCK = (InFlightLoadMonitor, ReportedLoadMonitor, BackgroundLoadMonitor)


def _annotated(trie: AnnotatedTrie | str | Path) -> AnnotatedTrie:
    return trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
