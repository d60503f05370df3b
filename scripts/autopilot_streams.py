"""What an autopilot saves, loses and asks on streams of requests whose answers real models have recorded.

    python scripts/autopilot_streams.py --data ../shared/data --streams 100 --results results/autopilot.json

A stream is 20,000 requests of one step, drawn from a table with replacement, so that the table's means are the truth. Today's
model is the strongest of the table; the autopilot knows no label at the start. It records what runs today, asks up to five
cheaper models the recorded prompts, races plans over their answers (`vinelm.proof`), asks persons where the leader differs
(they know the recorded score), and raises what is proven (`vinelm.autopilot.raising`). The race and the levels are those of the
product; how calls are made is not part of the study (`proof_parts/streams.py`).

Of agents' runs and of code tasks (`--tables swe,livecodebench`) the answers are not kept: two that solve a task are the same,
others differ, and no plan can know whether two agree.

- *plain*: nothing changes. Savings are over those of the best plan that loses nothing and differs in at most 6 % of the
  requests (9 % where there is none).
- *swap*: at request 10,000 the provider puts the weakest model of the table in the place of the one that the serving plan
  asks most. How long does it serve on, where it now loses more than allowed?
- *profile first*: all models are asked the first 100 requests, which are labelled; then the plan that saves most of those that
  seem to lose nothing serves all requests; or only one whose loss is excluded at 95 %, as if it were the only one.
- *canary by hand*: the plan that differs least in 150 recorded requests goes to 25 % of the requests, until 100 answers are
  labelled; it serves all of them unless it is shown to be worse.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from proof_parts.plans import RECORDS, Plans, load_sources
from proof_parts.streams import Pilot, Source, figures
from studies import Options, each, study, table

from vinelm.replay.replaying import CHOOSING

REQUESTS = 20_000
SWAP_AT = 10_000
MAX_LOSS = 0.02
FEW, MANY = 100, 300
LOSSLESS = 0.003
SAVED = 0.2
BLOCK = 10
"""Streams of a cell."""
Z = 1.645
MOVES = 0.05
"""Escalations move where their share changes by so much."""


@dataclass(frozen=True)
class Cell:
    """Some streams of one table."""

    source: str
    part: str
    labels: int
    first: int


def best_of(plans: Plans) -> tuple[float, float]:
    """The most that a plan without loss saves, and how much it may differ; NaN without any."""
    for most in (0.06, 0.09):
        kept = (plans.diff() >= -LOSSLESS) & (plans.saved() >= SAVED) & (plans.differing() <= most)
        if kept.any():
            return float(plans.saved()[kept].max()), most
    return math.nan, math.nan


def measure_cell(cell: Cell, *, sources: Mapping[str, Source], streams: int) -> dict[str, Any]:
    """What the streams of a cell show."""
    source, rows = sources[cell.source], []
    best, most = best_of(source.plans)
    for seed in range(cell.first, min(cell.first + BLOCK, streams)):
        if cell.part == "rivals":
            rows.append(rivals(source.plans, seed))
            continue
        at = SWAP_AT if cell.part == "swap" else None
        pilot = Pilot(source, requests=REQUESTS, labels=cell.labels, max_loss=MAX_LOSS, seed=seed, swap_at=at)
        flight = pilot.fly()
        found = figures(flight, source.plans, best)
        if at is not None:
            found = {"swap": swapped(source, pilot, int(flight.plan[at - 1]))}
        rows.append(found)
    return {"table": cell.source, "part": cell.part, "labels": cell.labels, "best": best, "differing": most, "streams": rows}


def swapped(source: Source, pilot: Pilot, at: int) -> dict[str, Any] | None:
    """How long the plan that served as a model was swapped went on, if it loses more than allowed from then on."""
    if at < 0:
        return None
    alarm = next((when - SWAP_AT for when, _ in pilot.flight.alarms if when >= SWAP_AT), None)
    before, after = source.plans, pilot.plans
    moved = abs(float(after.escalates[:, at].mean()) - float(before.escalates[:, at].mean()))
    loss = -float(after.diff()[at])
    again = min((diff_after(after, plan) for when, plan, _ in pilot.flight.proofs if when >= SWAP_AT), default=0.0)
    return {"alarm": alarm, "moves": moved >= MOVES, "is_bad": loss > MAX_LOSS, "loss": loss, "again": again}


def diff_after(after: Plans, plan: int) -> float:
    """The true score of a plan less today's, after the swap."""
    return float(after.diff()[plan])


