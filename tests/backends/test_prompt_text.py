"""The canonical parts of a prompt: what a server reads, in its order, and nothing that differs between equal prompts."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from vinelm.backends.prompt_text import prompt_parts

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


def test_tools_then_system_messages_then_the_conversation():
    messages = [
        HumanMessage("who?"),
        SystemMessage("be brief"),
        AIMessage(""),
        HumanMessage(["a", {"type": "text", "text": "b"}]),
    ]
    parts = prompt_parts(messages, [TOOL])
    assert [part.split("\n")[0] for part in parts] == ["tool", "system", "human", "human"]
    assert parts[1:] == ["system\nbe brief", "human\nwho?", "human\na\nb"]
    assert "look_up" in parts[0]


def test_the_role_is_a_part_of_the_text():
    assert prompt_parts([HumanMessage("x")]) != prompt_parts([SystemMessage("x")])


@pytest.mark.parametrize("other", [{"name": "find", "args": {}}, {"name": "look_up", "args": {"key": 1}}])
def test_a_tool_call_counts_and_its_id_does_not(other):
    def turn(identifier, name="look_up", args=None):
        call = {"id": identifier, "name": name, "args": args or {}, "type": "tool_call"}
        return prompt_parts([AIMessage("", tool_calls=[call]), ToolMessage("found", tool_call_id=identifier)])

    assert turn("call-1") == turn("call-2")
    assert turn("call-1") != turn("call-1", **other)


def test_an_attachment_is_a_digest_and_marks_are_no_text():
    [part] = prompt_parts([HumanMessage([IMAGE])])
    assert "QUJD" not in part
    assert [part] != prompt_parts([HumanMessage([{**IMAGE, "image_url": {"url": "data:image/png;base64,QUJE"}}])])
    marked = HumanMessage([{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}])
    assert prompt_parts([marked]) == prompt_parts([HumanMessage("x")])


def test_what_no_json_can_say_raises_nothing():
    looped = {}
    looped["self"] = looped
    assert len(prompt_parts([HumanMessage([{"type": "odd", "value": object()}])], [looped, {1: 2, "a": object()}])) == 3
