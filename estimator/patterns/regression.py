"""Predicts by logistic regression on backed-off counts whether a possible call is requested before the next write."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vinelm.estimator.patterns.bindings import Bindings
from vinelm.estimator.patterns.session_state import Possible, SessionState, Yielded

PRIOR = 0.02
"""The probability of a call about which nothing is known."""
PRIOR_TRIALS = 3.0
NEVER = (0.0, 0.0)
FLOOR = 0.03
"""Calls whose counts give a lower probability than this are left out."""
FOLDS = 5
PENALTY = 2.0
"""Half the inverse variance of a standardized coefficient."""
Key = tuple[int, int, int, bool, tuple[str, ...]]
"""The key of a count: index of a set of bindings, the call's rank (0 to 3), number of the set's calls (1 to 4), whether the
call was executed before the last write, signatures of the last events."""
Lookup = Callable[[Key], tuple[float, float] | None]
"""Returns (hits, trials) of a key; None for one that was never counted."""
_NAMES = (
    "intercept logit logit_whatever_came logit_last_event rank log_count in_last_words in_words calls_of_tool calls after_user "
    "from_calls from_words constants no_arguments again log_age sets read_share after_same_tool calls_this_turn turns "
    "logit_second from_names names_tool names_tool_not_yet_called called_this_turn"
)
FEATURES = tuple(_NAMES.split())
"""The features of a possible call that the regression uses, in order; they are stored in files."""


def keys_of(one: Yielded, is_again: bool, seen: SessionState) -> list[Key]:
    """Return the keys under which a possible call is counted: one for each suffix of the session's events, the shortest first.

    Args:
        one: the call, as yielded by a set of bindings.
        is_again: whether the call was executed before the last write.
        seen: the session so far.
    """
    rank, count = min(one.rank, 3), min(one.of, 4)
    return [(one.at, rank, count, is_again, suffix) for suffix in seen.suffixes]


def backed_off(keys: Sequence[Key], lookup: Lookup) -> list[float]:
    """Return, for each key, the estimated probability that a call counted under this key is a hit.

    A key's share of hits is shrunk towards the estimate for the key before it. ``keys`` describe the same call after ever
    longer sequences of earlier events, the shortest first.
    """
    values, p = [], PRIOR
    for key in keys:
        hits, trials = lookup(key) or NEVER
        p = (hits + PRIOR_TRIALS * p) / (trials + PRIOR_TRIALS)
        values.append(p)
    return values


def features_of(
    possible: Possible, seen: SessionState, sets: Sequence[tuple[str, Bindings]], lookup: Lookup
) -> list[float] | None:
    """Return the values of :data:`FEATURES` for a possible call.

    They depend on the session, and on the sets of bindings (sources of the call's arguments) that yield the call, mainly the
    set for which it is most likely.

    Returns None for a call whose counts give a probability below :data:`FLOOR`.

    Args:
        possible: the call.
        seen: the session so far.
        sets: the tools and sets of bindings.
        lookup: takes a key, which describes a kind of possible call. Returns how many calls of this kind were requested before
            the next write, and how many there were.
    """
    chains = [(backed_off(keys_of(one, possible.is_again, seen), lookup), one) for one in possible.yielded]
    chains.sort(key=lambda chain: -chain[0][-1])
    chain, best = chains[0]
    if chain[-1] < FLOOR:
        return None
    kinds = [binding.kind for _, binding in sets[best.at][1]]
    in_last, in_any = seen.has_words(possible.arguments)
    named, is_called = seen.names_tool(possible.tool), possible.tool in seen.tools_this_turn
    calls = sum(seen.calls_of.values())
    return [
        1.0, _logit(chain[-1]), _logit(chain[0]), _logit(chain[min(1, len(chain) - 1)]),
        best.rank, math.log(best.of), in_last, in_any,
        min(seen.calls_of.get(possible.tool, 0), 4), min(calls, 8), seen.signatures[-1:] == ["user"],
        kinds.count("call"), kinds.count("user"), kinds.count("constant"), not kinds, possible.is_again,
        math.log1p(best.age), min(len(chains), 4), best.read_share, seen.signatures[-1:] == [possible.tool],
        min(seen.calls_this_turn, 4), min(seen.turns, 6), _logit(chains[1][0][-1] if len(chains) > 1 else PRIOR),
        kinds.count("named"), named, 0.0 if is_called else named, is_called,
    ]  # fmt: skip


def probability(features: Sequence[float], coefficients: Sequence[float]) -> float:
    """Return the calibrated probability that a call with these features is requested before the next call of a writing tool."""
    score = sum(map(float.__mul__, map(float, features), coefficients))
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, score))))


def fit(features: NDArray[np.float64], hits: NDArray[np.float64]) -> list[float]:
    """Return the coefficients of the logistic regression, fitted by Newton steps.

    Args:
        features: shape (calls, features), the first column 1.
        hits: shape (calls,), 1 for a call that was requested.
    """
    mean, spread = features.mean(axis=0), features.std(axis=0)
    mean[0], spread[0] = 0.0, 1.0
    spread[spread == 0.0] = 1.0
    x = np.vstack([(features - mean) / spread, np.eye(1, features.shape[1])])
    hits = np.append(hits, 0.5)  # one even bet, so that calls that always or never came have finite coefficients
    penalty = np.full(x.shape[1], PENALTY)
    penalty[0] = 1e-6
    w = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ w, -30.0, 30.0)))
        slope = x.T @ (hits - p) - penalty * w
        step = np.linalg.solve((x * (p * (1.0 - p))[:, None]).T @ x + np.diag(penalty), slope)
        w = w + step * min(1.0, 4.0 / max(1e-12, float(np.abs(step).max())))
        if float(np.abs(step).max()) < 1e-8:
            break
    plain = w / spread
    plain[0] -= float((w / spread) @ mean)
    return [float(value) for value in plain]


def fit_calibrated(features: NDArray[np.float64], hits: NDArray[np.float64], groups: Sequence[Hashable]) -> list[float]:
    """Return the coefficients of the logistic regression, calibrated on groups that they were not fitted on.

    Args:
        features: shape (calls, features), the first column 1.
        hits: shape (calls,), 1 for a call that was requested.
        groups: the group of each call, shape (calls,).
    """
    number = {group: at for at, group in enumerate(sorted(set(groups), key=str))}
    fold = np.array([number[group] % FOLDS for group in groups])
    plain = np.array(fit(features, hits))
    if len(number) < FOLDS:
        return [float(value) for value in plain]
    scores = np.zeros(len(hits))
    for one in range(FOLDS):
        others = fold != one
        scores[~others] = features[~others] @ np.array(fit(features[others], hits[others]))
    shift, stretch = fit(np.column_stack([np.ones(len(hits)), np.clip(scores, -8.0, 8.0)]), hits)
    stretch = max(0.0, stretch)
    plain *= stretch
    plain[0] += shift
    return [float(value) for value in plain]


def add_counts(counts: dict[Key, list[int]], other: Mapping[Key, Sequence[int]]) -> None:
    """Add the hits and trials in ``other`` to ``counts``, in place."""
    for key, (hits, trials) in other.items():
        of_key = counts.setdefault(key, [0, 0])
        of_key[0] += hits
        of_key[1] += trials


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))