def rivals(plans: Plans, seed: int) -> dict[str, Any]:
    """What the two other ways serve in the end: the share saved, and the score less today's."""
    rng = np.random.default_rng([seed, 56])
    rows = rng.integers(0, len(plans.same), CHOOSING)
    saved, seen = plans.saved(), plans.score[rows[:FEW]]
    mean = seen.mean(axis=0)
    low = mean - Z * seen.std(axis=0) / FEW**0.5
    found = {}
    for name, passes in (("seems to lose nothing", mean >= 0.0), ("proven", low > -MAX_LOSS)):
        kept = passes & (saved >= SAVED)
        at = int(np.where(kept, saved, -1.0).argmax()) if kept.any() else -1
        found[f"profile first, {name}"] = [float(saved[at]), float(plans.diff()[at])] if at >= 0 else [0.0, 0.0]
    same = plans.same[rows].mean(axis=0)
    wanted = np.where(saved >= SAVED, same + 1e-6 * saved, -1.0)
    at = int(wanted.argmax())
    # Of 100 labelled answers a quarter is the plan's; two means are compared.
    right = rng.integers(0, len(plans.same), (2, FEW))
    own = plans.score[right[0, : FEW // 4], at]
    is_worse = own.mean() + Z * max(own.std(), 1e-9) / (FEW // 4) ** 0.5 < 0.0
    found["canary by hand"] = [0.0, 0.0] if wanted[at] < 0.0 or is_worse else [float(saved[at]), float(plans.diff()[at])]
    return {"ways": found}


def measure(options: Options) -> dict[str, Any]:
    tables = tuple(options.tables.split(","))
    sources = {name: Source(*found) for name, found in load_sources(options.data, tables).items()}
    parts = [("plain", FEW), ("plain", MANY), ("swap", MANY), ("rivals", FEW)]
    cells = [
        Cell(name, part, labels, first)
        for part, labels in parts
        for first in range(0, options.streams, BLOCK)
        for name in sources
    ]
    work = partial(measure_cell, sources=sources, streams=options.streams)
    found = list(each(work, cells, jobs=options.jobs, told="blocks of streams", kept=options.kept))
    rows = [one for part, labels in parts for name in sources if (one := summed(found, name, part, labels)) is not None]
    return {"streams": options.streams, "requests": REQUESTS, "max_loss": MAX_LOSS, "rows": rows, "goals": goals(rows)}


def summed(found: list[dict[str, Any]], name: str, part: str, labels: int) -> dict[str, Any] | None:
    mine = [one for one in found if (one["table"], one["part"], one["labels"]) == (name, part, labels)]
    streams = [stream for one in mine for stream in one["streams"]]
    if not streams:
        return None
    row = {key: mine[0][key] for key in ("table", "part", "labels", "best", "differing")} | {"streams": len(streams)}
    if part == "rivals":
        ways: dict[str, list[list[float]]] = {}
        for stream in streams:
            for way, pair in stream["ways"].items():
                ways.setdefault(way, []).append(pair)
        row["ways"] = {
            way: {
                "saved": float(np.mean([one for one, _ in pairs])),
                "above": float(np.mean([diff < -MAX_LOSS for _, diff in pairs])),
                "serves": float(np.mean([one > 0.0 for one, _ in pairs])),
            }
            for way, pairs in ways.items()
        }
        return row
    if part == "swap":
        there = [one["swap"] for one in streams if one["swap"] is not None]
        bad = [one for one in there if one["is_bad"]]
        for kind, kept in (
            ("moving", [one for one in bad if one["moves"]]),
            ("still", [one for one in bad if not one["moves"]]),
        ):
            delays = [math.inf if one["alarm"] is None else float(one["alarm"]) for one in kept]
            row |= {kind: len(kept), f"{kind}_50": quantile(delays, 0.5), f"{kind}_90": quantile(delays, 0.9)}
        return row | {"again": float(np.mean([one["again"] < -MAX_LOSS for one in there])) if there else 0.0}
    for key in ("rate_5000", "net_1000", "net_5000", "net_20000", "labels_20000", "fee", "learning", "lost", "proven"):
        row[key] = float(np.mean([one[key] for one in streams]))
    row["first_proof"] = float(np.median([one["first_proof"] for one in streams]))
    row["false_alarms"] = float(np.mean([len(one["alarms"]) for one in streams]))
    row["violations"] = float(np.mean([one["worst"] < -MAX_LOSS for one in streams]))
    return row


def quantile(values: list[float], share: float) -> float | None:
    """The smallest value that this share of them does not exceed; None without any, or where it never comes."""
    found = sorted(values)[max(math.ceil(share * len(values)) - 1, 0)] if values else math.inf
    return found if math.isfinite(found) else None


def goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each goal, its worst table, and whether it is met."""
    found = []

    def goal(text: str, values: list[tuple[float, str]], bound: float, *, most: bool = True) -> None:
        if values:
            worst, where = (max if most else min)(values)
            found.append(
                {
                    "text": text,
                    "bound": bound,
                    "worst": worst,
                    "where": where,
                    "met": worst <= bound if most else worst >= bound,
                }
            )

    plain = [row for row in rows if row["part"] == "plain"]
    few = [row for row in plain if row["labels"] == FEW and row["differing"] == 0.06]
    for key, text, bound in (
        ("rate_5000", "rate of saving at request 5,000 over the best plan's", 0.5),
        ("net_5000", "net saving by request 5,000 over the best plan's", 0.3),
        ("net_20000", "net saving by request 20,000", 0.55),
    ):
        goal(f"{FEW} labels: {text}", [(row[key], row["table"]) for row in few], bound, most=False)
    goal("entry fee, in today's requests", [(row["fee"], row["table"]) for row in few], 200)
    many = [row for row in plain if row["labels"] == MANY and row["differing"] <= 0.09]
    goal(f"{MANY} labels: streams with a proof", [(row["proven"], row["table"]) for row in many], 0.85, most=False)
    goal("violations of the floor", [(row["violations"], f"{row['table']}, {row['labels']} labels") for row in plain], 0.05)
    swaps = [row for row in rows if row["part"] == "swap"]
    goal("a plan that loses too much is proven after a swap", [(row["again"], row["table"]) for row in swaps], 0.05)
    goal("false alarms in 20,000 requests", [(row["false_alarms"], row["table"]) for row in plain], 0.1)
    for kind, half, most in (("moving", 150, 500), ("still", 4000, 4000)):
        there = [row for row in swaps if row[kind]]
        word = "escalations move" if kind == "moving" else "they do not"
        for key, bound in (("50", half), ("90", most)):
            values = [(math.inf if row[f"{kind}_{key}"] is None else row[f"{kind}_{key}"], row["table"]) for row in there]
            goal(f"bad after a swap where {word}: requests until the alarm, {key} %", values, bound)
    return found


def plain(found: Any) -> Any:
    """The same for a file: what is not a finite number is null."""
    if isinstance(found, dict):
        return {name: plain(value) for name, value in found.items()}
    if isinstance(found, list):
        return [plain(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found


def lines(found: dict[str, Any]) -> Iterator[str]:
    rows = found["rows"]
    yield f"{found['streams']} streams of {found['requests']:,} requests, at most {100 * found['max_loss']:g} points lost\n"
    columns = {
        "table": "{table}", "labels": "{labels}", "best saves": "{best:.0%}", "proven": "{proven:.0%}",
        "at": "{first_proof:,.0f}", "fee": "{fee:.0f}", "rate 5k": "{rate_5000:.2f}", "net 1k": "{net_1000:.2f}",
        "5k": "{net_5000:.2f}", "20k": "{net_20000:.2f}", "asked": "{labels_20000:.0f}", "above": "{violations:.1%}",
    }  # fmt: skip
    yield from table([row for row in rows if row["part"] == "plain"], columns)
    yield "\nA model is swapped for a weaker one, and the plan loses too much: requests until the alarm"
    told = [{key: "-" if value is None else value for key, value in row.items()} for row in rows if row["part"] == "swap"]
    columns = {"table": "{table}", "escalations move": "{moving}", "50 %": "{moving_50}", "90 %": "{moving_90}"}
    columns |= {"do not": "{still}", "50 % ": "{still_50}", "90 % ": "{still_90}", "proven again": "{again:.0%}"}
    yield from table(told, columns)
    yield "\nOther ways, 100 labels"
    flat = [
        {"table": row["table"], "way": way} | one for row in rows if row["part"] == "rivals" for way, one in row["ways"].items()
    ]
    columns = {
        "table": "{table}",
        "way": "{way}",
        "serves": "{serves:.0%}",
        "saves": "{saved:.0%}",
        "loses too much": "{above:.0%}",
    }
    yield from table(flat, columns)
    yield "\nGoals"
    for goal in found["goals"]:
        met = "met" if goal["met"] else "missed"
        yield f"{met}: {goal['text']}: {goal['worst']:.3g}, goal {goal['bound']:g} ({goal['where']})"


def main() -> int:
    options = {
        "--streams": (100, "streams of each table"),
        "--jobs": (1, "processes"),
        "--tables": (",".join(RECORDS), "tables or records, separated by commas", {"metavar": "NAMES"}),
        "--kept": (Path, "file of the blocks so far: the same line takes up a run that ended early", {"metavar": "FILE"}),
    }
    about = "folder with outcomes/, mixed/, nl2sql/ and agents/; files that it lacks are left out"
    return study(__doc__, options, measure, lines, page=plain, data=about)


if __name__ == "__main__":
    sys.exit(main())
