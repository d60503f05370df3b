"""Turns exceptions into a command's error report: a line on stderr, an exit code, and an object under ``--json``."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import click

from vinelm.catalog.secrets import redacted
from vinelm.errors import BudgetExhausted, InputError, VineLMError

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_BUDGET, EXIT_INTERRUPTED = 1, 2, 3, 130
TRACEBACK_ENV = "VINELM_TRACEBACK"
UNUSABLE_NAMES = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR}
"""Errors of the operating system for a file whose name, not content, is the caller's mistake, wherever it occurs."""
LONGEST_NAME = 60
"""How many characters of such a name are shown."""


HINTS: Mapping[str, str] = MappingProxyType(
    {
        "answers-not-written": "-o names the file of answers",
        "batch-too-large": "--budget-usd and --deadline bound it, --finish good leaves the rest unanswered",
        "batch-prices": "or leave --batch-prices out",
        "batches-need-threads": "leave --isolation and --engine out with --batch-prices",
        "budget-required": "use --budget-usd",
        "cluster-needs-process": "leave --isolation out with --engine ray://...",
        "columns-unused": "--column",
        "columns-without-dataset": "--column needs --dataset",
        "dataset-collision": "--column label.KEY=COLUMN",
        "dataset-input": "--column input.KEY=COLUMN",
        "dataset-label": "--column label.KEY=COLUMN",
        "dataset-too-large": "--limit N",
        "drift-alpha": "--alpha",
        "embedded-catalog": "--models FILE",
        "estimate-uncertain": "`vinelm profile` with --max-error buys enough rows; here --max-error FRACTION accepts fewer",
        "file-exists": "--force replaces them, --out DIR writes elsewhere",
        "few-held-out-requests": "--requests N, or --dataset PATH",
        "fleet-period": "--every",
        "fleet-url": "--redis",
        "graph-not-workflow": "`vinelm try FILE.py:GRAPH --dataset FILE` takes a graph, `vinelm init` writes its Workflow",
        "inline-one-worker": "use --isolation thread, or --workers 1",
        "limit-needs-process": "--unit-timeout-s and --memory-mb need --isolation process",
        "load-crashed": "use --isolation inline",
        "calls-per-hour": "use --calls-per-hour",
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
        "models-needed": "--models FILE",
        "models-required": "--models openai, or --models simulated to try it at no cost",
        "not-bundled": "--workflow MODULE:ATTRIBUTE",
        "no-held-out-requests": "--dataset PATH",
        "optimism-decides": "--accept-optimism plans all the same",
        "none-right": "change the scorer and run the same line again, which buys no row twice; --keep-going continues",
        "node-folder": "--ship copies this folder to the nodes",
        "oracle-trie": "estimate with --stop workflow",
        "output-not-writable": "with --output-dir",
        "process-needs-source": "name the workflow as MODULE:ATTRIBUTE, or use --isolation thread",
        "ray-address": "--engine ray://HOST:PORT, or --engine ray://local",
        "ray-client": "--engine ray://HOST:PORT",
        "serve-objective": "as in --maximize accuracy --max-cost-usd 0.01",
        "serve-unused": "--serve N serves N of them",
        "ship-unused": "--ship needs --engine ray://...",
        "stage-broken": "--keep-going does not stop",
        "store-damaged": "`vinelm store check` lists the damage",
        "store-mismatch": "give another --store, or move this one away",
        "store-missing": "`vinelm profile` makes a store",
        "store-without-log": "`vinelm store check --accept STORE` accepts the rows that are there",
        "tools-read-only": "--read-only NAME, such as --read-only 'get_*'",
        "redact": "--redact names it",
        "trace-format": "--format",
        "trace-unread": "--format NAME says which form it has; see docs/replay.md",
        "too-few-requests": "with a larger --limit",
        "workflow-differs": "use --isolation inline",
    }
)
"""Error code (:mod:`vinelm.errors`) to the options that help, as a clause that follows the message.

The library's messages name its parameters, never options.
"""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The reason why a command failed.

    Attributes:
        kind: A stable identifier: the ``code`` of a :class:`~vinelm.errors.VineLMError`, or ``usage``, ``interrupted`` or
            ``unexpected``.
        message: One line for a person to read.
        hint: A remedy in terms of the command line; None if the message states it.
        exit_code: The exit code of the process.
        line: Message and hint in one line, as shown on stderr.
    """

    kind: str
    message: str
    exit_code: int
    line: str
    hint: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the failure as the object that ``--json`` prints under the key ``error``; ``hint`` is left out if None."""
        hint = {} if self.hint is None else {"hint": self.hint}
        return {"kind": self.kind, "message": self.message, **hint, "exit_code": self.exit_code}


class Resumable(KeyboardInterrupt):
    """Raised by Ctrl-C in a resumable command; see :func:`vinelm.cli.options.resumable`."""


def failure_of(error: BaseException) -> Failure:
    """Return the failure that reports ``error``, with providers' keys removed from its texts."""
    if isinstance(error, click.ClickException):
        return _of_click(error)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        goes_on = isinstance(error, Resumable) or isinstance(error.__cause__, Resumable)  # click turns it into an Abort
        line = "interrupted: what was bought is kept: the same command continues" if goes_on else "interrupted"
        return Failure(kind="interrupted", message=line, exit_code=EXIT_INTERRUPTED, line=line)
    if isinstance(error, VineLMError):
        return _of_ours(error)
    if isinstance(error, OSError) and error.errno in UNUSABLE_NAMES and error.filename:
        message = _one_line(f"{_shortened(str(error.filename))}: {error.strerror}: use another name for the file")
        return Failure(kind="usage", message=message, exit_code=EXIT_BAD_INPUT, line=f"error: {message}")
    message, hint = _one_line(f"unexpected {type(error).__name__}: {error}"), f"set {TRACEBACK_ENV}=1 for the traceback"
    return Failure(
        kind="unexpected", message=message, hint=hint, exit_code=EXIT_FAILED, line=_one_line(f"error: {message} ({hint})")
    )


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."


def _of_ours(error: VineLMError) -> Failure:
    code = EXIT_BAD_INPUT if isinstance(error, InputError) else EXIT_FAILED
    lead = "error"
    if isinstance(error, BudgetExhausted):
        lead, code = "stopped", EXIT_BUDGET
    message, hint = _one_line(str(error)), HINTS.get(error.code)
    line = f"{lead}: {message} ({hint})" if hint else f"{lead}: {message}"
    return Failure(kind=error.code, message=message, hint=hint, exit_code=code, line=line)


def _of_click(error: click.ClickException) -> Failure:
    """Return the failure for a wrong command line. For a command without its arguments, the help is shown instead of an error
    line.
    """
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "vinelm"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        message = f"{path} needs a command"
        line = error.format_message()
    else:
        message = _one_line(error.format_message()).rstrip(".")
        line = f"error: {message} See `{path} --help`" if message.endswith("?") else f"error: {message}: see `{path} --help`"
    return Failure(kind="usage", message=message, hint=f"see `{path} --help`", exit_code=error.exit_code, line=line)


def _one_line(text: str) -> str:
    return redacted(" ".join(text.split()))
