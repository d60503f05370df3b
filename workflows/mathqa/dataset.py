"""Reads problems with known answers: numbers as in GSM8K and SVAMP, or letters as in multiple-choice exams."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vinelm.errors import DatasetError
from vinelm.requests.dataset import read_jsonl
from vinelm.requests.workflow import Request
from vinelm.workflows.mathqa.arithmetic import number
from vinelm.workflows.mathqa.equality import MOST_CHARS

LABELS = ("answer", "topic", "calculation", "mistakes", "steps")
"""The keys of a row that the workflow's graph must not get as input."""


def load_problems(path: str | Path) -> tuple[Request, ...]:
    """Read problems from JSON lines, plain or gzipped.

    Each line has a ``question`` and an ``answer``. An answer is a number or a mathematical expression; in a text with ``####``,
    as in GSM8K, it is the text after ``####``. With ``choices`` (letter or digit to text), it is the right choice's letter;
    ``context`` is put before the question. The request's id is ``question_id``, preceded by the name of the ``exam`` if the
    line has one; without ``question_id``, it is the number of the line.

    Raises:
        DatasetError: the file cannot be read, or a line is invalid; the message names file and line.
    """
    requests: dict[str, Request] = {}
    for row in read_jsonl(path, required=("question", "answer"), id_key="\0 the number of the line"):
        where = f"{path}:{row.id}"
        request = _request(row.data, row.id, where)
        if request.id in requests:
            raise DatasetError(f"{where}: the id {request.id!r} repeats: ids must be unique")
        requests[request.id] = request
    return tuple(requests.values())


def _request(row: Mapping[str, Any], line: str, where: str) -> Request:
    question, answer = row["question"], row["answer"]
    if not isinstance(question, str) or not question.strip():
        raise DatasetError(f"{where}: 'question' must be a text that is not empty")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float) or not str(answer).strip():
        raise DatasetError(f"{where}: 'answer' must be a number or a text that is not empty")
    name = "/".join(str(row[key]) for key in ("exam", "question_id") if key in row) if "question_id" in row else line
    topic = row.get("exam", row.get("topic", row.get("type", "")))
    if row.get("choices"):
        return Request(name, {**_multiple_choice(row, where), "topic": str(topic)})
    text = str(answer).rpartition("####")[2].strip()
    if not text or len(text) > MOST_CHARS:
        raise DatasetError(f"{where}: 'answer' must have 1 to {MOST_CHARS} characters: give the final answer only")
    value = number(text)
    plain = text if value is None else str(value)
    return Request(name, {"question": question.strip(), "answer": plain, "topic": str(topic)})


def _multiple_choice(row: Mapping[str, Any], where: str) -> dict[str, str]:
    choices, answer = row["choices"], row["answer"]
    if not isinstance(choices, Mapping) or not any(map(_is_name, choices)):
        raise DatasetError(f"{where}: 'choices' must map capital letters or digits to texts")
    if not isinstance(answer, str) or not _is_name(answer):
        raise DatasetError(f"{where}: 'answer' is {answer!r}: it must be one of {', '.join(choices)}")
    letters = {answer, *filter(_is_name, choices)}  # published exams have choices whose letter was lost
    context = str(row.get("context") or "").strip()
    listed = "\n".join(f"{letter}) {str(text).strip()}" for letter, text in choices.items())
    question = "\n\n".join(part for part in (context, row["question"].strip(), listed) if part)
    return {"question": question, "choices": "".join(sorted(letters)), "answer": answer}


def _is_name(text: str) -> bool:
    return len(text) == 1 and text in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
