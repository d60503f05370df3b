"""``vinelm doctor``: check that every model of a catalog can be called, at what price and speed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo
from vinelm.cli.options import json_option

if TYPE_CHECKING:
    from vinelm.backends import ModelDiagnosis


@click.command("doctor", short_help="Check that every model of a catalog can be called.")
@click.argument("catalog", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Send one short call to each model. Without it nothing is sent.")
@json_option
def command(*, catalog: Path, yes: bool, as_json: bool) -> int:
    """Check each model of CATALOG: known provider, API key in the environment, dated price, rate limits.

    CATALOG is a VineLM catalog (.toml) or a LiteLLM model_list (.yaml). With --yes each model gets one call of at most 128
    tokens, without retries, to measure time to first token, tokens per second and context length. Exit code 1 if a problem
    has to be fixed.

    Example: vinelm doctor models.toml --yes
    """
    from datetime import date

    from vinelm.backends import catalog_problems, diagnose
    from vinelm.catalog import read_catalog_file

    read = read_catalog_file(catalog)
    problems = [str(error) for error in read.errors]
    if read.models or not problems:
        problems += catalog_problems(read.models, read.backends)
    found = [diagnose(model, read.backends, today=date.today(), is_called=yes) for model in read.models]
    is_ok = not problems and all(one.is_ok for one in found)
    if as_json:
        from vinelm.cli.console import print_json

        plain = {"catalog": str(catalog), "is_called": yes, "is_ok": is_ok, "problems": problems, "notes": list(read.notes)}
        print_json({**plain, "spent_usd": _spent(found), "models": [_plain(one) for one in found]})
    else:
        _show(found, problems, read.notes, is_called=yes)
    return 0 if is_ok else 1


def _plain(one: ModelDiagnosis) -> dict[str, Any]:
    from dataclasses import asdict

    model, probe = one.model, one.probe
    measured: dict[str, Any] = {} if probe is None else {**asdict(probe), "tokens_per_s": probe.tokens_per_s}
    return {
        "name": model.name,
        "provider": model.provider,
        "model": model.model_id,
        "engine": model.engine,
        "is_ok": one.is_ok,
        "is_reached": None if probe is None else probe.is_reached,
        "price": {**model.price.model_dump(mode="json"), "price_id": model.price_id},
        "limits": dict(one.limits),
        "max_tokens": model.max_tokens,
        "context_tokens": one.context_tokens,
        "upper_bound_usd": one.upper_bound_usd,
        "problems": list(one.problems),
        "notes": list(one.notes),
        **measured,
    }


def _show(found: list[ModelDiagnosis], problems: list[str], notes: tuple[str, ...], *, is_called: bool) -> None:
    from vinelm.catalog import variables_of_files
    from vinelm.cli.console import say, show_table
    from vinelm.reports import usd

    if found:
        columns = ("model", "provider", "status", "$/Mtok in, out", "price from", "price date", "limits per minute")
        show_table("Models", columns, [_row(one) for one in found])
    answered = [one for one in found if one.probe is not None and one.probe.is_reached]
    if answered:
        show_table("One call each", ("model", "TTFT", "total", "tokens/s", "context", "cost"), [_measured(o) for o in answered])
    for problem in problems:
        say(f"problem  {problem}", hanging=9)
    for one in found:
        for problem in one.problems:
            say(f"problem  {one.model.name}: {problem}", hanging=9)
        for note in one.notes:
            say(f"note     {one.model.name}: {note}", hanging=9)
    for note in notes:
        say(f"note     {note}", hanging=9)
    if taken := variables_of_files():
        names = ", ".join(sorted(taken))
        say(f"note     from {', '.join(sorted(set(taken.values())))}: {names}", hanging=9)
    if is_called:
        echo(f"Spent {usd(_spent(found))}.")
    elif any(one.upper_bound_usd is not None for one in found):
        most = sum(one.upper_bound_usd or 0.0 for one in found)
        echo(f"Nothing was sent. Add --yes to call each model once, for at most {usd(most)} in total.")


def _row(one: ModelDiagnosis) -> tuple[str, ...]:
    from vinelm.catalog import price_origin

    price, limits = one.model.price, one.limits
    status = "problem" if not one.is_ok else "ready" if one.probe is None else "answers"
    words = {"requests_per_min": "requests", "tokens_per_min": "tokens", "concurrency": "concurrent"}
    limited = ", ".join(f"{limits[key]:,} {word}" for key, word in words.items() if isinstance(limits.get(key), int))
    per_call = f" + {price.call:g} per call" if price.call else ""
    return (
        one.model.name,
        one.model.provider,
        status,
        f"{price.input:g}, {price.output:g}{per_call}",
        price_origin(one.model),
        price.as_of.isoformat(),
        limited or "none",
    )


def _measured(one: ModelDiagnosis) -> tuple[str, ...]:
    from vinelm.reports import usd

    probe = one.probe
    assert probe is not None
    return (
        one.model.name,
        "-" if probe.ttft_s is None else f"{probe.ttft_s:.2f} s",
        f"{probe.latency_s:.2f} s",
        "-" if probe.tokens_per_s is None else f"{probe.tokens_per_s:,.0f}",
        "-" if one.context_tokens is None else f"{one.context_tokens:,}",
        usd(probe.cost_usd),
    )


def _spent(found: list[ModelDiagnosis]) -> float:
    return sum(one.probe.cost_usd for one in found if one.probe is not None)
