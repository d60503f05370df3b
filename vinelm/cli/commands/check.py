"""``vinelm check``: checks that a workflow can be profiled, without spending anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vinelm.cli.console import echo
from vinelm.cli.options import dataset_options, json_option, models_option

if TYPE_CHECKING:
    from vinelm.profiler import CheckReport


@click.command("check", short_help="Is a workflow ready to be profiled? Spends nothing.")
@click.argument("workflow")
@models_option
@dataset_options
@json_option
def command(
    *,
    workflow: str,
    models: Path | None,
    dataset: str | None,
    input_keys: tuple[str, ...],
    label_keys: tuple[str, ...],
    id_key: str | None,
    as_json: bool,
) -> None:
    """Check that WORKFLOW can be profiled and served, without spending anything.

    WORKFLOW is the name of a bundled workflow or MODULE:ATTRIBUTE. Looks at the stages and loop bounds, builds the graph, runs
    the first request on a scripted model through every invocation, and checks that its state survives a checkpoint. A template
    is compared with the graph arm by arm; one that was left out is read from the graph and printed as code. Exit code 2 if
    something has to be fixed.

    Example: vinelm check my_app:workflow
    """
    from vinelm.cli.inputs import catalog_for_check
    from vinelm.datasets import Columns
    from vinelm.errors import WorkflowError
    from vinelm.profiler import check_workflow
    from vinelm.workflows import load_workflow

    loaded = load_workflow(workflow, dataset=dataset, columns=Columns.parse(input_keys, label_keys, id_key))
    report = check_workflow(loaded, catalog_for_check(models, loaded.simulated_preset))
    if as_json:
        from dataclasses import asdict

        from vinelm.cli.console import print_json

        print_json({**asdict(report), "is_ok": report.is_ok})
    else:
        _show(report, workflow)
    wrong = [item for item in report.items if not item.is_ok]
    if wrong:
        raise WorkflowError(f"{workflow}: {wrong[0].name}: {wrong[0].detail}")


def _show(report: CheckReport, spec: str) -> None:
    from vinelm.cli.console import say

    for item in report.items:
        say(f"{'ok  ' if item.is_ok else 'FAIL'}  {item.name}: {item.detail}", hanging=6)
    if report.template_code is not None:
        say("The template, read from the graph. Paste it into the workflow to keep it, or to change models and bounds:")
        echo(f"{report.template_code}\n")
    if report.is_ok:
        echo(f"Ready. Next: vinelm profile {spec}")
