"""``vinelm evaluate``: is VineLM worth using for this workflow?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.options import dataset_option, objective_options, output_options

if TYPE_CHECKING:
    from vinelm.evaluation import Evaluation


@click.command("evaluate", short_help="Is VineLM worth it here? A verdict from the rows, or by serving.")
@click.argument("store", type=click.Path(path_type=Path))
@click.argument("trie", type=click.Path(path_type=Path), required=False)
@objective_options
@click.option(
    "--serve", type=click.IntRange(min=2), metavar="N",
    help="Really serve N held-out requests under each plan, instead of estimating from the rows. Spends money.",
)  # fmt: skip
@click.option("--budget-usd", type=float, metavar="USD", help="With --serve: never spend more than this.")
@click.option(
    "--workflow", metavar="NAME",
    help="With --serve: MODULE:ATTRIBUTE of your own workflow [default: the bundled one of the store].",
)  # fmt: skip
@click.option(
    "--models", type=click.Path(path_type=Path), metavar="TOML", help="With --serve: catalog of models [default: the trie's]."
)
@dataset_option
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the split, or of the served requests.")
@click.option(
    "--log", type=click.Path(path_type=Path), metavar="DB",
    help="With --serve: store that keeps each served request; the same line continues it [default: STORE with"
    " .evaluate.db].",
)  # fmt: skip
@output_options
def command(*, store: Path, trie: Path | None, serve: int | None, as_json: bool, quiet: bool, **settings: Any) -> None:
    """Say whether VineLM is worth using for the workflow of STORE: the verdict first, then the figures.

    One half of the requests plans, the other half judges, and the other way round: no plan is judged by the rows that it was
    chosen from. Compared are VineLM (over paths, and over what requests show), the best static plan, the best single model, a
    vote, and asking until two answers agree. Without an objective the mean over a range of cost budgets is judged.

    No model is called. What a plan would have done is estimated from the rows of other choices, weighted by the chance that
    they were bought. Where the store has no rows of a step that a plan takes, its result is "not identified". The answer may be
    "Do not bother", or "Open" with the price of settling the question: more rows, or --serve.

    TRIE gives the estimator and the stop rule [default: the default ones]; with --serve, its plans are served.

    Exit code 0 whatever the verdict, 2 for bad input, 3 if the budget ended serving early.

    Example: vinelm evaluate runs/nl2sql.db
    """
    from vinelm.cli.console import progress
    from vinelm.cli.objective_options import in_options, objective_of
    from vinelm.errors import BudgetExhausted
    from vinelm.evaluation import evaluate
    from vinelm.workflows import load_workflow

    own = {name: settings.pop(name) for name in ("budget_usd", "workflow", "models", "dataset", "seed", "log")}
    objective = None if _is_unset(settings) else objective_of(settings)
    workflow = own["workflow"]
    if serve is not None:
        from vinelm.cli.commands.verify import workflow_of

        workflow = load_workflow(workflow or workflow_of(store), dataset=own["dataset"])
        own["log"] = own["log"] or store.with_suffix(".evaluate.db")
    with in_options(), progress(quiet=quiet) as start:
        bars: dict[str, Any] = {}

        def on_done(done: int, total: int, what: str) -> None:
            advance = bars.get(what) or bars.setdefault(what, start(what))
            advance(done, total, f"{done} of {total}")

        found = evaluate(
            store, trie, objective,
            serve=serve, budget_usd=own["budget_usd"], workflow=workflow, models=own["models"], log=own["log"],
            seed=own["seed"], on_done=on_done,
        )  # fmt: skip
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
    from vinelm import reports

    return {"sentence": reports.evaluation_sentence(found), **found.to_dict()}


def show_evaluation(found: Evaluation, *, is_short: bool = False) -> None:
    """Print the verdict, the policies, each budget alone and what the figures rest on; if ``is_short``, one screen of it."""
    from vinelm import reports
    from vinelm.cli.console import say, show_table

    say(reports.evaluation_sentence(found), bold=True)
    if not (is_short and found.by_budget):
        show_table(reports.evaluation_title(found), reports.evaluation_columns(found), reports.evaluation_rows(found))
        show_table(reports.gain_title(found), reports.gain_columns(found), reports.gain_rows(found))
    if found.by_budget:
        show_table(reports.budget_title(found), reports.BUDGET_COLUMNS, reports.budget_rows(found))
    for line in () if is_short else reports.evaluation_lines(found):
        say(line)


def _print(found: Evaluation, *, as_json: bool) -> None:
    from vinelm.cli.console import print_json

    if as_json:
        print_json(evaluation_facts(found))
    else:
        show_evaluation(found)
