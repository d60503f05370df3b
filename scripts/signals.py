"""What an application shows, put to use: VineLM and simple rivals on recorded real answers, under the application's own check.

Reads --data (or VINELM_DATA): text-to-SQL systems on Spider (`outcomes/spider_sql.csv.gz` with `nl2sql/`), exam questions
(`outcomes/exam_retries.csv.gz` with `math/`), generated code (`outcomes/classeval.csv.gz`), and mixed traffic (`mixed/`).
Each is a complete table of independent first answers, so that every policy can be replayed exactly. For each of --splits
random halves, a sampler buys rows worth 2 % of the dollars of running every training request on every path that its check
lets it reach, or 30 whole runs of the strongest system where these are dearer. Every method chooses from these rows, under
each budget the policy with the highest estimated accuracy, and the choice is replayed on the held-out half.

Methods are compared at equal dollars: at what VineLM spent on the held-out requests under each budget. Every method, VineLM
too, mixes two of its plans by request, by what they promise. Intervals draw requests (with their groups) and profiles.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from result_files import add_results_option, provenance, write_results
from signals_parts import equal_dollars
from signals_parts.buying import BUYERS, SCORED
from signals_parts.figures import Comparison, summary
from signals_parts.protocol import Settings, SplitResult, Task, run_task
from signals_parts.results import page_figures, require_measured
from signals_parts.systems import Loaded, load_tables
from signals_parts.text import as_text

from vinelm.errors import ConfigError, InputError
from vinelm.estimator import ESTIMATORS
from vinelm.evaluation import OutcomeTable

ABOUT = (
    "Accuracy on held-out requests of what each method chose from the same sparse rows, under the application's own check. No "
    "method sees the ground truth of a held-out request but the oracle, which bounds them all.",
    "over static plan: points, with a paired 95 % interval; prom.: promised less achieved accuracy in points; spent: dollars "
    "spent over dollars promised.",
    "ECE: expected calibration error of the probability that an answer is right, ten bins of equal weight, over the answers "
    "that are returned under the budgets of the mean, and over the best answer after every history, weighted by its chance.",
)
QUICK = {"splits": 2, "budgets": (0.0005, 0.0025, 0.01, 0.025), "extra_budgets": (), "n_curve": 6, "is_checked": False}


def main() -> int:
    arguments = parsed()
    if arguments.data is None:
        print("error: say where the recorded data is: --data DIR or VINELM_DATA=DIR", file=sys.stderr)
        return 2
    try:
        if arguments.results is not None:
            require_measured(arguments.depths, arguments.samplers)
        made = provenance(arguments)
        result = run(arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.results is not None:
        write_results(arguments.results, made, page_figures(result))
    print(json.dumps(result, indent=2) if arguments.json else as_text(result))
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("VINELM_DATA"), help="folder with outcomes/ and nl2sql/")
    parser.add_argument("--systems", type=Path, help="CSV file: name,usd_per_1000 of the systems to choose from")
    parser.add_argument("--tables", default="", help="names of tables, with commas between them (default: all)")
    parser.add_argument("--depths", default="3,4", help="most calls per request (default %(default)s)")
    parser.add_argument(
        "--samplers", default="cascade", help="who buys the rows (default %(default)s); the first is compared with"
    )
    parser.add_argument("--splits", type=int, default=Settings().splits, help="random halves (default %(default)s)")
    parser.add_argument(
        "--coverage", type=float, default=Settings().coverage, help="share of the dollars (default %(default)s)"
    )
    parser.add_argument(
        "--continued-share",
        type=float,
        default=Settings().continued_share,
        help="of the paths of sampler priced that go on below a passed answer (default %(default)s)",
    )
    parser.add_argument("--estimator", choices=ESTIMATORS, default=ESTIMATORS[0], help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--quick", action="store_true", help="two splits, four budgets, depth 3, no measured optimism")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    add_results_option(parser)
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure every table at every depth with every sampler."""
    settings = settings_of(arguments)
    depths = [3] if arguments.quick else [whole(text, "--depths") for text in names(arguments.depths)]
    samplers = names(arguments.samplers)
    unknown = [name for name in samplers if name not in BUYERS and not name.removeprefix(SCORED).isdecimal()]
    if unknown or not samplers:
        raise ConfigError(f"--samplers {arguments.samplers!r}: use {', '.join(BUYERS)}, {SCORED}300")
    tables = load_tables(Path(arguments.data), arguments.systems, tuple(names(arguments.tables)))
    result: dict[str, Any] = {
        "about": list(ABOUT),
        "splits": settings.splits,
        "coverage": settings.coverage,
        "estimator": settings.estimator,
        "tables": {},
    }
    for name, one in tables.items():
        result["tables"][name] = described(one.table, one.about) | {"depths": {}}
        for depth in sorted({min(depth, one.most_calls or depth) for depth in depths}):
            of_table = settings.for_table(one.table, own_budgets=one.own_budgets, depth=depth)
            # Of requests of one kind the other buyers tell what is to be known; fully scored ones are for mixed traffic.
            used = [sampler for sampler in samplers if one.own_budgets or not sampler.startswith(SCORED)] or samplers
            by_sampler = {sampler: measured(name, one, depth, sampler, of_table, arguments.jobs) for sampler in used}
            found = summary(one.table, by_sampler, of_table)
            for sampler, splits in by_sampler.items():
                held = [split.held for split in splits if split.held is not None]
                found[sampler]["equal_dollars"] = equal_dollars.figures(
                    held, Comparison.of(one.table, splits), len(of_table.budgets)
                )
            result["tables"][name]["depths"][str(depth)] = found
    return result


