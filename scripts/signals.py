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
import sys
import time
from pathlib import Path
from typing import Any

from signals_parts import equal_dollars
from signals_parts.buying import BUYERS, SCORED
from signals_parts.figures import Comparison, summary
from signals_parts.protocol import Settings, SplitResult, Task, run_task
from signals_parts.results import page_figures, require_measured
from signals_parts.systems import Loaded, load_tables
from signals_parts.text import as_text
from studies import Options, each, study

from vinelm.errors import ConfigError
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
    settings = Settings()
    options = {
        "--systems": (Path, "CSV file: name,usd_per_1000 of the systems to choose from"),
        "--tables": ("", "names of tables, with commas between them (default: all)"),
        "--depths": ("3,4", "most calls per request (default %(default)s)"),
        "--samplers": ("cascade", "who buys the rows (default %(default)s); the first is compared with"),
        "--splits": (settings.splits, "random halves (default %(default)s)"),
        "--coverage": (settings.coverage, "share of the dollars (default %(default)s)"),
        "--continued-share": (
            settings.continued_share, "of the paths of sampler priced that go on below a passed answer (default %(default)s)",
        ),
        "--estimator": (ESTIMATORS[0], "default: %(default)s", {"choices": ESTIMATORS}),
        "--jobs": (1, "processes (default 1)"),
        "--quick": (False, "two splits, four budgets, depth 3, no measured optimism"),
    }  # fmt: skip
    return study(__doc__, options, checked, as_text, page=page_figures, data="folder with outcomes/ and nl2sql/")


def checked(options: Options) -> dict[str, Any]:
    if options.results is not None:
        require_measured(options.depths, options.samplers)
    return run(options)


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
    found = list(each(run_task, tasks, jobs=jobs))
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
