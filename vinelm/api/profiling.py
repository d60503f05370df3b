"""Profiles a workflow: runs a sample of its requests on a sample of its paths, and stores the result of every call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.api.certainty import FIRST_LOOK_SHARE, profile_until_certain
from vinelm.api.deciding import recommended_plans
from vinelm.api.estimation import require_max_error
from vinelm.api.references import ask, forget, references_of
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, EvidenceError, StageBroken, WorkflowError
from vinelm.requests.protocols import Backend, Sampler
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation
from vinelm.trie.verdict import MAX_LOSS, Verdict, counted

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from vinelm.backends.remote.batches import BatchTimes
    from vinelm.backends.remote.equal_calls import RecordedCalls
    from vinelm.datasets import Columns
    from vinelm.profiler import (
        ExecutionConfig,
        Forecast,
        Look,
        ProfileLimits,
        ProfileResult,
        ProfileSettings,
        Progress,
        SingleModels,
    )
    from vinelm.profiler.dry_run.batch_api_forecast import RunForecast
    from vinelm.profiler.execution.batch_api import BatchPrices
    from vinelm.template import StopRule
    from vinelm.traces import CheckpointPlace, ObservationStore, StoreIdentity
    from vinelm.traces.databases.address import StoreAddress

    Models = Catalog | str | Path | Mapping[str, BaseChatModel] | Iterable[str]

DEFAULT_COVERAGE = 0.02
"""The coverage at which a profile ends if neither a coverage nor a budget is given."""
VAST = 1_000_000
"""With more sequences of models than this the coverage says nothing: whole runs decide."""
FORECAST_ON = 10
"""Requests on which such runs are simulated."""
DEFAULT_PRESET = "paper"
ASKING = ("certain", "hopeless", "budget")
"""Reasons for the end of a profile (``stopped_by``), apart from its coverage, after which a verdict is made and people are
asked to label.
"""
ENDED_WELL = ("coverage", "complete", "sampler")
BATCH_WORKERS = 500
"""At batch prices: each unit that waits is a thread, and the more wait together, the fewer batches there are."""


def profile(
    workflow: Workflow | str,
    models: Models | None = None,
    store: ObservationStore | str | Path | None = None,
    *,
    preset: str | None = None,
    dataset: str | Path | None = None,
    columns: Columns | Iterable[str] | None = None,
    limit: int | None = None,
    requests: Sequence[Request] | None = None,
    stop: StopRule | None = None,
    sampler: str | Sampler = "deciding",
    coverage: float | None = None,
    budget_usd: float | None = None,
    budget_calls: int | None = None,
    max_error: float | None = None,
    seed: int = 0,
    execution: ExecutionConfig | None = None,
    batch_prices: bool | BatchTimes = False,
    checkpoints: str | None = None,
    keep_going: bool = False,
    recorded: RecordedCalls | None = None,
    dry_run: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_single_models: Callable[[SingleModels], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> ProfileResult:
    """Run a sample of a workflow's requests on a sample of its paths (sequences of models), and store the result of every call.

    Calls the models, so it spends money unless they are simulated, and writes to ``store``. Every result is on disk before the
    next stage of its request starts, so that another call with the same arguments continues where this one stopped. Ctrl-C
    finishes the runs in progress and returns; a second Ctrl-C stops at once.

    Args:
        workflow: A workflow, the name of a bundled one (``"nl2sql"``), or ``"module:attribute"``.
        models: Catalog of models with prices. In Python also a :class:`~vinelm.Catalog`, ready LangChain chat models by name,
            or ``provider:model`` strings. None: simulated models for a bundled workflow, marked as such in the output.
        store: Store to create or continue: a file, or postgresql://user@host/database. In Python also an open store; the folder
            of a file must exist. None: ``runs/WORKFLOW.db``.
        preset: Simulated catalog to use without ``models``: paper (8 models), paper-2, paper-4, one-wins.
        dataset: Requests: CSV, JSON lines, Parquet, a Hugging Face folder, or an export of LangSmith or Langfuse; a bundled
            workflow reads its own format. None: the workflow's.
        columns: Column of the dataset to use: input.KEY=COLUMN, label.KEY=COLUMN (the graph never sees labels) or id=COLUMN. A
            path such as outputs.answer leads into a column. Repeatable. In Python several such texts, or
            :class:`vinelm.datasets.Columns`. None: the format decides.
        limit: Use only the first N requests of the dataset.
        requests: The labelled requests to sample from; None takes all of the workflow's.
        stop: When a request leaves the loop: when the workflow's own check passes, or when its answer is right (needs labels,
            so for offline replay only). None: as the workflow declares.
        sampler: What to run next: deciding (a race of all models, then what may change the plan), priced (cheap models more
            often), cascade (uniform, as in the paper), or exhaustive. In Python also an object with
            :class:`~vinelm.requests.protocols.Sampler`'s method.
        coverage: Stop at this share of the estimated dollars of a full profile, which makes each call that a request can reach
            once. In Python a fraction in (0, 1]. None: 0.02, without a budget.
        budget_usd: Never spend more than this, earlier runs on the store included. In Python required for models that cost
            money.
        budget_calls: Never make more calls than this, earlier runs included.
        max_error: Stop as soon as ``vinelm estimate`` accepts the rows at this ``max_error``, for example 0.15. ``coverage``
            and the budgets end the run in any case. In Python a fraction in (0, 1]. The rows are first checked at a coverage of
            0.0025, and again after steps that depend on what is lacking. If the current setup is known, the run also continues
            until the verdict is settled, or until no plan can be proven on these requests (``stopped_by="hopeless"``).
        seed: Seed of samples, splits and simulated answers.
        execution: Where requests are run, and how many at a time. With None, one at a time in this thread, or with
            ``batch_prices`` 500 at a time in threads. New processes build the workflow again from its name.
        batch_prices: Buy in the batches of OpenAI, Anthropic and Gemini: half the price, each wave of calls within 24 h. After
            a kill, the next run fetches the answers that were bought. In Python also how long to wait for a batch.
        checkpoints: Keep the contents of checkpoints in this folder or under this fsspec URL, also in later runs. None: in the
            store.
        keep_going: Continue even if all first calls of a stage fail alike, if none of the current setup's first ten answers is
            right, or if nothing can be proven.
        recorded: Recorded calls (:class:`vinelm.replay.Traces`). A call that equals a recorded one gets the recorded answer,
            for $0. None: each call is made.
        dry_run: Say which calls would be made, what they would cost and how long they would take. Calls nothing. In Python the
            result has a ``forecast``.
        on_progress: Called after every new observation.
        on_single_models: Called once with the table of the single models, as soon as their race is over; the result has it too.
        on_note: Called with one line if the models are simulated by default, if the store's last run had other settings, or if
            the workflow, the dataset or the catalog has changed. The line then says which rows are kept.

    Returns:
        The state of the profile, and the reason why it ended.

    Raises:
        ConfigError: A cap, a sampler or an execution setting is invalid, or models cost money and no budget is given.
        WorkflowError: The workflow cannot be profiled as it stands.
        StoreError: The store belongs to another workflow, none of its rows could be kept, or another process is writing to it.

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
    from vinelm.backends.diagnostics import require_keys
    from vinelm.backends.remote.batches import BatchTimes
    from vinelm.profiler import ExecutionConfig, ProfileResult, ProfileSettings, WorkflowSource
    from vinelm.profiler.execution.batch_api import BatchPrices, batched_models
    from vinelm.profiler.sampling.samplers import require_sampler
    from vinelm.traces import CheckpointPlace

    named: dict[str, Any] = {
        "workflow": workflow, "models": models, "preset": preset, "dataset": dataset, "columns": columns, "limit": limit,
        "seed": seed, "stop": stop,
    }  # fmt: skip
    named = {name: str(value) if isinstance(value, Path) else value for name, value in named.items()}
    inputs = load_inputs(**named)
    if execution is None:
        execution = ExecutionConfig(isolation="thread", workers=BATCH_WORKERS) if batch_prices else ExecutionConfig()
    is_plain = all(isinstance(value, str | int | tuple | None) for value in named.values())
    if execution.isolation == "process" and execution.source is None and is_plain:
        execution = replace(execution, source=WorkflowSource(function=f"{__name__}:load_inputs", arguments=named))
    terms = None
    if batch_prices:
        terms = BatchPrices(times=BatchTimes() if batch_prices is True else batch_prices)
        batched_models(inputs.workflow, inputs.catalog, inputs.backends)  # refuses what cannot be bought that way
    require_sampler(sampler)
    if not dry_run:
        inputs.require_budget(budget_usd)
    if max_error is not None:
        require_max_error(max_error)
    if max_error is None and coverage is None and budget_usd is None and budget_calls is None:
        coverage = DEFAULT_COVERAGE
    settings = ProfileSettings(  # refuses nonsense before a store is made
        requests=requests, sampler=sampler, coverage=coverage, budget_usd=budget_usd, budget_calls=budget_calls, seed=seed,
        execution=execution, batch_prices=terms, keep_going=keep_going, recorded=recorded, on_progress=on_progress,
        on_single_models=on_single_models, on_note=on_note,
    )  # fmt: skip
    settings.note(inputs.note)
    where = store if store is not None else Path("runs") / f"{inputs.workflow.name}.db"
    if dry_run:
        found = forecast_run(
            inputs, where if isinstance(where, str | Path) else where.path, settings.limits, sampler=sampler,
            workers=execution.workers, max_error=max_error, batch_prices=terms, on_note=on_note,
        )  # fmt: skip
        return ProfileResult(
            stopped_by="dry-run", executed=0, failures={}, counts=(), coverage=0.0, spent_usd=0.0, exhaustive_usd=0.0,
            naive_usd=0.0, committed_usd=0.0, abandoned=0, forecast=found,
        )  # fmt: skip
    require_keys(inputs.catalog.models)
    place = None if checkpoints is None else CheckpointPlace(checkpoints)
    identity = inputs.identity
    if store is None:
        Path("runs").mkdir(exist_ok=True)
    with _opened(where, identity, place) as opened:
        result = run_profile(inputs, opened, replace(settings, identity=identity), max_error=max_error)
        return replace(result, store=opened.path)


