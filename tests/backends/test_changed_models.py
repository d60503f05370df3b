"""A conversation that changes its model: each server enforces what its provider publishes of earlier reasoning.

Text, tool calls and their results go along; another provider's reasoning does not, and a model's own comes back complete.
Anthropic: https://platform.claude.com/docs/en/build-with-claude/extended-thinking. OpenAI:
https://platform.openai.com/docs/guides/reasoning. Gemini: https://ai.google.dev/gemini-api/docs/thought-signatures. DeepSeek:
https://api-docs.deepseek.com/guides/thinking_mode.
"""

import json

import pytest
from kit.optional import needs
from kit.wire import anthropic_format, gemini_format, openai_format
from kit.wire.client import KEY, Client, add
from langchain_core.messages import HumanMessage, ToolMessage

from vinelm.catalog import Catalog

needs("langchain_openai", "langchain_anthropic", "langchain_google_genai")
pytestmark = [
    pytest.mark.usefixtures("credentials"),
    # Connections of an object that was handed in are its owner's, and google-genai keeps some until it is collected.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ARGUMENTS = {"a": 2, "b": 3}


def refusal(words):
    return {"error": {"message": words, "type": "invalid_request_error", "code": "invalid_value"}}


async def anthropic(asked, out):
    """Thinking of its own stands first in a turn with a tool call, with its signature; nobody else's does."""
    own = False
    for turn in asked.json["messages"]:
        for part in turn["content"] if isinstance(turn["content"], list) else ():
            if part["type"] not in ("text", "tool_use", "tool_result", "thinking"):
                return await out.whole(anthropic_format.problem("invalid_request_error", f"odd block {part['type']}"), 400)
            if part["type"] == "thinking" and part.get("signature") != "SIG":
                return await out.whole(anthropic_format.problem("invalid_request_error", "Invalid signature"), 400)
            own |= part["type"] == "thinking"
    thinks = asked.json.get("thinking", {}).get("type") == "enabled"
    called = [turn for turn in asked.json["messages"] if turn["role"] == "assistant" and isinstance(turn["content"], list)]
    if thinks and called and called[-1]["content"][0]["type"] != "thinking":
        return await out.whole(
            anthropic_format.problem("invalid_request_error", "Expected `thinking`, but found `tool_use`"), 400
        )
    if called:
        return await anthropic_format.answering("5" if own else "five")(asked, out)
    blocks = anthropic_format.thought("hm", "SIG"), anthropic_format.call("add", ARGUMENTS)
    return await anthropic_format.answering(*blocks, stop="tool_use")(asked, out)


def response(*output):
    usage = {"input_tokens": 20, "output_tokens": 7, "total_tokens": 27}
    details = {"input_tokens_details": {"cached_tokens": 8}, "output_tokens_details": {"reasoning_tokens": 3}}
    plain = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-5"}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**plain, **more, "output": list(output), "usage": {**usage, **details}}


async def responses(asked, out):
    """A call that has an id of the API goes with the reasoning before it; nobody else's blocks are known."""
    items = [item for item in asked.json["input"] if isinstance(item, dict)]
    kinds = [item.get("type", "message") for item in items]
    if set(kinds) - {"message", "reasoning", "function_call", "function_call_output"}:
        return await out.whole(refusal(f"unknown items {kinds}"), 400)
    own = any(item.get("encrypted_content") == "ENC" for item in items)
    if any(kind == "reasoning" for kind in kinds) and not own:
        return await out.whole(refusal("reasoning of another model"), 400)
    if any(str(item.get("id", "")).startswith("fc_") for item in items) and not own:
        return await out.whole(refusal("function_call was provided without its required reasoning item"), 400)
    if "function_call" in kinds:
        text = {"type": "output_text", "text": "5" if own else "five", "annotations": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
        return await out.whole(response(message))
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": json.dumps(ARGUMENTS)}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ENC"}
    return await out.whole(response(thought, {**call, "status": "completed"}))


async def gemini(asked, out):
    """The first call of a turn has a signature: its own, or the one that stands for another model's call."""
    calls = [part for turn in asked.json["contents"] for part in turn["parts"] if "functionCall" in part]
    if calls:
        signature = calls[0].get("thoughtSignature")
        if signature is None:
            return await out.whole(gemini_format.problem(400, "INVALID_ARGUMENT", "missing a thought_signature"), 400)
        return await gemini_format.answering("5" if signature == "U0lH" else "five")(asked, out)
    return await gemini_format.answering(gemini_format.call("add", ARGUMENTS, thoughtSignature="U0lH"))(asked, out)


async def deepseek(asked, out):
    """A turn with tool calls has its thoughts beside it where the conversation has some at all."""
    turns = [turn for turn in asked.json["messages"] if turn["role"] == "assistant"]
    if any(not isinstance(turn["content"], str | None) for turn in turns):
        return await out.whole(refusal("content must be a string"), 400)
    own = [turn.get("reasoning_content") for turn in turns if turn.get("tool_calls")]
    if own and own[0] == "mine":
        return await openai_format.answering("5")(asked, out)
    if own:
        return await openai_format.answering("five")(asked, out)
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": json.dumps(ARGUMENTS)}}
    return await openai_format.answering({"reasoning_content": "mine"}, {"tool_calls": [call]}, finish_reason="tool_calls")(
        asked, out
    )


def chat_anthropic(url):
    from langchain_anthropic import ChatAnthropic

    thinking = {"type": "enabled", "budget_tokens": 1024}
    return ChatAnthropic(model="claude-test-1", base_url=url, api_key=KEY, max_tokens=3000, thinking=thinking)


def chat_responses(url):
    from langchain_openai import ChatOpenAI

    reasons = {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"], "store": False}
    return ChatOpenAI(model="gpt-5", base_url=f"{url}/v1", api_key=KEY, use_responses_api=True, max_tokens=3000, **reasons)


def chat_gemini(url):
    from langchain_google_genai import ChatGoogleGenerativeAI

    return ChatGoogleGenerativeAI(model="gemini-3-pro-preview", base_url=url, api_key=KEY, max_output_tokens=3000)


MAKERS = {
    "anthropic": (anthropic, chat_anthropic),
    "responses": (responses, chat_responses),
    "gemini": (gemini, chat_gemini),
    "deepseek": (deepseek, None),
}


class _Ready(Client):
    def __init__(self, chat):
        super().__init__("http://127.0.0.1:9", provider="langchain", model_id="model-1", max_tokens=3000)
        self.backend = self.made(Catalog([self.model], {"langchain": {"max_retries": 0}}, live={"m": chat}))


def client(name, transport):
    _, make = MAKERS[name]
    url = transport.url.removesuffix("/v1")
    return Client(transport.url, model_id="deepseek-reasoner") if make is None else _Ready(make(url))


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
@pytest.mark.parametrize("second", MAKERS)
@pytest.mark.parametrize("first", MAKERS)
def test_a_conversation_changes_its_model(transport, kept, first, second, mode):
    one, other = kept(client(first, transport)), kept(client(second, transport))
    turns = [HumanMessage("2 + 3?")]
    transport.answers(MAKERS[first][0])
    message = one.ask(mode, turns, one.chat().bind_tools([add]))
    (call,) = message.tool_calls
    assert call["args"] == ARGUMENTS
    turns += [message, ToolMessage("5", tool_call_id=call["id"], name="add")]
    transport.answers(MAKERS[second][0])
    answer = other.ask(mode, turns, other.chat().bind_tools([add]))
    assert answer.text == ("5" if first == second else "five")  # a model's own reasoning has come back to it
    body = json.dumps(transport.asked[-1].json)
    assert ("hm" in body or "ENC" in body or "U0lH" in body or "mine" in body) is (first == second)
    assert [usage.failure for usage in (*one.usages, *other.usages)] == [None, None]
