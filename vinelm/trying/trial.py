"""Produces a verdict from an application: checks, profiles and estimates it, and writes the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.errors import ConfigError, EvidenceError, InputError, StoreError, WorkflowError
from vinelm.judging import AsToday
from vinelm.objective import Objective
from vinelm.reports.plan_words import serving_lines
from vinelm.scaffold.applied import contents
from vinelm.scaffold.project import MODELS_FILE, workflow_file_of, workflow_spec
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import MAX_LOSS, Verdict, require_max_loss, what_can_be_proven
from vinelm.trying.project import (
    Before,
    FirstRun,
    asks_for_turns,
    note_answer,
    note_today,
    note_turns,
    project_of,
    put_back,
    with_requests,
)

if TYPE_CHECKING:
    from vinelm.api.profiling import Inputs
    from vinelm.catalog import Catalog
    from vinelm.profiler import Progress, SingleModels
    from vinelm.profiler.dry_run.batch_api_forecast import RunForecast
    from vinelm.traces import ObservationStore

STORE, TRIE, REPORT = "app.db", "app.vine", "report"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of trying VineLM on an application.

    Attributes:
        folder: The project's folder, with ``workflow.py``, ``models.toml``, ``app.db`` and ``app.vine``.
        trie: The estimated trie, with its verdict; None for a dry run.
        report: The path of the HTML report; None for a dry run, or if the trial was stopped.
        forecast: For a dry run, the calls that would be made, and their cost; otherwise None.
        is_stopped: Whether Ctrl-C or SIGTERM stopped the profile. If so, the verdict is based on the results so far.
        allow_unproven: Whether :attr:`lines` may serve a plan that is not proven.
    """

    folder: Path
    trie: AnnotatedTrie | None = None
    report: Path | None = None
    forecast: RunForecast | None = None
    allow_unproven: bool = False
    is_stopped: bool = False

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on whether to switch; None for a dry run."""
        return None if self.trie is None else self.trie.verdict

    @property
    def objective(self) -> Objective | None:
        """The objective with which a service runs the verdict's plan; None if the verdict names no plan."""
        from vinelm.plans.recommendation import served_objective

        return None if self.verdict is None else served_objective(self.verdict)

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of code with which the application serves the plan.

        Empty if the plan is not proven, unless ``allow_unproven`` is set.
        """
        found, objective = self.verdict, self.objective
        if found is None or objective is None or not (found.advice == "switch" or self.allow_unproven):
            return ()
        return serving_lines(objective, TRIE, is_proven=found.advice == "switch")

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON types."""
        if self.trie is None or self.verdict is None:
            return {}
        meta, objective = self.trie.meta, self.objective
        return {
            "verdict": self.verdict.to_dict(),
            "report": None if self.report is None else str(self.report),
            "is_stopped": self.is_stopped,
            "objective": None if objective is None else objective.to_dict(),
            "is_simulated": meta["is_simulated"],
            "spent_usd": meta["spent_usd"],
            "requests": meta["requests"],
        }


def _ignored(_: Any) -> None: ...


