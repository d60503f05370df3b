"""Run the code actions of models: a list of allowed syntax first, then a sandbox with limits. There is no other way to run them.

The sandbox is pydantic-monty: an interpreter without files, network, environment or imports of the host, whose workers are
processes of their own. Only the functions of the graph can be reached from it.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from vinelm.errors import VineLMError
from vinelm.extras import required_extra
from vinelm.workflows.graphqa.source import GraphError

MOST_SECONDS = 2.0
MOST_BYTES = 50_000_000
MOST_HOST_CALLS = 10_000
MOST_DEPTH = 200
MOST_PRINTED = 4096
"""UTF-8 bytes of printed text that are kept; what comes after is dropped, and the result says so."""
MOST_CODE_CHARS = 8000
WAIT_S = 60.0
"""Seconds to wait for a free worker."""
FUNCTIONS = ("RetrieveNode", "NodeFeature", "NodeDegree", "NeighbourCheck", "NodeInfo")
BUILTINS = (
    "print", "len", "sorted", "set", "list", "dict", "tuple", "sum", "min", "max", "range", "enumerate", "zip", "abs", "round",
    "str", "int", "float", "bool", "any", "all", "reversed",
)  # fmt: skip
_ERROR_CHARS = 300
_METHODS = frozenset(
    "add append count copy discard difference endswith extend get index intersection items join keys lower pop remove replace "
    "reverse setdefault sort split startswith strip symmetric_difference union update upper values issubset issuperset "
    "isdisjoint insert title clear".split()
)
_SYNTAX = (
    ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Break, ast.Continue, ast.Pass,
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.keyword, ast.Starred, ast.Lambda, ast.arguments, ast.arg,
    ast.Dict, ast.Set, ast.List, ast.Tuple, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension,
    ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.Attribute, ast.Subscript, ast.Slice, ast.Name,
    ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip

Status: TypeAlias = Literal["ok", "error", "refused"]


class SandboxFailure(VineLMError):
    """The sandbox itself failed, or the graph behind it: no fault of the snippet, and no answer."""

    default_code = "sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a snippet.

    Args:
        status: ``"ok"``; ``"error"`` if it failed or reached a limit; ``"refused"`` if it has syntax that is not allowed, and
            nothing was executed.
        printed: What it printed, at most ``MOST_PRINTED`` bytes.
        error: One line for the model; None if it is ok.
        is_cut: It printed more.
    """

    status: Status
    printed: str = ""
    error: str | None = None
    is_cut: bool = False


def refusal(code: str) -> str | None:
    """Return why a snippet must not run, in one line; None if it may. Executes nothing.

    Allowed are expressions, assignments, loops and conditions over the names in ``FUNCTIONS`` and ``BUILTINS``, those that the
    snippet assigns, and methods of plain values. Not allowed are imports, definitions, ``try``, ``del``, names with an
    underscore in front, and everything else.
    """
    if len(code) > MOST_CODE_CHARS:
        return f"the snippet has more than {MOST_CODE_CHARS} characters: write less"
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        return f"SyntaxError: {error.msg} (line {error.lineno})"
    except (ValueError, RecursionError, MemoryError):
        return "SyntaxError: the snippet cannot be read"
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    known = bound | {*FUNCTIONS, *BUILTINS}
    return next((why for node in ast.walk(tree) if (why := _refused(node, known))), None)


