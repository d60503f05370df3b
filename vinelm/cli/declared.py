"""Makes command-line options from the parameters of a Python function, such as ``vinelm.batch``.

Names and defaults come from the function's signature, help texts from its docstring. The source is read, not imported, so that
showing help loads no numerical libraries.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Collection
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vinelm.cli.options import Command, flag, option, stacked
from vinelm.cli.quantities import FRACTION, POINTS, RATE, SECONDS, USD, Count

WRITTEN: dict[str, tuple[str, Any]] = {
    "audit": ("SHARE", FRACTION),
    "budget_calls": ("N", Count()),
    "cache": ("DB", str),
    "calls_per_hour": ("N", RATE),
    "check": ("MODULE:FUNCTION", str),
    "checkpoints": ("URL", str),
    "columns": ("FIELD=COLUMN", str),
    "coverage": ("FRACTION", FRACTION),
    "database": ("FILE", Path),
    "dataset": ("FILE", str),
    "engine": ("WHERE", str),
    "finish": ("", ("all", "good")),
    "ignore": ("FIELD", str),
    "in_use": ("MODEL|JSON", str),
    "judge": ("MODEL", str),
    "label_field": ("COLUMN", str),
    "labels": ("N", Count()),
    "log": ("DB", Path),
    "max_error": ("FRACTION", FRACTION),
    "max_loss": ("POINTS", POINTS),
    "models": ("TOML", Path),
    "output_dir": ("PATH", Path),
    "same": ("MODULE:FUNCTION", str),
    "seed": ("N", int),
    "steps": ("NAME", str),
    "stop": ("", ("workflow", "oracle")),
    "store": ("DB", str),
    "today": ("MODEL", str),
    "weights": ("days|MODULE:FUNCTION", str),
    "workflow": ("NAME", str),
    "traces": ("PATH", Path),
    "usd": ("USD", USD),
    "s": ("S", SECONDS),
    "int": ("N", Count(1)),
    "str": ("NAME", str),
}
"""How a keyword's value is written on the command line: its placeholder and its reader, by name, unit or type."""
MANY = {"columns": "column", "ignore": "ignore", "label_field": "label-field", "steps": "step"}
"""Keywords with several values, mapped to the option that is repeated for them."""
_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n      .*)*)", re.MULTILINE)
_CODE = re.compile(r"(?::\w+:)?`+(?:~?vinelm[.:](?:[\w.]*\.)?)?\"?(.*?)\"?`+")


@cache
def _source(module: str) -> ast.Module:
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    return ast.parse(Path(found.origin).read_text(encoding="utf-8"))


def keywords_of(function: str) -> dict[str, tuple[str, Any, str]]:
    """Return, for each keyword of a function that has a default: its annotation, its default, and its description in ``Args:``.

    Args:
        function: ``module:name``; its module is not imported.
    """
    module, _, name = function.partition(":")
    body = _source(module).body
    node = [one for one in body if isinstance(one, ast.FunctionDef) and one.name == name][-1]  # the last is no overload
    named = {getattr(one.targets[0], "id", ""): one.value for one in body if isinstance(one, ast.Assign)}
    texts = dict(_ARGUMENT.findall(inspect.cleandoc(ast.get_docstring(node) or "").partition("Args:\n")[2]))
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults = [None] * (len(positional) - len(node.args.defaults)) + node.args.defaults
    found = {}
    for one, default in zip([*positional, *node.args.kwonlyargs], [*defaults, *node.args.kw_defaults], strict=True):
        if default is not None and not one.arg.startswith("on_"):
            value = named[default.id] if isinstance(default, ast.Name) else default
            kind = "" if one.annotation is None else ast.unparse(one.annotation)
            found[one.arg] = kind, ast.literal_eval(value), " ".join(texts[one.arg].split())
    return found


def text_of(said: str, names: Collection[str]) -> str:
    """Convert ``said``, a docstring's description of a keyword, to the text that the command line's help shows.

    A final ``None: ...``, which says what None means, is shown as the default. Sentences that begin with ``In Python`` are left
    out. Keywords in double backticks are written as options; ``names`` are all keywords of the function.
    """
    text, none, default = re.sub(r" In Python.*?(?= None: |$)", "", said).partition(" None: ")
    text = f"{text.rstrip('.')} [default: {default.rstrip('.')}]." if none else text
    return _CODE.sub(partial(_written, names), text)


def _written(names: Collection[str], found: re.Match[str]) -> str:
    code = found[1]
    return f"--{code.replace('_', '-')}" if code in names else f"`{code}`" if code.startswith("vinelm ") else code


def declared(
    function: str, *left_out: str, only: Collection[str] = (), **written: tuple[str, Any]
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option to a command for each keyword of a public function.

    Args:
        function: ``module:name`` of the function.
        *left_out: Keywords that cannot be given as text, or that the command declares itself.
        only: The keywords to declare. If empty, all keywords that are not left out are declared.
        **written: For each keyword that this command declares differently, a pair: the option's names and placeholder as one
            text, such as ``"-o --output DB"``, and the parser of the option's value.
    """
    made: list[Any] = []
    keywords = keywords_of(function)
    for name in only or [name for name in keywords if name not in left_out]:
        kind, default, said = keywords[name]
        text, dashed = text_of(said, keywords), MANY.get(name, name).replace("_", "-")
        if kind.startswith("bool"):
            made.append(flag(f"--{dashed}/--no-{dashed}" if default else f"--{dashed}", text, into=name, default=default))
            continue
        value, reads = next(WRITTEN[one] for one in (name, name.rpartition("_")[2], kind.partition(" ")[0]) if one in WRITTEN)
        usage, reads = written.get(name, (f"--{dashed} {value}", reads))
        more = {"multiple": True} if name in MANY else {} if default is None else {"default": default}
        made.append(option(usage, text, reads, into=name, **more))
    return stacked(*made)