def try_app(
    app: str,
    *,
    dataset: str | Path | None = None,
    traces: str | Path | None = None,
    label_field: str | Sequence[str] = (),
    budget_usd: float | None = None,
    models: str | None = None,
    today: str | None = None,
    workers: int = 8,
    apply: bool = False,
    keep_going: bool = False,
    allow_unproven: bool = False,
    dry_run: bool = False,
    max_loss: float | None = None,
    on_step: Callable[[str], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_single_models: Callable[[SingleModels], None] | None = None,
    on_verdict: Callable[[Trial], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Trial:
    """Read an application's graph, profile it, and return a verdict on whether to switch.

    The options are those of ``vinelm try``. The first call writes ``workflow.py`` and ``models.toml`` next to the
    application; existing files are kept. Results are stored in ``app.db``, so that the same call continues an interrupted
    one, and a call with a larger budget adds results. Also writes ``app.vine`` and ``report/report.html``. While it runs,
    the working folder is the project's folder. Ctrl-C and SIGTERM stop the profile, and the verdict is based on the results
    so far; a second signal ends the call.

    Args:
        app: ``FILE.py:ATTRIBUTE``, as for ``vinelm init``.
        dataset: Requests, with their right answers if known: CSV, JSON lines, Parquet, or an export.
        traces: Recorded LLM calls, as ``vinelm replay`` reads them: a file or a folder. If the profile makes an equal call,
            the recorded answer is used and costs nothing. Without a dataset, a first run also takes the requests from the
            traces, and writes them to ``requests.jsonl``.
        label_field: Column with the right answer. Repeatable. In Python one or several. None: found by its name; a request
            without a right answer is compared with today's answer until a person labels it.
        budget_usd: The maximum cost in dollars, including earlier runs. In Python required for models that cost money.
        models: Models to choose from, as ``vinelm init`` takes them. None: the app's, and others like them.
        today: The model, as PROVIDER:MODEL, that the app runs today at stages whose code does not name one.
        workers: Maximum number of calls at the same time.
        apply: Change the app's code: put vine.around(...) around the models that it makes. In Python: another process
            imports the app for that.
        keep_going: Continue even if none of the first ten answers is right, all first rows of a stage fail alike, or no plan
            can be proven.
        allow_unproven: Return the lines of code that serve the plan even if the plan is not proven; it may then be worse
            than today's models.
        dry_run: Report which calls would be made, their cost and duration. Calls nothing, and leaves all files unchanged.
        max_loss: Accuracy that a plan may lose so that the verdict is still to switch. In Python a fraction in [0, 1).
            None: that of the last run, which is stored in ``app.vine``, or 3 points.
        on_step: Called with a few words when a step begins, such as ``"estimating"``.
        on_progress: As :func:`vinelm.profile` takes it.
        on_single_models: As :func:`vinelm.profile` takes it.
        on_verdict: Called once the verdict is known, with what is returned later but still without the report, which takes
            minutes to write for a large application.
        on_note: Called with notes of one line each: what was changed, what is doubtful, what can be proven.

    Returns:
        The verdict, and the paths of the report and the project.

    Raises:
        InputError: The application, the data set, the catalog or an option is wrong.
        StageBroken: All rows of a stage failed.
        EvidenceError: No result could be recorded.
        KeyboardInterrupt: It was stopped before the results gave a verdict, or stopped twice; all results so far are
            stored.

    Examples:
        >>> import vinelm
        >>> trial = vinelm.try_app("workflow.py:build", budget_usd=0.3)
        >>> trial.verdict.advice
        'keep'
    """
    from vinelm.io.interrupts import interrupts_raised

    if max_loss is not None:
        require_max_loss(max_loss)
    labels = (label_field,) if isinstance(label_field, str) else tuple(label_field)
    recorded = None
    if traces is not None:
        from vinelm.replay.traced import Traces

        recorded = Traces.read(traces)
    asked = FirstRun(
        app=app, dataset=None if dataset is None else str(dataset), label_field=labels, models=models, today=today, apply=apply
    )
    begin, tell = on_step or _ignored, on_note or _ignored
    before: Before = {}
    with interrupts_raised(), put_back(before, tell) if dry_run else nullcontext():
        if recorded is not None and dataset is None:
            asked = with_requests(asked, recorded, before)
        folder = project_of(asked, tell, before).resolve()
        file = workflow_file_of(folder)
        before.setdefault(file, contents([file])[file])
        with chdir(folder):
            begin(f"checking {file.name}")
            allowed = kept_max_loss(Path(TRIE)) if max_loss is None else max_loss
            allowed = MAX_LOSS if allowed is None else allowed
            inputs, questions = _checked(tell, today)
            if questions and not dry_run:
                said = f"{' '.join(questions)}, in {file.name}, or say --today PROVIDER:MODEL"
                raise ConfigError(f"{said}, and run the line again: nothing is bought before")
            if dry_run:
                begin("forecasting")
                return Trial(folder=folder, forecast=_forecast(inputs, budget_usd, workers, tell))
            is_labelled = not isinstance(inputs.workflow.score, AsToday)
            tell(what_can_be_proven(len(inputs.workflow.requests), allowed, labelled=is_labelled))
            begin(f"asking {len(inputs.catalog)} models")
            known, is_stopped = _bought(
                inputs, workers, allowed, budget_usd=budget_usd, keep_going=keep_going, recorded=recorded,
                on_progress=on_progress, on_single_models=on_single_models, on_note=tell,
            )  # fmt: skip
            begin("estimating from the rows so far: Ctrl-C again ends it" if is_stopped else "estimating")
            try:
                trie = _estimated(allowed, known)
            except EvidenceError as error:
                if is_stopped:
                    raise KeyboardInterrupt from error
                raise
            found = Trial(folder=folder, trie=trie, allow_unproven=allow_unproven, is_stopped=is_stopped)
            (on_verdict or _ignored)(found)
            if is_stopped:
                return found
            begin("writing the report")
            return replace(found, report=_reported(trie))


def kept_max_loss(trie: Path) -> float | None:
    """Return the accuracy that a plan may lose (``max_loss``), as stored with the verdict in a trie's file.

    None if the file has no verdict or cannot be read.
    """
    from vinelm.vinefile import load_trie

    try:
        found = load_trie(trie).verdict if trie.is_file() else None
    except InputError:  # the file will be written again
        return None
    return None if found is None else found.max_loss


def _checked(tell: Callable[[str], None], today: str | None = None) -> tuple[Inputs, Sequence[str]]:
    """Check the project in the working folder. Return (inputs, questions): what a profile needs (workflow, catalog and
    backends), and the questions that the user must answer first.

    ``today`` is the current model, as ``provider:model``, of stages for which neither the project nor the application names it.
    """
    from vinelm.api.profiling import prepared
    from vinelm.catalog import Catalog
    from vinelm.profiler.readiness import check_workflow

    workflow, catalog = _workflow(), Catalog.from_file(MODELS_FILE)
    report = check_workflow(workflow, catalog)
    if report.answer_at and (found := note_answer(workflow_file_of(Path()), report.answer_at)):
        tell(found)
        workflow = _workflow()
        report = check_workflow(workflow, catalog)
    for item in report.items:
        if not item.is_ok:
            raise WorkflowError(f"{workflow_spec(Path())}: {item.name}: {item.detail}")
        if item.is_doubtful and not (item.name == "today" and report.today):
            tell(f"look  {item.name}: {item.detail}")
    said = {} if today is None or not report.without_today else dict.fromkeys(report.without_today, _named(today, catalog))
    for known, source in ((report.today, "so your app made its models"), (said, "as you say")):
        if known:
            tell(note_today(workflow_file_of(Path()), known, source))
            workflow = _workflow()
    return prepared(workflow, catalog, seed=0), () if said else report.questions


def _named(today: str, catalog: Catalog) -> str:
    """Return the catalog name of a model; ``today`` is this name, or the model as ``provider:model``."""
    for model in catalog.models:
        if today in (f"{model.provider}:{model.model_id}", model.name):
            return model.name
    raise ConfigError(f"today={today!r}: {MODELS_FILE} has no entry for it: add one, or name one of {', '.join(catalog)}")


def _workflow() -> Any:
    """Return the workflow, loaded from the project's current file even if this process has imported an older version."""
    from vinelm.workflows import load_workflow

    here = os.getcwd()
    if here in sys.path:
        sys.path.remove(here)
    sys.path.insert(0, here)  # stays in the path: the application may import from its folder later
    spec = workflow_spec(Path())
    sys.modules.pop(spec.partition(":")[0], None)
    return load_workflow(spec)


def loaded(models: str) -> Inputs:
    """Return the inputs of a profile, loaded from the workflow file and the catalog file ``models`` in the working folder.

    Child processes call it, too.
    """
    from vinelm.api.profiling import prepared
    from vinelm.catalog import Catalog

    return prepared(_workflow(), Catalog.from_file(models), seed=0)


def _forecast(inputs: Inputs, budget_usd: float | None, workers: int, tell: Callable[[str], None]) -> RunForecast:
    from vinelm.api.estimation import MAX_ERROR
    from vinelm.api.profiling import forecast_run
    from vinelm.profiler import ProfileLimits

    limits = ProfileLimits(budget_usd=budget_usd)
    return forecast_run(inputs, Path(STORE), limits, workers=workers, max_error=MAX_ERROR, on_note=tell)


def _bought(
    inputs: Inputs, workers: int, max_loss: float, *, on_note: Callable[[str], None], **asked: Any
) -> tuple[Verdict | None, bool]:
    """Call :func:`_buy` with these arguments and return its result.

    If a request takes more turns of a loop than the template allows, raise the number of turns in the workflow file and try
    again.
    """
    while True:
        open_turns = asks_for_turns(workflow_file_of(Path()))
        try:
            return _buy(inputs, workers, max_loss, stops_cut_off=open_turns, on_note=on_note, **asked)
        except WorkflowError as error:
            longer = None
            if error.code == "cut-off":
                longer = note_turns(workflow_file_of(Path()), _workflow().template, len(inputs.catalog))
            if longer is None:
                raise
            on_note(longer)
            inputs, _ = _checked(on_note)


def _buy(
    inputs: Inputs, workers: int, max_loss: float, *, on_note: Callable[[str], None], **asked: Any
) -> tuple[Verdict | None, bool]:
    """Profile the application until the verdict is certain or the budget is used up; ``asked`` are further settings of the
    profile.

    Returns:
        (verdict, whether Ctrl-C or SIGTERM stopped the profile). The verdict is on the results at the end of the profile; None
            if the profile made no verdict or was stopped.
    """
    from vinelm.api.estimation import MAX_ERROR
    from vinelm.api.profiling import require_sound, run_profile
    from vinelm.backends.diagnostics import require_keys
    from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource
    from vinelm.traces import ObservationStore

    require_keys(inputs.catalog.models)
    inputs.require_budget(asked["budget_usd"])
    source = WorkflowSource(function="vinelm.trying.trial:loaded", arguments={"models": MODELS_FILE})
    execution = ExecutionConfig(isolation="process", workers=workers, source=source)
    settings = ProfileSettings(identity=inputs.identity, execution=execution, on_note=on_note, **asked)
    try:
        with ObservationStore.open_or_create(Path(STORE), inputs.identity) as store:
            before = len(store)
            try:
                result = run_profile(inputs, store, settings, max_error=MAX_ERROR, max_loss=max_loss)
            except KeyboardInterrupt:  # between two steps, or twice
                return None, _stopped(store, before, on_note)
            if result.stopped_by == "interrupted":
                return None, _stopped(store, before, on_note)
            require_sound(result, store, keep_going=settings.keep_going)
    except StoreError as error:
        if error.code == "store-mismatch":
            raise StoreError(f"{error}: move {STORE} away to begin anew", code="trial-store-mismatch") from error
        raise
    return result.verdict, False


def _stopped(store: ObservationStore, before: int, on_note: Callable[[str], None]) -> bool:
    """Report how many results a stopped run has added, and return True.

    ``before`` is the number of results in the store before the run.
    """
    on_note(f"stopped: {len(store) - before:,} new rows are in {STORE}, ${store.committed_usd():.3g} so far")
    return True


def _estimated(max_loss: float, verdict: Verdict | None) -> AnnotatedTrie:
    """Estimate a trie from the stored results, write it to its file, and return it.

    ``verdict`` is the verdict that the profile has made; None makes the verdict now.
    """
    from vinelm.api.estimation import estimate_store
    from vinelm.vinefile import save_trie

    trie = estimate_store(Path(STORE), estimator="latent", checked=True, max_loss=max_loss, verdict=verdict)
    save_trie(Path(TRIE), trie)
    return trie


def _reported(trie: AnnotatedTrie) -> Path:
    from vinelm.reports import write_page
    from vinelm.reports.store.page import store_page

    return Path(write_page(store_page(Path(STORE), trie), Path(REPORT) / "report.html")).resolve()
