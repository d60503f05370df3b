"""Finds where an application creates its chat models, and wraps them in ``vine.around(...)``.

The source is read, not run. A name is looked up in the imported module, so that ``from x import ChatOpenAI as Model`` is found.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from types import ModuleType
from typing import Any

from langchain_core.language_models import BaseChatModel

from vinelm.adapters.langgraph.nodes.signature import is_user_code
from vinelm.adapters.langgraph.structure.chat_search import makes_chat


def edited(path: Path, calls: Iterable[ModelCall], models_file: str, *, is_named: bool = False) -> str:
    """Return a file's source with ``vine.around(...)`` around each of ``calls`` and no other change.

    Args:
        path: The file.
        calls: The calls in this file.
        models_file: The path of the catalog, as written into the file.
        is_named: Whether to pass the stage's name to ``vine.around``; needed for code without a graph, which has no node
            names.
    """
    before = text = text_of(path)
    wanted = sorted(calls, key=lambda one: one.start, reverse=True)
    tree = ast.parse(_parsed(before))
    vine, is_made = _vine_of(tree)
    for call in wanted:
        text = text[: call.start] + call.replacement(is_named=is_named, vine=vine) + text[call.start + len(call.source) :]
    if not is_made:
        text = _making_vine(path, text, tree, min(call.line for call in wanted), f'{vine} = VineLM("{models_file}")')
    return text


def _making_vine(path: Path, text: str, tree: ast.Module, first: int, made: str) -> str:
    """Return a file's text with two additions before the line ``first``: an import of VineLM at its sorted place, and the
    code ``made``.

    ``made`` is the line that creates a ``VineLM``.
    """
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno < first]
    heads = imports or (tree.body[:1] if ast.get_docstring(tree) is not None else [])
    after = max((node.end_lineno or 0 for node in heads), default=0)
    lines = lines_of(text)
    end = next((line[len(line.rstrip("\r\n")) :] for line in lines), "") or "\n"
    before_ours = [node for node in imports if _order(node, path) < _OURS]
    at = max((node.end_lineno or 0 for node in before_ours), default=imports[0].lineno - 1 if imports else after)
    ours = [f"from vinelm import VineLM{end}"]
    group = {_order(node, path)[0] for node in imports}
    if group and _OURS[0] not in group:  # a separate section between the existing ones
        ours = [*([end] if before_ours else []), *ours, *([end] if len(before_ours) < len(imports) else [])]
        while before_ours and at < after and not lines[at].strip():
            at += 1
            ours = ours[1:] if ours[0] == end else ours
    mark = _MARK if at == 0 and text.startswith(_MARK) else ""  # only the first character of a file can be a byte order mark
    body = "".join([*lines[:at], *ours, *lines[at:after], end, f"{made}{end}", *lines[after:]])
    return mark + body.replace(mark, "", 1)


_OURS = (2, 1, "vinelm")


def _order(node: ast.Import | ast.ImportFrom, path: Path) -> tuple[int, int, str]:
    """Return the sort key of an import: first ``__future__``, then the standard library, packages, and the application's
    modules.

    Within each group, ``import x`` comes before ``from x import y``.
    """
    name = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
    top = name.partition(".")[0]
    is_own = any((folder / top).is_dir() or (folder / f"{top}.py").is_file() for folder in [*path.parents][:4])
    is_relative = isinstance(node, ast.ImportFrom) and node.level > 0
    section = 0 if top == "__future__" else 1 if top in sys.stdlib_module_names else 3 if is_own or is_relative else 2
    return section, int(isinstance(node, ast.ImportFrom)), name.lower()


_MARK = "\ufeff"
"""The byte order mark with which some editors begin a file."""


def _parsed(text: str) -> str:
    """Return the text without the byte order mark that Python skips."""
    return text.removeprefix(_MARK)


def _vine_of(tree: ast.Module) -> tuple[str, bool]:
    """Return (name of the module's ``VineLM`` variable, True); if the module creates none, (an unused name, False)."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            maker, place = node.value.func, node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(place, ast.Name) and "VineLM" in (getattr(maker, "id", ""), getattr(maker, "attr", "")):
                return place.id, True
    taken = {name for node in ast.walk(tree) for name in _names_in(node)}
    names = chain(("vine", "vinelm_models"), (f"vinelm_{number}" for number in count(2)))
    return next(name for name in names if name not in taken), False


def _names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds or uses."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
        yield node.name
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


_ENDPOINTS = frozenset({"base_url", "openai_api_base", "anthropic_api_url", "azure_endpoint", "endpoint_url"})
_PREFIXES = {
    "ChatGoogleGenerativeAI": "google_genai",
    "ChatVertexAI": "google_vertexai",
    "ChatBedrockConverse": "bedrock_converse",
}
"""By class, the prefix of ``provider:model`` if it is not the rest of the class's name, as in ``ChatAnthropic``."""
_PROVIDERS = "openai|anthropic|google_genai|google_vertexai|bedrock|bedrock_converse|mistralai|groq|azure_openai|xai|deepseek"
_MENTIONED = re.compile(rf"({_PROVIDERS})[:/]([^\s:/]+)|((?:gpt-|o[134]|claude-|gemini-)[\w.-]*)")
"""A text that consists of a model's name only, as in settings."""
_NO_CHAT = re.compile("embed|rerank|whisper|tts|dall-e|moderation|-image", re.IGNORECASE)
"""Parts of the names of models that do not chat."""
FAMILIES = {"gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai", "claude": "anthropic", "gemini": "google_genai"}
"""Beginnings of model names with their vendors, as ``init_chat_model`` assumes, too."""


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """A call that creates a chat model, or the model name with which an agent is created.

    Attributes:
        line: The line of the call, counted from 1.
        source: The text of the call.
        start: The position in the file where the call begins, in characters.
        model: The model as ``provider:model``; None if the source does not name the model, or names another server.
        endpoint: The source of the argument that names a server, as in ``base_url="http://gpu-1:8000/v1"``; None without one.
        name: The variable that the model is assigned to, else the function that creates it.
        is_wrapped: Whether the call is wrapped in ``vine.around(...)`` already.
    """

    path: Path
    line: int
    source: str
    start: int
    model: str | None
    endpoint: str | None = None
    name: str = "model"
    is_wrapped: bool = False

    def replacement(self, *, is_named: bool = False, vine: str = "vine") -> str:
        """Return the source of the call, wrapped in ``around`` of the variable ``vine``.

        With ``is_named``, the name of the stage is also passed to ``around``.
        """
        stage = f', "{self.name}"' if is_named else ""
        return f"{vine}.around({self.source}{stage})"


@dataclass(frozen=True, kw_only=True)
class DefaultClient(ModelCall):
    """The client that the OpenAI Agents SDK makes by itself for agents without a model object. No line of the application
    makes it, so a line that sets it has to be inserted at ``start``.
    """

    def replacement(self, *, is_named: bool = False, vine: str = "vine") -> str:
        """Return the lines to insert: they set the SDK's client, wrapped in ``around`` of the variable ``vine``."""
        stage = f', "{self.name}"' if is_named else ""
        return (
            "from agents import set_default_openai_client  # noqa: E402\nfrom openai import AsyncOpenAI  # noqa: E402\n\n"
            f"set_default_openai_client({vine}.around(AsyncOpenAI(){stage}))\n\n\n"
        )


def model_calls(module: ModuleType, root: Path) -> list[ModelCall]:
    """Return the model calls in ``module`` and in all imported modules whose files are below ``root``."""
    found: list[ModelCall] = []
    for one in {id(m): m for m in (module, *_own_modules(root))}.values():
        found += _in_file(Path(one.__file__ or ""), vars(one))
    texts = "\n".join(sources(module, root))
    if _CHAT_COMPLETIONS.search(texts) and "set_default_openai_client" not in texts:
        found += _default_client(Path(module.__file__ or ""))
    return found


_CHAT_COMPLETIONS = re.compile(r"set_default_openai_api\(\s*[\"']chat_completions")
"""The line with which an application of the Agents SDK asks for chat completions, the only calls that VineLM answers."""


def _default_client(path: Path) -> Iterator[DefaultClient]:
    """Yield the place in a file at which the client of the Agents SDK can be set: before its first function or class, when
    the application has read its settings.
    """
    text = _readable(path)
    if text is None:
        return
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    first = next((node for node in ast.parse(_parsed(text)).body if isinstance(node, kinds)), None)
    if first is not None:
        line = min([first.lineno, *(one.lineno for one in first.decorator_list)])
        start = _Source(text).start_of_line(line)
        yield DefaultClient(path=path, line=line, source="", start=start, model=None, name="agents")


def mentioned_models(module: ModuleType, root: Path) -> tuple[str, ...]:
    """Return the models, as ``provider:model``, that strings in the application's source name, such as defaults of
    settings.
    """
    found: dict[str, None] = {}
    for one in {id(m): m for m in (module, *_own_modules(root))}.values():
        text = _readable(Path(one.__file__ or ""))
        for node in ast.walk(ast.parse(_parsed(text or ""))):
            said = _MENTIONED.fullmatch(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
            if said is not None:
                who, name, alone = said.groups()
                if _NO_CHAT.search(alone or name):
                    continue
                found |= dict.fromkeys([named_model(alone or name, who)])  # type: ignore[list-item] # its family is known
    return tuple(found)


def sources(module: ModuleType, root: Path) -> Iterator[str]:
    """Yield the source of ``module`` and of all other imported modules whose files are below ``root``."""
    for one in {id(m): m for m in (module, *_own_modules(root))}.values():
        yield _readable(Path(one.__file__ or "")) or ""


def _readable(path: Path) -> str | None:
    """Return a file's source; None for files that are not Python or not UTF-8."""
    try:
        return text_of(path) if path.suffix == ".py" else None
    except (OSError, UnicodeDecodeError):
        return None


def _own_modules(root: Path) -> Iterator[ModuleType]:
    for name, module in sys.modules.copy().items():  # copied at once: a garbage collection during iteration may import
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(root) and is_user_code(name, file):
            yield module


def text_of(path: Path) -> str:
    """Return the source of a file with its original line ends."""
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as Python counts them: a form feed does not end a line."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


class _Source:
    """A file's text, with fast lookup of the text and the position of each syntax node."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._mark = len(text) - len(_parsed(text))
        self._lines = lines_of(_parsed(text))
        self._starts = [self._mark]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr | ast.keyword) -> int:
        """Return the index of the character in the file's text at which a syntax node starts."""
        return self._at(node.lineno, node.col_offset)

    def start_of_line(self, number: int) -> int:
        """Return the index of the character in the file's text at which a line starts; lines count from 1."""
        return self._starts[number - 1]

    def of(self, node: ast.expr | ast.keyword) -> str:
        """Return the source text of a syntax node."""
        return self.text[self.start(node) : self._at(node.end_lineno or 0, node.end_col_offset or 0)]

    def _at(self, number: int, column: int) -> int:
        line = self._lines[number - 1]
        width = column if line.isascii() else len(line.encode()[:column].decode())  # ast counts bytes
        return self._starts[number - 1] + width


def _in_file(path: Path, names: dict[str, Any]) -> Iterator[ModelCall]:
    text = _readable(path)
    if text is None:
        return
    source, tree = _Source(text), ast.parse(_parsed(text))
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        makes = isinstance(node, ast.Call) and (_is_theirs(_maker_of(node, above, names)) or _gives_chat(node, above, names))
        for made in [node] if makes else _named_models(node, names):
            outer = _configured(made, above)
            if not isinstance(made, ast.expr) or not isinstance(outer, ast.expr):
                continue
            endpoint = _endpoint_of(made, source, names) if isinstance(made, ast.Call) else None
            yield ModelCall(
                path=path,
                line=outer.lineno,
                source=source.of(outer),
                start=source.start(outer),
                name=_name_of(outer, above),
                model=None if endpoint else _model_of(made, names),
                endpoint=endpoint,
                is_wrapped=_is_wrapped(outer, above),
            )


def _maker_of(call: ast.Call, above: Mapping[ast.AST, ast.AST], names: Mapping[str, Any]) -> Any:
    """Return the object that a call calls, such as a class or function; None if it is unknown.

    If the call names a variable of the surrounding function, return the chat model class that is assigned to the variable.

    Args:
        call: The call.
        above: The parent of each syntax node.
        names: The module's values by name.
    """
    found = value_of(call.func, names)
    if found is not None or not isinstance(call.func, ast.Name):
        return found
    at: ast.AST | None = call
    while at is not None and not isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef):
        at = above.get(at)
    inside = () if at is None else ast.walk(at)
    given = (one for one in inside if isinstance(one, ast.Assign) and call.func.id in map(ast.unparse, one.targets))
    return next((kind for one in given if makes_chat(kind := value_of(one.value, names))), None)


def _is_wrapped(made: ast.AST, above: Mapping[ast.AST, ast.AST]) -> bool:
    """Return whether a syntax node is an argument of ``vine.around(...)``, or part of such an argument.

    ``above`` has the parent of each syntax node.
    """
    at = above.get(made)
    while isinstance(at, ast.expr | ast.keyword):
        if isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute) and at.func.attr == "around":
            return True
        at = above.get(at)
    return False


