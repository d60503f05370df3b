"""Builds the prompts of the four roles, with the static part first, and parses the models' answers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vinelm.workflows.graphqa import act

CLASSIFY = """You sort questions to a graph. Answer with one word.
direct: at most two steps along the edges of the nodes that the question names, or a count of them
multi_hop: everything else"""
FUNCTIONS = """RetrieveNode(text) -> id of the node with that name
NodeFeature(ids, feature) -> its value
NodeDegree(ids, edge_type) -> number of its neighbours
NeighbourCheck(ids, edge_type) -> list of ids of its neighbours; edges have no direction
NodeInfo(ids) -> text about the nodes
ids is one id, or a list of ids: then values come as a list, and neighbours of all in one list, repeated if they repeat."""
ACT = f"""You write one short Python snippet that asks a graph. Answer with one ```python block and nothing else.
Only these functions and plain builtins exist; no import, def, try. Print what is asked for: names joined by ", ", or a number.
{FUNCTIONS}"""
PLAN = """You plan how to answer a question from a graph. Answer with two lines and nothing else.
Missing: what has to be looked up, with the names that the question has
Edges: the types of edges that this takes, separated by commas"""
REASON = """You answer a question from a notebook of look-ups in a graph. Answer in one of these ways and with nothing else.
Finish[#] if the last entry of the notebook is the answer as it stands
Finish[the names separated by commas, or the number] if the notebook holds the answer otherwise
If something is missing, two lines, "Missing: what has to be looked up" and "Edges: types of edges, separated by commas\""""
NOTEBOOK_CHARS = 24_000
"""The maximum number of characters of a notebook, about 6,000 tokens. New entries that do not fit are left out."""
LEFT_OUT = "(further entries are left out: the notebook is full)"

_FENCE = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\r?\n?(.*?)(?:```|\Z)", re.S | re.I)
_FINISH = re.compile(r"Finish\[(.*?)\][.\s]*$", re.S | re.M)
_MISSING = re.compile(r"^[ \t]*Missing:[ \t]*(\S.*)$", re.M)
_EDGES = re.compile(r"^[ \t]*Edges:[ \t]*(.*)$", re.M)
_WORD = re.compile(r"[a-z_]+")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Reasoned:
    """What a model's plan or reasoning says, as read from the model's text.

    Attributes:
        answer: the answer; None if none is given. ``"#"`` stands for what the last snippet of code printed.
        missing: the facts to look up; None if none are given.
        edges: the types of edges that lead to these facts; empty if none are given.
    """

    answer: str | None
    missing: str | None
    edges: tuple[str, ...]


def arm_of(text: str) -> str:
    """Return the branch that the text names first, ``"direct"`` or ``"multi_hop"``; ``"multi_hop"`` if it names none."""
    return next((word for word in _WORD.findall(text.lower()) if word in ("direct", "multi_hop")), "multi_hop")


def code_of(text: str) -> str | None:
    """Return the last block of code in a text; the text itself if it calls a function of the graph; else None."""
    blocks: list[str] = [block.strip() for block in _FENCE.findall(text) if block.strip()]
    if blocks:
        return blocks[-1]
    return text.strip() if re.search(rf"\b({'|'.join(act.FUNCTIONS)})\(", text) else None


def reasoned(text: str, edge_types: Collection[str]) -> Reasoned:
    """Return what a model's plan or reasoning says; types of edges that are not in ``edge_types`` are left out."""
    finish, missing, edges = _FINISH.search(text), _MISSING.search(text), _EDGES.search(text)
    named = [name.strip().strip("`'\"") for name in edges[1].split(",")] if edges else []
    return Reasoned(
        finish[1].strip() if finish and finish[1].strip() else None,
        missing[1].strip() if missing else None,
        tuple(sorted({name for name in named if name in edge_types})),
    )


def names_in(text: str) -> frozenset[str]:
    """Return the names in an answer, or its number, as a set of texts. Equal answers give equal sets.

    Case and order are ignored, and numbers are compared by value, so that 8 and 8.0 are equal.
    """
    parts = (part.strip().strip("'\"[].").casefold() for part in re.split(r",\s|[\n;]", text))
    return frozenset(repr(float(part)) if _NUMBER.fullmatch(part) else part for part in parts if part)


def noted(notebook: Sequence[str], entry: str) -> list[str]:
    """Return the notebook (the outputs of a request's snippets) with the text ``entry`` added at the end.

    If ``entry`` would make the notebook too long, the note :data:`LEFT_OUT` is added instead. If the notebook already ends with
    this note, nothing is added.
    """
    if notebook and notebook[-1] == LEFT_OUT:
        return list(notebook)
    fits = sum(map(len, notebook)) + len(entry) + len(LEFT_OUT) <= NOTEBOOK_CHARS
    return [*notebook, entry if fits else LEFT_OUT]


def act_system(schema: str) -> str:
    """Return the static part of the prompt of a stage that writes code; ``schema`` comes from :meth:`GraphSource.schema`."""
    return f"{ACT}\n\n{schema}"


def act_prompt(task: str, code: str | None = None, error: str | None = None) -> str:
    """Return the part of the prompt that follows :func:`act_system`.

    It has ``task`` (the question or the missing facts). If ``error`` is given, it also has an earlier answer with this error,
    and the answer's snippet ``code`` (None if there was none).
    """
    if error is None:
        return f"Find: {task}"
    earlier = "An earlier answer:" if code is None else f"An earlier snippet:\n```python\n{code}\n```"
    return f"Find: {task}\n\n{earlier}\n{error}"


def reason_prompt(question: str, notebook: Sequence[str]) -> str:
    """Return the last part of the prompt: the notebook (the outputs of the request's snippets) as a numbered list, then the
    question.
    """
    entries = "\n".join(f"{number}. {entry}" for number, entry in enumerate(notebook, start=1))
    return f"Notebook:\n{entries or 'empty'}\n\nQuestion: {question}"


def digest() -> str:
    """Return a hash of all prompts, which changes if any prompt changes."""
    acts = act_system(""), act_prompt("", "", ""), act_prompt("", None, "")
    shown = (CLASSIFY, *acts, PLAN, REASON, reason_prompt("", ["a"]), LEFT_OUT)
    return hashlib.sha256("\0".join(shown).encode()).hexdigest()
