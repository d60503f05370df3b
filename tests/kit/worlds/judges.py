"""Models that compare two answers by a rule."""

import datetime
import json

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from kit.worlds.replays import RuleChat, differs, truth, wrong
from vinelm.catalog import Catalog, Price


class JudgeChat(RuleChat):
    """Compares by a rule: ``rule(number, first, second)`` returns what it replies."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        asked = json.loads(messages[-1].content)
        number = int(asked["prompt"]["messages"][-1]["content"].split()[-1])
        self.asked.append((number, {}))
        text = self.rule(number, asked["first"]["content"], asked["second"]["content"])
        message = AIMessage(text, usage_metadata={"input_tokens": 50, "output_tokens": 5, "total_tokens": 55})
        message.response_metadata = {"finish_reason": "stop"}
        return ChatResult(generations=[ChatGeneration(message=message)])


def good(number, first, second):
    right = truth(number)
    better = "first" if first == right else "second" if second == right else "neither"
    return f'```json\n{{"better": "{better}"}}\n```'


def today(number):
    """Wrong in about 10 %."""
    return wrong(number) if differs(number, 0.1, 9) else truth(number)


def mixed(number):
    """Differs from today's in about 9 %, and is right where that is wrong as often as the other way round."""
    if not differs(number, 0.1, 9):
        return wrong(number) if differs(number, 0.05, 4) else truth(number)
    return truth(number) if differs(number, 0.5, 3) else wrong(number)


def with_judge(catalog, judge):
    """The catalog with a judge named boss, who is too expensive to be a plan."""
    usd = Price(input=0.0, output=0.0, call=0.009, source="a test", as_of=datetime.date.today())
    prices = {entry.name: entry.price for entry in catalog.entries}
    return Catalog.from_chat_models({**catalog.live, "boss": judge}, prices={**prices, "boss": usd})
