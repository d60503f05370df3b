"""Cache points in what is really sent: over a socket, by the unmodified SDKs, from this process and from forked units."""

import asyncio
import datetime
from types import SimpleNamespace

import pytest
from kit.optional import needs
from kit.wire.anthropic_format import answering
from kit.wire.client import KEY, MODES, Client
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from vinelm.backends.bedrock import cache_marks as bedrock
from vinelm.backends.registry import create_backends
from vinelm.catalog import Catalog, Price
from vinelm.errors import ConfigError
from vinelm.profiler import ExecutionConfig, ProfileSettings, RayCluster, WorkflowSource
from vinelm.profiler.executor import make_worker
from vinelm.requests.workflow import Request

PRICE = Price(input=3, output=15, cached=0.3, cache_write=3.75, source="t", as_of=datetime.date(2026, 1, 1))
ROLE = SystemMessage("You answer in one word. " * 400)
MARK = {"type": "ephemeral"}


@pytest.fixture
def client(transport, kept, monkeypatch):
    needs("anthropic")
    monkeypatch.setenv("MY_KEY", KEY)

    def make(**how):
        url = transport.url.removesuffix("/v1")
        return kept(Client(url, **{"provider": "anthropic", "api_key_env": "MY_KEY", "price": PRICE, **how}))

    return make


def marks_of(body):
    parts = [*body.get("tools", []), *body.get("system", []), *[part for turn in body["messages"] for part in turn["content"]]]
    return [number for number, part in enumerate(parts) if part.get("cache_control") == MARK]


@pytest.mark.parametrize("mode", MODES)
def test_the_instructions_are_marked(transport, client, mode):
    transport.answers(answering("four"))
    made = client(cache_points="auto")
    made.ask(mode, [ROLE, HumanMessage("2 + 2?")])
    body = transport.asked[0].json
    assert marks_of(body) == [0]
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}]


def test_without_cache_points_and_where_the_application_marks_the_request_stays_as_it_is(transport, client):
    transport.answers(answering("four"))
    own = HumanMessage([{"type": "text", "text": "x" * 9000, "cache_control": {**MARK, "ttl": "1h"}}])
    client().ask("invoke", [ROLE, HumanMessage("2 + 2?")])
    client(cache_points="auto").ask("invoke", [ROLE, own])
    plain, marked = (asked.json for asked in transport.asked)
    assert marks_of(plain) == marks_of(marked) == []
    assert marked["messages"][0]["content"][0]["cache_control"] == {**MARK, "ttl": "1h"}


def test_a_reservation_covers_a_write_of_the_whole_prompt(client):
    messages = [ROLE, HumanMessage("2 + 2?")]
    plain, marked = client(), client(cache_points="auto")
    ratio = marked.backend.upper_bound_usd(marked.model, messages) / plain.backend.upper_bound_usd(plain.model, messages)
    assert 1.1 < ratio <= 1.25


def test_calls_of_a_profile_wait_for_the_first_one(transport, client):
    """Four calls at once: one writes, and the others read what it has written."""
    order = []

    async def reply(asked, out):
        order.append(("asked", asked.json["messages"][0]["content"][0]["text"]))
        await asyncio.sleep(0.05)
        order.append(("answered", asked.json["messages"][0]["content"][0]["text"]))
        return await answering("four")(asked, out)

    transport.answers(reply)
    made = client(cache_points="auto")

    async def ask():
        chats = [made.chat() for _ in range(4)]
        for chat in chats:
            chat.binding.call.request = Request("r", {})
        await asyncio.gather(*[chat.ainvoke([ROLE, HumanMessage(str(n))]) for n, chat in enumerate(chats)])

    asyncio.run(ask())
    assert [what for what, _ in order[:2]] == ["asked", "answered"]
    assert [what for what, _ in order[2:5]] == ["asked"] * 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"provider": "gemini"}, "takes no cache marks"),
        ({"provider": "simulated"}, "takes no cache marks"),
        ({"price": Price(input=1, output=1, source="t", as_of=datetime.date(2026, 1, 1))}, "nothing is saved"),
    ],
)
def test_cache_points_without_effect_are_an_error(fields, words):
    from kit.wire.client import entry

    model = entry("http://localhost:9", **{"provider": "openai", "cache_points": "auto", "price": PRICE, **fields})
    with pytest.raises(ConfigError, match=words) as raised:
        create_backends(Catalog([model]))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("whose", ["workflow", "judge"])