def run_profile(
    inputs: Inputs,
    store: ObservationStore,
    settings: ProfileSettings,
    *,
    max_error: float | None = None,
    max_loss: float | None = None,
) -> ProfileResult:
    """Run a profile on an open store, and return the result.

    With ``max_error``, run it in steps, until the half width of the interval of an estimate from the store is at most this
    fraction. ``max_loss`` is the accuracy that a cheaper plan may lose.
    """
    from vinelm.profiler import profile
    from vinelm.profiler.scheduling.observed_cells import only_failures
    from vinelm.traces.store.run_state import RunRecords

    workflow, catalog, backends = inputs.workflow, inputs.catalog, inputs.backends
    template, records = workflow.template.bind(tuple(catalog)), RunRecords(store)
    references = references_of(workflow)
    if references is not None:
        settings = replace(settings, compared=references.compared(store))

    def run(look: Look | None = None) -> ProfileResult:
        if look is not None and look.lacking:
            with store.exclusive():
                records.want(look.rows, look.lacking)
        candidates = recommended_plans(template, catalog, records.wanted())
        try:
            return profile(workflow, catalog, backends, store, replace(settings, look=look, candidates=candidates))
        finally:  # also after an interrupted run: the answers that it bought are compared
            if references is None:
                forget(store)
            else:
                with store.exclusive():
                    references.keep(store)

    if max_error is None:
        found = run()
    else:
        is_raced = settings.sampler == "deciding" and workflow.template.today is not None  # then a look follows the race
        found = profile_until_certain(
            run, store.path, max_error=max_error, max_loss=max_loss,
            first_usd=0.0 if is_raced else FIRST_LOOK_SHARE * (settings.budget_usd or math.inf),
            keep_going=settings.keep_going, on_note=settings.on_note,
        )  # fmt: skip
    if settings.recorded is not None:
        settings.note(settings.recorded.line)
    if references is not None and found.stopped_by in (*ENDED_WELL, *ASKING):
        verdict = put_questions(store, MAX_LOSS if max_loss is None else max_loss, found.verdict)
        found = replace(found, verdict=verdict)
        if verdict is not None and verdict.waiting:
            waits = f"{counted(verdict.waiting, 'question')} wait{'s' if verdict.waiting == 1 else ''}"
            settings.note(f"{waits} for an answer: vinelm label {store.path}, then the same line again")
    if found.stopped_by in ENDED_WELL and only_failures(store.observations()) is not None:
        records.note_only_failures()  # the next run executes these rows again
    return found


