"""The demo: profile, estimate, evaluate and report, through the verbs that an application uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.evaluation.judging.result import Evaluation
from vinelm.io.atomic import require_regular
from vinelm.profiler.scheduling.results import ProfileResult
from vinelm.requests.workflow import Workflow
from vinelm.verdicts.store_evaluation import evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The results of a demo's steps, and its files.

    Attributes:
        profiled: The profile.
        evaluation: The verdict, as ``vinelm evaluate`` gives it.
        store, trie, page: The observation store, the annotated trie and the report.
    """

    profiled: ProfileResult
    evaluation: Evaluation
    store: Path
    trie: Path
    page: Path


def run_demo(
    workflow: Workflow, catalog: Catalog, folder: Path, *, seed: int, advance: Callable[..., None], coverage: float = 0.5
) -> DemoResult:
    """Run a demo. Writes a store, a trie and a report into ``folder``, in place of those of an earlier demo.

    Args:
        workflow: A bundled workflow.
        catalog: Simulated models.
        folder: Made if it does not exist.
        seed: Decides the sample, the split and the simulated answers.
        advance: Shows progress: done, total, the title of the step, and a short text.
        coverage: Fraction of the dollars that profiling everything would cost, in (0, 1].

    Raises:
        ConfigError: The folder cannot be written to, or the rows are too few to judge.
        KeyboardInterrupt: The profile was interrupted.
    """
    from vinelm.api import estimate, profile
    from vinelm.reports import usd, write_page
    from vinelm.reports.store.page import store_page
    from vinelm.vinefile import save_trie

    store, trie = folder / "demo.db", folder / "demo.vine"
    _prepare(folder)
    profiled = profile(
        workflow,
        catalog,
        store,
        coverage=coverage,
        seed=seed,
        on_progress=lambda now: advance(now.coverage, coverage, "profile", f"{now.executed:,} rows, {usd(now.spent_usd)}"),
    )
    if profiled.stopped_by == "interrupted":  # the profiler returns normally; a demo of a part of the rows would mislead
        raise KeyboardInterrupt
    annotated = estimate(store, check=False)
    found = evaluate(store, annotated, seed=seed, on_done=lambda done, total, what: advance(done, total, "evaluate", what))
    if not found.verdict.tried_only:
        signals = annotated.signals and replace(annotated.signals, verdict=found.verdict)
        annotated = replace(annotated, verdict=found.verdict, signals=signals)
    save_trie(trie, annotated)
    advance(0, 1, "report", "")
    page = store_page(store, trie, evaluation=found, seed=seed)
    target = write_page(page, folder / "report.html")
    return DemoResult(profiled=profiled, evaluation=found, store=store, trie=trie, page=target)


def _prepare(folder: Path) -> None:
    """Make the folder and delete the store of an earlier demo."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("report.html", "demo.db", "demo.vine"):
            require_regular(folder / name)
        for tail in ("", "-wal", "-shm", ".lock"):
            (folder / f"demo.db{tail}").unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder}: cannot write to this folder ({error.strerror}): choose another folder",
            code="output-not-writable",
        ) from error
