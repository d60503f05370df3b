"""Options of a command are the keywords of its Python verb: name, default, and an example that is run or that the help shows.

``PYTHONPATH=scripts python tests/cli/test_parity.py`` prints the count.
"""

import inspect
import re
import shlex
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import click
import page_outputs

from vinelm.cli.main import cli

VERBS = {
    "try": "vinelm:try_app",
    "profile": "vinelm:profile",
    "estimate": "vinelm:estimate",
    "plan": "vinelm:plan",
    "evaluate": "vinelm:evaluate",
    "verify": "vinelm:verify",
    "report": "vinelm:report",
    "batch": "vinelm:batch",
    "drift": "vinelm.api:drift",
    "replay": "vinelm.replay:replay",
}
"""Each command that does what a Python function does."""
INSIDE = {
    "objective": "vinelm:Objective",
    "fields": "vinelm:Objective",
    "execution": "vinelm:ExecutionConfig",
    "config": "vinelm.estimator:DriftConfig",
    "batch_prices": "vinelm.backends.remote.batches:BatchTimes",
}
"""Keywords that take an object whose fields are options."""
PRINTED = {"--json": "how the result is shown", "--quiet": "how progress is shown", "--output": "where the result is written"}
"""Options of a terminal: a call returns its result, and tells its progress to a function."""
SHARED = {"cost_budget", "max_cost_usd", "max_latency_s", "maximize", "min_accuracy", "minimize", "objective", "risk"} | {
    "columns",
    "engine",
    "seed",
    "ship",
}
"""Options that several commands declare together: one example of any of these commands will do."""
EXCEPTIONS = {
    **dict.fromkeys(
        ["profile --isolation: default", "profile --workers: default"],
        "a command runs units in processes of their own; a call must not start processes unasked",
    ),
    "profile --wait: default": "None stands for the 24 h of BatchTimes, so that --wait alone can be refused",
    **dict.fromkeys(
        [
            "profile --engine: no keyword",
            "profile --ship: no keyword",
        ],
        "two words that make the RayCluster of ExecutionConfig(cluster=)",
    ),
    "profile --traces: no keyword": "what Traces.read reads; in Python recorded= takes it",
    "profile recorded: no option": "it is --traces",
    "profile requests: no option": "Request objects; a command has --dataset and --limit",
    **dict.fromkeys(
        ["replay --dry-run: no keyword", "replay --format: no keyword", "replay --redact: no keyword"],
        "vinelm.replay.bill_of, and what read_calls takes, whose calls a replay is given",
    ),
    "replay --plans: no keyword": "StepResult.plan_file is what it writes",
    "replay --report: no keyword": "vinelm.reports.replay_page makes the page of a result",
    "replay calls: no option": "they are the argument TRACES",
    "replay backends: no option": "objects; a command has those of the catalog",
    "report evaluation: no option": "the object that vinelm.evaluate returns",
    "estimate --update: no keyword": "vinelm.api.update(trie, traces) is a call of its own",
    "evaluate --against: no keyword": "vinelm.verdicts.compare_workflows(store, against) is a call of its own",
    "plan --accept-optimism: no keyword": "it takes an exit code away; in Python nobody has to ask require_evidence",
    "plan --as-code: no keyword": "the plan as text; a call returns the plan",
    **dict.fromkeys(
        ["plan --show: no keyword", "plan --diff: no keyword"], "print what load_trie returns, which has no call of its own"
    ),
    **dict.fromkeys(
        [f"plan --{name}: no keyword" for name in ("explain", "prefix", "arm", "elapsed-s", "load")],
        "vinelm.controller.Planner.plan takes the point of a request, and its result has alternatives()",
    ),
    "batch --report: no keyword": "where a page is written; in Python reports.batch_page of the result",
}
"""What differs, and why it may. The list has to be exact: it only gets shorter."""


