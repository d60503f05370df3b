"""``vinelm demo``: a tour of VineLM on bundled requests and simulated models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.demo_output import demo_facts, show_demo, show_details, show_page
from vinelm.cli.options import dataset_option, limit_option, output_options, seed_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vinelm.cli.inputs import Inputs
    from vinelm.demo import DemoSettings
    from vinelm.evaluation.session_replay import AnswerSource
    from vinelm.recorded_table import RecordedTable

PRESETS = {"nl2sql": "paper", "support": "paper-4"}
"""Simulated models of each demo. A graph that branches has more histories: the support desk is shown with four models."""
COVERAGE = {"nl2sql": 0.05, "support": 0.02}
"""Default coverage of each demo. Where requests go no further than their own check, everything costs less, and 2 % of it leaves
two halves of the requests with a handful of rows for each model."""
LENGTH = "about a minute"
"""How long a demo takes on two cores."""


@click.command("demo", short_help="Tour on simulated models: no API keys, no network.")
@click.argument("workflow", type=click.Choice(["nl2sql", "support"]), default="nl2sql")
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Folder for all files [default: runs/demo, or runs/demo-support].",
)
@click.option(
    "--preset",
    metavar="NAME",
    help="Simulated models: paper, paper-2, paper-4, one-wins [default: paper; of the support desk paper-4].",
)
@click.option(
    "--coverage",
    type=float,
    metavar="FRACTION",
    help="Fraction of the cost of everything to profile [default: 0.05; of the support desk 0.02].",
)
@dataset_option
@seed_option
@limit_option
@output_options
@click.option("--details", is_flag=True, help="Print all plans and results, not the verdict alone.")
@click.option(
    "--open/--no-open",
    "opens",
    default=None,
    help="Open the report in the browser [default: on a terminal of a machine with a desktop].",
)
def command(
    *,
    workflow: str,
    output_dir: Path | None,
    as_json: bool,
    quiet: bool,
    details: bool,
    opens: bool | None,
    preset: str | None,
    coverage: float | None,
    seed: int,
    **data: Any,
) -> None:
    """Profile, estimate, plan, serve and report on a bundled WORKFLOW: no API keys, no network, about a minute.

    nl2sql (the default): simulated models write SQL, which is really executed. The demo profiles a sample, plans from each half
    of the requests and serves the other half, under the workflow's own check, and compares VineLM with the best static plan,
    single models and simple rivals, for three objectives and over a range of budgets. Then it does so for paths under the
    oracle stop, the paper's special case. Writes report.html, demo.db and one .vine file per stop rule; replaces those of an
    earlier demo.

    support: a support desk, whose graph branches. A router sends each ticket to one of three desks; two of them look something
    up, and a reply follows. Plans are contingent: each desk has its own next model.

    Example: vinelm demo support --seed 1 --output-dir runs/demo
    """
    from vinelm.cli.console import echo, progress
    from vinelm.cli.inputs import load_inputs
    from vinelm.demo import DemoSettings, rare_collections
    from vinelm.errors import ConfigError

    data["preset"] = preset or PRESETS[workflow]
    coverage = COVERAGE[workflow] if coverage is None else coverage
    if not 0.0 < coverage <= 1.0:
        raise ConfigError(f"--coverage is {coverage}: it must be a fraction in (0, 1]")
    folder = output_dir or Path("runs/demo" if workflow == "nl2sql" else f"runs/demo-{workflow}")
    if sys.stderr.isatty() and not quiet:
        echo(f"Profile, estimate, plan, serve and report on simulated models: {LENGTH}.\nAll files go to {folder}.", err=True)
    with rare_collections(), progress(quiet=quiet) as start:
        inputs = load_inputs(workflow, seed=seed, **data)
        settings = DemoSettings(
            workflow=inputs.workflow, catalog=inputs.catalog, backends=inputs.backends, output_dir=folder, seed=seed,
            coverage=coverage, recorded_table=partial(_recorded_table, seed=seed, **data) if workflow == "nl2sql" else None,
            answers=_answers(inputs) if workflow == "nl2sql" else None,
        )  # fmt: skip
        shown = _run(settings, start) if workflow == "nl2sql" else _run_branching(settings, start)
    shown.present(as_json=as_json, details=details, opens=opens)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What a demo prints: its report, its facts as JSON, the verdict, and all tables."""

    page: Path
    facts: Callable[[], dict[str, Any]]
    verdict: Callable[[], None]
    tables: Callable[[], None]

    def present(self, *, as_json: bool, details: bool, opens: bool | None) -> None:
        """Print the result, and open the report; ``opens`` is None where that is to depend on the terminal."""
        from vinelm.cli.console import echo, print_json
        from vinelm.io.browser import has_desktop, open_page

        is_opened = (has_desktop() and not as_json if opens is None else opens) and open_page(self.page)
        if as_json:
            print_json(self.facts())
        else:
            (self.tables if details else self.verdict)()
            show_page(self.page, is_opened=is_opened)
            if not details:
                echo("It has the tables of all plans and results; --details prints them here.")
        if opens and not is_opened:
            echo("No browser could be started: open the report yourself.", err=True)


def _run(settings: DemoSettings, start: Callable[[str], Any]) -> _Shown:
    """Run the demo of a workflow without branches."""
    from vinelm.demo import demo_page, run_demo
    from vinelm.reports import write_page

    result = run_demo(settings, start)
    page = write_page(demo_page(result), settings.output_dir / "report.html")
    return _Shown(
        page=page, facts=partial(demo_facts, result, page), verdict=partial(show_demo, result),
        tables=partial(show_details, result),
    )  # fmt: skip


def _run_branching(settings: DemoSettings, start: Callable[[str], Any]) -> _Shown:
    """The same for a workflow that branches."""
    from vinelm.cli.branching_demo_output import branching_facts, show_branching, show_branching_details
    from vinelm.demo import branching_page, run_branching_demo
    from vinelm.reports import write_page

    result = run_branching_demo(settings, start)
    page = write_page(branching_page(result), settings.output_dir / "report.html")
    return _Shown(
        page=page, facts=partial(branching_facts, result, page), verdict=partial(show_branching, result),
        tables=partial(show_branching_details, result),
    )  # fmt: skip


def _recorded_table(request_ids: Sequence[str], *, seed: int, **data: Any) -> RecordedTable:
    """Compute the complete table of these requests, in a process that loads the same inputs again."""
    from vinelm.cli.inputs import load_inputs
    from vinelm.workflows.nl2sql.exact_outcomes import exact_table

    inputs = load_inputs("nl2sql", seed=seed, **data)
    by_id = {request.id: request for request in inputs.workflow.requests}
    requests = [by_id[request_id] for request_id in request_ids]
    return exact_table(inputs.workflow, inputs.catalog, inputs.backends, requests, only_reached="either")


def _answers(inputs: Inputs) -> AnswerSource:
    from vinelm.workflows.nl2sql.exact_outcomes import ExactAnswers

    return ExactAnswers(inputs.workflow, inputs.catalog, inputs.backends)
