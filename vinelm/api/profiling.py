"""Profile a workflow: execute a sample of its requests on a sample of its paths, and store every observation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vinelm.api.certainty import profile_until_certain
from vinelm.api.estimation import require_max_error
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, StageBroken, WorkflowError
from vinelm.requests.protocols import Backend, Sampler
from vinelm.requests.workflow import Request, Workflow

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from vinelm.profiler import ExecutionConfig, ProfileResult, ProfileSettings, Progress, SingleModels
    from vinelm.template import StopRule
    from vinelm.traces import CheckpointPlace, ObservationStore, StoreIdentity

DEFAULT_COVERAGE = 0.02
"""The coverage at which a profile ends that has neither a coverage nor a budget."""


def profile(
    workflow: Workflow | str,
    models: Catalog | str | Path | Mapping[str, BaseChatModel] | Iterable[str],
    store: ObservationStore | str | Path,
    *,
    requests: Sequence[Request] | None = None,
    sampler: str | Sampler = "deciding",
    coverage: float | None = None,
    budget_usd: float | None = None,
    budget_calls: int | None = None,
    max_error: float | None = None,
    seed: int = 0,
    execution: ExecutionConfig | None = None,
    checkpoints: str | None = None,
    keep_going: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_single_models: Callable[[SingleModels], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> ProfileResult:
    """Execute a sample of (request, path) cells and store what each invocation showed.

    Calls the models, so it spends money unless they are simulated, and writes to ``store``. Every observation is on disk
    before the next stage of its request starts: called again with the same arguments, it continues where it stopped.
    Ctrl-C finishes the units in flight and returns; a second one stops at once.

    Args:
        workflow: A workflow, the name of a bundled one (``"nl2sql"``), or ``"module:attribute"``.
        models: A catalog, the path of its file, ready LangChain chat models by name, or ``provider:model`` strings.
        store: The store to write to. A path is opened if it exists and created otherwise; its folder must exist.
        requests: The labelled requests to sample from; None takes all of the workflow's.
        sampler: Which cells to execute next: ``"deciding"`` (a race of all single models, then what is expected to change the
            plan), ``"priced"`` (each model about as often as its price allows), ``"cascade"`` (uniform, as in the paper),
            ``"exhaustive"``, or an object with :class:`~vinelm.requests.protocols.Sampler`'s method.
        coverage: Stop at this fraction, in (0, 1], of the dollars that executing every reached cell once would cost.
            Without a coverage and a budget: 0.02.
        budget_usd: The most that the store may cost in dollars, earlier runs included. Required for models that cost money.
        budget_calls: The most model calls that the store may hold, earlier runs included.
        max_error: Stop as soon as :func:`vinelm.estimate` accepts the store at this ``max_error``, a fraction in (0, 1]: it is
            looked at after a coverage of 0.0025, and again after steps that depend on what is lacking. ``coverage`` and the
            budgets end the run in any case. Where it is known what runs today it goes on until the verdict is settled, or no
            plan can be proven on these requests, whatever is bought (``stopped_by="hopeless"``).
        seed: Decides the sample, and the answers of simulated models.
        execution: Where units run and how many at a time; None runs one at a time in this thread.
        checkpoints: A folder or a URL that fsspec knows, where the contents of checkpoints are kept instead of in the store, in
            later runs too.
        keep_going: Go on even if all first rows of a stage fail alike, whatever the model, or none of the first ten requests
            that what runs today has answered is right, which says that the answer is read in the wrong place; or no plan can
            be proven on these requests.
        on_progress: Called after every new observation.
        on_single_models: Called once with the table of the single models, as soon as their race is over; the result has it too.
        on_note: Called with one line if the store's last run had other settings, and with one line if the workflow, the
            dataset or the catalog changed: which rows stay, and which do not.

    Returns:
        How the profile stands and what ended it.

    Raises:
        ConfigError: A cap, a sampler or an execution setting makes no sense, or models cost money and no budget is given.
        WorkflowError: The workflow cannot be profiled as it stands.
        StoreError: The store belongs to another workflow, none of its rows would stay, or another process is writing to it.

    Examples:
        >>> import vinelm
        >>> from my_app import workflow
        >>> some = workflow.requests[:90]  # the other 30 are for vinelm.verify
        >>> result = vinelm.profile(workflow, "models.toml", "my-app.db", requests=some, coverage=0.3)
        >>> result.stopped_by
        'coverage'
        >>> result.executed
        166
    """
    from vinelm.profiler import ExecutionConfig, ProfileSettings
    from vinelm.profiler.sampling.samplers import require_sampler
    from vinelm.traces import CheckpointPlace
    from vinelm.workflows import load_workflow

    if isinstance(workflow, str):
        workflow = load_workflow(workflow)
    inputs = prepared(workflow, Catalog.of(models), seed=seed)
    inputs.require_budget(budget_usd)
    if max_error is not None:
        require_max_error(max_error)
    if max_error is None and coverage is None and budget_usd is None and budget_calls is None:
        coverage = DEFAULT_COVERAGE
    require_sampler(sampler)
    settings = ProfileSettings(  # refuses nonsense before a store is made
        requests=requests, sampler=sampler, coverage=coverage, budget_usd=budget_usd, budget_calls=budget_calls, seed=seed,
        execution=execution or ExecutionConfig(), keep_going=keep_going, on_progress=on_progress,
        on_single_models=on_single_models, on_note=on_note,
    )  # fmt: skip
    place = None if checkpoints is None else CheckpointPlace(checkpoints)
    identity = inputs.identity
    with _opened(store, identity, place) as opened:
        return run_profile(inputs, opened, replace(settings, identity=identity), max_error=max_error)


def run_profile(
    inputs: Inputs,
    store: ObservationStore,
    settings: ProfileSettings,
    *,
    max_error: float | None = None,
    max_loss: float | None = None,
) -> ProfileResult:
    """Profile into an open store: once, or in steps until an estimate from it has at most ``max_error``."""
    from vinelm.api.deciding import recommended_plans
    from vinelm.profiler import profile

    workflow, catalog, backends = inputs.workflow, inputs.catalog, inputs.backends
    settings = replace(settings, candidates=recommended_plans(workflow.template.bind(tuple(catalog)), catalog))
    settings = replace(settings, whole=settings.sampled_for)  # a step of a profile must not take its shares of its own coverage
    if max_error is None:
        return profile(workflow, catalog, backends, store, settings)
    return profile_until_certain(
        lambda coverage: profile(workflow, catalog, backends, store, replace(settings, coverage=coverage)),
        store.path, max_error=max_error, at_most=settings.coverage or 1.0, max_loss=max_loss,
        keep_going=settings.keep_going, on_note=settings.on_note,
    )  # fmt: skip


def require_sound(result: ProfileResult, store: ObservationStore, *, keep_going: bool = False) -> None:
    """Raise what a profile has found wrong with the workflow; its rows stay, and such that failed are executed again.

    Args:
        result: How the profile ended.
        store: Its store, open.
        keep_going: Whether it went on in spite of failures.

    Raises:
        StageBroken: All first rows of a stage failed alike, or every row failed.
        WorkflowError: None of the first answers was right (code ``none-right``).
    """
    from vinelm.profiler.scheduling.observed_cells import only_failures
    from vinelm.traces.store.run_state import RunRecords

    if result.stopped_by == "broken":
        raise StageBroken(f"{result.message}: repair it and run the same line again, which executes these rows again")
    if result.stopped_by == "none-right":
        asked = "is the answer read in the right place, and scored by its label?"
        raise WorkflowError(f"{result.message}: {asked}", code="none-right")
    failed = only_failures(store.observations()) if result.stopped_by in ("coverage", "complete", "sampler") else None
    if failed is not None:
        RunRecords(store).note_only_failures()
        again = "run it without --keep-going" if keep_going else "run the same line again"
        raise StageBroken(f"{failed}: repair it and {again}, which executes these rows again", code="only-failures")


def require_budget(backends: Mapping[str, Backend], budget_usd: float | None) -> None:
    """Raise :class:`ConfigError` if some backend's calls cost real money and there is no budget in dollars."""
    spends_money = any(not backend.is_simulated and not backend.is_virtual_time for backend in backends.values())
    if spends_money and budget_usd is None:
        raise ConfigError(
            "these models cost money: set budget_usd, the most that this store may ever cost", code="budget-required"
        )


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a profile takes: a workflow with its template bound to the catalog, and one backend per provider.

    ``note`` describes the catalog that was used by default; None if the user named one.
    """

    workflow: Workflow
    catalog: Catalog
    backends: dict[str, Backend]
    seed: int = 0
    note: str | None = None

    @property
    def is_simulated(self) -> bool:
        """True if some models are simulated."""
        return any(backend.is_simulated for backend in self.backends.values())

    @property
    def identity(self) -> StoreIdentity:
        """That of the store of such a profile: see :func:`identity_of`."""
        return identity_of(self.workflow, self.catalog, self.backends, self.seed)

    def require_budget(self, budget_usd: float | None) -> None:
        """Raise :class:`ConfigError` if calls cost real money, a judge's among them, and there is no budget in dollars."""
        from vinelm.profiler.execution.judging import judge_backends_of

        judges = judge_backends_of(self.workflow, self.catalog, self.backends)
        require_budget({**self.backends, **judges}, budget_usd)


