"""Reads that are ready when an agent asks for them: VineLM's patterns against other guesses, on recorded sessions.

    python scripts/bench_speculation.py --data DIR --json

DIR has `airline.jsonl.gz`, `retail.jsonl.gz` and `bfcl.jsonl.gz`, one session a line, and `shell_times.csv.gz`, measured
seconds of a coding agent. Three folds by task: patterns are mined on two and judged on the third; figures are means over folds.
A write makes every result stale. Seconds are virtual: before each call the model thinks for a time drawn from the measured
ones, and tools take log-normal times, so that they have the stated share of both. "time" counts these; "time_with_answers" also
counts, with the same share, the model's seconds for what it says to the user in between, during which no call can come.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import create_model
from speculation_rivals import FrequentNgram, Markov, Nothing, PaperMiner, Perfect
from studies import Options, study

from vinelm.adapters.tools.declaring import declare_tool, declared_in
from vinelm.adapters.tools.read_ahead import ReadAhead
from vinelm.adapters.tools.tool_box import ToolBox
from vinelm.clock import WallClock
from vinelm.controller.speculation.start_rule import Room, decide
from vinelm.controller.speculation.worth import SecondWorth
from vinelm.estimator.patterns.patterns import mine, read_before_the_next_write
from vinelm.estimator.patterns.replay import Predictions, Replayed, folds_of, predictions, replay
from vinelm.estimator.patterns.session_state import SessionState
from vinelm.telemetry import ObserverGroup
from vinelm.tools.call import ToolEvent, canonical_key
from vinelm.tools.speculation import Speculation, ToolCandidate

READS = {
    "airline": "get_user_details get_reservation_details search_direct_flight search_onestop_flight list_all_airports "
    "calculate",
    "retail": "find_user_id_by_name_zip find_user_id_by_email get_order_details get_product_details get_user_details "
    "list_all_product_types calculate",
    "bfcl": "get_zipcode_based_on_city get_stock_info get_flight_cost check_tire_pressure view_messages_sent estimate_distance "
    "get_order_details retrieve_invoice get_watchlist cat find_nearest_tire_shop diff ls liter_to_gallon get_account_info wc "
    "estimate_drive_feasibility_by_mileage compute_exchange_rate grep tail get_available_stocks find mean gallon_to_liter pwd "
    "displayCarStatus sort get_nearest_airport_by_city get_ticket verify_traveler_information list_all_airports logarithm du "
    "get_user_id standard_deviation get_outside_temperature_from_google get_current_time get_credit_card_balance "
    "get_symbol_by_name get_transaction_history get_user_tickets get_user_tweets get_tweet get_tweet_comments search_messages",
}
MINER = "paper's miner"
NEITHER = "think"
"""A call that neither reads nor writes: it counts as a call, and that is all."""
SHARES = (0.36, 0.50, 0.60)
SPEEDS = (0.5, 1.0, 2.0)
"""Factors of the model's seconds, for a quicker and a slower model under the same tools."""
DRAWS = 5
"""How often the seconds of a session are drawn."""
SPREAD = 0.6
"""Standard deviation of the logarithm of tool seconds."""
SWEEP = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.42, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8)
EQUAL = (0.12, 0.16, 0.2, 0.24, 0.28, 0.32)
"""Speculations for each call at which all are compared; the last is what the paper's miner guesses on retail."""
LEAST = Speculation().least_probability


class Recorded(NamedTuple):
    """One session: its task, its events, and before each the calls (itself, and those that are NEITHER) and the answers."""

    task: str
    events: list[str | ToolEvent]
    calls: list[int]
    answers: list[int]

    @property
    def neither(self) -> int:
        """Calls that are no events."""
        return sum(self.calls) - sum(isinstance(event, ToolEvent) for event in self.events)


def load(path: Path) -> list[Recorded]:
    found = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            events: list[str | ToolEvent] = []
            calls, answers = [0], [0]
            for event in row["events"]:
                if event["kind"] == "say":
                    answers[-1] += 1
                    continue
                calls[-1] += event["kind"] == "call"
                if event["kind"] == "user":
                    events.append(event["text"])
                elif event["tool"] == NEITHER:
                    continue
                else:
                    key = canonical_key(event["tool"], event["args"])
                    known = {"is_ok": event["ok"], "arguments": event["args"], "result": event["result"]}
                    events.append(ToolEvent(request_id=row["task"], seq=len(events), tool=event["tool"], key=key, **known))
                calls.append(0)
                answers.append(0)
            found.append(Recorded(row["task"], events, calls[:-1], answers[:-1]))
    return found


