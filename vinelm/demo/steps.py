"""The first steps of every demo: its folder and its profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.io.atomic import require_regular
from vinelm.profiler.scheduling.results import ProfileResult
from vinelm.reports.formatting import usd
from vinelm.requests.workflow import Workflow

STORE, TRIE, PAGE = "demo.db", "demo.vine", "report.html"


def profiled_anew(
    workflow: Workflow,
    catalog: Catalog,
    folder: Path,
    *,
    seed: int,
    coverage: float,
    budget_usd: float | None = None,
    advance: Callable[..., None],
) -> ProfileResult:
    """Create the folder, delete an earlier demo's store, and profile into a new one.

    Args:
        workflow: A bundled workflow.
        catalog: The models of the workflow.
        folder: Created if it does not exist.
        seed: Determines the sample, and the answers of simulated models.
        coverage: The profile's cost as a fraction of the cost of profiling everything, in (0, 1].
        budget_usd: The maximum cost of the profile in dollars; None for models that cost nothing.
        advance: Shows progress: done, total, the title of the step, and a short text.

    Raises:
        ConfigError: The folder cannot be written to.
        KeyboardInterrupt: The profile was interrupted.
    """
    from vinelm.api import profile

    _prepare(folder)
    found = profile(
        workflow,
        catalog,
        folder / STORE,
        coverage=coverage,
        budget_usd=budget_usd,
        seed=seed,
        on_progress=lambda now: advance(now.coverage, coverage, "profile", f"{now.executed:,} rows, {usd(now.spent_usd)}"),
    )
    if found.stopped_by == "interrupted":  # the profiler returns normally, but a demo of only a part of the rows would mislead
        raise KeyboardInterrupt
    return found


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (PAGE, STORE, TRIE):
            require_regular(folder / name)
        for tail in ("", "-wal", "-shm", ".lock"):
            (folder / f"{STORE}{tail}").unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder}: cannot write to this folder ({error.strerror}): choose another folder",
            code="output-not-writable",
        ) from error
