"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

models_option = click.option(
    "--models",
    type=click.Path(path_type=Path),
    metavar="TOML",
    help="Catalog of models with prices. Default for a bundled workflow: simulated models, marked as such in the output.",
)
preset_option = click.option(
    "--preset", metavar="NAME", help="Simulated catalog to use without --models: paper (8 models), paper-2, paper-4, one-wins."
)
dataset_option = click.option(
    "--dataset", metavar="PATH", help="Requests: CSV, JSON lines, Parquet, a Hugging Face folder, or an export of LangSmith or "
    "Langfuse; a bundled workflow reads its own format [default: the workflow's].",
)  # fmt: skip
column_option = click.option(
    "--column", "columns", multiple=True, metavar="FIELD=COLUMN",
    help="Column of the dataset to use: input.KEY=COLUMN, label.KEY=COLUMN (the graph never sees labels) or id=COLUMN. A path "
    "such as outputs.answer leads into a column. Repeatable [default: the format decides].",
)  # fmt: skip
seed_option = click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of samples, splits and simulated answers."
)
limit_option = click.option("--limit", type=click.IntRange(min=1), help="Use only the first N requests of the dataset.")
stop_option = click.option(
    "--stop",
    type=click.Choice(["workflow", "oracle"]),
    help="When a request leaves the loop: when the workflow's own check passes, or when its answer is right (needs labels, so "
    "for offline replay only) [default: as the workflow declares].",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress bars.")
signals_option = click.option(
    "--signals", is_flag=True, help="Plan over what requests show (the check's verdict, signals, whether answers agree)."
)
estimator_option = click.option(
    "--estimator", default="latent", show_default=True, metavar="NAME", help="Estimator that fits the trie to the observations."
)


def stacked(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine several decorators into one, as if they were written below each other."""

    def apply(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


dataset_options = stacked(dataset_option, column_option)
workflow_inputs = stacked(models_option, preset_option, dataset_options, limit_option, seed_option)
output_options = stacked(json_option, quiet_option)
objective_options = stacked(
    click.option("--maximize", metavar="accuracy", help="What to maximize."),
    click.option("--minimize", metavar="cost|latency", help="What to minimize."),
    click.option(
        "--min-accuracy", type=float, metavar="FRACTION", help="Lowest accuracy, on average over requests: 0.8 is 80 %."
    ),
    click.option("--max-cost-usd", type=float, metavar="USD", help="Most dollars per request, on average over requests."),
    click.option("--max-latency-s", type=float, metavar="S", help="Most seconds from a request's arrival to its answer."),
    click.option(
        "--cost-budget",
        type=click.Choice(["population", "per_request"]),
        default="population",
        show_default=True,
        help="What --max-cost-usd bounds: the average over requests, or the cost of every request.",
    ),
    click.option(
        "--risk",
        type=click.Choice(["mean", "mean+sd", "dp"]),
        default="mean",
        show_default=True,
        help="How --max-latency-s is checked: by the mean, by the mean plus z standard deviations, or by a stochastic dynamic "
        "program over the remaining time.",
    ),
    click.option(
        "--objective",
        "objective_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Further fields of the objective, such as confidence, z and late_weight: a .toml or .json file.",
    ),
)
"""The common fields of an :class:`~vinelm.objective.Objective`, under their own names; a file has the others."""
