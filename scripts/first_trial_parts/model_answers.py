"""What the local models answer: small sums, right with a skill of their own, the same for the same prompt."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

SKILLS = {"tiny": (0.75, 0.40), "mid": (0.90, 0.70), "big": (0.98, 0.93)}
"""Fraction of right answers, for sums and for products."""
LATENCIES_S = {"tiny": 0.02, "mid": 0.05, "big": 0.1}
_TASK = re.compile(r"(\d+) ([+*]) (\d+)")


class Reply:
    """Text and tool calls of one answer."""

    def __init__(self, text: str = "", calls: Sequence[tuple[str, Mapping[str, Any]]] = ()) -> None:
        self.text = text
        self.calls = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]


class Answerer:
    """Answers one call of the chat completions API."""

    def __init__(self, body: Mapping[str, Any], seed: int) -> None:
        self.body = body
        self.messages: list[Mapping[str, Any]] = body["messages"]
        self.prompt = "\n".join(_text(message) for message in self.messages)
        found = _TASK.findall(self.prompt) or [("1", "+", "1")]
        self.a, self.op, self.b = int(found[-1][0]), found[-1][1], int(found[-1][2])
        digest = hashlib.sha256(json.dumps([seed, body["model"], self.messages], sort_keys=True).encode()).digest()
        self.draw = int.from_bytes(digest[:4], "big") / 2**32
        self.is_right = self.draw < SKILLS[body["model"]][self.op == "*"]
        self.off = 1 + digest[5] % 7

    @property
    def truth(self) -> int:
        """The right answer."""
        return self.a + self.b if self.op == "+" else self.a * self.b

    @property
    def value(self) -> int:
        """The model's answer."""
        return self.truth if self.is_right else self.truth + self.off

    def reply(self) -> Reply:
        """The answer, in the form that is asked for."""
        tools = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in self.body.get("tools", ())}
        asked = self.body.get("response_format") or {}
        if tools:
            return self._with_tools(tools, self.body.get("tool_choice"))
        if asked.get("type") == "json_schema":
            return Reply(json.dumps(self._filled(asked["json_schema"]["schema"])))
        return Reply(self._text())

    def _with_tools(self, tools: Mapping[str, Mapping[str, Any]], choice: Any) -> Reply:
        if isinstance(choice, Mapping):
            name = choice["function"]["name"]
            return Reply(calls=[(name, self._filled(tools[name]))])
        last = self.messages[-1]
        if last["role"] != "tool":
            name = next(iter(tools))
            return Reply(calls=[(name, self._filled(tools[name]))])
        if choice in ("required", "any"):
            name = list(tools)[-1]
            return Reply(calls=[(name, {**self._filled(tools[name]), **self._read_off(tools[name], _text(last))})])
        return Reply(_text(last))

    def _read_off(self, schema: Mapping[str, Any], text: str) -> dict[str, Any]:
        return {"answer": int(text) if text.lstrip("-").isdigit() else 0} if "answer" in schema.get("properties", {}) else {}

    def _text(self) -> str:
        if "SELECT" in self.prompt:
            return f"SELECT {self.a} {self.op} {self.b if self.is_right else self.b + self.off}"
        if "sum or product" in self.prompt:
            return "sum" if (self.op == "+") == self.is_right else "product"
        if "PASS or FAIL" in self.prompt:
            return "PASS" if self._judges_well() else "FAIL"
        return f"{self.a} {self.op} {self.b}" if "Rephrase" in self.prompt else str(self.value)

    def _judges_well(self) -> bool:
        """Whether the model takes the last proposed answer for right."""
        proposed = re.findall(r"Proposed: (-?\d+)", self.prompt)
        return (bool(proposed) and int(proposed[-1]) == self.truth) == self.is_right

    def _filled(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._field(name, given) for name, given in schema.get("properties", {}).items()}

    def _field(self, name: str, schema: Mapping[str, Any]) -> Any:
        if "enum" in schema:
            return schema["enum"][0 if self._judges_well() else -1]
        if name in ("a", "b"):
            return self.a if name == "a" else self.b if self.is_right else self.b + self.off
        kind = schema.get("type") or next((one.get("type") for one in schema.get("anyOf", ())), "string")
        if kind == "array":
            return [f"compute {self.a} {self.op} {self.b}"] * max(int(schema.get("minItems", 1)), 1)
        if kind == "boolean":
            return self._judges_well()
        return self.value if kind in ("integer", "number") else str(self.value)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
