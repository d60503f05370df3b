"""The built-in policies, and the lookup of a policy by name or file.

Each policy is a pure function of a :class:`FleetView`, a table of all live calls. It computes with whole columns of the table,
because a fleet may have a hundred thousand live calls.
"""

from __future__ import annotations

import importlib.util
import zlib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from vinelm.controller.fleet.orders import FleetPolicy, Orders, SessionPriorities, combined
from vinelm.controller.fleet.snapshot import LiveState
from vinelm.controller.fleet.view import FleetView
from vinelm.errors import ConfigError
from vinelm.foreign_code import explained
from vinelm.trie.arrays import FloatArray

Hashes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
STEP_S = 10.0
"""Seconds of waiting that one step of priority is worth; see :func:`vinelm.backends.limits.rate_share.turn_key`."""
MOST_SLACK_S = 60.0
"""Requests with more slack than this do not wait longer; a request without a deadline counts as having this much."""
REST_WEIGHT = 3.0
"""How many seconds of waiting one second of a request's expected remaining time is worth to ``srtf`` and ``lpt``."""
MOST_REST_S = 300.0
"""Longer expected remaining times count as this."""
CLEAR_ERRORS = 2.0
"""A replica is slow if its calls have run longer than others by more than this many standard errors."""
BLOCKED_RATIO, BLOCKED_S = 4.0, 5.0
"""A replica is blocked if its calls have run this many times as long as those on its group's others, and for this many seconds.
"""


def balance(view: FleetView) -> Orders:
    """Return orders that send fewer calls to slow replicas.

    A replica is slow if its running calls are clearly older than the calls on the other replicas of its group.
    """
    age_s, others_s, error = _ages(view)
    ratio = np.divide(age_s, others_s, out=np.ones_like(age_s), where=others_s > 0)
    # Differences within chance change nothing, and no replica is preferred for its young calls: these only show that it was
    # just sent many, and would attract more.
    beyond = np.maximum(ratio - 1.0 - CLEAR_ERRORS * error, 0.0)
    return Orders(weights=_named(view, 1.0 / (1.0 + beyond), _is_replica(view)))


def hol(view: FleetView) -> Orders:
    """Return orders that send no new calls to a replica whose running calls hang.

    Calls hang if they have run several times as long as the calls on the other replicas of the group. Waiting calls go to the
    other replicas of the group, which avoids head-of-line blocking.
    """
    age_s, others_s, _ = _ages(view)
    blocked = (age_s > BLOCKED_S) & (age_s > BLOCKED_RATIO * others_s) & _is_replica(view)
    return Orders(weights=_named(view, np.zeros_like(age_s), blocked))


def affinity(view: FleetView) -> Orders:
    """Return orders that keep the calls of a conversation on one replica, whose prompt cache then holds the conversation.

    A hash chooses the replica, so all processes choose the same one in every round. If the calls go to several replica
    groups, only the replica in the group with the highest index (:attr:`FleetView.group`) is used.
    """
    pins: dict[int, str] = {}
    for number in np.unique(view.group[_is_replica(view)]).tolist():
        places = np.flatnonzero((view.group == number) & _is_replica(view))
        sessions = np.unique(view.session[view.group[view.engine] == number])
        # Rendezvous hashing: if a replica comes or goes, only the conversations move that it gets or had.
        marks = np.array([zlib.crc32(view.engines[place].encode()) for place in places.tolist()], np.uint64)
        best = places[np.argmax(_mixed(sessions[:, None] ^ _mixed(marks)), axis=1)]
        pins |= zip(sessions.tolist(), [view.engines[place] for place in best.tolist()], strict=True)
    return Orders(pins=pins)


