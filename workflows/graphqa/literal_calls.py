"""Finds calls of one function with a literal text in Python code that a model is still writing."""

from __future__ import annotations

import ast
import re

_PLAIN = frozenset(["", "r", "R", "u", "U"])
"""The prefixes of text literals without embedded expressions."""
_UNKNOWN_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\[^\\'\"abfnrtvxuUN0-7\n]")
"""Matches an escape that Python does not know. Such literals are skipped, because Python would warn about them."""


class LiteralCalls:
    """Finds calls ``name("text")`` in code that arrives in pieces of any size; each character is read once.

    Only a single plain literal counts: no f-string, no expression, nothing in a comment or inside another string. Prose and
    fences around the code are harmless. A string that began with one quote mark ends at the end of its line at the latest, and
    any string ends at a fence.

    Args:
        name: The function's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._see = self._in_code
        self._word = ""
        self._stands = ""
        """The part of a call that the last tokens form: none, "name", "(", or "text" if only the closing bracket is missing."""
        self._start()

    def __call__(self, piece: str) -> list[str]:
        """Read the next piece of the text, and return the literals of the calls that this piece completes, in order."""
        found: list[str] = []
        for char in piece:
            if self._see(char):
                found.append(self._text)
        return found

    def _in_code(self, char: str) -> bool:
        """Read a character of the code that is in no text literal and no comment; return whether it completes a call."""
        if char.isalnum() or char == "_":
            if len(self._word) <= len(self._name):  # anything longer is another name
                self._word += char
            return False
        if char in "\"'":
            is_wanted = self._stands == "(" and self._word in _PLAIN
            self._start(self._word, char)
            self._stands, self._word, self._see = "(" if is_wanted else "", "", self._in_string
            return False
        if self._word:
            self._stands = "name" if self._word == self._name and self._stands != "." else ""
            self._word = ""
        is_complete = char == ")" and self._stands == "text"
        if char == "#":
            self._see = self._in_comment
        elif char == "." or not char.isspace():
            self._stands = "." if char == "." else "(" if char == "(" and self._stands == "name" else ""
        return is_complete

    def _in_comment(self, char: str) -> bool:
        if char == "\n":
            self._see = self._in_code
        return False

    def _start(self, prefix: str = "", quote: str = "") -> None:
        """Begin a text literal; the characters that follow decide whether it has one or three quote marks."""
        self._prefix, self._quote, self._body, self._text = prefix, quote, [quote], ""
        self._n_quotes, self._run, self._is_escaped = 0, 1, False

    def _in_string(self, char: str) -> bool:
        quote = self._quote
        if not self._n_quotes:  # one, two or three quotes so far, and nothing else
            if char == quote and self._run < 3:
                self._body.append(char)
                self._run += 1
                self._n_quotes = 3 * (self._run == 3)
                self._run = 0 if self._n_quotes else self._run
                return False
            if self._run == 2:  # the empty string
                self._end()
                return self._in_code(char)
            self._n_quotes, self._run = 1, 0
        self._body.append(char)
        if self._stands != "(":  # it is not a call's argument and may never end: keep only enough to recognize a fence
            del self._body[:-3]
        if self._is_escaped:
            self._is_escaped = False
        elif char == "\\":
            self._is_escaped, self._run = True, 0
        elif char == quote:
            self._run += 1
            if self._run == self._n_quotes:
                self._end()
        elif (char == "\n" and self._n_quotes == 1) or self._body[-3:] == ["`"] * 3:
            self._stands, self._see = "", self._in_code
        else:
            self._run = 0
        return False

    def _end(self) -> None:
        self._see = self._in_code
        literal = self._prefix + "".join(self._body)
        is_wanted, self._stands = self._stands == "(", ""
        if is_wanted and ("r" in self._prefix.lower() or not _UNKNOWN_ESCAPE.search(literal)):
            try:
                self._text, self._stands = str(ast.literal_eval(literal)), "text"
            except (SyntaxError, ValueError):  # an escape without a character, or a zero byte
                return
