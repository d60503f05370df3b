"""The places of an application where its chat models are made, and the edit that lets VineLM make them.

The source is read, not run. A name is looked up in the imported module, so that ``from x import ChatOpenAI as Model`` is found.
"""

from __future__ import annotations

import ast
import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from vinelm.adapters.langgraph.nodes.user_code import is_user_code
from vinelm.adapters.langgraph.structure.chat_search import makes_chat

_ENDPOINTS = frozenset({"base_url", "openai_api_base", "anthropic_api_url", "azure_endpoint", "endpoint_url"})
_AGENT_MAKERS = frozenset({"create_agent", "create_react_agent"})
_PREFIXES = {
    "ChatOpenAI": "openai",
    "ChatAnthropic": "anthropic",
    "ChatGoogleGenerativeAI": "google_genai",
    "ChatBedrockConverse": "bedrock_converse",
    "ChatBedrock": "bedrock",
    "ChatMistralAI": "mistralai",
    "ChatGroq": "groq",
}
"""Class to the provider's prefix in ``provider:model``."""
_FAMILIES = {"gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai", "claude": "anthropic", "gemini": "google_genai"}
"""How the name of a model begins, and who sells it: what ``init_chat_model`` assumes, too."""


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """A call that makes a chat model, or the name of a model that an agent is made with.

    Attributes:
        path: The file.
        line: Its line, from 1.
        source: The text of the call.
        start: Where it begins in the file, as a number of characters.
        model: The model as ``provider:model``; None if the source does not say, or names a server of its own.
        endpoint: The source of the argument that names a server, as in ``base_url="http://gpu-1:8000/v1"``; None without one.
    """

    path: Path
    line: int
    source: str
    start: int
    model: str | None
    endpoint: str | None = None


def model_calls(module: ModuleType, root: Path) -> list[ModelCall]:
    """Return the calls in the application's modules: ``module``, and those that it imported from below ``root``."""
    found: list[ModelCall] = []
    for one in {id(m): m for m in (module, *_own_modules(root))}.values():
        path = Path(one.__file__ or "")
        if path.suffix == ".py":
            found += _in_file(path, vars(one))
    return found


def edited(path: Path, calls: Iterable[ModelCall], models_file: str) -> str:
    """Return the source of a file in which VineLM makes the models of ``calls``.

    Args:
        path: The file.
        calls: Those of this file.
        models_file: The catalog, as the file will name it.
    """
    before = text = _text(path)
    wanted = sorted(calls, key=lambda one: one.start, reverse=True)
    for call in wanted:
        text = text[: call.start] + "vine.chat_model()" + text[call.start + len(call.source) :]
    tree = ast.parse(before)
    if any(isinstance(node, ast.Assign) and _names_vine(node) for node in tree.body):
        return text
    first = min(call.line for call in wanted)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno < first]
    heads = imports or (tree.body[:1] if ast.get_docstring(tree) is not None else [])
    after = max((node.end_lineno or 0 for node in heads), default=0)
    lines = _lines(text)
    end = "\r\n" if "\r\n" in before else "\n"
    new = [f"from vinelm import VineLM{end}", end, f'vine = VineLM("{models_file}"){end}']
    return "".join([*lines[:after], *new, *lines[after:]])


def difference(path: Path, new: str) -> str:
    """Return what an edit changes, as a unified diff."""
    old = _text(path)
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), path.name, path.name, lineterm="", n=0)
    return "\n".join(lines)


def _own_modules(root: Path) -> Iterator[ModuleType]:
    for name, module in sys.modules.copy().items():  # not list(items()): a collection while it is built may import
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(root) and is_user_code(name, file):
            yield module


def _text(path: Path) -> str:
    """The source, with its own line ends."""
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()


def _lines(text: str) -> list[str]:
    """The lines as Python counts them: a form feed ends none."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _names_vine(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "vine" for target in node.targets)


def _in_file(path: Path, names: dict[str, Any]) -> Iterator[ModelCall]:
    try:
        text = _text(path)
    except (OSError, UnicodeDecodeError):  # another encoding, which Python may read: it is left alone
        return
    starts = [0]
    for line in _lines(text):
        starts.append(starts[-1] + len(line))
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        maker = _value(node.func, names)
        made: ast.expr | None = node if _is_theirs(maker) else None
        if made is None and getattr(maker, "__name__", "") in _AGENT_MAKERS:
            made = _model_text(node)
        source = None if made is None else ast.get_source_segment(text, made)
        if made is not None and source is not None:
            line = _lines(text)[made.lineno - 1]
            column = len(line.encode()[: made.col_offset].decode())  # ast counts bytes
            endpoint = _endpoint_of(node, text)
            yield ModelCall(
                path=path,
                line=made.lineno,
                source=source,
                start=starts[made.lineno - 1] + column,
                endpoint=endpoint,
                model=None if endpoint else _model_of(node, getattr(maker, "__name__", "")),
            )


def _is_theirs(maker: Any) -> bool:
    """True if it makes a chat model that is not VineLM's."""
    return makes_chat(maker) and (getattr(maker, "__module__", "") or "").partition(".")[0] != "vinelm"


def _value(expression: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(expression, ast.Name):
        return names.get(expression.id)
    if isinstance(expression, ast.Attribute):
        return getattr(_value(expression.value, names), expression.attr, None)
    return None


def _model_text(call: ast.Call) -> ast.expr | None:
    """The argument that names an agent's model as text."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "model"] + call.args[:1]
    return given[0] if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else None


def _endpoint_of(call: ast.Call, text: str) -> str | None:
    """The argument that sends the calls elsewhere than to the provider, whose prices and keys then do not hold."""
    given = (keyword for keyword in call.keywords if keyword.arg in _ENDPOINTS)
    return next((ast.get_source_segment(text, keyword) for keyword in given), None)


def _model_of(call: ast.Call, maker: str) -> str | None:
    texts = {
        keyword.arg: keyword.value.value
        for keyword in call.keywords
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
    }
    first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    name = texts.get("model") or texts.get("model_name") or (first if isinstance(first, str) else None)
    if name is None:
        return None
    prefix = _PREFIXES.get(maker) or texts.get("model_provider")
    if prefix is None and ":" in name:
        return name
    prefix = prefix or next((who for start, who in _FAMILIES.items() if name.startswith(start)), None)
    return None if prefix is None else f"{prefix}:{name}"
