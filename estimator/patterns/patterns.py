"""Patterns of an application's reads: which call comes next, with which arguments, and how likely."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from vinelm.errors import ConfigError
from vinelm.estimator.patterns.bindings import Bindings
from vinelm.estimator.patterns.regression import (
    PRIOR_TRIALS,
    Key,
    add_counts,
    features_of,
    fit_calibrated,
    keys_of,
    probability,
)
from vinelm.estimator.patterns.session_state import Possible, SessionState, WithSources, with_sources
from vinelm.estimator.patterns.sets import LEAST_GROUPS, find_sets
from vinelm.tools.call import History, ToolEvent, begins_with, canonical_key
from vinelm.tools.speculation import ToolCandidate

_WORDS = ("description", "title")
LEAST_LIKELY = 0.1
"""A set of bindings whose likelihood never exceeds this is dropped."""
MOST_SECONDS = 16
LEAST_MOMENTS = 30
"""The fewest possible calls from which a calibration is fitted; with fewer, nothing is speculated."""


@dataclass(frozen=True)
class Patterns:
    """The patterns mined from recorded sessions.

    Args:
        reads: the names of the read-only tools.
        sets: pairs of a tool and a set of bindings, which says where the arguments of the tool's calls come from.
        counts: for each key under which possible calls are counted (:func:`~vinelm.estimator.patterns.regression.keys_of`), the
            numbers (hits, trials). Trials are all calls with this key. Hits are those of them that were requested before the
            next call of a writing tool.
        coefficients: the coefficients of the logistic regression, one for each feature; empty without enough data.
        seconds: quantiles of the recorded durations of each read in seconds, by its name; at most :data:`MOST_SECONDS` for
            each.
        schemas: the digest of each tool's schema (:func:`schema_digest`) by the tool's name, if known.
    """

    reads: frozenset[str]
    sets: tuple[tuple[str, Bindings], ...]
    counts: Mapping[Key, tuple[int, int]]
    coefficients: tuple[float, ...]
    seconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)

    def check(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        """Compare the patterns with the tools of an application.

        Args:
            schemas: the JSON schema of the arguments of each tool, by name.

        Raises:
            ConfigError: a tool is unknown, its schema differs, or it lacks an argument that a pattern fills.
        """
        for tool, digest in self.schemas.items():
            if tool in schemas and schema_digest(schemas[tool]) != digest:
                raise ConfigError(f"patterns: tool {tool!r} takes other arguments than when they were mined: mine them anew")
        for tool, bindings in self.sets:
            if tool not in schemas:
                known = ", ".join(sorted(schemas)) or "none"
                raise ConfigError(f"patterns: there is no tool {tool!r} here, only {known}: mine patterns of this application")
            names = {name for name, _ in bindings}
            wrong = names - set(schemas[tool].get("properties", {})) or set(schemas[tool].get("required", ())) - names
            if wrong:
                what = ", ".join(sorted(wrong))
                raise ConfigError(f"patterns: tool {tool!r} was recorded with other arguments ({what}): mine them anew")

    def candidates(self, history: History) -> list[ToolCandidate]:
        """Return the reads that may be requested before the next write, most likely first.

        Args:
            history: the user's messages and the finished calls, with arguments and results, in order.
        """
        return self.for_run().candidates(history)

    def for_run(self) -> PatternsInRun:
        """Return a predictor for one run of the application, which processes only the new events each time it is asked."""
        return PatternsInRun(self)

    def candidates_of(self, seen: SessionState) -> list[ToolCandidate]:
        """Return the reads that may be requested before the next write, most likely first, like :meth:`candidates`.

        ``seen`` is the session's state, which the caller keeps up to date with :meth:`SessionState.add`.
        """
        if not self.coefficients:
            return []
        found = []
        for possible in seen.possible(self._with_sources).values():
            features = features_of(possible, seen, self.sets, self.counts.get)
            if features:
                found.append(ToolCandidate(possible.tool, possible.arguments, probability(features, self.coefficients)))
        return sorted(found, key=lambda one: -one.probability)

    @cached_property
    def _with_sources(self) -> tuple[WithSources, ...]:
        return with_sources(self.sets)


class PatternsInRun:
    """Predicts the next reads (calls of read-only tools) in one run of an application. Not thread-safe.

    Args:
        patterns: the application's patterns: which reads usually follow which events.
    """

    __slots__ = ("_known", "_patterns", "_seen")

    def __init__(self, patterns: Patterns) -> None:
        self._patterns, self._known, self._seen = patterns, list[str | ToolEvent](), SessionState(patterns.reads)

    def candidates(self, history: History) -> list[ToolCandidate]:
        """Return the reads that may be requested before the next call of a writing tool, most likely first.

        Only events that were not in the previous ``history`` are processed.
        """
        if not begins_with(history, self._known):
            self._known, self._seen = [], SessionState(self._patterns.reads)
        for event in history[len(self._known) :]:
            self._seen.add(event)
            self._known.append(event)
        return self._patterns.candidates_of(self._seen)


def schema_digest(schema: Mapping[str, Any]) -> str:
    """Return the digest of a JSON schema of arguments, ignoring descriptions and titles."""

    def plain(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {key: plain(value) for key, value in node.items() if not (key in _WORDS and isinstance(value, str))}
        return [plain(item) for item in node] if isinstance(node, list) else node

    return canonical_key("schema", {"schema": plain(schema)})


class Moment(NamedTuple):
    """A call that was possible after some events of a session, and whether it was then requested.

    Attributes:
        group: the group of the session.
        seen: the state of the session after these events.
        possible: the call.
        is_hit: whether the call was requested before the next write.
    """

    group: Hashable
    seen: SessionState
    possible: Possible
    is_hit: bool


def mine(
    sessions: Sequence[History],
    reads: Iterable[str],
    *,
    groups: Sequence[Hashable] | None = None,
    schemas: Mapping[str, str] | None = None,
) -> Patterns:
    """Mine patterns from recorded sessions and return them.

    Args:
        sessions: each has the user's messages and the calls, with arguments and results, in order.
        reads: the names of the read-only tools; every other tool writes.
        groups: the group of each session; sessions of a group are similar, such as trials of one task. By default, each
            session is a separate group.
        schemas: the digest of each tool's schema.

    Raises:
        ConfigError: a session has no arguments, because values were not recorded.
    """
    of = list(range(len(sessions))) if groups is None else list(groups)
    in_order = sorted(range(len(of)), key=lambda at: str(of[at]))  # the same patterns in any order of sessions
    sessions, of = [sessions[at] for at in in_order], [of[at] for at in in_order]
    names = frozenset(reads)
    calls = [event for session in sessions for event in session if isinstance(event, ToolEvent)]
    if any(event.arguments is None for event in calls):
        raise ConfigError("a recorded call is without arguments: patterns are mined from values: give a log that has them")
    support = find_sets(sessions, of, names)
    sets, total, counts = _count(sessions, of, names, support)
    rows, hits, groups_of_rows = [], [], []
    for moment in _moments(sessions, of, names, sets):
        own = counts[moment.group]

        def others(key: Key, own: Mapping[Key, list[int]] = own) -> tuple[float, float]:
            all_hits, all_trials = total.get(key, (0, 0))
            own_hits, own_trials = own.get(key, (0, 0))
            return all_hits - own_hits, all_trials - own_trials

        rest = [one for one in moment.possible.yielded if len(support[sets[one.at]] - {moment.group}) >= LEAST_GROUPS]
        row = features_of(replace(moment.possible, yielded=rest), moment.seen, sets, others) if rest else None
        if row:
            rows.append(row)
            hits.append(float(moment.is_hit))
            groups_of_rows.append(moment.group)
    coefficients: list[float] = []
    if len(rows) >= LEAST_MOMENTS:
        coefficients = fit_calibrated(np.array(rows, dtype=np.float64), np.array(hits), groups_of_rows)
    kept = {key: (hit, trials) for key, (hit, trials) in total.items()}
    return Patterns(names, tuple(sets), kept, tuple(coefficients), _seconds(calls, names), dict(schemas or {}))


def _seconds(calls: Sequence[ToolEvent], reads: frozenset[str]) -> dict[str, tuple[float, ...]]:
    """Return quantiles of the recorded durations of each read-only tool, in seconds, by its name."""
    took: dict[str, list[float]] = defaultdict(list)
    for event in calls:
        if event.tool in reads and event.ended_s > event.started_s:
            took[event.tool].append(event.ended_s - event.started_s)
    at = (np.arange(MOST_SECONDS) + 0.5) / MOST_SECONDS
    return {tool: tuple(round(float(one), 4) for one in np.quantile(some, at)) for tool, some in sorted(took.items())}


def _count(
    sessions: Sequence[History],
    groups: Sequence[Hashable],
    reads: frozenset[str],
    support: Mapping[tuple[str, Bindings], set[Hashable]],
) -> tuple[list[tuple[str, Bindings]], dict[Key, list[int]], dict[Hashable, dict[Key, list[int]]]]:
    """Count how often the predicted calls are requested, and drop the sets of bindings whose calls are never likely.

    A set of bindings states where each argument of a tool's call comes from, and so predicts calls. The keys of ``support`` are
    the sets to choose from, as (tool, bindings). Its values are the groups of sessions in which the set predicted a call.

    Returns:
        Three items: the sets that remain; the counts [requested calls, predicted calls], keyed by :data:`Key`; and the same
            counts for each group of sessions. In the keys, the remaining sets are numbered from 0.
    """
    found = list(support)
    counts: dict[Hashable, dict[Key, list[int]]] = defaultdict(dict)
    total: dict[Key, list[int]] = {}
    for moment in _moments(sessions, groups, reads, found):
        for one in moment.possible.yielded:
            trial = {key: (int(moment.is_hit), 1) for key in keys_of(one, moment.possible.is_again, moment.seen)}
            add_counts(counts[moment.group], trial)
            add_counts(total, trial)
    best = [0.0] * len(found)
    for key, (hits, trials) in total.items():
        best[key[0]] = max(best[key[0]], hits / (trials + PRIOR_TRIALS))
    number = {old: new for new, old in enumerate(at for at, p in enumerate(best) if p >= LEAST_LIKELY)}

    def renumbered(some: Mapping[Key, list[int]]) -> dict[Key, list[int]]:
        return {(number[key[0]], *key[1:]): value for key, value in some.items() if key[0] in number}

    return [found[at] for at in number], renumbered(total), defaultdict(dict, {g: renumbered(c) for g, c in counts.items()})


def _moments(
    sessions: Sequence[History], groups: Sequence[Hashable], reads: frozenset[str], sets: Sequence[tuple[str, Bindings]]
) -> Iterator[Moment]:
    """Yield, after each event of each session, every call that was then possible, and whether it was requested later.

    The state ``seen`` of a yielded :class:`Moment` is valid only until the next moment is requested.
    """
    ready = with_sources(sets)
    for session, group in zip(sessions, groups, strict=True):
        seen = SessionState(reads)
        for at, event in enumerate(session):
            seen.add(event)
            coming = read_before_the_next_write(session[at + 1 :], reads)
            for key, possible in seen.possible(ready).items():
                yield Moment(group, seen, possible, key in coming)


def read_before_the_next_write(events: History, reads: frozenset[str]) -> set[str]:
    """Return the keys of the reads in ``events`` that come before the first write."""
    coming: set[str] = set()
    for event in events:
        if isinstance(event, ToolEvent):
            if event.tool not in reads:
                break
            coming.add(event.key)
    return coming
