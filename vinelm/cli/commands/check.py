"""``vinelm check``: checks that a workflow can be profiled and that the models of a catalog can be called."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, say, show_table
from vinelm.cli.declared import declared
from vinelm.cli.inputs import catalog_for_check
from vinelm.cli.options import flag, json_option
from vinelm.errors import ConfigError, WorkflowError
from vinelm.reports import usd
from vinelm.reports.formatting import PROMPT_COLUMNS, PROMPT_TITLE, prompt_row, prompt_words

if TYPE_CHECKING:
    from vinelm.backends.diagnostics import ModelDiagnosis
    from vinelm.profiler.readiness import CheckReport


@click.command("check", short_help="Is a workflow ready to be profiled, are its models? Spends nothing.")
@click.argument("workflow", required=False)
@declared("vinelm.api.profiling:profile", only=("models", "dataset", "columns"))
@flag("--prompts", "Compare the prompts of five requests: what caches can keep, and a better order of messages.")
@flag("--yes", "Send one short call to each model of --models. Without it nothing is sent.")
@json_option
def command(
    *,
    workflow: str | None,
    models: Path | None,
    dataset: str | None,
    columns: tuple[str, ...],
    prompts: bool,
    yes: bool,
    as_json: bool,
) -> int | None:
    """Check that WORKFLOW can be profiled and served, and that the models of a catalog can be called. Spends nothing.

    WORKFLOW is the name of a bundled workflow or MODULE:ATTRIBUTE. Checks the stages and loop bounds, and builds the graph.
    Then runs the first request on a scripted model through every invocation (execution of a stage), and checks that the
    request's state can be stored and restored. A workflow's template, its steps and branches, is compared with the graph branch
    by branch. If the workflow has no template, one is read from the graph and printed as code. Exit code 2 if something has to
    be fixed.

    With --models, each model of the catalog (.toml, or a LiteLLM model_list .yaml) is checked as well: known provider, API key
    in the environment, dated price, rate limits. With --yes each gets one call of at most 128 tokens, to measure time to first
    token, tokens per second and context length. Exit code 1 if a model cannot be called.

    With --prompts, the prompts of five requests on the scripted model are compared, which spends nothing either. For each stage
    the table counts four kinds of tokens. Static tokens are those with which every request begins; shared tokens are sent by
    other requests, too; request tokens are sent again by the same request; own tokens are the rest. A token is counted as four
    bytes of text.

    Example: vinelm check my_app:workflow --models models.toml
    """
    if workflow is None and (models is None or dataset is not None or columns or prompts):
        raise ConfigError("name a WORKFLOW to check, or a catalog with --models")
    if yes and models is None:
        raise ConfigError("--yes has no effect without --models: leave it out, or name a catalog")
    checked = None if models is None else check_models(models, is_called=yes)
    if checked is not None and not as_json:
        checked.show(is_brief=workflow is not None)
    report = None if workflow is None else _checked(workflow, models, dataset, columns, with_prompts=prompts)
    if as_json:
        print_json(_plain(report, checked))
    elif report is not None:
        _show(report, str(workflow))
    for item in () if report is None else report.items:
        if not item.is_ok:
            raise WorkflowError(f"{workflow}: {item.name}: {item.detail}")
    return None if checked is None or checked.is_ok else 1


def _checked(
    workflow: str, models: Path | None, dataset: str | None, columns: tuple[str, ...], *, with_prompts: bool
) -> CheckReport:
    from vinelm.datasets.reading import Columns
    from vinelm.profiler.readiness import check_workflow
    from vinelm.workflows.registry import load_workflow

    loaded = load_workflow(workflow, dataset=dataset, columns=Columns.parse(columns))
    own = loaded.models if models is None else None
    catalog = own or catalog_for_check(models, loaded.simulated_preset)
    return check_workflow(loaded, catalog, with_prompts=with_prompts)


def _plain(report: CheckReport | None, checked: CheckedModels | None) -> dict[str, Any]:
    plain = {} if checked is None else checked.to_dict()
    if report is None:
        return plain
    return {**plain, **asdict(report), "is_ok": report.is_ok and plain.get("is_ok", True)}


def _show(report: CheckReport, spec: str) -> None:
    for item in report.items:
        word = "FAIL" if not item.is_ok else "look" if item.is_doubtful else "ok  "
        say(f"{word}  {item.name}: {item.detail}", hanging=6)
    for question in report.questions:
        say(f"ask   {question}", hanging=6)
    if report.template_code is not None:
        say("The template, read from the graph. Paste it into the workflow to keep it, or to change models and bounds:")
        echo(f"{report.template_code}\n")
    if report.prompts is not None:
        show_table(PROMPT_TITLE, PROMPT_COLUMNS, [prompt_row(stage) for stage in report.prompts.stages])
        for words in prompt_words(report.prompts):
            say(words)
    if report.is_ok:
        echo(f"Ready. Next: vinelm profile {spec}")


# -- the models of a catalog --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CheckedModels:
    """The result of checking the models of a catalog file.

    Attributes:
        file: The catalog file.
        found: The diagnosis of each model.
        problems: What is wrong with the file itself, one line each.
        notes: Further remarks on the file.
        is_called: Whether each model got a short call; otherwise only its entry was checked.
    """

    file: Path
    found: list[ModelDiagnosis]
    problems: list[str]
    notes: tuple[str, ...]
    is_called: bool

    @property
    def is_ok(self) -> bool:
        """Whether every model can be called."""
        return not self.problems and all(one.is_ok for one in self.found)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON types."""
        return {
            "catalog": str(self.file),
            "is_called": self.is_called,
            "is_ok": self.is_ok,
            "problems": self.problems,
            "notes": list(self.notes),
            "spent_usd": _spent(self.found),
            "models": [_plain_model(one) for one in self.found],
        }

    def show(self, *, is_brief: bool) -> None:
        """Print tables, problems and notes. If ``is_brief`` and no model was called, print only the problems."""
        if is_brief and not self.is_called:
            _show_problems(self.found, self.problems)
        else:
            _show_models(self.found, self.problems, self.notes, is_called=self.is_called)


