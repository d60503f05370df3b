"""Tours of features: profile, estimate, evaluate and report, with the same functions that an application calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vinelm.catalog import Catalog
from vinelm.demo.steps import PAGE, STORE, TRIE, profiled_anew
from vinelm.evaluation.comparison.result import Evaluation
from vinelm.profiler.scheduling.results import ProfileResult
from vinelm.requests.workflow import Workflow
from vinelm.verdicts.store_evaluation import evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class TourResult:
    """The results of a tour's steps, and its files.

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


def run_tour(
    workflow: Workflow,
    catalog: Catalog,
    folder: Path,
    *,
    seed: int,
    advance: Callable[..., None],
    coverage: float = 0.5,
    budget_usd: float | None = None,
) -> TourResult:
    """Run a tour. Writes a store, a trie and a report into ``folder``, replacing those of an earlier demo.

    Args:
        workflow: A bundled workflow.
        catalog: The models of the workflow.
        folder: Created if it does not exist.
        seed: Determines the sample, the split into halves and the simulated answers.
        advance: Shows progress: done, total, the title of the step, and a short text.
        coverage: The profile's cost as a fraction of the cost of profiling everything, in (0, 1].
        budget_usd: The maximum cost of the profile in dollars; needed unless the models are simulated.

    Raises:
        ConfigError: A library is missing, the folder cannot be written to, or there are too few results for a verdict.
        KeyboardInterrupt: The profile was interrupted.
    """
    from vinelm.api import estimate
    from vinelm.reports import write_page
    from vinelm.reports.store.page import store_page  # raises without Matplotlib, before anything is profiled
    from vinelm.vinefile import save_trie

    store, trie = folder / STORE, folder / TRIE
    profiled = profiled_anew(workflow, catalog, folder, seed=seed, coverage=coverage, budget_usd=budget_usd, advance=advance)
    annotated = estimate(store, check=False)
    found = evaluate(store, annotated, seed=seed, on_done=lambda done, total, what: advance(done, total, "evaluate", what))
    if not found.verdict.tried_only:
        annotated = annotated.judged(found.verdict)
    save_trie(trie, annotated)
    advance(0, 1, "report", "")
    page = store_page(store, trie, evaluation=found, seed=seed)
    target = write_page(page, folder / PAGE)
    return TourResult(profiled=profiled, evaluation=found, store=store, trie=trie, page=target)
