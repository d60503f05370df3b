"""Dollars of a profile where providers have prompt caches: what marks, an order and waiting for a leader save, in 25 cells.

    python scripts/bench_profile_dollars.py --json --results results/profile-dollars.json
    python scripts/bench_profile_dollars.py --quick

A cell is a bundled workflow with prompts of S tokens that are the same for all requests and R tokens that are a request's own,
at the list prices of Claude (a write costs 1.25 times the input, a read a tenth) and of GPT-5 mini (automatic caches, a tenth).
Models are simulated. Each cell is measured twice.

"replay": the recorded calls of a whole profile, in its own order, again in virtual time under the providers' rules
(`dollars_parts/cache_rules.py`): nothing marked, static marked, everything marked, sorted by prefix, marked where somebody who
knew all calls would, some with leaders, and what VineLM's own code decides on that time. "bound" is a cache that never forgets
and is never cold. The same in every run.

"real": the first calls of the same profile by `vinelm.profiler.profile`, its backends, their SDKs and a local server with the
same rules, on time that passes faster (--scale): nothing marked and `cache_points = "auto"`. Dollars are those of the rows.

Percents are of the dollars without any cache.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dollars_parts.own_marks import OwnMarks
from dollars_parts.replay import Bill, Cell, Method, Prompt, Replay, Sent, bound_usd, prompts_of, reused
from dollars_parts.server import serving
from dollars_parts.workloads import Call, Load, Scaling, recorded, run_profile, scaled
from studies import Options, study

from vinelm.backends import create_backends
from vinelm.catalog import Catalog, Model, Price, find_price
from vinelm.profiler import ExecutionConfig
from vinelm.rows.observation import Observation

KEY_ENV = "VINELM_BENCH_KEY"
WORKERS = 8
REAL_CALLS = 420
"""Of nl2sql at 2 % that is the whole profile."""
LOADS = (
    Load("nl2sql", 0.02, 454),
    Load("nl2sql", 0.2, 200),
    Load("mathqa", 0.03, 638),
    Load("support", 0.05, 100),
)
LENGTHS = ((300, 1000), (500, 2000), (2000, 300), (2000, 4000), (6000, 1000))
LAYOUTS: Mapping[str, tuple[bool, ...]] = {"support": (False, True)}
"""Whether the static part is one for all stages; only of support is that measured as well."""
REAL = {("nl2sql", 0.02): ((2000, 300), (6000, 1000), (300, 1000)), ("support", 0.05): ((500, 2000),)}
"""Where profiles are real: the lengths of each workflow, of support with one static part for all stages."""


@dataclass(frozen=True)
class Family:
    """A provider's kind of cache, and its prices."""

    name: str
    provider: str
    priced_as: str
    is_marked: bool

    @property
    def price(self) -> Price:
        """Its list price."""
        found = find_price(self.provider, self.priced_as)
        assert found is not None
        return found.price.model_copy(update={"long_prompts": ()})


FAMILIES = (
    Family("claude", "anthropic", "claude-sonnet-4-5", is_marked=True),
    Family("automatic", "openai", "gpt-5-mini", is_marked=False),
)
METHODS: Mapping[bool, Mapping[str, Method]] = {
    True: {
        "nothing": Method(),
        "static": Method((0,)),
        "everything": Method((0, 1, 2)),
        "sorted": Method((0, 1), is_sorted=True),
        "static_leaders": Method((0,), leads=True),
        "sorted_leaders": Method((0, 1), is_sorted=True, leads=True),
    },
    False: {
        "nothing": Method(),
        "sorted": Method(is_sorted=True),
        "leaders": Method(leads=True),
        "sorted_leaders": Method(is_sorted=True, leads=True),
    },
}
LENGTHS_OF_RIVALS = (2000, 300)
"""Where the rivals are real profiles, too, of an application that sets the marks itself: they show what a replay is worth."""
NOT_COMPARED = ("cost_usd", "latency_s", "tool_latency_s", "tokens_cached", "ttft_s", "in_flight")
"""Of a row, what a cache may change; shapes' columns begin with ``prompt_tokens_``."""


def saved(usd: float, base_usd: float) -> float:
    return round(100.0 * (1.0 - usd / base_usd), 9) + 0.0  # sums in another order differ in their last bits


# -- replays in virtual time -------------------------------------------------------------------------------------------


