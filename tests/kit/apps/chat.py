"""Scripted chat models of two makes: each has its own form of tools and of structured output."""

import asyncio
import json

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from kit.apps.echo import forced
from kit.catalogs import make_catalog
from kit.templates import make_template
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.backends.resolver import ModelResolver
from vinelm.rows.observation import Usage

TOKENS = ("one ", "two ", "three")


class Scripted(BaseChatModel):
    """Answers what ``backend.answer(name, messages, options)`` says; a virtual second and 0.01 dollars a call.

    Even models bind tools as functions and structure by a tool; odd ones bind them as "inputs" and structure by JSON text.
    """

    name_: str
    backend: object = Field(exclude=True)
    call: object = Field(exclude=True)

    @property
    def _llm_type(self):
        return "scripted"

    @property
    def is_odd(self):
        return int(self.name_[1:]) % 2 == 1

    def bind_tools(self, tools, *, tool_choice=None, **kwargs):
        form = "input_schema" if self.is_odd else "function"
        wire = [{form: convert_to_openai_tool(tool)["function"]["name"]} for tool in tools]
        return self.bind(tools=wire, tool_choice=tool_choice, **kwargs)

    def with_structured_output(self, schema, *, include_raw=False, **kwargs):
        if not self.is_odd:
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)
        parser = RunnableLambda(lambda message: schema.model_validate_json(message.text))
        return self.bind(response_format="json", ls_structured_output_format={"schema": schema}, **kwargs) | parser

    def _spend(self, messages, options):
        assert "ls_structured_output_format" not in options
        self.backend.log.append((self.name_, self.call.prefix, options))
        self.call.clock.sleep(1.0)
        self.call.on_usage(Usage(model=self.name_, cost_usd=0.01, latency_s=1.0, tokens_in=8, tokens_out=3, tokens_cached=2))
        failure = self.backend.fail.get(self.name_)
        if failure is not None:
            raise failure
        return self.backend.answer(self.name_, messages, options)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        message = self._spend(messages, {"stop": stop, **kwargs})
        message.response_metadata["model_name"] = self.name_
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        await asyncio.sleep(0)
        return self._generate(messages, stop, **kwargs)

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        answer = self._spend(messages, {"stop": stop, **kwargs})
        calls = [
            {"name": c["name"], "args": json.dumps(c["args"]), "id": c["id"], "index": i}
            for i, c in enumerate(answer.tool_calls)
        ]
        for token in TOKENS if answer.text == "" and not calls else [answer.text]:
            yield ChatGenerationChunk(message=AIMessageChunk(content=token))
        for call in calls:
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


class Whole(Scripted):
    """Cannot stream."""

    _stream = BaseChatModel._stream


class ScriptedBackend:
    """``fail`` maps a model to the exception that its calls raise; ``log`` keeps (model, prefix, options) of every call."""

    is_simulated = True
    is_virtual_time = True

    def __init__(self, answer=None, fail=None, whole=()):
        self.answer = answer or (lambda name, messages, options: AIMessage(""))
        self.fail = fail or {}
        self.whole = whole
        self.log = []
        self.entries = []

    def chat_model(self, model, call):
        self.entries.append(model)
        kind = Whole if model.name in self.whole else Scripted
        return kind(name_=model.name, backend=self, call=call)


def chat_control(backend=None, *, n_models=3, depth=3) -> GraphAdapter:
    return GraphAdapter(
        ModelResolver(make_catalog(n_models), {"test": backend or ScriptedBackend()}), template=make_template(n_models, depth)
    )


def follow(vine, *models):
    """A policy that runs these models one after the other."""
    return forced(vine, models)


def calls_then(text, *calls):
    """An answer for an agent: these tool calls one by one, then the text."""

    def answer(name, messages, options):
        done = sum(isinstance(message, ToolMessage) for message in messages)
        if done < len(calls):
            tool, args = calls[done]
            return AIMessage("", tool_calls=[{"name": tool, "args": args, "id": f"call-{done}"}])
        return AIMessage(text)

    return answer