def timed(one: Recorded, model_s: Sequence[float], tool_s: float, seed: str, *, answers: bool) -> tuple[Any, dict[int, float]]:
    """The session with virtual seconds, tools of ``tool_s`` in the mean, and when its messages came."""
    rng = random.Random(seed)
    now, events, messages = 0.0, [], {}
    for at, event in enumerate(one.events):
        now += sum(rng.choice(model_s) for _ in range(one.calls[at] + answers * one.answers[at]))
        if isinstance(event, str):
            messages[at] = now
            events.append(event)
        else:
            end = now + rng.lognormvariate(math.log(tool_s) - SPREAD**2 / 2, SPREAD)
            events.append(replace(event, started_s=now, ended_s=end))
            now = end
    return events, messages


def tool_mean_s(sessions: Sequence[Recorded], model_s: Sequence[float], share: float, *, answers: bool) -> float:
    """Mean seconds of a tool that give tools this share of all seconds."""
    steps = sum(sum(one.calls) + answers * sum(one.answers) for one in sessions)
    calls = sum(sum(isinstance(event, ToolEvent) for event in one.events) for one in sessions)
    return sum(model_s) / len(model_s) * steps / calls * share / (1.0 - share)


def point(sums: Sequence[Replayed]) -> dict[str, float]:
    """Means over folds."""
    n = len(sums)
    return {
        "ready": sum(one.ready_share for one in sums) / n,
        "speculations_per_call": sum(one.speculations_per_call for one in sums) / n,
        "precision": sum(one.precision for one in sums) / n,
        "repeats": sum(one.repeats / max(1, one.reads) for one in sums) / n,
    }


Predictor = Callable[[Any], Predictions]


def judged(app: str, sessions: Sequence[Recorded], model_s: Sequence[float]) -> dict[str, Any]:
    reads = frozenset(READS[app].split())
    tasks = [one.task for one in sessions]
    sweeps: dict[str, dict[float, list[Replayed]]] = {}
    times: dict[bool, dict[str, dict[float, list[Replayed]]]] = {False: {}, True: {}}
    by_speed: dict[float, list[Replayed]] = {}
    said: list[tuple[float, bool]] = []
    mined = []
    for kept, held in folds_of(tasks):
        known = [sessions[at].events for at in kept]
        started = time.process_time()
        patterns = mine(known, reads, groups=[tasks[at] for at in kept])
        mined.append({"sets": len(patterns.sets), "sessions": len(kept), "mine_s": time.process_time() - started})
        predictors: dict[str, Predictor] = {
            "VineLM": lambda session, patterns=patterns: predictions(patterns, session),
            MINER: PaperMiner(known, reads).predictions,
            "Markov-1": Markov(known, reads, 1).predictions,
            "Markov-2": Markov(known, reads, 2).predictions,
            "frequent n-gram": FrequentNgram(known, reads).predictions,
            "result cache": Nothing().predictions,
            "perfect, arguments seen": Perfect(reads, is_bound=True).predictions,
            "perfect": Perfect(reads, is_bound=False).predictions,
        }
        for name, predictor in predictors.items():
            found = [predictor(sessions[at].events) for at in held]
            if name == "VineLM":
                for speed in SPEEDS:
                    by_speed.setdefault(speed, []).append(at_speed(speed, held, sessions, found, model_s, reads))
                said += reliability(found, [sessions[at].events for at in held], reads)
            for least in SWEEP:
                sums = sum((counted(sessions[at], one, reads, least) for at, one in zip(held, found, strict=True)), Replayed())
                sweeps.setdefault(name, {}).setdefault(least, []).append(sums)
            for share, answers in itertools.product(SHARES, (False, True)):
                tool_s = tool_mean_s(sessions, model_s, share, answers=answers)
                sums = Replayed()
                for (at, one), draw in itertools.product(zip(held, found, strict=True), range(DRAWS)):
                    events, messages = timed(sessions[at], model_s, tool_s, f"{app} {at} {draw}", answers=answers)
                    sums += replay(events, one, reads, messages_s=messages)
                times[answers].setdefault(name, {}).setdefault(share, []).append(sums)
    return {
        "sessions": len(sessions),
        "tasks": len(set(tasks)),
        "mined": mined,
        "at_default": {name: point(by[LEAST]) for name, by in sweeps.items()},
        "folds": [one_fold(one) for one in sweeps["VineLM"][LEAST]],
        "sweep": {name: {f"{least:g}": point(sums) for least, sums in by.items()} for name, by in sweeps.items()},
        "at_equal_speculations": {f"{x:g}": {name: at_most(by, x) for name, by in sweeps.items()} for x in EQUAL},
        **{
            key: {name: {f"{share:g}": shortened(sums) for share, sums in by.items()} for name, by in times[answers].items()}
            for key, answers in (("time", False), ("time_with_answers", True))
        },
        "reliability": bins(said),
        "by_model_speed": {
            f"{speed:g}": {"model_s": per_call(sums, "model_s"), "saved_s": per_call(sums, "saved_s")}
            for speed, sums in by_speed.items()
        },
    }


