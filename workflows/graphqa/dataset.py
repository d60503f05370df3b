"""Reads questions about a graph with their answers, checks them against the graph, and compares answers."""

from __future__ import annotations

import ast
import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vinelm.errors import DatasetError
from vinelm.requests.dataset import read_jsonl
from vinelm.requests.workflow import Request
from vinelm.workflows.graphqa.act import FUNCTIONS, refusal
from vinelm.workflows.graphqa.prompts import names_in
from vinelm.workflows.graphqa.source import GraphError, GraphSource

LABELS = ("answer", "program", "entities", "arm", "any_of", "template", "source")
"""The keys of a row that the workflow's graph must not get as input."""
KEYS = ("question", "graph", *LABELS)
ARMS = ("direct", "multi_hop")


def load_questions(path: str | Path, sources: Mapping[str, GraphSource]) -> tuple[Request, ...]:
    """Read questions from JSON lines, plain or gzipped.

    A row has ``question`` and ``answer`` (names joined by ", ", or a number). These fields are optional:

    - ``question_id``: the question's id,
    - ``graph``: the name of the source,
    - ``entities``: the names in the question (a list or an object),
    - ``program``: a snippet that prints the answer, which simulated models need,
    - ``arm``: "direct" or "multi_hop",
    - ``any_of``: true if any of the names suffices.

    Raises:
        DatasetError: A row lacks the question or the answer, or names a graph, an entity or an edge type that does not exist.
            Or it has a program that must not run. The message names file and line.
    """
    file = Path(path)
    requests = []
    rows = read_jsonl(file, required=("question", "answer"), id_key="question_id")
    for row, number in zip(rows, _numbers(file), strict=True):
        why = fault(row.data, sources)
        if why is not None:
            raise DatasetError(f"{file}:{number}: {why}")
        requests.append(Request(row.id, {key: row.data[key] for key in KEYS if key in row.data}))
    return tuple(requests)


def fault(row: Mapping[str, Any], sources: Mapping[str, GraphSource]) -> str | None:
    """Return what is wrong with a row of the questions' file, in one line; None if the row is valid."""
    for key in ("question", "answer"):
        if not isinstance(row[key], str) or not row[key].strip():
            return f"{key!r} must be a text that is not empty"
    source = sources.get(row.get("graph", "")) if isinstance(row.get("graph", ""), str) else None
    if source is None:
        return f"the graph {row.get('graph', '')!r} does not exist: use one of {', '.join(map(repr, sources))}"
    if row.get("arm", ARMS[0]) not in ARMS:
        return f"the arm {row['arm']!r} does not exist: use {' or '.join(ARMS)}"
    entities = row.get("entities", ())
    if not isinstance(entities, list | tuple | Mapping):
        return "'entities' must be a list or an object of names"
    if not isinstance(row.get("program", ""), str):
        return "'program' must be a text"
    for name in entities.values() if isinstance(entities, Mapping) else entities:
        if not source.is_named(str(name)):
            return source.unknown(str(name))
    return _fault_of_program(row["program"], source) if "program" in row else None


def is_right(request: Request, state: Mapping[str, Any]) -> bool:
    """Return whether the state's answer has exactly the names, or the number, of the right answer.

    If the request has ``any_of``, an answer with only some of the right names is right, too.
    """
    given, right = names_in(state.get("answer") or ""), names_in(str(request.data["answer"]))
    return bool(given) and (given <= right if request.data.get("any_of") else given == right)


def same_names(one: str | None, other: str | None) -> bool:
    """Return whether two answers have the same names or the same number. A missing answer (None) is equal to nothing."""
    first, second = names_in(one or ""), names_in(other or "")
    return bool(first) and first == second


def calls_in(program: str) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield (function name, arguments) for each call of a graph function in a program, which must be valid Python."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            yield node.func.id, [*node.args, *(keyword.value for keyword in node.keywords)]


def edges_in(program: str) -> tuple[str, ...]:
    """Return the types of edges that a program names as literals in its calls, sorted."""
    ends = [args[-1] for name, args in calls_in(program) if name in ("NodeDegree", "NeighbourCheck") and len(args) == 2]
    return tuple(sorted({text_of(end) for end in ends} - {""}))


def text_of(node: ast.expr) -> str:
    """Return the text of a node that is a text literal; an empty text for any other node."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _fault_of_program(program: str, source: GraphSource) -> str | None:
    why = refusal(program)
    if why is not None:
        return f"the program must not run: {why}"
    try:
        for name in edges_in(program):
            source.neighbours([], name)
        for function, args in calls_in(program):
            if function == "RetrieveNode" and args and (name := text_of(args[0])):
                source.retrieve(name)
    except GraphError as error:
        return f"the program: {error}"
    return None


def _numbers(file: Path) -> list[int]:
    """Return the line numbers, from 1, of the lines of the file that are not blank."""
    opener: Any = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as lines:
        return [number for number, line in enumerate(lines, start=1) if line.strip()]