def put_questions(store: ObservationStore, max_loss: float, verdict: Verdict | None = None) -> Verdict | None:
    """Open the questions for people (which of two answers is better) that may help to prove a plan, and close all others.

    Return the verdict, marked with whether questions are open. Calls no model.

    Args:
        store: A store with unlabelled requests.
        max_loss: Accuracy that a cheaper plan may lose, a fraction.
        verdict: The verdict on these rows; None computes it.

    Returns:
        The verdict; None if there are too few rows for it.
    """
    from vinelm.evaluation.comparison.comparison import Comparison
    from vinelm.evaluation.comparison.evidence import StoreEvidence

    if verdict is None:
        try:
            verdict = Comparison.of(StoreEvidence.of(store.path)).verdict(max_loss=max_loss)
        except EvidenceError:
            return None
    return ask(store, verdict)


def require_sound(result: ProfileResult, store: ObservationStore, *, keep_going: bool = False) -> None:
    """Raise an error for a problem that a profile has found in the workflow.

    The profile's rows are kept, and failed calls are made again when it continues.

    Args:
        result: The result of the profile.
        store: The profile's store, open.
        keep_going: Whether the profile continued in spite of failures.

    Raises:
        StageBroken: All first rows of a stage failed alike, or every row failed.
        WorkflowError: All of the first answers were wrong (code ``none-right``).
    """
    from vinelm.profiler.scheduling.observed_cells import only_failures

    if result.stopped_by == "broken":
        raise StageBroken(f"{result.message}: repair it and run the same line again, which executes these rows again")
    if result.stopped_by == "cut-off":
        raise WorkflowError(f"{result.message}, in the template, and run the same line again", code="cut-off")
    if result.stopped_by == "none-right":
        asked = "is the answer read in the right place, and scored by its label?"
        raise WorkflowError(f"{result.message}: {asked}", code="none-right")
    failed = only_failures(store.observations()) if result.stopped_by in ENDED_WELL else None
    if failed is not None:
        again = "run it without --keep-going" if keep_going else "run the same line again"
        raise StageBroken(f"{failed}: repair it and {again}, which executes these rows again", code="only-failures")


