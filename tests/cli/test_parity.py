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
}
"""Each command that does what a Python function does."""
INSIDE = {
    "objective": "vinelm:Objective",
    "fields": "vinelm:Objective",
    "execution": "vinelm:ExecutionConfig",
    "config": "vinelm.estimator:DriftConfig",
}
"""Keywords that take an object whose fields are options."""
PRINTED = {"--json": "how the result is shown", "--quiet": "how progress is shown", "--output": "where the result is written"}
"""Options of a terminal: a call returns its result, and tells its progress to a function."""
EXCEPTIONS = {
    " ".join(name.split()): reason
    for reason, names in {
        "stands in no example yet": """
            try --models: no example, try --today: no example, try --workers: no example, try --apply: no example, try
            --keep-going: no example, try --allow-unproven: no example, try --dry-run: no example, try --max-loss: no
            example, profile --dataset: no example, profile --column: no example, profile --max-error: no example,
            profile --checkpoints: no example, profile --workers: no example, profile --engine: no example, profile
            --ship: no example, profile --unit-timeout-s: no example, profile --memory-mb: no example, profile
            --batch-prices: no example, profile --wait: no example, profile --keep-going: no example, profile --stop:
            no example, estimate --estimator: no example, estimate --stop: no example, estimate --check: no example,
            estimate --calls-per-hour: no example, estimate --max-loss: no example, plan --cost-budget: no example,
            plan --risk: no example, plan --objective: no example, plan --accept-optimism: no example, plan --as-code:
            no example, evaluate --minimize: no example, evaluate --min-accuracy: no example, evaluate
            --max-latency-s: no example, evaluate --cost-budget: no example, evaluate --risk: no example, evaluate
            --objective: no example, evaluate --budget-usd: no example, evaluate --workflow: no example, evaluate
            --models: no example, evaluate --dataset: no example, evaluate --seed: no example, evaluate --log: no
            example, evaluate --workers: no example, evaluate --max-loss: no example, verify --minimize: no example,
            verify --min-accuracy: no example, verify --max-latency-s: no example, verify --cost-budget: no example,
            verify --risk: no example, verify --objective: no example, verify --dataset: no example, verify --column:
            no example, verify --signals: no example, verify --seed: no example, verify --log: no example, verify
            --workers: no example, verify --dry-run: no example, report --in-use: no example, report --show-text: no
            example, batch --column: no example, batch --minimize: no example, batch --min-accuracy: no example, batch
            --max-cost-usd: no example, batch --max-latency-s: no example, batch --cost-budget: no example, batch
            --risk: no example, batch --objective: no example, batch --finish: no example, batch --store: no example,
            batch --workers: no example, batch --engine: no example, batch --ship: no example, batch --models: no
            example, batch --report: no example, batch --batch-prices: no example, batch --seed: no example, drift
            --alpha: no example
        """,
        "not settled yet": """
            profile --preset: no keyword, profile --dataset: no keyword, profile --column: no keyword, profile
            --limit: no keyword, profile --isolation: default, profile --workers: default, profile --engine: no
            keyword, profile --ship: no keyword, profile --unit-timeout-s: no keyword, profile --batch-prices: no
            keyword, profile --wait: no keyword, profile --dry-run: no keyword, profile --stop: no keyword, profile
            requests: no option, estimate --update: no keyword, plan --objective: no keyword, plan --accept-optimism:
            no keyword, plan --as-code: no keyword, evaluate --objective: no keyword, evaluate --dataset: no keyword,
            evaluate in_use: no option, verify --objective: no keyword, verify --dataset: no keyword, verify --column:
            no keyword, report evaluation: no option, report seed: no option, batch --objective: no keyword, batch
            --deadline: no keyword, batch --engine: no keyword, batch --ship: no keyword, batch --report: no keyword,
            batch deadline_s: no option, batch cluster: no option
        """,
    }.items()
    for name in names.split(",")
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
        if name in INSIDE:
            held = resolved(INSIDE[name])
            assert is_dataclass(held)
            inner |= {one.name: one.default for one in fields(held)}
        elif not name.startswith("on_"):
            own[name] = one.default
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
                lines += re.split(r" (?=vinelm )", " ".join(paragraph.split()))[1:]
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
            shown = re.compile(rf"^vinelm {command} .*(?<![\w-])(?:{'|'.join(map(re.escape, one.opts))})(?![\w-])")
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
