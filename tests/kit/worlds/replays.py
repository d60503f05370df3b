"""Recorded calls of one step, and chat models that answer the same prompts by a rule."""

import datetime
import random
import re
from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from vinelm.catalog import Catalog, Price
from vinelm.replay import LoggedCall
from vinelm.replay.kept import opened
from vinelm.replay.labels import LabelQuestion, next_questions, put_label

LABELS = ("billing", "refund", "shipping", "other")
TODAY_USD = 0.01


def truth(number: int) -> str:
    """The right label of a question."""
    return LABELS[number * 7919 % 4]


def wrong(number: int) -> str:
    """Another one."""
    return LABELS[(number * 7919 + 1) % 4]


def differs(number: int, share: float, salt: int = 0) -> bool:
    """Whether a question is one of this share, scattered over all."""
    return random.Random(f"{number}/{salt}").random() < share


class RuleChat(BaseChatModel):
    """Answers ``Question N`` by a rule, and notes what it was asked."""

    rule: Callable[[int], Any]
    asked: list[tuple[int, dict[str, Any]]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "rule"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Return the model with tools."""
        return self.bind(tools=list(tools), **kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        number = int(re.findall(r"Question (\d+)", str(messages[-1].content))[0])
        self.asked.append((number, {**kwargs, "stop": stop}))
        said = self.rule(number)
        message = said if isinstance(said, AIMessage) else AIMessage(said)
        message.usage_metadata = {"input_tokens": 50, "output_tokens": 5, "total_tokens": 55}
        message.response_metadata = {"finish_reason": "stop"}
        return ChatResult(generations=[ChatGeneration(message=message)])


def recorded(
    count: int, answer: Callable[[int], Any] = truth, *, step: str = "grade", system: str = "Sort the question.", **fields: Any
) -> list[LoggedCall]:
    """Calls of a month, one for each request."""
    made = []
    for number in range(count):
        said = answer(number)
        made.append(
            LoggedCall(
                **{
                    "request": f"r{number}",
                    "call": f"c{number}",
                    "step": step,
                    "model": "big",
                    "provider": "test",
                    "messages": [
                        *([{"role": "system", "content": system}] if system else []),
                        {"role": "user", "content": f"Question {number}"},
                    ],
                    "answer": said if isinstance(said, dict) else {"role": "assistant", "content": said},
                    "settings": {"temperature": 0.0, "max_tokens": 20},
                    "started_at": 1.7e9 + number * 86_400.0 * 30.4375 / count,
                    "seconds": 1.0,
                    "tokens_in": 50,
                    "tokens_out": 5,
                    "cost_usd": TODAY_USD,
                    **fields,
                }
            )
        )
    return made


def models(call_usd: float = 0.001, /, **rules: Any) -> Catalog:
    """A catalog of chat models by rule; each call costs so much, and of each model once more, all less than today's."""
    chats = {name: rule if isinstance(rule, RuleChat) else RuleChat(rule=rule) for name, rule in rules.items()}
    prices = {
        name: Price(input=0.0, output=0.0, call=call_usd * (place + 1), source="a test", as_of=datetime.date.today())
        for place, name in enumerate(chats)
    }
    return Catalog.from_chat_models(chats, prices=prices)


def answered(path: Any, who: str = "ann", choose: Callable[[LabelQuestion], str] | None = None, most: int = 100) -> int:
    """A person who knows the truth answers the questions that wait; returns how many."""
    with opened(path) as store:
        questions = next_questions(store, most, who)
        for question in questions:
            put_label(store, question.number, (choose or right_side)(question), who)
        return len(questions)


def right_side(question: LabelQuestion) -> str:
    """Which side has the right label."""
    label = truth(int(question.messages[-1]["content"].split()[-1]))
    left, right = (side["content"].strip(".") == label for side in (question.left, question.right))
    return "both" if left and right else "left" if left else "right" if right else "neither"