def test_a_ray_cluster_refuses_them_in_one_line(whose):
    from kit.wire.client import entry

    plain, marked = (Catalog([entry(None, price=PRICE, cache_points=mode)]) for mode in ("off", "auto"))
    judge = SimpleNamespace(models=SimpleNamespace(catalog=marked if whose == "judge" else plain, backends={}))
    catalog = marked if whose == "workflow" else plain
    units = SimpleNamespace(catalog=catalog, backends={}, judging=judge, template=None, is_virtual_time=True)
    source = WorkflowSource(function="none:none")
    execution = ExecutionConfig(isolation="process", source=source, cluster=RayCluster())
    with pytest.raises(ConfigError, match=r"has no effect on a Ray cluster.*without --engine ray"):
        make_worker(ProfileSettings(execution=execution), units, {})


def test_openai_is_told_which_calls_belong_together():
    from kit.wire.client import entry

    from vinelm.backends.openai.backend import OpenAITransport

    transport = OpenAITransport()
    model, own = entry(None, price=PRICE), entry("http://localhost:9", price=PRICE)
    bodies = [transport.request(model, [ROLE, HumanMessage(text)], {}, is_streamed=False).body for text in "ab"]
    assert transport.prompt_parts(bodies[0])[0] == transport.prompt_parts(bodies[1])[0]
    assert transport.marked(model, bodies[0], (), 5)["prompt_cache_key"] == "0000000000000005"
    assert transport.marked(model, {**bodies[0], "prompt_cache_key": "mine"}, (), 5)["prompt_cache_key"] == "mine"
    assert "prompt_cache_key" not in transport.marked(own, bodies[0], (), 5)  # other servers may refuse what they do not know


def test_bedrock_has_blocks_of_their_own_for_marks():
    body = {
        "toolConfig": {"tools": [{"toolSpec": {"name": "a"}}], "toolChoice": {"any": {}}},
        "system": [{"text": "role"}],
        "messages": [
            {"role": "user", "content": [{"text": "q"}, {"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}]},
            {"role": "assistant", "content": [{"text": "a"}]},
        ],
    }
    assert len(bedrock.prompt_parts(body)) == 5
    marked = bedrock.marked(body, (0, 1, 3))
    assert marked["toolConfig"] == {"tools": [{"toolSpec": {"name": "a"}}, bedrock.MARK], "toolChoice": {"any": {}}}
    assert marked["system"] == [{"text": "role"}, bedrock.MARK]
    assert marked["messages"][0]["content"][2] == bedrock.MARK
    assert marked["messages"][1] == body["messages"][1]
    assert bedrock.prompt_parts(marked) == []
    assert len(body["system"]) == 1


def test_every_part_of_a_conversation_with_tools_can_be_marked(client):
    transport = client().backend.transport
    call = {"name": "look", "args": {"x": 1}, "id": "t1", "type": "tool_call"}
    messages = [
        ROLE,
        HumanMessage("q"),
        AIMessage("hm", tool_calls=[call]),
        ToolMessage("found", tool_call_id="t1"),
        HumanMessage("so?"),
    ]
    model = client(cache_points="auto").model
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    body = transport.request(model, messages, {"tools": tools}, is_streamed=False).body
    parts = transport.prompt_parts(body)
    assert len(parts) == 7
    for index in range(7):
        assert marks_of(transport.marked(model, body, (index,), 0)) == [index]
    assert marks_of(body) == []
    forced = transport.request(model, messages, {"tools": tools, "tool_choice": "any"}, is_streamed=False).body
    same = [a == b for a, b in zip(parts, transport.prompt_parts(forced), strict=True)]
    assert same == [True, True, False, True, True, True, True]  # tools and instructions stay in the cache, the rest does not
