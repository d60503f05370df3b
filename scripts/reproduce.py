"""The paper's evaluation again: Tables 1 to 3 and Figures 7 to 10, on simulated workloads and on recorded real answers.

Writes for each of them a CSV file and a picture (SVG) into --output, prints one line "paper / ours", and writes all numbers to
`reproduce.json`. Recorded tables (Spider systems, exam questions with retries) need --data or VINELM_DATA. The page
docs/reproduction.md says what each shows and why it differs from the paper. --quick takes fewer requests and seeds.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reproduce_parts import paper
from reproduce_parts.charts import TITLES, panels
from reproduce_parts.drawing import picture
from reproduce_parts.estimation import Fits, figure_8, fit_all, more_requests, more_rows, table_1
from reproduce_parts.fidelity import figure_9
from reproduce_parts.gains import figure_7
from reproduce_parts.latency import figure_10
from reproduce_parts.money import table_2
from reproduce_parts.overhead import table_3
from reproduce_parts.rows import line, rows
from reproduce_parts.tables import Case, recorded_cases, simulated_cases
from result_files import provenance, rounded
from stage_overhead import stage_overhead

from vinelm.errors import ConfigError, InputError

PAPER = {
    "table1": paper.TABLE_1, "table2": paper.TABLE_2, "table3": paper.TABLE_3, "figure7": paper.FIGURE_7,
    "figure8": paper.FIGURE_8, "figure9": paper.FIGURE_9, "figure10": paper.FIGURE_10,
}  # fmt: skip
COLUMNS = {"figure9": 4, "figure10": 2}
"""Panels per row of a picture, three otherwise."""
MANY_SEEDS = 2
"""Of the table with more requests, whose rows take long to buy and differ little."""


@dataclass(frozen=True)
class Settings:
    """How much is measured.

    Args:
        requests: at most so many of each simulated workload.
        seeds: sparse profiles and random halves to average over.
        slo_seeds: simulations under load.
        arrivals: kinds of arrivals of Figure 10.
        many_requests: of the simulated table that shows what more requests do to Table 1.
        replans: requests that are planned step by step for Table 3.
        stage_rounds: rounds of the measurement of what a LangGraph stage takes.
    """

    requests: int = 10_000
    seeds: int = 10
    slo_seeds: int = 5
    arrivals: tuple[str, ...] = ("Poisson", "bursty")
    many_requests: int = 20_000
    replans: int = 1_000
    stage_rounds: int = 30


QUICK = Settings(requests=300, seeds=5, slo_seeds=2, arrivals=("Poisson",), many_requests=5_000, replans=300, stage_rounds=10)


def main() -> int:
    arguments = parsed()
    settings = QUICK if arguments.quick else Settings()
    try:
        folder = output_folder(arguments.output)
        data = data_folder(arguments.data)
        result = about(arguments, settings) | run(settings, data)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write(result, folder)
    if arguments.json:
        print(as_json(result), end="")
    else:
        print("\n".join(f"{TITLES[name]}\n  {result[name]['line']}" for name in PAPER))
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the CSV, SVG and JSON files")
    parser.add_argument("--data", type=Path, default=os.environ.get("VINELM_DATA"), help="folder with outcomes/ of real models")
    parser.add_argument("--quick", action="store_true", help="fewer requests and seeds: at most five minutes on two cores")
    parser.add_argument("--json", action="store_true", help="print one JSON object with all numbers instead of the lines")
    return parser.parse_args()


def output_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output {path}: {error.strerror}") from error
    return path


def data_folder(path: Path | None) -> Path | None:
    if path is not None and not (Path(path) / "outcomes").is_dir():
        raise ConfigError(f"--data {path}: there is no folder outcomes/ in it")
    return path and Path(path)


def about(arguments: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """What made the numbers: the command without paths of this machine, the commit, the day and the settings."""
    return {**provenance(arguments), "settings": asdict(settings)}


def run(settings: Settings, data: Path | None) -> dict[str, Any]:
    """All figures and tables: each has the parts paper, simulated and, with data, recorded, and a line."""
    started = time.process_time()
    result: dict[str, Any] = {name: {"paper": numbers} for name, numbers in PAPER.items()}
    stage_us = stage_overhead(rounds=settings.stage_rounds)["stage_overhead_us"]
    measure(result, "simulated", simulated_cases(settings.requests), "simulated", settings, data, stage_us)
    many = more_requests(settings.many_requests, range(MANY_SEEDS))
    result["table1"]["more_requests"] = more_rows(many)
    result["figure7"]["more_requests"] = figure_7(many, range(MANY_SEEDS))
    result["figure9"]["more_requests"] = figure_9(many)
    say(started, "a simulated table with more requests")
    if data is not None:
        measure(result, "recorded", recorded_cases(data), "exams", settings, data, stage_us)
    for name in PAPER:
        result[name]["line"] = line(name, result[name])
    return result | {"processor_s": round(time.process_time() - started, 1)}


def measure(  # noqa: PLR0917
    result: dict[str, Any],
    part: str,
    cases: list[Case],
    workload: str,
    settings: Settings,
    data: Path | None,
    stage_us: float,
) -> None:
    """Add one part to every figure and table."""
    started = time.process_time()
    seeds = range(settings.seeds)
    slo_case = "retry loop, 4 models" if workload == "simulated" else cases[-1].name
    fits: list[Fits] = [fit_all(case, seeds) for case in cases]
    say(started, f"{part}: sparse profiles of {', '.join(case.name for case in cases)}")
    found = {
        "table1": table_1(fits),
        "table2": table_2(fits),
        "table3": table_3(cases, settings.replans, stage_us),
        "figure7": figure_7(fits, seeds),
        "figure8": figure_8(fits),
        "figure9": figure_9(fits),
        "figure10": {slo_case: figure_10(workload, data, range(settings.slo_seeds), settings.arrivals)},
    }
    say(started, f"{part}: plans, and simulations under load")
    for name, numbers in found.items():
        result[name][part] = numbers
    result.setdefault("about", {})[part] = {case.name: case.about for case in cases}


def write(result: dict[str, Any], folder: Path) -> None:
    """One CSV file and one picture per figure and table, and all numbers."""
    for name in PAPER:
        (folder / f"{name}.csv").write_text(as_csv(rows(name, result[name])), encoding="utf-8")
        (folder / f"{name}.svg").write_text(
            picture(TITLES[name], panels(name, result[name]), COLUMNS.get(name, 3)), encoding="utf-8"
        )
    (folder / "reproduce.json").write_text(as_json(result), encoding="utf-8")


def as_csv(found: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(column for row in found for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rounded(found))
    return text.getvalue()


def as_json(result: dict[str, Any]) -> str:
    """One object; a line for each figure and table, since a line for each number would make 10,000."""
    parts = [f"{json.dumps(key)}: {json.dumps(rounded(value))}" for key, value in result.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def say(started: float, text: str) -> None:
    print(f"{text}: {time.process_time() - started:.0f} s of processor time", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
