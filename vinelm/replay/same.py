"""Decides whether two answers to one prompt are the same, by the form of the answers: tool calls, JSON, labels, SQL or
text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vinelm.errors import ConfigError, WorkflowError
from vinelm.foreign_code import explained

Message = Mapping[str, Any]
"""An answer: ``content``, a text, and ``tool_calls``, each with ``name`` and ``args``."""
AUDIT = 0.2
"""Share of equal answers about which people are asked, too, if equal answers may have different scores."""
LABEL_WORDS, LABEL_CHARS = 5, 60
"""A recorded answer of one line that is no longer than this is a label: case and final punctuation do not matter."""
_SQL = re.compile(r"\s*(?:```\w*\s*)?(?:select\b.*\bfrom\b|with\s+\w+\s*(?:\([^)]*\)\s*)?as\s*\()", re.I | re.S)
_FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*?)```\s*\Z", re.S)
_NUMBER = re.compile(r"([-+]?)\$?((?:[1-9]\d{0,2}(?:,\d{3})+|0|[1-9]\d*)(?:\.\d+)?(?:e[-+]?\d+)?)\s*(%?)")
"""A number with sign, digits and percent sign; 007 is not a number, and 1,5 may be or not."""
_END = " \t\n.,;:!?\"'`*"


def message_of(answer: Message) -> dict[str, Any]:
    """Return an assistant's message in the form that is compared and stored: ``content`` as one text, and
    ``tool_calls``.

    ``answer`` is in OpenAI's or LangChain's form.
    """
    content = answer.get("content")
    if isinstance(content, list):
        parts = [part if isinstance(part, str) else str(part.get("text") or "") for part in content]
        content = "".join(parts)
    calls = list(answer.get("tool_calls") or ())
    if answer.get("function_call"):
        calls.append({"function": answer["function_call"]})
    return {"content": content or "", "tool_calls": [_call(one) for one in calls]}


def _call(call: Message) -> dict[str, Any]:
    made = call.get("function") or call
    args = made.get("args", made.get("arguments"))
    if isinstance(args, str):
        args = _json(args, args)
    return {"name": str(made.get("name") or ""), "args": {} if args is None else args}


class Sameness:
    """A callable that returns whether a recorded answer and another answer are the same. Thread-safe if ``text`` is.

    How answers are compared depends on their form. Tool calls: by name and arguments, in any order. Structured output: field by
    field. Labels and numbers: ignoring case and final punctuation, numbers by value. SQL: by its result if a database is given,
    otherwise by its syntax tree, or word by word if sqlglot is not installed. Other text: by the given function, else exactly,
    ignoring white space at line ends and empty lines.

    Args:
        text: ``function(recorded, other)`` for free text, called with both texts; or its name, ``module:function``.
        database: A SQLite file on which SQL is executed, read-only and within limits.
        ignore: Fields of structured output that are not compared, such as reasoning.
        audit: Share of equal answers that people are asked about, as an audit; None: :data:`AUDIT` if equal answers may have
            different scores, else 0.

    Raises:
        ConfigError: The function cannot be found, the database is missing, or the share is not in [0, 1].
    """

    def __init__(
        self,
        text: str | Callable[[str, str], bool] | None = None,
        *,
        database: str | Path | None = None,
        ignore: Sequence[str] = (),
        audit: float | None = None,
    ) -> None:
        self._text = None if text is None else named_function(text, "same")
        self._database = None if database is None else Path(database)
        if self._database is not None and not self._database.is_file():
            raise ConfigError(f"{self._database}: there is no such database: give the path of a SQLite file")
        if audit is not None and not 0.0 <= audit <= 1.0:
            raise ConfigError(f"audit is {audit}: it must be a share in [0, 1]")
        self._ignored, self._audit = frozenset(ignore), audit
        self._result = lru_cache(maxsize=4096)(self._executed)

    def __call__(self, recorded: Message, other: Message) -> bool:
        """Return whether the two answers are the same."""
        if recorded["tool_calls"] or other["tool_calls"]:
            return _calls(recorded) == _calls(other)
        one, two = str(recorded["content"]), str(other["content"])
        form = form_of(recorded)
        if form == "structured":
            found = _structured(two)
            return found is not None and self._fields(_structured(one)) == self._fields(found)
        if form == "label":
            return bool(_label(one) == _label(two))
        if form == "sql":
            return self._same_sql(one, two)
        if self._text is not None:
            return bool(called(self._text, "same", one, two))
        return _lines(one) == _lines(two)

    def audit(self, recorded: Sequence[Message]) -> float:
        """Return the share of equal answers that people are asked about, as an audit, given a step's recorded answers."""
        if self._audit is not None:
            return self._audit
        forms = {form_of(one) for one in recorded}
        is_loose = ("text" in forms and self._text is not None) or ("sql" in forms and self._database is None)
        return AUDIT if is_loose else 0.0

    def how(self, recorded: Sequence[Message]) -> str:
        """Return a short phrase that says how the answers of a step are compared, such as by fields; ``recorded`` are the
        step's recorded answers.
        """
        by = "by the given function" if self._text is not None else "exactly"
        sql = "by executing it" if self._database is not None else "by its tree" if find_spec("sqlglot") else "by its words"
        words = {
            "tools": "tool calls by name and arguments", "structured": "structured output field by field",
            "label": "labels and numbers by value", "sql": f"SQL {sql}", "text": f"text {by}",
        }  # fmt: skip
        counted = Counter(form_of(one) for one in recorded)
        return ", ".join(words[form] for form, _ in counted.most_common())

    def _fields(self, value: Any) -> Any:
        """Return a JSON value in a form in which equal values compare as equal: ignored fields removed, white space in
        texts reduced to blanks.
        """
        if isinstance(value, dict):
            return {key: self._fields(one) for key, one in value.items() if key not in self._ignored}
        if isinstance(value, list):
            return [self._fields(one) for one in value]
        if isinstance(value, bool) or value is None:
            return (value,)  # True is not 1
        return " ".join(value.split()) if isinstance(value, str) else value

    def _same_sql(self, one: str, two: str) -> bool:
        from vinelm.workflows.nl2sql.prompts import extract_sql

        one, two = extract_sql(one), extract_sql(two)
        if self._database is None:
            return _tree(one) == _tree(two)
        if one == two:
            return True
        from vinelm.workflows.nl2sql.result_comparison import orders_rows, same_result

        first, second = self._result(one), self._result(two)
        if first.status != "ok" or second.status != "ok" or first.is_truncated or second.is_truncated:
            return False  # a query that did not run to its end shows nothing
        is_ordered = find_spec("sqlglot") is None or orders_rows(one)
        return bool(same_result(first.rows, second.rows, is_ordered=is_ordered))

    def _executed(self, sql: str) -> Any:
        from vinelm.workflows.nl2sql.limited_sql import run_limited

        assert self._database is not None
        return run_limited(self._database, sql)


