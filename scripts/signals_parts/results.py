"""The figures that the README quotes, as a small file for `scripts/result_tables.py`; `signals.py --results FILE` writes it."""

from __future__ import annotations

from typing import Any

from vinelm.errors import ConfigError

DEPTH, SAMPLER = "3", "priced"
TITLES = {
    "spider": "eight text-to-SQL systems, development",
    "spider-1": "another eight of them",
    "spider-2": "a third choice of eight",
    "exams": "nine models, exam questions",
    "classeval": "eight code models, ClassEval",
}


def require_measured(depths: str, samplers: str) -> None:
    """Refuse a run that does not measure what is written."""
    if DEPTH not in depths.split(",") or SAMPLER not in samplers.split(","):
        raise ConfigError(
            f"--results has the figures of depth {DEPTH} and sampler {SAMPLER!r}: ask for --depths and --samplers with them"
        )


def page_figures(result: dict[str, Any]) -> dict[str, Any]:
    """What the default sampler's rows gave at depth 3, in percent and points."""
    return {"tables": [row(name, table["depths"][DEPTH][SAMPLER]) for name, table in result["tables"].items()]}


def row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """One table's figures, by method."""
    over, mine = found["vinelm_over"]["static"], found["methods"]["vinelm"]
    return {
        "title": TITLES.get(name, name),
        "right": {method: 100 * one["accuracy"] for method, one in found["methods"].items()},
        "over_static": f"{100 * over['value']:+.1f} [{100 * over['low']:+.1f}, {100 * over['high']:+.1f}]",
        "promised_less_achieved": 100 * mine["promised_less_achieved"],
        "spent_over_promised": mine["spent_over_promised"],
        "ece_points": mine["ece_points"],
    }
