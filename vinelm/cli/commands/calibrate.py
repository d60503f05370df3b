"""``vinelm engine calibrate``: measures how an engine slows down under load (VineLM paper §5.4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, progress, say, show_table
from vinelm.cli.options import flag, option, output_options
from vinelm.cli.quantities import SECONDS, Count
from vinelm.errors import ConfigError
from vinelm.reports import usd

if TYPE_CHECKING:
    from vinelm.controller import Endpoint
    from vinelm.controller.load.calibration import Calibration, Experiment


@click.command("calibrate", short_help="Measure how an engine slows down under load.")
@click.argument("endpoint")
@option("--models TOML", "Catalog that has a model on ENDPOINT.", Path, required=True)
@option("--model NAME", "Model to call [default: the catalog's first model on ENDPOINT].", into="name")
@option("--levels N,N", "Numbers of concurrent requests to measure at.", default="0,1,2,4,8,16,32")
@option("--repeats N", "Measurements at each level.", Count(1), default=50)
@option("--delay-s S", "Head start of the concurrent requests.", SECONDS, default=2.0)
@option(
    "--others-priority P",
    "Send the concurrent requests with this `priority`, for engines that schedule by it [default: none].",
    int,
)
@option(
    "-o --output JSON",
    "File to write the curve to; curves of other engines in it are kept.",
    Path,
    default="slowdown.json",
)
@flag("--yes", "Send the calls. Without it, only print how many there would be and their cost.")
@output_options
def command(*, endpoint: str, output: Path, yes: bool, as_json: bool, quiet: bool, **settings: Any) -> int | None:
    """Measure how much longer a request takes on ENDPOINT while it serves N other requests, and write the slowdown curve.

    ENDPOINT is an engine of the catalog, or its api_base. For each N, one request is timed repeatedly while the engine serves
    N others; nothing else should use the engine meanwhile. Without --yes nothing is sent. To use the curve, pass it as
    VineLM(load="slowdown.json").

    Example: vinelm engine calibrate http://gpu-1:30000/v1 --models models.toml --repeats 10 --yes
    """
    from vinelm.controller.load.slowdown import check_writable

    target, experiment = _prepared(endpoint, settings)
    check_writable(output)
    facts = {
        "endpoint": endpoint,
        "model": target.model.name,
        "engine": target.model.engine,
        "calls": experiment.calls,
        "upper_bound_usd": target.upper_bound_usd(experiment.calls),
        "least_s": experiment.repeats * experiment.delay_s * sum(1 for level in set(experiment.levels) if level),
    }
    if not yes:
        _state(facts, settings, as_json=as_json)
        return None
    found = _measured(experiment, quiet=quiet)
    _write(output, target, found)
    _report(facts, target, found, output, as_json=as_json)
    return None if found.is_complete else 130


def _prepared(endpoint: str, settings: dict[str, Any]) -> tuple[Endpoint, Experiment]:
    """Validate all inputs before any call is sent. Return the endpoint and the experiment."""
    from vinelm.catalog import Catalog
    from vinelm.controller import Endpoint
    from vinelm.controller.load.calibration_client import model_on

    catalog = Catalog.from_file(settings["models"])
    model = model_on(catalog, endpoint, settings["name"])
    target = Endpoint(catalog, model, others_priority=settings["others_priority"])
    experiment = target.experiment(levels=_levels(settings["levels"]), repeats=settings["repeats"], delay_s=settings["delay_s"])
    return target, experiment


def _levels(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--levels {text}: use whole numbers separated by commas, such as 0,1,2,4,8") from None


def _state(facts: dict[str, Any], settings: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({**facts, "is_sent": False})
        return
    say(
        f"Would send {facts['calls']:,} calls to {facts['model']} on {facts['engine']}: {settings['repeats']} runs at each of "
        f"{settings['levels']} concurrent requests, taking at least {facts['least_s']:,.0f} s and costing at most "
        f"{usd(facts['upper_bound_usd'])}."
    )
    say("Nothing was sent. Add --yes to send the calls; use fewer --repeats or --levels to send fewer.")


def _measured(experiment: Experiment, *, quiet: bool) -> Calibration:
    from vinelm.controller import calibrate_endpoint

    with progress(quiet=quiet) as advance:
        return calibrate_endpoint(
            experiment, on_run=lambda done, total: advance(done, total, "calibrate", f"{done} of {total} runs")
        )


def _write(output: Path, target: Endpoint, found: Calibration) -> None:
    from vinelm.controller.load.slowdown import save_curve

    measured = {
        "model": target.model.name,
        "requests": list(found.requests),
        "latency_s": list(found.latency_s),
        "failed": found.failed,
    }
    save_curve(output, target.model.engine, found.curve, measured)


def _report(facts: dict[str, Any], target: Endpoint, found: Calibration, output: Path, *, as_json: bool) -> None:
    rows = _rows(found)
    if as_json:
        more = {"is_sent": True, "spent_usd": target.spent_usd, "failed": found.failed, "is_complete": found.is_complete}
        print_json({**facts, **more, "curve": found.curve.to_dict(), "levels": rows, "output": str(output)})
        return
    table = [
        (str(row["requests"]), str(row["runs"]), *(_seconds(row[name]) for name in ("mean_s", "sd_s", "extra_s")))
        for row in rows
    ]
    show_table(f"{target.model.name} on {target.model.engine}", ("concurrent", "runs", "mean", "sd", "slowdown"), table)
    failed = f" {found.failed} calls failed." if found.failed else ""
    early = "" if found.is_complete else " Interrupted: the curve is fitted to the completed runs."
    say(f"Spent {usd(target.spent_usd)}.{failed}{early}")
    echo(f'wrote {output}. Use it with VineLM(..., load="{output}")')


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"


def _rows(found: Calibration) -> list[dict[str, float | None]]:
    """Return one table row per load level, as a dictionary. A load level is a number of requests served at the same time.

    The keys are ``requests`` (the load level), ``runs``, ``mean_s`` and ``sd_s`` (mean and standard deviation of the latency in
    seconds; None for one run), and ``extra_s`` (the fitted additional seconds).
    """
    from statistics import fmean, stdev

    rows: list[dict[str, float | None]] = []
    for level in sorted(set(found.requests)):
        took = [seconds for at, seconds in zip(found.requests, found.latency_s, strict=True) if at == level]
        spread = stdev(took) if len(took) > 1 else None
        rows.append(
            {
                "requests": level,
                "runs": len(took),
                "mean_s": fmean(took),
                "sd_s": spread,
                "extra_s": found.curve.at(level),
            }
        )
    return rows
