"""Runs models' code actions (snippets): checks that their syntax is allowed, then runs them in a sandbox with limits.

The sandbox is pydantic-monty: an interpreter without files, network, environment or imports of the host, whose workers are
separate processes. It can reach only the functions of the graph. It does not survive a fork of the process that uses it. So a
limited process uses the sandbox, and asks this process for each function call.
"""

from __future__ import annotations

import ast
import inspect
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from vinelm.errors import VineLMError
from vinelm.extras import require_extra
from vinelm.workflows.graphqa.source import GraphError
from vinelm.workflows.limited.sessions import Sessions, is_supported

SESSIONS = Sessions("vinelm.workflows.graphqa.act_process", "runs code actions")
SILENT_S = 30.0
"""Seconds without a call or an answer after which a session is ended, as a fault of the snippet."""
CALLS_S = 30.0
"""Seconds from the start of a snippet after which its calls are no longer answered."""
MOST_LINE = 32_000_000
"""The maximum number of bytes of one message of a session; regular messages are shorter."""
MOST_CODE_CHARS = 8000
FUNCTIONS = ("RetrieveNode", "NodeFeature", "NodeDegree", "NeighbourCheck", "NodeInfo")
BUILTINS = (
    "print", "len", "sorted", "set", "list", "dict", "tuple", "sum", "min", "max", "range", "enumerate", "zip", "abs", "round",
    "str", "int", "float", "bool", "any", "all", "reversed",
)  # fmt: skip
_METHODS = frozenset([
    "add", "append", "count", "copy", "discard", "difference", "endswith", "extend", "get", "index", "intersection",
    "items", "join", "keys", "lower", "pop", "remove", "replace", "reverse", "setdefault", "sort", "split",
    "startswith", "strip", "symmetric_difference", "union", "update", "upper", "values", "issubset", "issuperset",
    "isdisjoint", "insert", "title", "clear",
])  # fmt: skip
_SYNTAX = (
    ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Break, ast.Continue, ast.Pass,
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.keyword, ast.Starred, ast.Lambda,
    ast.arguments, ast.arg, ast.Dict, ast.Set, ast.List, ast.Tuple, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.comprehension, ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.Attribute, ast.Subscript,
    ast.Slice, ast.Name, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip


class SandboxFailure(VineLMError):
    """Raised if the sandbox itself or the graph failed, which is not the snippet's fault."""

    default_code = "sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a snippet.

    Args:
        status: ``"ok"``; ``"error"`` if the snippet failed or reached a limit; ``"refused"`` if its syntax is not allowed, and
            nothing was executed.
        printed: The text that the snippet printed, cut at 4 kB.
        error: The error in one line, for the model; None if ``status`` is ``"ok"``.
        is_cut: Whether the snippet printed more than ``printed`` has.
    """

    status: Literal["ok", "error", "refused"]
    printed: str = ""
    error: str | None = None
    is_cut: bool = False


def refusal(code: str) -> str | None:
    """Return why a snippet must not run, in one line; None if it may run. Executes nothing.

    Allowed are expressions, assignments, loops and conditions over the names in ``FUNCTIONS`` and ``BUILTINS``, names that the
    snippet assigns, and methods of plain values. Not allowed are imports, definitions, ``try``, ``del``, names that begin with
    an underscore, and anything else.
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
    """Run a snippet in the sandbox if its syntax is allowed, and return the result; see :func:`in_sandbox`."""
    why = refusal(code)
    if why is not None:
        return Ran(status="error" if why.startswith("SyntaxError") else "refused", error=why)
    return in_sandbox(code, functions)


def in_sandbox(code: str, functions: Mapping[str, Callable[..., Any]]) -> Ran:
    """Run a snippet without checking its syntax, and return the result. Thread-safe; starts processes on first use.

    The limits are those of :mod:`vinelm.workflows.graphqa.act_process`, and :data:`CALLS_S`.

    Args:
        code: Python as the model wrote it.
        functions: The functions that the snippet may call, by the names in ``FUNCTIONS``; called in this thread, with JSON
            values. A :class:`GraphError` that they raise counts as an error of the snippet.

    Raises:
        MissingExtra: pydantic-monty is not installed.
        SandboxFailure: The sandbox died, or a function raised anything but a :class:`GraphError`.
    """
    require_extra("graph", "running code actions", "pydantic_monty")
    if is_supported():
        with SESSIONS.one() as session:
            calls = Calls(functions)
            # The session ends itself later than it is ended here, so that a silent snippet is never a session that has died.
            found = _asked(session, {"code": code, "names": sorted(functions), "silent_s": 2.0 * SILENT_S}, calls)
    else:
        from vinelm.workflows.graphqa.act_process import executed

        calls = Calls(functions)
        found = executed(code, sorted(functions), calls.answer)
    calls.require_sound()
    if found["status"] == "died":
        raise SandboxFailure("the sandbox died while it ran a snippet: is there memory, and may this process start others?")
    return Ran(**found)


def start_sandbox() -> None:
    """Start the process that runs snippets. Call this before a fork, so that forked children share the process.

    It runs a trivial snippet, and raises the same errors as :func:`run_snippet`.
    """
    run_snippet("print(1)", {})


def _asked(session: socket.socket, question: Mapping[str, Any], calls: Calls) -> dict[str, Any]:
    """Send a snippet (``question``) to a session (a process that runs snippets), and return its result.

    Calls of functions that the snippet makes are answered by ``calls``. The result is that of
    :func:`vinelm.workflows.graphqa.act_process.executed`. If the session sends nothing for :data:`SILENT_S` seconds, the result
    has only ``status`` ("error") and ``error``. If the session's process is gone, it has only ``status`` ("died").

    The session is closed unless it can be reused.
    """
    is_reusable = False
    session.settimeout(SILENT_S)
    try:
        with session.makefile("rwb") as stream:
            _say(stream, question)
            while line := stream.readline(MOST_LINE):
                said = json.loads(line)
                if "call" not in said:
                    is_reusable = said["status"] != "died"
                    return cast("dict[str, Any]", said)
                _say(stream, calls.answer(said["call"], said["args"], said["options"]))
    except TimeoutError:  # its calls and limits answer sooner: the session reports anything that takes longer
        return {"status": "error", "error": f"TimeoutError: the snippet gave no sign for {SILENT_S:.0f} s: make less at once"}
    except (OSError, ValueError):  # the session is gone, or its message is cut
        pass
    finally:
        if not is_reusable:
            session.close()
    return {"status": "died"}


def _say(stream: Any, plain: Mapping[str, Any]) -> None:
    stream.write(json.dumps(plain, default=str).encode() + b"\n")
    stream.flush()


class Calls:
    """Answers a snippet's calls of the graph's functions.

    Args:
        functions: the functions, by name.

    Attributes:
        failure: the last exception that a function raised through no fault of the model, that is, not a :class:`GraphError`;
            otherwise None.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = functions
        self._started_s = time.monotonic()
        self.failure: BaseException | None = None

    def answer(self, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Call the function ``name`` with ``args`` and ``options`` (its positional and keyword arguments).

        Return ``{"value": RESULT}``, or ``{"error": TEXT}``, in which the text tells the model what is wrong.
        """
        if time.monotonic() - self._started_s > CALLS_S:
            return {"error": f"the calls took longer than {CALLS_S:.0f} s: ask for less"}
        fn = self._functions.get(name)
        if fn is None:
            return {"error": f"no function is called {name!r}: call one of {', '.join(self._functions)}"}
        try:
            inspect.signature(fn).bind(*args, **options)
        except TypeError as error:
            return {"error": f"{name}: {error}"}
        try:
            return {"value": fn(*args, **options)}
        except GraphError as error:
            return {"error": str(error)}
        except Exception as error:  # the graph's source may raise anything
            self.failure = error
            return {"error": "the graph does not answer"}

    def require_sound(self) -> None:
        """Raise :class:`SandboxFailure` if a function has failed through no fault of the model."""
        if self.failure is not None:
            kind = type(self.failure).__name__
            raise SandboxFailure(f"a function of the graph raised {kind}: mend the source or its embedder") from self.failure


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
