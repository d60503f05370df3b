"""``vinelm demo``: recorded answers of real models, small models on this machine, or tours on simulated models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, progress, say, stdout
from vinelm.cli.declared import declared
from vinelm.cli.options import flag, option, output_options
from vinelm.errors import ConfigError
from vinelm.reports import percent, usd

if TYPE_CHECKING:
    from vinelm.demo import RecordedResult, TourResult

RECORDED = ("code", "exams")
TOURS: dict[str, tuple[str, dict[str, float]]] = {
    "sql": ("nl2sql-2", {}),
    "support": ("support", {}),
    "graphqa": ("graphqa", {"coverage": 0.06}),  # it has many rows, and each program runs in a sandbox
}
"""Tours by name, each with its workflow and how it is profiled."""
SIMULATED = "Simulated models: answers, prices and latencies are not those of real models."
REAL = (
    "Real: SmolLM2-135M and Gemma-3-270M read amounts in words, on this machine. Dollars are assumed: $1 per million tokens"
    " and billion parameters. The task was made for models of this size."
)
OPENED = " (opened in the browser)"


@click.command("demo", short_help="See it work on recorded answers of real models: no key, no network.")
@click.argument("name", type=click.Choice([*RECORDED, *TOURS]), default="code")
@option("--output-dir PATH", "Folder for all files [default: runs/demo, or runs/demo-NAME of another one].", Path)
@flag("--real", "Two small models answer on this machine, for some minutes; needs packages that it names.", into="is_real")
@declared("vinelm.api.profiling:profile", only=("seed", "limit"))
@output_options
@click.option(
    "--open/--no-open",
    "opens",
    default=None,
    help="Open the report in the browser [default: on a terminal of a machine with a desktop].",
)
def command(
    *,
    name: str,
    output_dir: Path | None,
    is_real: bool,
    as_json: bool,
    quiet: bool,
    opens: bool | None,
    seed: int,
    limit: int | None,
) -> None:
    """Run VineLM from profile to report on examples that come with the package. Needs no API keys and no network; takes some
    seconds.

    On recorded answers of real models:

    code (the default): four models write 376 methods of ClassEval, and half of each method's tests check the answer. An example
    where VineLM saves money.

    exams: nine models answer 600 exam questions, with the dollars and seconds of their calls. An example where VineLM does not
    save money.

    On real models that answer on this machine, without a key: --real asks SmolLM2-135M and Gemma-3-270M for amounts written in
    words. Tokens and seconds are measured, dollars assumed.

    Tours of features, on simulated models; they need the extra demo:

    sql: two models write SQL, which is really executed, and repair it while a check fails.

    support: a support desk, whose graph branches. A router sends each ticket to one of three desks; two of them look something
    up, and a reply follows. A plan chooses the models separately for each desk.

    graphqa: questions to the graphs of five databases. Either one program answers, or a plan, programs and reasoning take
    turns; the programs are really executed. It needs the extra graph.

    Writes demo.db, demo.vine and report.html; replaces those of an earlier demo.

    Example: vinelm demo exams --seed 1 --output-dir runs/demo
    """
    if is_real and name != "code":
        raise ConfigError("--real is a demo of its own: leave its name out")
    shown = "real" if is_real else name
    folder = output_dir or Path("runs/demo" if shown == "code" else f"runs/demo-{shown}")
    if is_real:
        _run_real(folder, limit, seed=seed, as_json=as_json, quiet=quiet, opens=opens)
    elif name in RECORDED:
        if limit is not None:
            raise ConfigError(f"--limit belongs to the tours ({', '.join(TOURS)}): leave it out")
        _run_recorded(name, folder, seed=seed, as_json=as_json, quiet=quiet, opens=opens)
    else:
        _run_tour(name, folder, limit, seed=seed, as_json=as_json, quiet=quiet, opens=opens)


def _run_recorded(name: str, folder: Path, *, seed: int, as_json: bool, quiet: bool, opens: bool | None) -> None:
    from vinelm.demo import run_recorded

    with progress(quiet=quiet) as advance:
        found = run_recorded(name, folder, seed=seed, advance=advance)
    is_opened = _is_opened(found.page, opens, as_json=as_json)
    if as_json:
        print_json(_facts(found))
    else:
        _print_recorded(found, is_opened=is_opened)


def _print_recorded(found: RecordedResult, *, is_opened: bool) -> None:
    """Print the result of a demo on recorded answers, in at most 18 lines of 80 columns; ``is_opened``: whether a browser shows
    the report.
    """
    from vinelm.demo.recorded_page import MOST_MODELS, bought, open_question, sentence, table_columns, table_rows

    subject = found.subject
    say(subject.replayed)
    echo()
    cells = [table_columns(found), *(row for _, row in table_rows(found, most_models=MOST_MODELS))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *figures in cells:
        aligned = [cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True)]
        echo("   ".join([first.ljust(widths[0]), *aligned]).rstrip())
    echo()
    say(sentence(found), bold=True)
    say(f"Plan: {found.plan}")
    asked = open_question(found)
    if asked is not None:
        say(asked)
        say(f"{subject.real} {subject.chosen}")
    else:
        say(subject.real)
        say(subject.chosen)
    say(f"Report: {found.page}{OPENED if is_opened else ''}. {bought(found)}")


def _facts(found: RecordedResult) -> dict[str, Any]:
    """Return the demo's result as plain JSON types: files, verdict, plan, numbers of requests and results, and each policy's
    figures.
    """
    from vinelm.demo.recorded_page import open_question, sentence
    from vinelm.trie.verdict import LEADS

    def difference(one: Any) -> dict[str, Any] | None:
        if one is None:
            return None
        plan = one.served
        gain = {"gain": plan.gain, "gain_low": plan.best_low, "gain_high": plan.best_high}
        return {"verdict": LEADS[one.advice], "share": one.share, **gain, "saved_share": plan.saved_usd / one.cost_usd}

    return {
        "report": str(found.page), "store": str(found.store), "trie": str(found.trie),
        "is_simulated": False,
        "sentence": sentence(found),
        "plan": found.plan,
        "requests": len(found.groups),
        "rows": sum(found.profiled.counts),
        "spent_usd": found.profiled.spent_usd,
        "policies": [
            {
                "policy": one.name,
                "role": one.role,
                "accuracy": one.accuracy,
                "cost_usd": one.usd,
                "latency_s": one.seconds or None,
            }
            for one in found.policies
        ],
        "against_today": difference(found.found),
        "open": None if found.equal is None else {"sentence": open_question(found), **(difference(found.equal) or {})},
    }  # fmt: skip


def _run_real(folder: Path, limit: int | None, *, seed: int, as_json: bool, quiet: bool, opens: bool | None) -> None:
    from vinelm.demo import run_real

    with progress(quiet=quiet) as advance:
        found = run_real(folder, seed=seed, advance=advance, requests=limit)
    is_opened = _is_opened(found.page, opens, as_json=as_json)
    _print_tour(found, REAL, as_json=as_json, is_opened=is_opened)


def _run_tour(
    name: str,
    folder: Path,
    limit: int | None,
    *,
    seed: int,
    as_json: bool,
    quiet: bool,
    opens: bool | None,
) -> None:
    from vinelm.api.profiling import load_inputs
    from vinelm.demo import run_tour

    workflow, profiled = TOURS[name]
    if sys.stderr.isatty() and not quiet:
        echo(f"Simulated models: profile, estimate, evaluate and report.\nAll files go to {folder}.", err=True)
    with progress(quiet=quiet) as advance:
        inputs = load_inputs(workflow, seed=seed, preset="paper-2", limit=limit)
        found = run_tour(inputs.workflow, inputs.catalog, folder, seed=seed, advance=advance, **profiled)
    is_opened = _is_opened(found.page, opens, as_json=as_json)
    _print_tour(found, SIMULATED, as_json=as_json, is_opened=is_opened)


def _print_tour(found: TourResult, lead: str, *, as_json: bool, is_opened: bool) -> None:
    from vinelm.cli.commands.evaluate import evaluation_facts, show_evaluation

    if as_json:
        files = {"report": str(found.page), "store": str(found.store), "trie": str(found.trie)}
        print_json({**files, **evaluation_facts(found.evaluation)})
        return
    profile = found.profiled
    say(lead, bold=True)
    say(
        f"Profiled {sum(profile.counts):,} rows of {found.evaluation.requests} requests for {usd(profile.spent_usd)}:"
        f" {percent(profile.coverage)} of the cost of all rows."
    )
    echo()
    show_evaluation(found.evaluation, is_short=True)
    echo(f"Report: {found.page}{OPENED if is_opened else ''}")
    say(f"More: `vinelm evaluate {found.store} {found.trie}`.")


def _is_opened(page: Path, opens: bool | None, *, as_json: bool) -> bool:
    """Open the report ``page`` in a browser if ``opens`` is true. Return whether it was opened.

    If ``opens`` is None, it is opened only if the command prints text, not JSON, to a terminal on a desktop.
    """
    from vinelm.io.browser import has_desktop, open_page

    wanted = stdout().is_terminal and has_desktop() and not as_json if opens is None else opens
    is_opened = wanted and open_page(page)
    if opens and not is_opened:
        echo("No browser could be started: open the report yourself.", err=True)
    return is_opened
