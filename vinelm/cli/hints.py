"""Options that fix an error of the library, added by the command line.

The library's messages name parameters, never options. Each hint belongs to an error code (:mod:`vinelm.errors`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from vinelm.errors import VineLMError

HINTS: Mapping[str, str] = MappingProxyType(
    {
        "budget-required": "use --budget-usd",
        "cluster-needs-process": "leave --isolation out with --engine ray://...",
        "columns-unused": "--column",
        "columns-without-dataset": "--column needs --dataset",
        "dataset-collision": "--column label.KEY=COLUMN",
        "dataset-input": "--column input.KEY=COLUMN",
        "dataset-label": "--column label.KEY=COLUMN",
        "dataset-too-large": "--limit N",
        "drift-alpha": "--alpha",
        "estimate-uncertain": "`vinelm profile` with --max-error buys enough rows; here --max-error FRACTION accepts fewer",
        "file-exists": "--force replaces them, --out DIR writes elsewhere",
        "few-held-out-requests": "--requests N, or --dataset PATH",
        "fleet-period": "--every",
        "fleet-url": "--redis",
        "inline-one-worker": "use --isolation thread, or --workers 1",
        "limit-needs-process": "--unit-timeout-s and --memory-mb need --isolation process",
        "load-crashed": "use --isolation inline",
        "log-depth": "option --depth",
        "log-duplicate-answer": "repeat --column request=COLUMN",
        "log-empty-value": "--where 'COLUMN!=' excludes rows where COLUMN is empty",
        "log-no-cost": "--column cost_usd=COLUMN, or --models with --column tokens_in=COLUMN and tokens_out=COLUMN",
        "log-no-rows": "options --where, --only-model and --models",
        "log-no-stop": "--stopped-if CONDITION, or --stop oracle",
        "log-no-tokens": "--column tokens_in=COLUMN and tokens_out=COLUMN, or cost_usd=COLUMN",
        "log-stage-without-run": "--column stage=COLUMN needs --column run=COLUMN; --stage names stages",
        "log-too-many-rows": "options --depth and --only-model",
        "max-error": "use --max-error",
        "max-error-unchecked": "give --max-error or --no-check",
        "models-required": "--models openai, or --models simulated to try it at no cost",
        "no-held-out-requests": "--dataset PATH",
        "optimism-decides": "--accept-optimism plans all the same",
        "node-folder": "--ship copies this folder to the nodes",
        "oracle-trie": "estimate with --stop workflow",
        "output-not-writable": "with --output-dir",
        "process-needs-source": "name the workflow as MODULE:ATTRIBUTE, or use --isolation thread",
        "profile-store-mismatch": "give another --store, or move this one away",
        "ray-address": "--engine ray://HOST:PORT, or --engine ray://local",
        "ray-client": "--engine ray://HOST:PORT",
        "serve-objective": "as in --maximize accuracy --max-cost-usd 0.01",
        "serve-unused": "--serve N serves N of them",
        "stage-broken": "--keep-going does not stop",
        "store-damaged": "`vinelm store check` lists the damage",
        "store-mismatch": "--store names the store",
        "store-missing": "`vinelm profile` makes a store",
        "store-without-log": "`vinelm store check --accept STORE` accepts the rows that are there",
        "too-few-requests": "with a larger --limit",
        "workflow-differs": "use --isolation inline",
    }
)
"""Error code to the options that help, as a clause that follows the message."""


def hint_for(error: VineLMError) -> str | None:
    """Return the options that help with an error; None if there are none."""
    return HINTS.get(error.code)
