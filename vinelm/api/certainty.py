"""Computes how much more data an estimate needs, and profiles until it has enough."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vinelm.api.estimation import MAX_ERROR, evidence_of
from vinelm.errors import EvidenceError
from vinelm.trie.verdict import MAX_LOSS, Verdict, why_hopeless

if TYPE_CHECKING:
    from vinelm.evaluation.comparison.evidence import StoreEvidence
    from vinelm.profiler import Look, ProfileResult, SingleModels
    from vinelm.profiler.sampling.runs import Run
    from vinelm.template import Template
    from vinelm.traces import PostgresUrl

FIRST_LOOK = 0.0025
"""The coverage at which a profile first checks its estimate: with many paths, a small share of them can be enough."""
FIRST_LOOK_SHARE = 0.125
"""The share of the budget at which a profile first checks its estimate, unless a race of single models comes before."""
MARGIN = 1.15
"""Safety factor on the square root law, which holds only on average: half of all stores need more."""
FASTEST_GROWTH = 4.0
"""A step of a profile asks for at most this many times the rows: the first steps say little about how many are needed."""
SLACK = 2.0
"""The required number of requests is a rough estimate: a profile only stops early beyond this multiple of the present ones."""
FEWEST_ROWS = 20
"""With fewer rows nothing is certain, and a step takes seconds to begin."""
LEAST_GROWTH = 1.25
"""A check takes seconds, so the next check waits until there are this many times as many rows."""
UNSETTLED_GROWTH = 2.0
"""Growth of a step if the estimate is certain but the comparison with the current setup is not."""


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """How far an estimate is from being certain enough, and how much more data it needs.

    Attributes:
        half_width: Half the width of the 90 % interval of the best path's accuracy, a fraction; None if nothing can be
            estimated yet.
        max_error: The largest half width that is accepted.
        times: The factor by which the number of results must grow, > 1. It assumes that the error falls with the square root of
            that number, and includes a margin.
        more_usd: The cost of the missing rows in dollars; None if unknown, or if even running every path on every request would
            not suffice.
        requests: The number of labelled requests that would suffice; None if running every path on the present requests
            suffices, or if this is unknown.
    """

    half_width: float | None
    max_error: float
    times: float
    more_usd: float | None = None
    requests: int | None = None


def shortfall(store: str | Path | PostgresUrl, max_error: float = MAX_ERROR) -> Shortfall | None:
    """Return how much more data a store needs for :func:`vinelm.estimate` to accept its rows; None if it has enough.

    This takes about eight times as long as fitting one estimate.

    Args:
        store: The store. It is only read; no model is called.
        max_error: The largest accepted error, as for :func:`vinelm.estimate`; a fraction in (0, 1].

    Raises:
        StoreError: The store cannot be read.
        ConfigError: The answers were scored by a judge that disagrees with the labels.
    """
    return _looked(store, max_error)[0]


def _looked(store: str | Path | PostgresUrl, max_error: float) -> tuple[Shortfall | None, StoreEvidence | None]:
    """Return the result of :func:`shortfall`, and the store's contents from which the result was computed; the contents are
    None if the store is empty.
    """
    try:
        evidence, spent_usd, everything_usd, read = evidence_of(store, max_error)
    except EvidenceError:
        return Shortfall(half_width=None, max_error=max_error, times=FASTEST_GROWTH), None
    needed = evidence.times_needed(max_error)
    if needed <= 1.0:
        return None, read
    times = MARGIN * needed
    lacks = Shortfall(half_width=evidence.best_half_width, max_error=max_error, times=times)
    if spent_usd <= 0.0 or everything_usd <= 0.0:
        return lacks, read
    if spent_usd * needed > everything_usd:
        return replace(lacks, requests=round(evidence.requests * times)), read
    return replace(lacks, more_usd=min(spent_usd * times, everything_usd) - spent_usd), read


def profile_until_certain(
    run: Callable[[Look], ProfileResult],
    store: str | Path | PostgresUrl,
    *,
    max_error: float,
    first_usd: float = math.inf,
    max_loss: float | None = None,
    keep_going: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> ProfileResult:
    """Run a profile in growing steps until an estimate from its store is certain enough.

    A step ends when the profile's coverage or its total cost has grown by a factor, or when the runs that the verdict before it
    lacked are bought. Coverage is the share of the estimated cost of a full profile. It does not suffice as a limit: with very
    many paths it stays near 0 even when there are enough rows.

    Args:
        run: Takes the end of a step (:class:`Look`), and profiles until then or until the whole profile ends. Each call
            continues the profile.
        store: The store to which ``run`` writes.
        max_error: The required half width, a fraction in (0, 1].
        first_usd: The cost in dollars at which the first step ends, unless its coverage is reached before.
        max_loss: The accuracy that a cheaper plan may lose, a fraction, if a verdict is wanted. The run then also ends when it
            is clear that no plan can be proven, even if the estimate is not certain enough. With None, this ends the run only
            once the estimate is certain enough, and :data:`~vinelm.trie.verdict.MAX_LOSS` is used.
        keep_going: Continue even if no plan can be proven on these requests, no matter how many results are bought.
        on_note: Called with one line before and after each check of the rows, and with the reason if no plan can be proven.

    Returns:
        The result of the last step, with the numbers of executed runs and of failures of all steps together. ``stopped_by`` is
        ``"certain"`` if the estimate is certain enough, ``"hopeless"`` if no plan can be proven; else the reason that ended the
        last step.
    """
    from vinelm.profiler import Look

    look = Look(FIRST_LOOK, first_usd, FEWEST_ROWS)
    tell = on_note or (lambda _: None)
    executed, failures = 0, Counter[str]()
    while True:
        result = run(look)
        executed += result.executed
        failures.update(result.failures)
        whole = replace(result, executed=executed, failures=dict(failures))
        if result.stopped_by not in ("look", "coverage"):
            return whole
        tell(f"judging {sum(result.counts):,} rows")  # takes seconds, where there are many paths half a minute
        lacks, read = _looked(store, max_error)
        verdict = None
        if read is not None and (lacks is None or max_loss is not None):
            verdict = _verdict(read, MAX_LOSS if max_loss is None else max_loss)
        whole = replace(whole, verdict=verdict)
        if lacks is None and (verdict is None or verdict.ends_buying):
            return replace(whole, stopped_by="certain")
        why = "" if keep_going or verdict is None else _hopeless(verdict, result.single_models)
        if why:
            tell(f"stopped: {why}; --keep-going buys all the same")
            return replace(whole, stopped_by="hopeless", message=why)
        if result.stopped_by == "coverage":
            return whole
        times = UNSETTLED_GROWTH if lacks is None else min(lacks.times, FASTEST_GROWTH)
        rows = sum(result.counts)
        least_rows = math.ceil(rows * LEAST_GROWTH)
        lacking = () if read is None or verdict is None or lacks is not None else _lacking(read.template, verdict)
        coverage, usd = min(max(result.coverage, look.coverage) * times, 1.0), result.spent_usd * times or math.inf
        look = Look(coverage, usd, least_rows, lacking, rows)
        tell(_step(lacks, verdict, look))


def _verdict(evidence: StoreEvidence, max_loss: float) -> Verdict | None:
    """Return the verdict on whether to switch from the current setup to another plan, from the rows so far. None if the current
    setup is unknown.
    """
    from vinelm.evaluation.comparison.comparison import Comparison

    if evidence.template.today is None:
        return None
    return Comparison.of(evidence).verdict(max_loss=max_loss)


def _lacking(template: Template, verdict: Verdict) -> tuple[Run, ...]:
    """Return the runs that a verdict to switch still lacks: of its plan, and of the more expensive plans tested before it.

    The result is empty if no switch is advised, if every request has these runs, or if one of the plans depends on the request.
    """
    from vinelm.profiler.sampling.runs import whole_path

    if verdict.advice != "switch":
        return ()
    plans = [dict(plan.code) for plan in verdict.missing]
    if any(not models or not models.keys() <= {stage.name for stage in template.stages} for models in plans):
        return ()
    return tuple(whole_path(template, {**(template.today or {}), **models}) for models in plans)


def _hopeless(verdict: Verdict, alone: SingleModels | None) -> str:
    """Return why no plan can be proven on the requests that ``verdict`` compares. The text is empty if a plan may still be
    proven, or if it is too early to know.

    ``alone`` has the results of the single models; None if they have not been compared.
    """
    if verdict.by_today is not None:  # whether today's answers are right is not known
        needed = verdict.by_today.needed
        if alone is None or verdict.waiting or not verdict.by_today.differing or 0 < needed <= SLACK * verdict.requests:
            return ""
        enough = f"about {needed:,} would do" if needed else "nor on more of them"
        return f"labels could prove no plan on {verdict.requests:,} requests: {enough}"
    today = next((one for one in alone.models if one.is_current), None) if alone is not None else None
    if today is None or verdict.advice != "undecided":
        return ""
    return why_hopeless(verdict.requests, verdict.requests - today.right, verdict.max_loss)


def _step(lacks: Shortfall | None, verdict: Verdict | None, look: Look) -> str:
    known = "no path is known yet"
    if lacks is None:
        known = (verdict.why_not if verdict else "") or "no plan is proven against what runs today yet"
        if look.lacking:
            known = "a plan is proven by the rows so far"
        elif verdict is not None and verdict.advice == "switch":
            known = "a plan is proven, but not beyond what several looks at the rows find by luck"
    elif lacks.half_width is not None:
        known = f"the best path's accuracy is known to +/- {100 * lacks.half_width:.1f} points"
    asked = "" if lacks is None else f", {100 * lacks.max_error:g} are asked for"
    until = f", or to ${look.usd:.3g}" if look.usd < math.inf else ""
    run = "until all requests have run it, or " if look.lacking else ""
    return f"{known}{asked}: going on {run}to a coverage of {100 * look.coverage:.1f} %{until}"
