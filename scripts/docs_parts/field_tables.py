"""Tables of fields for the site, from the classes themselves: a comment in a page names what is filled in.

<!-- fields: vinelm.Objective -->    a table of the arguments, with their defaults and what the docstring says of each
<!-- litellm: routes -->             the prefixes of LiteLLM's models that are called as OpenAI's
<!-- litellm: not taken -->          the keys of a LiteLLM file that have no effect
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib import import_module

from vinelm.catalog.litellm_keys import NOT_TAKEN
from vinelm.catalog.litellm_routes import ROUTES

COMMENT = re.compile(r"<!-- (fields|litellm): ([\w. ]+) -->")
NAMES = {"model_id": "model"}
"""Fields that have another name in a file."""
DEFAULTS = {"Model": {"price": "the list price", "engine": "`api_base`, else the provider"}}
"""What a catalog file may leave out, although the class needs it."""
_ROLE = re.compile(r":\w+:`~?([\w.]+)`")


def filled(page: str) -> str:
    """The page with the tables that its comments ask for."""
    return COMMENT.sub(lambda found: table(found[2]) if found[1] == "fields" else litellm(found[2]), page)


def table(name: str) -> str:
    """A table of the arguments of a class, in the order of its docstring."""
    module, _, attribute = name.rpartition(".")
    subject = getattr(import_module(module), attribute)
    defaults = {key: one.default for key, one in inspect.signature(subject).parameters.items()}
    shown = {key: _default(value) for key, value in defaults.items()} | DEFAULTS.get(attribute, {})
    rows = [f"| `{NAMES.get(key, key)}` | {shown[key]} | {text} |" for key, text in arguments(subject).items()]
    return "\n".join(["| field | default | meaning |", "| --- | --- | --- |", *rows])


def arguments(subject: type) -> Mapping[str, str]:
    """What the docstring of a class says of each argument, as Markdown in one line."""
    body = inspect.getdoc(subject) or ""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", body, re.DOTALL | re.MULTILINE)
    found = re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", section[1] if section else "", re.DOTALL | re.MULTILINE)
    return {key: _markdown(text) for key, text in found}


def litellm(what: str) -> str:
    """A list of prefixes or keys, as code."""
    if what == "routes":
        names = [f"{name}/" for name, route in ROUTES.items() if route.provider == "openai"]
    else:
        names = list(NOT_TAKEN)
    return ", ".join(f"`{name}`" for name in sorted(names))


def _markdown(text: str) -> str:
    words = _ROLE.sub(lambda found: f"`{found[1].rpartition('.')[2]}`", " ".join(text.split()))
    return words.replace("``", "`").replace("|", "\\|")


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if value is None:
        return "none"
    return f"`{value!r}`" if isinstance(value, str | int | float | tuple) else ""