def _mixed(values: Hashes) -> Hashes:
    """Return a well-mixed 64-bit hash of each of ``values``, by the last step of SplitMix64; same shape."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def srtf(view: FleetView) -> Orders:
    """Return orders that serve the request with the shortest expected remaining time first, to minimize the mean latency."""
    rest_s = np.minimum(_known(view.left_s), MOST_REST_S)
    return Orders(sessions=SessionPriorities(view.session, -REST_WEIGHT / STEP_S * _from_mean(rest_s)))


def lpt(view: FleetView) -> Orders:
    """Return orders that serve the request with the longest expected remaining time first, so that a batch ends sooner."""
    rest_s = np.minimum(_known(view.left_s), MOST_REST_S)
    return Orders(sessions=SessionPriorities(view.session, REST_WEIGHT / STEP_S * _from_mean(rest_s)))


def slack(view: FleetView) -> Orders:
    """Return orders that serve the request with the least slack first, so that late requests come first.

    Slack is the deadline minus elapsed time, expected remaining time and the engine's current waiting time.
    """
    queued = view.state == LiveState.QUEUED
    load_s = (_by_engine(view, view.waited_s) / np.maximum(view.count_by_engine(), 1))[view.engine]
    # A waiting call ages in its line anyway, so its slack at arrival counts, which does not change.
    spare_s = np.clip(view.slack_s + view.waited_s * queued - load_s, 0.0, MOST_SLACK_S)
    # Calls missing from the view have just arrived. Priority 0 corresponds to the average slack at arrival.
    new_s = np.clip(view.slack_s + view.elapsed_s, 0.0, MOST_SLACK_S).mean() if len(view) else 0.0
    return Orders(sessions=SessionPriorities(view.session, (new_s - spare_s) / STEP_S))


def shares(view: FleetView) -> Orders:
    """Return orders that divide the common rate limits among the processes.

    Each process's part is proportional to its number of calls in flight plus one.
    """
    live = np.bincount(view.process, minlength=len(view.processes)) + 1.0
    return Orders(shares=dict(zip(view.processes, live.tolist(), strict=True)))


FLEET_POLICIES: Mapping[str, FleetPolicy] = {
    "affinity": affinity, "balance": balance, "hol": hol, "srtf": srtf, "lpt": lpt, "slack": slack, "shares": shares,
}  # fmt: skip
"""The policies by name."""
FUNCTION = "policy"
"""The default function of a policy file."""


def _ages(view: FleetView) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return how long calls have been running on each engine and on the other engines of its group.

    Returns:
        Three arrays of shape (number of engines,). The first is the mean age of the engine's running calls in seconds. The
        second is the mean age of running calls on the other engines of its group. A mean is 0 if there are no calls; an age
        is the time since the call was sent. The third is the relative standard error of the ratio first / second, assuming
        exponentially distributed durations.
    """
    running = view.state == LiveState.RUNNING
    calls, seconds = _by_engine(view, running.astype(float)), _by_engine(view, view.running_s * running)
    other_calls, other_seconds = _of_group(view, calls) - calls, _of_group(view, seconds) - seconds
    calls, other_calls = np.maximum(calls, 1.0), np.maximum(other_calls, 1.0)
    return seconds / calls, other_seconds / other_calls, np.sqrt(1.0 / calls + 1.0 / other_calls)


def _by_engine(view: FleetView, values: FloatArray) -> FloatArray:
    """Return for each engine the sum of ``values`` over its calls; shape (number of engines,).

    ``values`` has one value for each row (live call) of the view.
    """
    return np.bincount(view.engine, values, len(view.engines)).astype(float)  # without rows the result would have integer type


def _of_group(view: FleetView, by_engine: FloatArray) -> FloatArray:
    """Return for each engine the sum of ``by_engine`` over all engines of its group; shape (number of engines,)."""
    return np.bincount(view.group, by_engine, len(view.engines)).astype(float)[view.group]


def _is_replica(view: FleetView) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a mask of the engines that belong to a replica group; shape (number of engines,)."""
    return np.array([engine != group for engine, group in zip(view.engines, view.groups, strict=True)], bool)


def _named(view: FleetView, values: FloatArray, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[str, float]:
    return {view.engines[place]: float(values[place]) for place in np.flatnonzero(chosen).tolist()}


def _from_mean(seconds: FloatArray) -> FloatArray:
    """Return each value minus the mean of all values, for use as priorities of conversations.

    A conversation with an average value then has priority 0, like a conversation without orders.
    """
    return seconds - seconds.mean() if len(seconds) else seconds


def _known(seconds: FloatArray) -> FloatArray:
    """Return the seconds with each NaN replaced by the mean of the known values, or by 0 if no value is known."""
    unknown = np.isnan(seconds)
    return np.where(unknown, seconds[~unknown].mean() if not unknown.all() else 0.0, seconds)


# -- by name -----------------------------------------------------------------------------------------------------


def fleet_policy(text: str) -> FleetPolicy:
    """Return the policy that ``text`` names: one or more policies joined by ``+``, whose orders are combined.

    Args:
        text: names of built-in policies, or functions in Python files. For example ``slack+balance+shares``, ``my_policy.py``
            (the function ``policy`` in this file) or ``my_policy.py:mine+shares``.

    Raises:
        ConfigError: no policy has this name, or its file cannot be used.
    """
    names = [name.strip() for name in text.split("+")]
    if not all(names):
        raise ConfigError(f"policy {text!r} has an empty part: write names with + between them, as in slack+balance+shares")
    return combined(_one(name) for name in names)


def _one(name: str) -> FleetPolicy:
    file, _, function = name.rpartition(":") if ":" in name else (name, "", FUNCTION)
    if file.endswith(".py"):
        return _of_file(Path(file), function)
    if name in FLEET_POLICIES:
        return FLEET_POLICIES[name]
    near = get_close_matches(name, FLEET_POLICIES, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(f"unknown policy {name!r}: {meant}built in are {', '.join(FLEET_POLICIES)}; your own is a file FILE.py")


def _of_file(path: Path, function: str) -> FleetPolicy:
    if not path.is_file():
        raise ConfigError(f"policy file {str(path)!r} does not exist")
    spec = importlib.util.spec_from_file_location(f"vinelm_fleet_policy_{path.stem}", path)
    assert spec is not None  # a path that ends with .py always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with explained(lambda error: ConfigError(f"policy file {str(path)!r} cannot be imported: {type(error).__name__}: {error}")):
        spec.loader.exec_module(module)
    found: Any = getattr(module, function, None)
    if not callable(found):
        there = "no function" if found is None else f"a {type(found).__name__}, no function,"
        raise ConfigError(f"policy file {str(path)!r} has {there} {function!r}: define it, or name another as FILE.py:NAME")
    policy: FleetPolicy = found
    return policy