def check_models(file: Path, *, is_called: bool) -> CheckedModels:
    """Check the models of a catalog file. With ``is_called`` each model gets one short call, which costs money."""
    from datetime import date

    from vinelm.backends.diagnostics import catalog_problems, diagnose
    from vinelm.catalog.loading import read_catalog_file

    read = read_catalog_file(file)
    problems = [str(error) for error in read.errors]
    if read.models or not problems:
        problems += catalog_problems(read.models, read.backends)
    found = [diagnose(model, read.backends, today=date.today(), is_called=is_called) for model in read.models]
    return CheckedModels(file=file, found=found, problems=problems, notes=read.notes, is_called=is_called)


def _plain_model(one: ModelDiagnosis) -> dict[str, Any]:
    model, probe = one.model, one.probe
    measured: dict[str, Any] = {} if probe is None else {**asdict(probe), "tokens_per_s": probe.tokens_per_s}
    return {
        "name": model.name,
        "provider": model.provider,
        "model": model.model_id,
        "engine": model.engine,
        "is_ok": one.is_ok,
        "is_reached": None if probe is None else probe.is_reached,
        "price": {**model.price.model_dump(mode="json"), "price_id": model.price_id},
        "limits": dict(one.limits),
        "max_tokens": model.max_tokens,
        "context_tokens": one.context_tokens,
        "upper_bound_usd": one.upper_bound_usd,
        "problems": list(one.problems),
        "notes": list(one.notes),
        **measured,
    }


def _show_models(found: list[ModelDiagnosis], problems: list[str], notes: tuple[str, ...], *, is_called: bool) -> None:
    from vinelm.catalog.environment import variables_of_files

    if found:
        columns = ("model", "provider", "status", "$/Mtok in, out", "price from", "price date", "limits per minute")
        show_table("Models", columns, [_row(one) for one in found])
    answered = [one for one in found if one.probe is not None and one.probe.is_reached]
    if answered:
        show_table("One call each", ("model", "TTFT", "total", "tokens/s", "context", "cost"), [_measured(o) for o in answered])
    _show_problems(found, problems)
    for one in found:
        for note in one.notes:
            say(f"note     {one.model.name}: {note}", hanging=9)
    for note in notes:
        say(f"note     {note}", hanging=9)
    if taken := variables_of_files():
        names = ", ".join(sorted(taken))
        say(f"note     from {', '.join(sorted(set(taken.values())))}: {names}", hanging=9)
    if is_called:
        echo(f"Spent {usd(_spent(found))}.")
    elif any(one.upper_bound_usd is not None for one in found):
        most = sum(one.upper_bound_usd or 0.0 for one in found)
        echo(f"Nothing was sent. Add --yes to call each model once, for at most {usd(most)} in total.")


def _show_problems(found: list[ModelDiagnosis], problems: list[str]) -> None:
    for problem in [*problems, *(f"{one.model.name}: {problem}" for one in found for problem in one.problems)]:
        say(f"problem  {problem}", hanging=9)


def _row(one: ModelDiagnosis) -> tuple[str, ...]:
    from vinelm.catalog.prices import price_origin

    price, limits = one.model.price, one.limits
    status = "problem" if not one.is_ok else "ready" if one.probe is None else "answers"
    words = {"requests_per_min": "requests", "tokens_per_min": "tokens", "concurrency": "concurrent"}
    limited = ", ".join(f"{limits[key]:,} {word}" for key, word in words.items() if isinstance(limits.get(key), int))
    per_call = f" + {price.call:g} per call" if price.call else ""
    return (
        one.model.name,
        one.model.provider,
        status,
        f"{price.input:g}, {price.output:g}{per_call}",
        price_origin(one.model),
        price.as_of.isoformat(),
        limited or "none",
    )


def _measured(one: ModelDiagnosis) -> tuple[str, ...]:
    probe = one.probe
    assert probe is not None
    return (
        one.model.name,
        "-" if probe.ttft_s is None else f"{probe.ttft_s:.2f} s",
        f"{probe.latency_s:.2f} s",
        "-" if probe.tokens_per_s is None else f"{probe.tokens_per_s:,.0f}",
        "-" if one.context_tokens is None else f"{one.context_tokens:,}",
        usd(probe.cost_usd),
    )


def _spent(found: list[ModelDiagnosis]) -> float:
    return sum(one.probe.cost_usd for one in found if one.probe is not None)