def require_budget(backends: Mapping[str, Backend], budget_usd: float | None) -> None:
    """Raise :class:`ConfigError` if a backend's calls cost real money and there is no budget in dollars."""
    spends_money = any(not backend.is_simulated and not backend.is_virtual_time for backend in backends.values())
    if spends_money and budget_usd is None:
        raise ConfigError(
            "these models cost money: set budget_usd, the most that this store may ever cost", code="budget-required"
        )


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a profile: a workflow with its template bound to the catalog, and one backend per provider.

    ``note`` is one line about the catalog that was chosen by default; None if the user named a catalog.
    """

    workflow: Workflow
    catalog: Catalog
    backends: dict[str, Backend]
    seed: int = 0
    note: str | None = None

    @property
    def is_simulated(self) -> bool:
        """Whether some models are simulated."""
        return any(backend.is_simulated for backend in self.backends.values())

    @property
    def identity(self) -> StoreIdentity:
        """The identity (workflow, models and data) of the store of a profile with these inputs, from :func:`identity_of`."""
        return identity_of(self.workflow, self.catalog, self.backends, self.seed)

    def require_budget(self, budget_usd: float | None) -> None:
        """Raise :class:`ConfigError` if calls, including a judge's, cost real money and there is no budget in dollars."""
        from vinelm.profiler.execution.judging import judge_backends_of

        judges = judge_backends_of(self.workflow, self.catalog, self.backends)
        require_budget({**self.backends, **judges}, budget_usd)


