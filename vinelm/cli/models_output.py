"""Checks each model of a catalog: can it be called, at what price and speed. Prints the result for ``vinelm check``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.cli.console import echo, say, show_table
from vinelm.reports import usd

if TYPE_CHECKING:
    from vinelm.backends.diagnostics import ModelDiagnosis


@dataclass(frozen=True, kw_only=True)
class CheckedModels:
    """The models of a catalog file, each with what was found; ``problems`` are those of the file."""

    file: Path
    found: list[ModelDiagnosis]
    problems: list[str]
    notes: tuple[str, ...]
    is_called: bool

    @property
    def is_ok(self) -> bool:
        """True if every model can be called."""
        return not self.problems and all(one.is_ok for one in self.found)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON types."""
        return {
            "catalog": str(self.file),
            "is_called": self.is_called,
            "is_ok": self.is_ok,
            "problems": self.problems,
            "notes": list(self.notes),
            "spent_usd": _spent(self.found),
            "models": [_plain(one) for one in self.found],
        }

    def show(self, *, is_brief: bool) -> None:
        """Print tables, problems and notes; briefly only the problems, unless calls were made."""
        if is_brief and not self.is_called:
            _show_problems(self.found, self.problems)
        else:
            _show(self.found, self.problems, self.notes, is_called=self.is_called)


def check_models(file: Path, *, is_called: bool) -> CheckedModels:
    """Check the models of a catalog file; with ``is_called`` one short call goes to each, which costs money."""
    from datetime import date

    from vinelm.backends.diagnostics import catalog_problems, diagnose
    from vinelm.catalog.loading import read_catalog_file

    read = read_catalog_file(file)
    problems = [str(error) for error in read.errors]
    if read.models or not problems:
        problems += catalog_problems(read.models, read.backends)
    found = [diagnose(model, read.backends, today=date.today(), is_called=is_called) for model in read.models]
    return CheckedModels(file=file, found=found, problems=problems, notes=read.notes, is_called=is_called)


def _plain(one: ModelDiagnosis) -> dict[str, Any]:
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
    from vinelm.catalog.environment import variables_of_files

    if found:
        columns = ("model", "provider", "status", "$/Mtok in, out", "price from", "price date", "limits per minute")
        show_table("Models", columns, [_row(one) for one in found])
    answered = [one for one in found if one.probe is not None and one.probe.is_reached]
    if answered:
        show_table("One call each", ("model", "TTFT", "total", "tokens/s", "context", "cost"), [_measured(o) for o in answered])
    _show_problems(found, problems)
    for one in found:
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


def _show_problems(found: list[ModelDiagnosis], problems: list[str]) -> None:
    for problem in [*problems, *(f"{one.model.name}: {problem}" for one in found for problem in one.problems)]:
        say(f"problem  {problem}", hanging=9)


def _row(one: ModelDiagnosis) -> tuple[str, ...]:
    from vinelm.catalog.prices import price_origin

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