def _gives_chat(call: ast.Call, above: Mapping[ast.AST, ast.AST], names: Mapping[str, Any]) -> bool:
    """Return whether a call of a library function creates a chat model that is assigned to a variable of the module.

    False for a function of the application: the call that creates the model is then found in that function's source.

    Args:
        call: The call.
        above: The parent of each syntax node.
        names: The module's values by name.
    """
    statement, maker = above.get(call), value_of(call.func, names)
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or not isinstance(above.get(statement), ast.Module):
        return False
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    if not isinstance(target, ast.Name) or not inspect.isroutine(maker):
        return False
    file = getattr(sys.modules.get(maker.__module__ or ""), "__file__", None) or ""
    chat = names.get(target.id)
    return not is_user_code(maker.__module__ or "", file) and isinstance(chat, BaseChatModel) and _is_theirs(type(chat))


def _configured(made: ast.AST, above: Mapping[ast.AST, ast.AST]) -> ast.AST:
    """Return the call of ``configurable_fields`` on the model that ``made`` creates; if there is none, return ``made``."""
    attribute = above.get(made)
    if isinstance(attribute, ast.Attribute) and attribute.attr == "configurable_fields":
        call = above.get(attribute)
        if isinstance(call, ast.Call):
            return call
    return made


def _name_of(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> str:
    at: ast.AST | None = node
    while at is not None:
        if isinstance(at, ast.Assign | ast.AnnAssign):
            target = at.targets[0] if isinstance(at, ast.Assign) else at.target
            found = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else None
            if found is not None:
                return found.strip("_") or "model"
        if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef):
            return at.name.strip("_") or "model"
        at = above.get(at)
    return "model"


