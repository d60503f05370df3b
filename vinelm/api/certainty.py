"""The shortfall of an estimate, and a profile that continues until there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vinelm.api.estimation import MAX_ERROR, evidence_of
from vinelm.errors import EvidenceError

if TYPE_CHECKING:
    from vinelm.evaluation.judging.evidence import StoreEvidence
    from vinelm.profiler import ProfileResult
    from vinelm.traces import PostgresUrl

FIRST_LOOK = 0.0025
"""The coverage at which a profile first asks: where there are many paths, a small share of them can be enough."""
MARGIN = 1.15
"""Asked for beyond what the square root law says: it is a mean, and half of all stores need more."""
FASTEST_GROWTH = 4.0
"""A step of a profile asks for at most this many times the rows: the first steps say little about how many are needed."""
UNSETTLED_GROWTH = 2.0
"""The step where the estimate is certain and the comparison with what runs today is not."""


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """The shortfall of an estimate that is not certain enough.

    Attributes:
        half_width: Half the 90 % interval of the best path's accuracy, a fraction; None where nothing can be estimated yet.
        max_error: The half width that is asked for.
        times: How many times as much data is needed, by the square root law and a margin; > 1.
        more_usd: Dollars of these rows; None where it is unknown, or where running everything would not do.
        requests: Labelled requests that would do where running everything would not; else None.
    """

    half_width: float | None
    max_error: float
    times: float
    more_usd: float | None = None
    requests: int | None = None


def shortfall(store: str | Path | PostgresUrl, max_error: float = MAX_ERROR) -> Shortfall | None:
    """Return what a store lacks for :func:`vinelm.estimate` to accept it; None if it accepts it. Takes some eight fits.

    Args:
        store: The store. It is only read; no model is called.
        max_error: As for :func:`vinelm.estimate`, a fraction in (0, 1].

    Raises:
        StoreError: The store cannot be read.
        ConfigError: A judge scored the answers that disagrees with the labels.
    """
    found = _looked(store, max_error)
    return found if isinstance(found, Shortfall) else None


def _looked(store: str | Path | PostgresUrl, max_error: float) -> Shortfall | StoreEvidence:
    """What a store lacks, as :func:`shortfall` says it; where it lacks nothing the store as it was read for that."""
    try:
        evidence, spent_usd, everything_usd, read = evidence_of(store, max_error)
    except EvidenceError:
        return Shortfall(half_width=None, max_error=max_error, times=FASTEST_GROWTH)
    needed = evidence.times_needed(max_error)
    if needed <= 1.0:
        return read
    times = MARGIN * needed
    lacks = Shortfall(half_width=evidence.best_half_width, max_error=max_error, times=times)
    if spent_usd <= 0.0 or everything_usd <= 0.0:
        return lacks
    if spent_usd * needed > everything_usd:
        return replace(lacks, requests=round(evidence.requests * times))
    return replace(lacks, more_usd=min(spent_usd * times, everything_usd) - spent_usd)


def profile_until_certain(
    run: Callable[[float], ProfileResult],
    store: str | Path | PostgresUrl,
    *,
    max_error: float,
    at_most: float = 1.0,
    on_note: Callable[[str], None] | None = None,
) -> ProfileResult:
    """Run a profile in steps of growing coverage until an estimate from its store is certain enough.

    Args:
        run: Profiles up to a coverage, in (0, 1]; called again it continues.
        store: What ``run`` writes to.
        max_error: The half width that is asked for, a fraction in (0, 1].
        at_most: The coverage at which it ends in any case.
        on_note: Called with one line before each further step.

    Returns:
        The result of the last step, with the units and failures of all steps. ``stopped_by`` is ``"certain"`` where the
        estimate is; else it is what ended the last step.
    """
    target = min(FIRST_LOOK, at_most)
    executed, failures = 0, Counter[str]()
    while True:
        result = run(target)
        executed += result.executed
        failures.update(result.failures)
        whole = replace(result, executed=executed, failures=dict(failures))
        if result.stopped_by != "coverage":
            return whole
        found = _looked(store, max_error)
        open_ = found if isinstance(found, Shortfall) else _unsettled(found)
        if open_ is None:
            return replace(whole, stopped_by="certain")
        if target >= at_most:
            return whole
        times = min(open_.times, FASTEST_GROWTH) if isinstance(open_, Shortfall) else UNSETTLED_GROWTH
        target = min(max(result.coverage, target) * times, at_most)
        if on_note is not None:
            on_note(_step(open_, target))


def _unsettled(evidence: StoreEvidence) -> str | None:
    """Why a store does not tell yet whether to switch, in a few words; None if it does, or nobody knows what runs today."""
    from vinelm.evaluation.judging.judge import Judge
    from vinelm.template.kinds import without_kinds

    if without_kinds(evidence.template).today is None:
        return None
    found = Judge.of(evidence).verdict()
    return None if found.is_settled else found.why_not or "no plan is proven against what runs today yet"


def _step(open_: Shortfall | str, target: float) -> str:
    known = open_ if isinstance(open_, str) else "no path is known yet"
    if isinstance(open_, Shortfall):
        if open_.half_width is not None:
            known = f"the best path's accuracy is known to +/- {100 * open_.half_width:.1f} points"
        known = f"{known}, {100 * open_.max_error:g} are asked for"
    return f"{known}: going on to a coverage of {100 * target:.1f} %"
