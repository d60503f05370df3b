"""Compares a trie's predictions with rows of served requests, and finds the cheapest remedy if the trie no longer fits."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vinelm.api.estimation import require_same_workflow
from vinelm.errors import ConfigError
from vinelm.estimator import DriftConfig, DriftMonitor, DriftReport, Moved
from vinelm.estimator.drift.update import updated_trie
from vinelm.rows.observation import Observation, at_ordinary_prices
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.vinefile import load_trie

if TYPE_CHECKING:
    from vinelm.traces import ObservationStore

FOLDED = frozenset(("dollars", "seconds"))
"""Annotations that served rows can correct without labels; rows do not show which answers are right."""


def drift(
    trie: AnnotatedTrie | str | Path,
    traces: ObservationStore | str | Path,
    config: DriftConfig | None = None,
) -> DriftReport:
    """Return a report on which values in a trie (costs, seconds, rates) no longer fit the served requests. Calls no model.

    If nothing has changed, the probability that any value is ever reported is at most ``config.alpha``. This holds even if the
    function is called again as rows arrive.

    Args:
        trie: The annotated trie, or its ``.vine`` file.
        traces: The store of served rows, or its path. It is only read.
        config: The rate of false alarms and the tolerance.

    Raises:
        StoreError: The store is missing or damaged.
        TrieFileError: The trie cannot be read.
        ConfigError: Trie and store belong to different workflows, or the trie cannot serve because it ends requests when their
            answer is right.
    """
    annotated, rows = _opened(trie, traces)
    monitor = DriftMonitor(annotated, config)
    for row in rows:
        monitor.add(row)
    return monitor.report()


def update(
    trie: AnnotatedTrie | str | Path, traces: ObservationStore | str | Path, *, half_life: float = 1000.0
) -> AnnotatedTrie:
    """Return a copy of a trie with stop rates, costs and seconds updated from served rows. Calls no model, writes nothing.

    Args:
        trie: The annotated trie, or its ``.vine`` file.
        traces: The store of served rows, or its path. It is only read.
        half_life: A row of a served request counts half if this number of requests came after it; > 0. The data from which the
            trie was estimated count half after this number of served requests.

    Raises:
        StoreError: The store is missing or damaged.
        TrieFileError: The trie cannot be read.
        ConfigError: Trie and store belong to different workflows, the trie ends requests when their answer is right, or the
            half-life is not positive.
        EvidenceError: No row belongs to a path of the trie.
    """
    annotated, rows = _opened(trie, traces)
    return updated_trie(annotated, rows, half_life=half_life)


def served_per_hour(traces: str | Path) -> float:
    """Return the requests per hour in a store of served rows; 0 if the requests' ids do not contain the time.

    Raises:
        StoreError: The store is missing or damaged.
    """
    from vinelm.api.served_evidence import calls_per_hour
    from vinelm.traces import ObservationStore

    with ObservationStore.open(traces) as store:
        return calls_per_hour({row.request_id for row in store.observations()}) or 0.0


def _opened(trie: AnnotatedTrie | str | Path, traces: ObservationStore | str | Path) -> tuple[AnnotatedTrie, list[Observation]]:
    """Return the trie and the rows of the requests that it served.

    Raises:
        ConfigError: Trie and store belong to different workflows, or the trie ends requests when their answer is right.
    """
    from vinelm.traces import ObservationStore
    from vinelm.traces.store.kinds import told_apart

    where = str(trie) if isinstance(trie, str | Path) else "the trie"
    annotated = load_trie(trie) if isinstance(trie, str | Path) else trie
    require_servable(annotated, where)
    with ObservationStore.open(traces if isinstance(traces, str | Path) else traces.path) as store:
        digest = annotated.meta.get("dataset_digest", "")  # served requests belong to no dataset
        require_same_workflow(annotated, store.identity.workflow, digest, where)
        return annotated, at_ordinary_prices(told_apart(store, store.observations(), annotated.template, learn=False)[0])


def require_servable(annotated: AnnotatedTrie, where: str) -> None:
    """Raise :class:`ConfigError` if a trie ends requests when their answer is right, since this is unknown for served requests.

    ``where`` names the trie in the message.
    """
    unseen = "it stops by the oracle, whose stops no served request shows: give a trie that stops by the workflow's own check"
    annotated.template.rule.require_served(ConfigError(f"{where}: {unseen}", code="oracle-trie"))


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """The remedy for a trie that no longer fits the served requests.

    Attributes:
        command: The command, as a line for the shell.
        price_usd: Dollars that the command is expected to spend; 0 if it calls no model, None if unknown.
        why: The reason for this remedy, in one sentence.
    """

    command: str
    price_usd: float | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return the remedy as a dict of JSON types."""
        return asdict(self)


def cheapest_remedy(annotated: AnnotatedTrie, moved: Iterable[Moved], trie: str | Path, traces: str | Path) -> Remedy | None:
    """Return the cheapest way to correct a trie; None if nothing has changed.

    If only costs or seconds have changed, the remedy is to update them from the served rows, which is free. If requests now
    stop at other rates, or show signals (labels of their state) at other rates, the answers have probably changed, too. Only
    labelled requests can measure that. Then the remedy is a profile with the last profile's coverage, at current prices.

    Args:
        annotated: The trie.
        moved: The values in the trie that have changed.
        trie: The file of the trie, for the command.
        traces: The store of served rows, for the command.
    """
    moved = tuple(moved)
    if not moved:
        return None
    if all(one.quantity in FOLDED for one in moved):
        command = shlex.join(["vinelm", "estimate", str(trie), "--update", str(traces)])
        return Remedy(
            command=command, price_usd=0.0, why="Only dollars and seconds moved: the served rows say what they are now."
        )
    meta = annotated.meta
    workflow = str(meta.get("workflow", "WORKFLOW"))
    words = ["vinelm", "profile", workflow, "--store", f"runs/{workflow}-again.db"]
    price = _price_usd(annotated, moved)
    if meta.get("coverage"):
        words += ["--coverage", f"{meta['coverage']:.3g}"]
    if price is not None:
        words += ["--budget-usd", f"{1.5 * price:.2g}"]
    return Remedy(
        command=shlex.join(words),
        price_usd=price,
        why="Stops or signals moved, so answers may have changed: labelled requests have to say how.",
    )


def _price_usd(annotated: AnnotatedTrie, moved: tuple[Moved, ...]) -> float | None:
    """Return the cost in dollars of a profile with the last profile's coverage, using the changed models' current costs."""
    coverage, requests = annotated.meta.get("coverage"), annotated.meta.get("requests_registered")
    if not coverage or not requests:
        return None
    cost = np.array(annotated.cost_usd)
    trie = annotated.trie
    for one in moved:
        if one.quantity == "dollars" and one.annotated > 0.0:
            same = (trie.model == trie.model[one.node]) & (trie.stage == trie.stage[one.node])
            cost[same] = annotated.cost_usd[same] * (one.seen / one.annotated)
    everything = replace(annotated, cost_usd=cost).reading.everything_usd
    return None if everything is None else everything * float(requests) * float(coverage)