def _is_theirs(maker: Any) -> bool:
    """Return whether ``maker`` is a class or function that creates a chat model; False if it belongs to VineLM."""
    return makes_chat(maker) and not _is_ours(maker)


def _is_ours(maker: Any) -> bool:
    return (getattr(maker, "__module__", "") or "").partition(".")[0] == "vinelm"


def value_of(expression: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression that is a name or an attribute; None if it is unknown. Runs no code of the application.

    ``names`` has the module's values, keyed by name.
    """
    if isinstance(expression, ast.Name):
        return names.get(expression.id)
    if not isinstance(expression, ast.Attribute):
        return None
    owner = value_of(expression.value, names)
    read = getattr if isinstance(owner, type | ModuleType) else inspect.getattr_static  # an object's may be a property
    return read(owner, expression.attr, None)


def _constant(expression: ast.expr, names: dict[str, Any]) -> Any:
    """Return the value of an expression that is a constant or a name of the module; None if it is unknown.

    ``names`` has the module's values, keyed by name.
    """
    return expression.value if isinstance(expression, ast.Constant) else value_of(expression, names)


def _named_models(node: ast.AST, names: dict[str, Any]) -> list[ast.expr]:
    """Return the expressions in a call or dict that name a model by a string and could be replaced by a chat model.

    These are arguments of calls that create agents and middlewares, and the values of ``"model"`` in the dict of a
    sub-agent. An argument counts only if the called function's signature accepts a chat model for it; otherwise it may name
    an embedding model, or be a setting.
    """
    if isinstance(node, ast.Call):
        maker = value_of(node.func, names)
        if not callable(maker) or makes_chat(maker) or _is_ours(maker):
            return []
        return [one for one in _chat_arguments(node, maker) if _is_text(one, names)]
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        given = [value for key, value in zip(keys, node.values, strict=True) if key == "model"]
        if "system_prompt" in keys or "prompt" in keys:
            return [one for one in given if re.fullmatch(r"\w+:\S+", str(_constant(one, names)))]
    return []


def _chat_arguments(call: ast.Call, maker: Any) -> Iterator[ast.expr]:
    """Yield those arguments of a call for which the called function ``maker`` accepts a chat model, by its annotations."""
    try:
        known = inspect.signature(maker).parameters
    except (TypeError, ValueError):  # not a Python function
        return
    places = [one for one in known.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    rest = next((one for one in known.values() if one.kind is one.VAR_POSITIONAL), None)
    given = [(places[number] if number < len(places) else rest, value) for number, value in enumerate(call.args)]
    for parameter, value in [*given, *((known.get(keyword.arg or ""), keyword.value) for keyword in call.keywords)]:
        if parameter is not None and re.search("BaseChatModel|LanguageModel", str(parameter.annotation)):
            yield value


def _is_text(expression: ast.expr, names: dict[str, Any]) -> bool:
    """Return whether an expression is known to be a string: a literal, an f-string, a constant in ``names``, or an
    environment variable.
    """
    of_environment = ast.unparse(expression).startswith(("os.environ", "os.getenv", "getenv("))
    return of_environment or isinstance(expression, ast.JoinedStr) or isinstance(_constant(expression, names), str)


def _endpoint_of(call: ast.Call, source: _Source, names: dict[str, Any]) -> str | None:
    """Return the source text of the argument that sends calls to another server, such as ``base_url=...``; None without one.

    Another server has neither the provider's prices nor its keys. An address that is not in the source does not count: it may
    be the provider's own, for example if an environment variable is empty.
    """
    given = (one for one in call.keywords if one.arg in _ENDPOINTS and isinstance(_constant(one.value, names), str))
    return next((source.of(keyword) for keyword in given), None)


def _model_of(made: ast.expr, names: dict[str, Any]) -> str | None:
    """Return, as ``provider:model``, the model that a call or a string names; None if it names none, or its provider is
    unknown.
    """
    if not isinstance(made, ast.Call):
        text = _constant(made, names)
        return named_model(text, None) if isinstance(text, str) else None
    texts = {keyword.arg: value for keyword in made.keywords if isinstance(value := _constant(keyword.value, names), str)}
    first = _constant(made.args[0], names) if made.args else None
    name = texts.get("model") or texts.get("model_name") or (first if isinstance(first, str) else None)
    kind = value_of(made.func, names)
    prefix = _prefix_of(kind) if isinstance(kind, type) else texts.get("model_provider")
    return None if name is None else named_model(name, prefix)


def _prefix_of(kind: type) -> str | None:
    """Return the provider of a chat model class, as the prefix in ``provider:model``.

    None if the name of the class does not show the provider.
    """
    name = kind.__name__
    return _PREFIXES.get(name) or (name.removeprefix("Chat").lower() if name.startswith("Chat") else None)


def named_model(name: str, prefix: str | None) -> str | None:
    """Return the model as ``provider:model``; None if neither the prefix nor the name identifies the provider.

    Args:
        name: The model's name, with or without its provider.
        prefix: The provider's prefix; None takes the provider from the name.
    """
    if prefix is None and ":" in name:
        return name
    prefix = prefix or next((who for start, who in FAMILIES.items() if name.startswith(start)), None)
    return None if prefix is None else f"{prefix}:{name}"
