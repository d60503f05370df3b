"""``vinelm verify``: serves held-out requests under a plan, and compares the results with its prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, progress, say, show_table
from vinelm.cli.declared import declared
from vinelm.cli.inputs import in_options, objective_in
from vinelm.cli.options import objective_options, output_options, resumable, store_argument, trie_argument
from vinelm.errors import BudgetExhausted
from vinelm.reports import percent, usd
from vinelm.reports.formatting import objective_words, oracle_words, under_oracle

if TYPE_CHECKING:
    from vinelm.objective import Objective
    from vinelm.verdicts import Verification

MOST_REASONS = 5
"""How many reasons of failed requests are shown."""
_SENTENCES = {
    "kept": "Kept: the promise holds on these requests.",
    "exceeded": "Kept: these requests did better than promised.",
    "broken": "NOT KEPT: these requests did worse than promised. Profile more requests of this kind and estimate again.",
    "failed": "FAILED: requests did not come to an answer, so that nothing was verified. Mend these first:",
    "unknown": "Nothing can be said of the promise: the trie has no standard errors, or nothing was served.",
}


@click.command("verify", short_help="Serve held-out requests under a plan: promised against achieved.")
@store_argument
@trie_argument
@objective_options
@declared("vinelm.verdicts.verification:verify")
@output_options
@resumable
def command(
    *, store: Path, trie: Path, dry_run: bool, log: Path | None, as_json: bool, quiet: bool, **given: Any
) -> int | None:
    """Serve labelled requests by the plan for an objective, and test whether the plan reaches its promised accuracy.

    STORE is the store from which TRIE was estimated. Only requests without a result in it are served, so the test uses no
    request that the estimate used. The promised accuracy and its interval are those of `vinelm plan`; the interval is widened
    because only a sample of requests is served. Every request is stored when it has ended, so an interrupted run continues when
    the same command is run again. Another --log starts over. With --signals, the plan that depends on signals is served and
    tested.

    Exit code 0 if the promise is kept; 1 if the served accuracy or cost is worse than its interval, or if more than 5 % of the
    requests failed; 2 for bad input; 3 if the budget ended the run early.

    Example: vinelm verify runs/nl2sql.db nl2sql.vine --maximize accuracy --max-cost-usd 0.01 --requests 100 --budget-usd 2

    Example: vinelm verify app.db app.vine --minimize cost --min-accuracy 80% --signals --workflow app.py:workflow --models
    models.toml --dataset more.jsonl --workers 8 --log judged.db --dry-run

    Example: vinelm verify app.db app.vine --maximize accuracy --workflow app.py:workflow --budget-usd 2 --engine ray://auto
    --ship
    """
    from vinelm.verdicts import verify

    objective = objective_in(given)
    log = None if dry_run else log or trie.with_suffix(".verify.db")
    with in_options(), progress(quiet=quiet) as advance:
        found = verify(
            store, trie, objective, log=log, dry_run=dry_run, on_note=lambda line: echo(line, err=True),
            on_done=lambda done, total: advance(done, total, "verify", f"{done} of {total} requests"), **given,
        )  # fmt: skip
    _print(objective, found, as_json=as_json, dry_run=dry_run)
    if dry_run:
        return None
    if not found.is_complete:
        raise BudgetExhausted(
            f"the budget is reached after {len(found.rows)} of {found.requests} requests: raise --budget-usd and run the same"
            " line to continue"
        )
    return None if found.is_kept else 1


def _print(objective: Objective, found: Verification, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json({"objective": objective.to_dict(), "is_dry_run": dry_run, **found.to_dict()})
    elif dry_run:
        _show_price(objective, found)
    else:
        _show(objective, found)


def _show_price(objective: Objective, found: Verification) -> None:
    promised = found.promised_interval
    interval = "" if promised is None else f" (90 % of such runs: {_percents(promised)})"
    say(
        f"Would serve {found.requests:,} held-out requests for about {usd(found.expected_usd)}: {objective_words(objective)}."
        f" Promised accuracy: {100 * found.decision.promise.accuracy:.1f} %{interval}."
    )
    _show_oracle(found)
    simulated = " The models are simulated." if found.is_simulated else ""
    say(f"Nothing was called.{simulated} Without --dry-run, --budget-usd bounds the money.")


def _show(objective: Objective, found: Verification) -> None:
    promise, cost = found.decision.promise, found.promised_cost_interval
    rows = [
        (
            "accuracy",
            percent(promise.accuracy),
            _percents(found.promised_interval),
            percent(found.accuracy),
            _percents(found.accuracy_interval),
            found.accuracy_promise,
        ),
        (
            "cost",
            usd(found.decision.path_cost_usd),
            "-" if cost is None else f"{usd(cost[0])} to {usd(cost[1])}",
            usd(found.mean_cost_usd),
            "",
            found.cost_promise,
        ),
    ]
    title = f"{objective_words(objective)}{under_oracle(found.stop)}"
    show_table(title, ("", "promised", "90 % interval", "achieved", "90 % interval", "<promise"), rows)
    failed = sum(row.failure is not None for row in found.rows)
    failures = f", {failed} of them failed and count as wrong" if failed else ""
    simulated = " Simulated models." if found.is_simulated else ""
    say(f"{len(found.rows):,} held-out requests served{failures}; {usd(found.spent_usd)} spent in all.{simulated}")
    outcomes = found.decision.metrics.annotated.outcomes
    if outcomes is not None and not outcomes.returns_earlier:
        say("Requests return their last answer: not every end of the graph is vine.finish.")
    if found.has_failed:
        say(_SENTENCES["failed"])
        for reason, number in list(found.failures.items())[:MOST_REASONS]:
            say(f"{number} of {len(found.rows)}: {reason}", indent="  ", hanging=2)
        return
    say(_SENTENCES["broken" if not found.is_kept else found.accuracy_promise])
    if found.verdict is not None:
        say(found.verdict.sentence)
    _show_oracle(found)


def _show_oracle(found: Verification) -> None:
    if oracle := oracle_words(found.stop):
        say(oracle)


def _percents(interval: tuple[float, float] | None) -> str:
    return "-" if interval is None else f"{100 * interval[0]:.1f} % to {100 * interval[1]:.1f} %"
