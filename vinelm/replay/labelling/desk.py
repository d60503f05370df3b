"""Gives questions to the people who label, and stores their answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from threading import Lock
from typing import Any

from vinelm.replay.kept import Kept
from vinelm.replay.labels import LabelQuestion, next_questions, put_label, question_of, undo_label
from vinelm.replay.same import Message, message_of
from vinelm.trie.verdict import counted

CHOICES: Mapping[str, str] = {
    "left": "left is better",
    "right": "right is better",
    "both": "both are right",
    "neither": "neither is right",
    "skip": "cannot say",
}
"""The possible answers to a question, with their meaning."""
MOST_WORDS = 4_000
"""In longer answers differences are not marked: finding them takes time with the square of their words."""
LEAST_SHARED = 0.4
"""If less than this share of the words is common, nearly everything would be marked."""
Parts = list[tuple[str, bool]]
"""A text in parts, each with whether the other text lacks it."""


class Desk:
    """Gives out questions and stores labels durably. Several people may use it, from several threads.

    Questions are JSON types: ``question`` (its number), ``step``, ``prompt`` (role and text of each message), ``left`` and
    ``right`` (:data:`Parts`).

    Args:
        kept: The open store of a replay (:func:`vinelm.replay.kept.opened`).
    """

    def __init__(self, kept: Kept) -> None:
        self._kept, self._lock = kept, Lock()

    def next_question(self, who: str) -> dict[str, Any] | None:
        """Return the next open question that is not reserved for another person, and reserve it for the person ``who``.

        None if no question is left.
        """
        return next(iter(self.next_questions(who, 1)), None)

    def next_questions(self, who: str, count: int) -> list[dict[str, Any]]:
        """Return up to ``count`` questions, reserved for this person for some minutes."""
        with self._lock:
            return [_shown(one) for one in next_questions(self._kept, count, who)]

    def knows(self, question: int) -> bool:
        """Return whether the store has this question."""
        with self._lock:
            return any(row["question_id"] == question for row in self._kept.rows.questions())

    def put_label(self, question: int, choice: str, who: str) -> None:
        """Store the label of person ``who`` for the question with this number; it replaces the person's earlier label.

        ``choice`` is a key of :data:`CHOICES`, or two scores such as ``0.7/0.4``.
        """
        with self._lock:
            put_label(self._kept, question, choice, who)

    def undo(self, who: str) -> dict[str, Any] | None:
        """Take back this person's last label and return its question; None if the person gave no label."""
        with self._lock:
            number = undo_label(self._kept, who)
            return None if number is None else _shown(question_of(self._kept, number))

    def standing(self) -> str:
        """Return one line with the number of labels and of open questions."""
        with self._lock:
            labelled = {row["question_id"] for row in self._kept.rows.labels()}
            waiting = sum(row["is_open"] and row["question_id"] not in labelled for row in self._kept.rows.questions())
        given = f"{counted(len(labelled), 'question')} answered"
        return f"{given}, {waiting} waiting" if waiting else f"{given}; the same line as before goes on"


def _shown(asked: LabelQuestion) -> dict[str, Any]:
    prompt = [(str(one.get("role") or ""), text_of(message_of(one))) for one in asked.messages]
    if asked.tools:
        prompt.insert(0, ("tools", ", ".join(asked.tools)))
    left, right = differing_parts(text_of(asked.left), text_of(asked.right))
    return {"question": asked.number, "step": asked.step, "prompt": prompt, "left": left, "right": right}


def text_of(message: Message) -> str:
    """Return a message as a person reads it: its text, then a line for each field of each tool call."""
    lines = [str(message["content"])] if message["content"] else []
    for call in message["tool_calls"]:
        lines.append(f"calls {call['name']}")
        args = call["args"]
        fields = args.items() if isinstance(args, dict) else [("", args)]
        lines += [
            f"  {name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for name, value in fields
        ]
    return "\n".join(lines) or "(no text)"


def differing_parts(left: str, right: str) -> tuple[Parts, Parts]:
    """Split both texts into parts that are marked as equal or different; each text is one part if they are long or
    differ almost everywhere.
    """
    words: list[list[str]] = [re.findall(r"\s+|\w+|[^\w\s]", text) for text in (left, right)]
    matched = SequenceMatcher(None, words[0], words[1], autojunk=False)
    if sum(map(len, words)) > MOST_WORDS or matched.ratio() < LEAST_SHARED:
        return [(left, False)], [(right, False)]
    parts: tuple[Parts, Parts] = ([], [])
    for kind, *bounds in matched.get_opcodes():
        for side, (low, high) in enumerate((bounds[:2], bounds[2:])):
            if low < high:
                parts[side].append(("".join(words[side][low:high]), kind != "equal"))
    return parts