def run_snippet(code: str, functions: Mapping[str, Callable[..., Any]]) -> Ran:
    """Run a snippet in a worker of this process's sandbox. Any number of threads may call.

    Limits: ``MOST_SECONDS`` of running, ``MOST_BYTES`` of memory, ``MOST_HOST_CALLS`` calls of ``functions``, ``MOST_DEPTH``
    frames, no sleeping; of the printed text ``MOST_PRINTED`` bytes are kept.

    Args:
        code: Python as the model wrote it.
        functions: What it may call, by the names in ``FUNCTIONS``; called in this thread. A :class:`GraphError` of theirs is
            an error of the snippet.

    Raises:
        MissingExtra: pydantic-monty is not installed.
        SandboxFailure: A worker died, or a function raised anything but a :class:`GraphError`.
    """
    why = refusal(code)
    if why is not None:
        return Ran(status="error" if why.startswith("SyntaxError") else "refused", error=why)
    monty = _library()
    printed = _Printed()
    calls = _Calls(functions)
    try:
        with _pool(os.getpid()).checkout(limits=_limits()) as session:
            session.feed_run(code, external_lookup=calls.guarded(), print_callback=printed)
    except (monty.MontySyntaxError, monty.MontyRuntimeError, monty.MontyConversionError) as error:
        calls.check()
        return Ran(status="error", printed=printed.text, error=_line(error), is_cut=printed.is_cut)
    except monty.MontyCrashedError as error:
        raise SandboxFailure("a worker of the sandbox died while it ran a snippet: see whether memory is short") from error
    except (TimeoutError, OSError) as error:
        raise SandboxFailure(f"the sandbox gave no worker within {WAIT_S:.0f} s: {type(error).__name__}") from error
    calls.check()
    return Ran(status="ok", printed=printed.text, is_cut=printed.is_cut)


class _Printed:
    """Collects printed text up to the limit. It must not raise: that would end the run at its time limit only."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._left = MOST_PRINTED
        self.is_cut = False

    def __call__(self, stream: str, text: str) -> None:
        raw = text[: self._left].encode("utf-8", "replace")
        kept = raw[: self._left].decode("utf-8", "ignore")
        self.is_cut |= len(kept) < len(text)
        self._left -= len(raw[: self._left])
        self._parts.append(kept)

    @property
    def text(self) -> str:
        return "".join(self._parts).strip()


class _Calls:
    """The functions of the graph as the sandbox calls them: what is no fault of the snippet is kept for the caller."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = functions
        self._failure: BaseException | None = None

    def guarded(self) -> dict[str, Callable[..., Any]]:
        return {name: self._guarded(fn) for name, fn in self._functions.items()}

    def check(self) -> None:
        if self._failure is not None:
            kind = type(self._failure).__name__
            raise SandboxFailure(f"a function of the graph raised {kind}: mend the source or its embedder") from self._failure

    def _guarded(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            try:
                return fn(*args, **options)
            except GraphError as error:
                raise ValueError(str(error)) from None
            except TypeError as error:
                raise TypeError("wrong arguments of a graph function: see its signature") from error
            except Exception as error:
                self._failure = error
                raise RuntimeError("the graph does not answer") from None

        return call


def _refused(node: ast.AST, known: set[str]) -> str | None:
    line = getattr(node, "lineno", 1)
    if not isinstance(node, _SYNTAX):
        return f"{type(node).__name__} is not allowed (line {line}): use expressions, assignments, for, while and if"
    if isinstance(node, ast.Name) and (node.id.startswith("_") or node.id not in known):
        return f"the name {node.id!r} is not allowed (line {line}): use {', '.join(FUNCTIONS)} and plain builtins"
    if isinstance(node, ast.arg) and node.arg.startswith("_"):
        return f"the name {node.arg!r} is not allowed (line {line})"
    if isinstance(node, ast.Attribute) and node.attr not in _METHODS:
        return f"the attribute {node.attr!r} is not allowed (line {line}): use methods of lists, sets, dicts and text"
    return None


def _limits() -> dict[str, Any]:
    return {
        "max_feed_duration_secs": MOST_SECONDS,
        "max_memory": MOST_BYTES,
        "max_suspensions": MOST_HOST_CALLS,
        "max_recursion_depth": MOST_DEPTH,
        "max_total_sleep_secs": 0.0,
    }


def _line(error: Any) -> str:
    text = error.display("type-msg") if hasattr(error, "display") else f"TypeError: {error}"
    frames = error.traceback() if hasattr(error, "traceback") else ()
    where = f" (line {frames[-1].line})" if frames else ""
    return " ".join(text.split())[:_ERROR_CHARS] + where


def require_sandbox() -> None:
    """Raise :class:`MissingExtra` if pydantic-monty is not installed."""
    _library()


def _library() -> Any:
    with required_extra("graph", "running code actions"):
        import pydantic_monty
    return pydantic_monty


@lru_cache(maxsize=None)
def _pool(process: int) -> Any:
    """The workers of a process, kept until it ends. A forked child starts its own, and never touches its parent's."""
    pool = _library().Monty(checkout_timeout=WAIT_S)
    pool.__enter__()
    return pool