def load_inputs(
    workflow: Workflow | str,
    models: Models | None = None,
    *,
    preset: str | None = None,
    dataset: str | Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    stop: StopRule | None = None,
    columns: Columns | Iterable[str] | None = None,
) -> Inputs:
    """Load the workflow, catalog and backends of a profile, and check that they fit together. Calls no model.

    The keywords are those of :func:`profile`. If no models are given, ``note`` of the result describes the default models.

    Raises:
        InputError: An input is missing, invalid, or does not fit the others.
    """
    from vinelm.backends import simulated_catalog
    from vinelm.workflows import load_workflow

    if models is not None and preset is not None:
        raise ConfigError("models and preset exclude each other: keep one")
    workflow = load_workflow(workflow, dataset=dataset, columns=columns, limit=limit)
    if limit is not None:
        workflow = replace(workflow, requests=tuple(workflow.requests[:limit]))
    note = None
    if models is not None:
        catalog = Catalog.of(models)
    elif preset is None and workflow.models is not None:
        catalog = workflow.models
        note = f"recorded answers of {len(catalog)} real models: give models for live ones"
    elif preset is None and workflow.writer is None:
        raise ConfigError(f"workflow {workflow.name!r} has no simulated answers: give models", code="models-needed")
    else:
        name = preset or workflow.simulated_preset or DEFAULT_PRESET
        catalog = simulated_catalog(name)
        note = f"simulated models (preset {name}, {len(catalog)} models): give models for real ones"
    return replace(prepared(workflow, catalog, seed=seed, stop=stop), note=note)