def command_of(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def options(command: str) -> dict[str, click.Option]:
    """The options of a command by their long names, without those of every command."""
    listed = {max(one.opts, key=len): one for one in command_of(command).params if isinstance(one, click.Option)}
    return {name: one for name, one in listed.items() if name not in PRINTED and name != "--help"}


def resolved(spec: str):
    module, _, name = spec.partition(":")
    return getattr(import_module(module), name)


def keywords(command: str) -> tuple[dict[str, object], dict[str, object]]:
    """Keywords of the verb with their defaults, and the fields of the objects that it takes."""
    own, inner = {}, {}
    for name, one in inspect.signature(resolved(VERBS[command])).parameters.items():
        if name == "batch_prices" or name not in INSIDE:
            own |= {} if name.startswith("on_") else {name: one.default}
        if name in INSIDE:
            held = resolved(INSIDE[name])
            assert is_dataclass(held)
            inner |= {one.name: one.default for one in fields(held)}
            inner |= {name: None} if name == "objective" else {}
    return own, inner


@cache
def examples() -> tuple[str, ...]:
    """Every command line that a page runs or a help shows, in one line each."""
    lines = []
    for page in page_outputs.pages():
        for block in page_outputs.blocks(page.read_text(encoding="utf-8")):
            if block.verb == "run":
                lines += re.findall(r"(?:^|\$ |; |&& )(vinelm .*)", re.sub(r"\\\n\s*", " ", block.code), re.MULTILINE)
                lines += re.findall(r"\bafter (vinelm .*)", block.what)
    for command in VERBS:
        text = command_of(command).help
        for paragraph in inspect.cleandoc(text).split("\n\n"):
            if paragraph.startswith("Example"):
                lines += [line.removesuffix(", and") for line in re.split(r" (?=vinelm )", " ".join(paragraph.split()))[1:]]
    return tuple(lines)


def is_plain(value: object) -> object:
    """A default as both sides say it: click has an empty tuple, or False, where Python says None."""
    return None if value in ((), "", False, None) or type(value).__name__ == "Sentinel" else str(value)


def differences() -> list[str]:
    found = []
    for command in VERBS:
        own, inner = keywords(command)
        given = options(command)
        for option, one in given.items():
            name = one.name
            if name not in {**own, **inner}:
                found.append(f"{command} {option}: no keyword")
            elif is_plain({**inner, **own}[name]) not in (is_plain(one.default), "<class 'inspect._empty'>"):
                found.append(f"{command} {option}: default")
            names, where = "|".join(map(re.escape, [*one.opts, *one.secondary_opts])), ".*" if name in SHARED else command
            shown = re.compile(rf"^vinelm {where} .*(?<![\w-])(?:{names})(?![\w-])")
            if not any(map(shown.search, examples())):
                found.append(f"{command} {option}: no example")
        taken = {one.name for one in command_of(command).params}
        found += [f"{command} {name}: no option" for name in own if name not in taken]
    return found


def test_what_differs_is_the_list_of_exceptions():
    now = differences()
    assert sorted(now) == sorted(EXCEPTIONS), "\n".join(sorted({*now} ^ {*EXCEPTIONS}))


def test_every_exception_has_a_reason():
    assert all(len(reason) > 10 for reason in EXCEPTIONS.values())


def test_the_lines_of_a_help_can_be_run(tmp_path, monkeypatch):
    """Each is read by its command as it stands: values, too."""
    monkeypatch.chdir(tmp_path)
    for line in examples():
        words = shlex.split(re.sub(r" (?:2>|[|>&#]).*", "", line))
        if words[1] in VERBS and "..." not in words:
            for option, file in pairwise(words):
                if option == "--dataset" and "/" not in file:
                    Path(file).touch()
            assert command_of(words[1]).make_context(words[1], words[2:])


if __name__ == "__main__":
    now = differences()
    by = {kind: sum(one.endswith(kind) for one in now) for kind in ("no keyword", "no option", "default", "no example")}
    print(f"{sum(len(options(one)) for one in VERBS)} options of {len(VERBS)} verbs; {len(now)} differences: {by}")
    print("\n".join(now))
