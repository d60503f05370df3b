"""``vinelm gateway``: serves OpenAI's chat completions to every client with a ``base_url`` setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from vinelm.cli.console import say
from vinelm.cli.inputs import objective_in
from vinelm.cli.options import flag, objective_options, option
from vinelm.cli.quantities import POINTS, RATE, USD, Count
from vinelm.cli.waiting import held
from vinelm.errors import ConfigError

KEYS_FILE = "gateway.db"
keys_option = option("--keys DB", "Keys of callers, as `vinelm keys` makes them.", Path, default=KEYS_FILE)
RECORD_FILE = "calls.jsonl"


@click.command("gateway", short_help="Serve OpenAI's chat completions: record calls, keep caps, run the plan.")
@click.argument("trie", required=False, type=click.Path(path_type=Path))
@option(
    "--models MODELS", "What may be called: a catalog (.toml), or PROVIDER:MODEL with commas between.", default="models.toml"
)
@option("--host ADDRESS", "Address to listen on. All but this machine's own needs keys.", default="127.0.0.1")
@option("--port N", "Port to listen on; 0 takes a free one.", Count(), default=4000)
@option("--keys DB", f"Keys of callers, as `vinelm keys` makes them [default: {KEYS_FILE}, if it exists].", Path)
@option(
    "--record FILE",
    f"Write each call there, with prompt and answer: `vinelm replay` reads it [default: {RECORD_FILE}].",
    Path,
)
@flag("--no-record", "Write no calls.")
@option(
    "--step WORDS=NAME", "Name a step by the first words of its system prompt. Can be repeated.", into="steps", multiple=True
)
@option("--evidence DB", "Store of the rows of planned requests, for `vinelm drift`.", Path)
@flag("--allow-unproven", "Serve the plan to all requests, proven or not.")
@option("--autopilot DB", "Prove cheaper models while it serves, and run them: the store that keeps everything.")
@option("--max-loss POINTS", "With --autopilot: what a step may lose [default: 1].", POINTS)
@option("--shadow-usd-per-day USD", "With --autopilot: most dollars a day for asking recorded prompts [default: 2].", USD)
@option("--labels N", "With --autopilot: questions that persons will answer, in all [default: 100].", Count())
@option("--max-slowdown RATIO", "With --autopilot: a plan's seconds in multiples of today's [default: any].", RATE)
@flag("--batch-prices", "With --autopilot: ask in the providers' batches, for half the price.")
@option("--judge MODEL", "With --autopilot: an entry that compares answers that differ, which may save labels.")
@objective_options
def command(
    *,
    trie: Path | None,
    models: str,
    host: str,
    port: int,
    keys: Path | None,
    record: Path | None,
    no_record: bool,
    steps: tuple[str, ...],
    evidence: Path | None,
    allow_unproven: bool,
    autopilot: str | None,
    max_loss: float | None,
    shadow_usd_per_day: float | None,
    labels: int | None,
    max_slowdown: float | None,
    batch_prices: bool,
    judge: str | None,
    **given: Any,
) -> None:
    """Serve OpenAI's chat completions API on http://HOST:PORT/v1, for every client that has a base_url setting.

    Without a plan, each call goes unchanged to the model that it names, and is written to the file --record. From this file
    `vinelm replay` shows where the money goes. TRIE is a plan file, as `vinelm estimate` writes it. With it, the calls of its
    steps go to the models that the plan chooses.

    A call names its step by the model (vinelm/NAME) or by the header x-vinelm-step; otherwise the step is recognized by the
    beginning of the system prompt. Calls with the same header x-vinelm-request belong to one request, for which caps and plans
    apply. The header x-vinelm-objective sets the objective as a JSON object. Without an objective, the plan that the file's
    verdict recommends is used.

    With --autopilot, cheaper models of the catalog are also sent the recorded prompts. Models that are proven to lose less than
    --max-loss take over, and are watched. `vinelm label DB` asks a person its open questions, and `vinelm autopilot status DB`
    shows its status.

    If there are keys (`vinelm keys add NAME`), every caller needs one. The providers' API keys stay on this machine, in the
    environment variables that the catalog names. After Ctrl-C the calls in flight are finished. Spends money.

    Example: vinelm gateway --models openai

    Example: vinelm gateway app.vine --models models.toml --port 4000 --maximize accuracy --max-cost-usd 0.01
    """
    from vinelm.api import VineLM
    from vinelm.extras import require_extra

    require_extra("gateway", "the gateway", "starlette", "uvicorn", "openai")
    from vinelm.gateway import Gateway, KeyBook
    from vinelm.gateway.server import serve

    objective = objective_in(given, is_open=True)
    if trie is None:
        for what, is_given in (("--evidence", evidence), ("--allow-unproven", allow_unproven), ("an objective", objective)):
            if is_given:
                raise ConfigError(f"{what} has no effect without a plan: name its file, or leave it out")
    if port > 65_535:
        raise ConfigError(f"--port is {port}: ports end at 65535")
    if record is not None and no_record:
        raise ConfigError("--record and --no-record contradict each other: leave one out")
    file, record = Path(KEYS_FILE) if keys is None else keys, record or Path(RECORD_FILE)
    book = KeyBook(file) if file.exists() else None
    if book is None or not book.has_keys:
        if keys is not None:  # a user who names a file wants callers to need a key
            raise ConfigError(f"--keys {keys}: there is no key in it: `vinelm keys add NAME --keys {keys}` makes one")
        book = None
    asked = {
        "max_loss": max_loss, "shadow_usd_per_day": shadow_usd_per_day, "labels": labels, "max_slowdown": max_slowdown,
        "judge": judge, "batch_prices": batch_prices or None,
    }  # fmt: skip
    vine = VineLM(
        _models(models), trie=trie, evidence=evidence, allow_unproven=allow_unproven, fallback=trie is not None,
        autopilot=_autopilot(autopilot, {name: value for name, value in asked.items() if value is not None}),
    )  # fmt: skip
    gateway = Gateway(vine, keys=book, record=None if no_record else record, objective=objective, steps=_named(steps))
    if trie is not None:
        vine.watch()

    def listening(url: str) -> None:
        say(f"Listening on {url} (Ctrl-C ends)", bold=True)
        say(
            f"Callers need a key of {file}."
            if book is not None
            else "Every program of this machine is served: there are no keys."
        )
        say(f"Models: {', '.join(vine.catalog)}.")
        if vine.template is not None:
            say(f"Steps of {trie}: {', '.join(stage.name for stage in vine.template.stages)}.")
        if autopilot is not None:
            say(f"Cheaper models are proven meanwhile: vinelm autopilot status {autopilot}")
        if not no_record:
            say(f"Calls are written to {record}, with their prompts: vinelm replay {record} --dry-run")

    with held():
        serve(gateway, host, port, on_listening=listening)


def _autopilot(store: str | None, asked: Mapping[str, Any]) -> Any:
    if store is None:
        if asked:
            name = next(iter(asked)).replace("_", "-")
            raise ConfigError(f"--{name} has no effect without --autopilot DB: name its store, or leave it out")
        return None
    from vinelm.cli.main import module_of

    return import_module(module_of("autopilot")).autopilot_of(store, asked)


def _models(named: str) -> Any:
    from vinelm.catalog import Catalog
    from vinelm.scaffold.catalog_file import chosen_models

    is_file = named.endswith((".toml", ".yaml", ".yml"))
    return Path(named) if is_file else Catalog.of(chosen_models(named.split(",")))


def _named(steps: Iterable[str]) -> dict[str, str]:
    found = {}
    for step in steps:
        words, equals, name = step.rpartition("=")
        if not (equals and words and name):
            raise ConfigError(f"--step {step!r}: write the first words of the system prompt, =, and a name")
        found[words] = name
    return found