def form_of(recorded: Message) -> str:
    """Return the form of a recorded answer: ``tools``, ``structured``, ``label``, ``sql`` or ``text``."""
    text = str(recorded["content"])
    if recorded["tool_calls"]:
        return "tools"
    if _structured(text) is not None:
        return "structured"
    if _SQL.match(text):
        return "sql"
    is_short = len(text) <= LABEL_CHARS and len(text.split()) <= LABEL_WORDS and "\n" not in text.strip()
    return "label" if is_short else "text"


def named_function(function: str | Callable[..., Any], what: str) -> Callable[..., Any]:
    """Return ``function`` itself, or import it if it is a text ``module:function``.

    ``what`` names the argument in error messages. See :func:`~vinelm.workflows.registry.load_function`.

    Raises:
        ConfigError: There is no function of that name.
    """
    if callable(function):
        return function
    from vinelm.workflows.registry import load_function

    try:
        return load_function(function, what)
    except WorkflowError as error:
        raise ConfigError(f"{what}: {error}") from error


def called(function: Callable[..., Any], what: str, *arguments: Any) -> Any:
    """Call a user's function with these arguments and return its result; ``what`` names the function in messages.

    Raises:
        WorkflowError: The function failed. The message has the name of the exception but not its text, which may contain a
            prompt.
    """
    where = f"the function given as {what} raised"
    with explained(lambda error: WorkflowError(f"{where} {type(error).__name__}: it must take any answer")):
        return function(*arguments)


def _calls(message: Message) -> Counter[str]:
    """Return the tool calls of a message as a multiset, so that the order of parallel calls does not matter."""
    return Counter(json.dumps([one["name"], _canonical(one["args"])], sort_keys=True) for one in message["tool_calls"])


def _canonical(value: Any) -> Any:
    """Return a JSON value in which whole floats, such as 1.0, are replaced by integers at any depth."""
    if isinstance(value, dict):
        return {key: _canonical(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _json(text: str, otherwise: Any = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise


def _structured(text: str) -> Any:
    """Return the parsed JSON object or array if the text is one, alone or within a Markdown code fence; None for other
    texts.
    """
    fenced = _FENCE.match(text)
    found = _json(fenced.group(1) if fenced else text)
    return found if isinstance(found, dict | list) else None


def _label(text: str) -> Any:
    bare = text.strip(_END).casefold()
    number = _NUMBER.fullmatch(bare)
    if number is None:
        return " ".join(bare.split())
    return float(number[1] + number[2].replace(",", "")), number[3]


def _lines(text: str) -> list[str]:
    """Return the non-empty lines of a text, with their indentation, which may matter in code."""
    return [line.rstrip() for line in text.strip().splitlines() if line.strip()]


@lru_cache(maxsize=4096)
def _tree(sql: str) -> str:
    if find_spec("sqlglot") is not None:
        import sqlglot
        from sqlglot.errors import SqlglotError

        try:
            return sqlglot.parse_one(sql).sql(normalize=True, comments=False)
        except SqlglotError:
            pass
    return " ".join(sql.rstrip("; \n").casefold().split())
