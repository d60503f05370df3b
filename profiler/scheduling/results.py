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

``complete``: every reached cell is executed; ``sampler``: it proposes nothing more; ``look``: a step of a
profile ended, to judge its rows; ``interrupted``: Ctrl-C or SIGTERM; ``broken``: all first rows of a stage failed alike,
whatever the model; ``cut-off``: requests go on where the template ends; ``none-right``: no answer was right, in the first
requests that what runs today has answered; ``certain``: an estimate is as certain as was asked for; ``hopeless``: no plan can
be proven on these requests, whatever is bought; ``dry-run``: nothing was to be bought."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a profile after a new row.

    Attributes:
        executed: units that this run has executed.
        failures: rows of this run that failed, by kind.
        coverage: the store's coverage over this run's requests, earlier runs included.
        target: the coverage at which the run stops, or its rows are looked at; None without one.
        spent_usd: dollars of the executed cells, earlier runs included.
        budget_usd: the budget; None without one.
        committed_usd: dollars that count against the budget: settled and reserved.
        reserved_usd: the part of them that is reserved for units in flight.
        calls: model calls of this run.
        in_flight: units in flight.
        interval: bounds that contain the coverage with a probability of 0.9; refitted whenever the rows have grown by 5 %.
        is_draining: whether the run starts no further unit and waits for those in flight.
        asking: what runs now: during the race, ``"gpt-5-mini 12 of 30"`` (a model, and which of how many requests); then the
            models of the path.
        look_usd: dollars of all rows at which they are looked at, if not before; None: not by dollars.
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
    """The state of a profile after a run. Figures are the store's over the requests of the run, unless noted.

    Attributes:
        stopped_by: what ended the run.
        executed: units that this run has executed.
        failures: rows of this run that failed, by kind.
        counts: executed cells at each depth, from 1.
        coverage: the fraction, in [0, 1], of ``exhaustive_usd`` that is executed.
        spent_usd: dollars of the executed cells.
        exhaustive_usd: dollars of every reached cell once; an estimate until ``stopped_by`` is ``"complete"``.
        naive_usd: dollars of every leaf path from the root, nothing shared; an estimate as well.
        committed_usd: dollars that count against the budget: all that are settled, with the bounds of abandoned units.
        abandoned: units that an earlier run left open when it died.
        message: why the budget, a broken stage, answers that were all wrong or too few requests ended the run, in one line.
        coverage_interval: bounds that contain the coverage with a probability of 0.9.
        single_models: what the rows show about each single model and the current setup; None with a sampler that does not race
            them.
        forecast: what would be bought, a ``RunForecast`` of ``vinelm.profiler.dry_run``; only for a dry run, whose other
            figures are 0.
        store: the store that :func:`vinelm.profile` wrote to.
        verdict: whether to switch, by the current rows, if the run has judged them; otherwise None.
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

    @property
    def is_resumable(self) -> bool:
        """True if the same call would continue from here."""
        return self.stopped_by in ("budget", "interrupted", "broken", "cut-off", "none-right")