def replayed(calls: Sequence[Call], scaling: Scaling, family: Family) -> dict[str, Any]:
    """Every method's bill in one cell."""
    prompts, price = prompts_of(calls, scaling), family.price
    base_usd = sum(price.cost_usd(one.tokens, one.call.tokens_out) for one in prompts)
    bills = {name: _bill(prompts, family, method) for name, method in METHODS[family.is_marked].items()}
    for name, leads in (("vinelm_auto", True), ("vinelm_auto_without_leaders", False)):
        models = {one.call.prefix[-1] for one in prompts}
        own = OwnMarks(models, price, takes_marks=family.is_marked, leads=leads)
        bills[name] = Replay(prompts, price, Method(), is_marked=family.is_marked, own=own).run()
    if family.is_marked:
        known = reused(prompts, bills["nothing"].began_s)
        bills["reused"] = _bill(prompts, family, Method(sent=known))
        bills["reused_leaders"] = _bill(prompts, family, Method(sent=known, leads=True))
    return {
        "calls": len(calls),
        "dollars": {name: bill.usd for name, bill in bills.items()} | {"without_cache": base_usd},
        "saved_percent": {name: saved(bill.usd, base_usd) for name, bill in bills.items()}
        | {"bound": saved(bound_usd(prompts, price), base_usd)},
        "elapsed_ratio": {name: bill.elapsed_s / bills["nothing"].elapsed_s for name, bill in bills.items()},
        "waited": {name: bill.waited for name, bill in bills.items() if bill.waited},
    }


def _bill(prompts: Sequence[Prompt], family: Family, method: Method) -> Bill:
    return Replay(prompts, family.price, method, is_marked=family.is_marked).run()


# -- real profiles -----------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """Who marks a prompt: the application these parts, or VineLM by this setting."""

    marks: tuple[int, ...] = ()
    cache_points: str | None = None


class Bench:
    """Profiles on a local provider. ``most_calls`` ends each; 0 for as many as were recorded."""

    def __init__(self, url: str, scale: float, folder: Path, most_calls: int) -> None:
        self._url, self._scale, self._folder, self._most = url, scale, folder, most_calls
        self._numbers = itertools.count()

    def cell(self, load: Load, scaling: Scaling | None, family: Family, calls: Sequence[Call]) -> dict[str, Any]:
        """What each method really pays, and whether its rows are those of nothing marked.

        Time is the provider's, from the first call to the end of the last: what loading takes is left out.
        """
        asked = {"nothing": Way(), "vinelm_auto": Way(cache_points="auto")}
        if family.is_marked and scaling is not None and (scaling.static, scaling.request) == LENGTHS_OF_RIVALS:
            asked |= {"static": Way((0,)), "everything": Way((0, 1, 2)), "vinelm_static": Way(cache_points="static")}
        most = min(self._most or len(calls), len(calls))
        done = {name: self._profile(load, scaling, family, way, most) for name, way in asked.items()}
        rows, elapsed_s, _ = done["nothing"]
        price = family.price
        base_usd = sum(price.cost_usd(row.tokens_in or 0, row.tokens_out or 0) for row in rows)
        dollars = {name: sum(row.cost_usd for row in some) for name, (some, _, _) in done.items()}
        if "vinelm_auto" in done and scaling is not None:
            dollars["vinelm_auto_without_leaders"] = _without_leaders(calls, scaling, family, done["vinelm_auto"][2])
        return {
            "calls": len(rows),
            "dollars": dollars | {"without_cache": base_usd},
            "saved_percent": {name: saved(usd, base_usd) for name, usd in dollars.items()},
            "elapsed_ratio": {name: some_s / elapsed_s for name, (_, some_s, _) in done.items()},
            "rows_equal": {name: compared(some) == compared(rows) for name, (some, _, _) in done.items()},
        }

    def _profile(
        self, load: Load, scaling: Scaling | None, family: Family, way: Way, most_calls: int
    ) -> tuple[list[Observation], float, list[dict[str, Any]]]:
        run = f"run{next(self._numbers)}"
        catalog = self._catalog(load, family, run, way.cache_points)
        workflow = scaled(load, scaling and replace(scaling, marks=way.marks))
        backends = create_backends(catalog)
        rows = run_profile(
            workflow,
            catalog,
            backends,
            self._folder / f"{run}.db",
            budget_calls=most_calls,
            execution=ExecutionConfig(isolation="thread", workers=WORKERS),
        )
        with urllib.request.urlopen(f"{self._url}/{run}") as answer:
            told = json.load(answer)
        return rows, max(it["ended_s"] for it in told) - min(it["began_s"] for it in told), told

    def _catalog(self, load: Load, family: Family, run: str, cache_points: str | None) -> Catalog:
        """The workflow's models, each on an engine of its own and so with a cache of its own."""
        price = family.price.model_copy(update={"cache_ttl_s": 300.0 / self._scale})
        tail = "" if family.is_marked else "/v1"
        more: dict[str, Any] = {} if cache_points is None else {"cache_points": cache_points}
        return Catalog(
            Model(
                name=name,
                provider=family.provider,
                model_id=name,
                engine=name,
                price=price,
                api_base=f"{self._url}/{run}/{name}{tail}",
                api_key_env=KEY_ENV,
                max_tokens=8192,
                **more,
            )
            for name in load.models()
        )