def at_speed(  # noqa: PLR0917 - what a replay needs
    speed: float,
    held: Sequence[int],
    sessions: Sequence[Recorded],
    found: Sequence[Predictions],
    model_s: Sequence[float],
    reads: frozenset[str],
) -> Replayed:
    """A model that takes ``speed`` times the measured seconds, under tools that have half of the time at 1."""
    tool_s, slower, sums = tool_mean_s(sessions, model_s, 0.5, answers=False), [speed * one for one in model_s], Replayed()
    for at, one in zip(held, found, strict=True):
        events, messages = timed(sessions[at], slower, tool_s, f"{at}", answers=False)
        sums += replay(events, one, reads, messages_s=messages)
    return sums


def per_call(folds: Sequence[Replayed], seconds: str) -> float:
    """Seconds for each call of a tool, over all folds."""
    return float(sum(getattr(one, seconds) for one in folds) / sum(one.calls for one in folds))


def one_fold(sums: Replayed) -> dict[str, float]:
    return {"ready": sums.ready_share, "speculations_per_call": sums.speculations_per_call, "precision": sums.precision}


def counted(one: Recorded, found: Predictions, reads: frozenset[str], least: float) -> Replayed:
    sums = replay(one.events, found, reads, least=least, at_once=10**6)
    sums.calls += one.neither
    return sums


def at_most(by: Mapping[float, Sequence[Replayed]], most: float) -> float:
    """Ready at ``most`` speculations for each call: on the line between the two nearest points of the sweep."""
    points = sorted((p["speculations_per_call"], p["ready"]) for p in map(point, by.values()))
    unguessed = point(next(iter(by.values())))["repeats"]
    below = max([(0.0, unguessed), *(p for p in points if p[0] <= most)], key=lambda p: p[1])
    above = [p for p in points if p[0] > most]
    if not above:
        return below[1]
    nearest = min(above)
    share = (most - below[0]) / (nearest[0] - below[0])
    return max(below[1], below[1] + share * (nearest[1] - below[1]))


def shortened(sums: Sequence[Replayed]) -> dict[str, float]:
    """Time with speculation over time without, means over folds, and what share of the time the tools have."""
    n = len(sums)
    return {
        "time": sum(1.0 - one.saved_s / one.total_s for one in sums) / n,
        "tool_share": sum(one.tool_s for one in sums) / sum(one.total_s for one in sums),
    }


def reliability(found: Iterable[Predictions], sessions: Iterable[Any], reads: frozenset[str]) -> list[tuple[float, bool]]:
    said = []
    for predicted, session in zip(found, sessions, strict=True):
        for at, here in enumerate(predicted):
            coming = read_before_the_next_write(session[at + 1 :], reads)
            said += [(one.probability, canonical_key(one.tool, one.arguments) in coming) for one in here]
    return said


def bins(said: Sequence[tuple[float, bool]]) -> list[dict[str, float]]:
    found = []
    for low in range(10):
        inside = [(p, hit) for p, hit in said if min(int(10 * p), 9) == low]
        if inside:
            n = len(inside)
            found.append({"said": sum(p for p, _ in inside) / n, "happened": sum(hit for _, hit in inside) / n, "n": n})
    return found


def shell(path: Path) -> tuple[dict[str, Any], list[float]]:
    """What the shell trace says, and its model seconds."""
    sums, before, now, events = Replayed(), None, 0.0, []
    model_s = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in [*csv.DictReader(lines), None]:
            if row is None or row["session"] != before:
                sums += replay(events, [[] for _ in events], frozenset(("read",)))
                events, now, before = [], 0.0, row and row["session"]
            if row is not None:
                if row["model_s"]:
                    model_s.append(float(row["model_s"]))
                now += float(row["model_s"] or 0.0)
                tool = "read" if row["read_only"] == "1" else "write"
                ended = now + float(row["tool_s"])
                key = f"{row['session']}/{row['step']}"
                events.append(ToolEvent(request_id=row["session"], seq=len(events), tool=tool, key=key, is_ok=True,
                                        started_s=now, ended_s=ended))  # fmt: skip
                now = ended
    says = {"calls": sums.calls, "reads": sums.reads, "read_share_of_tool_s": sums.read_s / sums.tool_s}
    return {**says, "verdict": sums.nothing_to_gain or "there may be something to gain"}, model_s