def measured(  # noqa: PLR0917
    name: str, one: Loaded, depth: int, sampler: str, settings: Settings, jobs: int
) -> list[SplitResult]:
    """Every split, in order."""
    started = time.monotonic()
    tasks = [
        Task(table=one.table, depth=depth, sampler=sampler, seed=seed, settings=settings, asked=one.asked)
        for seed in range(settings.splits)
    ]
    if jobs > 1:
        with ProcessPoolExecutor(jobs) as pool:
            found = list(pool.map(run_task, tasks))
    else:
        found = [run_task(task) for task in tasks]
    say(f"{name}, depth {depth}, {sampler}: {len(found)} splits in {time.monotonic() - started:.0f} s")
    return found


def settings_of(arguments: argparse.Namespace) -> Settings:
    if not 0.0 < arguments.coverage <= 1.0:
        raise ConfigError(f"--coverage {arguments.coverage}: it must be a share in (0, 1]")
    if arguments.splits < 1 or arguments.jobs < 1:
        raise ConfigError("--splits and --jobs: at least 1")
    if not 0.0 <= arguments.continued_share < 1.0:
        raise ConfigError(f"--continued-share {arguments.continued_share}: it must be a share in [0, 1)")
    named = ("splits", "coverage", "estimator", "continued_share")
    chosen: dict[str, Any] = {name: getattr(arguments, name) for name in named}
    return Settings(**(chosen | QUICK if arguments.quick else chosen))


def described(table: OutcomeTable, about: str) -> dict[str, Any]:
    """The table in figures; accuracies and shares are fractions."""
    return {
        "about": about,
        "requests": len(table),
        "groups": len(set(table.groups)),
        "systems": {
            system: {
                "usd_per_1000": 1000 * float(table.cost_usd[:, m].mean()),
                "accuracy": float(table.success[:, m].mean()),
                "passed": float(table.passed[:, m].mean()),
            }
            for system, m in table.column.items()
        },
    }


def names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def whole(text: str, option: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 6:
        raise ConfigError(f"{option} {text!r}: use numbers from 1 to 6")
    return int(text)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
