"""``vinelm evaluate``: is VineLM worth using for this workflow?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import print_json, progress, say, show_table
from vinelm.cli.inputs import in_options, objective_of
from vinelm.cli.options import (
    dataset_option,
    objective_options,
    option,
    output_options,
    path_argument,
    resumable,
    seed_option,
    store_argument,
)
from vinelm.cli.quantities import USD, Count
from vinelm.cli.verdict_output import max_loss_option, show_verdict
from vinelm.errors import BudgetExhausted, ConfigError

if TYPE_CHECKING:
    from vinelm.evaluation import Evaluation


@click.command("evaluate", short_help="Switch, or keep what runs today? A verdict from the rows, or by serving.")
@store_argument
@path_argument("trie", required=False)
@objective_options
@option(
    "--serve N",
    "Really serve N held-out requests under each plan, instead of estimating from the rows. Spends money.",
    Count(2),
)
@option("--budget-usd USD", "With --serve: never spend more than this.", USD)
@option("--workflow NAME", "With --serve: MODULE:ATTRIBUTE of your own workflow [default: the bundled one of the store].")
@option("--models TOML", "With --serve: catalog of models [default: simulated models of the trie].", Path)
@dataset_option
@seed_option
@option(
    "--log DB",
    "With --serve: store that keeps each served request; the same line continues it [default: STORE with .evaluate.db].",
    Path,
)
@option("--workers N", "With --serve: requests under way at a time [default: 4].", Count(1), default=4)
@max_loss_option
@output_options
@resumable
def command(
    *, store: Path, trie: Path | None, serve: int | None, max_loss: float | None, as_json: bool, quiet: bool, **settings: Any
) -> None:
    """Say whether VineLM is worth using for the workflow of STORE: the verdict first, then the figures.

    Each part of the requests is judged by plans that the others chose, so that no plan is judged by the rows that it was chosen
    from. The verdict is that of `vinelm estimate`: SWITCH, KEEP, UNDECIDED or NOT ENOUGH DATA, against what runs today, or else
    the strongest single model. Then come VineLM (over paths, and over what requests show), the best static plan, the best
    single model, a vote, and asking until two answers agree: without an objective the mean over a range of cost budgets.

    No model is called. What a plan would have done is estimated from the rows of other choices, weighted by the chance that
    they were bought. Where the store has no rows of a step that a plan takes, its result is "not identified"; --serve
    identifies it.

    TRIE gives the estimator and the stop rule [default: the default ones]; with --serve, its plans are served.

    Exit code 0 whatever the verdict, 2 for bad input, 3 if the budget ended serving early.

    Example: vinelm evaluate runs/nl2sql.db
    """
    from vinelm.verdicts import evaluate
    from vinelm.workflows import load_workflow

    own = {name: settings.pop(name) for name in ("budget_usd", "workflow", "models", "dataset", "workers", "seed", "log")}
    objective = None if _is_unset(settings) else objective_of(settings)
    workflow = own["workflow"]
    if serve is not None and objective is None:  # before an application is imported
        raise ConfigError("serving needs one objective: a target and its bounds", code="serve-objective")
    if serve is not None:
        from vinelm.cli.commands.verify import workflow_of

        workflow = load_workflow(workflow or workflow_of(store), dataset=own["dataset"])
        own["log"] = own["log"] or store.with_suffix(".evaluate.db")
    with in_options(), progress(quiet=quiet) as advance:
        found = evaluate(
            store,
            trie,
            objective,
            serve=serve,
            budget_usd=own["budget_usd"],
            workflow=workflow,
            models=own["models"],
            log=own["log"],
            workers=own["workers"],
            seed=own["seed"],
            on_done=advance,
            max_loss=max_loss,
        )
    _print(found, as_json=as_json)
    if not found.is_complete:
        raise BudgetExhausted(
            f"the budget is reached after {found.requests} of {serve} requests: raise --budget-usd and run the same line to"
            " continue"
        )


def _is_unset(settings: dict[str, Any]) -> bool:
    """True if no option of an objective is given."""
    unset = {"cost_budget": "population", "risk": "mean"}
    return all(value == unset.get(name) for name, value in settings.items())


def evaluation_facts(found: Evaluation) -> dict[str, Any]:
    """Return an evaluation as plain JSON types, the verdict in words first."""
    return {"sentence": found.verdict.sentence, **found.to_dict()}


def show_evaluation(found: Evaluation, *, is_short: bool = False) -> None:
    """Print the verdict, the policies, each budget alone and what the figures rest on; if ``is_short``, one screen of it."""
    from vinelm.reports import evaluation_text as text

    if is_short:
        say(found.verdict.sentence, bold=True)
    else:
        show_verdict(found.verdict)
    tables = text.evaluation_tables(found)
    for table in tables[-1:] if is_short and found.by_budget else tables:
        show_table(table.title, table.columns, [row.cells for row in table.rows])
    for line in () if is_short else text.evaluation_lines(found):
        say(line)


def _print(found: Evaluation, *, as_json: bool) -> None:
    if as_json:
        print_json(evaluation_facts(found))
    else:
        show_evaluation(found)
