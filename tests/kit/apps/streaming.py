"""A scripted model that streams the calls of its script, and guesses of calls."""

import json

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

PRICES = {"input": 0.0, "output": 0.0, "source": "test", "as_of": "2026-11-01"}


class Chat(BaseChatModel):
    """Streams the tool calls of a script; its last chunk waits until the test lets it go."""

    answer: object
    gate: object = None

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=["bound"])

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=self.answer("m", messages, {}))])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        answer = self.answer("m", messages, {})
        for at, call in enumerate(answer.tool_calls):
            text = json.dumps(call["args"])
            for part in (text[:3], text[3:]):
                piece = {"name": call["name"] if part == text[:3] else None, "args": part, "id": call["id"], "index": at}
                yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
        if self.gate is not None:
            self.gate()
        yield ChatGenerationChunk(message=AIMessageChunk(content=answer.text, response_metadata={"finish_reason": "stop"}))


class Guesses:
    def __init__(self, *found):
        self.found, self.histories = found, []

    def candidates(self, history):
        self.histories.append([one if isinstance(one, str) else (one.tool, one.arguments, one.result) for one in history])
        return self.found
