"""A profile's progress reports and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vinelm.profiler.sampling.single_models import SingleModels
from vinelm.traces.databases.address import StoreAddress
from vinelm.trie.verdict import Verdict

StoppedBy = Literal[
    "coverage",
    "budget",
    "complete",
    "sampler",
    "look",
    "interrupted",
    "broken",
    "cut-off",
    "none-right",
    "certain",
    "hopeless",
    "dry-run",
]
"""Why a run stopped.

- ``coverage``, ``budget``: a limit was reached.
- ``complete``: every reached call is executed.
- ``sampler``: the sampler proposes nothing more.
- ``look``: a step of a profile ended, so that its results are evaluated.
- ``interrupted``: Ctrl-C or SIGTERM.
- ``broken``: all first results of a stage failed in the same way, whatever the model.
- ``cut-off``: requests continue beyond the template's end.
- ``none-right``: none of the current setup's answers to the first requests was right.
- ``certain``: an estimate is as certain as requested.
- ``hopeless``: no plan can be proven on these requests, whatever is bought.
- ``dry-run``: nothing was to be bought.
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a profile after a new result.

    Attributes:
        executed: the number of jobs that this run has executed.
        failures: the number of results of this run that failed, by kind of failure.
        coverage: the fraction of an exhaustive profile's cost, over the run's requests, that is executed; earlier runs count.
        target: the coverage at which the run stops or its results are evaluated; None without such a coverage.
        spent_usd: cost of the executed calls in dollars, including earlier runs.
        budget_usd: the budget in dollars; None without a budget.
        committed_usd: dollars that count against the budget: booked and reserved.
        reserved_usd: the part of ``committed_usd`` that is reserved for running jobs.
        calls: the number of model calls of this run.
        in_flight: the number of running jobs.
        interval: bounds that contain the coverage with a probability of 0.9; recomputed after every 5 % more results.
        is_draining: whether the run was interrupted, starts no further jobs, and only waits for running jobs.
        asking: a description of the current path. During the comparison of single models it has the model and the position of
            the request, such as ``"gpt-5-mini 12 of 30"``. Later it has the models of the path.
        look_usd: the cost of all results, in dollars, at which the run ends so that its results are evaluated. The coverage
            ``target`` may end it earlier. None if no cost ends the run.
    """

    executed: int
    failures: Mapping[str, int]
    coverage: float
    target: float | None
    spent_usd: float
    budget_usd: float | None
    committed_usd: float = 0.0
    reserved_usd: float = 0.0
    calls: int = 0
    in_flight: int = 0
    interval: tuple[float, float] = (0.0, 1.0)
    is_draining: bool = False
    asking: str = ""
    look_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileResult:
    """The state of a profile after a run. Unless noted, figures count all results of the run's requests in the store.

    Attributes:
        stopped_by: what ended the run.
        executed: the number of jobs that this run has executed.
        failures: the number of results of this run that failed, by kind of failure.
        counts: the number of executed calls at each depth, the first depth first.
        coverage: the fraction, in [0, 1], of ``exhaustive_usd`` that has been executed.
        spent_usd: cost of the executed calls in dollars.
        exhaustive_usd: cost in dollars of executing once every call that a request reaches before it ends; an estimate unless
            ``stopped_by`` is ``"complete"``.
        naive_usd: cost in dollars of running every path from the start without sharing common prefixes; also an estimate.
        committed_usd: dollars that count against the budget: everything booked, including abandoned jobs at their maximum cost.
        abandoned: the number of jobs that were running when an earlier run was killed.
        message: a line that explains why the run ended: the budget, a broken stage, no right answer, or too few requests.
        coverage_interval: bounds that contain the coverage with a probability of 0.9.
        single_models: the results of each single model and of the current setup; None if the sampler does not compare them.
        forecast: for a dry run, the forecast of what would be bought, a ``RunForecast`` of ``vinelm.profiler.dry_run``; the
            other figures are then 0. Otherwise None.
        store: the store that :func:`vinelm.profile` wrote to.
        verdict: the decision whether to replace the current setup by a plan, if the run has made it; otherwise None.
    """

    stopped_by: StoppedBy
    executed: int
    failures: Mapping[str, int]
    counts: tuple[int, ...]
    coverage: float
    spent_usd: float
    exhaustive_usd: float
    naive_usd: float
    committed_usd: float
    abandoned: int
    message: str = ""
    coverage_interval: tuple[float, float] = field(default=(0.0, 1.0))
    single_models: SingleModels | None = None
    forecast: Any = None
    store: StoreAddress | None = None
    verdict: Verdict | None = None
