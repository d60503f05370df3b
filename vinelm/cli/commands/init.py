"""``vinelm init``: reads an application's graph, and writes its catalog and its workflow file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vinelm.cli.console import echo, print_json, say, stdout
from vinelm.cli.options import flag, json_option, option
from vinelm.cli.quantities import Count

if TYPE_CHECKING:
    from vinelm.datasets import RequestSet
    from vinelm.scaffold import AppGraph, Project


@click.command("init", short_help="Write models.toml and workflow.py for your own app.")
@click.argument("app", required=False, metavar="[APP]")
@option(
    "--models NAME,NAME",
    "Models to choose from, such as openai:gpt-5-mini. The name of a provider (openai, anthropic, gemini, bedrock) stands "
    "for some of its models, simulated for two that cost nothing [default: the app's, and others of their providers].",
)
@option("--dataset FILE", "Requests with their labels: CSV, JSON lines, Parquet, or an export.")
@option("--label-field COLUMN", "Column with the right answer. Repeatable.", into="label_fields", multiple=True)
@option("--today MODEL", "The model that runs today wherever the app does not say it, as PROVIDER:MODEL.")
@option(
    "--loop-times N",
    "Most turns of a loop for which the graph names no bound [default: 3, with a question in workflow.py].",
    Count(1),
)
@option("--out DIR", "Folder of the new files [default: the app's].", Path)
@flag("--apply", "Also put vine.around(...) around the models that the app makes.", into="is_applied")
@flag("--force", "Replace workflow.py if it exists, and models.toml if --models is given.")
@flag("--dry-run", "Say what would be written and changed. Writes nothing.")
@flag("-y --yes", "Ask nothing: what is not given takes its default.")
@json_option
def command(
    *,
    app: str | None,
    models: str | None,
    dataset: str | None,
    label_fields: tuple[str, ...],
    today: str | None,
    loop_times: int | None,
    out: Path | None,
    is_applied: bool,
    force: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Start with your own application: read its graph, and write a catalog of models and a workflow file.

    APP is FILE.py:ATTRIBUTE or MODULE:ATTRIBUTE: a LangGraph graph, compiled or not, or a function that returns a graph and may
    take the chat model as its argument. If APP is left out, the graph of langgraph.json is used; langgraph.json:NAME selects
    one of several. The app's module is imported, but no node and no model is run.

    Writes models.toml, the catalog, and workflow.py: the stages, branches and loops of the graph, the dataset, and a scorer to
    complete. What the graph does not say is marked with TODO. Existing files are kept, unless --force is given. On a terminal,
    the command asks for what is missing. Either all files are written or none; if the command is killed while it writes, the
    next run completes them.

    Example: vinelm init app.py:graph --models openai --dataset questions.jsonl --label-field answer
    """
    from vinelm.datasets import Columns, read_dataset
    from vinelm.scaffold import make_project, read_application
    from vinelm.scaffold.applied import finish
    from vinelm.scaffold.catalog_file import chosen_models
    from vinelm.scaffold.project import refuse_existing, workflow_file_of
    from vinelm.scaffold.target import project_folder, root_of

    asks = not (yes or as_json) and sys.stdin.isatty() and stdout().is_terminal
    spec = app or _asked_app(asks=asks)
    if not dry_run and (finished := finish(out or project_folder(root_of(spec, Path.cwd()), Path.cwd()))):
        _show_finished(finished, as_json=as_json)
        return
    found = read_application(spec, Path.cwd())
    folder = out or project_folder(found.target.root, Path.cwd())
    if not force and not dry_run:
        refuse_existing([workflow_file_of(folder)])  # before anything is asked
    loop_times = loop_times or (_asked_turns() if asks and found.open_loops else None)
    found = found if today is None else found.running_today(chosen_models([today])[0])
    found = found if loop_times is None else found.with_loops(loop_times)
    chosen = _models(found, folder, models, asks=asks)
    dataset = dataset or _asked_dataset(asks=asks)
    requests = None if dataset is None else read_dataset(dataset, Columns())
    if requests is not None and not label_fields and asks:
        label_fields = _asked_label(requests)
    if found.calls and not is_applied and asks and not dry_run:
        is_applied = _asked_edit(found)
    project = make_project(found, folder, chosen, dataset=requests, labels=label_fields, is_applied=is_applied)
    if not dry_run:
        project.write(force=force)
    (_print_json if as_json else _show)(found, project, is_written=not dry_run)