def prepared(workflow: Workflow, catalog: Catalog, *, seed: int, stop: StopRule | None = None) -> Inputs:
    """Return the workflow bound to the catalog and to its graph, and one backend per provider.

    Args:
        workflow: The workflow.
        catalog: The models.
        seed: Decides simulated answers.
        stop: Replaces the stop rule of its template.

    Raises:
        InputError: The workflow, its graph and the catalog do not fit together.
    """
    from vinelm.backends import create_backends

    template = resolve_workflow(workflow, catalog).template
    template = template if stop is None else template.with_stop(stop)
    workflow = replace(workflow, template=template.bind(tuple(catalog)))
    backends = create_backends(catalog, workflow=workflow, seed=seed)
    return Inputs(workflow=bind_workflow(workflow, catalog, backends), catalog=catalog, backends=backends, seed=seed)


def resolve_workflow(workflow: Workflow, catalog: Catalog) -> Workflow:
    """Return the workflow with a template: its own, or the one that its graph implies.

    Raises:
        WorkflowError: The graph does not say where some edge leads.
    """
    from vinelm.adapters.langgraph.exits import resolved
    from vinelm.api.application import VineLM

    return workflow if workflow.has_template else resolved(workflow, VineLM(catalog))


def bind_workflow(workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> Workflow:
    """Return the workflow with its template bound to the catalog and to the exits of its graph, which is built and checked.

    Raises:
        TemplateError: The template does not fit the catalog.
        WorkflowError: The graph does not fit the template, or has no exit behind an answer.
    """
    from vinelm.adapters.langgraph import build_graph
    from vinelm.adapters.langgraph.exits import as_wrapped, with_graph_exits
    from vinelm.api.application import VineLM

    template = resolve_workflow(workflow, catalog).template.bind(tuple(catalog))
    workflow = replace(workflow, template=template)
    vine = VineLM(catalog, backends, template=template)
    graph = build_graph(workflow, vine)
    return replace(workflow, template=as_wrapped(with_graph_exits(template, graph), vine.adapter, graph))


def identity_of(workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend], seed: int) -> StoreIdentity:
    """Return the identity of the store of such a profile. Builds the graph: its errors are raised before a file is made.

    Args:
        workflow: Its template is bound to ``catalog``.
        catalog: The models.
        backends: One per provider of the catalog.
        seed: A part of the identity if some answers are simulated.
    """
    from vinelm.adapters.langgraph import build_graph
    from vinelm.api.application import VineLM
    from vinelm.profiler.execution.fingerprint import store_identity

    build_graph(workflow, VineLM(catalog, backends, template=workflow.template))
    is_simulated = any(backend.is_simulated for backend in backends.values())
    return store_identity(workflow, catalog, backends, settings={"seed": seed} if is_simulated else None)


@contextmanager
def _opened(
    store: ObservationStore | str | Path, identity: StoreIdentity, place: CheckpointPlace | None
) -> Iterator[ObservationStore]:
    from vinelm.traces import ObservationStore

    with (
        nullcontext(store)
        if isinstance(store, ObservationStore)
        else ObservationStore.open_or_create(store, identity) as opened
    ):
        if place is not None:
            opened.keep_checkpoints_under(place)
        yield opened
