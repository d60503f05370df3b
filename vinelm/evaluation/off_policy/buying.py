"""Collects recorded rows, and computes the probability with which each call was chosen to be recorded ("bought")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vinelm.evaluation.off_policy.steps import Seen
from vinelm.rows.observation import Observation
from vinelm.template import Template

Place = tuple[tuple[str, ...], object]
"""A point where a row may be bought: the models so far, and how the request continues from there."""


@dataclass(frozen=True, eq=False)
class BoughtRows:
    """The recorded results of some requests, and the probability with which each call was chosen to be recorded
    ("bought").

    A sampler takes requests in an order that ignores their contents. Which call it buys after a row depends only on the
    row's outcome: whether the request continues, whether the check passed, or which stage comes next. Requests with the same
    models and outcomes so far are at the same ``Place``. The chance of a model at a place is the share of the place's
    requests for which this model's call was bought. The probability stored in a row is a different one: the sampler proposed
    the row's path with it.

    Which first calls are bought may depend on the request type, so their chances are computed separately for each type.
    Types for which some model has no first call, as in a store made before the types were declared, share their
    chances.

    A row of a request without a label has a score only if the current setup has answered the request, too; without a
    score, the row counts as not bought. So requests with and without a label are never at the same place.

    Args:
        requests: The ids of the requests that could have been bought, including those without a row.
        rows: The rows, keyed by request id, then by prefix (the models up to the row's call).
        template: The workflow's stages, each with its models.
        at: Number of requests that came to each place.
        bought: For how many of these requests a model was bought, keyed by (place, model).
        kinds: The type of each request; empty if types are not distinguished.
        apart: The types for which the chances of first calls are computed separately.
        unlabelled: The ids of the requests without a label.
    """

    requests: tuple[str, ...]
    rows: Mapping[str, Mapping[tuple[str, ...], Observation]]
    template: Template
    at: Counter[Place]
    bought: Counter[tuple[Place, str]]
    kinds: Mapping[str, str] = field(default_factory=dict)
    apart: Collection[str] = ()
    unlabelled: Collection[str] = ()

    @classmethod
    def of(
        cls,
        requests: Sequence[str],
        rows: Iterable[Observation],
        template: Template,
        kinds: Mapping[str, str] | None = None,
        unlabelled: Collection[str] = (),
    ) -> BoughtRows:
        """Collect the rows of these requests; see the class for the arguments.

        A row without a score counts as not bought, with two exceptions: its call failed, or a later row of its path has a score
        or failed.
        """
        known: dict[str, dict[tuple[str, ...], Observation]] = {request: {} for request in requests}
        of_requests = [row for row in rows if row.request_id in known]
        judged = [row for row in of_requests if row.success is not None or row.failure is not None]
        led = {(row.request_id, row.prefix[:depth]) for row in judged for depth in range(1, row.depth + 1)}
        for row in of_requests:
            if (row.request_id, row.prefix) in led:
                known[row.request_id][row.prefix] = row
        kinds = {name: kind for name, kind in (kinds or {}).items() if name in known}
        found = cls(tuple(requests), known, template, Counter(), Counter(), kinds, _apart(known, kinds), unlabelled)
        at, bought = found.at, found.bought
        at.update(place for name in requests if (place := found.place((), name)) is not None)
        for name, of_request in known.items():
            for prefix, row in of_request.items():
                before = of_request.get(prefix[:-1])
                if before is None and len(prefix) > 1:
                    continue
                place = found.place(() if before is None else (before,), name)
                if place is None:
                    continue  # the workflow has changed since: nothing may follow a row that ended
                bought[place, row.model] += 1
                after = found.place((row,), name)
                if after is not None:
                    at[after] += 1
        return found

    def place(self, seen: Seen, request: str = "") -> Place | None:
        """Return a key that is equal for requests with the same models and outcomes so far; None if no further call can be
        recorded.

        For requests with equal keys, the same calls may be recorded next. ``seen`` are the recorded calls of ``request`` so
        far.
        """
        kind = self.kinds.get(request)
        place = place_of(self.template, seen) if seen else ((), kind if kind in self.apart else None)
        return (place[0], (place[1], "unlabelled")) if place is not None and request in self.unlabelled else place

    def chance(self, seen: Seen, model: str, request: str = "") -> float:
        """Return the share of requests, in [0, 1], for which ``model`` was run next after the recorded calls ``seen``.

        The share is among all requests with the same models and outcomes so far. The result is
        0 if the model was never run there, or if no row can follow. ``seen`` are the calls of ``request`` so far.
        """
        place = self.place(seen, request)
        return 0.0 if place is None or not self.at[place] else self.bought[place, model] / self.at[place]

    def first(self, request: str) -> str | None:
        """Return the name of the stage that a request begins with; None if no row of its first call is recorded."""
        return next((row.stage for row in self.rows[request].values() if row.depth == 1), None)

    def row(self, request: str, seen: Seen, model: str) -> Observation | None:
        """Return the recorded call of ``model`` right after a request's calls ``seen``; None if it was not recorded."""
        prefix = (*(seen[-1].prefix if seen else ()), model)
        return self.rows[request].get(prefix)


def _apart(known: Mapping[str, Mapping[tuple[str, ...], Observation]], kinds: Mapping[str, str]) -> frozenset[str]:
    """Return the request types in which every model was recorded as the first call of some request.

    Models that no request of any type has called first are ignored.

    Args:
        known: The rows, keyed by request id, then by prefix (the models up to the row's call).
        kinds: The type of each request.
    """
    firsts: dict[str, set[str]] = {kind: set() for kind in kinds.values()}
    for name, kind in kinds.items():
        firsts[kind].update(prefix[0] for prefix in known[name] if len(prefix) == 1)
    asked: set[str] = set().union(*firsts.values())
    return frozenset(kind for kind, models in firsts.items() if models == asked)


def place_of(template: Template, seen: Seen) -> Place | None:
    """Return a pair: the models that a request has run, and how it continues; None if no further call can be recorded.

    If the template branches, the second item is the next stage. Otherwise it is "passed" or "open". It is "passed" if the
    workflow's check has passed one of the answers, and the template lets requests continue after that.

    Args:
        template: The template.
        seen: The request's recorded calls; at least one.
    """
    last = seen[-1]
    if last.failure is not None or last.depth >= template.depth:
        return None
    if last.arm is not None:  # the sampler saw which stage comes next: requests with another next stage are not exchangeable
        return last.prefix, last.arm
    if not template.goes_on_past_ends:
        return None if last.ended(template.stop) else (last.prefix, "open")
    return last.prefix, "passed" if last.stopped or last.is_continued else "open"


def samplers_of(rows: Iterable[Observation]) -> Collection[str | None]:
    """Return the names of the samplers that chose the rows, without duplicates and in alphabetical order. If some row
    names no sampler, None comes first.
    """
    return sorted({row.sampler for row in rows}, key=lambda name: name or "")