def _models(found: AppGraph, folder: Path, models: str | None, *, asks: bool) -> tuple[str, ...]:
    """Return the names of the models that the user chose. If ``asks`` is true and the folder has no catalog, ask the user for
    them.

    The result is empty if the folder has a catalog and the user named no ``models``.
    """
    from vinelm.scaffold.catalog_file import PROVIDER_MODELS, SIMULATED
    from vinelm.scaffold.project import MODELS_FILE, models_for, suggested_models

    if asks and models is None and not (folder / MODELS_FILE).exists():
        from rich.prompt import Prompt

        names = ", ".join((*PROVIDER_MODELS, SIMULATED))
        question = f"Models, as PROVIDER:MODEL, or one of {names}"
        models = Prompt.ask(question, default=",".join(suggested_models(found)) or "openai", console=stdout())
    return models_for(found, folder, models)


# -- questions, on a terminal only -----------------------------------------------------------------------------


def _asked_app(*, asks: bool) -> str | None:
    from vinelm.scaffold.target import LANGGRAPH_FILE

    if not asks or Path(LANGGRAPH_FILE).exists():
        return None
    from rich.prompt import Prompt

    return Prompt.ask("Your graph, as FILE.py:ATTRIBUTE", default="app.py:graph", console=stdout())


def _asked_turns() -> int:
    from rich.prompt import IntPrompt

    question = "The graph does not say how often its loop turns. How often at most?"
    return max(IntPrompt.ask(question, default=3, console=stdout()), 1)


def _asked_dataset(*, asks: bool) -> str | None:
    if not asks:
        return None
    from rich.prompt import Prompt

    question = "Dataset of requests with their right answers (empty: later)"
    return Prompt.ask(question, default="", show_default=False, console=stdout()) or None


def _asked_label(requests: RequestSet) -> tuple[str, ...]:
    from rich.prompt import Prompt

    from vinelm.scaffold.request_keys import label_of

    columns = [column for column in requests.requests[0].data if column != "id"]
    likely = label_of(requests)
    question, choices = "Column with the right answer (empty: none)", [*columns, ""]
    answer = Prompt.ask(question, choices=choices, default=likely or "", console=stdout())
    return (answer,) if answer else ()


def _asked_edit(found: AppGraph) -> bool:
    from rich.prompt import Confirm

    echo("VineLM chooses where it is around a model. It would change:")
    for line in _edits(found):
        echo(f"  {line}")
    return Confirm.ask("Change these lines now?", default=False, console=stdout())


# -- output ------------------------------------------------------------------------------------------------------


def _edits(found: AppGraph) -> list[str]:
    is_named = found.target.is_code
    return [
        f"{call.path.name}:{call.line}: {' '.join(call.source.split())}  ->  {call.replacement(is_named=is_named)}"
        for call in found.calls
    ]


def _show_finished(finished: list[Path], *, as_json: bool) -> None:
    """Print that this run completed the files of an earlier run that was killed, and that the command has to be run again for
    what was requested now.
    """
    if as_json:
        print_json({"finished": [str(path) for path in finished]})
    else:
        say(f"Finished what a run that was killed had begun: wrote {' and '.join(path.name for path in finished)}.")


def _print_json(found: AppGraph, project: Project, *, is_written: bool) -> None:
    print_json(
        {
            "is_written": is_written,
            "graph": found.target.spec,
            "stages": found.stages,
            "models_today": found.models,
            "today": dict(project.today),
            "asked_today": list(project.asked),
            "has_template": found.template is not None,
            "folder": str(project.folder),
            "files": [str(path) for path in project.files],
            "kept": [str(path) for path in project.kept],
            "edited": [str(path) for path in project.edits],
            "to_change": [] if project.edits else _edits(found),
            "todo": [{"line": line, "text": text} for line, text in project.todos],
            "next": project.next_commands,
        }
    )


def _show(found: AppGraph, project: Project, *, is_written: bool) -> None:
    many = "1 stage" if len(found.stages) == 1 else f"{len(found.stages)} stages"
    say(f"{found.target.spec} has {many}, whose models can be chosen: {', '.join(found.stages)}.")
    if project.today:
        say(f"Models of today: {', '.join(f'{stage} {model}' for stage, model in project.today.items())}.")
    names = " and ".join(path.name for path in project.files)
    say(f"{'Wrote' if is_written else 'Would write'} {names}{_where(project)}.")
    for path in project.kept:
        say(f"Kept {path.name}, which was there.")
    for path in project.edits:
        say(f"{'Changed' if is_written else 'Would change'} {path.name}: vine.around(...) around its models.")
    if project.todos:
        echo(f"\nTo do in {project.workflow_file.name}:")
        for line, text in project.todos:
            say(f"line {line}: {text}", indent="  ", hanging=2)
    if found.calls and not project.edits:
        echo("\nTo change in your app, so that VineLM chooses its models (--apply --force does it):")
        for edit in _edits(found):
            say(edit, indent="  ", hanging=2)
    echo("\nNext:")
    if project.folder.resolve() != Path.cwd():
        echo(f"  cd {project.folder}")
    for next_command in project.next_commands:
        echo(f"  {next_command}")


def _where(project: Project) -> str:
    return "" if project.folder.resolve() == Path.cwd() else f" to {project.folder}"