def overhead(recorded: Mapping[str, Sequence[Recorded]]) -> dict[str, float]:
    """Processor milliseconds of what comes before each call of a model, with the patterns of two applications together.

    "runtime" is all that a service does: it reads what is new in the conversation, guesses, looks which guesses are there
    already, and decides. "candidates" are the guesses alone, "decide" the decision alone.
    """
    sessions = [one for app in ("airline", "bfcl") for one in recorded[app]]
    events, tasks = [one.events for one in sessions], [one.task for one in sessions]
    reads = frozenset(" ".join(READS.values()).split())
    patterns = mine(events, reads, groups=tasks)
    box = ToolBox(ObserverGroup(), "raise")
    box.candidates, box.runs_ahead = patterns, False
    made: dict[str, BaseTool] = {}
    for name in sorted({one.tool for session in events for one in session if isinstance(one, ToolEvent)} & reads):
        made[name] = declare_tool(box, lambda: None, _tool(name, events), read_only=True)
    known = {name: one for name, tool in made.items() if (one := declared_in(box, tool)) is not None}
    room, settings, worth = Room(think_s=5.0), Speculation(), SecondWorth(math.inf, "")
    took: dict[str, list[float]] = {"runtime": [], "candidates": [], "decide": []}

    def choose(found: Sequence[ToolCandidate], settings: Speculation, **_: Any) -> Sequence[ToolCandidate]:
        return decide(found, {}, worth, room, settings).candidates

    for session in events:
        seen = SessionState(patterns.reads)
        memory = ReadAhead(box, lambda: None, WallClock(), started_at=0.0, request_id="", speculation=settings)
        messages: list[BaseMessage] = []
        for event in session:
            seen.add(event)
            messages += _messages(event, len(messages))
            marks = [time.process_time()]
            found = patterns.candidates_of(seen)
            marks.append(time.process_time())
            decide(found, {}, worth, room, settings)
            marks.append(time.process_time())
            memory.speculate(messages, choose, known)
            marks.append(time.process_time())
            for name, (begun, ended) in zip(("candidates", "decide", "runtime"), itertools.pairwise(marks), strict=True):
                took[name].append(1000.0 * (ended - begun))
    return {"sets": len(patterns.sets)} | {
        f"{name}_ms_{cut}": sorted(some)[int(at * len(some))]
        for name, some in took.items()
        for cut, at in (("median", 0.5), ("p95", 0.95))
    }


def _tool(name: str, sessions: Iterable[Sequence[str | ToolEvent]]) -> StructuredTool:
    """A tool that takes the arguments with which it was recorded."""
    calls = [one for session in sessions for one in session if isinstance(one, ToolEvent) and one.tool == name]
    fields: dict[str, Any] = {key: (Any, None) for one in calls for key in one.arguments or {}}
    return StructuredTool(name=name, description=name, args_schema=create_model(name, **fields), func=lambda **_: None)


def _messages(event: str | ToolEvent, at: int) -> list[BaseMessage]:
    if isinstance(event, str):
        return [HumanMessage(event)]
    call = {"name": event.tool, "args": dict(event.arguments or {}), "id": str(at)}
    status = "success" if event.is_ok else "error"
    return [AIMessage("", tool_calls=[call]), ToolMessage(json.dumps(event.result), tool_call_id=str(at), status=status)]


def show(figures: Mapping[str, Any]) -> None:
    for app, one in figures["apps"].items():
        print(f"{app}: {one['sessions']} sessions, {one['tasks']} tasks")
        for name, p in one["at_default"].items():
            times = ", ".join(f"x {t['time']:.3f}" for t in one["time"][name].values())
            longer = ", ".join(f"x {t['time']:.3f}" for t in one["time_with_answers"][name].values())
            print(f"  {name:24} {p['ready']:.1%} ready at {p['speculations_per_call']:.2f} a call "
                  f"(precision {p['precision']:.2f}); time {times}; with answers {longer}")  # fmt: skip
        for x, by in one["at_equal_speculations"].items():
            print(f"  at {x} a call: VineLM {by['VineLM']:.1%}, Markov-2 {by['Markov-2']:.1%}, miner {by[MINER]:.1%}")
        print("  said/happened: " + ", ".join(f"{b['said']:.2f}/{b['happened']:.2f} ({b['n']})" for b in one["reliability"]))
    print(f"shell: {figures['shell']['verdict']}")
    print("overhead: " + ", ".join(f"{name} {value:.3g}" for name, value in figures["overhead"].items()))


def main() -> int:
    return study(__doc__, {}, measured, show, data="the recorded sessions")


def measured(options: Options) -> dict[str, Any]:
    shell_says, model_s = shell(options.data / "shell_times.csv.gz")
    recorded = {app: load(options.data / f"{app}.jsonl.gz") for app in READS}
    return {
        "least_probability": LEAST,
        "model_s": {"mean": sum(model_s) / len(model_s), "steps": len(model_s)},
        "apps": {app: judged(app, sessions, model_s) for app, sessions in recorded.items()},
        "shell": shell_says,
        "overhead": overhead(recorded),
    }


if __name__ == "__main__":
    sys.exit(main())
