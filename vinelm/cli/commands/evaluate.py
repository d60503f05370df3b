"""``vinelm evaluate``: answers whether VineLM is worth using for this workflow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from vinelm.cli.console import echo, print_json, progress, say, show_table
from vinelm.cli.declared import declared
from vinelm.cli.inputs import in_options, objective_in
from vinelm.cli.options import objective_options, option, output_options, path_argument, resumable, store_argument
from vinelm.cli.quantities import Count
from vinelm.cli.verdict_output import show_verdict
from vinelm.errors import BudgetExhausted, ConfigError

if TYPE_CHECKING:
    from vinelm.evaluation import Evaluation


@click.command("evaluate", short_help="Switch, or keep what runs today? A verdict from the rows, or by serving.")
@store_argument
@path_argument("trie", required=False)
@option("--against STORE", "Compare with another workflow, profiled on the same requests, under the same models.", Path)
@objective_options
@declared("vinelm.verdicts.store_evaluation:evaluate", "trie", "objective", serve=("--serve N", Count(2)))
@output_options
@resumable
def command(*, store: Path, trie: Path | None, against: Path | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Say whether VineLM is worth using for the workflow of STORE: the verdict first, then the figures.

    The requests are divided into parts. A plan is chosen by the results of all parts but one, and tested on that one, so no
    plan is tested on results that were used to choose it. The verdict is that of `vinelm estimate`: SWITCH, KEEP, UNDECIDED or
    NOT ENOUGH DATA, against what runs today, or else the strongest single model. Then come the results of VineLM (without and
    with signals), of the best static plan, of the best single model, of a majority vote, and of asking until two answers agree.
    A signal is what a call shows without the label, such as a passed check. Without an objective, the figures are means over a
    range of cost budgets.

    No model is called. The result of a plan is estimated from stored results of other model choices. A stored result counts
    more, the less likely its call was to be made and stored. If the store has no results for a step of a plan, the plan's
    result is "not identified"; --serve then measures it.

    TRIE is the file from which the estimator and the stop rule are taken [default: the default ones]. With --serve, its plans
    are served.

    With --against, two workflows are compared instead: their accuracy, dollars, seconds, calls and tokens, for each model that
    both have run on the same requests.

    Exit code 0 whatever the verdict, 2 for bad input, 3 if the budget ended serving early.

    Example: vinelm evaluate runs/nl2sql.db

    Example: vinelm evaluate app.db --in-use gpt-5 --max-loss 1

    Example: vinelm evaluate one-agent.db --against five-stages.db

    Example: vinelm evaluate app.db app.vine --maximize accuracy --serve 50 --budget-usd 2 --workflow app.py:workflow --models
    models.toml --dataset more.jsonl --workers 8 --log judged.db

    Example: vinelm evaluate app.db app.vine --maximize accuracy --serve 50 --budget-usd 2 --workflow app.py:workflow --engine
    ray://auto --ship
    """
    from vinelm.verdicts import evaluate

    if against is not None:
        _compare(store, against, as_json=as_json)
        return
    objective = objective_in(given, is_open=True)
    if given["serve"] is not None:
        given["log"] = given["log"] or store.with_suffix(".evaluate.db")
    with in_options(), progress(quiet=quiet) as advance:
        found = evaluate(store, trie, objective, on_done=advance, on_note=lambda line: echo(line, err=True), **given)
    _print(found, as_json=as_json)
    if not found.is_complete:
        raise BudgetExhausted(
            f"the budget is reached after {found.requests} of {given['serve']} requests: raise --budget-usd and run the same"
            " line to continue"
        )


def _compare(store: Path, against: Path, *, as_json: bool) -> None:
    from vinelm.reports.workflow_text import comparison_lines, comparison_tables
    from vinelm.verdicts import compare_workflows

    context = click.get_current_context()
    for name in context.params:
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name not in ("store", "against", "as_json", "quiet"):
            what = "a trie" if name == "trie" else f"--{name.replace('_', '-')}"
            raise ConfigError(f"{what} has no effect with --against: leave it out")
    found = compare_workflows(store, against)
    if as_json:
        print_json(found.to_dict())
        return
    for table in comparison_tables(found):
        show_table(table.title, table.columns, [row.cells for row in table.rows])
    for line in comparison_lines(found):
        say(line)


def evaluation_facts(found: Evaluation) -> dict[str, Any]:
    """Return an evaluation as plain JSON types, the verdict in words first."""
    return {"sentence": found.verdict.sentence, **found.to_dict()}


def show_evaluation(found: Evaluation, *, is_short: bool = False) -> None:
    """Print the verdict, the compared policies, the results for each cost budget, and what the figures are based on.

    ``is_short`` limits the output to one screen.
    """
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
