"""What the simulated models answer in the strangers' trial: sums are easy for all of them, products only for the big one.

A call is of one of three kinds. A *sum* or a *product* is worked out, with the model's skill; everything else (to choose, to
rephrase, to grade, to repeat a number) is *easy*, and the cheapest model is as good at it as the dearest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from first_trial_parts.model_answers import Answerer, Reply, _text

STRANGER_SKILLS = {
    "tiny": {"sum": 0.960, "product": 0.25, "easy": 0.985},
    "mid": {"sum": 0.965, "product": 0.60, "easy": 0.985},
    "big": {"sum": 0.970, "product": 0.95, "easy": 0.985},
}
"""Fraction of right answers of the simulated models, by the kind of the call."""
STRANGER_LATENCIES_S = {"tiny": 0.004, "mid": 0.008, "big": 0.015}
_NUMBER = re.compile(r"-?\d+")
_ENDS = ("finish", "end", "done")
_COPIED = ("query", "question", "task", "topic", "description", "request", "brief", "calculation")


class StrangerAnswerer(Answerer):
    """Answers one call, each kind with a skill of its own."""

    def __init__(self, body: Mapping[str, Any], seed: int) -> None:
        super().__init__(body, seed)
        self.kind = "sum" if self.op == "+" else "product"
        skills = STRANGER_SKILLS[body["model"]]
        self.is_right = self.draw < skills[self.kind]
        self.is_easy_right = self.draw < skills["easy"]

    @property
    def _copy(self) -> str:
        """The calculation in a few words: copied, which is easy."""
        return f"{self.a} {self.op} {self.b if self.is_easy_right else self.b + self.off}"

    def _with_tools(self, tools: Mapping[str, Mapping[str, Any]], choice: Any) -> Reply:
        if isinstance(choice, Mapping):
            name = choice["function"]["name"]
            return Reply(calls=[(name, self._filled(tools[name]))])
        last = self.messages[-1]
        said = _text(last).strip()
        if last["role"] != "user" and _NUMBER.fullmatch(said):
            return self._last_word(tools, said, choice)
        name = self._next_tool(tuple(tools))
        return Reply(self._text()) if name is None else Reply(calls=[(name, self._filled(tools[name]))])

    def _last_word(self, tools: Mapping[str, Mapping[str, Any]], said: str, choice: Any) -> Reply:
        """Repeats what a tool or an expert found, by the last tool where one is required."""
        if choice not in ("required", "any"):
            return Reply(said)
        name = list(tools)[-1]
        return Reply(calls=[(name, {**self._filled(tools[name]), **self._read_off(tools[name], said)})])

    def _next_tool(self, names: Sequence[str]) -> str | None:
        """The first tool that was not called yet: of those for this kind of question, if the names say so."""
        called = {call["function"]["name"] for message in self.messages for call in message.get("tool_calls") or ()}
        fitting = [name for name in names if self.kind in name] or list(names)
        return next((name for name in fitting if name not in called), None)

    def _text(self) -> str:
        if "sum or product" in self.prompt:
            return "sum" if self.is_easy_right == (self.kind == "sum") else "product"
        if "PASS or FAIL" in self.prompt:
            return "PASS" if self.is_easy_right else "FAIL"
        if "Rephrase" in self.prompt:
            return self._copy
        copied = re.findall(r"(?:Result|Draft): (-?\d+)", self.prompt)
        if copied:
            return str(int(copied[-1]) + (0 if self.is_easy_right else self.off))
        claims = re.findall(r"claims (-?\d+)", self.prompt)
        if len(claims) > 1 and claims[-1] == claims[-2]:  # those who agree are believed
            return str(claims[-1])
        return str(self.value)

    def _field(self, name: str, schema: Mapping[str, Any]) -> Any:
        if "enum" in schema:
            return self._option(name, [str(option) for option in schema["enum"]])
        if schema.get("type") == "string" and name in _COPIED:
            return self._copy
        if schema.get("type") == "array":
            return [f"compute {self._copy}"] * max(int(schema.get("minItems", 1)), 1)
        return super()._field(name, schema)

    def _option(self, name: str, options: Sequence[str]) -> str:
        """An easy choice: the end once there is a number, else what fits this kind of question, else the first."""
        if name == "sign":
            return str(self.op)
        end = next((option for option in options if option.casefold() in _ENDS), None)
        if end is not None and self.messages[-1]["role"] != "user" and _NUMBER.fullmatch(_text(self.messages[-1]).strip()):
            return end
        fitting = [option for option in options if self.kind in option] or list(options[:1])
        others = [option for option in options if option not in fitting]
        return fitting[0] if self.is_easy_right or not others else others[-1]