def prepared(workflow: Workflow, catalog: Catalog, *, seed: int, stop: StopRule | None = None) -> Inputs:
    """Return the workflow bound to the catalog and to its graph, and one backend per provider.

    Args:
        workflow: The workflow.
        catalog: The models.
        seed: Decides simulated answers.
        stop: Replaces the stop rule of the workflow's template.

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
    """Return the workflow with a template: its own, or the template that its graph implies.

    Raises:
        WorkflowError: The graph does not show where some edge leads.
    """
    from vinelm.adapters.langgraph.exits import resolved
    from vinelm.api.application import VineLM

    return workflow if workflow.has_template else resolved(workflow, VineLM(catalog))


def bind_workflow(workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> Workflow:
    """Return the workflow with its template bound to the catalog and to the exits of its graph, which is built and checked.

    Raises:
        TemplateError: The template does not fit the catalog.
        WorkflowError: The graph does not fit the template, or lets no request end after an answer.
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
    """Return the identity (workflow, models and data) of the store of this workflow's profile. Also builds the graph, to raise
    its errors early.

    Args:
        workflow: The workflow, with its template bound to ``catalog``.
        catalog: The models.
        backends: One per provider of the catalog.
        seed: The seed of simulated answers; it is a part of the identity only if some models are simulated.
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


def forecast_run(
    inputs: Inputs,
    store: StoreAddress | str,
    limits: ProfileLimits,
    *,
    sampler: str | Sampler = "deciding",
    workers: int = 1,
    max_error: float | None = None,
    batch_prices: BatchPrices | None = None,
    on_note: Callable[[str], None] | None = None,
) -> RunForecast:
    """Forecast a profile. Calls no model, and writes nothing.

    Args:
        inputs: The inputs of the profile.
        store: The profile's store, whose rows calibrate the forecast; it need not exist.
        limits: The limits at which the run would stop.
        sampler: As in :func:`vinelm.profile`.
        workers: The number of runs at a time.
        max_error: As in :func:`vinelm.profile`.
        batch_prices: The settings of calls through the providers' batch APIs; None if the run does not use these APIs.
        on_note: Called with one line that describes what the run would change in the store.

    Raises:
        StoreError: The store cannot be read, or belongs to another workflow.
    """
    from vinelm.profiler import ProfileLimits, forecast_profile, make_sampler
    from vinelm.profiler.dry_run.batch_api_forecast import RunForecast, batch_forecast
    from vinelm.profiler.dry_run.forecast import WholeRuns, needs_of
    from vinelm.profiler.dry_run.throughput import rates_of
    from vinelm.profiler.execution.batch_api import batched_models
    from vinelm.profiler.growth import kinds_of
    from vinelm.profiler.runner import continued_share
    from vinelm.profiler.sampling.deciding_sampler import DecidingSampler
    from vinelm.traces.databases.address import address_of
    from vinelm.traces.databases.opening import exists

    workflow, catalog = inputs.workflow, inputs.catalog
    is_vast = workflow.template.n_sequences > VAST and max_error is not None and limits.coverage is None
    if max_error is not None and limits.coverage is None and not is_vast:
        limits = replace(limits, coverage=DEFAULT_COVERAGE)  # how far it will go is unknown beforehand
    identity = inputs.identity
    rows: list[Observation] = []
    committed_usd = 0.0
    if exists(address_of(store)):
        rows, committed_usd = _previewed(inputs, store, identity, on_note)
    ids, template = [request.id for request in workflow.requests], workflow.template
    # Plans recommended by simulated answers are as good as any, and where there are many paths they take minutes to find.
    alone = WholeRuns.of_single_models(template, catalog, ids)
    if isinstance(sampler, str):
        sampler = make_sampler(
            sampler,
            template,
            ids,
            inputs.seed,
            catalog=catalog,
            limits=limits,
            continued_share=continued_share(workflow),
            candidates=(lambda _: alone.runs) if is_vast else recommended_plans(template, catalog),
            kinds=kinds_of(workflow, ()),
            few_rounds=batch_prices is not None,
        )
    known: dict[str, Any] = {
        "workers": workers, "rates": rates_of(catalog, inputs.backends), "rows": rows, "committed_usd": committed_usd,
        "seed": inputs.seed,
    }  # fmt: skip

    def within(limits: ProfileLimits, sampler: Sampler = sampler) -> Forecast:
        return forecast_profile(template, catalog, ids, sampler, limits, **known)

    if is_vast:
        coverage, some = None, alone.on_first(FORECAST_ON)
        times = len(ids) / len(some.request_ids)
        whole = within(ProfileLimits(), some)
        run = within(limits, alone if limits == ProfileLimits() else sampler)
    else:
        run, coverage, times = within(limits), limits.coverage or DEFAULT_COVERAGE, 1.0
        unlimited = ProfileLimits(coverage=coverage)
        whole = run if limits == unlimited else within(unlimited)
    needs = needs_of(whole, limits, template, len(ids), coverage=coverage, times=times, rows=rows, committed_usd=committed_usd)
    if isinstance(sampler, DecidingSampler):
        needs = replace(needs, race_usd=within(ProfileLimits(), sampler.race_alone()).cost_usd)
    batches = None
    if batch_prices is not None:
        batched = batched_models(workflow, catalog, inputs.backends)
        batches = batch_forecast(run, batch_prices, batched, template, catalog)
    return RunForecast(
        workflow=workflow, catalog=catalog, is_simulated=inputs.is_simulated, run=run, needs=needs, batches=batches,
        max_error=max_error,
    )  # fmt: skip


def _previewed(
    inputs: Inputs, store: StoreAddress | str, identity: StoreIdentity, on_note: Callable[[str], None] | None
) -> tuple[list[Observation], float]:
    """Return the rows that the store would have at the start of a run, and the dollars that it records as spent or reserved.
    ``on_note`` is called with one line if the run would change old rows.
    """
    from vinelm.profiler.growth import request_digests
    from vinelm.traces import ObservationStore
    from vinelm.traces.growth.grow import preview_growth

    with ObservationStore.open(store) as opened:
        growth, rows = preview_growth(opened, identity, request_digests(inputs.workflow))
        if growth is not None and (growth.has_effect or growth.is_reshaped) and on_note is not None:
            on_note(growth.describe())
        return rows, opened.committed_usd()
