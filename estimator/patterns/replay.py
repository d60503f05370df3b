"""Replays tool prefetching on recorded sessions, and measures its effect on time and cost.

It also counts the reads whose results are ready when they are requested.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from vinelm.estimator.patterns.patterns import Patterns, mine
from vinelm.estimator.patterns.session_state import SessionState
from vinelm.tools.call import History, ToolEvent, canonical_key
from vinelm.tools.speculation import Speculation, ToolCandidate

LEAST_PROBABILITY = Speculation().least_probability
LEAST_GAIN = 0.01
"""If reads that are all ready would save a smaller share of the time, speculation is not worth it."""


@dataclass
class Replayed:
    """The result of replaying sessions: sums over these sessions.

    Args:
        calls: the number of calls of any tool.
        reads: the number of calls of read-only tools.
        ready: the number of reads with a result available or in flight: prefetched, or read before and still valid.
        repeats: the number of the reads in ``ready`` that needed no prefetching.
        speculations: the number of reads that were prefetched.
        used: the number of prefetched reads that were requested while still valid.
        model_s: seconds of model calls.
        tool_s: seconds of tool calls, without prefetching.
        read_s: the part of ``tool_s`` spent on reads.
        hideable_s: seconds that would be saved if each read started together with the model call before it.
        saved_s: seconds that prefetching saves.
        waste_usd: cost of the prefetched reads that were not used, in dollars.
    """

    calls: int = 0
    reads: int = 0
    ready: int = 0
    repeats: int = 0
    speculations: int = 0
    used: int = 0
    model_s: float = 0.0
    tool_s: float = 0.0
    read_s: float = 0.0
    hideable_s: float = 0.0
    saved_s: float = 0.0
    waste_usd: float = 0.0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})

    @property
    def ready_share(self) -> float:
        """The share of the reads whose result was already available or in flight; 0 if there are no reads."""
        return self.ready / max(1, self.reads)

    @property
    def speculations_per_call(self) -> float:
        """The number of prefetched reads divided by the number of tool calls (any tool)."""
        return self.speculations / max(1, self.calls)

    @property
    def precision(self) -> float:
        """The share of the prefetched reads that were requested while still valid."""
        return self.used / max(1, self.speculations)

    @property
    def total_s(self) -> float:
        """The total seconds of the sessions without prefetching: model calls and tool calls."""
        return self.model_s + self.tool_s

    @property
    def nothing_to_gain(self) -> str | None:
        """The reason why prefetching cannot save time here; None if it may save time, or if no times were recorded."""
        if not self.total_s or self.hideable_s >= LEAST_GAIN * self.total_s:
            return None
        share = self.read_s / self.tool_s if self.tool_s else 0.0
        return (
            f"nothing to gain here: reads are {100.0 * share:.1f} % of tool seconds, and with every read predicted "
            f"{100.0 * self.hideable_s / self.total_s:.1f} % of the time would be saved"
        )


Predictions = Sequence[Sequence[ToolCandidate]]
"""The candidates for the next calls, after each event of a session."""


def predictions(patterns: Patterns, session: History) -> list[list[ToolCandidate]]:
    """Return the predicted reads after each event of a recorded session: one list of candidates for each event."""
    seen, found = SessionState(patterns.reads), []
    for event in session:
        seen.add(event)
        found.append(patterns.candidates_of(seen))
    return found


def replay(
    session: History,
    predicted: Predictions,
    reads: frozenset[str],
    *,
    least: float = LEAST_PROBABILITY,
    at_once: int = 4,
    cost_usd: float = 0.0,
    messages_s: Mapping[int, float] | None = None,
) -> Replayed:
    """Replay one session in virtual time, as if reads had been prefetched, and return its counts, seconds and dollars.

    A prefetch starts together with a model call, if fewer than ``at_once`` prefetches are running; a write makes all results
    stale. A model call takes the time between two tool calls.

    Args:
        session: the events of the session.
        predicted: the candidates after each event.
        reads: the names of the read-only tools.
        least: the minimum probability at which a read is prefetched.
        at_once: maximum number of prefetches that run at the same time.
        cost_usd: cost of a prefetched read, in dollars.
        messages_s: the time at which each user message came, by its position in the session, in seconds on the clock of the
            calls. A message without a known time counts as coming right after the call before it.
    """
    sums = Replayed()
    ready_at: dict[str, float] = {}
    guessed: set[str] = set()
    running: list[float] = []
    now = before = 0.0
    took = [event.ended_s - event.started_s for event in session if isinstance(event, ToolEvent) and event.tool in reads]
    usual_s = sum(took) / max(1, len(took))
    taken_s = {event.key: event.ended_s - event.started_s for event in session if isinstance(event, ToolEvent)}
    for at, (event, coming) in enumerate(zip(session, predicted, strict=True)):
        if isinstance(event, ToolEvent):
            think_s, tool_s = max(0.0, event.started_s - before), event.ended_s - event.started_s
            before = event.ended_s
            sums.calls += 1
            sums.model_s += think_s
            sums.tool_s += tool_s
            now += think_s
            ends = now + tool_s
            if event.tool in reads:
                sums.reads += 1
                sums.read_s += tool_s
                sums.hideable_s += min(think_s, tool_s)
                if event.key in ready_at:
                    sums.ready += 1
                    sums.repeats += event.key not in guessed
                    sums.used += event.key in guessed
                    guessed.discard(event.key)
                    ends = min(ends, max(now, ready_at[event.key]))
                ready_at[event.key] = min(ends, ready_at.get(event.key, ends))
            else:
                ready_at.clear()
                guessed.clear()
            sums.saved_s += now + tool_s - ends
            now = ends
        elif messages_s and at in messages_s:
            waited_s = max(0.0, messages_s[at] - before)
            before += waited_s
            sums.model_s += waited_s
            now += waited_s
        running = [end for end in running if end > now]
        for one in coming:
            key = canonical_key(one.tool, one.arguments)
            if one.probability >= least and key not in ready_at and len(running) < at_once:
                ready_at[key] = now + taken_s.get(key, usual_s)
                running.append(ready_at[key])
                guessed.add(key)
                sums.speculations += 1
    sums.waste_usd = (sums.speculations - sums.used) * cost_usd
    return sums


def hold_out(
    sessions: Sequence[History],
    reads: Iterable[str],
    *,
    groups: Sequence[Hashable] | None = None,
    cost_usd: float = 0.0,
) -> Replayed:
    """Divide sessions into folds, replay each session with patterns mined from the other folds, and return the summed results.

    Sessions of a group share a fold.

    Args:
        sessions: each has the user's messages and the calls, with arguments and results, in order.
        reads: the names of the read-only tools.
        groups: the group of each session, such as trials of one task. By default, each session is a separate group.
        cost_usd: cost of a prefetched read, in dollars.
    """
    names = frozenset(reads)
    of = list(range(len(sessions))) if groups is None else list(groups)
    sums = Replayed()
    for kept, held in folds_of(of):
        patterns = mine([sessions[at] for at in kept], names, groups=[of[at] for at in kept])
        for at in held:
            found = predictions(patterns, sessions[at])
            sums += replay(sessions[at], found, names, cost_usd=cost_usd)
    return sums


def folds_of(groups: Sequence[Hashable], folds: int = 3) -> Iterator[tuple[list[int], list[int]]]:
    """Yield, for each fold, the indices of the sessions outside and inside this fold; sessions of a group share a fold."""
    fold = {group: at % folds for at, group in enumerate(sorted(set(groups), key=str))}
    for one in range(folds):
        inside = [at for at, group in enumerate(groups) if fold[group] == one]
        yield [at for at, group in enumerate(groups) if fold[group] != one], inside