def compared(rows: Sequence[Observation]) -> list[dict[str, Any]]:
    """What two profiles of the same cells must have in common, bit for bit."""
    names = [name for name in Observation.__slots__ if name not in NOT_COMPARED and not name.startswith("prompt_tokens_")]
    found = [{name: getattr(row, name) for name in names} for row in rows]
    return sorted(found, key=lambda row: (row["request_id"], row["prefix"]))


def _without_leaders(calls: Sequence[Call], scaling: Scaling, family: Family, told: Sequence[Mapping[str, Any]]) -> float:
    """The dollars of the same marks and keys in virtual time, where nobody waits: what is missing is what leaders save."""
    sent: dict[Cell, Sent] = {(it["request"], tuple(it["prefix"])): (tuple(it["marks"]), it["key"]) for it in told}
    made = [call for call in calls if (call.request, call.prefix) in sent]
    return _bill(prompts_of(made, scaling), family, Method(sent=sent)).usd


# -- the whole ---------------------------------------------------------------------------------------------------------


def cells(*, is_quick: bool) -> list[tuple[Load, bool, int, int]]:
    """(workflow, whether its static part is one for all stages, S, R) of each cell."""
    if is_quick:
        load = Load("nl2sql", 0.2, 20)
        return [(load, False, 2000, 300), (load, False, 300, 1000)]
    layouts = [(load, common) for load in LOADS for common in LAYOUTS.get(load.workflow, (False,))]
    return [(load, common, static, request) for load, common in layouts for static, request in LENGTHS]


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What VineLM's own marks and leaders save: in replays of whole profiles, in the real ones, and if all calls were known."""

    def of(how: str, method: str, family: str, **want: Any) -> list[float]:
        some = [it for it in found if it["family"] == family and all(it[key] == value for key, value in want.items())]
        return [it[how]["saved_percent"][method] for it in some if method in it.get(how, {}).get("saved_percent", ())]

    def gain(how: str, method: str) -> float | None:
        pairs = zip(of(how, method, "automatic", **SUPPORT_LONG), of(how, "nothing", "automatic", **SUPPORT_LONG), strict=False)
        return max((one - other for one, other in pairs), default=None)

    def figures(how: str, marked: str, automatic: str) -> dict[str, Any]:
        long = of(how, marked, "claude", static=6000, request=1000)
        own = {"claude": marked, "automatic": automatic}
        against = [
            saved(it[how]["dollars"][own[it["family"]]], it[how]["dollars"]["nothing"])
            for it in found
            if own[it["family"]] in it.get(how, {}).get("dollars", ())
        ]
        ratios = [it[how]["elapsed_ratio"].get(own[it["family"]]) for it in found if how in it]
        return {
            "claude_2000_300_saved_percent": min(of(how, marked, "claude", static=2000, request=300), default=None),
            "claude_6000_1000_mean": sum(long) / len(long) if long else None,
            "claude_6000_1000_min": min(long, default=None),
            "support_500_2000_leaders": max(of(how, marked, "claude", **SUPPORT_LONG), default=None),
            "automatic_gain_points": gain(how, automatic),
            "worst_cell_percent": min(against, default=None),
            "elapsed_ratio": max((ratio for ratio in ratios if ratio is not None), default=None),
        }

    equal = [is_equal for it in found for is_equal in it.get("real", {}).get("rows_equal", {}).values()]
    return {
        **figures("replay", "vinelm_auto", "vinelm_auto"),
        "rows_bit_equal": all(equal) if equal else None,
        "support_500_2000_bound_points": gain("replay", "bound"),
        "real": figures("real", "vinelm_auto", "vinelm_auto"),
        "known_in_advance": figures("replay", "reused_leaders", "leaders"),
    }


