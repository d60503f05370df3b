"""``vinelm check``: checks that a workflow can be profiled, and that the models of a catalog can be called."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, say
from vinelm.cli.inputs import catalog_for_check
from vinelm.cli.options import dataset_options, flag, json_option, models_option
from vinelm.errors import ConfigError, WorkflowError

if TYPE_CHECKING:
    from vinelm.cli.models_output import CheckedModels
    from vinelm.profiler.readiness import CheckReport


@click.command("check", short_help="Is a workflow ready to be profiled, are its models? Spends nothing.")
@click.argument("workflow", required=False)
@models_option
@dataset_options
@flag("--yes", "Send one short call to each model of --models. Without it nothing is sent.")
@json_option
def command(
    *, workflow: str | None, models: Path | None, dataset: str | None, columns: tuple[str, ...], yes: bool, as_json: bool
) -> int | None:
    """Check that WORKFLOW can be profiled and served, and that the models of a catalog can be called. Spends nothing.

    WORKFLOW is the name of a bundled workflow or MODULE:ATTRIBUTE. Looks at the stages and loop bounds, builds the graph, runs
    the first request on a scripted model through every invocation, and checks that its state survives a checkpoint. A template
    is compared with the graph arm by arm; one that was left out is read from the graph and printed as code. Exit code 2 if
    something has to be fixed.

    With --models, each model of the catalog (.toml, or a LiteLLM model_list .yaml) is checked as well: known provider, API key
    in the environment, dated price, rate limits. With --yes each gets one call of at most 128 tokens, to measure time to first
    token, tokens per second and context length. Exit code 1 if a model cannot be called.

    Example: vinelm check my_app:workflow --models models.toml
    """
    from vinelm.cli.models_output import check_models

    if workflow is None and (models is None or dataset is not None or columns):
        raise ConfigError("name a WORKFLOW to check, or a catalog with --models")
    if yes and models is None:
        raise ConfigError("--yes has no effect without --models: leave it out, or name a catalog")
    checked = None if models is None else check_models(models, is_called=yes)
    if checked is not None and not as_json:
        checked.show(is_brief=workflow is not None)
    report = None if workflow is None else _checked(workflow, models, dataset, columns)
    if as_json:
        print_json(_plain(report, checked))
    elif report is not None:
        _show(report, str(workflow))
    for item in () if report is None else report.items:
        if not item.is_ok:
            raise WorkflowError(f"{workflow}: {item.name}: {item.detail}")
    return None if checked is None or checked.is_ok else 1


def _checked(workflow: str, models: Path | None, dataset: str | None, columns: tuple[str, ...]) -> CheckReport:
    from vinelm.datasets.columns import Columns
    from vinelm.profiler.readiness import check_workflow
    from vinelm.workflows.registry import load_workflow

    loaded = load_workflow(workflow, dataset=dataset, columns=Columns.parse(columns))
    return check_workflow(loaded, catalog_for_check(models, loaded.simulated_preset))


def _plain(report: CheckReport | None, checked: CheckedModels | None) -> dict[str, Any]:
    plain = {} if checked is None else checked.to_dict()
    if report is None:
        return plain
    return {**plain, **asdict(report), "is_ok": report.is_ok and plain.get("is_ok", True)}


def _show(report: CheckReport, spec: str) -> None:
    for item in report.items:
        say(f"{'ok  ' if item.is_ok else 'FAIL'}  {item.name}: {item.detail}", hanging=6)
    if report.template_code is not None:
        say("The template, read from the graph. Paste it into the workflow to keep it, or to change models and bounds:")
        echo(f"{report.template_code}\n")
    if report.is_ok:
        echo(f"Ready. Next: vinelm profile {spec}")