def table(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Percents saved by replays, a row for each workflow and its lengths: what a page quotes."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for it in found:
        lengths = f"{it['static']:,} + {it['request']:,}"
        row = rows.setdefault((it["title"], lengths), {"workflow": it["title"], "lengths": lengths})
        row[it["family"]] = it["replay"]["saved_percent"]
    return list(rows.values())


SUPPORT_LONG = {"workflow": "support", "static": 500, "request": 2000}


def is_real(load: Load, scaling: Scaling) -> bool:
    """Whether a cell is measured by real profiles unless all are."""
    lengths = REAL.get((load.workflow, load.coverage), ())
    return (scaling.static, scaling.request) in lengths and scaling.is_common == (load.workflow in LAYOUTS)


def measure(options: Options, folder: Path) -> dict[str, Any]:
    """All cells; prints a line of each as it comes, unless the output is JSON."""
    asked = cells(is_quick=options.quick)
    if options.only:
        asked = [it for it in asked if it[0].workflow in options.only]
    orders: dict[Load, list[Call]] = {}
    found: list[dict[str, Any]] = []
    with serving(options.scale) as url:
        bench = Bench(url, options.scale, folder, options.real_calls)
        for load, common, static, request in asked:
            if load not in orders:
                orders[load] = recorded(load, folder)
            for family in FAMILIES:
                scaling = Scaling(static, request, common)
                cell: dict[str, Any] = {
                    "workflow": load.workflow,
                    "title": load.title + (", one system prompt" if common else ""),
                    "static": static,
                    "request": request,
                    "family": family.name,
                    "replay": replayed(orders[load], scaling, family),
                }
                if options.all_real or options.quick or (not options.replay_only and is_real(load, scaling)):
                    cell["real"] = bench.cell(load, scaling, family, orders[load])
                found.append(cell)
                if not options.json:
                    show(cell)
        control = {}
        if not options.replay_only and not options.quick:
            load = next(iter(orders))
            control = {family.name: bench.cell(load, None, family, orders[load]) for family in FAMILIES}
    return {
        "scale": options.scale,
        "real_calls": options.real_calls,
        "models": "simulated",
        "cells": found,
        "table": table(found),
        "summary": summary(found),
        "control": control,
    }


def show(cell: Mapping[str, Any]) -> None:
    """Print a cell: percent saved of the dollars without any cache."""
    head = f"{cell['title']:32s} {cell['static']:5d} + {cell['request']:<5d} {cell['family']:10s}"
    for how in ("replay", "real"):
        if how in cell:
            it = cell[how]
            words = " ".join(f"{name} {percent:.1f}" for name, percent in it["saved_percent"].items())
            differ = [name for name, is_equal in it.get("rows_equal", {}).items() if not is_equal]
            print(f"{head} {how:6s} {it['calls']:5d} calls: {words}{f'  ROWS DIFFER: {differ}' if differ else ''}", flush=True)


def main() -> int:
    options = {
        "--quick": (False, "two cells of a small profile"),
        "--only": (None, "the cells of these workflows", {"nargs": "+", "metavar": "WORKFLOW"}),
        "--all-real": (False, "real profiles in every cell: an hour or more"),
        "--replay-only": (False, "no real profiles"),
        "--real-calls": (REAL_CALLS, "calls of each real profile; 0: all"),
        "--scale": (20.0, "how many times faster time passes in real profiles"),
    }
    return study(__doc__, options, measured_cells, totals)


def measured_cells(options: Options) -> dict[str, Any]:
    os.environ[KEY_ENV] = "not-a-key"
    with tempfile.TemporaryDirectory() as folder:
        return measure(options, Path(folder))


def totals(found: dict[str, Any]) -> str:
    return json.dumps(found["summary"], indent=1)


if __name__ == "__main__":
    sys.exit(main())
